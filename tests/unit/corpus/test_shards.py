import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config.data import Preparation
from pipeline.corpus.overlaps import OVERLAP, count_overlaps, heldout_share, is_heldout, write_overlap
from pipeline.corpus.part_tables import (
    KEY_BYTES,
    PART,
    SKETCH,
    SketchedRow,
    arrow_tables,
    leading_number,
    parquet,
    part_tables,
    sort_part,
)
from pipeline.corpus.parts import Tally, least_parents, parent_hash, sketch_document
from pipeline.corpus.ranges import key_edges, sorted_range
from pipeline.corpus.shards import counts_by_source, shard_count, window_edges, without_near_duplicates, without_repeats
from pipeline.text.documents import Document
from pipeline.text.sketches import COMMON

WORDS = [f"word{number}" for number in range(1200)]


def item(text: str, id: str, parent: str = "p", source: str = "s") -> SketchedRow:
    return sketch_document(
        Document(id=id, parent=parent, title="", text=text, lines_are_sentences=False, language="en"), source
    )


def items(texts: list[str]) -> list[SketchedRow]:
    return [item(text, f"{number:03d}") for number, text in enumerate(texts)]


def table(found: list[SketchedRow]) -> pa.Table:
    return sort_part(pa.Table.from_pylist([item.row for item in found], schema=PART))


def test_the_key_of_a_row_is_the_hash_of_its_text():
    assert item("é", "1").row["key"] == hashlib.blake2b("é".encode(), digest_size=KEY_BYTES).digest()


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
    hashes = np.array([parent_hash(f"book {number}") for number in range(2000)], np.uint64)
    chosen = is_heldout(hashes, 0.1)
    assert 140 < chosen.sum() < 260
    more = is_heldout(hashes, 0.2)
    assert (more | ~chosen).all() and more.sum() > chosen.sum()
    assert not is_heldout(hashes, 0.0).any()


def test_held_out_is_the_share_of_the_hash_worked_out():
    value = int.from_bytes(hashlib.blake2b(b"emma", digest_size=8).digest(), "big")
    assert parent_hash("emma") == value
    hashes = np.array([value], np.uint64)
    assert is_heldout(hashes, value / 2**64 + 1e-6)[0] and not is_heldout(hashes, value / 2**64 - 1e-6)[0]


def test_equal_texts_stay_with_the_parent_of_the_greatest_hash():
    tallies: dict[str, Tally] = {}
    parents = sorted(("a", "b", "c"), key=parent_hash)
    found = [item("same", f"{parent}{place}", parent, f"from {parent}") for parent in parents for place in (1, 0)] + [
        item("other", "x")
    ]
    kept = without_repeats(table(found), tallies)
    assert sorted(kept["id"].to_pylist()) == sorted([f"{parents[-1]}0", "x"])
    assert {source: tally.dropped for source, tally in tallies.items()} == {
        f"from {p}": {"duplicate": 2 - (p == parents[-1])} for p in parents
    }
    assert tallies[f"from {parents[-1]}"].samples == {"duplicate": [[f"{parents[-1]}1", "same"]]}
    assert without_repeats(PART.empty_table(), tallies).num_rows == 0


