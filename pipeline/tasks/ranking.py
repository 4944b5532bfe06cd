"""Ranking as a kind of task: pairs of a query and a candidate get a score, and each query's candidates are ranked.

Rows are pairs with a label above 0 for a relevant candidate. Such a model is a cross-encoder, or reranker (Nogueira and
Cho 2019).
"""

from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.config.cutting import Truncation
from pipeline.errors import ConfigError, DataError
from pipeline.tasks import sequences
from pipeline.tasks.metrics.ranking import counting, mean_over_queries
from pipeline.tasks.prepared import Logits, Prepared, Thresholds
from pipeline.tasks.schema import QUERY
from pipeline.tasks.similarity import word_counts
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary

SAME_SCORE = 1e-3
"""A model whose scores of all candidates lie within this range gives the same answer to all."""


def prepare(task: Task, items: pa.Table, vocabulary: Vocabulary, cutting: Truncation) -> Prepared:
    """Encode a table of TEXTS as pairs; longer candidates are truncated. The rows have the column QUERY in addition.

    Raises DataError for a row without a second text, and ConfigError if cutting.passages is set.
    """
    if items["second"].null_count:
        raise DataError(f"{task.name} ranks texts for queries: name the column of the text with --pair")
    if cutting.passages:
        raise ConfigError(
            f"cutting.passages ({cutting.passages}) would give a candidate several scores: leave cutting.passages out "
            f"for {task.name}, whose kind is {task.kind}"
        )
    prepared = sequences.prepare(task, items, vocabulary, cutting)
    rows = prepared.rows.append_column(QUERY, pa.array(_query_numbers(task, items)))
    notes = (f"{prepared.cut:,} cut at {cutting.maximum_length} tokens",) if prepared.cut else ()
    lost = prepared.notes[len(notes) :]
    return Prepared(items=items, rows=rows, cut=prepared.cut, notes=(*notes, *lost))


def _query_numbers(task: Task, items: pa.Table) -> np.ndarray:
    """Return the number of each row's query, int64, in the order of their first rows.

    Official files number their queries. In other files, rows with the same query have the same first text, except for
    white space.
    """
    names = items["id"].to_pylist() if task.splits else [" ".join(text.split()) for text in items["first"].to_pylist()]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], np.int64)


def answers(task: Task, prepared: Prepared, logits: Logits, cutting: Truncation) -> np.ndarray:
    """Return each pair's score, float64 (pairs, 1)."""
    return sequences.answers(task, prepared, logits, cutting)


def score(task: Task, prepared: Prepared, outputs: np.ndarray, thresholds: Thresholds) -> dict[str, float]:
    """Return the task's metrics, each the mean over queries."""
    return _measured(task, prepared, outputs[:, 0])


def _measured(task: Task, prepared: Prepared, scores: np.ndarray) -> dict[str, float]:
    """Return the metrics of scores (pairs,)."""
    labels, queries = prepared.rows["label"].to_numpy(), prepared.rows[QUERY].to_numpy()
    return {name: mean_over_queries(name, scores, labels, queries) for name in task.metrics}


def tune(task: Task, prepared: Prepared, outputs: np.ndarray) -> Thresholds:
    """Return no values, because a ranking needs no threshold."""
    return {}


def baseline(task: Task, train: Prepared, prepared: Prepared) -> dict[str, float]:
    """Return the metrics of ranking by the number of the query's words that a candidate has (Yang et al. 2015)."""
    pairs = zip(prepared.items["first"].to_pylist(), prepared.items["second"].to_pylist())
    shared = [len(word_counts(query).keys() & word_counts(text).keys()) for query, text in pairs]
    return _measured(task, prepared, np.array(shared, np.float64))


def collapsed(task: Task, prepared: Prepared, outputs: np.ndarray) -> bool:
    """Return whether all scores are nearly the same, or one is not finite."""
    return not np.ptp(outputs[:, 0]) >= SAME_SCORE


def details(task: Task, prepared: Prepared, outputs: np.ndarray, thresholds: Thresholds) -> dict[str, Any]:
    """Return an empty dict, because `score` already has all results."""
    return {}


def require_ranked(task: Task, split: str, prepared: Prepared) -> None:
    """Raise DataError if no query of the split `split` has both a relevant and an irrelevant candidate."""
    labels, queries = prepared.rows["label"].to_numpy(), prepared.rows[QUERY].to_numpy()
    if not counting(labels, queries):
        raise DataError(
            f"{task.name} {split}: none of {len(np.unique(queries)):,} queries has both a relevant candidate (label "
            "above 0) and an irrelevant one, so no ranking can be learnt or scored: give several rows per query"
        )
