from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pipeline.environment import set_ray_defaults

set_ray_defaults()

import ray  # noqa: E402  (reads the environment when imported)


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """One small Ray on this machine for all tests of the session; its CPUs are tickets, more than the machine has."""
    ray.init(num_cpus=6, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def small_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 80 short made-up documents in which each word follows from the one before, so that there is something to learn."""
    folder = tmp_path_factory.mktemp("corpus")
    words = np.array([a + b for a in ("ka", "lo", "mi", "ne", "su", "ta") for b in ("r", "nd", "p", "st", "l", "m")])
    random = np.random.default_rng(7)
    for number in range(80):
        sentences = []
        for _ in range(12):
            steps = np.cumsum(random.choice([1, 1, 1, 5], size=random.integers(4, 12))) + random.integers(36)
            sentences.append(" ".join(words[steps % 36]).capitalize() + ".")
        (folder / f"{number:02}.txt").write_text("\n".join(" ".join(sentences[i : i + 4]) for i in (0, 4, 8)) + "\n")
    return folder
