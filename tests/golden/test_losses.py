"""The losses of one small training, recorded: who changes them changes what everybody's runs learn, and says so here.

To record anew: run this file and copy what the failed comparison shows.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config import Pretrain

MLM = []
NSP = []
GRADIENT_NORM = []
HELDOUT = {}
TOLERANCE = 1e-4  # of float32 sums in the order of another processor's kernels


@pytest.fixture(scope="module")
def steps() -> int:
    return 20


def test_twenty_steps_with_dropout(training, tiny_config: Pretrain, tmp_path: Path, steps: int) -> None:
    logged: dict[int, dict[str, float]] = {}
    training.run(replace(tiny_config, steps=steps), tmp_path, logged)
    print({n: [round(logged[step][n], 6) for step in range(1, 21)] for n in ("train/mlm_loss", "train/nsp_loss", "train/gradient_norm")}, logged[0], logged[20])
    assert 0
