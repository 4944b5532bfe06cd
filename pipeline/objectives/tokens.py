"""Predict per token: a tag, or logits for the start and end of an answer.

Shapes: N sequences have T tokens in total; the longest sequence has L tokens.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.batch import Batch, TaskBatch
from pipeline.config.model import Model
from pipeline.model.chain import Chains, LinearChain
from pipeline.model.encoder import Encoder, initialize
from pipeline.model.heads import AnswerHead, ClassificationHead, answer_layer, token_layer
from pipeline.objectives.terms import INTENT, TASK, Terms

# Labels of tokens without a loss, written by pipeline.tasks.tagging: PyTorch's default ignore_index, and CUT for the
# first or last token of a window if the sentence goes on beyond the window.
IGNORED, CUT = -100, -101


class TagTask(nn.Module):
    """Encoder with a linear layer that classifies each token (Devlin et al. 2019, section 5.3).

    `add_chain` adds the scores of tags after each other. The chain of a window has one step per labelled token.

    `add_intents` makes the last outputs those of intents, which label the first token of a sentence (Chen et al. 2019).
    All outputs share one softmax, so that a reader that does not know of intents picks tags for words.
    """

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
        self.tag_chain: LinearChain | None = None
        self.intents = 0
        self.register_buffer("class_weights", class_weights, persistent=False)
        initialize(self, settings.initializer_deviation, generator)
        self.encoder.drop_pooler()

    def add_chain(self, start: np.ndarray, following: np.ndarray, end: np.ndarray) -> None:
        """Train and predict whole tag sequences, of the steps that the bool arrays of LinearChain allow."""
        self.tag_chain = LinearChain(start, following, end)

    def add_intents(self, intents: int) -> None:
        """Let the last outputs be those of this number of intents."""
        self.intents = intents

    def forward(self, batch: TaskBatch) -> Terms:
        """Return {TASK: (summed loss, divisor as in `counts`)}; the loss is a float32 scalar.

        The sum is over labelled words or, with a chain, over the negative log-likelihoods of the windows' tags. With
        intents, the loss of the intents is a further term, INTENT.
        """
        logits_T = self.logits(batch)
        tags_T, intents_T = self._labels(batch)
        if self.tag_chain is not None:
            tags = logits_T.shape[1] - self.intents
            total = self._chain_loss(self.tag_chain, logits_T[:, :tags], tags_T, batch)
        else:
            total = F.cross_entropy(
                logits_T, tags_T.clamp(min=IGNORED), self.class_weights, ignore_index=IGNORED, reduction="sum"
            )
        counts = self.counts(batch)
        terms: Terms = {TASK: (total, counts[TASK])}
        if self.intents:
            of_intents = F.cross_entropy(logits_T, intents_T, ignore_index=IGNORED, reduction="sum")
            terms[INTENT] = (of_intents, counts[INTENT])
        return terms

    def _labels(self, batch: TaskBatch) -> tuple[Tensor, Tensor]:
        """Return the labels of words and of intents, both int64 (T,), IGNORED or CUT at other tokens."""
        labels_T = batch.labels.long()
        if not self.intents:
            return labels_T, labels_T
        is_intent_T = labels_T >= self.tag_head.out_features - self.intents
        return labels_T.masked_fill(is_intent_T, IGNORED), labels_T.masked_fill(~is_intent_T, IGNORED)

    @staticmethod
    def _chain_loss(chain: LinearChain, logits_T: Tensor, labels_T: Tensor, batch: Batch) -> Tensor:
        """Return the negative log-likelihood of the labels (T,), summed over the windows of the batch."""
        first_N, last_N = batch.offsets[:-1].long(), batch.offsets[1:].long() - 1
        labelled_T = labels_T >= 0
        before_N = F.pad(labelled_T.cumsum(0), (1, 0))[batch.offsets.long()]  # labelled tokens before each window
        lengths_N, rows_T = before_N.diff(), _rows_of_tokens(batch)
        # Other tokens are written after the longest chain and cut off: the host does not wait for their number.
        longest = batch.maximum_length
        places_T = torch.where(labelled_T, labelled_T.cumsum(0) - 1 - before_N[rows_T], longest)
        shape = (batch.sequences, longest + 1)
        emissions = logits_T.new_zeros(*shape, logits_T.shape[1]).index_put((rows_T, places_T), logits_T)
        tags_NL = labels_T.new_zeros(shape).index_put((rows_T, places_T), labels_T.clamp(min=0))
        chains = Chains(
            emissions=emissions[:, :longest],
            lengths_N=lengths_N,
            opens_N=labels_T[first_N] != CUT,
            closes_N=labels_T[last_N] != CUT,
        )
        return chain.losses(chains, tags_NL[:, :longest]).sum()

    def counts(self, batch: TaskBatch) -> dict[str, int | Tensor]:
        """Return {TASK: divisor of the summed loss}; with intents, also {INTENT: the number of labelled intents}.

        The divisor is the number of labelled words or, with class weights, the sum of their weights. It is 0 if no
        word is labelled.
        """
        labels_T, intents_T = self._labels(batch)
        labelled_T = labels_T >= 0
        # Indexing with a mask would make the host wait for the device to count the labelled tokens.
        weights_T = labelled_T if self.class_weights is None else self.class_weights[labels_T.clamp(min=0)] * labelled_T
        return {TASK: weights_T.sum()} | ({INTENT: (intents_T >= 0).sum()} if self.intents else {})

    def logits(self, batch: Batch) -> Tensor:
        """Return logits, float32 (T, outputs)."""
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

    def forward(self, batch: TaskBatch) -> Terms:
        """Return {TASK: (loss summed over N sequences, N)}; the loss is a float32 scalar.

        A sequence's loss is the mean of two cross-entropies, one for the start and one for the end. The classes are the
        tokens of the sequence.
        """
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
    padded = logits_T.new_full((batch.sequences, batch.maximum_length, logits_T.shape[1]), -torch.inf)
    return padded.index_put((_rows_of_tokens(batch), batch.positions_T), logits_T)


def _rows_of_tokens(batch: Batch) -> Tensor:
    """Return the index of each token's sequence, int64 (T,)."""
    rows_N = torch.arange(batch.sequences, device=batch.offsets.device)
    return torch.repeat_interleave(rows_N, batch.offsets.diff().long(), output_size=batch.tokens)
