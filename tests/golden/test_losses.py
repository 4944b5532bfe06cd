"""Recorded losses of one small training: a change here changes what every run learns, and must be deliberate.

To record anew: run this file and copy what the failed comparison shows. Where only the rows' CRC differs, it is the
data that changed.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.jobs import Pretrain

# fmt: off
MLM = [
    4.338493, 4.320126, 4.309612, 4.297410, 4.236038, 4.211785, 4.181549, 4.178051, 4.110485, 4.090444,
    4.063367, 4.028317, 4.026250, 4.020898, 3.989322, 3.974388, 3.936298, 3.965459, 3.936514, 3.980118,
]
NSP = [
    0.692724, 0.689717, 0.699392, 0.693180, 0.678505, 0.688088, 0.687073, 0.667157, 0.696556, 0.660004,
    0.642564, 0.636606, 0.702413, 0.665054, 0.708672, 0.665128, 0.641442, 0.687692, 0.756726, 0.618798,
]
# fmt: on
GRADIENT_NORM = {1: 1.624539, 10: 1.001493, 20: 0.972746}
HELDOUT_BEFORE = {
    "heldout/mlm_loss": 4.344377,
    "heldout/nsp_loss": 0.693010,
    "heldout/mlm_accuracy": 2 / 177,
    "heldout/nsp_accuracy": 23 / 40,
    "heldout/maximum_length": 32,
}
HELDOUT_AFTER = {
    "heldout/mlm_loss": 3.955241,
    "heldout/nsp_loss": 0.682580,
    "heldout/mlm_accuracy": 19 / 177,
    "heldout/nsp_accuracy": 23 / 40,
}
ROWS_CRC32, TOKENS = 635218106, 9304
TOLERANCE = 1e-4  # relative: float32 sums in the order of another processor's kernels


def test_twenty_steps_with_dropout(training, tiny_config: Pretrain, tmp_path: Path) -> None:
    logged: dict[int, dict[str, float]] = {}
    training.run(replace(tiny_config, steps=20), tmp_path, logged)
    assert (logged[20]["stream/rows_crc32"], logged[20]["stream/tokens"]) == (ROWS_CRC32, TOKENS)
    assert [logged[step]["train/mlm_loss"] for step in range(1, 21)] == pytest.approx(MLM, rel=TOLERANCE)
    assert [logged[step]["train/nsp_loss"] for step in range(1, 21)] == pytest.approx(NSP, rel=TOLERANCE)
    assert {step: logged[step]["train/gradient_norm"] for step in GRADIENT_NORM} == pytest.approx(
        GRADIENT_NORM, rel=1e-3
    )
    assert logged[0] == pytest.approx(HELDOUT_BEFORE, rel=TOLERANCE)
    assert {name: logged[20][name] for name in HELDOUT_AFTER} == pytest.approx(HELDOUT_AFTER, rel=TOLERANCE)
