"""BM25, the baseline of retrieval: rank documents by the words that they share with a query."""

from collections.abc import Sequence

import bm25s
import numpy as np

from pipeline.evaluation.retrieval.ranking import rank

NAME = "BM25"
DESCRIPTION = (
    "BM25 of bm25s: k1 1.5, b 0.75, lower case, English stop words and words of one character left out, no stemming"
)


def rank_by_bm25(
    queries: Sequence[str], documents: Sequence[str], ties: np.ndarray, without: Sequence[int | None]
) -> list[np.ndarray]:
    """Return each query's ranking; `ties` as in `rank`. Only documents that share a word with the query are found.

    `without` has for each query the index of a document that is left out, or None. The parameters are those of
    DESCRIPTION, bm25s's defaults (Lù 2024; scores as in Lucene).
    """
    tokens = bm25s.tokenize(list(documents), return_ids=False, show_progress=False)
    if not any(tokens):  # bm25s cannot make an index without words
        return [np.zeros(0, np.int64) for _ in queries]
    index = bm25s.BM25()
    index.index(tokens, show_progress=False)
    rankings = []
    for words, own in zip(bm25s.tokenize(list(queries), return_ids=False, show_progress=False), without, strict=True):
        known = [str(word) for word in words if word in index.vocab_dict]
        scores = index.get_scores(known) if known else np.zeros(len(documents), np.float32)
        rankings.append(rank(np.where(scores > 0, scores, -np.inf), ties, without=own))
    return rankings
