"""Baselines counted from the training text: unigrams, and a 5-gram model that is counted only where it is asked.

The 5-gram model interpolates every order with the shorter one (Witten and Bell 1991): a context h that c(h) tokens
follow, T(h) of them distinct, gives p(w|h) = (c(hw) + T(h) p(w|h')) / (c(h) + T(h)). Only n-grams and contexts of the
given sentences are counted, by 64-bit hashes; the distinct continuations of their contexts are all that grows with the
text.
"""

from collections.abc import Iterable, Sequence

import numpy as np

ORDER = 5
CHUNK_TOKENS = 2_000_000
"""Tokens that are counted together."""
UNIGRAM, NGRAM = "unigram", f"{ORDER}-gram"


class NgramCounts:
    """Counts of the n-grams that occur in some sentences, and of their contexts."""

    def __init__(self, ids: np.ndarray, offsets: np.ndarray, vocabulary_size: int) -> None:
        """Take the sentences (S) to score: entries end to end (U,) and offsets (S + 1,), int64.

        Two further entries stand for the beginning and the end of a sentence.
        """
        self.begin, self.end = vocabulary_size, vocabulary_size + 1
        self.size = vocabulary_size + 1  # entries that are predicted: all, and the end
        self.ids, self.offsets = ids, offsets
        self.tokens, self.index = self._bounded(ids, offsets)
        self.unigrams = np.zeros(vocabulary_size + 2, np.int64)
        self.hashes = _hashes(self.tokens)
        self.grams = [np.unique(self.hashes[k][self.index >= max(k, 1)]) for k in range(ORDER)]
        self.gram_counts = [np.zeros(len(grams), np.int64) for grams in self.grams]
        # A context of order k ends before some token: k tokens, the last of them at index k - 1 at least.
        self.contexts = [
            np.unique(self.hashes[k - 1][:-1][self.index[1:] >= k]) if k else np.zeros(0, np.uint64)
            for k in range(ORDER)
        ]
        self.context_counts = [np.zeros(len(contexts), np.int64) for contexts in self.contexts]
        self.distinct = [np.zeros(len(contexts), np.int64) for contexts in self.contexts]
        self.seen = [np.zeros(0, np.uint64) for _ in range(ORDER)]

    def _bounded(self, ids: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens with a beginning and an end around each sentence, and each one's index in its sentence."""
        tokens = np.insert(
            ids.astype(np.int64), np.repeat(offsets, 2)[1:-1], np.tile([self.begin, self.end], len(offsets) - 1)
        )
        lengths = np.diff(offsets) + 2
        starts = np.append(0, np.cumsum(lengths)[:-1])
        return tokens, np.arange(len(tokens)) - np.repeat(starts, lengths)

    def add(self, ids: np.ndarray, offsets: np.ndarray) -> None:
        """Count sentences of the training text."""
        tokens, index = self._bounded(ids, offsets)
        self.unigrams += np.bincount(tokens, minlength=len(self.unigrams))
        hashes = _hashes(tokens)
        for k in range(1, ORDER):
            whole = np.flatnonzero(index >= k)
            context, known = _lookup(self.contexts[k], hashes[k - 1][whole - 1])
            grams, context = hashes[k][whole][known], context[known]
            self.context_counts[k] += np.bincount(context, minlength=len(self.contexts[k]))
            asked, is_asked = _lookup(self.grams[k], grams)
            self.gram_counts[k] += np.bincount(asked[is_asked], minlength=len(self.grams[k]))
            distinct, first = np.unique(grams, return_index=True)
            _, old = _lookup(self.seen[k], distinct)
            self.distinct[k] += np.bincount(context[first][~old], minlength=len(self.contexts[k]))
            self.seen[k] = np.sort(np.concatenate((self.seen[k], distinct[~old])), kind="stable")

    def scores(self) -> dict[str, np.ndarray]:
        """Return baseline -> log-probability of each sentence in nats, float64 (S,).

        Unigrams are of the pieces alone, with one added to each count; n-grams predict the end too.
        """
        pieces = np.log(self.unigrams[: self.begin] + 1.0)
        pieces -= np.log(self.unigrams[: self.begin].sum() + self.begin)
        sentence = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        unigram = np.bincount(sentence, pieces[self.ids], minlength=len(self.offsets) - 1)
        counted = self.unigrams.copy()
        counted[self.begin] = 0
        share = (counted + 1.0) / (counted.sum() + self.size)
        asked = np.flatnonzero(self.index)
        probability = share[self.tokens[asked]]
        for k in range(1, ORDER):
            long = self.index[asked] >= k
            tokens = asked[long]
            context, _ = _lookup(self.contexts[k], self.hashes[k - 1][tokens - 1])
            gram, _ = _lookup(self.grams[k], self.hashes[k][tokens])
            distinct, total = self.distinct[k][context], self.context_counts[k][context]
            mixed = (self.gram_counts[k][gram] + distinct * probability[long]) / np.maximum(total + distinct, 1)
            probability[long] = np.where(total, mixed, probability[long])
        bounded = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets) + 1)
        ngram = np.bincount(bounded, np.log(probability), minlength=len(self.offsets) - 1)
        return {UNIGRAM: unigram, NGRAM: ngram}


def ngram_scores(
    ids: np.ndarray, offsets: np.ndarray, vocabulary_size: int, text: Iterable[tuple[np.ndarray, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Return the baselines of the sentences, counted from `text`: parts of (ids, offsets) of whole sentences."""
    counts = NgramCounts(ids, offsets, vocabulary_size)
    waiting: list[tuple[np.ndarray, np.ndarray]] = []
    for part in text:
        waiting.append(part)
        if sum(len(part_ids) for part_ids, _ in waiting) >= CHUNK_TOKENS:
            counts.add(*_joined(waiting))
            waiting = []
    if waiting:
        counts.add(*_joined(waiting))
    return counts.scores()


def _joined(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Concatenate parts of (ids, offsets)."""
    lengths = np.concatenate([np.diff(offsets) for _, offsets in parts])
    return np.concatenate([ids for ids, _ in parts]), np.append(0, np.cumsum(lengths))


def _hashes(tokens: np.ndarray) -> list[np.ndarray]:
    """Return for each order from 1 the hash of the n-gram that ends at each token, uint64; any value across sentences.

    An n-gram lies within its sentence where the token's index in it is at least the order less 1.
    """
    result = [_mixed(tokens.astype(np.uint64) + np.uint64(1))]
    for _ in range(1, ORDER):
        before = np.append(np.uint64(0), result[-1][:-1])
        result.append(_mixed(before * np.uint64(0x9E3779B97F4A7C15) + result[0]))
    return result


def _mixed(values: np.ndarray) -> np.ndarray:
    """Mix the bits of 64-bit integers (the finalizer of MurmurHash3)."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        values = (values ^ (values >> np.uint64(33))) * np.uint64(factor)
    return values ^ (values >> np.uint64(33))


def _lookup(table: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each value's index in a sorted table, and whether it is there; other indices are any valid one."""
    if not len(table):
        return np.zeros(len(values), np.int64), np.zeros(len(values), bool)
    index = np.minimum(np.searchsorted(table, values), len(table) - 1)
    return index, table[index] == values
