"""Similarity of two texts: each text is encoded alone, and the cosine of the two vectors is compared with a score.

Losses: CoSENT (Su 2022, kexue.fm/archives/8847) or squared error of the cosine (Reimers and Gurevych 2019, section 3).
Shapes: N pairs, which are 2N sequences. In the batch, the second text of a pair follows its first text.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.batch import Batch
from pipeline.config.similarity import LOSSES, Similarity
from pipeline.objectives.terms import TASK, Terms
from pipeline.objectives.vectors import TextVectors, mean_over_lengths


class SimilarityTask(TextVectors):
    """Encoder without a head. Training makes the cosine of two texts' vectors follow the score of the pair."""

    low, range = 0.0, 1.0

    def learn(self, settings: Similarity, low: float, high: float) -> None:
        """Train with the loss of these settings on scores from `low` to `high`."""
        self.settings, self.low, self.range = settings, low, high - low

    def forward(self, batch: Batch) -> Terms:
        """Return {TASK: (summed loss, divisor as in `counts`)}; the loss is a float32 scalar."""
        assert batch.label_N is not None
        vectors, settings, scores_N = self.vectors(batch), self.settings, (batch.label_N - self.low) / self.range
        with torch.autocast(vectors.device.type, enabled=False):
            loss = mean_over_lengths(
                vectors,
                settings.dimensions,
                lambda vectors: COMPUTED[settings.loss](cosines(vectors), scores_N, settings),
            )
        return {TASK: (loss, self.counts(batch)[TASK])}

    def counts(self, batch: Batch) -> dict[str, int | Tensor]:
        """Return {TASK: divisor of the summed loss}: 1 for a loss that is one value per batch, else N."""
        return {TASK: 1 if LOSSES[self.settings.loss].is_of_whole_step else batch.sequences // 2}

    def logits(self, batch: Batch) -> Tensor:
        """Return the cosine of each pair by whole vectors and by vectors of each length, float32 (N, L)."""
        vectors = self.vectors(batch)
        with torch.autocast(vectors.device.type, enabled=False):
            return torch.stack([cosines(part) for part in self.at_each_length(vectors)], dim=1)


def cosines(vectors: Tensor) -> Tensor:
    """Return the cosine of each pair of vectors (2N, W), float32 (N,)."""
    return F.cosine_similarity(vectors[::2], vectors[1::2])


def cosent(cosines_N: Tensor, scores_N: Tensor, settings: Similarity) -> Tensor:
    """Return log(1 + sum over i, j of exp((cos_j - cos_i) / temperature)), for all i with a higher score than j."""
    differences = (cosines_N[None, :] - cosines_N[:, None]) / settings.temperature  # [i, j]: cos_j - cos_i
    higher = scores_N[:, None] > scores_N[None, :]
    exponents = differences.masked_fill(~higher, -torch.inf).flatten()
    return torch.logsumexp(F.pad(exponents, (1, 0)), dim=0)  # the 0 added in front gives the 1 of the formula


def squared_error(cosines_N: Tensor, scores_N: Tensor, settings: Similarity) -> Tensor:
    """Return the sum of the squared differences between cosines and scores. The scores are scaled to 0 to 1."""
    return F.mse_loss(cosines_N, scores_N, reduction="sum")


COMPUTED: dict[str, Callable[[Tensor, Tensor, Similarity], Tensor]] = {"cosent": cosent, "cosine": squared_error}
"""similarity.loss -> function of (cosines, scores from 0 to 1, settings)."""
