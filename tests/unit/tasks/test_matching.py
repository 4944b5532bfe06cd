"""Matching texts: rows, batches, scores and the baseline of shared words."""

import numpy as np
import pyarrow as pa
import pytest

from pipeline import batch
from pipeline.config.cutting import Truncation
from pipeline.errors import ConfigError
from pipeline.tasks import matching
from pipeline.tasks.metrics.lengths import with_lengths
from pipeline.tasks.schema import MATCHES, TEXT_LENGTHS
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary

WORDS = ("red", "green", "blue")
VOCABULARY = Vocabulary(tokens=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS), lowercase=True)
TASK = Task(name="s", kind="matching", metrics=("triplet_accuracy", "match_accuracy"))
CUTTING = Truncation(maximum_length=8)


def items(*rows: tuple[str, str, list[str]]) -> pa.Table:
    columns = ("first", "second", "negatives")
    return pa.Table.from_pylist([{"id": "1", "label": None} | dict(zip(columns, row)) for row in rows], schema=MATCHES)


LONG = "red green blue red red red red"
ROWS = items(("red", LONG, ["blue", "green"]), ("green", "green green", []), ("red", "blue", ["green"]))


def test_each_text_of_a_row_is_a_sequence_of_its_own() -> None:
    prepared = matching.prepare(TASK, ROWS, VOCABULARY, CUTTING)
    assert prepared.rows["ids"].to_pylist() == [
        [2, 5, 3, 2, 5, 6, 7, 5, 5, 5, 3, 2, 7, 3, 2, 6, 3],
        [2, 6, 3, 2, 6, 6, 3],
        [2, 5, 3, 2, 7, 3, 2, 6, 3],
    ]
    assert prepared.rows[TEXT_LENGTHS].to_pylist() == [[3, 8, 3, 3], [3, 4, 0, 0], [3, 3, 3, 0]]
    assert prepared.rows["row"].to_pylist() == [0, 1, 2] and prepared.notes == ("1 texts cut at 8 tokens",)
    with pytest.raises(ConfigError, match=r"^cutting\.passages \(True\) would give a text several vectors: leave cut"):
        matching.prepare(TASK, ROWS, VOCABULARY, Truncation(maximum_length=8, passages=True))


def test_a_batch_knows_equal_texts_and_missing_ones() -> None:
    assert batch.TEXT_LENGTHS == TEXT_LENGTHS
    rows = matching.prepare(TASK, ROWS, VOCABULARY, CUTTING).rows
    found = batch.collate_labelled(rows.take([2, 1]))
    assert found.ids_T.tolist() == [2, 5, 3, 2, 7, 3, 2, 6, 3, 2, 6, 3, 2, 6, 6, 3] and not found.segments_T.any()
    assert found.offsets.tolist() == [0, 3, 6, 9, 12, 16] and found.positions_T.tolist() == [0, 1, 2] * 4 + [
        0,
        1,
        2,
        3,
    ]
    assert found.places.tolist() == [0, 1, 2, 4, 5] and found.keys.shape == (2, 5)
    assert found.keys[0, 3] == found.keys[1, 0] != found.keys[0, 0]  # "green" is a negative text and a first text
    assert found.keys[0, 2] != found.keys[1, 2] and found.keys[:, 4].tolist() == [0, 0] and found.keys[1, 3] == 0
    pairs = matching.prepare(TASK, items(("red", "blue", []), ("green", "red", [])), VOCABULARY, CUTTING).rows
    found = batch.collate_labelled(pairs)
    assert found.places is None and found.keys.shape == (2, 3)


def test_scores_are_of_the_nearest_match_and_of_triplets() -> None:
    prepared = matching.prepare(TASK, ROWS, VOCABULARY, CUTTING)
    up, side, both, none = (0.0, 2.0), (3.0, 0.0), (1.0, 1.0), (0.0, 0.0)
    logits = [
        np.array([up, both, side, both]),  # cosines: match 0.71, negatives 0 and 0.71
        np.array([up, up, none, none]),
        np.array([side, up, side, none]),  # match 0, negative 1
    ]
    whole = matching.answers(TASK, prepared, logits, CUTTING)
    (found,) = whole
    # row 0: the match of row 1 is nearer (row 2 has the same text); row 1: that of row 2 is as near; row 2: nearest 0
    assert found.found.tolist() == [0, 0.5, 0.5]
    scores = matching.score(TASK, prepared, whole, {})
    assert scores == {"triplet_accuracy": pytest.approx((1 + 0.5 + 0) / 3), "match_accuracy": pytest.approx(1 / 3)}
    assert not matching.collapsed(TASK, prepared, whole)
    same = matching.answers(TASK, prepared, [np.ones((4, 2))] * 3, CUTTING)
    assert matching.collapsed(TASK, prepared, same)


def test_truncated_vectors_have_scores_of_their_own() -> None:
    task = with_lengths(Task(name="s", kind="matching", metrics=("triplet_accuracy",)), [2])
    rows = items(("red", "blue", ["green"]), ("green", "red", ["blue"]))
    prepared = matching.prepare(task, rows, VOCABULARY, CUTTING)
    logits = [np.array([(1, 0, 0), (1, 1, 0), (2, 1, 10)]), np.array([(1, 0, 0), (1, 0, 0), (0, 1, 0)])]
    found = matching.answers(task, prepared, logits, CUTTING)
    # row 0: cosines 0.71 and 0.20; of the first two numbers alone 0.71 and 0.89
    assert matching.score(task, prepared, found, {}) == {"triplet_accuracy": 1, "triplet_accuracy@2": 0.5}
    assert set(matching.baseline(task, prepared, prepared)) == {"triplet_accuracy"}


def test_the_baseline_counts_shared_words() -> None:
    prepared = matching.prepare(TASK, ROWS, VOCABULARY, CUTTING)
    # triplets: 0.96 against 0 and 0; 0 against 0. Matches: row 0 finds its own, row 1 too, and row 2 ties at 0
    assert matching.baseline(TASK, prepared, prepared) == {
        "triplet_accuracy": pytest.approx(2.5 / 3),
        "match_accuracy": pytest.approx(2.5 / 3),
    }
    pairs = matching.prepare(TASK, items(("red", "…", []), ("green", "green", [])), VOCABULARY, CUTTING)
    only = Task(name="s", kind="matching", metrics=("match_accuracy",))
    assert matching.baseline(only, pairs, pairs) == {"match_accuracy": 0.75}
