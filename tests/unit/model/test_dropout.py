import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model.dropout import dropout


def test_zero_changes_nothing_and_draws_nothing():
    x = torch.randn(5)
    state = torch.get_rng_state()
    assert dropout(x, 0.0) is x
    assert torch.equal(torch.get_rng_state(), state)


def test_one_drops_everything():
    assert dropout(torch.ones(9), 1.0).tolist() == [0.0] * 9


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_share_and_scale(probability):
    torch.manual_seed(0)
    out = dropout(torch.ones(400_000), probability)
    dropped = (out == 0).float().mean().item()
    assert dropped == pytest.approx(probability, abs=0.003)
    assert out[out != 0].unique().tolist() == pytest.approx([1 / (1 - probability)], rel=1e-3)


def test_every_one_of_the_four_draws_of_a_number_is_used():
    torch.manual_seed(0)
    kept = (dropout(torch.ones(100_000, 4), 0.3) != 0).float()
    assert kept.mean(0).tolist() == pytest.approx([0.7] * 4, abs=0.01)
    assert torch.corrcoef(kept.T).fill_diagonal_(0).abs().max() < 0.02


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=3),
    st.floats(0.01, 0.99),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
)
def test_any_shape_and_type(shape, probability, dtype):
    x = torch.ones(shape, dtype=dtype)
    out = dropout(x, probability)
    assert out.shape == x.shape and out.dtype == dtype
    assert out.unique().numel() <= 2


def test_the_same_seed_drops_the_same_and_the_next_call_others():
    torch.manual_seed(3)
    first, second = dropout(torch.ones(1000), 0.5), dropout(torch.ones(1000), 0.5)
    torch.manual_seed(3)
    assert torch.equal(dropout(torch.ones(1000), 0.5), first)
    assert not torch.equal(first, second)


def test_gradient_is_the_mask():
    x = torch.ones(100, requires_grad=True)
    out = dropout(x, 0.4)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


# The partitioner merges equal calls; this backend runs it without generating code.
@pytest.fixture(scope="module")
def compiled():
    return torch.compile(
        lambda x: (dropout(x, 0.5), dropout(x, 0.5)), backend="aot_eager_decomp_partition", fullgraph=True
    )


@pytest.mark.second
def test_compiled_code_drops_what_eager_code_drops(compiled):
    x = torch.ones(200, requires_grad=True)
    torch.manual_seed(4)
    first, second = compiled(x)
    torch.manual_seed(4)
    assert torch.equal(first, dropout(x, 0.5))
    assert torch.equal(second, dropout(x, 0.5))


def test_two_draws_of_equal_arguments_stay_two_when_compiled(compiled):
    x = torch.ones(200, requires_grad=True)
    first, second = compiled(x)
    assert not torch.equal(first, second)
    (first.sum() + second.sum()).backward()
    assert torch.equal(x.grad, (first + second).detach())
