"""One answer a sequence: a class, by cross-entropy, or a number, by squared error (Devlin et al. 2019, 4.1)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.batch import Batch
from pipeline.config.model import Model
from pipeline.model.encoder import Encoder, initialize
from pipeline.model.heads import ClassificationHead
from pipeline.objectives.pretraining import Terms


class SequenceTask(nn.Module):
    """An encoder whose pooled [CLS] states a linear layer turns into an answer."""

    def __init__(self, settings: Model, vocabulary_size: int, classes: int | None, generator: torch.Generator | None = None) -> None:
        """`classes`: how many, None for a number. Weights are drawn from `generator`, or from torch's global one."""
        super().__init__()
        self.encoder = Encoder(settings, vocabulary_size)
        self.classification_head = ClassificationHead(settings, classes or 1)
        self.is_number = classes is None
        initialize(self, settings.initializer_deviation, generator)

    def forward(self, batch: Batch) -> Terms:
        """"task": the loss summed over N sequences, float32 without dimensions, and N."""
        assert batch.label_N is not None
        logits = self.logits(batch)
        if self.is_number:
            return {"task": (F.mse_loss(logits[:, 0], batch.label_N, reduction="sum"), batch.sequences)}
        return {"task": (F.cross_entropy(logits, batch.label_N.long(), reduction="sum"), batch.sequences)}

    def logits(self, batch: Batch) -> Tensor:
        """Float32 (N, classes), or (N, 1) for a number."""
        return self.classification_head(self.encoder.pool(self.encoder(batch), batch))

    @torch.no_grad()
    def predict(self, batch: Batch) -> Tensor:
        """(N,): the likeliest class as int64, or the number as float32."""
        logits = self.logits(batch)
        return logits[:, 0] if self.is_number else logits.argmax(-1)
