from collections import Counter

import numpy as np
import pytest

from pipeline.text import cooccurrence
from pipeline.text.cooccurrence import REACH, cooccurrences, embeddings

SIZE = 40


@pytest.fixture
def documents() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.integers(5, SIZE - 5, length) for length in (0, 1, 3, 60, 200, 7)]


@pytest.mark.parametrize("batch", [1, 64, 10_000])
def test_counts_are_those_of_each_document_alone(
    documents: list[np.ndarray], batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cooccurrence, "BATCH_TOKENS", batch)
    wanted: Counter[tuple[int, int]] = Counter()
    for ids in documents:
        for place, one in enumerate(ids):
            for other in range(max(0, place - REACH), min(len(ids), place + REACH + 1)):
                if other != place:
                    wanted[int(one), int(ids[other])] += 1 / abs(place - other)
    counted = cooccurrences(iter(documents), SIZE).toarray()
    assert {(one, other): counted[one, other] for one, other in zip(*counted.nonzero())} == pytest.approx(wanted)


def test_entries_of_the_same_surroundings_are_neighbours() -> None:
    """Two entries that stand among the same others, never together, are nearest to each other."""
    random = np.random.default_rng(1)
    surroundings = [np.arange(10, 15), np.arange(15, 20), np.arange(20, 25)]
    documents = [
        np.insert(random.permutation(surroundings[kind]), 2, 2 * kind + random.integers(2))
        for kind in random.integers(0, 3, 600)
    ]
    found = embeddings(cooccurrences(documents, 30), 8)
    alike = found @ found.T - 1e9 * np.eye(30)
    assert [alike[entry, :6].argmax() for entry in range(6)] == [1, 0, 3, 2, 5, 4]


def test_embeddings_are_the_factors_of_positive_information(documents: list[np.ndarray]) -> None:
    """Their products, which no turning changes, are those of the same by hand, with all factors."""
    found = embeddings(counted := cooccurrences(documents, SIZE), SIZE)
    counts = counted.toarray().astype(np.float64)
    totals = counts.sum(1)
    shares = totals**0.75 / (totals**0.75).sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.nan_to_num(np.maximum(np.log(counts / np.outer(totals, shares)), 0))
    factors, strengths, _ = np.linalg.svd(information)
    wanted = (factors * np.sqrt(strengths))[totals > 0]
    wanted -= wanted.mean(0)
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    assert found[totals > 0] @ found[totals > 0].T == pytest.approx(wanted @ wanted.T, abs=1e-4)
    assert np.array_equal(embeddings(counted, SIZE), found)


@pytest.mark.parametrize("width", [4, 16, 64])
def test_embeddings_have_length_one(documents: list[np.ndarray], width: int) -> None:
    found = embeddings(cooccurrences(documents, SIZE), width)
    seen = np.unique(np.concatenate(documents))
    assert found.shape == (SIZE, width) and found.dtype == np.float32
    assert np.linalg.norm(found[seen], axis=1) == pytest.approx(np.ones(len(seen)), rel=1e-5)
    assert not np.delete(found, seen, axis=0).any()
    assert (found[seen].mean(0) ** 2).sum() < 1 / 4  # they stand around zero
    assert found.any(0).all()  # and turned: no direction is left out where there are fewer factors


def test_text_without_pairs_gives_none() -> None:
    assert not embeddings(cooccurrences([np.array([3])], SIZE), 8).any()
    assert not embeddings(cooccurrences([], SIZE), 8).any()
