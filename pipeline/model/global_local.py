"""Attention of Longformer over flat batches: near tokens and a few global tokens (Beltagy et al. 2020).

A token attends to the near tokens and to the global tokens of its sequence. A global token attends to all tokens of its
sequence, with projections of its own. Time and memory grow in
proportion to the number of tokens; no matrix has a row and a column per token of a sequence.
Shapes: T tokens of the batch, N sequences, C blocks of B tokens, G global tokens of the sequence with most, H heads, D
width of a head.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.batch import Batch
from pipeline.model.attention import Layout, attention, explicit_attention, in_groups
from pipeline.model.windows import LEAST_BLOCK

GlobalUse = Literal["none", "first", "question", "second"]
"""Global tokens of a sequence: none, the first token, all tokens before its first [SEP], or all of its second text."""


@dataclass(frozen=True, kw_only=True)
class GlobalBlocks:
    """Blocks of tokens, each of one sequence, for local attention with global tokens: the queries of a block see its
    own and both neighbouring blocks, and the global tokens of its sequence.
    """

    block: int
    """Tokens per block, B."""
    slots_T: Tensor
    """int64: index of each token among the C * B positions of C blocks."""
    keys: Tensor
    """int64 (C, G): index in the flat batch of the global tokens that a block sees."""
    mask: Tensor
    """bool (C, 1, B, 3 B + G): True where a query attends to a key."""


@dataclass(frozen=True, kw_only=True)
class GlobalTokens:
    """Tokens that attend to their whole sequence, and to which their whole sequence attends: the first of each."""

    reach: int
    """Tokens on each side that other tokens attend to."""
    most: int
    """Global tokens of the sequence with most, G."""
    is_global_T: Tensor
    """bool."""
    indices: Tensor
    """int64 (N, G): index of each global token in the flat batch."""
    exists: Tensor
    """bool (N, G): False where a sequence has fewer global tokens; the index is then of another token."""
    blocks: GlobalBlocks | None
    """Blocks of the other tokens' attention; None: the window covers all sequences."""


@dataclass(frozen=True, kw_only=True)
class GlobalLayout(Layout):
    """Layout of a batch in which some tokens attend to all tokens of their sequence in spite of local attention."""

    global_tokens: GlobalTokens


def with_global_tokens(layout: Layout, batch: Batch, use: GlobalUse, reach: int) -> Layout:
    """Return the layout with the batch's global tokens; other tokens also attend to `reach` tokens on each side.

    The layout is unchanged if no token is global.
    """
    chosen = _global_tokens(batch, layout, use, reach)
    return layout if chosen is None else GlobalLayout(**vars(layout), global_tokens=chosen)


def _global_tokens(batch: Batch, layout: Layout, use: GlobalUse, reach: int) -> GlobalTokens | None:
    """Return the global tokens of a batch whose other tokens attend to `reach` tokens on each side; None: no token.

    With "question", the host waits for the device, because the longest question determines the size of tensors. With
    "second", transformers chooses the same tokens in its class for multiple choice: those after two [SEP].
    Then each sequence must have a second text, if only its [SEP].
    """
    if use == "none":
        return None
    lengths_N = batch.offsets.diff().long()
    sequence_T = torch.repeat_interleave(lengths_N, output_size=batch.tokens)
    is_global_T = batch.positions_T == 0
    if use == "question":
        is_global_T = is_global_T | _before_separator(batch, sequence_T)
    if use == "second":
        is_global_T = batch.segments_T == 1
    most = {"first": 1, "second": batch.maximum_length}.get(use) or int(batch.positions_T[is_global_T].max()) + 1
    indices = batch.offsets[:-1].long()[:, None] + torch.arange(most, device=is_global_T.device)
    exists, indices = indices < batch.offsets[1:, None], indices.clamp(max=batch.tokens - 1)
    exists = exists & is_global_T[indices]
    chosen = GlobalTokens(reach=reach, most=most, is_global_T=is_global_T, indices=indices, exists=exists, blocks=None)
    if not torch.compiler.is_compiling() and layout.maximum_length <= reach + 1:
        return chosen
    return replace(chosen, blocks=_blocks(batch, sequence_T, chosen))


def _before_separator(batch: Batch, sequence_T: Tensor) -> Tensor:
    """Return for each token whether no [SEP] precedes it and it is none (T,). The last token of a sequence is a [SEP].

    transformers chooses the same tokens in its class for questions.
    """
    ends_N = batch.offsets[1:].long() - 1
    separator_T = batch.ids_T == batch.ids_T[ends_N][sequence_T]
    passed_T = separator_T.cumsum(0)
    before_N = F.pad(passed_T[ends_N], (1, -1))
    return passed_T == before_N[sequence_T]


