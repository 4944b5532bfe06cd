"""Predictions per token: one tag each, or where an answer starts and ends.

Shapes: N sequences of T tokens in all, L of the longest.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.batch import Batch
from pipeline.config.model import Model
from pipeline.model.encoder import Encoder, initialize
from pipeline.model.heads import AnswerHead, ClassificationHead
from pipeline.objectives.terms import Terms

IGNORED = -100  # as pipeline.tasks.tagging writes it, and PyTorch reads it


class TagTask(nn.Module):
    """Encoder with a linear layer that classifies each token (Devlin et al. 2019, 5.3)."""

    per_token = True

    def __init__(
        self,
        settings: Model,
        vocabulary_size: int,
        outputs: int,
        generator: torch.Generator | None = None,
        *,
        class_weights: Tensor | None = None,
    ) -> None:
        """Take `outputs` tags and `class_weights` (tags,), which scale each word's loss.

        Weights are initialised from `generator`, or from torch's global one.
        """
        super().__init__()
        self.encoder = Encoder(settings, vocabulary_size)
        self.tag_head = ClassificationHead(settings, outputs)
        self.register_buffer("class_weights", class_weights, persistent=False)
        initialize(self, settings.initializer_deviation, generator)
        self.encoder.drop_pooler()

    def forward(self, batch: Batch) -> Terms:
        """Return "task": the loss summed over labelled tokens, a float32 scalar, and its count."""
        assert batch.labels is not None
        total = F.cross_entropy(
            self.logits(batch), batch.labels.long(), weight=self.class_weights, ignore_index=IGNORED, reduction="sum"
        )
        return {"task": (total, self.count(batch))}

    def count(self, batch: Batch) -> Tensor:
        """Return the count that the loss is a mean over: labelled tokens, or their class weights; 0 without labels."""
        assert batch.labels is not None
        labels_T = batch.labels.long()
        labelled_T = labels_T != IGNORED
        # A mask as index would make the host wait for the device, which alone knows how many tokens are labelled.
        weights_T = labelled_T if self.class_weights is None else self.class_weights[labels_T.clamp(min=0)] * labelled_T
        return weights_T.sum()

    def logits(self, batch: Batch) -> Tensor:
        """Return float32 (T, tags)."""
        return self.tag_head(self.encoder(batch))


class AnswerTask(nn.Module):
    """Encoder with a linear layer that gives start and end logits of an answer (Devlin et al. 2019, 4.2)."""

    per_token = True

    def __init__(self, settings: Model, vocabulary_size: int, generator: torch.Generator | None = None) -> None:
        """Initialise weights from `generator`, or from torch's global one."""
        super().__init__()
        self.encoder = Encoder(settings, vocabulary_size)
        self.answer_head = AnswerHead(settings)
        initialize(self, settings.initializer_deviation, generator)
        self.encoder.drop_pooler()

    def forward(self, batch: Batch) -> Terms:
        """Return "task": the mean of start and end cross-entropy over each sequence's tokens, summed over N sequences,
        and N.
        """
        assert batch.labels is not None
        start_and_end = batch.labels.view(-1, 2).long()
        padded = _by_sequence(self.logits(batch), batch)
        total = F.cross_entropy(
            padded.transpose(1, 2).reshape(-1, padded.shape[1]), start_and_end.reshape(-1), reduction="sum"
        )
        return {"task": (total / 2, self.count(batch))}

    def count(self, batch: Batch) -> int:
        """Return the count that the loss is a mean over: sequences."""
        return batch.sequences

    def logits(self, batch: Batch) -> Tensor:
        """Return float32 (T, 2): start, end."""
        return self.answer_head(self.encoder(batch))


def _by_sequence(logits_T: Tensor, batch: Batch) -> Tensor:
    """Return logits (T, k) as (N, L, k), padded with minus infinity, so that a softmax over L covers only the
    sequence's own tokens.
    """
    rows_T = torch.repeat_interleave(
        torch.arange(batch.sequences, device=logits_T.device), batch.offsets.diff().long(), output_size=batch.tokens
    )
    padded = logits_T.new_full((batch.sequences, batch.maximum_length, logits_T.shape[1]), -torch.inf)
    return padded.index_put((rows_T, batch.positions_T), logits_T)