@pytest.mark.parametrize("count", [1, 3, 7])
def test_ranges_of_keys_divide_the_rows_of_all_parts_in_order(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("pipeline.corpus.part_tables.GROUP_BYTES", 2_000)
    found = items([f"text {number} " + "x" * (number % 50) for number in range(400)])
    for number, share in enumerate((slice(0, 100), slice(100, 400))):
        ((rows, _),) = part_tables(found[share])
        (tmp_path / f"{number}.parquet").write_bytes(parquet(rows, "key"))
    (tmp_path / "2.parquet").write_bytes(parquet(PART.empty_table(), "key"))
    edges = [key_edges(number, count) for number in range(count)]
    assert edges[0][0] == 0 and edges[-1][1] == 2**64 and all(a[1] == b[0] for a, b in zip(edges, edges[1:]))
    tables = [
        sort_part(
            pa.concat_tables([sorted_range(f"{tmp_path}/{part}.parquet", PART, "key", *edge) for part in range(3)])
        )
        for edge in edges
    ]
    assert all(table.num_rows > 20 for table in tables)
    assert pa.concat_tables(tables)["text"].to_pylist() == [
        text for _, text in sorted((item.row["key"], item.row["text"]) for item in found)
    ]


@pytest.mark.parametrize(("parents", "expected"), [(9, 0), (10, 1), (25, 2), (40, 4), (60, 4), (1000, 4)])
def test_enough_parents_are_held_out(parents: int, expected: int) -> None:
    hashes = np.array([parent_hash(f"book {number}") for number in range(parents)], np.uint64)
    least = least_parents(hashes[::2], hashes[1::2], hashes[:3])
    assert least.tolist() == sorted(hashes.tolist())[:40]
    assert is_heldout(hashes, heldout_share(1e-9, least)).sum() == expected
    assert heldout_share(0.9, least) == 0.9 and heldout_share(0.0, least) == 0.0


def test_overlaps_count_what_others_own_and_how_much_of_it_is_common():
    half, top = 2**63, COMMON
    columns = {
        "hash": [5, 5, 5, 6, 6, 7, top, top, top + 1, top + 1],
        "size": [9, 3, 9, 9, 9, 9, 9, 9, 9, 9],
        "casing": [2, 2, 2, 2, 2, 2, 2, 2, 2, 2],
        "parent_hash": [1, half + 2, half + 1, 4, 4, 4, half + 1, 1, half + 9, half + 1],
        "place": [11, 12, 13, 13, 14, 13, 13, 11, 15, 13],
    }
    found = count_overlaps(
        pa.table({name: pa.array(column, SKETCH.field(name).type) for name, column in columns.items()}, schema=SKETCH),
        0.5,
    )
    assert found.schema == OVERLAP
    # Of 5 the held-out parent and the smaller text are not the owner; of COMMON the held-out parent is not; of the next
    # the lesser hash is not.
    assert found.to_pylist() == [
        {"place": 11, "parent_hash": 1, "shared": 2, "common": 1},
        {"place": 12, "parent_hash": half + 2, "shared": 1, "common": 1},
        {"place": 13, "parent_hash": half + 1, "shared": 1, "common": 0},
    ]
    assert count_overlaps(SKETCH.empty_table(), 0.5).num_rows == 0


def near(found: list[SketchedRow], folder: Path, **settings: float) -> tuple[list[str], dict[str, Tally]]:
    """Ids of the texts that are left, compared through the files of three ranges of hashes."""
    (folder / "parts").mkdir()
    rows, sketches = arrow_tables(found)
    (folder / "parts" / "one.sketch.parquet").write_bytes(parquet(sketches.sort_by("hash"), "hash"))
    for number in range(3):
        write_overlap(str(folder), ["one"], "plan", number, 3, settings["heldout_share"])
    every = pa.concat_tables(
        [
            sorted_range(f"{folder}/parts/plan-overlap-{number:05d}.parquet", OVERLAP, "place", 0, 2**64)
            for number in range(3)
        ]
    )
    tallies: dict[str, Tally] = {}
    kept = without_near_duplicates(sort_part(rows), every, Preparation(**settings), tallies)
    return sorted(kept["id"].to_pylist()), tallies


def test_reformatted_and_contained_texts_are_near_duplicates(tmp_path: Path):
    small, great = sorted(("x", "y"), key=parent_hash)
    whole = " ".join(WORDS)
    found = [
        item(whole, "whole", great),
        item(whole.upper().replace(" ", ", "), "shouted", small),
        item(" ".join(WORDS[300:900]), "part", small),
        item(" ".join([*WORDS[:200], *(f"new{word}" for word in WORDS)]), "little", small),
        item(" ".join(f"own{word}" for word in WORDS), "own", small),
    ]
    kept, tallies = near(found, tmp_path, heldout_share=0.0)
    assert kept == ["little", "own", "whole"]
    assert tallies["s"].dropped == {"near-duplicate": 2}


@pytest.mark.parametrize("parents", [("x", "y", "z"), ("z", "y", "x"), ("y", "z", "x")])
def test_of_copies_of_equal_size_the_one_in_capitals_goes_first(parents: tuple[str, ...], tmp_path: Path):
    copies = {
        "capitals": " ".join(WORDS).upper(),
        "small": " ".join(WORDS),
        "both": " ".join(WORDS).capitalize().replace(" word3", " Word3"),
    }
    found = [item(text, name, parent) for (name, text), parent in zip(copies.items(), parents, strict=True)]
    assert near(found, tmp_path, heldout_share=0.0)[0] == ["both"]
    (tmp_path / "two").mkdir()
    assert near(found[:2], tmp_path / "two", heldout_share=0.0)[0] == ["small"]


def test_what_the_same_parent_repeats_is_no_near_duplicate(tmp_path: Path):
    assert near([item(" ".join(WORDS), "a"), item(" ".join(WORDS) + " end", "b")], tmp_path, heldout_share=0.0)[0] == [
        "a",
        "b",
    ]


def test_held_out_texts_of_which_a_little_is_trained_on_are_left_out(tmp_path: Path):
    heldout = min((f"p{number}" for number in range(50)), key=parent_hash)
    share = (parent_hash(heldout) + 1) / 2**64 + 1e-9
    own = [f"own{word}" for word in WORDS]
    found = [
        item(" ".join(WORDS), "trained", "other"),
        item(" ".join([*WORDS[:200], *own]), "both", heldout),
        item(" ".join(f"new{word}" for word in WORDS), "fresh", heldout),
    ]
    assert near(found, tmp_path, heldout_share=share)[0] == ["fresh", "trained"]


LONG = [f"word{number}" for number in range(5_000)]


def parts_of_long(words: int) -> list[SketchedRow]:
    return [
        item(" ".join(LONG[start : start + words]), f"part {start}", f"parent {start}")
        for start in range(0, 4_000, 100)
    ]


@pytest.mark.parametrize("words", [60, 120, 250, 500, 1000])
def test_text_contained_in_a_longer_one_is_a_near_duplicate(words: int, tmp_path: Path):
    fresh = [
        item(" ".join(f"own{number}x{word}" for word in range(words)), f"own {number}", f"other {number}")
        for number in range(20)
    ]
    kept, _ = near([item(" ".join(LONG), "whole", "book"), *parts_of_long(words), *fresh], tmp_path, heldout_share=0.0)
    assert "whole" in kept and sum(id.startswith("own") for id in kept) == 20
    # Of sixty words about seven sequences are common, of 500 about sixty: too few only by chance.
    assert sum(id.startswith("part") for id in kept) <= (4 if words == 60 else 0)


@pytest.mark.parametrize("words", [60, 120, 1000])
def test_no_held_out_text_stands_whole_in_a_longer_one_that_is_trained_on(words: int, tmp_path: Path):
    book = max((f"book {number}" for number in range(99)), key=parent_hash)
    kept, _ = near(
        [item(" ".join(LONG), "whole", book), *parts_of_long(words)],
        tmp_path,
        heldout_share=parent_hash(book) / 2**64 - 1e-9,
    )
    assert kept == ["whole"]


def test_counts_of_sources():
    rows = [
        item(text, id, source=source)
        for text, id, source in (("abc", "a#0", "s"), ("é", "a#1", "s"), ("xy", "b#0", "t"))
    ]
    assert counts_by_source(table(rows)) == {
        "s": {"documents": 1, "pieces": 2, "characters": 4},
        "t": {"documents": 1, "pieces": 1, "characters": 2},
    }


def test_parts_are_cut_by_their_size(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pipeline.corpus.part_tables.TABLE_CHARACTERS", 100)
    monkeypatch.setattr("pipeline.corpus.part_tables.PART_CHARACTERS", 300)
    tables = list(
        part_tables(items([f"{number:010d} a b c d e f g h"[: 10 + 16 * (number == 3)] for number in range(75)]))
    )
    assert [rows.num_rows for rows, _ in tables] == [29, 30, 16]
    assert [sketches.num_rows for _, sketches in tables] == [2, 0, 0]
    for rows, _ in tables:
        assert (np.diff([leading_number(key) / 2**64 for key in rows["key"].to_pylist()]) > 0).all()
    assert list(part_tables([])) == []
