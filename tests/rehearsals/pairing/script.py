"""Train on rows of one sentence each, look at the rows, and export the model."""

from pipeline.config.data import LoneSentences
from pipeline.show.seen import recompute_rows
from tests.rehearsals.steps import exported, losses, opened, pretrain

run = pretrain(["sampling.pairs:lone-sentences", "--sampling.pairs.shortest", "6", "--steps", "30"])
assert run.config.sampling.pairs == LoneSentences(shortest=6)
separator = run.training.vocabulary.sep_id
for seen in recompute_rows(run.folder, step=1, row=0, number=16):
    ids = seen.row["ids"]
    assert ids.count(separator) == 1 and 6 + 2 <= len(ids) <= 32 and seen.row["not_next"] is None
first, last = losses(run, "train/mlm_loss")
assert last < first - 0.1, (first, last)
assert "heldout/nsp_loss" not in run.logged[30]
assert len(opened(exported(run.folder)).fill("kar [MASK]")[0]) > 0
