import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline.batch import Batch
from pipeline.config.model import Model
from pipeline.errors import DataError
from pipeline.model.encoder import Encoder, initialize

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS = Model(layers=2, width=16, heads=2, feed_forward=32, maximum_positions=12)
VOCABULARY_SIZE = 31

PUBLISHED_COUNTS = {  # layers, width, heads -> encoder with pooler at 30,522 entries
    (2, 128, 2): 4_385_920,
    (4, 256, 4): 11_170_560,
    (4, 512, 8): 28_763_648,
    (8, 512, 8): 41_373_184,
    (12, 768, 12): 109_482_240,
    (24, 1024, 16): 335_141_888,
}


def sequences(lengths: list[int], seed: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randint(0, VOCABULARY_SIZE, (n,), generator=generator), (torch.arange(n) > n // 2).long())
        for n in lengths
    ]


def flat_batch(parts: list[tuple[torch.Tensor, torch.Tensor]]) -> Batch:
    lengths = [len(ids) for ids, _ in parts]
    return Batch(
        ids_T=torch.cat([ids for ids, _ in parts]),
        segments_T=torch.cat([segments for _, segments in parts]),
        positions_T=torch.cat([torch.arange(n) for n in lengths]),
        offsets=torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32),
        maximum_length=max(lengths),
    )


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    module = Encoder(SETTINGS, VOCABULARY_SIZE)
    initialize(module, 0.3, torch.Generator().manual_seed(0))
    return module.eval()


def outputs(encoder: Encoder, parts: list[tuple[torch.Tensor, torch.Tensor]]) -> list[torch.Tensor]:
    """Hidden states of each sequence, with its pooled state as one more row."""
    batch = flat_batch(parts)
    with torch.no_grad():
        hidden = encoder(batch)
        pooled = encoder.pool(hidden, batch)
    return [
        torch.cat([part, row[None]])
        for part, row in zip(hidden.split([len(ids) for ids, _ in parts]), pooled, strict=True)
    ]


@given(st.lists(st.integers(1, 12), min_size=1, max_size=5), st.integers(0, 99))
def test_a_sequence_does_not_see_its_neighbours(encoder, lengths, seed):
    parts = sequences(lengths, seed)
    for part, together in zip(parts, outputs(encoder, parts), strict=True):
        torch.testing.assert_close(together, outputs(encoder, [part])[0], atol=1e-5, rtol=1e-5)


@given(st.permutations(range(5)), st.integers(0, 99))
def test_permuted_sequences_give_permuted_outputs(encoder, order, seed):
    parts = sequences([3, 12, 1, 7, 12], seed)
    straight, permuted = outputs(encoder, parts), outputs(encoder, [parts[i] for i in order])
    for place, i in enumerate(order):
        torch.testing.assert_close(permuted[place], straight[i], atol=1e-5, rtol=1e-5)


def test_pooled_is_the_tanh_layer_on_the_first_token(encoder):
    batch = flat_batch(sequences([4, 2]))
    hidden = torch.randn(6, 16, generator=torch.Generator().manual_seed(1))
    expected = torch.tanh(hidden[[0, 4]] @ encoder.pooler.weight.T + encoder.pooler.bias)
    torch.testing.assert_close(encoder.pool(hidden, batch), expected)


@pytest.mark.parametrize(("size", "count"), PUBLISHED_COUNTS.items())
def test_parameter_counts_are_the_published_ones(size, count):
    layers, width, heads = size
    with torch.device("meta"):
        module = Encoder(Model(layers=layers, width=width, heads=heads, feed_forward=4 * width), 30_522)
    assert sum(parameter.numel() for parameter in module.parameters()) == count


def test_too_long_a_sequence_is_refused_in_words(encoder):
    with pytest.raises(DataError) as error:
        encoder(flat_batch(sequences([3, 13])))
    assert (
        str(error.value)
        == "a sequence of 13 tokens is longer than model.maximum_positions (12): cut sequences at that length"
    )


def test_weights_start_as_published():
    module = Encoder(dataclasses.replace(SETTINGS, width=128, feed_forward=512), 2_000)
    initialize(module, 0.02, torch.Generator().manual_seed(0))
    for name, parameter in module.named_parameters():
        values = parameter.detach()
        if name.endswith("bias"):
            assert (values == 0).all(), name
        elif "norm" in name:
            assert (values == 1).all(), name
        else:
            assert values.abs().max() <= 0.04, name
            # A normal cut at two deviations keeps 0.8796 of its deviation.
            assert values.std().item() == pytest.approx(0.8796 * 0.02, rel=0.08), name
            assert values.mean().item() == pytest.approx(0.0, abs=2e-3), name


def test_the_same_generator_state_gives_the_same_weights():
    modules = [Encoder(SETTINGS, VOCABULARY_SIZE) for _ in range(3)]
    for module, seed in zip(modules, (1, 1, 2), strict=True):
        initialize(module, 0.02, torch.Generator().manual_seed(seed))
    first, again, other = (torch.cat([p.flatten() for p in module.parameters()]) for module in modules)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_dropout_is_seeded_and_off_in_evaluation(encoder):
    batch = flat_batch(sequences([5, 9]))
    with torch.no_grad():
        quiet = encoder(batch)
        assert torch.equal(encoder(batch), quiet)
        encoder.train()
        try:
            torch.manual_seed(1)
            first, second = encoder(batch), encoder(batch)
            torch.manual_seed(1)
            assert torch.equal(encoder(batch), first)
            assert not torch.equal(second, first)
            assert not torch.equal(quiet, first)
        finally:
            encoder.eval()


def test_autocast_leaves_the_sums_in_float32(encoder):
    batch = flat_batch(sequences([5, 9]))
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = encoder(batch)
    assert hidden.dtype == torch.float32
    torch.testing.assert_close(hidden, encoder(batch), atol=0.1, rtol=0.1)
