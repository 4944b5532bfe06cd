"""Samples of vocabulary entries: by hand, by their distribution, and by seed."""

import math

import pytest
import torch
from scipy.stats import chisquare

from pipeline.config.model import Model
from pipeline.model import vocabulary_loss as losses
from pipeline.model.heads import MaskedTokenHead
from pipeline.model.sampling import BLOCK, drawn, entries_at

SETTINGS = Model(layers=1, width=16, heads=2, feed_forward=32)


def test_entries_by_hand() -> None:
    # Cumulative shares 0.25, 0.25, 0.75, 1: the second entry is never drawn.
    shares = torch.tensor([[0.25, 0.0, 0.5, 0.25]])
    numbers = torch.tensor([0.0, 0.2499, 0.25, 0.7499, 0.75, 1 - 2**-53], dtype=torch.float64)
    assert entries_at(shares.expand(6, 4), numbers).tolist() == [0, 0, 2, 2, 3, 3]


@pytest.mark.parametrize("entries", [BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 1_000])
def test_blocks_change_nothing(entries: int) -> None:
    # Whole numbers, whose sums no rounding changes.
    generator = torch.Generator().manual_seed(entries)
    weights = torch.randint(0, 3, (50, entries), generator=generator).float()
    weights[:, -1] = 0
    numbers = torch.rand(50, dtype=torch.float64, generator=generator)
    passed = weights.double().cumsum(1)
    expected = (passed <= numbers[:, None] * passed[:, -1:]).sum(1)
    assert torch.equal(entries_at(weights, numbers), expected)


def test_extreme_numbers_stay_among_entries_with_a_share() -> None:
    for entries in (5, BLOCK, 2 * BLOCK, 2 * BLOCK + 5):
        shares = torch.zeros(2, entries)
        shares[:, entries // 2] = 1 / 3
        assert entries_at(shares, torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)).tolist() == [entries // 2] * 2


def test_samples_follow_the_softmax() -> None:
    logits = torch.tensor([2.0, 0.0, -1.0, 1.0, 0.5, -3.0, 0.0])
    torch.manual_seed(0)
    counts = entries_at(logits.softmax(0).expand(50_000, 7), drawn(torch.empty(50_000))).bincount(minlength=7)
    assert chisquare(counts.numpy(), 50_000 * logits.double().softmax(0).numpy()).pvalue > 0.01


def test_a_large_vocabulary_is_sampled_in_all_its_parts() -> None:
    # Even shares of 30,522 entries: the mean is (V - 1) / 2 with deviation V / sqrt(12 n).
    n, V = 2_000, 30_522
    torch.manual_seed(1)
    found = entries_at(torch.full((1, V), 1 / V).expand(n, V), drawn(torch.empty(n))).double()
    assert abs(found.mean().item() - (V - 1) / 2) < 4 * V / math.sqrt(12 * n)
    assert found.max() > 0.99 * V and found.min() < 0.01 * V


def test_numbers_depend_on_the_seed_alone() -> None:
    torch.manual_seed(3)
    first, second = drawn(torch.empty(100)), drawn(torch.empty(100))
    torch.manual_seed(3)
    assert torch.equal(drawn(torch.empty(100)), first) and not torch.equal(first, second)
    assert first.dtype == torch.float64 and first.min() >= 0 and first.max() < 1


def head_inputs(V: int = 500, M: int = 90) -> tuple[MaskedTokenHead, torch.Tensor, torch.Tensor, torch.Tensor]:
    """A head, states (M, 16), word embeddings (V, 16) and labels (M,)."""
    generator = torch.Generator().manual_seed(0)
    head = MaskedTokenHead(SETTINGS, V)
    torch.nn.init.normal_(head.bias, generator=generator)
    states, words = torch.randn(M, 16, generator=generator), torch.randn(V, 16, generator=generator)
    return head, states, words, torch.randint(0, V, (M,), generator=generator)


def test_parts_of_rows_do_not_change_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    head, states, words, labels = head_inputs()
    torch.manual_seed(0)
    loss, sampled = head.loss_and_samples(states, words, labels)
    monkeypatch.setattr(losses, "LOGIT_BYTES", 7 * 512 * 4)
    monkeypatch.setattr(losses, "ROWS_AT_ONCE", 3)
    torch.manual_seed(0)
    again, same = head.loss_and_samples(states, words, labels)
    assert torch.equal(sampled, same) and len(sampled) == 90
    torch.testing.assert_close(loss, again)


def test_samples_of_a_loss_are_those_of_its_logits() -> None:
    head, states, words, labels = head_inputs()
    torch.manual_seed(0)
    loss, sampled = head.loss_and_samples(states, words, labels)
    torch.manual_seed(0)
    assert torch.equal(entries_at(head(states, words).softmax(1), drawn(labels)), sampled)
    assert torch.equal(head.loss(states, words, labels), loss) and not sampled.requires_grad


def test_a_loss_without_samples_draws_nothing() -> None:
    head, states, words, labels = head_inputs()
    state = torch.get_rng_state()
    head.loss(states, words, labels).backward()
    assert torch.equal(torch.get_rng_state(), state)


def test_compiled_code_samples_what_eager_code_samples() -> None:
    head, states, words, labels = head_inputs()
    compiled = torch.compile(head.loss_and_samples, backend="aot_eager_decomp_partition", fullgraph=True)
    torch.manual_seed(0)
    loss, sampled = head.loss_and_samples(states, words, labels)
    torch.manual_seed(0)
    found, same = compiled(states, words, labels)
    assert torch.equal(sampled, same)
    torch.testing.assert_close(loss, found)
