"""Forms in which people have their tables."""

import bz2
import gzip
import json
import lzma
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.errors import DataError
from pipeline.files import opening
from pipeline.predict.inputs import RowFile, form_of, parts_of
from pipeline.tables.content import content_of
from pipeline.tables.readers import rows_in
from pipeline.tables.recognise import kind_of
from pipeline.tables.separated import separator_of
from pipeline.tasks.tagging import Sentence, read_sentences
from tests.refusals import refusal

COLUMNS = ("text", "label")
ROWS = [("a, b", "1"), ("c", "2")]


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


PACKED = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd}


def trained_on(path: Path) -> list[tuple[str, ...]]:
    return [tuple(map(str, values)) for _, values in rows_in(str(path), COLUMNS)]


def answered(path: Path) -> list[tuple[str, ...]]:
    file = RowFile(location=str(path), form=form_of(str(path), "auto", False), bytes=1, stamp="1")
    return [tuple(str(row[name]) for name in COLUMNS) for part in parts_of(file, 9) for row in part.to_pylist()]


@pytest.mark.parametrize("ending", PACKED)
def test_every_compression_is_read_by_its_name_or_its_first_bytes(ending: str, tmp_path: Path) -> None:
    packed = PACKED[ending](b'text,label\n"a, b",1\nc,2\n')
    for name in (f"a.csv{ending}", "plain.csv"):
        (tmp_path / name).write_bytes(packed)
        assert trained_on(tmp_path / name) == answered(tmp_path / name) == ROWS
    (tmp_path / f"wrong.csv{'.gz' if ending == '.zst' else '.zst'}").write_bytes(packed)
    assert [trained_on(path) for path in tmp_path.glob("wrong.*")] == [ROWS]
    (tmp_path / f"cut.csv{ending}").write_bytes(packed[:-6])
    with pytest.raises(DataError, match=r"cannot be read \(.*\): give a plain or compressed file that can be read$"):
        content_of(str(tmp_path / f"cut.csv{ending}"))
    pq.write_table(pa.table({"text": ["a, b", "c"], "label": [1, 2]}), tmp_path / "a.parquet")
    (tmp_path / f"a.parquet{ending}").write_bytes(PACKED[ending]((tmp_path / "a.parquet").read_bytes()))
    assert trained_on(tmp_path / f"a.parquet{ending}") == answered(tmp_path / f"a.parquet{ending}") == ROWS


