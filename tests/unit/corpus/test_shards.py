import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import Preparation
from pipeline.corpus.parts import KEY_BYTES, PART, Tally, in_order, part_bytes, part_tables, row
from pipeline.corpus.shards import is_heldout, key_range, shard_count, window_edges, without_duplicates
from pipeline.text.documents import Document


def rows(texts: list[str]) -> list[dict]:
    return [row(Document(id=f"{number:03d}", parent="p", title="", text=text, lines_are_sentences=False), "s") for number, text in enumerate(texts)]


def test_the_key_of_a_row_is_the_hash_of_its_text():
    assert rows(["é"])[0]["key"] == hashlib.blake2b("é".encode(), digest_size=KEY_BYTES).digest()


def test_windows_are_closed_when_full_and_a_short_rest_joins_the_last():
    assert window_edges([], 10) == []
    assert window_edges([3], 10) == [(0, 1)]
    assert window_edges([6, 6, 6, 6], 10) == [(0, 2), (2, 4)]
    assert window_edges([6, 6, 4], 10) == [(0, 3)]
    assert window_edges([6, 6, 5], 10) == [(0, 2), (2, 3)]
    assert window_edges([30, 10, 4], 10) == [(0, 1), (1, 3)]


@given(st.lists(st.integers(1, 50)), st.integers(1, 60))
def test_windows_hold_every_row_once_in_order(lengths: list[int], limit: int):
    edges = window_edges(lengths, limit)
    assert [row for start, stop in edges for row in range(start, stop)] == list(range(len(lengths)))
    assert all(2 * sum(lengths[start:stop]) >= limit for start, stop in edges[1:])


def test_the_number_of_shards():
    settings = Preparation(window_characters=1000, piece_characters=100, windows_per_shard=4)
    assert [shard_count(characters, settings) for characters in (0, 4000, 9999, 10_001)] == [1, 1, 2, 3]


def test_held_out_rows_go_by_their_parents():
    parents = [f"book {number}" for number in range(2000)]
    chosen = is_heldout(pa.chunked_array([parents, parents[::-1]]), 0.1)
    assert (chosen[:2000] == chosen[2000:][::-1]).all()
    assert 140 < chosen[:2000].sum() < 260
    more = is_heldout(pa.chunked_array([parents]), 0.2)
    assert (more | ~chosen[:2000]).all() and more.sum() > chosen[:2000].sum()
    assert not is_heldout(pa.chunked_array([parents]), 0.0).any()


def test_held_out_is_the_share_of_the_hash_worked_out():
    value = int.from_bytes(hashlib.blake2b(b"emma", digest_size=8).digest(), "big") / 2**64
    assert is_heldout(pa.chunked_array([["emma"]]), value + 1e-6)[0] and not is_heldout(pa.chunked_array([["emma"]]), value - 1e-6)[0]


def test_of_the_same_text_the_first_id_is_kept():
    tally = Tally()
    table = in_order(pa.Table.from_pylist(rows(["a", "b", "a", "c", "a", "b"])[::-1], schema=PART))
    kept = without_duplicates(table, tally)
    assert sorted(zip(kept["id"].to_pylist(), kept["text"].to_pylist())) == [("000", "a"), ("001", "b"), ("003", "c")]
    assert tally.dropped == {"duplicate": 3}
    assert sorted(tally.samples["duplicate"]) == [["002", "a"], ["004", "a"], ["005", "b"]]
    assert without_duplicates(PART.empty_table(), tally).num_rows == 0


@pytest.mark.parametrize("count", [1, 3, 7])
def test_ranges_of_keys_divide_the_rows_of_all_parts_in_order(tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pipeline.corpus.parts.GROUP_BYTES", 2_000)
    texts = [f"text {number} " + "x" * (number % 50) for number in range(400)]
    (tmp_path / "parts").mkdir()
    for number, share in enumerate((slice(0, 100), slice(100, 400))):
        for table in part_tables(rows(texts)[share]):
            (tmp_path / "parts" / f"{number}.parquet").write_bytes(part_bytes(table))
    found = [key_range(str(tmp_path), ["0.parquet", "1.parquet"], number, count) for number in range(count)]
    whole = pa.concat_tables(found)
    assert whole["key"].to_pylist() == sorted(row["key"] for row in rows(texts))
    assert all(table.num_rows > 20 for table in found)
    assert whole["text"].to_pylist() == [text for _, text in sorted((row["key"], row["text"]) for row in rows(texts))]


def test_parts_are_cut_by_their_size(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pipeline.corpus.parts.TABLE_CHARACTERS", 100)
    monkeypatch.setattr("pipeline.corpus.parts.PART_CHARACTERS", 300)
    tables = list(part_tables(rows([f"{number:010d}" for number in range(75)])))
    assert [table.num_rows for table in tables] == [30, 30, 15]
    for table in tables:
        assert (np.diff([int.from_bytes(key, "big") / 2**128 for key in table["key"].to_pylist()]) > 0).all()
    assert list(part_tables([])) == []
