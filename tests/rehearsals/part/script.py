"""Train a BERT with fixed sines of positions, export it, and use it."""

import torch

from pipeline.model.sinusoids import sinusoids
from tests.rehearsals.steps import exported, losses, opened, pretrain, served

drawn = sinusoids(torch.tensor([0, 2]), 4, 100.0)
assert torch.allclose(drawn[0], torch.tensor([0.0, 0.0, 1.0, 1.0]))
assert torch.allclose(drawn[1], torch.tensor([2.0, 0.2, 2.0, 0.2]).sin().where(torch.arange(4) < 2, drawn[1]))

run = pretrain(["model.positions:sine-positions", "--model.positions.theta", "100", "--steps", "40"])
first, last = losses(run, "train/mlm_loss")
assert last < first - 0.1, (first, last)
folder = exported(run.folder)
model, text = opened(folder), "kar [MASK] lond"
assert model.settings.positions.theta == 100 and model.encoder.embeddings.positions is None
there, back = model.hidden(["kar lond kap", "lond kar kap"])  # [CLS] sees the same words in another order
assert abs(there[0] - back[0]).max() > 1e-4
assert served(folder).answer("fill", [text], top=1)[0][0][0]["token_str"] == model.fill(text, top=1)[0][0]["token"]
