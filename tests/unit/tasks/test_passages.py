"""Whole texts as rows: what a row has of its passages, what is left out, and which settings are refused."""

import pyarrow as pa
import pytest

from pipeline import batch
from pipeline.batch import collate_labelled
from pipeline.config.cutting import PassagePooling, Truncation
from pipeline.config.task_kind import Kind
from pipeline.errors import ConfigError
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.passages import whole_texts
from pipeline.tasks.prepared import resolved_cutting
from pipeline.tasks.schema import ENCODED, PASSAGE_LENGTHS, TEXTS
from pipeline.tasks.task import Task
from tests.unit.tasks.test_kinds import CUTTING, VOCABULARY, texts

TASK = Task(name="c", kind="classification", labels=("no", "yes"), metrics=("accuracy",))
POOLED = Truncation(maximum_length=8, stride=2, passages=True, passage_pooling="max", maximum_passages=3)
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def one_text(words: str, second: str | None = None, label: str = "yes") -> dict[str, str | None]:
    return {"id": "0", "first": words, "second": second, "label": label}


def test_a_row_has_the_first_passages_of_a_text() -> None:
    items = pa.Table.from_pylist([one_text("a b", label="no"), one_text(" ".join(LETTERS)), one_text("")], TEXTS)
    prepared = KINDS["classification"].prepare(TASK, items, VOCABULARY, POOLED)
    # Passages of 6 letters, of which the last 2 come again: 26 letters are 6 passages, of which 3 are kept.
    assert prepared.rows[PASSAGE_LENGTHS].to_pylist() == [[4], [8, 8, 8], [2]]
    assert prepared.rows["row"].to_pylist() == [0, 1, 2] and prepared.rows["label"].to_pylist() == [0, 1, 1]
    cls, sep, a = (VOCABULARY.tokens.index(token) for token in ("[CLS]", "[SEP]", "a"))
    ids = prepared.rows["ids"].to_pylist()
    assert ids[0] == [cls, a, a + 1, sep] and ids[2] == [cls, sep]
    assert ids[1] == [token for first in (0, 4, 8) for token in (cls, *range(a + first, a + first + 6), sep)]
    assert prepared.notes == (
        "1 in several passages of 8 tokens",
        "1 longer than 3 passages, of which 3 passages are left out (--cutting.maximum-passages reads more)",
    )
    assert prepared.cut == 1


def test_passages_become_sequences_of_a_batch() -> None:
    items = pa.Table.from_pylist([one_text("x y", "a b c d e f g"), one_text("x", "b")], TEXTS)
    cutting = Truncation(maximum_length=8, stride=1, passages=True, passage_pooling="attention")
    prepared = KINDS["classification"].prepare(TASK, items, VOCABULARY, cutting)
    assert batch.PASSAGE_LENGTHS == PASSAGE_LENGTHS
    found = collate_labelled(prepared.rows)
    # x and y are read with every part of the second text: a b c, c d e and e f g.
    assert found.offsets.tolist() == [0, 8, 16, 24, 29] and found.passages.tolist() == [3, 1]
    assert found.segments_T.tolist() == [0, 0, 0, 0, 1, 1, 1, 1] * 3 + [0, 0, 0, 1, 1]
    assert found.positions_T.tolist() == [*range(8)] * 3 + [*range(5)]
    assert found.labels.tolist() == [1, 1] and found.maximum_length == 8
    assert collate_labelled(prepared.rows.slice(1)).passages.tolist() == [1], "a slice of a table has its own rows"


def test_short_texts_are_rows_as_without_passages() -> None:
    items = texts(["no", "yes", "yes"])
    plain = KINDS["classification"].prepare(TASK, items, VOCABULARY, CUTTING)
    pooled = KINDS["classification"].prepare(
        TASK, items, VOCABULARY, Truncation(maximum_length=16, stride=3, passages=True, passage_pooling="max")
    )
    assert pooled.rows.select(ENCODED.names).equals(plain.rows) and pooled.notes == ()


def test_no_texts_are_no_rows() -> None:
    rows, longer, left_out = whole_texts(ENCODED.empty_table(), 3)
    assert (rows.num_rows, longer, left_out) == (0, 0, 0) and PASSAGE_LENGTHS in rows.column_names


@pytest.mark.parametrize("pooling", ["max", "attention"])
def test_settings_that_do_not_fit_are_refused(pooling: PassagePooling) -> None:
    with pytest.raises(
        ConfigError,
        match=rf"^cutting\.passage_pooling \({pooling}\) pools the passages of long texts, but cutting\.passages is "
        r"False: add --cutting\.passages, or leave passage_pooling out$",
    ):
        Truncation(passage_pooling=pooling)
    with pytest.raises(
        ConfigError,
        match=r"^cutting\.maximum_passages \(8\) is for cutting\.passage_pooling max and attention, but "
        r"passage_pooling is logits: leave maximum_passages out, or choose one of these$",
    ):
        Truncation(passages=True, maximum_passages=8)
    with pytest.raises(ConfigError, match=r"^cutting\.maximum_passages \(0\) must be at least 1"):
        Truncation(passages=True, passage_pooling=pooling, maximum_passages=0)


@pytest.mark.parametrize("kind", ["tags", "spans", "similarity", "matching"])
def test_kinds_without_passages_are_refused(kind: Kind) -> None:
    task = Task(name="t", kind=kind, metrics=("f1",))
    cutting = Truncation(passages=True, passage_pooling="max")
    with pytest.raises(
        ConfigError,
        match=r"^cutting\.passage_pooling \(max\) is for classification, multilabel, regression, but t is of kind "
        rf"{kind}: leave the setting out$",
    ):
        resolved_cutting(cutting, task, 512)
    assert resolved_cutting(cutting, TASK, 512).passage_pooling == "max"