def test_a_table_that_expands_too_far_is_refused_without_a_setting_of_another_job(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(opening, "HARMLESS_BYTES", 1000)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"text,label\n" + b"a" * 500_000))
    words = "a.csv.gz is more than 200 times as large when it is decompressed: decompress it, and give the plain file"
    for read in (trained_on, answered):
        assert refusal(read, tmp_path / "a.csv.gz") == f"{tmp_path}/{words}"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", 'label;text\n1;"a, b"\n2;c\n'),
        ("a.csv", "label;text\n1;a, b\n2;c\n"),
        ("a.csv", "\ufefflabel\ttext\r\n1\ta, b\r\n2\tc\r\n"),
        ("a.csv", '"label"|"text"\n1|a, b\n2|c\n'),
        ("a.csv", 'sep=;\nlabel;text\n1;"a, b"\n2;c\n'),
        ("a.csv", 'text,label\r"a, b",1\rc,2\r'),
        ("a.csv", 'text,label\n"a, b",1\nc,2\n\ufeff\n'),
        ("a.tsv", "text\tlabel\na, b\t1\nc\t2\n\ufeff"),
        ("a.jsonl", '{"text": "a, b", "label": 1}\n{"text": "c", "label": 2}\n\ufeff\n'),
        ("a.json", '[{"text": "a, b", "label": 1}, {"text": "c", "label": 2}]'),
        ("a.json", json.dumps([{"text": "a, b", "label": 1}, {"text": "c", "label": 2}], indent=2)),
        ("a.jsonl", '\n[\n{"text": "a, b", "label": 1},\n{"text": "c", "label": 2}\n]\n'),
    ],
)
def test_training_and_answers_read_the_same_rows(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(text.encode())
    assert kind_of(str(tmp_path / name)) == form_of(str(tmp_path / name), "auto", False) == "table"
    assert trained_on(tmp_path / name) == answered(tmp_path / name) == ROWS


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"text,label\na,1\nb\n", "{file}:3: 1 columns where the first line names 2; enclose a text that "),
        ("a.tsv", b"text\tlabel\na\t1\t2\n", "{file}:2: 3 columns where the first line names 2; enclose a text that "),
        ("a.csv", b'text,label\n"a" b,1\n', "{file}:2: quotes are broken in the row that begins here ("),
        ("a.csv", b"text,label\na,1\n\xff,1\n", "{file}:3: byte 0xff is not UTF-8; save the file as UTF-8"),
        ("a.csv", b"\xef\xbb\xbftext,l\xfe\na,1\n", "{file}:1: byte 0xfe is not UTF-8; save the file as UTF-8"),
        ("a.csv", b"text,label,text\na,1,b\n", "{file}: column 'text' occurs twice; give each column its own name"),
        ("a.jsonl", b'{"text": "a", "label": 1}\n{"text"\n', "{file}:2: not JSON (Expecting ':' delimiter: line 1 "),
        ("a.jsonl", b'{"text": "a", "label": 1}\n[1]\n', "{file}:2: '[1]' is not an object; expected one object per "),
        ("a.json", b'[{"text": "a", "label": 1}, 2]', "{file}:2: '2' is not an object; expected one object per line"),
        ("a.json", b'[{"text": "a", "label": 1}', "{file}: not JSON (Expecting ',' delimiter: line 1 column 27 "),
        ("a.csv.gz", gzip.compress(b"text,label\na,1\n", mtime=0)[:-6], "{file} cannot be read after line 2 (Comp"),
        ("a.parquet", b"", "{file} is empty: give a file with rows"),
        ("a.parquet", b"PAR1", "{file} cannot be read as Parquet: "),
    ],
)
def test_an_error_reads_the_same_in_every_job(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    for read in (trained_on, answered):
        assert refusal(read, tmp_path / name).startswith(message.format(file=tmp_path / name)), read


def test_a_txt_of_objects_is_json_and_another_is_tab_separated(tmp_path: Path) -> None:
    for text in (
        "text\tlabel\na, b\t1\nc\t2\n",
        '\n{"text": "a, b", "label": 1}\n{"text": "c", "label": 2}\n',
        '[\n{"text": "a, b", "label": 1},\n{"text": "c", "label": 2}]\n',
    ):
        (tmp_path / "a.txt").write_text(text)
        file = RowFile(location=str(tmp_path / "a.txt"), form="table", bytes=1, stamp="1")
        found = [tuple(str(row[name]) for name in COLUMNS) for part in parts_of(file, 9) for row in part.to_pylist()]
        assert found == trained_on(tmp_path / "a.txt") == ROWS


def test_a_comma_divides_before_anything_else() -> None:
    assert [separator_of(line) for line in ("a,b", "a;b", "a;b,c", "text", '"a;b",c', "a|b", "")] == [
        ",",
        ";",
        ",",
        ",",
        ",",
        "|",
        ",",
    ]


def test_a_file_without_a_header_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("I liked it,1\nI did not,0\n")
    with pytest.raises(
        DataError,
        match=r"a.csv has no column text: its columns are I liked it, 1; name yours with --text, --pair and --label "
        r"\(no header line\? put one before the rows\)$",
    ):
        trained_on(tmp_path / "a.csv")


def test_a_byte_order_mark_on_a_line_of_its_own_is_no_word(tmp_path: Path) -> None:
    """As at the end of the development file of WNUT 2017."""
    (tmp_path / "dev.conll").write_bytes("\ufeffStabilized\tO\nBob\tB-person\n\nok\tO\n\n\ufeff\n".encode())
    assert read_sentences(str(tmp_path / "dev.conll")) == [
        Sentence(words=("Stabilized", "Bob"), tags=("O", "B-person")),
        Sentence(words=("ok",), tags=("O",)),
    ]


@pytest.mark.parametrize("name", ["eng.testa", "words", "a.txt", "a.data", "a.iob.bz2"])
def test_tagged_words_are_the_same_kind_for_scores_and_answers(name: str, tmp_path: Path) -> None:
    content = b"EU B-ORG\nrejects O\n\nLondon B-LOC\n"
    (tmp_path / name).write_bytes(bz2.compress(content) if name.endswith("bz2") else content)
    assert kind_of(str(tmp_path / name)) == "conll" and form_of(str(tmp_path / name), "auto", True) == "words"
