"""BERT's input layer: word, position and segment embeddings, summed and normalised."""

from torch import Tensor, nn

from pipeline.batch import Batch
from pipeline.config.model import Model
from pipeline.model.dropout import dropout


class Embeddings(nn.Module):
    """Map flat ids, positions and segments to hidden states (T, width)."""

    def __init__(self, settings: Model, vocabulary_size: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary_size, settings.width)
        self.positions = nn.Embedding(settings.maximum_positions, settings.width)
        self.segments = nn.Embedding(settings.segments, settings.width)
        self.norm = nn.LayerNorm(settings.width, eps=settings.layer_norm_epsilon)
        self.dropout = settings.hidden_dropout

    def forward(self, batch: Batch) -> Tensor:
        summed = self.words(batch.ids_T) + self.positions(batch.positions_T) + self.segments(batch.segments_T)
        return dropout(self.norm(summed), self.dropout if self.training else 0.0)
