"""Block-sparse attention on flat batches: the published pattern per sequence, and linear in length."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.config.model import Model
from pipeline.config.model_parts import BlockSparseAttention
from pipeline.errors import ConfigError
from pipeline.model import block_sparse
from pipeline.model.attention import explicit_attention, layout_of
from pipeline.model.block_sparse import BlockLayout, block_layouts, block_sparse_attention, times_counted
from pipeline.model.encoder import Encoder, initialize
from pipeline.model.random_blocks import random_blocks
from pipeline.model.states import attention_weights, layer_states
from tests.unit.model.test_attention import flat_batch

pytestmark = pytest.mark.usefixtures("one_thread")

# Sequences of up to (5 + 2 * 2) * 4 = 36 tokens have full attention.
MODEL = Model(
    layers=2,
    width=8,
    heads=2,
    feed_forward=16,
    maximum_positions=1_024,
    hidden_dropout=0,
    attention_dropout=0,
    attention=BlockSparseAttention(block_size=4, random_blocks=2),
)
LENGTHS = [36, 37, 40, 41, 90, 1, 40, 12, 77]


def qkv_of(lengths: list[int], seed: int = 0) -> Tensor:
    return torch.randn(sum(lengths), 3, 2, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sparsely(qkv: Tensor, lengths: list[int], layer: int = 1, dropout: float = 0.0, model: Model = MODEL) -> Tensor:
    batch = flat_batch(lengths)
    layout = block_layouts([layout_of(batch)] * 2, batch, model)[layer]
    assert isinstance(layout, BlockLayout)
    return block_sparse_attention(qkv, layout, dropout)


def seen(row: int, blocks: int, head: int, layer: int) -> list[int]:
    """The blocks that a block attends to, each as often as it counts."""
    if row in (0, blocks - 1):
        return list(range(blocks))
    drawn = random_blocks(layer, 2, blocks, BlockSparseAttention(block_size=4, random_blocks=2), 1_024)
    return [*{0, row - 1, row, row + 1, blocks - 1}, *drawn[head, row - 1].tolist()]


def block_by_block(qkv: Tensor, lengths: list[int], layer: int = 1) -> Tensor:
    """The formula, block by block, head by head and sequence by sequence."""
    outputs = []
    for part in qkv.split(lengths):
        q, k, v = part.permute(1, 2, 0, 3)
        places = [part.new_tensor(range(len(part))).long()[start : start + 4] for start in range(0, len(part), 4)]
        rows = []
        for row, queries in enumerate(places):
            heads = []
            for head in range(2):
                found = seen(row, len(places), head, layer) if len(part) > 36 else range(len(places))
                keys = torch.cat([places[block] for block in found])
                scores = q[head, queries] @ k[head, keys].T / math.sqrt(4)
                heads.append(scores.softmax(-1) @ v[head, keys])
            rows.append(torch.stack(heads, 1))
        outputs.append(torch.cat(rows))
    return torch.cat(outputs)


# 37 is the first length with blocks; 40 has whole blocks, 41 begins a block; 1,024 is a length of the paper's draw.
@pytest.mark.parametrize("lengths", [[37], [40], [41], [90], [1_021], [1_024], LENGTHS])
def test_equals_the_formula_block_by_block(lengths: list[int]) -> None:
    qkv = qkv_of(lengths)
    torch.testing.assert_close(sparsely(qkv, lengths), block_by_block(qkv, lengths))


def test_gradients_are_those_of_the_formula() -> None:
    ours, theirs = (qkv_of(LENGTHS).requires_grad_() for _ in range(2))
    weights = torch.randn(sum(LENGTHS), 2, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (sparsely(ours, LENGTHS) * weights).sum().backward()
    (block_by_block(theirs, LENGTHS) * weights).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_a_sequence_does_not_depend_on_the_others() -> None:
    encoder = encoder_of(MODEL)
    batch = flat_batch(LENGTHS)
    batch = replace(batch, ids_T=torch.randint(0, 31, (batch.tokens,), generator=torch.Generator().manual_seed(0)))
    with torch.no_grad():
        together = encoder(batch).split(LENGTHS)
        for ids, length, states in zip(batch.ids_T.split(LENGTHS), LENGTHS, together, strict=True):
            alone = encoder(replace(flat_batch([length]), ids_T=ids))
            torch.testing.assert_close(alone, states, atol=1e-5, rtol=1e-5)


def test_recomputed_layers_give_the_same_gradients() -> None:
    encoder, gradients = encoder_of(replace(MODEL, attention_dropout=0.1)).train(), []
    for encoder.recompute in (False, True):
        encoder.zero_grad()
        torch.manual_seed(0)
        encoder(flat_batch(LENGTHS)).square().sum().backward()
        gradients.append([parameter.grad for parameter in encoder.parameters() if parameter.grad is not None])
    torch.testing.assert_close(gradients[1], gradients[0])


def encoder_of(model: Model) -> Encoder:
    encoder = Encoder(model, 31)
    initialize(encoder, 0.5, torch.Generator().manual_seed(0))
    return encoder.eval()


def test_short_sequences_have_full_attention_and_no_blocks() -> None:
    batch = flat_batch([36, 3])
    layout = layout_of(batch)
    assert block_layouts([layout], batch, MODEL) == [layout]
    full = replace(MODEL, attention=Model().attention)
    with torch.no_grad():
        assert torch.equal(encoder_of(MODEL)(batch), encoder_of(full)(batch))


def test_sequences_of_one_length_are_read_without_the_offsets() -> None:
    """On a GPU, reading offsets would make the host wait."""
    batch = flat_batch([40, 40])
    layout = block_layouts([layout_of(batch)], replace(batch, offsets=batch.offsets.to("meta")), MODEL)[0]
    assert isinstance(layout, BlockLayout)
    assert [group.real.shape for group in layout.blocks.groups] == [(2, 10, 4)] and layout.blocks.full is None


def test_layers_attend_to_other_blocks() -> None:
    qkv = qkv_of([90])
    assert not torch.allclose(sparsely(qkv, [90], 0), sparsely(qkv, [90], 1))


def test_a_block_in_the_window_and_global_counts_once() -> None:
    batch = flat_batch([90])
    layout = block_layouts([layout_of(batch)] * 2, batch, MODEL)[1]
    assert isinstance(layout, BlockLayout)
    counts = times_counted(layout.blocks.groups[0])
    assert counts.shape == (2, 92, 92)
    for head in range(2):
        for row in range(23):
            found = counts[head, 4 * row, ::4].tolist()
            assert found == [seen(row, 23, head, 1).count(block) for block in range(23)]
    assert counts[:, 4, 0].tolist() == [1, 1] and counts[:, 84, 88].tolist() == [1, 1]


def test_attention_weights_give_the_layer_s_output() -> None:
    encoder, batch = encoder_of(MODEL), flat_batch([1_022])
    weights, states = attention_weights(encoder, batch), layer_states(encoder, batch)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 1_022))
    layer, layout = encoder.layers[1], encoder.layouts(batch)[1]
    with torch.no_grad():
        v = layer.attention.projected(states[1], layout)[:, 2]
        gathered = torch.einsum("hqk,khd->qhd", weights[1], v)
        torch.testing.assert_close(
            layer.attention.output(gathered.reshape(1_022, 8)), layer.attention(states[1], layout), atol=1e-5, rtol=1e-5
        )


def test_dropout_drops_weights_and_keeps_the_mean() -> None:
    qkv = torch.zeros(400, 3, 2, 4)
    qkv[:, 2] = 1.0
    torch.manual_seed(0)
    dropped = sparsely(qkv, [400], dropout=0.25)
    assert dropped[100:300].std() > 0.05 and dropped.mean().item() == pytest.approx(1.0, abs=0.05)
    torch.manual_seed(0)
    assert torch.equal(sparsely(qkv, [400], dropout=0.25), dropped)


def test_half_precision_has_no_nan() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        assert sparsely((50 * qkv_of([290, 10])).to(dtype), [290, 10]).isfinite().all()


def test_saved_tensors_grow_with_the_tokens_and_not_with_their_square() -> None:
    model = replace(MODEL, maximum_positions=2_048, attention=BlockSparseAttention(block_size=16, random_blocks=3))
    encoder, sizes, largest = encoder_of(model).train(), {}, {}
    for length in (512, 1_024, 2_048):
        saved: list[int] = []

        def pack(tensor: Tensor, saved: list[int] = saved) -> Tensor:
            saved.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            encoder(flat_batch([length]))
        sizes[length], largest[length] = sum(saved), max(saved)
    for sizes_of in (sizes, largest):
        assert sizes_of[1_024] <= 2.1 * sizes_of[512] and sizes_of[2_048] <= 2.1 * sizes_of[1_024]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: BlockSparseAttention(block_size=0), "model.attention.block_size (0) must be at least 1"),
        (lambda: BlockSparseAttention(random_blocks=-1), "model.attention.random_blocks (-1) must be at least 0"),
        (
            lambda: Model(attention=BlockSparseAttention(), maximum_positions=1_000),
            "model.maximum_positions (1000) must be a multiple of model.attention.block_size (64), because sequences "
            "of more than 704 tokens have whole blocks",
        ),
        (
            lambda: Model(family="bigbird", activation="gelu_new"),
            "model.attention (full-attention) must be block-sparse-attention for model.family bigbird: only "
            "model.family bert may have other parts",
        ),
        (
            lambda: Model(family="bigbird", attention=BlockSparseAttention()),
            "model.activation (gelu) must be gelu_new for model.family bigbird",
        ),
    ],
)
def test_settings_are_refused_in_these_words(build, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        build()
    assert str(refused.value) == message


def test_positions_need_no_whole_blocks_where_all_attention_is_full() -> None:
    assert Model(attention=BlockSparseAttention(), maximum_positions=700).maximum_positions == 700


def test_attention_may_return_heads_that_do_not_follow_each_other_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As kernels on a GPU do."""
    qkv = qkv_of(LENGTHS)
    expected = sparsely(qkv, LENGTHS)

    def as_on_a_gpu(*arguments: Any) -> Tensor:
        return explicit_attention(*arguments).transpose(1, 2).contiguous().transpose(1, 2)

    monkeypatch.setattr(block_sparse, "explicit_attention", as_on_a_gpu)
    assert torch.equal(sparsely(qkv, LENGTHS), expected)
