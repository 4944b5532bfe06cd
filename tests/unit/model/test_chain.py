"""The linear-chain CRF equals the enumeration of all tag sequences; forbidden ones never come out."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pipeline.model.chain import Chains, LinearChain
from pipeline.tasks.tag_schemes import scheme_of

SETS = (("O", "B-X", "I-X"), ("O", "B-X", "I-X", "B-Y", "I-Y"), ("O", "B-X", "I-X", "E-X", "S-X"), ("B-X", "I-X"))
MOST = 4


def chain_of(names: tuple[str, ...], seed: int) -> LinearChain:
    """A chain with random scores."""
    scheme = scheme_of(names)
    assert scheme is not None
    chain, generator = LinearChain(scheme.start, scheme.following, scheme.end), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in chain.parameters():
            parameter.copy_(2 * torch.randn(parameter.shape, generator=generator))
    return chain


def paths_of(chain: LinearChain, emissions: Tensor, opens: bool, closes: bool) -> dict[tuple[int, ...], float]:
    """Each allowed tag sequence of one chain (words, K), with its score in float64."""
    start, following, end = (getattr(chain, name).detach().double() for name in ("start", "following", "end"))
    scores = {}
    for path in itertools.product(range(emissions.shape[1]), repeat=len(emissions)):
        steps = list(itertools.pairwise(path))
        if any(chain.following_forbidden[step] for step in steps):
            continue
        if (opens and chain.start_forbidden[path[0]]) or (closes and chain.end_forbidden[path[-1]]):
            continue
        score = sum(emissions.double()[place, tag] for place, tag in enumerate(path))
        score += sum(following[step] for step in steps)
        scores[path] = float(score + opens * start[path[0]] + closes * end[path[-1]])
    return scores


cases = st.tuples(
    st.sampled_from(SETS),
    st.lists(st.tuples(st.integers(1, MOST), st.booleans(), st.booleans()), min_size=1, max_size=3),
    st.integers(0, 2**31),
)


def chains_of(names: tuple[str, ...], ends: list[tuple[int, bool, bool]], seed: int) -> Chains:
    lengths, opens, closes = zip(*ends)
    emissions = 3 * torch.randn(len(ends), MOST, len(names), generator=torch.Generator().manual_seed(seed + 1))
    return Chains(
        emissions=emissions,
        lengths_N=torch.tensor(lengths),
        opens_N=torch.tensor(opens),
        closes_N=torch.tensor(closes),
    )


@given(cases)
def test_partition_losses_and_best_paths_are_those_of_all_paths(case) -> None:
    names, ends, seed = case
    chain, chains = chain_of(names, seed), chains_of(names, ends, seed)
    partitions = chain.log_partition(chains).detach()
    for number, (length, opens, closes) in enumerate(ends):
        paths = paths_of(chain, chains.emissions[number, :length], opens, closes)
        if not paths:
            continue  # no sequence of this length is allowed
        total = float(torch.tensor(list(paths.values()), dtype=torch.float64).logsumexp(0))
        assert float(partitions[number]) == pytest.approx(total, rel=1e-5, abs=1e-4)
        for path in list(paths)[:6]:
            tags = torch.full((len(ends), MOST), len(names) - 1)
            tags[number, :length] = torch.tensor(path)
            loss = float(chain.losses(chains, tags)[number].detach())
            assert loss == pytest.approx(total - paths[path], rel=1e-4, abs=1e-3)
        if opens and closes:
            (found,) = chain.best_paths([chains.emissions[number, :length].numpy()])
            assert paths[tuple(found.tolist())] == pytest.approx(max(paths.values()), abs=1e-4)


@given(cases)
def test_gradients_are_those_of_all_paths_and_finite(case) -> None:
    names, ends, seed = case
    chain, chains = chain_of(names, seed), chains_of(names, ends, seed)
    emissions = chains.emissions.clone().requires_grad_()
    chain.log_partition(replace(chains, emissions=emissions)).sum().backward()
    assert emissions.grad is not None
    for number, (length, opens, closes) in enumerate(ends):
        paths = paths_of(chain, chains.emissions[number, :length], opens, closes)
        if not paths:
            continue
        weights = torch.tensor(list(paths.values()), dtype=torch.float64).softmax(0)
        share = torch.zeros(MOST, len(names), dtype=torch.float64)
        for path, weight in zip(paths, weights, strict=True):
            share[range(length), path] += weight
        torch.testing.assert_close(emissions.grad[number].double(), share, rtol=1e-3, atol=1e-4)
    for parameter in chain.parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all()


@given(
    st.sampled_from(SETS),
    st.lists(st.lists(st.booleans(), min_size=0, max_size=MOST), min_size=1, max_size=3),
    st.integers(0, 2**31),
)
def test_probabilities_of_tags_are_those_of_all_paths(names: tuple[str, ...], seen: list, seed: int) -> None:
    """A word that is not seen has a finite score for O alone."""
    chain, random, sentences = chain_of(names, seed), np.random.default_rng(seed), []
    for words in seen:
        scores = random.normal(0, 3, (len(words), len(names))).astype(np.float32)
        if "O" in names:
            scores[~np.array(words, bool)] = [0.0 if name == "O" else -np.inf for name in names]
        sentences.append(scores)
    for scores, found in zip(sentences, chain.probabilities(sentences), strict=True):
        assert found.shape == scores.shape and found.dtype == np.float32
        paths = paths_of(chain, torch.from_numpy(scores), True, True) if len(scores) else {}
        if not paths:
            continue
        weights = torch.tensor(list(paths.values()), dtype=torch.float64).softmax(0)
        wanted = np.zeros(scores.shape)
        for path, weight in zip(paths, weights.tolist(), strict=True):
            wanted[range(len(path)), path] += weight
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


def test_probabilities_of_a_long_sentence_are_as_exact_as_those_of_a_short_one() -> None:
    """Words do not depend on each other where each tag may follow each tag and no step has a score."""
    chain = LinearChain(np.ones(3, bool), np.ones((3, 3), bool), np.ones(3, bool))
    words = np.tile(np.array([[60.0, 61.0, 59.0]], np.float32), (3_000, 1))
    wanted = torch.tensor([60.0, 61.0, 59.0]).double().softmax(0)
    np.testing.assert_allclose(chain.probabilities([words])[0], wanted.expand(3_000, 3), rtol=0, atol=1e-6)


@given(st.sampled_from(SETS), st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(0, 2**31))
def test_forbidden_steps_never_come_out(names: tuple[str, ...], lengths: list[int], seed: int) -> None:
    """Even where the emissions, and the scores of forbidden steps, are for nothing else."""
    chain, random = chain_of(names, seed), np.random.default_rng(seed)
    with torch.no_grad():
        chain.following += 1e6 * chain.following_forbidden
    sentences = [random.normal(0, 1e5, (length, len(names))).astype(np.float32) for length in lengths]
    found = chain.best_paths(sentences)
    assert [len(path) for path in found] == lengths
    for path in (path for path in found if len(path)):
        assert not chain.start_forbidden[path[0]] and not chain.end_forbidden[path[-1]]
        assert not any(chain.following_forbidden[step] for step in itertools.pairwise(path.tolist()))


def test_two_words_by_hand() -> None:
    """O and B-X at the first word, I-X at the second: O I-X is forbidden, and B-X I-X is better than O O."""
    chain = chain_of(SETS[0], 0)
    with torch.no_grad():
        for parameter in chain.parameters():
            parameter.zero_()
    words = np.array([[2.0, 1.0, 9.0], [0.0, 0.0, 3.0]], np.float32)
    assert chain.best_paths([words])[0].tolist() == [1, 2]
    words[1, 2] = 0.5
    assert chain.best_paths([words])[0].tolist() == [0, 0]


def test_a_sentence_has_the_same_tags_in_any_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    chain, random = chain_of(SETS[1], 3), np.random.default_rng(3)
    sentences = [random.normal(size=(length, 5)).astype(np.float32) for length in (7, 0, 1, 30, 2, 7)]
    alone = [chain.best_paths([sentence])[0].tolist() for sentence in sentences]
    shares = [chain.probabilities([sentence])[0] for sentence in sentences]
    for most in (1, 2, 100):
        monkeypatch.setattr("pipeline.model.chain.CHAINS_AT_ONCE", most)
        assert [path.tolist() for path in chain.best_paths(sentences)] == alone
        for found, wanted in zip(chain.probabilities(sentences), shares, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)


def test_words_after_the_end_change_nothing_and_no_words_have_no_loss() -> None:
    chain, chains = chain_of(SETS[0], 1), chains_of(SETS[0], [(2, True, True), (1, True, False)], 1)
    tags = torch.tensor([[1, 2, 0, 0], [0, 0, 0, 0]])
    losses = chain.losses(chains, tags)
    changed = chains.emissions.clone()
    changed[0, 2:], changed[1, 1:] = 50.0, -50.0
    other = chain.losses(replace(chains, emissions=changed), torch.tensor([[1, 2, 2, 1], [0, 2, 2, 2]]))
    torch.testing.assert_close(other, losses)
    empty = replace(chains, lengths_N=torch.zeros(2, dtype=torch.int64))
    assert chain.losses(empty, tags).tolist() == [0.0, 0.0]


def test_scores_are_float32_under_autocast() -> None:
    chain, chains = chain_of(SETS[1], 2), chains_of(SETS[1], [(4, True, True)], 2)
    exact = chain.losses(chains, torch.tensor([[0, 1, 2, 0]]))
    rounded = replace(chains, emissions=chains.emissions.bfloat16())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(chain.losses(chains, torch.tensor([[0, 1, 2, 0]])), exact)
        assert chain.losses(rounded, torch.tensor([[0, 1, 2, 0]])).dtype == torch.float32
