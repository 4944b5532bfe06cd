"""Sentences of a window to pairs of segments, as token ranges into the window's flat ids.

S sentences, D documents, N examples.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np

from pipeline.config import NextSentence

SPECIALS_IN_A_PAIR = 3  # [CLS] A [SEP] B [SEP]


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Segments A and B of N examples; every array is (N,)."""

    a_start: np.ndarray  # int64, first token of A in the window's flat ids
    a_end: np.ndarray  # int64, one past the last token of A
    b_start: np.ndarray  # int64
    b_end: np.ndarray  # int64
    not_next: np.ndarray  # bool, B is from another parent
    document_a: np.ndarray  # int32, place of A's document in the window
    document_b: np.ndarray  # int32

    def __len__(self) -> int:
        return len(self.a_start)

    def take(self, order: np.ndarray) -> "Pairs":
        """The examples at the places `order` (int), in that order."""
        return Pairs(**{f.name: getattr(self, f.name)[order] for f in fields(self)})


class OtherParents:
    """Draws documents of other parents, each with the same probability.

    Documents in order of their parents, so that the documents of one parent are a range to step over.
    """

    def __init__(self, parents: np.ndarray) -> None:
        order = np.argsort(parents, kind="stable")
        ranked = parents[order]
        self.documents = order.tolist()
        self.first = np.searchsorted(ranked, parents, side="left").tolist()
        self.last = np.searchsorted(ranked, parents, side="right").tolist()

    def draw(self, document: int, uniform: float) -> int:
        """A document of another parent than `document`'s; `uniform` is drawn from [0, 1). There must be one."""
        first, last = self.first[document], self.last[document]
        place = int(uniform * (len(self.documents) - (last - first)))
        return self.documents[place if place < first else place + last - first]


def uniforms(rng: np.random.Generator) -> Iterator[float]:
    """Endless draws from [0, 1): one call of the generator for many, which for single draws is 50 times as fast."""
    while True:
        yield from rng.random(4096).tolist()


def sample_pairs(
    settings: NextSentence,
    sentence_offsets: np.ndarray,
    document_offsets: np.ndarray,
    parents: np.ndarray,
    maximum_length: int,
    rng: np.random.Generator,
) -> Pairs:
    """Segment pairs of all documents of a window, by the law of google-research/bert's create_instances_from_document.

    `sentence_offsets` (S + 1,) are token places in the window's flat ids, `document_offsets` (D + 1,) are sentence places, `parents` (D,)
    are equal for documents of one parent. Sentences without tokens are passed over. With its three specials no pair is longer than
    `maximum_length` tokens. Unlike google's, B of a NotNext pair is never from A's own parent: where the window has one parent
    only, all pairs are IsNext and a chunk of a single sentence gives none. Source: Devlin et al. 2019, A.2.
    """
    sentence_offsets, document_offsets = without_empty_sentences(sentence_offsets, document_offsets)
    filled = np.flatnonzero(np.diff(document_offsets))
    others = OtherParents(parents[filled]) if len(np.unique(parents[filled])) > 1 else None
    places, starts, ends = sentence_offsets.tolist(), document_offsets[filled].tolist(), document_offsets[filled + 1].tolist()
    draws = uniforms(rng)
    maximum = maximum_length - SPECIALS_IN_A_PAIR
    found: list[tuple[int, int, int, int, bool, int, int]] = []
    for document in range(len(filled)):
        target = maximum
        if next(draws) < settings.short_probability:
            target = 2 + int(next(draws) * (maximum - 1))
        found.extend(document_pairs(document, target, places, starts, ends, others, draws))
    rows = np.array(found, np.int64).reshape(-1, 7)
    a_start, a_end, b_start, b_end = truncate(*rows[:, :4].T, maximum=maximum, rng=rng)
    documents = filled.astype(np.int32)
    return Pairs(
        a_start=a_start,
        a_end=a_end,
        b_start=b_start,
        b_end=b_end,
        not_next=rows[:, 4].astype(bool),
        document_a=documents[rows[:, 5]],
        document_b=documents[rows[:, 6]],
    )


def without_empty_sentences(sentence_offsets: np.ndarray, document_offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both offsets as they are when the sentences that have no tokens are left out."""
    filled = np.diff(sentence_offsets) > 0
    kept_before = np.concatenate(([0], np.cumsum(filled)))
    return np.concatenate((sentence_offsets[:-1][filled], sentence_offsets[-1:])), kept_before[document_offsets]


def document_pairs(
    document: int,
    target: int,
    places: list[int],
    starts: list[int],
    ends: list[int],
    others: OtherParents | None,
    draws: Iterator[float],
) -> Iterator[tuple[int, int, int, int, bool, int, int]]:
    """One document's pairs before truncation: (a_start, a_end, b_start, b_end, not_next, document_a, document_b).

    `places` are the token places of the sentences, `starts` and `ends` the first and one past the last sentence of each document.
    `others` is None where the window has one parent only.
    """
    first, end = starts[document], ends[document]
    while first < end:
        chunk_end = min(bisect_left(places, places[first] + target, first + 1, end), end)
        sentences = chunk_end - first
        a_end = first + 1
        if sentences >= 2:
            a_end += int(next(draws) * (sentences - 1))
        if others is not None and (sentences == 1 or next(draws) < 0.5):
            other = others.draw(document, next(draws))
            b_first = starts[other] + int(next(draws) * (ends[other] - starts[other]))
            wanted = target - (places[a_end] - places[first])
            b_end = min(bisect_left(places, places[b_first] + wanted, b_first + 1, ends[other]), ends[other])
            yield places[first], places[a_end], places[b_first], places[b_end], True, document, other
            first = a_end  # the sentences of the chunk that B would have had are used again
            continue
        if sentences >= 2:
            yield places[first], places[a_end], places[a_end], places[chunk_end], False, document, document
        first = chunk_end


def truncate(
    a_start: np.ndarray, a_end: np.ndarray, b_start: np.ndarray, b_end: np.ndarray, *, maximum: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The ranges cut to `maximum` tokens a pair: token by token the longer segment (B, when they are equal) loses its first or its
    last token, by a fair coin.

    Closed form of google's truncate_seq_pair: the lengths left are determined, and of the tokens that a segment loses a
    Binomial(lost, 1/2) number is from its front.
    """
    a, b = a_end - a_start, b_end - b_start
    shorter = np.minimum(a, b)
    kept_a = np.where(shorter > maximum // 2, (maximum + 1) // 2, np.where(a > b, maximum - shorter, a))
    kept_b = np.where(shorter > maximum // 2, maximum // 2, np.where(a > b, b, maximum - shorter))
    fits = a + b <= maximum
    lost_a, lost_b = np.where(fits, 0, a - kept_a), np.where(fits, 0, b - kept_b)
    front_a, front_b = rng.binomial(lost_a, 0.5), rng.binomial(lost_b, 0.5)
    return a_start + front_a, a_end - (lost_a - front_a), b_start + front_b, b_end - (lost_b - front_b)


PAIRINGS = {NextSentence: sample_pairs}
