"""Predict which of several texts continues a context: one score per pair of context and choice (Devlin et al. 2019,
section 4.4).

Shapes: N pairs of context and choice in R rows; the row with most choices has C.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from pipeline.batch import Batch, PassagesBatch
from pipeline.config.model import ClassifierLayer, Model
from pipeline.model.encoder import Encoder, initialize
from pipeline.model.heads import ClassificationHead, HeadLayer
from pipeline.model.pooling import pool
from pipeline.objectives.ranking import first_of_rows, log_shares
from pipeline.objectives.terms import TASK, Terms


class ChoiceTask(nn.Module):
    """Encoder with a linear layer that scores the first token's state, after the pooler or a layer of the head.

    Models of others may have the mean of all states before the layer of the head (`pooling` mean).
    """

    per_token = False
    weights: Mapping[str, float] = {}

    def __init__(
        self, settings: Model, vocabulary_size: int, generator: torch.Generator | None = None, pooling: str = "cls"
    ) -> None:
        """Initialise weights from `generator`; None: from torch's global generator."""
        super().__init__()
        self.encoder, self.pooling = Encoder(settings, vocabulary_size), pooling
        layer = settings.pooler
        has_layer = isinstance(layer, ClassifierLayer)
        # Published classes for multiple choice have no dropout before this layer.
        self.choice_layer = HeadLayer(settings, replace(layer, drops_input=False)) if has_layer else None
        self.choice_head = ClassificationHead(settings, 1)
        initialize(self, settings.initializer_deviation, generator)
        self.encoder.choose_global_tokens("second")

    def forward(self, batch: PassagesBatch) -> Terms:
        """Return {TASK: (cross-entropy of the right choices, summed over R rows, R)}; the loss is a float32 scalar."""
        right_R = first_of_rows(batch.passages) + batch.labels.long()
        total = -log_shares(self.scores(batch), batch.passages)[right_R].sum()
        return {TASK: (total, self.counts(batch)[TASK])}

    def counts(self, batch: PassagesBatch) -> dict[str, int | Tensor]:
        """Return {TASK: divisor of the summed loss}. The divisor is the number of rows."""
        return {TASK: len(batch.passages)}

    def logits(self, batch: PassagesBatch) -> Tensor:
        """Return the scores of each row's choices, float32 (R, C); minus infinity after the choices of a row.

        The host waits for the device, which counts the choices of the longest row.
        """
        counts_R, scores_N = batch.passages, self.scores(batch)
        row_N = torch.repeat_interleave(counts_R, output_size=batch.sequences)
        number_N = torch.arange(batch.sequences, device=row_N.device) - first_of_rows(counts_R)[row_N]
        scores = scores_N.new_full((len(counts_R), int(counts_R.max())), -torch.inf)
        return scores.index_put((row_N, number_N), scores_N)

    def scores(self, batch: Batch) -> Tensor:
        """Return one score per pair, float32 (N,)."""
        hidden_T, layer = self.encoder(batch), self.choice_layer
        if layer is None:
            pooled_N = self.encoder.pool(hidden_T, batch)
        else:
            pooled_N = layer(hidden_T[batch.offsets[:-1]] if self.pooling == "cls" else pool(hidden_T, batch, "mean"))
        return self.choice_head(pooled_N)[:, 0]
