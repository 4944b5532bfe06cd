"""JSON lines and Parquet: which column is the text, and what is broken."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.corpus.parquet import read_parquet, read_parquet_sentences
from pipeline.corpus.plain import SENTENCES_A_DOCUMENT
from pipeline.errors import DataError
from pipeline.files.opening import Opened
from pipeline.tables.records import LONGEST_RECORD, read_jsonl, text_column
from pipeline.text.documents import Dropped, Record


def shown(item: Record | Dropped) -> tuple:
    return (item.id, item.reason) if isinstance(item, Dropped) else (item.id, item.title, list(item.paragraphs))


def jsonl(*lines: object, column: str | None = None) -> list[tuple]:
    """The records of lines, which are values or raw bytes."""
    data = b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    size = 7 if len(data) < 1000 else 100_000
    blocks = iter([data[at : at + size] for at in range(0, len(data), size)])
    return [shown(item) for item in read_jsonl(Opened(location="/x/f.jsonl", name="f", blocks=blocks, column=column))]


def test_json_lines_have_their_text_in_text_and_their_names_in_id_url_and_title():
    assert jsonl(
        {"text": "One.\nTwo.", "id": 7, "title": "T"},
        {"text": "Two.", "url": "https://x"},
        {"text": "Three."},
        {"text": "", "id": ""},
    ) == [
        ("f:0:7", "T", ["One.\nTwo."]),
        ("f:1:https://x", "", ["Two."]),
        ("f:2", "", ["Three."]),
        ("f:3", "", []),
    ]


def test_records_whose_ids_repeat_are_parents_of_their_own(tmp_path: Path):
    rows = [{"text": f"Row {number}.", "id": "en", "url": "https://x"} for number in range(50)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    for found in (
        read_jsonl(Opened(location="/x/f", name="f", blocks=iter([data]))),
        read_parquet(Opened(location=f"{tmp_path}/a.parquet", name="f", blocks=iter(()))),
    ):
        records = [item for item in found if isinstance(item, Record)]
        assert len({record.id for record in records}) == len({record.parent for record in records}) == 50


def test_another_column_is_named_or_the_only_one():
    assert jsonl({"text": "no", "body": "yes"}, column="body") == [("f:0", "", ["yes"])]
    assert jsonl({"content": "yes", "title": "T", "stars": 5}) == [("f:0", "T", ["yes"])]
    assert jsonl({"title": "yes"}, column="title") == [("f:0", "yes", ["yes"])]


def test_a_list_of_texts_is_paragraphs_and_null_is_empty():
    assert jsonl({"text": ["One.", "Two."]}, {"text": None}, {"text": []}) == [
        ("f:0", "", ["One.", "Two."]),
        ("f:1", "", []),
        ("f:2", "", []),
    ]


BROKEN = [
    b'{"text": "cut o',
    b"7",
    b"[1, 2]",
    b"null",
    b'"text"',
    b'{"text": 7}',
    b'{"text": {"a": "b"}}',
    b'{"text": [1]}',
    b'{"other": "x"}',
    b"[" * 100_000,
    b'{"text": ' + b"[" * 100_000,
    b"9" * 5000,
]


def test_a_broken_line_is_counted_and_passed_over():
    one, two = {"text": "One."}, {"text": "Two."}
    for broken in BROKEN:
        found = jsonl(one, broken, two)
        assert found == [("f:0", "", ["One."]), ("f:1", "broken record"), ("f:2", "", ["Two."])], broken[:40]
        assert jsonl(broken, two) == [("f:0", "broken record"), ("f:1", "", ["Two."])], broken[:40]


def test_lines_that_are_all_broken_are_all_counted():
    assert jsonl(b"{", b"7") == [("f:0", "broken record"), ("f:1", "broken record")] and jsonl() == []


def test_a_line_that_is_too_long_is_broken_and_the_next_is_read():
    long = b'{"text": "' + b"x" * LONGEST_RECORD + b'"}'
    found = jsonl({"text": "One."}, long, {"text": "Two."})
    assert found == [("f:0", "", ["One."]), ("f:1", "broken record"), ("f:2", "", ["Two."])]


def test_ids_and_titles_that_are_no_text_do_no_harm():
    assert jsonl(
        b'{"text": "x", "id": "\\ud800", "title": ["a"]}', {"text": "x", "id": "a\nb"}, {"text": "x", "id": [1]}
    ) == [
        ("f:0:?", "", ["x"]),
        ("f:1:a b", "", ["x"]),
        ("f:2", "", ["x"]),
    ]


@pytest.mark.parametrize(
    ("named", "texts", "wanted", "message"),
    [
        (
            ["id", "body"],
            ["body"],
            "txt",
            "/f has no column txt: its columns are id, body; name the text column with ::column=NAME",
        ),
        (
            ["text", "n"],
            [],
            None,
            "/f: column text holds no text: its columns are text, n; name the text column with ::column=NAME",
        ),
        (
            ["a", "b"],
            ["a", "b"],
            None,
            "/f has no column named text, and 2 other columns that may hold the text: its columns are a, b; "
            "name the text column with ::column=NAME",
        ),
        (
            ["id"],
            ["id"],
            None,
            "/f has no column named text, and no other columns that may hold the text: its columns are id; "
            "name the text column with ::column=NAME",
        ),
        (
            [],
            [],
            None,
            "/f has no column named text, and no other columns that may hold the text: it has no columns; "
            "name the text column with ::column=NAME",
        ),
    ],
)
def test_the_columns_are_named_where_none_is_the_text(
    named: list[str], texts: list[str], wanted: str | None, message: str
):
    with pytest.raises(DataError) as refused:
        text_column("/f", named, texts, wanted)
    assert str(refused.value) == message


def test_json_lines_without_a_text_column_are_refused():
    with pytest.raises(
        DataError,
        match=r"^/x/f.jsonl: column text holds no text: its columns are text; "
        r"name the text column with ::column=NAME$",
    ):
        jsonl({"text": 7})


def parquet(
    path: Path, table: pa.Table, column: str | None = None, reader=read_parquet, **options: object
) -> list[tuple]:
    pq.write_table(table, path / "a.parquet", **options)
    return read_file(path / "a.parquet", column, reader)


def read_file(path: Path, column: str | None = None, reader=read_parquet) -> list[tuple]:
    return [shown(item) for item in reader(Opened(location=str(path), name="f", blocks=iter(()), column=column))]


def test_parquet_of_the_hubs_wikipedia(tmp_path: Path):
    table = pa.table({"id": ["12", "13"], "url": ["u", "v"], "title": ["A", "B"], "text": ["One.\n\nTwo.", "Three."]})
    assert parquet(tmp_path, table) == [("f:0:12", "A", ["One.\n\nTwo."]), ("f:1:13", "B", ["Three."])]


@pytest.mark.parametrize(
    "type", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.string_view()], ids=str
)
def test_every_type_of_strings(tmp_path: Path, type: pa.DataType):
    table = pa.table({"body": pa.array(["One.", None, "One.", ""], pa.string()).cast(type), "n": [1, 2, 3, 4]})
    assert parquet(tmp_path, table) == [
        ("f:0", "", ["One."]),
        ("f:1", "", []),
        ("f:2", "", ["One."]),
        ("f:3", "", [""]),
    ]


def test_lists_of_texts_and_bytes(tmp_path: Path):
    assert parquet(tmp_path, pa.table({"text": [["One.", None, "Two."], [], None]})) == [
        ("f:0", "", ["One.", "Two."]),
        ("f:1", "", []),
        ("f:2", "", []),
    ]
    assert parquet(tmp_path, pa.table({"raw": pa.array([b"One.", b"\xff"])}), column="raw") == [
        ("f:0", "", ["One."]),
        ("f:1", "", ["\udcff"]),
    ]


def test_undecodable_strings_are_kept_apart(tmp_path: Path):
    raw = pa.array([b"caf\xe9", b"Two."]).view(pa.string())
    assert parquet(tmp_path, pa.table({"text": raw, "title": raw})) == [
        ("f:0", "caf\udce9", ["caf\udce9"]),
        ("f:1", "Two.", ["Two."]),
    ]


def test_row_groups_are_read_one_after_the_other(tmp_path: Path):
    table = pa.table({"text": [f"Row {number}." for number in range(1000)]})
    assert parquet(tmp_path, table, row_group_size=300) == [
        (f"f:{number}", "", [f"Row {number}."]) for number in range(1000)
    ]


def test_sentences_a_row_are_gathered(tmp_path: Path):
    table = pa.table({"text": [*(f"row {number} ." for number in range(SENTENCES_A_DOCUMENT)), None, "last ."]})
    first, second = parquet(tmp_path, table, reader=read_parquet_sentences)
    assert (first[0], len(first[2]), first[2][-1]) == ("f:0", SENTENCES_A_DOCUMENT, "row 499 .") and second == (
        "f:1",
        "",
        ["last ."],
    )


def test_parquet_without_rows_or_columns(tmp_path: Path):
    assert parquet(tmp_path, pa.table({"text": pa.array([], pa.string())})) == []
    with pytest.raises(
        DataError,
        match="has no column named text, and no other columns that may hold the text: it has no columns; "
        "name the text column with ::column=NAME$",
    ):
        parquet(tmp_path, pa.table({}))


def test_parquet_whose_text_is_numbers(tmp_path: Path):
    with pytest.raises(DataError, match="a.parquet: column text holds no text: its columns are text, n; name"):
        parquet(tmp_path, pa.table({"text": [1], "n": ["x"]}))


def test_what_is_no_parquet_or_cut_off_is_damaged(tmp_path: Path):
    pq.write_table(pa.table({"text": ["One."] * 100}), tmp_path / "whole.parquet")
    whole = (tmp_path / "whole.parquet").read_bytes()
    for content in (b"", b"One line of text.\n" * 9, whole[:-1], whole[: len(whole) // 2], b"PAR1PAR1"):
        (tmp_path / "b.parquet").write_bytes(content)
        for reader in (read_parquet, read_parquet_sentences):
            assert read_file(tmp_path / "b.parquet", reader=reader) == [("f", "damaged file")]


def test_a_damaged_row_group_ends_the_file_and_what_came_before_is_kept(tmp_path: Path):
    pq.write_table(
        pa.table({"text": [f"Row {number}." * 9 for number in range(900)]}),
        tmp_path / "a.parquet",
        row_group_size=300,
        use_dictionary=False,
    )
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    middle = pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(1).column(0).data_page_offset
    data[middle : middle + 40] = b"\xff" * 40
    (tmp_path / "a.parquet").write_bytes(data)
    found = read_file(tmp_path / "a.parquet")
    assert found[-1] == ("f", "damaged file") and [item[0] for item in found[:-1]] == [
        f"f:{number}" for number in range(len(found) - 1)
    ]
    assert 256 <= len(found) - 1 <= 300


def test_a_file_that_is_not_there_is_no_damage(tmp_path: Path):
    with pytest.raises(DataError, match=rf"^{tmp_path}/none.parquet cannot be read: "):
        read_file(tmp_path / "none.parquet")
