"""Word embeddings from what stands near what: positive pointwise mutual information, factorised (Levy, Goldberg and Dagan 2015).

A model's own word embeddings learn little of this in their first tens of millions of tokens; counted, 300 M characters cost two minutes of one core at width 256.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from scipy import sparse
from sklearn.utils.extmath import randomized_svd

REACH = 5
"""Tokens to either side that count as near; the one at distance d counts 1/d."""
SMOOTHING = 0.75
"""Exponent of the contexts' frequencies: without it rare words stand near each other for being rare."""
BATCH_TOKENS = 8_000_000


def cooccurrences(documents: Iterable[np.ndarray], size: int) -> sparse.csr_matrix:
    """How often entries of a vocabulary stand near each other in documents of ids, (size, size) float32 and symmetric; never from one document to the next."""
    counted = sparse.csr_matrix((size, size), dtype=np.float32)
    for ids in join_documents(documents):
        counted += sum(at_distance(ids, distance, size) for distance in range(1, REACH + 1))
    return counted + counted.T


def at_distance(ids: np.ndarray, distance: int, size: int) -> sparse.csr_matrix:
    """The pairs of a run of ids that stand so far apart, each counting 1/distance."""
    left, right = ids[:-distance], ids[distance:]
    both = (left >= 0) & (right >= 0)
    pairs, counts = np.unique(left[both] * size + right[both], return_counts=True)
    return sparse.csr_matrix(
        ((counts / distance).astype(np.float32), (pairs // size, pairs % size)), shape=(size, size)
    )


def join_documents(documents: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Documents joined to runs of about BATCH_TOKENS ids, int64, with REACH times -1 after each."""
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
    """An embedding of each entry, (size, width) float32, of length 1; zeros for an entry never seen.

    The factors are turned at random, since the first of them would be most of each embedding.
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
    found = np.zeros((size, width))
    found[:, : len(strengths)] = factors * np.sqrt(strengths)
    found[seen] -= found[seen].mean(0)
    found @= np.linalg.qr(np.random.default_rng(0).normal(size=(width, width)))[0]
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    return np.where(seen[:, None] & (lengths > 0), found / np.maximum(lengths, 1e-12), 0).astype(np.float32)
