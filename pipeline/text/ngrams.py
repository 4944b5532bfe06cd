"""Find texts in other texts by exact runs of words, normalised as for near-duplicates (`sketches.normalized`).

A text of 13 words or more is found by each of its runs of 13 words, a text of 5 to 12 words as a whole. A shorter text
is found nowhere: its words come together by chance.

Hashes of words sieve the positions of a text; what passes the sieve is compared byte by byte.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from pipeline.text.sketches import BASE, INVERSE, hash_spans, mix_bits, normalized, powers, word_spans

RUN_WORDS = 13
"""Words of a run, as in the search for test sets by Brown et al. (2020, appendix C)."""
LEAST_WORDS = 5
"""Minimum words of a text that can be told from chance."""
PART_CHARACTERS = 1_000_000
"""Characters that are searched together: an array of as many numbers has 8 MB."""
WHITE_SPACE = re.compile(r"[^\S \n]")
"""White space that `sketches.word_spans` does not know, such as a tab or a no-break space."""
SIEVE_BITS = 4
"""The sieve has 2^4 entries or more per distinct run, so at most a sixteenth of other positions passes it."""


@dataclass(frozen=True, kw_only=True)
class WordSpans:
    """The W words of N texts."""

    data: np.ndarray
    """uint8: the normalised texts, one after the other."""
    starts: np.ndarray
    """int64 (W,): offset in `data` of each word's first byte."""
    stops: np.ndarray
    """int64 (W,): offset in `data` after each word's last byte."""
    offsets: np.ndarray
    """int64 (N + 1,): offsets of the texts, counted in words."""

    @classmethod
    def of(cls, texts: Iterable[str]) -> "WordSpans":
        """Normalise texts and find their words."""
        parts = [normalized(WHITE_SPACE.sub(" ", f"{text}\n")) for text in texts]
        return cls.of_bytes(np.frombuffer(b"".join(parts), np.uint8), np.cumsum([0, *map(len, parts)]))

    @classmethod
    def of_bytes(cls, data: np.ndarray, offsets: np.ndarray) -> "WordSpans":
        """Find the words of N normalised texts, each of which begins or ends with white space.

        `offsets`, int64 (N + 1,), are those of the texts in `data`.
        """
        starts, stops = word_spans(data) if len(data) else (np.zeros(0, np.int64),) * 2
        return cls(data=data, starts=starts, stops=stops, offsets=np.searchsorted(starts, offsets))

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # without cached properties

    @cached_property
    def lengths(self) -> np.ndarray:
        """Words of each text, int64 (N,)."""
        return np.diff(self.offsets)

    @cached_property
    def texts(self) -> np.ndarray:
        """Number of each word's text, int64 (W,)."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @cached_property
    def _sums(self) -> tuple[np.ndarray, np.ndarray]:
        """Sums of the words' hashes times powers, uint64 (W + 1,), and the inverse powers, uint64 (W + 1,)."""
        sums = np.zeros(len(self.starts) + 1, np.uint64)
        hashes = hash_spans(self.data, self.starts, self.stops)
        np.cumsum(hashes * powers(BASE, len(hashes)), out=sums[1:])
        return sums, powers(INVERSE, len(sums))

    def run_hashes(self, first: np.ndarray, words: int) -> np.ndarray:
        """Return the hash of the run of `words` words from each word in `first` on, uint64 (len(first),)."""
        sums, inverse = self._sums
        return mix_bits((sums[first + words] - sums[first]) * inverse[first])

    def run_starts(self, words: int) -> np.ndarray:
        """Return the words from which on a text has at least `words` words, int64, ascending."""
        left = np.repeat(self.offsets[1:], self.lengths) - np.arange(len(self.starts))
        return np.flatnonzero(left >= words)


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Runs of `words` words of texts, sorted by hash."""

    words: int
    hashes: np.ndarray
    """uint64: distinct hashes, ascending."""
    offsets: np.ndarray
    """int64: offsets in `first` of the runs of each hash."""
    first: np.ndarray
    """int64: the first word of each run."""


@dataclass(frozen=True, kw_only=True)
class CommonRuns:
    """Runs of words that occur both in searched texts and in the wanted ones, int64 (F,) each."""

    at: np.ndarray
    """First word of the run, among the searched words."""
    first: np.ndarray
    """First word of the run, among the wanted words."""
    words: np.ndarray
    """Number of words of the run."""


class TextFinder:
    """Texts to find in others. Those with fewer than `least` words are not looked for."""

    def __init__(self, wanted: WordSpans, least: int = LEAST_WORDS) -> None:
        self.wanted, self.least = wanted, least
        lengths = wanted.lengths
        sizes = np.minimum(lengths, RUN_WORDS)
        self.runs = [
            _runs(wanted, np.flatnonzero(sizes[wanted.texts] == words), words)
            for words in np.unique(sizes[sizes >= self.least]).tolist()
        ]
        firsts = np.concatenate([np.zeros(0, np.int64), *(runs.first for runs in self.runs)])
        heads = wanted.run_hashes(firsts, self.least)
        self.shift = np.uint64(64 - max(8, (len(firsts) << SIEVE_BITS).bit_length()))
        self.sieve = np.zeros(1 << (64 - int(self.shift)), bool)
        self.sieve[(heads >> self.shift).astype(np.int64)] = True

    def find(self, searched: WordSpans) -> CommonRuns:
        """Return all common runs. A run of a long text is a run of 13 words, so a longer one is found several times."""
        starts = searched.run_starts(self.least)
        passed = starts[self.sieve[(searched.run_hashes(starts, self.least) >> self.shift).astype(np.int64)]]
        ends = searched.offsets[1:][searched.texts[passed]]
        none = np.zeros(0, np.int64)
        found = [(none, none, none)]
        for runs in self.runs:
            at = passed[passed + runs.words <= ends]
            hashes = searched.run_hashes(at, runs.words)
            index = np.minimum(np.searchsorted(runs.hashes, hashes), len(runs.hashes) - 1)
            known = runs.hashes[index] == hashes
            at, index = at[known], index[known]
            counts = np.diff(runs.offsets)[index]
            at, first = np.repeat(at, counts), runs.first[ragged(runs.offsets[index], counts)]
            same = _are_equal(searched, at, self.wanted, first, runs.words)
            found.append((at[same], first[same], np.full(same.sum(), runs.words)))
        at, first, words = (np.concatenate(columns) for columns in zip(*found))
        return CommonRuns(at=at, first=first, words=words)


def parts_of(texts: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield (index of its first text, texts) of parts of about a million characters."""
    start = characters = 0
    for stop, text in enumerate(texts, 1):
        characters += len(text)
        if characters >= PART_CHARACTERS or stop == len(texts):
            yield start, texts[start:stop]
            start, characters = stop, 0


