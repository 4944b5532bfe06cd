"""Bidirectional attention over flat batches: a token sees the tokens of its own sequence, and no others.

Shapes: T tokens of the batch, N sequences, S the longest of them, H heads, D width of a head.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.varlen import varlen_attn

from pipeline.batch import Batch
from pipeline.model.dropout import dropout

KERNEL_TYPES = (torch.bfloat16, torch.float16)
KERNEL_CAPABILITY = 8
"""Major compute capability that the flash kernels start at (Ampere)."""
KERNEL_HEAD_WIDTHS = range(8, 257, 8)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where the sequences of a batch lie, flat and padded; made once a batch and used by every layer."""

    offsets: Tensor
    """int32, N + 1 entries: cumulative lengths."""
    maximum_length: int
    """S."""
    slots_T: Tensor
    """int64: place of each token in the padded (N * S) order."""
    key_mask: Tensor | None
    """bool (N, 1, 1, S): True where there is a token; None when all sequences are of length S."""

    @property
    def sequences(self) -> int:
        return self.offsets.shape[0] - 1


def layout(batch: Batch) -> Layout:
    """The layout of a batch, on the batch's device and without waiting for it."""
    offsets, longest, device = batch.offsets, batch.maximum_length, batch.ids_T.device
    lengths_N = offsets.diff()
    rows_T = torch.repeat_interleave(torch.arange(batch.sequences, device=device), lengths_N, output_size=batch.tokens)
    # Compiled code always masks: asking for this equality would make it two graphs.
    full = not torch.compiler.is_compiling() and batch.tokens == batch.sequences * longest
    key_mask = None if full else (torch.arange(longest, device=device) < lengths_N[:, None])[:, None, None, :]
    return Layout(offsets=offsets, maximum_length=longest, slots_T=rows_T * longest + batch.positions_T, key_mask=key_mask)


def attention(qkv: Tensor, where: Layout, dropout_probability: float) -> Tensor:
    """Attention of every token over its own sequence, scaled by 1 / sqrt(D).

    qkv (T, 3, H, D) holds queries, keys and values; the result is (T, H, D). Dropout is that of attention weights, 0 outside training.
    """
    if dropout_probability == 0 and has_kernel(qkv):
        q, k, v = qkv.unbind(1)
        return varlen_attn(q, k, v, where.offsets, where.offsets, where.maximum_length, where.maximum_length)
    return _padded_attention(qkv, where, dropout_probability)


def has_kernel(qkv: Tensor) -> bool:
    """Whether the variable-length kernel takes such a tensor: half precision, on CUDA from Ampere on, heads of a multiple of 8 up to 256 wide."""
    return (
        qkv.is_cuda
        and qkv.dtype in KERNEL_TYPES
        and qkv.shape[-1] in KERNEL_HEAD_WIDTHS
        and torch.cuda.get_device_properties(qkv.device).major >= KERNEL_CAPABILITY
    )


def _padded_attention(qkv: Tensor, where: Layout, dropout_probability: float) -> Tensor:
    T, _, H, D = qkv.shape
    N, S = where.sequences, where.maximum_length
    padded = qkv.new_zeros(N * S, 3 * H * D).index_copy(0, where.slots_T, qkv.reshape(T, 3 * H * D))
    q, k, v = padded.view(N, S, 3, H, D).permute(2, 0, 3, 1, 4).unbind(0)
    # On a CPU in bfloat16, explicit products train two to three times as fast as the library's kernel at length 128, and as fast at 512.
    attend = _explicit if qkv.device.type == "cpu" else F.scaled_dot_product_attention
    out = attend(q, k, v, where.key_mask, dropout_probability)
    return out.transpose(1, 2).reshape(N * S, H * D).index_select(0, where.slots_T).view(T, H, D)


def _explicit(q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, dropout_probability: float) -> Tensor:
    scores = (q * (1 / math.sqrt(q.shape[-1]))) @ k.transpose(-1, -2)
    if key_mask is not None:
        scores = scores.masked_fill(~key_mask, -math.inf)
    # The CPU's softmax computes in float32 whatever type it reads and writes.
    return dropout(scores.softmax(-1), dropout_probability) @ v
