"""Recognise the kind of a file by its name and content."""

import gzip
import json
from pathlib import Path

import pytest

from pipeline.errors import DataError
from pipeline.tables.recognise import kind_of

CONLL = "-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects VBZ O\n\nLondon NNP B-LOC\n"
SQUAD = json.dumps({"version": "1.1", "data": []}, indent=1)


KNOWN = [
    ("a.csv", "", "table"),
    ("A.TSV.gz", "", "table"),
    ("a.tsv", "EU\tO\n\nAPC\tB\ngene\tI-x\n", "conll"),
    ("a.tsv", "word\ttag\nEU\tO\n\nAPC\tB\n", "table"),
    ("a.tsv", "EU\tO\nAPC\tB\n", "table"),
    ("a.jsonl", SQUAD, "table"),
    ("a.ndjson", "", "table"),
    ("a.parquet", "", "table"),
    ("a.json", SQUAD, "squad"),
    ("a.json", '\n{"text": "x"}\n{"text": "y"}\n', "table"),
    ("a.json", '{"data": "x", "label": 1}', "table"),
    ("a.conll", "", "conll"),
    ("a.iob", "", "conll"),
    ("a.bio", "", "conll"),
    ("a.txt", CONLL, "conll"),
    ("eng.train", CONLL.replace("\n", "\r\n"), "conll"),
    ("testa", "\ufeffa\tO\n \t\nb\tO", "conll"),
]


def test_files_are_known(tmp_path: Path):
    found = []
    for name, content, _ in KNOWN:
        (tmp_path / name).write_text(content, newline="")
        found.append((name, content, kind_of(str(tmp_path / name))))
    assert found == KNOWN


def test_compressed_files_are_known_by_their_content(tmp_path: Path):
    for name, content, kind in (("eng.train.gz", CONLL, "conll"), ("dev-v1.1.json.gz", SQUAD, "squad")):
        (tmp_path / name).write_bytes(gzip.compress(content.encode()))
        assert kind_of(str(tmp_path / name)) == kind


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", b"Two words.\n\nThree words here.\n"),
        ("a.txt", b"EU B-ORG\nrejects O\n"),
        ("a.txt", b"one\n\nword\n"),
        ("a.txt", b"text\tlabel\na b\t1\n"),
        ("a.txt", b"-DOCSTART- O\n\n"),
        ("a.json", b"[1, 2]"),
        ("a.json", b"[" * 100_000),
        ("a.json", b"a O\n\nb O\n"),
        ("a.png", b"\x89PNG\r\n\x1a\n\xff\xfe"),
    ],
)
def test_what_is_none_of_them_is_told_what_is_known(tmp_path: Path, name: str, content: bytes):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as error:
        kind_of(str(tmp_path / name))
    assert str(error.value) == (
        f"the format of {tmp_path / name} cannot be recognised by its name or its content. Give one of these: a table "
        "(.csv, .tsv, .jsonl, .ndjson, .parquet, or .json with one object per line or a list of objects); "
        'SQuAD (.json, one object with a list "data"); or CoNLL (.conll, .conllu, .iob, .bio, .iob2, .bio2, or any '
        "other file with a word and its tags on each line and blank lines between sentences)"
    )


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(DataError, match=r"gone.txt does not exist$"):
        kind_of(str(tmp_path / "gone.txt"))
