import os
from collections.abc import Iterator

import pytest

os.environ.setdefault("RAY_AUTH_MODE", "token")

import ray  # noqa: E402  (reads it when imported)


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """One small Ray on this machine for all tests of the session."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()
