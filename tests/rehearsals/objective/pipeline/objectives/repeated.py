"""Masked-token prediction, and for each token whether it stands elsewhere in its sequence too.

Shapes: T tokens of N sequences, V vocabulary entries.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.batch import MaskedBatch
from pipeline.config.data import Sampling
from pipeline.config.model import Model
from pipeline.config.objective import Repeated
from pipeline.model.encoder import initialize
from pipeline.model.flops import TokenCounts, encoder_flops, masked_head_flops
from pipeline.objectives.masked import ACCURACY, MLM, ONES, MaskedTokens
from pipeline.objectives.terms import LossCurve, Terms

REPEATED = "repeated"
CURVES = (
    LossCurve(
        term=REPEATED,
        label="repeated-token loss, nats per token",
        guess="heldout_baseline/majority_repeated_accuracy",
        guess_label="guess by frequency",
        guess_is_share=True,
    ),
)
DESCRIPTIONS = {"heldout/repeated_accuracy": ("accuracy", "accuracy of repeated-token detection")}
"""Held-out metric -> (its type on the Hugging Face Hub, its name on a model card)."""


class RepeatedTokens(MaskedTokens):
    """MaskedTokens with a head that tells repeated tokens from others."""

    def __init__(
        self, settings: Model, vocabulary_size: int, weight: float, generator: torch.Generator | None = None
    ) -> None:
        """Initialise weights from `generator`; None: from torch's global generator."""
        super().__init__(settings, vocabulary_size, generator, pairs=False)
        self.repeated_head = nn.Linear(settings.width, 1)
        initialize(self.repeated_head, settings.initializer_deviation, generator)
        self.weights, self.terms = {REPEATED: weight}, (MLM, REPEATED)

    def counts(self, batch: MaskedBatch) -> dict[str, int]:
        """Return {term: count} without a forward pass: masked positions, and all tokens."""
        return super().counts(batch) | {REPEATED: batch.tokens}

    def forward(self, batch: MaskedBatch) -> Terms:
        """Return {term: (summed loss, count)}; losses are float32 scalars."""
        hidden_T = self.hidden(batch)
        masked = self.masked_token_head.loss(hidden_T[batch.masked_positions_M], self.words, batch.masked_labels_M)
        wanted_T = repeated(batch).float()
        loss = F.binary_cross_entropy_with_logits(self._logits(hidden_T), wanted_T, reduction="sum")
        return {MLM: (masked, batch.masked), REPEATED: (loss, batch.tokens)}

    @torch.no_grad()
    def scores(self, batch: MaskedBatch) -> Terms:
        """Return the sums of an evaluation, each as (sum, count), named as those of a pair task."""
        wanted_T, logits_T = repeated(batch), self._logits(self.hidden(batch))
        loss = F.binary_cross_entropy_with_logits(logits_T, wanted_T.float(), reduction="sum")
        right_T = (logits_T > 0) == wanted_T
        sums = {REPEATED: loss, ACCURACY.format(REPEATED): right_T.sum(), ONES.format(REPEATED): wanted_T.sum()}
        return super().scores(batch) | {name: (total, batch.tokens) for name, total in sums.items()}

    def baseline_sums(self, batches: Sequence[MaskedBatch], counts: np.ndarray) -> dict[str, tuple[float, float]]:
        """Return the sums of the unigram baseline, and (number of repeated tokens, number of tokens)."""
        found = float(sum(int(repeated(batch).sum()) for batch in batches))
        return super().baseline_sums(batches, counts) | {REPEATED: (found, float(sum(one.tokens for one in batches)))}

    def _logits(self, hidden_T: Tensor) -> Tensor:
        """Return float32 logits (T,)."""
        return self.repeated_head(hidden_T)[:, 0].float()


def repeated(batch: MaskedBatch) -> Tensor:
    """Return whether each original token stands elsewhere in its sequence too, bool (T,). The host does not wait."""
    ids_T = batch.ids_T.index_put((batch.masked_positions_M,), batch.masked_labels_M.to(batch.ids_T.dtype)).long()
    lengths_N = batch.offsets.diff().long()
    sequence_T = torch.arange(len(lengths_N), device=ids_T.device).repeat_interleave(lengths_N, output_size=len(ids_T))
    keys_T, order_T = (sequence_T * (1 + ids_T.max()) + ids_T).sort()
    same = keys_T[1:] == keys_T[:-1]
    return torch.zeros_like(ids_T, dtype=torch.bool).index_put((order_T,), F.pad(same, (1, 0)) | F.pad(same, (0, 1)))


def build(
    objective: Repeated, sampling: Sampling, model: Model, vocabulary_size: int, generator: torch.Generator | None
) -> RepeatedTokens:
    """Return the module with both heads."""
    return RepeatedTokens(model, vocabulary_size, objective.weight, generator)


def trained_parts(objective: Repeated, sampling: Sampling) -> tuple[str, ...]:
    """Return the name prefixes of the trained parameters outside the encoder."""
    return ("masked_token_head.", "repeated_head.")


def described(objective: Repeated, sampling: Sampling) -> str:
    """Return the objective in words, for a model card."""
    return "masked-language modelling and repeated-token detection"


def flops_per_token(objective: Repeated, model: Model, vocabulary_size: int, counted: TokenCounts) -> float:
    """Return the floating-point operations of forward and backward per token (no padding), matrix products only."""
    return encoder_flops(model, counted) + masked_head_flops(model, vocabulary_size, counted) + 6 * model.width
