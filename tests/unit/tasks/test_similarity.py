"""Pairs whose texts are encoded alone: rows, answers, scores and the baseline of shared words."""

import math

import numpy as np
import pyarrow as pa
import pytest

from pipeline import batch
from pipeline.config.cutting import Truncation
from pipeline.errors import ConfigError, DataError
from pipeline.tasks import similarity
from pipeline.tasks.metrics.lengths import of_whole_vectors, with_lengths
from pipeline.tasks.schema import SECOND_LENGTH, TEXTS
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary

WORDS = ("red", "green", "blue")
VOCABULARY = Vocabulary(tokens=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS), lowercase=True)
TASK = Task(name="s", kind="similarity", metrics=("spearman", "pearson"))
CUTTING = Truncation(maximum_length=8)
PAIRS = [("red", "red green", "5"), ("blue blue blue blue blue blue blue", "green", "0.5"), ("green", "red", "2")]


def texts(pairs: list[tuple[str, str | None, str | None]]) -> pa.Table:
    rows = [{"id": str(n), "first": a, "second": b, "label": label} for n, (a, b, label) in enumerate(pairs)]
    return pa.Table.from_pylist(rows, schema=TEXTS)


def test_each_text_of_a_row_is_a_sequence_of_its_own() -> None:
    prepared = similarity.prepare(TASK, texts(PAIRS), VOCABULARY, CUTTING)
    assert prepared.rows["ids"].to_pylist() == [
        [2, 5, 3, 2, 5, 6, 3],
        [2, 7, 7, 7, 7, 7, 7, 3, 2, 6, 3],  # cut at 8 tokens
        [2, 6, 3, 2, 5, 3],
    ]
    assert prepared.rows["first_length"].to_pylist() == [3, 8, 3]
    assert prepared.rows[SECOND_LENGTH].to_pylist() == [4, 3, 3]
    assert prepared.rows["label"].to_pylist() == [5, 0.5, 2] and prepared.rows["row"].to_pylist() == [0, 1, 2]
    assert prepared.notes == ("1 texts cut at 8 tokens",)


def test_a_batch_has_two_sequences_and_one_label_per_row() -> None:
    assert batch.SECOND_LENGTH == SECOND_LENGTH
    rows = similarity.prepare(TASK, texts(PAIRS), VOCABULARY, CUTTING).rows
    found = batch.collate_labelled(rows.take([2, 0]))
    assert found.offsets.tolist() == [0, 3, 6, 9, 13] and found.maximum_length == 4
    assert found.ids_T.tolist() == [2, 6, 3, 2, 5, 3, 2, 5, 3, 2, 5, 6, 3]
    assert found.positions_T.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 3] and not found.segments_T.any()
    assert found.labels.tolist() == [2, 5]


def test_scores_are_correlations_of_cosines_and_labels() -> None:
    prepared = similarity.prepare(TASK, texts(PAIRS), VOCABULARY, CUTTING)
    cosines = similarity.answers(TASK, prepared, [np.array([0.9]), np.array([-0.5]), np.array([0.1])], CUTTING)
    assert similarity.score(TASK, prepared, cosines, {})["spearman"] == 1
    assert similarity.score(TASK, prepared, -cosines, {})["spearman"] == -1
    assert not similarity.collapsed(TASK, prepared, cosines)
    assert similarity.collapsed(TASK, prepared, np.full((3, 1), 0.7))
    assert similarity.collapsed(TASK, prepared, np.full((3, 1), np.nan))


def test_truncated_vectors_have_scores_of_their_own() -> None:
    task, prepared = with_lengths(TASK, [2, 4]), similarity.prepare(TASK, texts(PAIRS), VOCABULARY, CUTTING)
    assert task.metrics == ("spearman", "pearson", "spearman@2", "pearson@2", "spearman@4", "pearson@4")
    assert with_lengths(task, [2]) == with_lengths(TASK, [2]) and of_whole_vectors(task) == TASK
    logits = [np.array([0.9, -0.9, 0.1]), np.array([-0.5, 0.5, 0.2]), np.array([0.1, -0.1, 0.3])]
    scores = similarity.score(task, prepared, similarity.answers(task, prepared, logits, CUTTING), {})
    assert [scores[name] for name in ("spearman", "spearman@2", "spearman@4")] == [1, -1, pytest.approx(-0.5)]
    assert set(similarity.baseline(task, prepared, prepared)) == {"spearman", "pearson"}


def test_the_baseline_counts_shared_words() -> None:
    cosines = similarity.word_cosines(["Red, red green", "red", "…"], ["red", "blue", "red"])
    assert cosines.tolist() == [pytest.approx(2 / math.sqrt(5)), 0, 0]
    prepared = similarity.prepare(TASK, texts(PAIRS), VOCABULARY, CUTTING)
    # word cosines 0.71, 0, 0 against scores 5, 0.5, 2: ranks 3, 1.5, 1.5 against 3, 1, 2
    assert similarity.baseline(TASK, prepared, prepared)["spearman"] == pytest.approx(math.sqrt(3) / 2)


def test_a_single_text_and_passages_are_refused() -> None:
    with pytest.raises(DataError, match=r"^s compares pairs of texts: name the column of the second text with --pair$"):
        similarity.prepare(TASK, texts([("red", None, "1")]), VOCABULARY, CUTTING)
    with pytest.raises(ConfigError, match=r"^cutting\.passages \(True\) would give a text several vectors: leave cutt"):
        similarity.prepare(TASK, texts(PAIRS), VOCABULARY, Truncation(maximum_length=8, passages=True))
