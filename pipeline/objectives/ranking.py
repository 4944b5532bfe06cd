"""Rank the candidates of queries: one score for each pair of a query and a candidate.

Losses: cross-entropy of each pair (Nogueira and Cho 2019), cross-entropy of a relevant candidate among others (Gao et
al. 2021, "localized contrastive estimation"), and the squared error of a teacher's margins (Hofstätter et al. 2020,
"Margin-MSE").
Shapes: N pairs. In grouped rows, R rows with at most C candidates, of which the first is relevant and the others not.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.batch import AnyBatch, PassagesBatch, TaskBatch
from pipeline.config.model import Model
from pipeline.config.ranking import Ranking
from pipeline.objectives.sequences import SequenceTask
from pipeline.objectives.terms import TASK, Terms


class RankingTask(SequenceTask):
    """A SequenceTask with one output, the score, that is trained to rank candidates."""

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
        self.ranking = Ranking()

    def learn(self, settings: Ranking) -> None:
        """Train with the loss of these settings."""
        self.ranking = settings

    def forward(self, batch: TaskBatch) -> Terms:
        """Return {TASK: (summed loss, divisor as in `counts`)}; the loss is a float32 scalar."""
        scores_N = self.logits(batch)[:, 0]
        return {TASK: (LOSSES[self.ranking.loss](scores_N, batch), self.counts(batch)[TASK])}

    def counts(self, batch: TaskBatch) -> dict[str, int | Tensor]:
        """Return {TASK: divisor of the summed loss}: pairs for binary, rows for softmax, margins for margin."""
        rows = len(batch.passages) if isinstance(batch, PassagesBatch) else 0
        count = {"binary": batch.sequences, "softmax": rows, "margin": batch.sequences - rows}
        return {TASK: count[self.ranking.loss]}


def first_of_rows(counts_R: Tensor) -> Tensor:
    """Return the index of each row's first sequence, int64 (R,). `counts_R` is the number of sequences of each row."""
    return counts_R.cumsum(0) - counts_R


def log_shares(scores_N: Tensor, counts_R: Tensor) -> Tensor:
    """Return the log of the softmax of each row's scores, float32 (N,). The host does not wait for the device."""
    row_N = torch.repeat_interleave(counts_R, output_size=len(scores_N))
    top_R = scores_N.new_full((len(counts_R),), -torch.inf).scatter_reduce(0, row_N, scores_N.detach(), "amax")
    shifted_N = scores_N - top_R[row_N]
    totals_R = scores_N.new_zeros(len(counts_R)).index_add(0, row_N, shifted_N.exp())
    return shifted_N - totals_R.log()[row_N]


def _binary(scores_N: Tensor, batch: TaskBatch) -> Tensor:
    """Return the summed cross-entropy of pairs with a label above 0 against other pairs."""
    return F.binary_cross_entropy_with_logits(scores_N, (batch.labels > 0).float(), reduction="sum")


def _softmax(scores_N: Tensor, batch: PassagesBatch) -> Tensor:
    """Return the summed cross-entropy of the first candidate of each row."""
    return -log_shares(scores_N, batch.passages)[first_of_rows(batch.passages)].sum()


def _margin(scores_N: Tensor, batch: PassagesBatch) -> Tensor:
    """Return the summed squared error of the margins of the first candidate over each of the others of its row."""
    errors_N = scores_N - batch.teacher.view_as(scores_N)
    first_N = torch.repeat_interleave(first_of_rows(batch.passages), batch.passages, output_size=len(errors_N))
    return (errors_N[first_N] - errors_N).square().sum()


LOSSES: dict[str, Callable[[Tensor, AnyBatch], Tensor]] = {"binary": _binary, "softmax": _softmax, "margin": _margin}
"""ranking.loss -> function of (scores, batch) that returns the summed loss."""
