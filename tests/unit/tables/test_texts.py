import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.errors import DataError
from pipeline.tables.texts import texts_of

ONE, TWO = "The first text has six words.", "The second, in quotes, has seven words."


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.txt", f"{ONE}\r\n\n{TWO}\n{ONE}\n"),
        ("t.md", f"{ONE}\n{TWO}"),
        ("t.tsv", f"id\ttext\n1\t{ONE}\n2\t{TWO}\n"),
        ("without-header.tsv", f"1\t{ONE}\n2\t{TWO}\n"),
        ("t.csv", f'id,text,label\n1,{ONE},yes\n2,"{TWO}",no\n'),
        ("t.jsonl", f'{{"text": "{ONE}", "label": "yes"}}\n\n{{"text": "{TWO}", "label": "no"}}\n'),
        ("t.json", f'{{"data": [{{"context": "{ONE}", "qas": [{{"context": "{TWO}", "id": "a"}}]}}]}}'),
    ],
)
def test_texts_are_lines_cells_or_strings_without_ids_and_labels(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content.encode()))
    assert texts_of(str(tmp_path / name)) == texts_of(str(tmp_path / f"{name}.gz")) == [ONE, TWO]


def test_parquet(tmp_path: Path) -> None:
    table = pa.table({"number": [1, 2], "text": [ONE, None], "choices": [[TWO, "no"], []], "label": ["a", "b"]})
    pq.write_table(table, tmp_path / "t.parquet")
    assert texts_of(str(tmp_path / "t.parquet")) == [ONE, TWO, "no"]


def test_half_a_surrogate_pair_of_json_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(r'["The words of a post \ud83d\ude00 and half \ud83d"]')
    assert texts_of(str(tmp_path / "t.json")) == ["The words of a post \U0001f600 and half \ufffd"]


def test_files_without_text_and_unreadable_ones_are_refused(tmp_path: Path) -> None:
    for name, content, message in (
        ("empty.txt", b"\n \n", "empty.txt has no text: give a file with a text of 5 words or more"),
        ("ids.csv", b"id,label\n1,yes\n", "ids.csv has no text"),
        ("bad.jsonl", b'{"text": "a"}\n{"text', r"bad.jsonl:2: not JSON \("),
        ("latin.txt", "caf\xe9".encode("latin-1"), "latin.txt:1: byte 0xe9 is not UTF-8; save the file as UTF-8"),
        ("no.parquet", b"PAR1", "no.parquet cannot be read as Parquet"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=message):
            texts_of(str(tmp_path / name))
    with pytest.raises(DataError, match="gone.txt does not exist"):
        texts_of(str(tmp_path / "gone.txt"))
