"""Pool the hidden states of each text to one vector.

Shapes: N texts, T tokens in total, W width of a hidden state.
"""

from torch import Tensor

from pipeline.batch import Batch
from pipeline.model.heads import AttentionPooling, by_segment


def pool(hidden_T: Tensor, batch: Batch, pooling: str | AttentionPooling) -> Tensor:
    """Return the vector of each sequence, float32 (N, W), from hidden states (T, W).

    mean, max: over all tokens of the sequence, [CLS] and [SEP] included; cls: the state of [CLS]; a layer: the mean
    with the layer's weights.
    """
    if pooling == "cls":
        return hidden_T[batch.offsets[:-1]].float()
    lengths = batch.offsets.diff().long()
    if isinstance(pooling, AttentionPooling):
        return pooling(hidden_T, lengths)
    return by_segment(hidden_T.float(), pooling, lengths)
