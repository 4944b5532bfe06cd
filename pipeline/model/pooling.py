"""Pool the hidden states of each text to one vector.

Shapes: N texts, T tokens in total, W width of a hidden state.
"""

from typing import Literal

from torch import Tensor

from pipeline.batch import Batch
from pipeline.model.heads import by_segment


def pool(hidden_T: Tensor, batch: Batch, pooling: Literal["mean", "cls", "max"]) -> Tensor:
    """Return the vector of each sequence, float32 (N, W), from hidden states (T, W).

    mean, max: over all tokens of the sequence, [CLS] and [SEP] included; cls: the state of [CLS].
    """
    if pooling == "cls":
        return hidden_T[batch.offsets[:-1]].float()
    return by_segment(hidden_T.float(), pooling, batch.offsets.diff().long())
