"""Relation of two texts: each text is encoded alone, and a head tells the class of the pair from the two vectors.

The head is a softmax over u, v and |u - v| (Reimers and Gurevych 2019, section 3). It is needed in training only.
Shapes: N pairs, which are 2N sequences, W width of a vector. In the batch, the second text of a pair follows its first
text.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.batch import Batch, TaskBatch
from pipeline.config.model import Model
from pipeline.config.similarity import Similarity
from pipeline.model.encoder import initialize
from pipeline.objectives.terms import TASK, Terms
from pipeline.objectives.vectors import TextVectors, mean_over_lengths


class RelationTask(TextVectors):
    """Encoder with a head for the class of a pair of texts."""

    def __init__(
        self,
        settings: Model,
        vocabulary_size: int,
        outputs: int,
        generator: torch.Generator | None = None,
        *,
        pooling: str = "mean",
    ) -> None:
        """Make the encoder as TextVectors, and a head with `outputs` logits, one per class."""
        super().__init__(settings, vocabulary_size, generator, pooling=pooling)
        self.relation_head: nn.Linear | None = nn.Linear(3 * settings.width, outputs)
        initialize(self.relation_head, settings.initializer_deviation, generator)

    def forward(self, batch: TaskBatch) -> Terms:
        """Return {TASK: (summed cross-entropy, N)}; the loss is a float32 scalar."""
        vectors, classes_N = self.vectors(batch), batch.labels.long()
        with torch.autocast(vectors.device.type, enabled=False):
            loss = mean_over_lengths(
                vectors,
                self.settings.dimensions,
                lambda vectors: F.cross_entropy(self.scores(vectors), classes_N, reduction="sum"),
            )
        return {TASK: (loss, self.counts(batch)[TASK])}

    def counts(self, batch: Batch) -> dict[str, int | Tensor]:
        """Return {TASK: N}."""
        return {TASK: batch.sequences // 2}

    def logits(self, batch: Batch) -> Tensor:
        """Return the logits of each pair by whole vectors and by vectors of each length, float32 (N, L, classes)."""
        vectors = self.vectors(batch)
        with torch.autocast(vectors.device.type, enabled=False):
            return torch.stack([self.scores(part) for part in self.at_each_length(vectors)], dim=1)

    def scores(self, vectors: Tensor) -> Tensor:
        """Return the logits of each pair of vectors (2N, W), float32 (N, classes).

        Shorter vectors are filled up with 0, so each length has its own columns of the head's matrix.
        """
        assert self.relation_head is not None
        whole = F.pad(vectors, (0, self.relation_head.in_features // 3 - vectors.shape[1]))
        first, second = whole[::2], whole[1::2]
        return self.relation_head(torch.cat((first, second, (first - second).abs()), dim=1))

    def learn(self, settings: Similarity) -> None:
        """Train with these settings."""
        self.settings = settings

    def drop_head(self) -> None:
        """Remove the head, so that the module has the tensors of the encoder alone."""
        self.relation_head = None
