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
from pipeline.config.similarity import LOSSES, Similarity
from pipeline.objectives.contrastive import compared, losses_and_gradients
from pipeline.objectives.terms import TASK, Terms
from pipeline.objectives.vectors import TextVectors, mean_over_lengths, truncated


class MatchingTask(TextVectors):
    """Encoder without a head. Training brings the vectors of matching texts together."""

    two_passes = False
    """Whether the rows of all slots of a step are compared, so that a step needs two passes over its slots."""

    def learn(self, settings: Similarity, *, split: bool = False) -> None:
        """Train with the loss of these settings; `split`: a step has several slots."""
        self.settings, self.two_passes = settings, split and LOSSES[settings.loss].compares_rows

    def forward(self, batch: Batch) -> Terms | Tensor:
        """Return {TASK: (summed loss, divisor as in `counts`)}; the loss is a float32 scalar.

        With two passes, return the vectors instead, because the loss needs those of all slots.
        """
        if self.two_passes:
            return self.logits(batch)
        assert batch.keys is not None
        texts, keys, settings = self.logits(batch), batch.keys, self.settings
        with torch.autocast(texts.device.type, enabled=False):
            loss = mean_over_lengths(
                texts, settings.dimensions, lambda vectors: COMPUTED[settings.loss](vectors, keys, settings)
            )
        return {TASK: (loss, self.counts(batch)[TASK])}

    def counts(self, batch: Batch) -> dict[str, int | Tensor]:
        """Return {TASK: divisor of the summed loss}: the negative texts for a loss that needs them, else N."""
        assert batch.keys is not None
        of_negatives = LOSSES[self.settings.loss].needs_negatives
        return {TASK: _has_negatives(batch.keys).sum() if of_negatives else len(batch.keys)}

    def losses_and_gradients(self, texts: Tensor, keys: Tensor, divisor: float | Tensor) -> tuple[Tensor, Tensor]:
        """Return the contrastive loss of each row, float32 (N,), and the gradient of their sum / divisor by `texts`.

        `texts` are vectors of all rows of a step, (N, 2 + K, W), and `keys` (N, 3 + K) are those of Batch.keys.
        """
        leaf = texts.detach().float().requires_grad_()
        lengths = self.settings.dimensions or (texts.shape[2],)
        losses_N = leaf.new_zeros(len(texts))
        for length in lengths:
            with torch.enable_grad():
                vectors = truncated(leaf, length)
            losses, gradient = losses_and_gradients(vectors, keys, divisor * len(lengths), self.settings.temperature)
            vectors.backward(gradient)
            losses_N += losses / len(lengths)
        assert leaf.grad is not None
        return losses_N, leaf.grad

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


COMPUTED: dict[str, Callable[[Tensor, Tensor, Similarity], Tensor]] = {"contrastive": contrastive, "triplet": triplet}
"""similarity.loss -> function of (vectors, keys, settings)."""
