"""The input layer: embeddings of words and, where the model has them, positions and segments, summed and normalised."""

from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.batch import Batch
from pipeline.config.model import Model
from pipeline.model.dropout import dropout
from pipeline.model.norm import make_norm


class Embeddings(nn.Module):
    """Map flat ids and positions to states (T, embedded width). Positions and segments are added if the settings have
    embeddings of them.
    """

    def __init__(self, settings: Model, vocabulary_size: int) -> None:
        super().__init__()
        width, self.first = settings.embedded_width, settings.first_position
        self.words = nn.Embedding(vocabulary_size, width)
        self.positions = nn.Embedding(settings.position_rows, width) if settings.position_rows else None
        self.segments = nn.Embedding(settings.segments, width) if settings.segments else None
        self.norm = make_norm(settings, width)
        self.dropout = settings.hidden_dropout

    def forward(self, batch: Batch) -> Tensor:
        summed = self.words(batch.ids_T)
        if self.positions is not None:
            summed = summed + self.positions(batch.positions_T + self.first if self.first else batch.positions_T)
        if self.segments is not None:
            # A model with one segment embedding uses it for all tokens; the batch may still have segments 0 and 1.
            single = self.segments.num_embeddings == 1
            summed = summed + (self.segments.weight[0] if single else self.segments(batch.segments_T))
        return dropout(self.norm(summed), self.dropout if self.training else 0.0)


class AddedEmbedding(nn.Embedding):
    """Word embeddings that are those of another table, without gradient to it, plus this table (gradient-disentangled
    embedding sharing, He et al. 2023). Before training, this table must be set to zero.
    """

    def __init__(self, other: nn.Embedding) -> None:
        super().__init__(other.num_embeddings, other.embedding_dim)
        self._other = (other,)  # a tuple hides the module from torch, so its parameters belong to one model only

    def forward(self, ids: Tensor) -> Tensor:  # ty: ignore[lost-keyword-for-regular-parameter]
        return super().forward(ids) + F.embedding(ids, self._other[0].weight.detach())
