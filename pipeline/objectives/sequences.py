"""Predict one answer per sequence: a class (cross-entropy), labels (a binary loss each) or a number (squared error).

Source: Devlin et al. 2019, section 4.1. Optionally, the model also learns from a teacher's logits (Hinton et al. 2015).
Shapes: N sequences with T tokens in all.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.batch import Batch, PassagesBatch, TaskBatch
from pipeline.config.cutting import PassagePooling
from pipeline.config.model import ClassifierLayer, Model
from pipeline.model.encoder import Encoder, initialize
from pipeline.model.heads import AttentionPooling, ClassificationHead, HeadLayer, by_segment
from pipeline.objectives.terms import TASK, TEACHER, Terms
from pipeline.objectives.tokens import IGNORED

LOSSES = ("classification", "multilabel", "regression")
POOLINGS = ("cls", "mean", "attention")


class SequenceTask(nn.Module):
    """Encoder with a linear layer on one state per sequence. `pooling` chooses this state.

    "cls": the state of the first token, after the encoder's pooler or a layer of the head. "mean": the mean of all
    states. "attention": the mean of all states, weighted by learned scores. A row may have several sequences, the
    passages of a long text; `pool_passages` chooses how their vectors give one answer.
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

        `class_weights` (classes,) has the factor on a sequence's loss for each class; None: all factors are 1. The
        model is initialised from `generator`; None: from torch's global generator.
        """
        super().__init__()
        assert kind in LOSSES and pooling in POOLINGS
        self.encoder = Encoder(settings, vocabulary_size)
        layer = settings.classifier
        own_layer = isinstance(layer, ClassifierLayer) and (pooling == "cls" or layer.on_all)
        self.classification_layer = HeadLayer(settings, layer) if own_layer else None
        self.classification_head = ClassificationHead(settings, outputs)
        self.attention_pooling = AttentionPooling(settings.width) if pooling == "attention" else None
        self.passage_pooling, self.passage_attention = "logits", None
        self.kind, self.pooling = kind, pooling
        self.mean, self.deviation = 0.0, 1.0
        self.weights, self.temperature = {TASK: 1.0}, 1.0
        self.register_buffer("class_weights", class_weights, persistent=False)
        initialize(self, settings.initializer_deviation, generator)
        self.encoder.choose_global_tokens("first")

    def pool_passages(self, pooling: PassagePooling, generator: torch.Generator | None = None) -> None:
        """Pool the vectors of a row's passages with `pooling` before the last layer of the head.

        "attention" adds a layer that scores the vectors; it is initialised from `generator`, as in __init__.
        """
        assert pooling in ("logits", "max", "attention")
        self.passage_pooling = pooling
        if pooling == "attention":
            self.passage_attention = AttentionPooling(self.encoder.settings.width)
            initialize(self.passage_attention, self.encoder.settings.initializer_deviation, generator)

    def learn_from_teacher(self, temperature: float, weight: float) -> None:
        """Train also on a teacher's logits: (1 - weight) x the labels' mean loss + weight x the teacher's mean loss.

        The teacher's loss of a sequence is temperature^2 x KL(teacher || student), where the logits of both are divided
        by the temperature (Hinton et al. 2015, section 2). For a regression, the teacher's loss is the squared error
        to the teacher's value. A term of weight 0 is left out.
        """
        self.temperature = temperature
        self.weights = {term: share for term, share in ((TASK, 1 - weight), (TEACHER, weight)) if share}

    def forward(self, batch: TaskBatch) -> Terms:
        """Return {term: (summed loss, its count)} for each term of `weights`; losses are float32 scalars."""
        losses, scores = {TASK: self._task_loss, TEACHER: self._teacher_loss}, self.scores(batch)
        return {term: (losses[term](scores, batch), count) for term, count in self.counts(batch).items()}

    def _task_loss(self, scores: Tensor, batch: TaskBatch) -> Tensor:
        """Return the loss against the labels, summed over the labelled sequences; `scores`: (N, outputs)."""
        if self.kind == "classification":
            classes_N, weights = batch.labels.nan_to_num(IGNORED).long(), self.class_weights
            return F.cross_entropy(scores, classes_N, weights, ignore_index=IGNORED, reduction="sum")
        wanted = batch.labels.view_as(scores)
        # With a teacher, some sequences have no label. In the term of the labels, the loss and gradient of such a
        # sequence must be 0. Indexing with a mask would make the host wait for the device to count the labels.
        labelled = ~wanted.isnan() if TEACHER in self.weights else None
        if self.kind == "regression":
            wanted = (wanted - self.mean) / self.deviation
            wanted = wanted if labelled is None else torch.where(labelled, wanted, scores.detach())
            return F.mse_loss(scores, wanted, reduction="sum")
        mask = None if labelled is None else labelled.float()
        return F.binary_cross_entropy_with_logits(scores, wanted.nan_to_num(), weight=mask, reduction="sum")

    def _teacher_loss(self, scores: Tensor, batch: TaskBatch) -> Tensor:
        """Return the loss against the teacher's logits, summed over all sequences; `scores`: (N, outputs)."""
        wanted = batch.teacher.view_as(scores)
        if self.kind == "regression":
            return F.mse_loss(scores, (wanted - self.mean) / self.deviation, reduction="sum")
        student, teacher = scores / self.temperature, wanted / self.temperature
        if self.kind == "multilabel":  # each label has two outcomes: the label applies, or it does not apply
            student, teacher = (F.logsigmoid(torch.stack((logits, -logits))) for logits in (student, teacher))
        else:
            student, teacher = F.log_softmax(student, dim=1), F.log_softmax(teacher, dim=1)
        return self.temperature**2 * F.kl_div(student, teacher, log_target=True, reduction="sum")

    def counts(self, batch: TaskBatch) -> dict[str, int | Tensor]:
        """Return {term: divisor of the term's summed loss}, without a forward pass.

        The term of the teacher counts all rows. The term of the labels counts only sequences with a label. For
        multilabel, both counts are multiplied by the task's number of classes. With class weights, the term of the
        labels adds up the class weights of the labelled sequences instead.
        """
        counts: dict[str, int | Tensor] = {}
        if TASK in self.weights:
            counts[TASK] = self._task_count(batch)
        if TEACHER in self.weights:
            outputs = 1 if self.kind == "multilabel" else self.classification_head.out_features
            counts[TEACHER] = batch.teacher.numel() // outputs
        return counts

    def _task_count(self, batch: TaskBatch) -> int | Tensor:
        """Return the divisor of the term of the labels."""
        labels = batch.labels
        if self.class_weights is not None and self.kind == "classification":
            return (self.class_weights[labels.nan_to_num().long()] * ~labels.isnan()).sum()
        return labels.numel() if TEACHER not in self.weights else (~labels.isnan()).sum()

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
        """Return the head's output, float32 (N, outputs); for a regression, in standardised units.

        If the passages of rows are pooled, N is the number of rows.
        """
        pooled_N, layer = self._pooled(self.encoder(batch), batch), self.classification_layer
        vectors_N = pooled_N if layer is None else layer(pooled_N)
        if isinstance(batch, PassagesBatch) and self.passage_pooling != "logits":
            vectors_N = self._whole(vectors_N, batch.passages)
        return self.classification_head(vectors_N)

    def _whole(self, vectors_N: Tensor, passages: Tensor) -> Tensor:
        """Return one vector per row, float32 (rows, width), from those of its passages (N, width).

        `passages` (rows,) is the number of passages of each row.
        """
        if self.passage_attention is None:
            return by_segment(vectors_N.float(), self.passage_pooling, passages)
        return self.passage_attention(vectors_N, passages)

    def _pooled(self, hidden_T: Tensor, batch: Batch) -> Tensor:
        """Return one state per sequence (N, width)."""
        if self.pooling == "cls":
            own_layer = self.classification_layer is not None
            return hidden_T[batch.offsets[:-1]] if own_layer else self.encoder.pool(hidden_T, batch)
        lengths = batch.offsets.diff().long()
        if self.attention_pooling is None:
            return by_segment(hidden_T.float(), "mean", lengths)
        return self.attention_pooling(hidden_T, lengths)
