"""Multiple choice as a kind of task: each choice is scored with the context, and the best score is the answer.

Source: Devlin et al. 2019, section 4.4. A choice is the second text of a pair whose first text is the context.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.config.cutting import Truncation
from pipeline.errors import ConfigError
from pipeline.tasks.encoding import encode
from pipeline.tasks.passages import whole_texts
from pipeline.tasks.prepared import Logits, Prepared, Thresholds
from pipeline.tasks.schema import ENCODED, FIRST_LENGTHS, PASSAGE_LENGTHS, TEXTS
from pipeline.tasks.task import Task, choice_number
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.vocabulary import Vocabulary


def prepare(task: Task, items: pa.Table, vocabulary: Vocabulary, cutting: Truncation) -> Prepared:
    """Encode a table of CHOICES: a row has the pairs of its context with each choice, each truncated on its own.

    Raises ConfigError if cutting.passages is set.
    """
    if cutting.passages:
        raise ConfigError(
            f"cutting.passages ({cutting.passages}) would give a choice several scores: leave cutting.passages out for "
            f"{task.name}, which is of kind {task.kind}"
        )
    choices = items["choices"].combine_chunks()
    row = np.repeat(np.arange(items.num_rows), choices.value_lengths().to_numpy())
    repeated = items.select(TEXTS.names).take(row)
    pairs = repeated.set_column(TEXTS.get_field_index("second"), TEXTS.field("second"), choices.flatten())
    encoded = encode(task, pairs, CachedTokenizer(vocabulary, special_added=True), cutting.maximum_length)
    index = ENCODED.get_field_index("row")
    rows, _, _ = whole_texts(encoded.rows.set_column(index, ENCODED.field(index), [row]), len(row))
    firsts = encoded.rows["first_length"].combine_chunks()
    bounds = rows[PASSAGE_LENGTHS].combine_chunks().offsets
    rows = rows.append_column(FIRST_LENGTHS, pa.ListArray.from_arrays(bounds, firsts))
    cut, length = encoded.cut, cutting.maximum_length
    notes = (f"{cut:,} of {len(row):,} choices cut with their context at {length} tokens",) if cut else ()
    return Prepared(items=items, rows=rows, cut=cut, notes=notes)


def answers(task: Task, prepared: Prepared, logits: Logits, cutting: Truncation) -> list[np.ndarray]:
    """Return the scores of each row's choices, float64; `logits` may have further numbers after these scores."""
    counts = prepared.rows[PASSAGE_LENGTHS].combine_chunks().value_lengths().to_pylist()
    return [np.asarray(row, np.float64)[:count] for row, count in zip(logits, counts, strict=True)]


def chosen(scores: Sequence[np.ndarray]) -> np.ndarray:
    """Return the number of the best choice of each row, int64; of equal scores, the first."""
    return np.array([row.argmax() for row in scores], np.int64)


def probabilities(scores: np.ndarray) -> np.ndarray:
    """Return the softmax over the choices of one row."""
    shares = np.exp(scores - scores.max())
    return shares / shares.sum()


def true_choices(items: pa.Table) -> np.ndarray:
    """Return the number of the right choice of each row, int64."""
    return np.array([choice_number(label) for label in items["label"].to_pylist()], np.int64)


def score(task: Task, prepared: Prepared, scores: Sequence[np.ndarray], thresholds: Thresholds) -> dict[str, float]:
    """Return the share of rows whose best choice is the right one."""
    return {"accuracy": float((chosen(scores) == true_choices(prepared.items)).mean())}


def tune(task: Task, prepared: Prepared, scores: Sequence[np.ndarray]) -> Thresholds:
    """Return an empty dict, because there are no values to tune."""
    return {}


def baseline(task: Task, train: Prepared, prepared: Prepared) -> dict[str, float]:
    """Return the accuracy of always choosing the number that is right in most training rows."""
    common = Counter(true_choices(train.items).tolist()).most_common(1)[0][0]
    return {"accuracy": float((true_choices(prepared.items) == common).mean())}


def collapsed(task: Task, prepared: Prepared, scores: Sequence[np.ndarray]) -> bool:
    """Return whether a score is not finite, or all rows get the same number although the right numbers differ."""
    found, true = chosen(scores), true_choices(prepared.items)
    finite = all(np.isfinite(row).all() for row in scores)
    return not finite or bool((found == found[0]).all() and (true != true[0]).any())


def details(task: Task, prepared: Prepared, scores: Sequence[np.ndarray], thresholds: Thresholds) -> dict[str, Any]:
    """Return an empty dict, because `score` already has all results."""
    return {}
