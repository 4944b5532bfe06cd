"""Heads that map hidden states to predictions, for the objectives of pretraining and the tasks of fine-tuning.

Shapes: T tokens of the batch, N sequences, M masked positions, V vocabulary entries.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.config.model import ClassifierLayer, Model
from pipeline.model.activations import ACTIVATIONS
from pipeline.model.dropout import dropout
from pipeline.model.norm import make_norm
from pipeline.model.sampling import drawn
from pipeline.model.vocabulary_loss import vocabulary_loss

ROWS_SCORED = 64
"""Masked positions that `log_probabilities` scores at a time, so that their logits stay in the CPU's cache."""


class MaskedTokenHead(nn.Module):
    """Map hidden states of masked positions (M, width) to logits (M, V). The output weights are the word embeddings."""

    def __init__(self, settings: Model, vocabulary_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(settings.width, settings.embedded_width, bias=settings.bias)
        self.norm = make_norm(settings, settings.embedded_width)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))
        self.activation = ACTIVATIONS[settings.activation]

    def forward(self, hidden_M: Tensor, words: Tensor) -> Tensor:
        """Return float32 logits (M, V); `words` (V, embedded width) are the word embeddings."""
        return self.logits(self.transform(hidden_M), words)

    def transform(self, hidden_M: Tensor) -> Tensor:
        """Return the input of `logits` (M, embedded width)."""
        activated = self.activation(self.dense(hidden_M))
        return self.norm(activated.to(self.norm.weight.dtype))  # float32 under autocast

    def logits(self, transformed_M: Tensor, words: Tensor) -> Tensor:
        """Return float32 logits (M, V) for states that `transform` returned."""
        return F.linear(transformed_M, words, self.bias).float()

    def log_probabilities(self, hidden_M: Tensor, words: Tensor, labels_M: Tensor) -> Tensor:
        """Return the log-probabilities of the labels (M,), in nats, float32 (M,).

        The whole head is computed in float32, even under autocast.
        """
        with torch.autocast(hidden_M.device.type, enabled=False):
            parts = zip(self.transform(hidden_M).split(ROWS_SCORED), labels_M.split(ROWS_SCORED), strict=True)
            return torch.cat(
                [-F.cross_entropy(self.logits(part_M, words), labels, reduction="none") for part_M, labels in parts]
            )

    def loss(self, hidden_M: Tensor, words: Tensor, labels_M: Tensor, *, some_ignored: bool = False) -> Tensor:
        """Return the summed cross-entropy of the labels (M,), int64, as a float32 scalar.

        With `some_ignored`, a position with a negative label counts nowhere.
        """
        none_drawn = hidden_M.new_empty(0, dtype=torch.float64)
        return self._loss_and_samples(hidden_M, words, labels_M, none_drawn, some_ignored)[0]

    def loss_and_samples(self, hidden_M: Tensor, words: Tensor, labels_M: Tensor) -> tuple[Tensor, Tensor]:
        """Return the result of `loss`, and an entry for each position, int64 (M,), sampled from its distribution."""
        return self._loss_and_samples(hidden_M, words, labels_M, drawn(labels_M))

    def _loss_and_samples(
        self, hidden_M: Tensor, words: Tensor, labels_M: Tensor, drawn_M: Tensor, some_ignored: bool = False
    ) -> tuple[Tensor, Tensor]:
        transformed, device = self.transform(hidden_M), hidden_M.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else words.dtype
        loss, _, _, _, sampled = vocabulary_loss(transformed, words, self.bias, labels_M, dtype, drawn_M, some_ignored)
        return loss, sampled


class ReplacedTokenHead(nn.Module):
    """Map hidden states (T, width) to one logit per token (Clark et al. 2020).

    A logit above 0 means that the token was probably replaced. If the settings say so, each token's state is first
    added to that of the first token of its sequence, and normalised (microsoft/DeBERTa: LMMaskPredictionHead).
    """

    def __init__(self, settings: Model) -> None:
        super().__init__()
        adds_first = settings.replaced_head == "with-first-token"
        self.norm = make_norm(settings, settings.width) if adds_first else None
        self.dense = nn.Linear(settings.width, settings.width)
        self.score = nn.Linear(settings.width, 1)

    def forward(self, hidden_T: Tensor, offsets: Tensor) -> Tensor:
        """Return float32 logits (T,). `offsets` are the cumulative lengths of the sequences (N + 1,)."""
        if self.norm is not None:
            lengths_N = offsets.diff()
            first_T = hidden_T[offsets[:-1]].repeat_interleave(lengths_N, dim=0, output_size=len(hidden_T))
            hidden_T = self.norm(first_T + hidden_T)
        return self.score(F.gelu(self.dense(hidden_T)))[:, 0].float()


