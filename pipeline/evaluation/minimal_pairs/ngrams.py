"""Unigram and 5-gram baselines for sentences, counted from the training text.

The 5-gram model interpolates every order with the next shorter order (Witten and Bell 1991):
p(w|h) = (c(hw) + T(h) p(w|h')) / (c(h) + T(h)). Here c counts in the training text, T(h) is the number of distinct
tokens that follow the context h, and h' is h without its first token.

Only the n-grams and contexts of the scored sentences are counted. 64-bit hashes identify them. One set grows with the
text: the distinct n-grams that continue these contexts.
"""

from collections.abc import Iterable, Sequence

import numpy as np

ORDER = 5
CHUNK_TOKENS = 2_000_000
"""Parts of the text are collected until they have this many tokens, and then counted together."""
UNIGRAM, NGRAM = "unigram", f"{ORDER}-gram"


class NgramCounts:
    """Count the n-grams of the scored sentences, and the contexts of these n-grams, in the training text."""

    def __init__(self, ids: np.ndarray, offsets: np.ndarray, vocabulary_size: int) -> None:
        """Take the S sentences to score. Sentence s is ids[offsets[s] : offsets[s + 1]].

        `ids` (U,) and `offsets` (S + 1,) are int64. The ids vocabulary_size and vocabulary_size + 1 stand for the
        beginning and the end of a sentence.
        """
        self.begin, self.end = vocabulary_size, vocabulary_size + 1
        self.size = vocabulary_size + 1  # number of predictable tokens: vocabulary entries, and the sentence end
        self.ids, self.offsets = ids, offsets
        self.tokens, self.index = self._bounded(ids, offsets)
        self.unigrams = np.zeros(vocabulary_size + 2, np.int64)
        self.hashes = _hashes(self.tokens)
        self.grams = [np.unique(self.hashes[k][self.index >= max(k, 1)]) for k in range(ORDER)]
        self.gram_counts = [np.zeros(len(grams), np.int64) for grams in self.grams]
        # A token has a context of order k if at least k tokens precede it in its sentence.
        self.contexts = [
            np.unique(self.hashes[k - 1][:-1][self.index[1:] >= k]) if k else np.zeros(0, np.uint64)
            for k in range(ORDER)
        ]
        self.context_counts = [np.zeros(len(contexts), np.int64) for contexts in self.contexts]
        self.distinct = [np.zeros(len(contexts), np.int64) for contexts in self.contexts]
        self.seen = [np.zeros(0, np.uint64) for _ in range(ORDER)]

    def _bounded(self, ids: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return ids with a beginning and an end around each sentence, and the index of each id in its sentence.

        Both are int64 (U + 2 S,).
        """
        tokens = np.insert(
            ids.astype(np.int64), np.repeat(offsets, 2)[1:-1], np.tile([self.begin, self.end], len(offsets) - 1)
        )
        lengths = np.diff(offsets) + 2
        starts = np.append(0, np.cumsum(lengths)[:-1])
        return tokens, np.arange(len(tokens)) - np.repeat(starts, lengths)

    def add(self, ids: np.ndarray, offsets: np.ndarray) -> None:
        """Count whole sentences of the training text, given as concatenated ids and offsets as in `__init__`."""
        tokens, index = self._bounded(ids, offsets)
        self.unigrams += np.bincount(tokens, minlength=len(self.unigrams))
        hashes = _hashes(tokens)
        for k in range(1, ORDER):
            tokens_with_context = np.flatnonzero(index >= k)
            context, is_counted = _lookup(self.contexts[k], hashes[k - 1][tokens_with_context - 1])
            grams, context = hashes[k][tokens_with_context][is_counted], context[is_counted]
            self.context_counts[k] += np.bincount(context, minlength=len(self.contexts[k]))
            gram, is_counted = _lookup(self.grams[k], grams)
            self.gram_counts[k] += np.bincount(gram[is_counted], minlength=len(self.grams[k]))
            distinct, first = np.unique(grams, return_index=True)
            _, was_seen = _lookup(self.seen[k], distinct)
            self.distinct[k] += np.bincount(context[first][~was_seen], minlength=len(self.contexts[k]))
            self.seen[k] = np.sort(np.concatenate((self.seen[k], distinct[~was_seen])), kind="stable")

    def scores(self) -> dict[str, np.ndarray]:
        """Return {baseline: log-probability of each sentence in nats, float64 (S,)}.

        The unigram baseline scores only the pieces of the sentence; the 5-gram baseline also scores the end of the
        sentence. Both baselines add one to every unigram count.
        """
        unigram = unigram_scores(self.ids, self.offsets, self.unigrams[: self.begin])
        counted = self.unigrams.copy()
        counted[self.begin] = 0
        share = (counted + 1.0) / (counted.sum() + self.size)
        predicted = np.flatnonzero(self.index)  # all tokens except the beginnings of sentences
        probability = share[self.tokens[predicted]]
        for k in range(1, ORDER):
            has_context = self.index[predicted] >= k
            tokens = predicted[has_context]
            context, _ = _lookup(self.contexts[k], self.hashes[k - 1][tokens - 1])
            gram, _ = _lookup(self.grams[k], self.hashes[k][tokens])
            distinct, total = self.distinct[k][context], self.context_counts[k][context]
            mixed = (self.gram_counts[k][gram] + distinct * probability[has_context]) / np.maximum(total + distinct, 1)
            probability[has_context] = np.where(total, mixed, probability[has_context])
        bounded = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets) + 1)
        ngram = np.bincount(bounded, np.log(probability), minlength=len(self.offsets) - 1)
        return {UNIGRAM: unigram, NGRAM: ngram}


def unigram_scores(ids: np.ndarray, offsets: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the log-probability of each sentence in nats, float64 (S,), with one added to every count.

    `ids` (U,) and `offsets` (S + 1,) are the sentences to score; `counts` (V,) has the count of each vocabulary entry.
    """
    pieces = np.log(counts + 1.0) - np.log(counts.sum() + len(counts))
    sentence = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return np.bincount(sentence, pieces[ids], minlength=len(offsets) - 1)


def ngram_scores(
    ids: np.ndarray, offsets: np.ndarray, vocabulary_size: int, text: Iterable[tuple[np.ndarray, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Return {baseline: log-probability of each sentence in nats, float64 (S,)}, as NgramCounts.scores does.

    `ids` (U,) and `offsets` (S + 1,) are the sentences to score. `text` yields the training text in parts. Each part is
    the (ids, offsets) of whole sentences.
    """
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
    """Concatenate several (ids, offsets) into one."""
    lengths = np.concatenate([np.diff(offsets) for _, offsets in parts])
    return np.concatenate([ids for ids, _ in parts]), np.append(0, np.cumsum(lengths))


def _hashes(tokens: np.ndarray) -> list[np.ndarray]:
    """Return, for each n from 1 to ORDER, the hash of the n-gram that ends at each token, uint64 (T,).

    At a token whose index in its sentence is below n - 1, the n-gram would begin in the previous sentence. Callers must
    not use the hash of such a token.
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
    """Return the index of each value in a sorted table, int64, and whether the table has the value, bool.

    The index of a value that the table does not have is arbitrary.
    """
    if not len(table):
        return np.zeros(len(values), np.int64), np.zeros(len(values), bool)
    index = np.minimum(np.searchsorted(table, values), len(table) - 1)
    return index, table[index] == values
