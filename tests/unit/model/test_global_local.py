"""Local attention with global tokens on flat batches: equal to the formula with a mask, and linear in length."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pipeline.batch import Batch
from pipeline.config.model import Model
from pipeline.config.model_parts import GlobalLocalAttention, LearnedPositions
from pipeline.errors import ConfigError
from pipeline.model.attention import layout_of
from pipeline.model.encoder import Encoder, initialize
from pipeline.model.global_local import GlobalLayout, GlobalUse, global_attention, local_attention, with_global_tokens
from pipeline.model.states import attention_weights, layer_states
from tests.unit.model.test_attention import flat_batch

pytestmark = pytest.mark.usefixtures("one_thread")

SEPARATOR = 2
SMALL = Model(
    family="longformer",
    layers=2,
    width=16,
    heads=2,
    feed_forward=24,
    maximum_positions=200,
    segments=1,
    hidden_dropout=0.0,
    attention_dropout=0.0,
    positions=LearnedPositions(first=2),
    attention=GlobalLocalAttention(window=8),
)


def with_questions(questions: list[int], lengths: list[int]) -> Batch:
    """Sequences that have a separator after their question and at their end."""
    batch, ids = flat_batch(lengths), []
    for question, length in zip(questions, lengths, strict=True):
        own = torch.arange(length) % 7 + 5
        own[[min(question, length - 1), -1]] = SEPARATOR
        ids.append(own)
    return replace(batch, ids_T=torch.cat(ids))


def laid_out(batch: Batch, use: GlobalUse, reach: int) -> GlobalLayout:
    layout = with_global_tokens(layout_of(batch), batch, use, reach)
    assert isinstance(layout, GlobalLayout)
    return layout


def with_mask(local: Tensor, whole: Tensor, lengths: list[int], counts: list[int], reach: int) -> Tensor:
    """The formula with masks of all tokens on all tokens, sequence by sequence; the first `counts` are global."""
    out = []
    for own, other, count in zip(local.split(lengths), whole.split(lengths), counts, strict=True):
        places = torch.arange(len(own))
        unseen = ((places[:, None] - places).abs() > reach) & (places >= count)
        attended = []
        for qkv, mask in ((own, unseen), (other, torch.zeros_like(unseen))):
            q, k, v = qkv.permute(1, 2, 0, 3)
            scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(mask, -math.inf)
            attended.append((scores.softmax(-1) @ v).transpose(0, 1))
        out.append(torch.cat((attended[1][:count], attended[0][count:])))
    return torch.cat(out)


def ours(local: Tensor, whole: Tensor, layout: GlobalLayout, dropout: float = 0.0) -> Tensor:
    is_global = layout.global_tokens.is_global_T[:, None, None]
    return torch.where(is_global, global_attention(whole, layout, dropout), local_attention(local, layout, dropout))


def test_a_key_in_the_window_that_is_global_counts_once() -> None:
    # All scores are equal, so a token gets the mean of the values that it sees: the first, and one on each side.
    qkv = torch.zeros(7, 3, 1, 1)
    qkv[:, 2, 0, 0] = torch.tensor([1.0, 2.0, 6.0, 10.0, 4.0, 100.0, 300.0])
    layout = laid_out(flat_batch([5, 2]), "first", 1)
    expected = [4.6, 3.0, 4.75, 5.25, 5.0, 200.0, 200.0]
    assert ours(qkv, qkv, layout).flatten().tolist() == pytest.approx(expected)


@given(
    st.lists(st.tuples(st.integers(1, 150), st.integers(0, 40)), min_size=1, max_size=5),
    st.integers(1, 70),
    st.integers(0, 99),
    st.sampled_from(("first", "question")),
)
def test_equals_the_formula_with_masks(rows: list[tuple[int, int]], reach: int, seed: int, use: GlobalUse) -> None:
    lengths, questions = [length for length, _ in rows], [question for _, question in rows]
    counts = [1 if use == "first" else max(1, min(question, length - 1)) for length, question in rows]
    generator = torch.Generator().manual_seed(seed)
    local, whole = (torch.randn(sum(lengths), 3, 2, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    layout = laid_out(with_questions(questions, lengths), use, reach)
    torch.testing.assert_close(ours(local, whole, layout), with_mask(local, whole, lengths, counts, reach))


@pytest.mark.parametrize("length", [3, 4, 5, 64, 100])  # below, at and above a reach of 3, a whole block, part of one
@pytest.mark.parametrize(("use", "counts"), [("first", [1, 1, 1]), ("question", [2, 1, 2])])
def test_gradients_are_those_of_the_masked_formula(length: int, use: GlobalUse, counts: list[int]) -> None:
    lengths = [length, 2, length]
    layout, total = laid_out(with_questions(counts, lengths), use, 3), sum(lengths)
    drawn = torch.randn(3, total, 3, 2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found, wanted = ([part.clone().requires_grad_() for part in drawn[:2]] for _ in range(2))
    (ours(*found, layout) * drawn[2, :, 0]).sum().backward()
    (with_mask(*wanted, lengths, counts, 3) * drawn[2, :, 0]).sum().backward()
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_the_question_ends_before_the_first_separator() -> None:
    batch = with_questions([3, 1, 4], [9, 6, 5])
    chosen = laid_out(batch, "question", 2).global_tokens
    assert chosen is not None and chosen.most == 4
    assert [part.tolist().index(False) for part in chosen.is_global_T.split([9, 6, 5])] == [3, 1, 4]
    assert chosen.exists.sum(1).tolist() == [3, 1, 4]
    plain = layout_of(batch)
    assert with_global_tokens(plain, batch, "none", 2) is plain


def test_memory_grows_with_the_tokens_and_not_with_their_square() -> None:
    sizes = {}
    for length in (1_000, 4_000):
        chosen = laid_out(flat_batch([length]), "first", 64).global_tokens
        assert chosen.blocks is not None
        sizes[length] = chosen.blocks.mask.numel()
    assert sizes == {1_000: 16 * 64 * 193, 4_000: 63 * 64 * 193}


def test_dropout_drops_weights_and_keeps_the_mean() -> None:
    qkv = torch.zeros(400, 3, 1, 1)
    qkv[:, 2] = 1.0
    torch.manual_seed(0)
    layout = laid_out(flat_batch([400]), "first", 8)
    for dropped in (local_attention(qkv, layout, 0.25)[1:], ours(qkv, qkv, layout, 0.25)):
        assert dropped.std() > 0.05 and dropped.mean().item() == pytest.approx(1.0, abs=0.05)
    assert not torch.equal(global_attention(qkv, layout, 0.25)[0], global_attention(qkv, layout, 0.25)[0])


def test_half_precision_has_no_nan() -> None:
    layout = laid_out(with_questions([5, 3], [290, 10]), "question", 4)
    for dtype in (torch.bfloat16, torch.float16):
        qkv = (50 * torch.randn(300, 3, 2, 8, generator=torch.Generator().manual_seed(0))).to(dtype)
        assert ours(qkv, qkv, layout).isfinite().all()


def made(use: GlobalUse) -> Encoder:
    encoder = Encoder(SMALL, 31)
    initialize(encoder, 0.3, torch.Generator().manual_seed(0))
    encoder.choose_global_tokens(use)
    return encoder.eval()


def test_projections_of_global_tokens_are_trained_only_if_there_are_such_tokens() -> None:
    for use, trained in (("none", False), ("first", True), ("question", True)):
        encoder = made(use)
        encoder(with_questions([4, 3], [40, 9])).square().sum().backward()
        for name, parameter in encoder.named_parameters():
            assert parameter.requires_grad is (trained or ".global_" not in name)
            assert (parameter.grad is not None) is parameter.requires_grad


def test_unused_projections_become_copies_of_the_others() -> None:
    for use, copied in (("none", True), ("first", False)):
        encoder = made(use)
        encoder.copy_to_unused()
        for layer in encoder.layers:
            found = [part.weight for part in layer.attention.global_parts]
            assert torch.equal(torch.cat(found), layer.attention.qkv.weight) is copied


@pytest.mark.parametrize("use", ["none", "first", "question"])
def test_weights_of_inspection_give_the_encoder_s_states(use: GlobalUse) -> None:
    encoder, batch = made(use), with_questions([3], [30])
    weights = attention_weights(encoder, batch)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 30))
    count = {"none": 0, "first": 1, "question": 3}[use]
    seen = weights[0].amin(0) > 0
    assert seen[:count].all() and seen[:, :count].all()
    distances = (torch.arange(30)[:, None] - torch.arange(30)).abs()
    assert torch.equal(seen[count:, count:], distances[count:, count:] <= 4)
    with torch.no_grad():
        torch.testing.assert_close(layer_states(encoder, batch)[-1], encoder(batch))


def test_recomputed_layers_give_the_same_gradients() -> None:
    encoder, batch, gradients = made("question").train(), with_questions([4, 2, 3], [33, 7, 12]), []
    for encoder.recompute in (False, True):
        encoder.zero_grad()
        encoder(batch).square().sum().backward()
        gradients.append([parameter.grad for parameter in encoder.parameters()])
    torch.testing.assert_close(gradients[1], gradients[0])


def test_settings_are_refused_in_these_words() -> None:
    half = "half of it is on each side of a token"
    with pytest.raises(ConfigError, match=rf"^model.attention.window \(7\) must be even: {half}$"):
        GlobalLocalAttention(window=7)
    needs = r"model.attention \(global-local-attention\) needs model.family longformer, but model.family is bert"
    with pytest.raises(ConfigError, match=f"^{needs}$"):
        Model(attention=GlobalLocalAttention())
