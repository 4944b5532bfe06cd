"""Bidirectional attention over flat batches: a token attends only to tokens of its own sequence.

Shapes: T tokens of the batch, N sequences, S length of the longest sequence, H heads, D width of a head.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.batch import Batch
from pipeline.model.dropout import dropout
from pipeline.model.rotary import Rotation

KERNEL_TYPES = (torch.bfloat16, torch.float16)
KERNEL_CAPABILITY = 8
"""Lowest major compute capability that has flash-attention kernels (Ampere)."""
KERNEL_HEAD_WIDTHS = range(8, 257, 8)
KERNEL_HEAD_WIDTHS_WITH_DROPOUT = range(8, 193, 8)
"""Backward with dropout and wider heads does not fit the shared memory of some GPUs."""
UNLIMITED = -1
"""Reach of attention without a window, as torch's kernels name it."""
GROUP_COST = 1 << 16
"""Fixed cost of a group of sequences: about 20 operators per layer. The unit is one attention score of one head."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Sequences padded to the length of the longest, with the positions of their tokens; computed once per batch."""

    sequences: int
    """N."""
    maximum_length: int
    """S."""
    slots_T: Tensor
    """int64: index of each token of the group in the padded order of N * S positions."""
    key_mask: Tensor | None
    """bool (N, 1, 1, S): True for tokens, False for padding; None when all sequences have length S."""


@dataclass(frozen=True, kw_only=True)
class Band:
    """Blocks of the flat batch for local attention: the queries of a block see its own and both neighbouring blocks."""

    reach: int
    """Tokens on each side that a token attends to."""
    block: int
    """Tokens per block, B; at least `reach`."""
    mask: Tensor
    """bool (C, 1, B, 3 B) for C blocks: True where a query attends to a key."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Positions of a batch's sequences in the flat batch and in padded groups, and how a layer's tokens attend.

    Attention with global tokens or with blocks of its own has a subclass in its file.
    """

    offsets: Tensor
    """int32, N + 1 entries: cumulative lengths."""
    maximum_length: int
    """S."""
    groups: tuple[Group, ...]
    order_T: Tensor | None
    """int64: indices that sort the batch's tokens by group; None for a single group, which keeps the batch's order."""
    rotation: Rotation | None = None
    """Rotation of queries and keys; None: they are not rotated."""
    relative_R: Tensor | None = None
    """Embeddings of relative positions (R, width) for disentangled attention; None: distances do not enter scores."""
    band: Band | None = None
    """Blocks of local attention; None: a token attends to all tokens of its sequence."""


def layout_of(batch: Batch, *, for_compiled: bool = False) -> Layout:
    """Return the layout of a batch, on the batch's device and without waiting for a GPU.

    `for_compiled`: layers are compiled, and this function is not. All layouts then have the same form, so that a layer
    is compiled once.
    """
    for_compiled = for_compiled or torch.compiler.is_compiling()
    offsets, longest, device = batch.offsets, batch.maximum_length, batch.ids_T.device
    lengths_N = offsets.diff()
    rows_T = torch.repeat_interleave(torch.arange(batch.sequences, device=device), lengths_N, output_size=batch.tokens)
    # Compiled code always masks, because a branch on this comparison would compile two graphs.
    full = not for_compiled and batch.tokens == batch.sequences * longest
    # Make several groups only in eager code on a CPU. On a GPU, reading the lengths would wait for the GPU. Compiled
    # code would need another graph for each number of groups.
    ends = [longest] if full or for_compiled or device.type != "cpu" else group_lengths(lengths_N.numpy())
    if len(ends) == 1:
        key_mask = None if full else (torch.arange(longest, device=device) < lengths_N[:, None])[:, None, None, :]
        group = Group(
            sequences=batch.sequences,
            maximum_length=longest,
            slots_T=rows_T * longest + batch.positions_T,
            key_mask=key_mask,
        )
        return Layout(offsets=offsets, maximum_length=longest, groups=(group,), order_T=None)
    group_N = torch.searchsorted(torch.tensor(ends), lengths_N)
    order_T = group_N[rows_T].argsort(stable=True)
    groups = tuple(_padded_group(lengths_N[group_N == number]) for number in range(len(ends)))
    return Layout(offsets=offsets, maximum_length=longest, groups=groups, order_T=order_T)


def _padded_group(lengths_N: Tensor) -> Group:
    """Return the group of sequences with these lengths (N,). Their tokens lie end to end in this order."""
    longest = int(lengths_N.max())
    key_mask = torch.arange(longest) < lengths_N[:, None]
    full = bool(key_mask.all())
    return Group(
        sequences=len(lengths_N),
        maximum_length=longest,
        slots_T=key_mask.flatten().nonzero()[:, 0],
        key_mask=None if full else key_mask[:, None, None, :],
    )


def group_lengths(lengths: np.ndarray) -> list[int]:
    """Group sequences of these lengths (N,) by length; return each group's longest length, ascending.

    The grouping has the lowest cost: padded attention scores, N * S^2 per group, plus GROUP_COST per group.
    """
    sizes, counts = np.unique(lengths, return_counts=True)
    passed = np.concatenate([[0], np.cumsum(counts)])
    best, starts = [0], []
    for j in range(1, len(sizes) + 1):
        costs = np.array(best) + (passed[j] - passed[:j]) * sizes[j - 1].astype(np.int64) ** 2 + GROUP_COST
        starts.append(int(costs.argmin()))
        best.append(int(costs.min()))
    ends, j = [], len(sizes)
    while j > 0:
        ends.append(int(sizes[j - 1]))
        j = starts[j - 1]
    return ends[::-1]


