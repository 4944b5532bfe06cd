"""The random blocks of block-sparse attention: equal to the published draw, and pure."""

import numpy as np
import pytest

from pipeline.config.model_parts import BlockSparseAttention
from pipeline.model.random_blocks import random_blocks

transformers = pytest.importorskip("transformers")


def published(layer: int, heads: int, blocks: int, attention: BlockSparseAttention, maximum: int) -> np.ndarray:
    """The tables of transformers in training."""
    from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention

    size, drawn = attention.block_size, attention.random_blocks
    config = transformers.BigBirdConfig(
        hidden_size=4 * heads,
        num_attention_heads=heads,
        block_size=size,
        num_random_blocks=drawn,
        max_position_embeddings=maximum,
    )
    module = BigBirdBlockSparseAttention(config, seed=layer).train()
    length = blocks * size
    state = np.random.get_state()
    np.random.seed(layer)
    if length in (1024, 3072, 4096):
        tables = [
            module._bigbird_block_rand_mask(maximum, maximum, size, size, drawn, last_idx=1024)[: blocks - 2]
            for _ in range(heads)
        ]
    else:
        lengths, counts = module._get_rand_attn_plan(length, size, drawn)
        tables = module._bigbird_block_rand_mask_with_head(length, length, size, size, heads, lengths, counts)
    np.random.set_state(state)
    return np.stack(tables)


@pytest.mark.parametrize(
    ("blocks", "size", "drawn", "maximum"),
    [
        (12, 64, 3, 4096),  # the first length with sparse attention
        (13, 64, 3, 4096),
        (16, 64, 3, 4096),  # 1,024 tokens: the paper's draw
        (16, 64, 3, 1024),
        (40, 64, 3, 4096),
        (48, 64, 3, 4096),  # 3,072
        (64, 64, 3, 4096),
        (64, 16, 3, 1024),
        (12, 128, 3, 4096),
        (32, 128, 4, 4096),
        (24, 128, 4, 4096),
        (20, 16, 3, 1024),
        (20, 16, 1, 1024),
        (9, 16, 0, 1024),
        (64, 16, 0, 1024),
        (25, 32, 7, 1024),
    ],
)
def test_tables_are_the_published_ones(blocks: int, size: int, drawn: int, maximum: int) -> None:
    attention = BlockSparseAttention(block_size=size, random_blocks=drawn)
    for layer in (0, 1, 11):
        table = random_blocks(layer, 3, blocks, attention, maximum)
        assert table.shape == (3, blocks - 2, drawn)
        np.testing.assert_array_equal(table, published(layer, 3, blocks, attention, maximum))


def test_the_global_generator_is_neither_read_nor_changed() -> None:
    attention = BlockSparseAttention(block_size=16, random_blocks=3)
    np.random.seed(7)
    before = np.random.get_state()[1].copy()
    one = random_blocks.__wrapped__(2, 4, 64, attention, 1024)
    np.testing.assert_array_equal(np.random.get_state()[1], before)
    np.random.seed(8)
    np.testing.assert_array_equal(random_blocks.__wrapped__(2, 4, 64, attention, 1024), one)


def test_heads_and_layers_differ() -> None:
    attention = BlockSparseAttention(block_size=16, random_blocks=3)
    first, second = (random_blocks(layer, 2, 30, attention, 1024) for layer in (0, 1))
    assert (first[0] != first[1]).any() and (first != second).any()


def test_other_lengths_draw_none_of_the_window_and_of_the_first_block() -> None:
    table = random_blocks(0, 2, 30, BlockSparseAttention(block_size=16, random_blocks=3), 1024)
    for row in range(28):
        for head in range(2):
            found = set(table[head, row].tolist())
            assert len(found) == 3 and not found & {0, 10, row, row + 1, row + 2} and max(found) < 10


def test_lengths_of_the_paper_without_enough_blocks_have_the_draw_of_other_lengths() -> None:
    """Blocks of 256 tokens: the paper's draw has one block for block 1, and is an error where three are wanted."""
    table = random_blocks(0, 2, 16, BlockSparseAttention(block_size=256, random_blocks=3), 4096)
    assert table.shape == (2, 14, 3) and table.max() < 10
    with pytest.raises(ValueError, match="broadcast"):
        published(0, 2, 16, BlockSparseAttention(block_size=256, random_blocks=3), 4096)
