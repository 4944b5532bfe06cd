"""Files of every form as tables of so many rows, and what is said of those that cannot be read."""

import gzip
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.corpus.prepared import Corpus
from pipeline.errors import ConfigError, DataError
from pipeline.predict.inputs import RowFile, as_column, cut_by_characters, form_of, list_inputs, parts_of, rechunked

SQUAD = {"data": [{"paragraphs": [{"context": "London is big.", "qas": [{"id": "q1", "question": "What is big?"}]}]}]}


def file(path: Path, form: str = "table") -> RowFile:
    return RowFile(location=str(path), form=form, bytes=1, stamp="1")


def rows(path: Path, form: str = "table", size: int = 2) -> list[list[dict]]:
    return [part.to_pylist() for part in parts_of(file(path, form), size)]


def written(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def test_parquet_with_a_column_twice_is_refused(tmp_path: Path) -> None:
    pq.write_table(
        pa.Table.from_arrays([pa.array(["x"]), pa.array(["y"])], names=["text", "text"]), tmp_path / "a.parquet"
    )
    with pytest.raises(DataError, match=r"a.parquet: column 'text' occurs twice; give each column its own name$"):
        rows(tmp_path / "a.parquet")


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_csv_keeps_all_columns_and_lines_in_quotes(tmp_path: Path, ending: str) -> None:
    path = written(tmp_path / f"a.{ending}", '\ufeffid,text\r\n1,"a, ""b""\nc"\r\n\r\n2,\r\n3,d\r\n')
    assert rows(path) == [[{"id": "1", "text": 'a, "b"\nc'}, {"id": "2", "text": ""}], [{"id": "3", "text": "d"}]]


def test_tsv_has_quotes_as_characters(tmp_path: Path) -> None:
    assert rows(written(tmp_path / "a.tsv", 'text\tn\n"a\t1\n')) == [[{"text": '"a', "n": "1"}]]


def test_json_lines_keep_types_and_what_has_none_is_json(tmp_path: Path) -> None:
    lines = [{"text": "a", "n": 1, "m": 1}, {"text": "b\ud800", "m": "x", "k": [1, 2]}]
    path = written(tmp_path / "a.jsonl", "\n".join(map(json.dumps, lines)) + "\n\n")
    assert rows(path) == [
        [{"text": "a", "n": 1, "m": "1", "k": None}, {"text": "b\ufffd", "n": None, "m": "x", "k": [1, 2]}]
    ]


def test_parquet_is_cut_across_its_row_groups(tmp_path: Path) -> None:
    table = pa.table({"text": [str(n) for n in range(7)], "when": pa.array(range(7), pa.timestamp("ms"))})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    found = list(parts_of(file(tmp_path / "a.parquet"), 3))
    assert [part.num_rows for part in found] == [3, 3, 1]
    assert pa.concat_tables(found).equals(table)


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 7))
def test_recut_keeps_rows_and_their_order(sizes: list[int], rows: int) -> None:
    numbers, tables = iter(range(1000)), []
    for size in sizes:
        tables.append(pa.table({"n": pa.array([next(numbers) for _ in range(size)], pa.int64())}))
    found = list(rechunked(iter(tables), rows))
    assert [n for part in found for n in part["n"].to_pylist()] == list(range(sum(sizes)))
    assert all(part.num_rows == rows for part in found[:-1]) and all(0 < part.num_rows <= rows for part in found)


def test_questions_sentences_and_lines(tmp_path: Path) -> None:
    squad = written(tmp_path / "a.json", json.dumps(SQUAD))
    assert rows(squad, "squad") == [[{"id": "q1", "question": "What is big?", "context": "London is big."}]]
    words = written(tmp_path / "a.conll", "EU B-ORG\nrejects O\n\nLondon B-LOC\n")
    assert rows(words, "words") == [[{"words": ["EU", "rejects"]}, {"words": ["London"]}]]
    assert rows(written(tmp_path / "a.txt", "one\r\n\ntwo"), "text") == [
        [{"text": "one"}, {"text": ""}],
        [{"text": "two"}],
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "a.csv",
            "text,n\na,1\nb\n",
            "{file}:3: 1 columns where the first line names 2; enclose a text that holds a separator in quotes (CSV)",
        ),
        ("a.csv", "text,text\na,1\n", "{file}: column 'text' occurs twice; give each column its own name"),
        (
            "a.jsonl",
            '{"text": "a"}\n{"text": \n',
            "{file}:2: not JSON (Expecting value: line 1 column 9 (char 8)); expected one object per line, or one "
            "list of objects",
        ),
        ("a.jsonl", "[1]\n", "{file}:1: '[1]' is not an object; expected one object per line, or one list of objects"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = written(tmp_path / name, text)
    with pytest.raises(DataError) as error:
        rows(path)
    assert str(error.value) == message.format(file=path)


def test_bytes_that_are_no_utf8_and_damaged_gzip_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"good\nb\xffd\n")
    with pytest.raises(DataError, match=r"a.txt:2: byte 0xff is not UTF-8; save the file as UTF-8$"):
        rows(tmp_path / "a.txt", "text")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"good\n" * 1000)[:-9])
    with pytest.raises(
        DataError,
        match=r"b.txt.gz cannot be read after line \d+ \(Compressed file ended before the .*\): give a plain or "
        r"compressed file that can be read$",
    ):
        rows(tmp_path / "b.txt.gz", "text")
    (tmp_path / "c.parquet").write_bytes(b"PAR1 no PAR1")
    with pytest.raises(DataError, match=r"c.parquet cannot be read as Parquet: "):
        rows(tmp_path / "c.parquet")


