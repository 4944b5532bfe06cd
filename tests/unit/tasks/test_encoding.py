"""Rows of tasks as ids, by hand; tests/parity/test_task_encoding.py holds them against transformers."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import ConfigError
from pipeline.tasks import encoding
from pipeline.tasks.encoding import Encoded, encode, mean_logits
from pipeline.tasks.schema import ENCODED, TEXTS
from pipeline.tasks.task import Task
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.splitting import SPECIALS
from pipeline.text.vocabulary import Vocabulary

VOCABULARY = Vocabulary(tokens=(*SPECIALS, "a", "b", "##b", "[", "]", "mask"), lowercase=True)
UNK, CLS, SEP, A, B, BB = 1, 2, 3, 5, 6, 7
CLASSES = Task(name="sentiment", kind="classification", labels=("neutral", "bad", "good"), metrics=("accuracy",))
VALUES = Task(name="likeness", kind="regression", metrics=("pearson",), maximum_length=6)


def encoded(
    task: Task,
    *rows: tuple[str, str | None, str | None],
    maximum_length: int | None = None,
    passages: int | None = None,
) -> Encoded:
    texts = pa.Table.from_pylist(
        [{"id": "x", "first": a, "second": b, "label": label} for a, b, label in rows], schema=TEXTS
    )
    return encode(task, texts, CachedTokenizer(VOCABULARY), maximum_length, passages)


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
    with pytest.raises(ValueError, match=r"label 'sea' is not among the labels of topics \(art, law, war\)"):
        encoded(task, ("a", None, '["sea"]'))


def test_a_literal_special_token_is_text():
    assert encoded(CLASSES, ("[MASK]", None, None)).rows["ids"].to_pylist() == [[CLS, 8, 10, 9, SEP]]


def test_the_longer_text_is_cut_first_and_the_cut_rows_are_counted():
    found = encoded(VALUES, ("a a a a a", None, "4.25"), ("a a a", "b", "0"), ("a a a", "b b b", "-1"), ("a", "b", "5"))
    assert found.rows["ids"].to_pylist() == [
        [CLS, A, A, A, A, SEP],
        [CLS, A, A, SEP, B, SEP],
        [CLS, A, SEP, B, B, SEP],
        [CLS, A, SEP, B, SEP],
    ]
    assert found.rows["label"].to_pylist() == [4.25, 0.0, -1.0, 5.0] and found.cut == 3
    assert encoded(VALUES, ("a a a", "b", None), maximum_length=7).cut == 0


def test_rows_in_parts_are_the_same(monkeypatch: pytest.MonkeyPatch):
    rows = [("a " * n, "b" if n % 2 else None, "good") for n in range(1, 12)]
    whole = encoded(CLASSES, *rows).rows
    monkeypatch.setattr(encoding, "ROWS_AT_ONCE", 4)
    assert encoded(CLASSES, *rows).rows.equals(whole) and whole["row"].to_pylist() == list(range(11))


def test_what_a_task_does_not_know_is_refused():
    with pytest.raises(ValueError, match=r"label 'great' is not among the labels of sentiment \(neutral, bad, good\)"):
        encoded(CLASSES, ("a", None, "great"))
    with pytest.raises(ValueError, match=r"maximum_length \(2\) must be at least 3"):
        encoded(CLASSES, ("a", None, "good"), maximum_length=2)


def test_a_long_text_becomes_rows_that_overlap():
    """Room for four tokens, of which two are the next row's first."""
    found = encoded(VALUES, ("a b b b a a b", None, "4.25"), ("a a a a", None, "1"), ("", None, "2"), passages=2)
    assert found.rows["ids"].to_pylist() == [
        [CLS, A, B, B, B, SEP],
        [CLS, B, B, A, A, SEP],
        [CLS, A, A, B, SEP],
        [CLS, A, A, A, A, SEP],
        [CLS, SEP],
    ]
    assert found.rows["first_length"].to_pylist() == [6, 6, 5, 6, 2]
    assert found.rows["row"].to_pylist() == [0, 0, 0, 1, 2] and found.rows["label"].to_pylist() == [
        4.25,
        4.25,
        4.25,
        1.0,
        2.0,
    ]
    assert (found.cut, found.passages) == (0, 1)


