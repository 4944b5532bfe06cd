"""Encoder that maps each text to a vector, for the objectives of fine-tuning that compare texts.

Shapes: S sequences of a batch, W width of a vector.
"""

from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.batch import Batch
from pipeline.config.model import Model
from pipeline.config.similarity import Similarity
from pipeline.model.encoder import Encoder, initialize
from pipeline.model.heads import by_segment
from pipeline.objectives.terms import TASK


class TextVectors(nn.Module):
    """Encoder whose pooled last hidden states are the vectors of texts."""

    per_token = False
    weights = {TASK: 1.0}

    def __init__(
        self,
        settings: Model,
        vocabulary_size: int,
        generator: torch.Generator | None = None,
        *,
        pooling: str = "mean",
    ) -> None:
        """Make the encoder; `pooling` is "mean" (of the last states) or "cls" (last state of the first token).

        Weights are initialised from `generator`; None: from torch's global generator.
        """
        super().__init__()
        assert pooling in ("mean", "cls")
        self.encoder = Encoder(settings, vocabulary_size)
        self.pooling, self.settings = pooling, Similarity()
        initialize(self, settings.initializer_deviation, generator)

    @classmethod
    def around(cls, encoder: Encoder, pooling: str) -> Self:
        """Return a module that trains a given encoder, which another module may have too."""
        module = cls.__new__(cls)
        nn.Module.__init__(module)
        module.encoder, module.pooling, module.settings = encoder, pooling, Similarity()
        return module

    def vectors(self, batch: Batch) -> Tensor:
        """Return the vector of each sequence, not scaled, float32 (S, W)."""
        hidden_T = self.encoder(batch).float()
        if self.pooling == "cls":
            return hidden_T[batch.offsets[:-1]]
        return by_segment(hidden_T, "mean", batch.offsets.diff().long())

    def at_each_length(self, vectors: Tensor) -> list[Tensor]:
        """Return the vectors (…, W), then the vectors of each of the settings' dimensions that is below W."""
        lengths = [length for length in self.settings.dimensions if length < vectors.shape[-1]]
        whole = truncated(vectors, vectors.shape[-1]) if self.settings.dimensions else vectors
        return [whole, *(truncated(vectors, length) for length in lengths)]


def truncated(vectors: Tensor, length: int) -> Tensor:
    """Return the first `length` numbers of vectors (…, W), scaled to length 1: (…, length)."""
    return F.normalize(vectors[..., :length], dim=-1)


def mean_over_lengths(vectors: Tensor, lengths: Sequence[int], loss: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the mean loss of the vectors of each length (Kusupati et al. 2022); without lengths, of whole vectors.

    `loss` takes vectors (…, length) and returns a scalar.
    """
    if not lengths:
        return loss(vectors)
    return torch.stack([loss(truncated(vectors, length)) for length in lengths]).mean()
