"""Matching texts: each text is encoded alone, and its vector should be nearer to its match than to other texts.

Losses: InfoNCE over all rows of a step, in both directions (van den Oord et al. 2018), or a margin between the match
and a negative text (Reimers and Gurevych 2019, section 3).
Shapes: N rows of a text, its match and up to K negative texts, W width of a vector.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.batch import Batch
from pipeline.config.similarity import Similarity
from pipeline.objectives.contrastive import compared
from pipeline.objectives.terms import TASK, Terms
from pipeline.objectives.vectors import TextVectors, mean_over_lengths


class MatchingTask(TextVectors):
    """Encoder without a head. Training brings the vectors of matching texts together."""

    def learn(self, settings: Similarity) -> None:
        """Train with the loss of these settings."""
        self.settings = settings

    def forward(self, batch: Batch) -> Terms:
        """Return {TASK: (summed loss, divisor as in `counts`)}; the loss is a float32 scalar."""
        assert batch.keys is not None
        texts, keys, settings = self.logits(batch), batch.keys, self.settings
        with torch.autocast(texts.device.type, enabled=False):
            loss = mean_over_lengths(
                texts, settings.dimensions, lambda vectors: LOSSES[settings.loss](vectors, keys, settings)
            )
        return {TASK: (loss, self.counts(batch)[TASK])}

    def counts(self, batch: Batch) -> dict[str, int | Tensor]:
        """Return {TASK: divisor of the summed loss}: the negative texts for triplet, else N."""
        assert batch.keys is not None
        return {TASK: _has_negatives(batch.keys).sum() if self.settings.loss == "triplet" else len(batch.keys)}

    def logits(self, batch: Batch) -> Tensor:
        """Return the vectors of the texts of each row, not scaled, float32 (N, 2 + K, W); 0 for a missing negative."""
        assert batch.keys is not None
        vectors, texts = self.vectors(batch), batch.keys.shape[1] - 1
        if batch.places is not None:
            every = vectors.new_zeros(len(batch.keys) * texts, vectors.shape[1])
            vectors = every.index_copy(0, batch.places, vectors)
        return vectors.view(-1, texts, vectors.shape[1])


def _has_negatives(keys: Tensor) -> Tensor:
    """Return which negative texts the rows have, bool (N, K)."""
    return keys[:, 3:] != 0


def contrastive(texts: Tensor, keys: Tensor, settings: Similarity) -> Tensor:
    """Return the summed InfoNCE loss of vectors (N, 2 + K, W). A row's loss is the mean of both directions.

    `keys` (N, 3 + K) are those of Batch.keys.
    """
    scaled = F.normalize(texts, dim=2)
    return torch.stack([part.loss_B.sum() for part in compared(scaled, keys, settings.temperature)]).sum()


def triplet(texts: Tensor, keys: Tensor, settings: Similarity) -> Tensor:
    """Return the sum over all negative texts of max(0, |text - match| - |text - negative| + margin).

    `texts` are vectors (N, 2 + K, W), and `keys` (N, 3 + K) are those of Batch.keys.
    """
    near = F.pairwise_distance(texts[:, :1], texts[:, 1:2])
    far = F.pairwise_distance(texts[:, :1], texts[:, 2:])
    return (F.relu(near - far + settings.margin) * _has_negatives(keys)).sum()


LOSSES: dict[str, Callable[[Tensor, Tensor, Similarity], Tensor]] = {"contrastive": contrastive, "triplet": triplet}
"""similarity.loss -> function of (vectors, keys, settings)."""
