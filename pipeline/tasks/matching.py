"""Matching as a kind of task: each text is encoded alone, and its vector should be nearest to that of its match.

Shapes: N rows of a text, its match and up to K negative texts, W width of a vector. The comparisons of a split are a
list: by whole vectors, then by those of the task's dimensions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.config.cutting import Truncation
from pipeline.tasks.encoding import encode
from pipeline.tasks.matches import OF_ALL, OF_NEGATIVES
from pipeline.tasks.metrics.label_metrics import triplet_accuracy
from pipeline.tasks.metrics.lengths import of_whole_vectors, scores_at
from pipeline.tasks.prepared import Logits, Prepared, Thresholds
from pipeline.tasks.schema import ENCODED, TEXT_LENGTHS, TEXTS
from pipeline.tasks.similarity import notes_of, require_one_vector, word_counts
from pipeline.tasks.task import Task
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.vocabulary import Vocabulary

BLOCK_ROWS = 1_024
"""Texts whose similarities to all matches are computed at a time."""


@dataclass(frozen=True, kw_only=True)
class MatchCosines:
    """Cosines of a split's texts with their matches and with other texts."""

    near: np.ndarray
    """float (N,): cosine of a text and its match."""
    far: np.ndarray
    """float (N, K): cosine of a text and its negative texts; NaN for a negative that a row lacks."""
    found: np.ndarray
    """float (N,): 1 if the match is the most similar of all rows' matches, 0.5 if another is as similar, else 0."""


def prepare(task: Task, items: pa.Table, vocabulary: Vocabulary, cutting: Truncation) -> Prepared:
    """Encode all texts of each row of MATCHES as sequences of their own; longer texts are truncated.

    A row has the ids of its sequences end to end: [CLS] text [SEP] [CLS] match [SEP] [CLS] negative [SEP]. Raises
    ConfigError if cutting.passages is set.
    """
    require_one_vector(task, cutting)
    columns = (items[name].to_pylist() for name in ("first", "second", "negatives"))
    rows = [(first, second, *negatives) for first, second, negatives in zip(*columns)]
    flat = [{"id": "", "first": text, "second": None, "label": None} for row in rows for text in row]
    table = pa.Table.from_pylist(flat, schema=TEXTS)
    encoded = encode(task, table, CachedTokenizer(vocabulary, special_added=True), cutting.maximum_length)
    ids, counts = encoded.rows["ids"].combine_chunks(), np.array([len(row) for row in rows])
    lengths = np.zeros((len(rows), counts.max()), np.int32)
    lengths[np.arange(lengths.shape[1]) < counts[:, None]] = ids.value_lengths()
    bounds = ids.offsets.take(pa.array(np.append(0, np.cumsum(counts))))
    columns = {
        "ids": pa.ListArray.from_arrays(bounds, ids.values),
        "first_length": pa.array(lengths[:, 0]),
        "label": pa.nulls(len(rows), pa.float32()),
        "labels": pa.nulls(len(rows), ENCODED.field("labels").type),
        "row": pa.array(range(len(rows)), pa.int64()),
    }
    encoded_rows = pa.table(columns, schema=ENCODED).append_column(TEXT_LENGTHS, pa.array(list(lengths)))
    return Prepared(items=items, rows=encoded_rows, cut=encoded.cut, notes=notes_of(encoded.cut, items, cutting))


def answers(task: Task, prepared: Prepared, logits: Logits, cutting: Truncation) -> list[MatchCosines]:
    """Return the comparisons of vectors; `logits` has each row's vectors, float (2 + K, W)."""
    vectors, comparisons = np.stack(list(logits)), []
    for length in (vectors.shape[2], *task.dimensions):
        norms = np.linalg.norm(vectors[..., :length], axis=2, keepdims=True)
        first, second, *negatives = np.moveaxis(vectors[..., :length] / np.maximum(norms, 1e-12), 1, 0)
        comparisons.append(_compared(prepared.items, first, second, negatives))
    return comparisons


def score(task: Task, prepared: Prepared, compared: list[MatchCosines], thresholds: Thresholds) -> dict[str, float]:
    """Return the share of texts whose match is the nearest, and of triplets whose match is nearer than the negative."""
    measures = {OF_NEGATIVES: _accuracy_of_triplets, OF_ALL: lambda compared: float(compared.found.mean())}
    return scores_at(task, lambda name, place: measures[name](compared[place]))


