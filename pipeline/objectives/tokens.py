"""Predict per token: a tag, or logits for the start and end of an answer.

Shapes: N sequences have T tokens in total; the longest sequence has L tokens.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.batch import Batch
from pipeline.config.model import Model
from pipeline.model.encoder import Encoder, initialize
from pipeline.model.heads import AnswerHead, ClassificationHead, answer_layer, token_layer
from pipeline.objectives.terms import TASK, Terms

IGNORED = -100  # label of tokens without a loss, written by pipeline.tasks.tagging; PyTorch's default ignore_index


class TagTask(nn.Module):
    """Encoder with a linear layer that classifies each token (Devlin et al. 2019, section 5.3)."""

    per_token = True
    weights: Mapping[str, float] = {}

    def __init__(
        self,
        settings: Model,
        vocabulary_size: int,
        outputs: int,
        generator: torch.Generator | None = None,
        *,
        class_weights: Tensor | None = None,
    ) -> None:
        """Make the encoder, and a head for `outputs` tags.

        `class_weights` (tags,) has the factor on a token's loss for each tag; None: all factors are 1. The model is
        initialised from `generator`; None: from torch's global generator.
        """
        super().__init__()
        self.encoder = Encoder(settings, vocabulary_size)
        self.classification_layer = token_layer(settings)
        self.tag_head = ClassificationHead(settings, outputs)
        self.register_buffer("class_weights", class_weights, persistent=False)
        initialize(self, settings.initializer_deviation, generator)
        self.encoder.drop_pooler()

    def forward(self, batch: Batch) -> Terms:
        """Return {TASK: (loss summed over labelled tokens, divisor as in `counts`)}; the loss is a float32 scalar."""
        assert batch.labels is not None
        total = F.cross_entropy(
            self.logits(batch), batch.labels.long(), weight=self.class_weights, ignore_index=IGNORED, reduction="sum"
        )
        return {TASK: (total, self.counts(batch)[TASK])}

    def counts(self, batch: Batch) -> dict[str, int | Tensor]:
        """Return {TASK: divisor of the summed loss}.

        The divisor is the number of labelled tokens or, with class weights, the sum of their weights. It is 0 if no
        token is labelled.
        """
        assert batch.labels is not None
        labels_T = batch.labels.long()
        labelled_T = labels_T != IGNORED
        # Indexing with a mask would make the host wait for the device to count the labelled tokens.
        weights_T = labelled_T if self.class_weights is None else self.class_weights[labels_T.clamp(min=0)] * labelled_T
        return {TASK: weights_T.sum()}

    def logits(self, batch: Batch) -> Tensor:
        """Return logits, float32 (T, tags)."""
        hidden_T = self.encoder(batch)
        return self.tag_head(hidden_T if self.classification_layer is None else self.classification_layer(hidden_T))


class AnswerTask(nn.Module):
    """Encoder with a linear layer that gives start and end logits of an answer (Devlin et al. 2019, section 4.2)."""

    per_token = True
    weights: Mapping[str, float] = {}

    def __init__(self, settings: Model, vocabulary_size: int, generator: torch.Generator | None = None) -> None:
        """Initialise weights from `generator`; None: from torch's global generator."""
        super().__init__()
        self.encoder = Encoder(settings, vocabulary_size)
        self.classification_layer = answer_layer(settings)
        self.answer_head = AnswerHead(settings)
        initialize(self, settings.initializer_deviation, generator)
        self.encoder.choose_global_tokens("question")
        self.encoder.drop_pooler()

    def forward(self, batch: Batch) -> Terms:
        """Return {TASK: (loss summed over N sequences, N)}; the loss is a float32 scalar.

        A sequence's loss is the mean of two cross-entropies, one for the start and one for the end. The classes are the
        tokens of the sequence.
        """
        assert batch.labels is not None
        start_and_end = batch.labels.view(-1, 2).long()
        padded = _by_sequence(self.logits(batch), batch)
        total = F.cross_entropy(
            padded.transpose(1, 2).reshape(-1, padded.shape[1]), start_and_end.reshape(-1), reduction="sum"
        )
        return {TASK: (total / 2, self.counts(batch)[TASK])}

    def counts(self, batch: Batch) -> dict[str, int | Tensor]:
        """Return {TASK: divisor of the summed loss}. The divisor is the number of sequences."""
        return {TASK: batch.sequences}

    def logits(self, batch: Batch) -> Tensor:
        """Return logits for the answer's start and end, float32 (T, 2)."""
        hidden_T = self.encoder(batch)
        return self.answer_head(hidden_T if self.classification_layer is None else self.classification_layer(hidden_T))


def _by_sequence(logits_T: Tensor, batch: Batch) -> Tensor:
    """Return logits (T, k) as (N, L, k).

    The padding is minus infinity, so that a softmax over L covers only the tokens of the sequence.
    """
    rows_T = torch.repeat_interleave(
        torch.arange(batch.sequences, device=logits_T.device), batch.offsets.diff().long(), output_size=batch.tokens
    )
    padded = logits_T.new_full((batch.sequences, batch.maximum_length, logits_T.shape[1]), -torch.inf)
    return padded.index_put((rows_T, batch.positions_T), logits_T)
