"""The random blocks of block-sparse attention, as published: fixed per layer and head (Zaheer et al. 2020)."""

import functools

import numpy as np

from pipeline.config.model_parts import BlockSparseAttention

PAPER_LENGTHS = (1_024, 3_072, 4_096)
"""Lengths with the draw of the paper's experiments (google-research/bigbird: bigbird_block_sparse_attention)."""
PAPER_REACH = 1_024
"""In the paper's draw, random blocks lie in the first 1,024 tokens."""


@functools.lru_cache(maxsize=4_096)
def random_blocks(
    layer: int, heads: int, blocks: int, attention: BlockSparseAttention, maximum_positions: int
) -> np.ndarray:
    """Return the random blocks of each head and of blocks 1 to `blocks` - 2, int32 (heads, blocks - 2, random_blocks).

    A pure function. It returns the tables of google-research/bigbird, and of transformers in training: both seed
    NumPy's old generator with the layer's number (from 0), and draw for all heads in turn. In evaluation, transformers
    does not draw, but uses block 0 in place of every random block; google-research/bigbird and this project use the
    same tables in training and evaluation.

    - Sequences whose blocks have 1,024, 3,072 or 4,096 tokens have the paper's draw: the first rows of a table for
      `maximum_positions` tokens (google-research/bigbird: 4,096). In some rows it draws from the window or from the
      last block too, and such a block counts twice. If the draw has too few blocks to choose from, which is an error in
      both published codes, the draw of other lengths is used.
    - For other lengths, random blocks lie in the first 5 + 2 * random_blocks blocks, and are none of the window, of the
      first block and of the last of these blocks.
    """
    size, drawn = attention.block_size, attention.random_blocks
    generator = np.random.RandomState(layer)  # NumPy guarantees that its stream never changes (NEP 19)
    if blocks * size in PAPER_LENGTHS and drawn <= min(PAPER_REACH, maximum_positions - size) // size - 4:
        total, last = maximum_positions // size, PAPER_REACH // size - 1
        whole = [
            [generator.permutation(_paper_choices(row, total, last))[:drawn] for row in range(1, total - 1)]
            for _ in range(heads)
        ]
        table = np.array(whole, dtype=np.int32)[:, : blocks - 2]
    else:
        rows = [[_drawn(generator, row, drawn) for _ in range(heads)] for row in range(1, blocks - 1)]
        table = np.array(rows, dtype=np.int32).transpose(1, 0, 2)
    table.flags.writeable = False  # it is cached
    return table


def _paper_choices(row: int, total: int, last: int) -> np.ndarray:
    """Return the blocks from which block `row` of `total` draws, up to block `last` (bigbird_block_rand_mask)."""
    middle = np.arange(1, total - 1, dtype=np.int32)
    if row in (1, 2):
        return middle[row + 1 : last]
    if row >= total - 3:
        return middle[:last]  # with the window, in both published codes
    before = middle[: min(row - 2, last)]
    return before if row - 2 > last or row + 1 == last else np.concatenate((before, middle[row + 1 : last]))


def _drawn(generator: np.random.RandomState, row: int, drawn: int) -> list[int]:
    """Draw the random blocks of block `row` (get_single_block_row_attention)."""
    end = 5 + 2 * drawn
    excluded = {row - 1, row, row + 1, 0, end - 1}
    excluded |= {end - 2} if row == 1 else set()
    excluded |= {1} if row == end - 2 else set()
    return [block for block in generator.permutation(end).tolist() if block not in excluded][:drawn]