def test_of_a_long_pair_the_second_becomes_rows_and_the_first_is_cut_beyond_half():
    """Room for six tokens: the first keeps three, or more where the second leaves more."""
    rows = [
        ("a a", "b b b b a b", None),
        ("a a a a b", "b a b b b", None),
        ("a a a a a a a", "b", None),
        ("a a a", "b b b", None),
        ("a b a b a b a b", None, None),
    ]
    found = encoded(VALUES, *rows, maximum_length=9, passages=1)
    assert found.rows["ids"].to_pylist() == [
        [CLS, A, A, SEP, B, B, B, B, SEP],
        [CLS, A, A, SEP, B, A, B, SEP],
        [CLS, A, A, A, SEP, B, A, B, SEP],
        [CLS, A, A, A, SEP, B, B, B, SEP],
        [CLS, A, A, A, A, A, SEP, B, SEP],
        [CLS, A, A, A, SEP, B, B, B, SEP],
        [CLS, A, B, A, B, A, B, A, SEP],
        [CLS, A, B, SEP],
    ]
    assert found.rows["row"].to_pylist() == [0, 0, 1, 1, 2, 3, 4, 4] and found.rows["first_length"].to_pylist() == [
        4,
        4,
        5,
        5,
        7,
        5,
        9,
        4,
    ]
    assert (found.cut, found.passages) == (2, 3)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(0, 25)), min_size=1, max_size=6), st.integers(3, 4)
)
def test_passages_hold_every_token_of_texts_and_seconds(sizes: list[tuple[int, int | None]], stride: int):
    """Firsts of up to nine tokens fit in half of the room for eighteen."""
    rows = [("a " * a, None if b is None else "b " * b, "1") for a, b in sizes]
    found = encoded(VALUES, *rows, maximum_length=21, passages=stride)
    places, ids = np.array(found.rows["row"].to_pylist()), found.rows["ids"].to_pylist()
    assert found.cut == 0 and max(map(len, ids)) <= 21 and sorted(set(places.tolist())) == list(range(len(rows)))
    for place, (a, b) in enumerate(sizes):
        own = [row for row, at in zip(ids, places) if at == place]
        assert sum(row.count(B) for row in own) == (b or 0) + stride * (len(own) - 1) and all(
            row.count(A) == a for row in own
        )
    assert encoded(VALUES, *rows, maximum_length=60, passages=stride).rows.equals(
        encoded(VALUES, *rows, maximum_length=60).rows
    )


@pytest.mark.parametrize(
    ("second", "passages", "words"),
    [
        (
            None,
            4,
            r"cutting\.stride \(4\) must be at least 0 and less than 4, the tokens of a passage that fit in "
            r"cutting\.maximum_length \(6\) with 2 special tokens: lower .*",
        ),
        (None, -1, r"cutting\.stride \(-1\) must be at least 0 and less than 4, the tokens .*"),
        (
            "b",
            2,
            r"cutting\.stride \(2\) must be at least 0 and less than 2, the tokens of a passage that fit in "
            r"cutting\.maximum_length \(6\) with 3 special tokens and a first text: .*",
        ),
    ],
)
def test_passages_that_share_all_they_have_are_refused(second: str | None, passages: int, words: str):
    with pytest.raises(ConfigError, match=f"^{words}$"):
        encoded(VALUES, ("a", second, None), passages=passages)


def test_logits_of_passages_are_averaged_in_the_order_of_texts():
    logits = np.array([[1.0, 0.0], [5.0, 6.0], [3.0, 4.0], [0.0, 1.0]], np.float32)
    assert mean_logits(np.array([2, 0, 2, 7]), logits).tolist() == [[5.0, 6.0], [2.0, 2.0], [0.0, 1.0]]
    assert mean_logits(np.array([1, 1, 0]), np.array([1.0, 4.0, 7.0])).tolist() == [7.0, 2.5]
