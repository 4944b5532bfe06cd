"""Rows of tasks as ids, by hand; tests/parity/test_task_encoding.py holds them against transformers."""

import pyarrow as pa
import pytest

from pipeline.tasks import encoding
from pipeline.tasks.encoding import Encoded, encode
from pipeline.tasks.schema import ENCODED, TEXTS
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import SPECIALS, Vocabulary
from pipeline.text.wordpiece import WordPiece

VOCABULARY = Vocabulary(tokens=(*SPECIALS, "a", "b", "##b", "[", "]", "mask"), lowercase=True)
UNK, CLS, SEP, A, B, BB = 1, 2, 3, 5, 6, 7
CLASSES = Task(name="sentiment", kind="classification", labels=("neutral", "bad", "good"), metrics=("accuracy",))
VALUES = Task(name="likeness", kind="regression", metrics=("pearson",), maximum_length=6)


def encoded(task: Task, *rows: tuple[str, str | None, str | None], maximum_length: int | None = None) -> Encoded:
    texts = pa.Table.from_pylist([{"id": "x", "first": a, "second": b, "label": label} for a, b, label in rows], schema=TEXTS)
    return encode(task, texts, WordPiece(VOCABULARY), maximum_length)


def test_a_text_or_a_pair_stands_between_special_tokens_and_labels_are_numbers():
    found = encoded(CLASSES, ("A bb", None, "good"), ("a", "b ab", "neutral"), ("a", "", None))
    assert found.rows.schema == ENCODED and found.cut == 0
    assert found.rows.to_pylist() == [
        {"ids": [CLS, A, B, BB, SEP], "first_length": 5, "label": 2.0, "labels": None, "row": 0},
        {"ids": [CLS, A, SEP, B, A, BB, SEP], "first_length": 3, "label": 0.0, "labels": None, "row": 1},
        {"ids": [CLS, A, SEP, SEP], "first_length": 3, "label": None, "labels": None, "row": 2},
    ]


def test_the_labels_of_a_multilabel_task_are_0_and_1_for_each_class():
    task = Task(name="topics", kind="multilabel", labels=("art", "law", "war"), metrics=("micro_f1",))
    found = encoded(task, ("a", None, '["war", "art"]'), ("a", None, "[]"), ("a", None, None)).rows
    assert found["labels"].to_pylist() == [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0], None] and found["label"].null_count == 3
    with pytest.raises(ValueError, match=r"label 'sea' is none of the labels of topics \(art, law, war\)"):
        encoded(task, ("a", None, '["sea"]'))


def test_a_literal_special_token_is_text():
    assert encoded(CLASSES, ("[MASK]", None, None)).rows["ids"].to_pylist() == [[CLS, 8, 10, 9, SEP]]


def test_the_longer_text_is_cut_first_and_the_cut_rows_are_counted():
    found = encoded(VALUES, ("a a a a a", None, "4.25"), ("a a a", "b", "0"), ("a a a", "b b b", "-1"), ("a", "b", "5"))
    assert found.rows["ids"].to_pylist() == [[CLS, A, A, A, A, SEP], [CLS, A, A, SEP, B, SEP], [CLS, A, SEP, B, B, SEP], [CLS, A, SEP, B, SEP]]
    assert found.rows["label"].to_pylist() == [4.25, 0.0, -1.0, 5.0] and found.cut == 3
    assert encoded(VALUES, ("a a a", "b", None), maximum_length=7).cut == 0


def test_rows_in_parts_are_the_same(monkeypatch: pytest.MonkeyPatch):
    rows = [("a " * n, "b" if n % 2 else None, "good") for n in range(1, 12)]
    whole = encoded(CLASSES, *rows).rows
    monkeypatch.setattr(encoding, "ROWS_AT_ONCE", 4)
    assert encoded(CLASSES, *rows).rows.equals(whole) and whole["row"].to_pylist() == list(range(11))


def test_what_a_task_does_not_know_is_refused():
    with pytest.raises(ValueError, match=r"label 'great' is none of the labels of sentiment \(neutral, bad, good\)"):
        encoded(CLASSES, ("a", None, "great"))
    with pytest.raises(ValueError, match=r"maximum_length \(2\) must be at least 3"):
        encoded(CLASSES, ("a", None, "good"), maximum_length=2)
