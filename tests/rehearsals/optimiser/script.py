"""Train with an optimiser that leaves out what goes against the gradient, and continue the run with its state."""

from pathlib import Path

import torch

from pipeline.optim.cautious_adam_w import CautiousAdamW
from tests.rehearsals.steps import losses, pretrain

weights = torch.nn.Parameter(torch.tensor([[1.0, 1.0]]))
optimizer = CautiousAdamW([{"params": [weights]}], lr=0.1, betas=(0.9, 0.9), eps=1e-8)
weights.grad = torch.tensor([[1.0, -1.0]])
optimizer.step()
assert torch.allclose(weights, torch.tensor([[0.9, 1.1]]))  # as Adam's first step: nothing goes against the gradient
weights.grad = torch.tensor([[1.0, 0.1]])  # the second mean is still below 0, so its part is left out
optimizer.step()
assert torch.allclose(weights, torch.tensor([[0.7, 1.1]]))  # and the other part is twice as large

run = pretrain(["optimizer:cautious-adam-w", "--optimizer.learning_rate", "2e-3", "--steps", "30"])
first, last = losses(run, "train/mlm_loss")
assert last < first - 0.1, (first, last)
_, optimizer, state = run.training.start(run.config, Path(run.folder))
assert isinstance(optimizer, CautiousAdamW) and state.step == 30
assert {float(one["step"]) for one in optimizer.state.values()} == {30.0}
