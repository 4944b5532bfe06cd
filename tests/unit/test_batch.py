import dataclasses
import math
from typing import Any

import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline.batch import (
    PAIR_LABELS,
    Batch,
    MaskedBatch,
    NextSentenceBatch,
    PassagesBatch,
    SentenceOrderBatch,
    StringBatch,
    TaskBatch,
    TextsBatch,
    collate,
    pack,
    unpack,
)
from pipeline.text.schema import EXAMPLE, ROW

ROWS = [
    {"ids": [2, 7, 3, 8, 3], "first_length": 3, "masked_positions": [1, 3], "masked_labels": [9, 8], "not_next": True},
    {"ids": [2, 5, 5, 3], "first_length": 4, "masked_positions": [], "masked_labels": [], "not_next": False},
    {"ids": [2, 3], "first_length": 2, "masked_positions": [0], "masked_labels": [4], "not_next": True},
]


def table(rows: list[dict], chunks: int = 1) -> pa.Table:
    rows = [row | {"document_a": 0, "document_b": 1} for row in rows]
    size = -(-len(rows) // chunks)
    return pa.concat_tables(
        [pa.Table.from_pylist(rows[i : i + size], schema=EXAMPLE) for i in range(0, len(rows), size)]
    )


def assert_equal(left, right) -> None:
    for field in dataclasses.fields(left):
        a, b = getattr(left, field.name), getattr(right, field.name)
        assert torch.equal(a, b) and a.dtype == b.dtype if isinstance(a, torch.Tensor) else a == b, field.name


def test_three_rows_by_hand():
    batch = collate(table(ROWS))
    assert batch.ids_T.tolist() == [2, 7, 3, 8, 3, 2, 5, 5, 3, 2, 3]
    assert batch.segments_T.tolist() == [0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0]
    assert batch.positions_T.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 0, 1]
    assert batch.offsets.tolist() == [0, 5, 9, 11]
    assert batch.maximum_length == 5
    assert batch.masked_positions_M.tolist() == [1, 3, 9]
    assert batch.masked_labels_M.tolist() == [9, 8, 4]
    assert batch.not_next_N.tolist() == [1, 0, 1]
    assert (batch.tokens, batch.sequences, batch.masked) == (11, 3, 3)


def test_labels_of_pairs_are_those_that_the_rows_have():
    ordered = [
        row | {"not_next": None, "swapped": swapped} for row, swapped in zip(ROWS, (False, True, True), strict=True)
    ]
    batch = collate(table(ordered, chunks=2))
    assert type(batch) is SentenceOrderBatch
    assert batch.swapped_N.tolist() == [0, 1, 1] and batch.swapped_N.dtype == torch.int64
    batch = collate(table([row | {"not_next": None} for row in ROWS], chunks=2))
    assert type(batch) is MaskedBatch
    assert_equal(batch.to("cpu"), batch)
    assert type(collate(table(ROWS))) is NextSentenceBatch


def test_types():
    batch = collate(table(ROWS))
    assert batch.offsets.dtype == torch.int32
    for name in ("ids_T", "segments_T", "positions_T", "masked_positions_M", "masked_labels_M", "not_next_N"):
        assert getattr(batch, name).dtype == torch.int64, name
    assert type(batch.maximum_length) is int


def test_chunks_and_slices_change_nothing():
    whole = collate(table(ROWS))
    assert_equal(collate(table(ROWS, chunks=3)), whole)
    assert_equal(collate(table(ROWS).to_batches()[0]), whole)
    surrounded = [ROWS[0], *ROWS, ROWS[2]]
    assert_equal(collate(table(surrounded).slice(1, 3)), whole)
    assert_equal(collate(table(surrounded, chunks=3).slice(1, 3)), whole)
    assert_equal(collate(table(surrounded).to_batches()[0].slice(1, 3)), whole)


def test_further_columns_are_ignored():
    rows = [
        row | {"document_a": 0, "document_b": 1, "epoch": 3, "window": 4, "row": i, "rows_in_window": 9}
        for i, row in enumerate(ROWS)
    ]
    assert_equal(collate(pa.Table.from_pylist(rows, schema=ROW)), collate(table(ROWS)))


def test_no_rows_is_refused():
    with pytest.raises(ValueError, match="^a batch needs at least one row$"):
        collate(table(ROWS).slice(0, 0))


def test_to_moves_every_tensor():
    moved = collate(table(ROWS)).to("meta")
    assert {value.device.type for value in vars(moved).values() if isinstance(value, torch.Tensor)} == {"meta"}
    assert moved.maximum_length == 5
    assert_equal(collate(table(ROWS)).to("cpu"), collate(table(ROWS)))


