import dataclasses
import math

import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline.batch import Batch, collate, pack, unpack
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
    assert batch.not_next_N is None and batch.swapped_N.tolist() == [0, 1, 1] and batch.swapped_N.dtype == torch.int64
    batch = collate(table([row | {"not_next": None} for row in ROWS], chunks=2))
    assert batch.not_next_N is None and batch.swapped_N is None
    assert_equal(batch.to("cpu"), batch)
    assert collate(table(ROWS)).swapped_N is None


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


@pytest.mark.parametrize("rows", [1, 3])
def test_one_copy_has_all_tensors(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)  # there is no GPU to pin memory for
    numbers = torch.arange(5 * rows)
    batch = Batch(
        ids_T=numbers,
        segments_T=numbers + 1,
        positions_T=numbers + 2,
        offsets=torch.arange(rows + 1, dtype=torch.int32),
        maximum_length=5,
        masked_positions_M=torch.zeros(0, dtype=torch.int64),
        masked_labels_M=torch.zeros(0, dtype=torch.int64),
        labels=torch.tensor([math.nan, 0.5, -1.0][:rows]),
        keys=torch.arange(3 * rows).view(rows, 3),
    )
    copied = unpack(batch, pack(batch))
    for name, value in vars(batch).items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(getattr(copied, name), value, rtol=0, atol=0, equal_nan=True)
        else:
            assert getattr(copied, name) == value
