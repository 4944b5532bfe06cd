"""Similarity as a kind of task: each of two texts is encoded alone, and the answer is the cosine of their vectors.

Reimers and Gurevych 2019 call such a model a bi-encoder (Sentence-BERT).
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.config.cutting import Truncation
from pipeline.errors import ConfigError, DataError
from pipeline.tasks.encoding import encode
from pipeline.tasks.metrics import label_metrics
from pipeline.tasks.metrics.lengths import of_whole_vectors, scores_at
from pipeline.tasks.prepared import Logits, Prepared, Thresholds
from pipeline.tasks.schema import ENCODED, SECOND_LENGTH
from pipeline.tasks.tables import left_out
from pipeline.tasks.task import Task
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.vocabulary import Vocabulary

WORD = re.compile(r"\w+")


def prepare(task: Task, items: pa.Table, vocabulary: Vocabulary, cutting: Truncation) -> Prepared:
    """Encode both texts of each row of TEXTS as a sequence of its own; longer texts are truncated.

    A row has the ids of both sequences end to end: [CLS] A [SEP] [CLS] B [SEP]. Raises DataError for a row without a
    second text, and ConfigError if cutting.passages is set.
    """
    require_one_vector(task, cutting)
    if items["second"].null_count:
        raise DataError(f"{task.name} compares pairs of texts: name the column of the second text with --pair")
    encoded = encode(task, _one_by_one(items), CachedTokenizer(vocabulary, special_added=True), cutting.maximum_length)
    lists = encoded.rows["ids"].combine_chunks()
    first, second = np.asarray(lists.value_lengths()).reshape(-1, 2).astype(np.int32).T
    columns = {
        "ids": pa.ListArray.from_arrays(lists.offsets.take(pa.array(range(0, len(lists) + 1, 2))), lists.values),
        "first_length": pa.array(first),
        "label": encoded.rows["label"].combine_chunks()[::2],
        "labels": encoded.rows["labels"].combine_chunks()[::2],
        "row": pa.array(range(items.num_rows), pa.int64()),
    }
    rows = pa.table(columns, schema=ENCODED).append_column(SECOND_LENGTH, pa.array(second))
    return Prepared(items=items, rows=rows, cut=encoded.cut, notes=notes_of(encoded.cut, items, cutting))


def require_one_vector(task: Task, cutting: Truncation) -> None:
    """Raise ConfigError if texts would be split into passages, each with a vector of its own."""
    if cutting.passages:
        raise ConfigError(
            f"cutting.passages ({cutting.passages}) would give a text several vectors: leave cutting.passages out "
            f"for {task.name}, whose kind is {task.kind}"
        )


def notes_of(cut: int, items: pa.Table, cutting: Truncation) -> tuple[str, ...]:
    """Return descriptions of the `cut` truncated texts and of the lines that were left out of the items' file."""
    notes = [f"{cut:,} texts cut at {cutting.maximum_length} tokens"] if cut else []
    lost = left_out(items)
    return (*notes, *([f"{len(lost)} lines left out, the first: {lost[0]}"] if lost else []))


def _one_by_one(items: pa.Table) -> pa.Table:
    """Return a table of TEXTS with two rows for each pair: its first text, then its second text."""
    turns = np.repeat(np.arange(items.num_rows), 2)
    texts = [text for pair in zip(items["first"].to_pylist(), items["second"].to_pylist()) for text in pair]
    repeated = items.take(turns)
    columns = {"first": pa.array(texts, pa.string()), "second": pa.nulls(len(texts), pa.string())}
    return pa.table([columns.get(field.name, repeated[field.name]) for field in items.schema], schema=items.schema)


def answers(task: Task, prepared: Prepared, logits: Logits, cutting: Truncation) -> np.ndarray:
    """Return the cosine of each pair, by whole vectors and by those of the task's dimensions, float64 (pairs, L)."""
    return np.asarray(logits, np.float64)


def score(task: Task, prepared: Prepared, cosines: np.ndarray, thresholds: Thresholds) -> dict[str, float]:
    """Return the correlations between the cosines and the labels."""
    labels = prepared.rows["label"].to_numpy()
    return scores_at(task, lambda name, place: label_metrics.METRICS[name](cosines[:, place], labels))


def tune(task: Task, prepared: Prepared, cosines: np.ndarray) -> Thresholds:
    """Return no values, because correlations need no threshold."""
    return {}


def baseline(task: Task, train: Prepared, prepared: Prepared) -> dict[str, float]:
    """Return the correlations between `word_cosines` and the labels."""
    cosines = word_cosines(prepared.items["first"].to_pylist(), prepared.items["second"].to_pylist())
    return label_metrics.score(of_whole_vectors(task), cosines, prepared.rows["label"].to_numpy())


def collapsed(task: Task, prepared: Prepared, cosines: np.ndarray) -> bool:
    """Return whether all pairs have nearly the same cosine, or a cosine is not finite."""
    return not np.isfinite(cosines).all() or bool(np.ptp(cosines[:, 0]) < 1e-3)


def details(task: Task, prepared: Prepared, cosines: np.ndarray, thresholds: Thresholds) -> dict[str, Any]:
    """Return an empty dict, because `score` already has all results."""
    return {}


def word_cosines(first: Sequence[str], second: Sequence[str]) -> np.ndarray:
    """Return the cosine of the word counts of each pair, in lower case, float64 (pairs,); 0 if a text has no words."""
    return np.array([_word_cosine(*map(word_counts, pair)) for pair in zip(first, second, strict=True)])


def word_counts(text: str) -> Counter[str]:
    """Return how often each word occurs in a text."""
    return Counter(WORD.findall(text.lower()))


def _word_cosine(a: Counter[str], b: Counter[str]) -> float:
    """Return the cosine of two texts' word counts."""
    product = sum(count * b[word] for word, count in a.items())
    norms = sum(count**2 for count in a.values()) * sum(count**2 for count in b.values())
    return product / norms**0.5 if norms else 0.0
