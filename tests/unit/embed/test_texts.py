"""Texts of input files: ids, titles, parts, queries, and rows that are refused."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config.embed import Embed, Search
from pipeline.embed import texts
from pipeline.embed.ids import require_unique_inputs
from pipeline.embed.query_files import read_queries
from pipeline.embed.texts import InputColumns, text_files, text_tables
from pipeline.errors import ConfigError, DataError
from pipeline.files import storage
from pipeline.predict.inputs import RowFile, list_inputs
from pipeline.predict.unfinished import UnfinishedParts

TEXT = InputColumns(text="text", id=None, title=None)


def written(path: Path, rows: list[dict[str, object]]) -> RowFile:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (file,) = list_inputs(str(path), "auto", tags=False)
    return file


def test_ids_and_titles_come_from_columns_or_from_the_row(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", [{"id": 7, "title": "A", "text": "one", "other": 1}, {"id": 8, "text": None}])
    (table,) = text_tables(file, "a.jsonl", TEXT, 10)
    assert table.to_pylist() == [
        {"id": "7", "text": "one", "title": "A"},
        {"id": "8", "text": None, "title": None},
    ]
    plain = written(tmp_path / "b.jsonl", [{"body": "one"}, {"body": "two"}])
    tables = list(text_tables(plain, "b.jsonl", InputColumns(text="body", id=None, title=None), 1))
    assert [table.to_pylist() for table in tables] == [
        [{"id": "b.jsonl:1", "text": "one", "title": None}],
        [{"id": "b.jsonl:2", "text": "two", "title": None}],
    ]
    assert {part.schema for part in (table, *tables)} == {
        pa.schema([(name, pa.string()) for name in ("id", "text", "title")])
    }


def test_parts_have_limited_rows_and_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "ROWS_AT_ONCE", 4)
    rows = [{"text": "x" * length} for length in (2, 3, 2, 2, 9, 20, 1, 1, 1, 1)]
    parts = list(text_tables(written(tmp_path / "a.jsonl", rows), "a", TEXT, 3, 10))
    lengths = [[len(text) for text in part["text"].to_pylist()] for part in parts]
    assert lengths == [[2, 3, 2], [2], [9], [20], [1, 1, 1], [1]]
    assert [id for part in parts for id in part["id"].to_pylist()] == [f"a:{row}" for row in range(1, 11)]


def test_columns_are_those_of_all_rows_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "ROWS_AT_ONCE", 2)
    rows: list[dict[str, object]] = [{"other": 1}, {}, {"text": "c"}, {"text": "d", "title": "D"}, {"text": "e"}]
    for order in (rows, rows[::-1]):
        parts = list(text_tables(written(tmp_path / "a.jsonl", order), "a", TEXT, 3))
        assert {tuple(part.column_names) for part in parts} == {("id", "text", "title")}
        found = [row for part in parts for row in part.to_pylist()]
        assert [row["id"] for row in found] == ["a:1", "a:2", "a:3", "a:4", "a:5"]
        assert [(row["text"], row["title"]) for row in found] == [(r.get("text"), r.get("title")) for r in order]


@pytest.mark.parametrize("place", [0, 1, 4])
def test_a_row_without_an_id_is_refused_wherever_it_is(
    place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "ROWS_AT_ONCE", 1)
    rows: list[dict[str, object]] = [{"id": str(row), "text": "a"} for row in range(5)]
    del rows[place]["id"]
    with pytest.raises(DataError, match=rf"a\.jsonl, row {place + 1}: column id has no id; fill it, or name another"):
        list(text_tables(written(tmp_path / "a.jsonl", rows), "a", TEXT, 10))


def test_titles_may_be_numbers_but_not_lists(tmp_path: Path) -> None:
    def read(titles: pa.Array, columns: InputColumns = TEXT) -> list[object]:
        pq.write_table(pa.table({"text": ["a"] * len(titles), "name": titles}), tmp_path / "a.parquet")
        (file,) = list_inputs(f"{tmp_path}/a.parquet", "auto", tags=False)
        return [title for table in text_tables(file, "a", columns, 10) for title in table["title"].to_pylist()]

    named = InputColumns(text="text", id=None, title="name")
    assert read(pa.array([1984, None]), named) == ["1984", None]
    assert read(pa.array(["x", "y"]).dictionary_encode(), named) == ["x", "y"]
    for titles, kind in (
        (pa.array([["x"]]), "list"),
        (pa.array([{"en": "x"}]), "struct"),
        (pa.array([b"\xff"]), "bin"),
    ):
        with pytest.raises(
            DataError, match=rf"rows 1 to 1: column name holds {kind}.*, which is not text; name .*--ti"
        ):
            read(titles, named)


REFUSED: dict[str, tuple[list[dict[str, object]], InputColumns, str]] = {
    "no-text": ([{"body": "a"}], TEXT, r"a\.jsonl has no column text: its columns are body; .* with --text$"),
    "no-id": ([{"text": "a"}], InputColumns(text="text", id="key", title=None), r"no column key: .* with --id$"),
    "empty-id": ([{"id": "1", "text": "a"}, {"text": "b"}], TEXT, r"a\.jsonl, row 2: column id has no id; fill it"),
    "body": (
        [{"body": 3}],
        InputColumns(text="body", id=None, title=None),
        r"column body holds int64, .* with --text$",
    ),
    "number": ([{"text": 3}], TEXT, r"rows 1 to 1: column text holds int64, which is not text; .* with --text$"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_rows_that_are_refused(case: str, tmp_path: Path) -> None:
    rows, columns, message = REFUSED[case]
    with pytest.raises(DataError, match=message):
        list(text_tables(written(tmp_path / "a.jsonl", rows), "a", columns, 10))


def test_vectors_in_the_folder_of_the_texts_are_no_texts(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", [{"text": "a"}])
    config = Embed(checkpoint="m", input=str(tmp_path), output=str(tmp_path / "vectors"))
    for name in ("manifest.json", "parts/about.json"):
        storage.write_json(f"{config.output}/{name}", {"kind": "vectors"})
    assert [file.location for file in text_files(config)] == [str(tmp_path / "a.jsonl")]
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(ConfigError, match=r"^input \(.+\) has no file except the output: give another folder$"):
        text_files(config)


def test_equal_ids_in_two_files_are_refused_before_anything_is_embedded(tmp_path: Path) -> None:
    files = [written(tmp_path / name, [{"id": "x", "text": "a"}]) for name in ("a.jsonl", "b.jsonl")]
    require_unique_inputs(files[:1], TEXT)
    with pytest.raises(DataError, match=r"^input has two texts with the id 'x': give each text an id of its own"):
        require_unique_inputs(files, TEXT)


def test_queries_in_a_folder_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bridges").mkdir()
    monkeypatch.chdir(tmp_path)
    for given in ("bridges", str(tmp_path)):
        with pytest.raises(ConfigError, match=r"\) is a folder: give a file of queries, or add a space at the end to "):
            read_queries(Search(vectors="v", queries=given))
    assert [query.text for query in read_queries(Search(vectors="v", queries="bridges "))] == ["bridges "]


def test_queries_are_a_text_or_a_file(tmp_path: Path) -> None:
    def read(given: str) -> list[tuple[str, str]]:
        return [(query.id, query.text) for query in read_queries(Search(vectors="v", queries=given))]

    assert read("why is the sky blue?") == [("1", "why is the sky blue?")]
    (tmp_path / "q.txt").write_text("one\ntwo\n")
    assert read(str(tmp_path / "q.txt")) == [("1", "one"), ("2", "two")]
    written(tmp_path / "q.jsonl", [{"id": ":7", "text": "one"}])
    assert read(str(tmp_path / "q.jsonl")) == [(":7", "one")]
    written(tmp_path / "q.jsonl", [{"id": "a", "text": "one"}])
    assert read(str(tmp_path / "q.jsonl")) == [("a", "one")]
    with pytest.raises(
        ConfigError, match=r"^queries \(none\.jsonl\) does not exist: give a file of queries, or the text"
    ):
        read("none.jsonl")
    written(tmp_path / "q.jsonl", [{"id": "a", "text": " "}])
    with pytest.raises(DataError, match=r"the query with the id a is empty; leave it out$"):
        read(str(tmp_path / "q.jsonl"))


def test_texts_of_unfinished_parts_are_counted() -> None:
    parts = UnfinishedParts()
    for part, count in (((0, 0), 2.5), ((0, 1), 4.0), ((0, 0), 5.0), ((0, 1), 0.0)):
        parts.report(part, count)
    assert parts.texts() == 5.0
