"""Block-sparse attention over flat batches (BigBird, Zaheer et al. 2020): each sequence has blocks of its own.

Blocks begin at the first token of a sequence, and its last block may be shorter, so that the output for a sequence does
not depend on the other sequences of its batch. Time and memory grow in proportion to the number of tokens.

Shapes: H heads, D width of a head, T tokens; a group has n sequences of C blocks of B tokens, attending to K blocks.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.batch import Batch
from pipeline.config.model import Model
from pipeline.config.model_parts import BlockSparseAttention
from pipeline.model.attention import Layout, attention, explicit_attention, layout_of
from pipeline.model.random_blocks import random_blocks


@dataclass(frozen=True, kw_only=True)
class BlockGroup:
    """Sequences with the same number of blocks for block-sparse attention: n sequences of C blocks of B tokens, each
    attending to K blocks.
    """

    tokens_T: Tensor
    """int64: the group's tokens in the flat batch."""
    slots_T: Tensor
    """int64: index of each of these tokens in the padded order of n * C * B positions."""
    real: Tensor
    """bool (n, C, B): True for tokens, False for padding, which only a last block has."""
    keys: Tensor
    """int64 (H, C - 2, K): the blocks that blocks 1 to C - 2 attend to; a block may occur several times."""
    counted: Tensor
    """bool (C - 2, K): False for a block of `keys` that is global and in the window, and is counted once already."""


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Sequences of a batch by their attention in a layer with block-sparse attention."""

    groups: tuple[BlockGroup, ...]
    """Long sequences."""
    full_T: Tensor | None
    """int64: the tokens of short sequences, which have full attention, in the flat batch; None: no such sequence."""
    full: Layout | None
    """Layout of the short sequences as a batch of their own."""


@dataclass(frozen=True, kw_only=True)
class BlockLayout(Layout):
    """Layout of a batch with sequences that are too long for full attention."""

    blocks: Blocks


def block_layouts(layouts: list[Layout], batch: Batch, model: Model) -> list[Layout]:
    """Return the layouts of the layers with the blocks of each layer, if the model has block-sparse attention.

    The layouts remain as they are if all sequences are short enough for full attention. If sequences differ in length,
    the host waits for a GPU once, to read the lengths.
    """
    settings = model.attention
    if not isinstance(settings, BlockSparseAttention) or batch.maximum_length <= settings.longest_full:
        return layouts
    equal = batch.tokens == batch.sequences * batch.maximum_length
    lengths = np.full(batch.sequences, batch.maximum_length) if equal else batch.offsets.diff().cpu().numpy()
    blocks_N = np.where(lengths > settings.longest_full, -(-lengths // settings.block_size), 0)
    full_T, full = _full(batch, lengths, blocks_N == 0)
    padded = [
        _padded(lengths, blocks_N == blocks, settings.block_size, batch.ids_T.device)
        for blocks in np.unique(blocks_N[blocks_N > 0])
    ]
    return [
        BlockLayout(
            **vars(layout),
            blocks=Blocks(groups=tuple(_group(*parts, model, layer) for parts in padded), full_T=full_T, full=full),
        )
        for layer, layout in enumerate(layouts)
    ]


def _full(batch: Batch, lengths: np.ndarray, chosen: np.ndarray) -> tuple[Tensor, Layout] | tuple[None, None]:
    """Return the tokens of the sequences in which `chosen` (N,) is True, and their layout as a batch of their own."""
    if not chosen.any():
        return None, None
    tokens_T = torch.from_numpy(np.flatnonzero(np.repeat(chosen, lengths))).to(batch.ids_T.device)
    return tokens_T, layout_of(_batch_of(batch, tokens_T, lengths[chosen]))


def _batch_of(batch: Batch, tokens_T: Tensor, lengths: np.ndarray) -> Batch:
    """Return the sequences with these tokens as a batch of their own, for its layout only."""
    offsets = torch.from_numpy(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))
    return Batch(
        ids_T=batch.ids_T[tokens_T],
        segments_T=batch.segments_T[tokens_T],
        positions_T=batch.positions_T[tokens_T],
        offsets=offsets.to(tokens_T.device),
        maximum_length=int(lengths.max()),
    )


def _padded(lengths: np.ndarray, chosen: np.ndarray, block: int, device: torch.device) -> tuple[Tensor, ...]:
    """Return `tokens_T`, `slots_T` and `real` of a group: the sequences in which `chosen` (N,) is True."""
    blocks = -(-int(lengths[chosen][0]) // block)
    real = np.arange(blocks * block) < lengths[chosen][:, None]
    parts = (np.flatnonzero(np.repeat(chosen, lengths)), np.flatnonzero(real), real.reshape(-1, blocks, block))
    return tuple(torch.from_numpy(part).to(device) for part in parts)


def _group(tokens_T: Tensor, slots_T: Tensor, real: Tensor, model: Model, layer: int) -> BlockGroup:
    """Return a group of sequences with the blocks that a layer's heads attend to."""
    assert isinstance(model.attention, BlockSparseAttention)
    blocks, device = real.shape[1], real.device
    drawn = random_blocks(layer, model.heads, blocks, model.attention, model.maximum_positions)
    row = np.arange(1, blocks - 1)
    fixed = np.stack((0 * row, row - 1, row, row + 1, 0 * row + blocks - 1), axis=1)  # first, window, last
    keys = np.concatenate((np.broadcast_to(fixed, (model.heads, *fixed.shape)), drawn), axis=2)
    counted = np.ones(keys.shape[1:], dtype=bool)
    # The window of block 1 holds the first block, and the window of block C - 2 holds the last.
    counted[0, 1] = counted[-1, 3] = False
    return BlockGroup(
        tokens_T=tokens_T,
        slots_T=slots_T,
        real=real,
        keys=torch.from_numpy(keys.astype(np.int64)).to(device),
        counted=torch.from_numpy(counted).to(device),
    )


