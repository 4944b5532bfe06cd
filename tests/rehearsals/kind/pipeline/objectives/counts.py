"""Predict a count per sequence: Poisson regression, whose output is the logarithm of the expected count.

Shapes: N sequences.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.batch import TaskBatch
from pipeline.config.model import Model
from pipeline.objectives.sequences import SequenceTask
from pipeline.objectives.terms import TASK, Terms


class CountTask(SequenceTask):
    """A SequenceTask with one output, the logarithm of the expected count."""

    def __init__(
        self,
        settings: Model,
        vocabulary_size: int,
        generator: torch.Generator | None = None,
        *,
        pooling: str = "cls",
    ) -> None:
        """Initialise weights from `generator`; None: from torch's global generator."""
        super().__init__(settings, vocabulary_size, 1, generator, kind="regression", pooling=pooling)

    def forward(self, batch: TaskBatch) -> Terms:
        """Return {TASK: (summed negative log-likelihood, N)}; the loss is a float32 scalar."""
        loss = F.poisson_nll_loss(self.scores(batch)[:, 0], batch.labels, log_input=True, reduction="sum")
        return {TASK: (loss, self.counts(batch)[TASK])}

    def logits(self, batch: TaskBatch) -> Tensor:
        """Return the expected counts, float32 (N, 1)."""
        return self.scores(batch).exp()
