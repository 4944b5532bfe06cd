"""Pretraining objectives of BERT and ALBERT: masked tokens, and next sentences or sentence order where the data has
pairs.

An objective maps a batch to {term: (sum, count)}; callers add up batches and divide once.
"""

from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.batch import Batch
from pipeline.config.model import Model
from pipeline.model.encoder import Encoder, initialize
from pipeline.model.heads import MaskedTokenHead, NextSentenceHead

Terms = dict[str, tuple[Tensor, int | Tensor]]


class BertPretraining(nn.Module):
    """Encoder with both heads; training minimises the sum of the mean losses (Devlin et al. 2019, 3.1).

    The pair head learns the batch's pair task: "nsp", next sentence, or "sop", sentence order (Lan et al. 2020, 3.1).
    """

    def __init__(self, settings: Model, vocabulary_size: int, generator: torch.Generator | None = None) -> None:
        """Initialise weights from `generator`, or from torch's global one."""
        super().__init__()
        self.encoder = Encoder(settings, vocabulary_size)
        self.masked_token_head = MaskedTokenHead(settings, vocabulary_size)
        self.next_sentence_head = NextSentenceHead(settings)
        initialize(self, settings.initializer_deviation, generator)

    def forward(self, batch: Batch) -> Terms:
        """Return loss sums, float32 scalars, with counts: "mlm" over M masked positions, and "nsp" or "sop" over N
        pairs, if any.
        """
        hidden_T = self.encoder(batch)
        masked_loss = self.masked_token_head.loss(hidden_T[batch.masked_positions_M], self.words, batch.masked_labels_M)
        labels = pair_labels(batch)
        if not labels:
            return {"mlm": (masked_loss + self.zero_for_pair_weights(), batch.masked)}
        pair_logits = self.pair_logits(hidden_T, batch)
        pair_losses = {
            name: (F.cross_entropy(pair_logits, label_N, reduction="sum"), batch.sequences)
            for name, label_N in labels.items()
        }
        return {"mlm": (masked_loss, batch.masked)} | pair_losses

    @torch.no_grad()
    def scores(self, batch: Batch) -> Terms:
        """Return the terms of forward, each also as TERM_accuracy: (correct answers, count); for evaluation."""
        hidden_T = self.encoder(batch)
        asked = {"mlm": (self.masked_logits(hidden_T, batch), batch.masked_labels_M)}
        asked |= {name: (self.pair_logits(hidden_T, batch), label_N) for name, label_N in pair_labels(batch).items()}
        losses = {
            name: (F.cross_entropy(logits, labels, reduction="sum"), len(labels))
            for name, (logits, labels) in asked.items()
        }
        return losses | {
            f"{name}_accuracy": ((logits.argmax(-1) == labels).sum(), len(labels))
            for name, (logits, labels) in asked.items()
        }

    @torch.no_grad()
    def predict_masked(self, batch: Batch) -> Tensor:
        """Return float32 logits (M, V) at the masked positions, without reading the labels."""
        return self.masked_logits(self.encoder(batch), batch)

    @property
    def words(self) -> Tensor:
        return self.encoder.embeddings.words.weight

    def masked_logits(self, hidden_T: Tensor, batch: Batch) -> Tensor:
        """Return float32 logits (M, V) from hidden states (T, width)."""
        return self.masked_token_head(hidden_T[batch.masked_positions_M], self.words)

    def pair_logits(self, hidden_T: Tensor, batch: Batch) -> Tensor:
        """Return float32 logits (N, 2) from hidden states (T, width).

        Class 0: the pair is in order; 1: it is not (NotNext of "nsp", swapped of "sop").
        """
        return self.next_sentence_head(self.encoder.pool(hidden_T, batch)).float()

    def zero_for_pair_weights(self) -> Tensor:
        """Return zero with zero gradients for the pair-only weights: DistributedDataParallel expects a gradient of
        every weight.
        """
        return 0 * sum(
            weight.sum() for weight in chain(self.encoder.pooler.parameters(), self.next_sentence_head.parameters())
        )


def pair_labels(batch: Batch) -> dict[str, Tensor]:
    """Return term -> labels (N,) of the batch's pair task; empty without pairs."""
    labels = {"nsp": batch.not_next_N, "sop": batch.swapped_N}
    return {name: label_N for name, label_N in labels.items() if label_N is not None}
