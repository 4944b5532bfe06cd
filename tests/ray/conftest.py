import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.command_line.environment import set_ray_defaults

set_ray_defaults()

import ray  # noqa: E402  (reads the environment when imported)

from pipeline.on_ray import cluster  # noqa: E402
from tests.chaos.simulated import small_corpus as small_documents  # noqa: E402
from tests.conftest import shares_ray  # noqa: E402


@pytest.fixture(scope="module")
def local_ray() -> None:
    """Start one small Ray for the tests that share it, unless it runs; it may have more CPUs than the machine."""
    if not ray.is_initialized():
        cluster.start(num_cpus=6, log_to_driver=False, logging_level="ERROR")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End Ray after the tests that share it, because its processes take CPU time also when they are idle."""
    if nextitem is None or not shares_ray(nextitem):
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