class NextSentenceHead(nn.Linear):
    """Map pooled states (N, width) to logits (N, 2): IsNext, NotNext."""

    def __init__(self, settings: Model) -> None:
        super().__init__(settings.width, 2)


class ClassificationHead(nn.Linear):
    """Map pooled states (N, width) to float32 logits (N, classes), with dropout and a linear layer.

    For tagging, the head maps hidden states (T, width) to float32 logits (T, classes).
    """

    def __init__(self, settings: Model, classes: int) -> None:
        super().__init__(settings.width, classes)
        self.dropout = settings.hidden_dropout

    def forward(self, states: Tensor) -> Tensor:  # ty: ignore[lost-keyword-for-regular-parameter]
        return super().forward(dropout(states, self.dropout if self.training else 0.0)).float()


class HeadLayer(nn.Linear):
    """Map states (N, width) of first tokens to a head's input (N, width), instead of a pooler. The layer may also
    map mean states (N, width), or the states of all tokens (T, width).
    """

    def __init__(self, settings: Model, layer: ClassifierLayer) -> None:
        super().__init__(settings.width, settings.width, bias=settings.bias)
        self.dropout = settings.hidden_dropout if layer.drops_input else 0.0
        self.activation = ACTIVATIONS[layer.activation]
        self.norm = make_norm(settings, settings.width) if layer.normalises else nn.Identity()

    def forward(self, states: Tensor) -> Tensor:  # ty: ignore[lost-keyword-for-regular-parameter]
        return self.norm(self.activation(super().forward(dropout(states, self.dropout if self.training else 0.0))))


def token_layer(settings: Model) -> HeadLayer | None:
    """Return the layer between hidden states and a head that predicts per token, if the settings have one."""
    pooler = settings.pooler
    return HeadLayer(settings, pooler) if isinstance(pooler, ClassifierLayer) and pooler.on_all else None


class AnswerLayer(nn.Module):
    """Map hidden states (T, width) to the input of an AnswerHead (T, width): a feed-forward block with a residual
    connection and a LayerNorm (as in transformers' BigBird).
    """

    def __init__(self, settings: Model) -> None:
        super().__init__()
        self.dropout = settings.hidden_dropout
        self.activation = ACTIVATIONS[settings.activation]
        self.inner = nn.Linear(settings.width, settings.feed_forward)
        self.outer = nn.Linear(settings.feed_forward, settings.width)
        self.norm = make_norm(settings, settings.width)

    def forward(self, hidden_T: Tensor) -> Tensor:
        probability = self.dropout if self.training else 0.0
        inner_T = self.activation(self.inner(dropout(hidden_T, probability)))
        return self.norm(hidden_T + dropout(self.outer(inner_T), probability))


def answer_layer(settings: Model) -> AnswerLayer | HeadLayer | None:
    """Return the layer between hidden states and an AnswerHead, if the settings have one."""
    return AnswerLayer(settings) if settings.has_answer_layer else token_layer(settings)


class AttentionPooling(nn.Linear):
    """Pool hidden states (T, width) to one state per sequence (N, width), a weighted mean of the sequence's states.

    The weights are the softmax of learned scores over the sequence.
    """

    def __init__(self, width: int) -> None:
        super().__init__(width, 1)

    def forward(self, hidden_T: Tensor, lengths_N: Tensor) -> Tensor:  # ty: ignore[incompatible-method-override]
        """Return float32 states (N, width); `lengths_N` are the lengths of the sequences, int64."""
        scores_T = super().forward(hidden_T)[:, 0].float()
        highest_N = by_segment(scores_T.detach(), "max", lengths_N)
        shares_T = (scores_T - highest_N.repeat_interleave(lengths_N, output_size=len(scores_T))).exp()
        total_N = by_segment(shares_T, "sum", lengths_N)
        return by_segment(hidden_T.float() * shares_T[:, None], "sum", lengths_N) / total_N[:, None]


def by_segment(values_T: Tensor, reduction: str, lengths_N: Tensor) -> Tensor:
    """Reduce float32 values (T, ...) to (N, ...), over consecutive segments whose lengths (N,) are int64.

    `reduction` is "sum", "mean" or "max".
    """
    # unsafe=True skips torch's check of the lengths, because in this check the host waits for the device twice.
    return torch.segment_reduce(  # ty: ignore[missing-attribute]  (torch's stubs lack it)
        values_T, reduction, lengths=lengths_N, unsafe=True
    )


class AnswerHead(nn.Linear):
    """Map hidden states (T, width) to logits (T, 2) of an answer's start and end."""

    def __init__(self, settings: Model) -> None:
        super().__init__(settings.width, 2)

    def forward(self, hidden_T: Tensor) -> Tensor:  # ty: ignore[lost-keyword-for-regular-parameter]
        return super().forward(hidden_T).float()