@st.composite
def example_rows(draw) -> dict:
    ids = draw(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=12))
    masked = sorted(draw(st.sets(st.integers(0, len(ids) - 1))))
    return {
        "ids": ids,
        "first_length": draw(st.integers(1, len(ids))),
        "masked_positions": masked,
        "masked_labels": [draw(st.integers(0, 99)) for _ in masked],
        "not_next": draw(st.booleans()),
    }


@given(st.lists(example_rows(), min_size=1, max_size=7), st.integers(1, 3))
def test_every_row_can_be_read_back(rows, chunks):
    batch = collate(table(rows, chunks))
    for i, row in enumerate(rows):
        start, end = batch.offsets[i].item(), batch.offsets[i + 1].item()
        inside = (batch.masked_positions_M >= start) & (batch.masked_positions_M < end)
        assert batch.ids_T[start:end].tolist() == row["ids"]
        assert batch.segments_T[start:end].sum().item() == len(row["ids"]) - row["first_length"]
        assert batch.segments_T[start:end].tolist() == sorted(batch.segments_T[start:end].tolist())
        assert batch.positions_T[start:end].tolist() == list(range(len(row["ids"])))
        assert (batch.masked_positions_M[inside] - start).tolist() == row["masked_positions"]
        assert batch.masked_labels_M[inside].tolist() == row["masked_labels"]
        assert batch.not_next_N[i].item() == row["not_next"]
    assert batch.maximum_length == max(len(row["ids"]) for row in rows)


NUMBERS = torch.arange(15)
PART: dict[str, Any] = {
    "masked_positions_M": NUMBERS[:4],
    "masked_labels_M": NUMBERS[4:8],
    "not_next_N": torch.tensor([1, 0, 1]),
    "swapped_N": torch.tensor([0, 1, 1]),
    "texts": ("a", "b", "c"),
    "keys": NUMBERS[:9].view(3, 3),
    "labels": torch.tensor([math.nan, 0.5, -1.0]),
    "teacher": torch.zeros(0),
    "passages": torch.tensor([1, 2]),
}
"""Values of the fields that some batches have."""


def every_kind() -> list[Batch]:
    """Return a batch of each class, of three sequences of five tokens."""
    tokens = {"ids_T": NUMBERS, "segments_T": NUMBERS + 1, "positions_T": NUMBERS + 2, "maximum_length": 5}
    tokens["offsets"] = torch.arange(4, dtype=torch.int32) * 5
    classes, kinds = [Batch], list[type[Batch]]()
    while classes:
        kinds.append(classes.pop())
        classes += kinds[-1].__subclasses__()
    names = [[field.name for field in dataclasses.fields(kind) if field.name in PART] for kind in kinds]
    return [kind(**tokens, **{name: PART[name] for name in own}) for kind, own in zip(kinds, names, strict=True)]


def test_no_field_is_none_because_another_kind_needs_it() -> None:
    found = {type(batch): [name for name, value in vars(batch).items() if value is None] for batch in every_kind()}
    assert found.pop(TextsBatch) == ["places"]  # only rows of different numbers of texts have them
    wanted = {Batch, MaskedBatch, NextSentenceBatch, SentenceOrderBatch, StringBatch, TaskBatch, PassagesBatch}
    assert found.keys() == wanted and not any(found.values())
    assert PAIR_LABELS.keys() == {NextSentenceBatch, SentenceOrderBatch}


@pytest.mark.parametrize("batch", every_kind(), ids=lambda batch: type(batch).__name__)
def test_every_tensor_is_a_field_that_moves_and_is_in_the_one_copy(batch: Batch, monkeypatch) -> None:
    """A tensor inside another field would be left on the CPU."""
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)  # there is no GPU to pin memory for
    assert all(isinstance(value, torch.Tensor | int | tuple | None) for value in vars(batch).values())
    moved, copied = batch.to("meta"), unpack(batch, pack(batch))
    assert type(moved) is type(copied) is type(batch)
    for name, value in vars(batch).items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(getattr(copied, name), value, rtol=0, atol=0, equal_nan=True)
            assert getattr(moved, name).is_meta
        else:
            assert getattr(copied, name) == getattr(moved, name) == value


def test_the_one_copy_of_a_single_row_is_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)  # there is no GPU to pin memory for
    tokens = {"ids_T": NUMBERS[:5], "segments_T": NUMBERS[1:6], "positions_T": NUMBERS[2:7], "maximum_length": 5}
    offsets = torch.tensor([0, 5], dtype=torch.int32)
    batch = TaskBatch(**tokens, offsets=offsets, labels=torch.tensor([0.5]), teacher=torch.zeros(0))
    assert_equal(unpack(batch, pack(batch)), batch)