def attention(qkv: Tensor, layout: Layout, dropout_probability: float) -> Tensor:
    """Return the attention output of every token over its own sequence, with scores scaled by 1 / sqrt(D).

    Maps queries, keys and values qkv (T, 3, H, D) to (T, H, D) of the same dtype. Dropout applies to the attention
    weights; its probability must be 0 outside training.
    """
    if has_kernel(qkv, dropout_probability):
        return kernel_attention(qkv, layout, dropout_probability)
    return _padded_attention(qkv, layout, dropout_probability)


def has_kernel(qkv: Tensor, dropout_probability: float) -> bool:
    """Return whether the variable-length kernel supports a tensor (T, 3, H, D) with dropout of the attention weights.

    The kernel needs bfloat16 or float16, an NVIDIA GPU from Ampere on, and D a multiple of 8 up to 256, or up to 192
    with dropout.
    """
    return (
        qkv.is_cuda
        and qkv.dtype in KERNEL_TYPES
        and qkv.shape[-1] in (KERNEL_HEAD_WIDTHS_WITH_DROPOUT if dropout_probability else KERNEL_HEAD_WIDTHS)
        and torch.version.hip is None  # on ROCm, the same capability numbers mean something else
        and torch.cuda.get_device_properties(qkv.device).major >= KERNEL_CAPABILITY
    )


def kernel_attention(qkv: Tensor, layout: Layout, dropout_probability: float, reach: int = UNLIMITED) -> Tensor:
    """Do the work of `attention` by torch's variable-length kernel, which needs no padding.

    A token attends to `reach` tokens on each side. The kernel rounds the dropout probability to a multiple of 1 / 256.
    """
    q, k, v = qkv.unbind(1)
    offsets, longest = layout.offsets, layout.maximum_length
    if dropout_probability > 0:  # varlen_attn has no dropout; this operator is what it calls
        return torch.ops.aten._flash_attention_forward(
            q, k, v, offsets, offsets, longest, longest, dropout_probability, False, False,
            window_size_left=reach, window_size_right=reach,
        )[0]  # fmt: skip
    # Imported here because the import also loads torch's compiler. That takes two seconds, and only GPUs need it.
    from torch.nn.attention.varlen import varlen_attn

    attended = varlen_attn(q, k, v, offsets, offsets, longest, longest, window_size=(reach, reach))
    assert isinstance(attended, Tensor)  # varlen_attn returns a tuple only with return_aux
    return attended


def _padded_attention(qkv: Tensor, layout: Layout, dropout_probability: float) -> Tensor:
    # On a CPU in bfloat16, explicit matrix products train two to three times as fast as torch's kernel at length 128,
    # and equally fast at 512. Answers in float32 are the other way round: the kernel keeps scores in the caches.
    answers = not torch.compiler.is_compiling() and torch.is_inference_mode_enabled() and qkv.dtype == torch.float32
    attend = explicit_attention if qkv.device.type == "cpu" and not answers else F.scaled_dot_product_attention
    return in_groups(qkv, layout, lambda q, k, v, key_mask: attend(q, k, v, key_mask, dropout_probability))


def in_groups(qkv: Tensor, layout: Layout, attend: Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]) -> Tensor:
    """Return the attention output (T, H, D) of qkv (T, 3, H, D), computed in padded groups.

    For each group, `attend` maps queries, keys and values (N, H, S, D) and the group's key mask to outputs (N, H, S,
    D).
    """
    if layout.order_T is None:
        return _in_group(qkv, layout.groups[0], attend)
    parts = qkv[layout.order_T].split([len(group.slots_T) for group in layout.groups])
    out = torch.cat([_in_group(part, group, attend) for part, group in zip(parts, layout.groups, strict=True)])
    return torch.empty_like(out).index_copy(0, layout.order_T, out)


def _in_group(qkv: Tensor, layout: Group, attend: Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]) -> Tensor:
    T, _, H, D = qkv.shape
    N, S = layout.sequences, layout.maximum_length
    padded = qkv.new_zeros(N * S, 3 * H * D).index_copy(0, layout.slots_T, qkv.reshape(T, 3 * H * D))
    q, k, v = padded.view(N, S, 3, H, D).permute(2, 0, 3, 1, 4).unbind(0)
    out = attend(q, k, v, layout.key_mask)
    return out.transpose(1, 2).reshape(N * S, H * D).index_select(0, layout.slots_T).view(T, H, D)


def explicit_attention(q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, dropout_probability: float) -> Tensor:
    """Return attention outputs (..., queries, D) by explicit matrix products; `key_mask` is False for unseen keys."""
    return weighted_values((q * (1 / math.sqrt(q.shape[-1]))) @ k.transpose(-1, -2), v, key_mask, dropout_probability)


def weighted_values(scores: Tensor, v: Tensor, key_mask: Tensor | None, dropout_probability: float) -> Tensor:
    """Return the sums of values v (..., keys, D), weighted by the softmax of scores (..., queries, keys).

    Keys at which `key_mask` is False get weight 0. Each query needs a key with True.
    """
    if key_mask is not None:
        scores = scores.masked_fill(~key_mask, -math.inf)
    # Softmax computes in float32 for every dtype of its input, so the scores need no conversion. This holds on CPUs
    # and on CUDA, where DeBERTa's attention calls this function. Under autocast on CUDA, softmax also returns float32.
    return dropout(scores.softmax(-1), dropout_probability) @ v
