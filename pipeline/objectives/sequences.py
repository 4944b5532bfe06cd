"""One answer per sequence: a class (cross-entropy), several labels (one binary loss each) or a number (squared error).

As in Devlin et al. 2019, 4.1. Shapes: N sequences with T tokens in all.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.batch import Batch
from pipeline.config.model import ClassifierLayer, Model
from pipeline.model.encoder import Encoder, initialize
from pipeline.model.heads import AttentionPooling, ClassificationHead, FirstTokenLayer, by_segment
from pipeline.objectives.terms import Terms

LOSSES = ("classification", "multilabel", "regression")
POOLINGS = ("cls", "mean", "attention")


class SequenceTask(nn.Module):
    """Encoder with a linear layer on one state per sequence, which `pooling` chooses.

    "cls": the state of the first token, through the encoder's pooler or a layer of the head. "mean": the mean of all
    states. "attention": their mean weighted by learnt scores.
    """

    per_token = False

    def __init__(
        self,
        settings: Model,
        vocabulary_size: int,
        outputs: int,
        generator: torch.Generator | None = None,
        *,
        kind: str = "classification",
        pooling: str = "cls",
        class_weights: Tensor | None = None,
    ) -> None:
        """Make the encoder, and a head with `outputs` logits: one per class or label, or 1 for a regression.

        `class_weights` (classes,) scale each row's loss by its class; None: all are 1. Weights are initialised from
        `generator`; None: from torch's global generator.
        """
        super().__init__()
        assert kind in LOSSES and pooling in POOLINGS
        self.encoder = Encoder(settings, vocabulary_size)
        own_layer = isinstance(settings.pooler, ClassifierLayer) and pooling == "cls"
        self.classification_layer = FirstTokenLayer(settings, settings.pooler) if own_layer else None
        self.classification_head = ClassificationHead(settings, outputs)
        self.attention_pooling = AttentionPooling(settings) if pooling == "attention" else None
        self.kind, self.pooling = kind, pooling
        self.mean, self.deviation = 0.0, 1.0
        self.register_buffer("class_weights", class_weights, persistent=False)
        initialize(self, settings.initializer_deviation, generator)

    def forward(self, batch: Batch) -> Terms:
        """Return {"task": (summed loss, its `count`)}; the loss is a float32 scalar."""
        if self.kind == "regression":
            assert batch.label_N is not None
            wanted_N = (batch.label_N - self.mean) / self.deviation
            return {"task": (F.mse_loss(self.scores(batch)[:, 0], wanted_N, reduction="sum"), self.count(batch))}
        logits = self.scores(batch)
        if self.kind == "multilabel":
            assert batch.labels is not None
            total = F.binary_cross_entropy_with_logits(logits, batch.labels.view_as(logits), reduction="sum")
            return {"task": (total, self.count(batch))}
        assert batch.label_N is not None
        total = F.cross_entropy(logits, batch.label_N.long(), weight=self.class_weights, reduction="sum")
        return {"task": (total, self.count(batch))}

    def count(self, batch: Batch) -> int | Tensor:
        """Return the count that the summed loss is divided by.

        Multilabel: sequences times labels. Classification with class weights: the sum of the sequences' weights.
        Otherwise: sequences.
        """
        if self.kind == "multilabel":
            assert batch.labels is not None
            return batch.labels.numel()
        if self.class_weights is None or self.kind == "regression":
            return batch.sequences
        assert batch.label_N is not None
        return self.class_weights[batch.label_N.long()].sum()

    def logits(self, batch: Batch) -> Tensor:
        """Return logits, float32 (N, outputs); for a regression, predicted values on the labels' scale."""
        return self.scores(batch) * self.deviation + self.mean

    def learn_standardised(self, mean: float, deviation: float) -> None:
        """Train a regression on (label - mean) / deviation, so that learning does not depend on the labels' scale."""
        self.mean, self.deviation = mean, deviation

    @torch.no_grad()
    def fold_standardisation(self) -> None:
        """Merge the labels' mean and deviation into the head's weights, as the published format requires."""
        self.classification_head.weight *= self.deviation
        self.classification_head.bias *= self.deviation
        self.classification_head.bias += self.mean
        self.learn_standardised(0.0, 1.0)

    def scores(self, batch: Batch) -> Tensor:
        """Return the head's output, float32 (N, outputs); for a regression, in standardised units."""
        hidden_T = self.encoder(batch)
        if self.classification_layer is not None:
            return self.classification_head(self.classification_layer(hidden_T[batch.offsets[:-1]]))
        if self.pooling == "cls":
            return self.classification_head(self.encoder.pool(hidden_T, batch))
        lengths = batch.offsets.diff().long()
        if self.attention_pooling is None:
            return self.classification_head(by_segment(hidden_T.float(), "mean", lengths))
        return self.classification_head(self.attention_pooling(hidden_T, lengths))
