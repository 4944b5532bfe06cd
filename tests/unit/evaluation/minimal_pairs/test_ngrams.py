"""Baselines from counts, against the formula written out with dictionaries."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from pipeline.evaluation.minimal_pairs import ngrams
from pipeline.evaluation.minimal_pairs.ngrams import NGRAM, ORDER, UNIGRAM, ngram_scores

SIZE = 6
BEGIN, END = SIZE, SIZE + 1


def flat(sentences: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    lengths = [len(sentence) for sentence in sentences]
    return np.array([i for sentence in sentences for i in sentence], np.int32), np.append(0, np.cumsum(lengths))


def drawn(seed: int, count: int) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [random.integers(0, SIZE, random.integers(1, 9)).tolist() for _ in range(count)]


def witten_bell(text: list[list[int]], sentence: list[int]) -> float:
    """The 5-gram model's log-probability of a sentence, from dictionaries of every n-gram of the text."""
    followers: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for line in text:
        tokens = [BEGIN, *line, END]
        for index in range(1, len(tokens)):
            for k in range(min(index, ORDER - 1) + 1):
                followers[tuple(tokens[index - k : index])][tokens[index]] += 1

    def probability(context: tuple[int, ...], word: int) -> float:
        after = followers[context]
        if not context:
            return (after[word] + 1) / (after.total() + SIZE + 1)
        shorter = probability(context[1:], word)
        if not after:
            return shorter
        return (after[word] + len(after) * shorter) / (after.total() + len(after))

    tokens = [BEGIN, *sentence, END]
    return sum(
        math.log(probability(tuple(tokens[max(0, index - ORDER + 1) : index]), tokens[index]))
        for index in range(1, len(tokens))
    )


@pytest.mark.parametrize("chunk", [1, 50, 1_000_000])
def test_ngrams_are_those_of_witten_and_bell(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngrams, "CHUNK_TOKENS", chunk)
    text, asked = drawn(1, 120), [*drawn(2, 30), [0], [5, 5, 5, 5, 5, 5, 5]]
    parts = [flat(text[start : start + 7]) for start in range(0, len(text), 7)]
    scores = ngram_scores(*flat(asked), SIZE, parts)[NGRAM]
    assert scores == pytest.approx([witten_bell(text, sentence) for sentence in asked], rel=1e-9)


def test_unigrams_add_one_to_each_count() -> None:
    scores = ngram_scores(*flat([[0, 1], [1, 0], [2]]), SIZE, [flat([[0, 0], [1]])])[UNIGRAM]
    # counts 2, 1, 0 of 3 tokens, and 6 entries
    assert scores == pytest.approx([math.log(3 / 9) + math.log(2 / 9)] * 2 + [math.log(1 / 9)])


def test_without_text_every_entry_is_equally_likely() -> None:
    scores = ngram_scores(*flat([[0, 1]]), SIZE, [])
    assert scores[UNIGRAM] == pytest.approx([2 * math.log(1 / 6)])
    assert scores[NGRAM] == pytest.approx([3 * math.log(1 / 7)])
