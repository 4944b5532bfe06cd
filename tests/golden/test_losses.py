"""The losses of one small training, recorded: who changes them changes what everybody's runs learn, and says so here.

To record anew: run this file and copy what the failed comparison shows. Where only the rows' CRC differs, it is the data that changed.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config import Pretrain

# fmt: off
MLM = [
    4.340233, 4.324048, 4.335411, 4.301483, 4.247538, 4.208385, 4.181985, 4.123959, 4.106194, 4.108281,
    4.086653, 4.039946, 3.991017, 4.032220, 4.041299, 3.997293, 3.949353, 3.984252, 3.963445, 3.957308,
]
NSP = [
    0.693278, 0.692181, 0.682701, 0.694780, 0.710173, 0.670411, 0.723962, 0.685896, 0.678564, 0.676859,
    0.695496, 0.638617, 0.696578, 0.719063, 0.719740, 0.653609, 0.696508, 0.706561, 0.674783, 0.621287,
]
# fmt: on
GRADIENT_NORM = {1: 1.428471, 10: 1.031243, 20: 1.392699}
HELDOUT_BEFORE = {"heldout/mlm_loss": 4.337154, "heldout/nsp_loss": 0.692918, "heldout/mlm_accuracy": 2 / 120, "heldout/nsp_accuracy": 25 / 40}
HELDOUT_AFTER = {"heldout/mlm_loss": 3.940170, "heldout/nsp_loss": 0.674513, "heldout/mlm_accuracy": 14 / 120, "heldout/nsp_accuracy": 25 / 40}
ROWS_CRC32, TOKENS = 3149896842, 9124
TOLERANCE = 1e-4  # relative: float32 sums in the order of another processor's kernels


def test_twenty_steps_with_dropout(training, tiny_config: Pretrain, tmp_path: Path) -> None:
    logged: dict[int, dict[str, float]] = {}
    training.run(replace(tiny_config, steps=20), tmp_path, logged)
    assert (logged[20]["data/rows_crc32"], logged[20]["data/tokens"]) == (ROWS_CRC32, TOKENS)
    assert [logged[step]["train/mlm_loss"] for step in range(1, 21)] == pytest.approx(MLM, rel=TOLERANCE)
    assert [logged[step]["train/nsp_loss"] for step in range(1, 21)] == pytest.approx(NSP, rel=TOLERANCE)
    assert {step: logged[step]["train/gradient_norm"] for step in GRADIENT_NORM} == pytest.approx(GRADIENT_NORM, rel=1e-3)
    assert logged[0] == pytest.approx(HELDOUT_BEFORE, rel=TOLERANCE)
    assert {name: logged[20][name] for name in HELDOUT_AFTER} == pytest.approx(HELDOUT_AFTER, rel=TOLERANCE)