def block_sparse_attention(qkv: Tensor, layout: BlockLayout, dropout_probability: float) -> Tensor:
    """Return the attention output of every token, with scores scaled by 1 / sqrt(D).

    Maps queries, keys and values qkv (T, 3, H, D) to (T, H, D) of the same dtype. A token of a block that is both
    global and in the window counts once; a token of a random block that is also one of these (see
    pipeline.model.random_blocks) counts twice, as published. Dropout applies to the attention weights, also of long
    sequences, for which the published codes have none; its probability must be 0 outside training.
    """
    blocks, tokens, outputs = layout.blocks, [], []
    if blocks.full is not None and blocks.full_T is not None:
        tokens.append(blocks.full_T)
        outputs.append(attention(qkv.index_select(0, blocks.full_T), blocks.full, dropout_probability))
    for group in blocks.groups:
        tokens.append(group.tokens_T)
        outputs.append(_in_blocks(qkv.index_select(0, group.tokens_T), group, dropout_probability))
    out = torch.cat(outputs)
    return torch.empty_like(out).index_copy(0, torch.cat(tokens), out)


def _in_blocks(qkv: Tensor, group: BlockGroup, dropout_probability: float) -> Tensor:
    """Return the attention output (T, H, D) of a group's tokens."""
    (T, _, H, D), (n, C, B) = qkv.shape, group.real.shape
    padded = qkv.new_zeros(n * C * B, 3 * H * D).index_copy(0, group.slots_T, qkv.reshape(T, 3 * H * D))
    q, k, v = padded.view(n, C * B, 3, H, D).permute(2, 0, 3, 1, 4).unbind(0)
    attend: Callable[..., Tensor] = explicit_attention if qkv.device.type == "cpu" else F.scaled_dot_product_attention
    ends = torch.cat((q[:, :, :B], q[:, :, -B:]), 2)
    ends = attend(ends, k, v, group.real.view(n, 1, 1, C * B), dropout_probability)
    keys, values = (_gathered(part, group) for part in (k, v))
    mask = (group.real[:, group.keys] & group.counted[:, :, None]).reshape(n, H * (C - 2), 1, -1)
    middle = attend(q[:, :, B:-B].reshape(n, H * (C - 2), B, D), keys, values, mask, dropout_probability)
    out = torch.cat((ends[:, :, :B], middle.reshape(n, H, (C - 2) * B, D), ends[:, :, B:]), 2)
    return out.transpose(1, 2).reshape(n * C * B, H * D).index_select(0, group.slots_T).view(T, H, D)


def _gathered(tokens: Tensor, group: BlockGroup) -> Tensor:
    """Return the keys or values (n, H, C * B, D) that each block attends to, (n, H * (C - 2), K * B, D)."""
    n, C, B = group.real.shape
    H, M, K = group.keys.shape
    rows = group.keys + C * torch.arange(H, device=group.keys.device)[:, None, None]
    blocks = tokens.reshape(n, H * C, -1).index_select(1, rows.flatten())
    return blocks.view(n, H * M, K * B, -1)


def times_counted(group: BlockGroup) -> Tensor:
    """Return how often each token (row) counts each token (column) of a sequence, int64 (H, C * B, C * B)."""
    _, C, B = group.real.shape
    heads, counted = len(group.keys), group.counted.long().expand(group.keys.shape)
    middle = torch.zeros(heads, C - 2, C, dtype=torch.int64, device=counted.device).scatter_add(2, group.keys, counted)
    ends = torch.ones(heads, 1, C, dtype=torch.int64, device=counted.device)
    return torch.cat((ends, middle, ends), 1).repeat_interleave(B, 1).repeat_interleave(B, 2)
