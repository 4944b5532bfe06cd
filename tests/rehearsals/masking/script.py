"""Train with every n-th token masked, and use the model."""

import numpy as np

from pipeline.config.data import StrideMasking
from pipeline.show.seen import recompute_rows
from tests.rehearsals.steps import exported, losses, opened, pretrain, served

EVERY = 4

words = ["sampling.masking:stride-masking", "--sampling.masking.every", str(EVERY), "--sampling.masking.share", "0.3"]
run = pretrain([*words, "--steps", "40"])
assert run.config.sampling.masking == StrideMasking(every=EVERY, share=0.3)
for seen in recompute_rows(run.folder, step=1, row=0, number=8):
    positions = np.array(seen.row["masked_positions"])
    assert len(positions) > 1 and len(positions) == min(round(0.3 * len(seen.row["ids"])), len(positions))
    assert positions[0] <= EVERY and set(np.diff(positions)) <= {EVERY, EVERY + 1}  # a [SEP] is not counted
first, last = losses(run, "train/mlm_loss")
assert last < first - 0.3, (first, last)
assert np.isfinite(run.logged[40]["heldout/mlm_loss"]) and run.logged[40]["heldout/mlm_loss"] < first

folder = exported(run.folder)
model, text = opened(folder), "kar [MASK] lond"
guess = model.fill(text, top=1)[0][0]
assert served(folder).answer("fill", [text], top=1)[0][0][0]["token_str"] == guess["token"], guess
