"""Local attention over flat batches: a token attends to the tokens of its sequence that are near it.

Time and memory grow in proportion to the number of tokens; no matrix has a row and a column per token of a sequence.
Shapes: T tokens of the batch, C blocks of B tokens, H heads, D width of a head.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.model.attention import Band, Layout, explicit_attention, has_kernel, kernel_attention

LEAST_BLOCK = 32
"""Minimum tokens per block, so that a narrow window does not give many tiny matrix products."""


def band(layout: Layout, tokens: int, reach: int) -> Band | None:
    """Return the blocks of a batch of `tokens` tokens, in which a token attends to `reach` tokens on each side.

    Return None if the window covers all sequences; compiled code always gets blocks, because a branch on lengths would
    compile two graphs.
    """
    if not torch.compiler.is_compiling() and layout.maximum_length <= reach + 1:
        return None
    device, block = layout.offsets.device, max(reach, LEAST_BLOCK)
    blocks = -(-tokens // block)
    positions = torch.arange(-block, (blocks + 1) * block, device=device)  # in the flat batch
    # Positions before the first and after the last token belong to no sequence. A padding query of the last block sees
    # padding keys, because a softmax without any key would be NaN.
    sequences = torch.bucketize(positions, layout.offsets.long(), right=True)
    queries = positions[block:-block].view(blocks, block, 1)
    keys = queries[:, :1] + torch.arange(-block, 2 * block, device=device)
    near = (keys - queries).abs() <= reach
    same = sequences[queries + block] == sequences[keys + block]
    return Band(reach=reach, block=block, mask=(near & same)[:, None])


def windowed_attention(qkv: Tensor, layout: Layout, dropout_probability: float) -> Tensor:
    """Return the attention output of every token over the near tokens of its own sequence.

    Maps queries, keys and values qkv (T, 3, H, D) to (T, H, D) of the same dtype, with scores scaled by 1 / sqrt(D).
    `layout` must have a band. Dropout applies to the attention weights; its probability must be 0 outside training.
    """
    assert layout.band is not None
    if has_kernel(qkv, dropout_probability):
        return kernel_attention(qkv, layout, dropout_probability, layout.band.reach)
    return _banded_attention(qkv, layout.band, dropout_probability)


def _banded_attention(qkv: Tensor, layout: Band, dropout_probability: float) -> Tensor:
    T, _, H, D = qkv.shape
    B, C = layout.block, len(layout.mask)
    padded = F.pad(qkv, (0, 0, 0, 0, 0, 0, B, (C + 1) * B - T)).view(C + 2, B, 3, H, D)
    q = padded[1:-1, :, 0].transpose(1, 2)
    k, v = torch.cat((padded[:-2, :, 1:], padded[1:-1, :, 1:], padded[2:, :, 1:]), 1).permute(2, 0, 3, 1, 4).unbind(0)
    attend = explicit_attention if qkv.device.type == "cpu" else F.scaled_dot_product_attention
    out = attend(q, k, v, layout.mask, dropout_probability)
    return out.transpose(1, 2).reshape(C * B, H, D)[:T]