def test_the_form_of_a_file(tmp_path: Path) -> None:
    words = written(tmp_path / "words.txt", "EU B-ORG\nrejects O\n\n")
    assert form_of(str(words), "auto", True) == "words"
    assert form_of(str(words), "auto", False) == "text"
    assert form_of(str(words), "table", False) == "table"
    assert form_of(str(written(tmp_path / "a.json", json.dumps(SQUAD))), "auto", False) == "squad"
    assert form_of(str(written(tmp_path / "b.json", '{"text": "a"}\n')), "auto", False) == "table"
    assert [form_of(name, "auto", False) for name in ("a.CSV.gz", "s3://b/a.parquet", "a.conll")] == [
        "table",
        "table",
        "words",
    ]
    with pytest.raises(
        DataError,
        match=r"a.doc: its form is not clear from its name; end the name in .csv, .tsv, .*, .txt, or give --format "
        r"table, squad, words or text$",
    ):
        form_of(str(written(tmp_path / "a.doc", "a text\n")), "auto", False)


def test_a_json_file_without_rows_is_a_table_and_one_of_another_form_is_named(tmp_path: Path) -> None:
    for text in ("", "\n", "\ufeff", "[]", " [\n]\n"):
        path = written(tmp_path / "a.json", text)
        assert form_of(str(path), "auto", False) == "table" and rows(path) == []
    for text in (json.dumps({"text": "a"}, indent=1), "7", "[7]", '"data"'):
        with pytest.raises(DataError) as refused:
            form_of(str(written(tmp_path / "a.json", text)), "auto", False, "queries", "")
        assert str(refused.value) == (
            f"queries {tmp_path}/a.json holds neither SQuAD's questions nor objects, one per line or in a list: write "
            "one object per line"
        )


def test_files_are_listed_by_name_and_what_is_not_there_is_named(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", "c.txt"):
        written(tmp_path / name, "text\nx\n")
    assert [Path(one.location).name for one in list_inputs(str(tmp_path), "auto", False)] == ["a.csv", "b.csv", "c.txt"]
    assert [Path(one.location).name for one in list_inputs(f"{tmp_path}/*.csv", "auto", False)] == ["a.csv", "b.csv"]
    with pytest.raises(ConfigError) as error:
        list_inputs(f"{tmp_path}/*.tsv", "auto", False)
    assert (
        str(error.value)
        == f"input ({tmp_path}/*.tsv) does not exist, is an empty folder, or matches no file; give a file, a folder, "
        "or a pattern in quotes"
    )


def test_numbers_beyond_64_bits_are_kept_as_json() -> None:
    assert as_column([1, 2**70, None]).to_pylist() == ["1", str(2**70), None]


def test_of_a_prepared_corpus_the_training_documents_are_answered(tiny_corpus: Corpus, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_corpus.folder, tmp_path / "corpus")
    (folder / "manifest.json").write_text(json.dumps({"fingerprint": "0", "train": [], "heldout": []}))
    found = list_inputs(str(folder), "auto", False)
    assert [one.location for one in found] == sorted({f"{folder}/{window.shard}" for window in tiny_corpus.train})
    assert "text" in next(parts_of(found[0], 4)).column_names


def test_shards_of_a_previous_preparation_are_left_out(tmp_path: Path) -> None:
    old, new, held = (f"{number:05d}-{digest * 12}.parquet" for number, digest in ((0, "a"), (0, "b"), (1, "c")))
    for split, name in (("train", old), ("train", new), ("heldout", old), ("heldout", held)):
        (tmp_path / split).mkdir(exist_ok=True)
        written(tmp_path / split / name, "")
    manifest = {name: {} for name in ("counts", "dropped", "sources")} | {"fingerprint": "0"}
    manifest |= {"train": [[f"train/{new}", 0, 1, 1]], "heldout": [[f"heldout/{held}", 0, 1, 1]]}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    for location, expected in (
        (tmp_path, [f"train/{new}"]),
        (f"{tmp_path}/train", [f"train/{new}"]),
        (f"{tmp_path}/[th]*/*.parquet", [f"heldout/{held}", f"train/{new}"]),
    ):
        found = [Path(one.location).relative_to(tmp_path) for one in list_inputs(str(location), "table", False)]
        assert sorted(map(str, found)) == expected
    with pytest.raises(ConfigError) as refused:
        list_inputs(f"{tmp_path}/train/{old}", "table", False, "texts")
    assert str(refused.value) == (
        f"texts ({tmp_path}/train/{old}) holds only shards of a previous preparation of {tmp_path}: give the folder of "
        "the corpus"
    )
    (tmp_path / "manifest.json").unlink()
    assert len(list_inputs(f"{tmp_path}/[th]*/*.parquet", "table", False)) == 4, "no corpus: all files count"


def test_parts_are_cut_where_their_characters_pass_the_limit() -> None:
    rows = [{"a": "x" * length, "words": ["yy"] * 2, "n": 7} for length in (1, 2, 1, 40, 0)]
    pieces = list(cut_by_characters(iter([pa.Table.from_pylist(rows), pa.Table.from_pylist(rows[:1])]), 11))
    assert [piece.num_rows for piece in pieces] == [2, 1, 1, 1, 1]
    assert [row for piece in pieces for row in piece.to_pylist()] == [*rows, rows[0]]


def test_values_that_python_lacks_do_not_hinder_the_cut() -> None:
    late = pa.array([10**12] * 2, pa.timestamp("s"))  # the year 33658
    table = pa.table({"text": pa.array(["abc", "abc"]).dictionary_encode(), "when": late})
    assert [piece.num_rows for piece in cut_by_characters(iter([table]), 5)] == [1, 1]
    assert list(cut_by_characters(iter([table.select(["when"])]), 5)) == [table.select(["when"])]
