"""DeBERTa's enhanced mask decoder: positions enter only before masked tokens are predicted (He et al. 2021)."""

from torch import Tensor, nn

from pipeline.batch import Batch
from pipeline.config.model import Model
from pipeline.model.encoder import Encoder


class EnhancedDecoder(nn.Module):
    """Apply an encoder's last layer twice to the states before it.

    Keys and values are these states. The queries are first these states plus a learned embedding of each position, then
    the output of the first time (microsoft/DeBERTa: EnhancedMaskDecoder). The last layer's weights are the encoder's.
    """

    def __init__(self, settings: Model) -> None:
        super().__init__()
        self.positions = nn.Embedding(settings.maximum_positions, settings.width)

    def forward(self, encoder: Encoder, batch: Batch) -> Tensor:
        """Return hidden states (T, width) from which masked tokens are predicted."""
        hidden_T, last, layout = encoder.before_last(batch)
        queries_T = hidden_T + self.positions(batch.positions_T).to(hidden_T.dtype)
        for _ in range(2):
            queries_T = encoder.apply_layer(last, hidden_T, layout, queries_T)
        return queries_T
