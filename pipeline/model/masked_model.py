"""Encoder with a head for masked tokens, and perhaps one for pairs: it fills blanks, and an objective trains it.

Shapes: T tokens of the batch, N sequences, M masked positions, V vocabulary entries.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from pipeline.batch import MaskedBatch
from pipeline.config.model import Model
from pipeline.model.encoder import Encoder, initialize
from pipeline.model.enhanced_decoder import EnhancedDecoder
from pipeline.model.heads import MaskedTokenHead, NextSentenceHead


class PretrainedModule(nn.Module):
    """An encoder, and perhaps heads that pretraining trained with it."""

    encoder: Encoder
    fills_blanks = True
    """Whether the module predicts masked words: then it has `predict_masked` and `log_probabilities`."""
    predict_masked: Callable[..., Tensor]
    log_probabilities: Callable[..., Tensor]

    @property
    def words(self) -> Tensor:
        """Word embeddings (V, embedded width)."""
        return self.encoder.embeddings.words.weight


class MaskedModel(PretrainedModule):
    """Encoder with a head for masked tokens, and optionally a head for pairs."""

    def __init__(
        self,
        settings: Model,
        vocabulary_size: int,
        generator: torch.Generator | None = None,
        *,
        pairs: bool = True,
        enhanced: bool = False,
    ) -> None:
        """Initialise weights from `generator`; None: from torch's global generator.

        The module has a pair head if `pairs` is true and the settings give the encoder a pooler. If `enhanced`, masked
        tokens are predicted from the states of DeBERTa's enhanced mask decoder.
        """
        super().__init__()
        self.encoder = Encoder(settings, vocabulary_size)
        self.masked_token_head = MaskedTokenHead(settings, vocabulary_size)
        self.enhanced_decoder = EnhancedDecoder(settings) if enhanced else None
        pairs = pairs and self.encoder.pooler is not None
        self.next_sentence_head = NextSentenceHead(settings) if pairs else None
        initialize(self, settings.initializer_deviation, generator)
        if not pairs:
            self.encoder.drop_pooler()

    @torch.no_grad()
    def predict_masked(self, batch: MaskedBatch) -> Tensor:
        """Return float32 logits (M, V) at the masked positions; the batch's labels are not read."""
        return self.masked_logits(self.hidden(batch), batch)

    @torch.no_grad()
    def log_probabilities(self, batch: MaskedBatch) -> Tensor:
        """Return the log-probability of each masked position's label in nats, float32 (M,).

        The head is computed in float32 even under autocast: with rounded logits, different sentences would have equal
        scores.
        """
        hidden_M = self.hidden(batch)[batch.masked_positions_M]
        return self.masked_token_head.log_probabilities(hidden_M, self.words, batch.masked_labels_M)

    def hidden(self, batch: MaskedBatch) -> Tensor:
        """Return the hidden states (T, width) that the heads read: the encoder's, or the enhanced mask decoder's."""
        decoder = self.enhanced_decoder
        return self.encoder(batch) if decoder is None else decoder(self.encoder, batch)

    def masked_logits(self, hidden_T: Tensor, batch: MaskedBatch) -> Tensor:
        """Return float32 logits (M, V) from hidden states (T, width)."""
        return self.masked_token_head(hidden_T[batch.masked_positions_M], self.words)

    def pair_logits(self, hidden_T: Tensor, batch: MaskedBatch) -> Tensor:
        """Return float32 logits (N, 2) from hidden states (T, width).

        Class 0: segment B follows A in the text. Class 1: B is from elsewhere (NotNext), or A and B are swapped.
        """
        assert self.next_sentence_head is not None, "pair_logits needs a model with a pair head"
        return self.next_sentence_head(self.encoder.pool(hidden_T, batch)).float()