def ragged(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the numbers from starts[i] to starts[i] + counts[i] - 1, for each i in turn, int64."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + counts, counts)


def _runs(wanted: WordSpans, candidates: np.ndarray, words: int) -> Runs:
    """Return the runs of `words` words that begin at one of the words `candidates` and end in the same text."""
    first = candidates[candidates + words <= wanted.offsets[1:][wanted.texts[candidates]]]
    hashes = wanted.run_hashes(first, words)
    order = np.argsort(hashes, kind="stable")
    distinct, begins = np.unique(hashes[order], return_index=True)
    return Runs(words=words, hashes=distinct, offsets=np.append(begins, len(first)), first=first[order])


def _are_equal(one: WordSpans, at: np.ndarray, other: WordSpans, first: np.ndarray, words: int) -> np.ndarray:
    """Return whether the runs of `words` words from each `at` and each `first` on have the same words, bool."""
    left, right = (ragged(start, np.full(len(start), words)) for start in (at, first))
    sizes = one.stops[left] - one.starts[left]
    same = sizes == other.stops[right] - other.starts[right]
    shown = np.flatnonzero(same)
    bytes_equal = (
        one.data[ragged(one.starts[left[shown]], sizes[shown])]
        == other.data[ragged(other.starts[right[shown]], sizes[shown])]
    )
    same[shown] = np.logical_and.reduceat(np.append(bytes_equal, True), np.cumsum(sizes[shown]) - sizes[shown])
    return same.reshape(-1, words).all(axis=1)