def _blocks(batch: Batch, sequence_T: Tensor, chosen: GlobalTokens) -> GlobalBlocks:
    """Return blocks of B tokens, each of one sequence, and the mask of their keys."""
    device, block = batch.ids_T.device, max(chosen.reach, LEAST_BLOCK)
    blocks_N = (batch.offsets.diff().long() + block - 1) // block
    # Elsewhere than in eager code on a CPU, the highest possible number of blocks avoids waiting for the device.
    eager = device.type == "cpu" and not torch.compiler.is_compiling()
    blocks = int(blocks_N.sum()) if eager else batch.tokens // block + batch.sequences
    slots_T = (blocks_N.cumsum(0) - blocks_N)[sequence_T] * block + batch.positions_T

    def in_slots(values_T: Tensor, fill: int) -> Tensor:
        """Return values (T,) in the order of slots, with an unused block at each end: ((C + 2) * B,)."""
        values = values_T.new_full(((blocks + 2) * block,), fill)
        return values.index_copy(0, slots_T + block, values_T)

    sequence, is_local = in_slots(sequence_T, -1), in_slots(~chosen.is_global_T, 0)
    queries = torch.arange(block, (blocks + 1) * block, device=device).view(blocks, block, 1)
    keys = queries[:, :1] + torch.arange(-block, 2 * block, device=device)
    near = ((keys - queries).abs() <= chosen.reach) & (sequence[queries] == sequence[keys]) & is_local[keys]
    # Blocks without tokens get the global tokens of sequence 0, because a softmax without any key would be NaN.
    sequence_C = sequence[block:-block:block].clamp(min=0)
    mask = torch.cat((near, chosen.exists[sequence_C][:, None].expand(-1, block, -1)), -1)[:, None]
    return GlobalBlocks(block=block, slots_T=slots_T, keys=chosen.indices[sequence_C], mask=mask)


def local_attention(qkv: Tensor, layout: GlobalLayout, dropout_probability: float) -> Tensor:
    """Return the attention output of every token over the near and the global tokens of its sequence.

    Maps queries, keys and values qkv (T, 3, H, D) to (T, H, D) of the same dtype, with scores scaled by 1 / sqrt(D).
    Outputs of the global tokens themselves have no meaning. Dropout applies to the attention weights; its probability
    must be 0 outside training.
    """
    if layout.global_tokens.blocks is None:  # the window covers all sequences, and contains their global tokens
        return attention(qkv, layout, dropout_probability)
    return _in_blocks(qkv, layout.global_tokens.blocks, dropout_probability)


def _in_blocks(qkv: Tensor, layout: GlobalBlocks, dropout_probability: float) -> Tensor:
    T, _, H, D = qkv.shape
    B, C = layout.block, len(layout.mask)
    slots = qkv.new_zeros((C + 2) * B, 3 * H * D).index_copy(0, layout.slots_T + B, qkv.reshape(T, 3 * H * D))
    blocks = slots.view(C + 2, B, 3, H, D)
    q = blocks[1:-1, :, 0].transpose(1, 2)
    seen = (blocks[:-2, :, 1:], blocks[1:-1, :, 1:], blocks[2:, :, 1:], qkv[layout.keys][:, :, 1:])
    k, v = torch.cat(seen, 1).permute(2, 0, 3, 1, 4).unbind(0)
    attend = explicit_attention if qkv.device.type == "cpu" else F.scaled_dot_product_attention
    out = attend(q, k, v, layout.mask, dropout_probability)
    return out.transpose(1, 2).reshape(C * B, H, D)[layout.slots_T]


def global_attention(qkv: Tensor, layout: GlobalLayout, dropout_probability: float) -> Tensor:
    """Return the attention output of global tokens over their whole sequences, from projections of their own.

    Maps queries, keys and values qkv (T, 3, H, D) to (T, H, D) of the same dtype; only the rows of global tokens have a
    meaning.
    """
    most = layout.global_tokens.most

    def attend(q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None) -> Tensor:
        out = explicit_attention(q[:, :, :most], k, v, key_mask, dropout_probability)
        return F.pad(out, (0, 0, 0, k.shape[2] - out.shape[2]))

    return in_groups(qkv, layout, attend)
