"""Word embeddings from co-occurrence counts: factorised positive pointwise mutual information (PPMI).

Source: Levy, Goldberg and Dagan 2015.

Word embeddings that start at random learn little about co-occurrence in their first tens of millions of tokens.
Counting 300 M characters takes two minutes on one core at width 256.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from scipy import sparse
from sklearn.utils.extmath import randomized_svd

REACH = 5
"""Size of the context on each side of a token, in tokens; a pair at distance d counts 1/d."""
SMOOTHING = 0.75
"""Exponent of the context frequencies; without it, PMI favours rare words."""
BATCH_TOKENS = 8_000_000


def cooccurrences(documents: Iterable[np.ndarray], size: int) -> sparse.csr_matrix:
    """Count how often every two ids occur near each other; return a symmetric matrix, float32 (size, size).

    `documents` are arrays of ids of a vocabulary with `size` entries. A pair at distance d counts 1/d, and pairs across
    documents do not count.
    """
    counted = sparse.csr_matrix((size, size), dtype=np.float32)
    for ids in _join_documents(documents):
        counted += sum(_at_distance(ids, distance, size) for distance in range(1, REACH + 1))
    return counted + counted.T


def _at_distance(ids: np.ndarray, distance: int, size: int) -> sparse.csr_matrix:
    """Count the pairs of ids at exactly this distance, each with weight 1/distance; an id of -1 is no token."""
    left, right = ids[:-distance], ids[distance:]
    both = (left >= 0) & (right >= 0)
    pairs, counts = np.unique(left[both] * size + right[both], return_counts=True)
    return sparse.csr_matrix(
        ((counts / distance).astype(np.float32), (pairs // size, pairs % size)), shape=(size, size)
    )


def _join_documents(documents: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield batches of about BATCH_TOKENS ids, int64: concatenated documents, each followed by REACH ids of -1.

    The ids of -1 keep pairs from crossing documents.
    """
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
    """Return an embedding of length 1 for each vocabulary entry, float32 (size, width); zeros for unseen entries.

    `counted` is a result of `cooccurrences`. The embeddings are rotated at random, because otherwise their first
    dimension would dominate.
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