def _accuracy_of_triplets(compared: MatchCosines) -> float:
    """Return the share of negative texts that are farther from their row's text than the match is.

    At least one row must have a negative text.
    """
    given = ~np.isnan(compared.far)
    near = np.broadcast_to(compared.near[:, None], given.shape)
    return triplet_accuracy(near[given], compared.far[given])


def tune(task: Task, prepared: Prepared, compared: list[MatchCosines]) -> Thresholds:
    """Return no values, because nearness needs no threshold."""
    return {}


def baseline(task: Task, train: Prepared, prepared: Prepared) -> dict[str, float]:
    """Return the scores of the cosines of the texts' word counts."""
    negatives = prepared.items["negatives"].to_pylist()
    lists = [[*row, *[""] * (max(map(len, negatives)) - len(row))] for row in negatives]
    columns = [prepared.items["first"].to_pylist(), prepared.items["second"].to_pylist(), *map(list, zip(*lists))]
    vectors = _word_vectors([text for column in columns for text in column])
    first, second, *far = (vectors[start : start + len(lists)] for start in range(0, vectors.shape[0], len(lists)))
    return score(of_whole_vectors(task), prepared, [_compared(prepared.items, first, second, far)], {})


def collapsed(task: Task, prepared: Prepared, compared: list[MatchCosines]) -> bool:
    """Return whether all cosines are nearly the same, or one is not finite."""
    whole = compared[0]
    cosines = np.append(whole.near, whole.far[~np.isnan(whole.far)])
    return not np.isfinite(whole.near).all() or bool(np.ptp(cosines) < 1e-3)


def details(task: Task, prepared: Prepared, compared: list[MatchCosines], thresholds: Thresholds) -> dict[str, Any]:
    """Return an empty dict, because `score` already has all results."""
    return {}


def _compared(items: pa.Table, first: Any, second: Any, negatives: Sequence[Any]) -> MatchCosines:
    """Compare vectors of length 1 (N, W), which may be sparse: of texts, matches and K lists of negative texts."""
    counts = np.array([len(row) for row in items["negatives"].to_pylist()])
    far = np.full((len(counts), len(negatives)), np.nan)
    for number, vectors in enumerate(negatives):
        far[:, number] = np.where(counts > number, _row_products(first, vectors), np.nan)
    return MatchCosines(near=_row_products(first, second), far=far, found=_found(items, first, second))


def _row_products(first: Any, second: Any) -> np.ndarray:
    """Return the scalar products of the rows of two matrices, float (N,)."""
    products = first * second if isinstance(first, np.ndarray) else first.multiply(second)
    return np.asarray(products.sum(axis=1)).ravel()


def _found(items: pa.Table, first: Any, second: Any) -> np.ndarray:
    """Return `MatchCosines.found`. Rows that have a text in common are not compared, because both matches are right."""
    names = [*items["first"].to_pylist(), *items["second"].to_pylist()]
    both = np.unique(names, return_inverse=True)[1].reshape(2, -1)
    found = np.empty(items.num_rows)
    for start in range(0, items.num_rows, BLOCK_ROWS):
        rows = np.arange(start, min(start + BLOCK_ROWS, items.num_rows))
        cosines = first[rows] @ second.T
        cosines = cosines if isinstance(cosines, np.ndarray) else cosines.toarray()
        own = cosines[np.arange(len(rows)), rows]
        for mine, other in ((mine, other) for mine in both for other in both):
            cosines[mine[rows, None] == other] = -np.inf
        best = cosines.max(axis=1)
        found[rows] = np.where(own == best, 0.5, own > best)
    return found


def _word_vectors(texts: Sequence[str]) -> Any:
    """Return the word counts of texts in lower case as a sparse matrix of scipy, scaled to length 1.

    A text without words has zeros.
    """
    from scipy import sparse  # imported here because only this baseline needs scipy

    counts = [word_counts(text) for text in texts]
    index = {word: number for number, word in enumerate(dict.fromkeys(word for row in counts for word in row))}
    scaled = [np.array(list(row.values())) / sum(count**2 for count in row.values()) ** 0.5 for row in counts if row]
    words = [index[word] for row in counts for word in row]
    bounds = np.append(0, np.cumsum([len(row) for row in counts]))
    values = np.concatenate([np.zeros(0), *scaled])
    return sparse.csr_matrix((values, words, bounds), shape=(len(counts), max(1, len(index))))
