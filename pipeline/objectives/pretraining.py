"""BERT's two pretraining tasks (Devlin et al. 2019, 3.1): masked tokens and next sentences.

An objective is a module that maps a batch to {term: (sum, count)}; whoever adds batches up divides once, at the end.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.batch import Batch
from pipeline.config import Model
from pipeline.model.encoder import Encoder, initialize
from pipeline.model.heads import MaskedTokenHead, NextSentenceHead

Terms = dict[str, tuple[Tensor, int]]


class BertPretraining(nn.Module):
    """An encoder with both heads; the sum of the two mean losses is what BERT minimises."""

    def __init__(self, settings: Model, vocabulary_size: int, generator: torch.Generator | None = None) -> None:
        """Weights are drawn from `generator`, or from torch's global one."""
        super().__init__()
        self.encoder = Encoder(settings, vocabulary_size)
        self.masked_token_head = MaskedTokenHead(settings, vocabulary_size)
        self.next_sentence_head = NextSentenceHead(settings)
        initialize(self, settings.initializer_deviation, generator)

    def forward(self, batch: Batch) -> Terms:
        """Loss sums, float32 without dimensions, and their counts: "mlm" over M masked positions, "nsp" over N pairs."""
        hidden_T = self.encoder(batch)
        masked_loss = self.masked_token_head.loss(hidden_T[batch.masked_positions_M], self.words, batch.masked_labels_M)
        pair_loss = F.cross_entropy(self.pair_logits(hidden_T, batch), batch.not_next_N, reduction="sum")
        return {"mlm": (masked_loss, batch.masked), "nsp": (pair_loss, batch.sequences)}

    @torch.no_grad()
    def scores(self, batch: Batch) -> Terms:
        """The terms of forward, and "mlm_accuracy" and "nsp_accuracy" as (right answers, count); for evaluation."""
        hidden_T = self.encoder(batch)
        masked_logits, pair_logits = self.masked_logits(hidden_T, batch), self.pair_logits(hidden_T, batch)
        return {
            "mlm": (F.cross_entropy(masked_logits, batch.masked_labels_M, reduction="sum"), batch.masked),
            "nsp": (F.cross_entropy(pair_logits, batch.not_next_N, reduction="sum"), batch.sequences),
            "mlm_accuracy": ((masked_logits.argmax(-1) == batch.masked_labels_M).sum(), batch.masked),
            "nsp_accuracy": ((pair_logits.argmax(-1) == batch.not_next_N).sum(), batch.sequences),
        }

    @torch.no_grad()
    def predict_masked(self, batch: Batch) -> Tensor:
        """Float32 logits (M, V) of every vocabulary entry at the masked positions; the labels are not looked at."""
        return self.masked_logits(self.encoder(batch), batch)

    @property
    def words(self) -> Tensor:
        return self.encoder.embeddings.words.weight

    def masked_logits(self, hidden_T: Tensor, batch: Batch) -> Tensor:
        """Float32 logits (M, V) from hidden states (T, width)."""
        return self.masked_token_head(hidden_T[batch.masked_positions_M], self.words)

    def pair_logits(self, hidden_T: Tensor, batch: Batch) -> Tensor:
        """Float32 logits (N, 2) from hidden states (T, width): IsNext, NotNext."""
        return self.next_sentence_head(self.encoder.pool(hidden_T, batch)).float()
