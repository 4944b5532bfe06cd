"""Word embeddings from co-occurrence counts: factorised positive pointwise mutual information (PPMI).

Source: Levy, Goldberg and Dagan 2015.

A model's own word embeddings learn little of this in their first tens of millions of tokens; counting 300 M characters
takes two minutes of one core at width 256.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from scipy import sparse
from sklearn.utils.extmath import randomized_svd

REACH = 5
"""Size of the context window on each side, in tokens; a pair at distance d counts 1/d."""
SMOOTHING = 0.75
"""Exponent of the context frequencies; without it, PMI favours rare words."""
BATCH_TOKENS = 8_000_000


def cooccurrences(documents: Iterable[np.ndarray], size: int) -> sparse.csr_matrix:
    """Count co-occurrences of vocabulary entries in documents of ids, (size, size) float32 and symmetric.

    Pairs across documents are not counted.
    """
    counted = sparse.csr_matrix((size, size), dtype=np.float32)
    for ids in _join_documents(documents):
        counted += sum(_at_distance(ids, distance, size) for distance in range(1, REACH + 1))
    return counted + counted.T


def _at_distance(ids: np.ndarray, distance: int, size: int) -> sparse.csr_matrix:
    """Count the pairs of ids at exactly this distance, weighted by 1/distance."""
    left, right = ids[:-distance], ids[distance:]
    both = (left >= 0) & (right >= 0)
    pairs, counts = np.unique(left[both] * size + right[both], return_counts=True)
    return sparse.csr_matrix(
        ((counts / distance).astype(np.float32), (pairs // size, pairs % size)), shape=(size, size)
    )


def _join_documents(documents: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield documents concatenated to about BATCH_TOKENS ids, int64, each followed by REACH times -1."""
    gathered: list[np.ndarray] = []
    tokens = 0
    for ids in documents:
        gathered += [ids, np.full(REACH, -1)]
        tokens += len(ids)
        if tokens >= BATCH_TOKENS:
            yield np.concatenate(gathered)
            gathered, tokens = [], 0
    if gathered:
        yield np.concatenate(gathered)


def embeddings(counted: sparse.csr_matrix, width: int) -> np.ndarray:
    """Return one embedding per entry, (size, width) float32, of length 1; zeros for an entry never seen.

    The factors are rotated at random, because the first one would dominate each embedding.
    """
    size = counted.shape[0]
    totals = np.asarray(counted.sum(1)).ravel().astype(np.float64)
    if not (seen := totals > 0).any():
        return np.zeros((size, width), np.float32)
    shares = totals**SMOOTHING / (totals**SMOOTHING).sum()
    pairs = counted.tocoo()
    information = np.log(pairs.data / (totals[pairs.row] * shares[pairs.col])).astype(np.float32)
    positive = information > 0
    matrix = sparse.csr_matrix((information[positive], (pairs.row[positive], pairs.col[positive])), shape=counted.shape)
    factors, strengths, _ = randomized_svd(matrix, min(width, size), n_iter=4, random_state=0)
    vectors = np.zeros((size, width))
    vectors[:, : len(strengths)] = factors * np.sqrt(strengths)
    vectors[seen] -= vectors[seen].mean(0)
    vectors @= np.linalg.qr(np.random.default_rng(0).normal(size=(width, width)))[0]
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.where(seen[:, None] & (lengths > 0), vectors / np.maximum(lengths, 1e-12), 0).astype(np.float32)
