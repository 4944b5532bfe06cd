"""Pairs of BLiMP that are decided in bfloat16 as in float32. Runs where the environment names a model and the files:

CHECKPOINT=output/runs/NAME/export BLIMP=BLIMP pytest -s tests/parity/test_blimp_precision.py

PAIRS=all scores all pairs instead of a fifth, EVERY=10 only every tenth of them.
"""

import os
import time
from dataclasses import replace

import numpy as np
import torch

from pipeline.evaluation.minimal_pairs.pairs import encode_pairs, score_pairs
from pipeline.evaluation.minimal_pairs.paradigms import read_blimp, select
from pipeline.evaluation.minimal_pairs.results import score_paradigms
from pipeline.export.trained import load_trained
from pipeline.text.vocabulary_loading import load_vocabulary
from pipeline.train.hardware import autocast_of
from tests.data import needs_data

LEAST = 0.998
"""Least share of the pairs to decide alike."""


@needs_data("CHECKPOINT", "BLIMP")
def test_pairs_are_decided_in_bfloat16_as_in_float32() -> None:
    checkpoint, blimp = os.environ["CHECKPOINT"], os.environ["BLIMP"]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    trained, vocabulary = load_trained(checkpoint), load_vocabulary(checkpoint, None)
    every = int(os.environ.get("EVERY", "1"))
    chosen = slice(every // 2, None, every)
    paradigms = [
        replace(paradigm, good=paradigm.good[chosen], bad=paradigm.bad[chosen])
        for paradigm in select(read_blimp(blimp, print), os.environ.get("PAIRS", "fifth"))
    ]
    pairs = encode_pairs(paradigms, vocabulary, trained.model.maximum_positions, "score another checkpoint")
    module = trained.module.to(device)
    decided = {}
    for precision in ("float32", "bfloat16"):
        start = time.process_time()
        nats = score_pairs(module, vocabulary, pairs, device=device, autocast=autocast_of(precision, device))
        print(f"\n{precision}: {time.process_time() - start:.1f} CPU seconds", end="")
        scores = score_paradigms(paradigms, pairs.texts, nats)
        decided[precision] = {scoring: np.concatenate(list(values.values())) for scoring, values in scores.items()}
    for scoring, in_float32 in decided["float32"].items():
        in_bfloat16 = decided["bfloat16"][scoring]
        alike = float((in_bfloat16 == in_float32).mean())
        print(
            f"\n{scoring}: {alike:.2%} of {len(in_float32):,} pairs decided alike; accuracy {in_float32.mean():.2%} in "
            f"float32, {in_bfloat16.mean():.2%} in bfloat16"
        )
        assert alike >= LEAST, scoring
