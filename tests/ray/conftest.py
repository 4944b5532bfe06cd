import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.environment import set_ray_defaults

set_ray_defaults()

import ray  # noqa: E402  (reads the environment when imported)

from pipeline import cluster  # noqa: E402
from tests.chaos.simulated import small_corpus as small_documents  # noqa: E402


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """Start one small Ray for all tests of the session; its logical CPUs may exceed the machine's."""
    cluster.start(num_cpus=6, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def small_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of 80 documents whose words depend on the words before."""
    return small_documents(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def ray_folder() -> Iterator[Path]:
    """Return a folder with a short path for Ray's sockets and logs."""
    with tempfile.TemporaryDirectory(prefix="bs-", dir="/tmp") as folder:
        yield Path(folder)
