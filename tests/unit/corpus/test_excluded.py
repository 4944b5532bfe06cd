"""Documents that contain a text of --exclude are left out and counted."""

import json
from pathlib import Path

import pytest

from pipeline.corpus.prepare import finished_corpus, list_sources, prepare_listed
from pipeline.corpus.prepared import Corpus
from pipeline.errors import ConfigError, DataError
from pipeline.reporting import Report, no_op
from tests.books import SETTINGS, documents
from tests.in_process import IN_PROCESS

LEFT_OUT = ("Paragraph 3 of book 4 has words of its own.", "Paragraph 8 of book 11 has words of its own.")


def prepared(books: Path, folder: Path, *exclude: Path, report: Report = no_op) -> Corpus:
    listing = list_sources([str(books)], SETTINGS, str(folder), report, [str(file) for file in exclude])
    return finished_corpus(listing) or prepare_listed(listing, report, IN_PROCESS)


def texts(corpus: Corpus) -> set[str]:
    return {row["text"] for split in ("train", "heldout") for row in documents(corpus, split)}


def test_documents_with_an_excluded_text_are_left_out_and_counted(books: Path, corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text(f"id,text\n1,{LEFT_OUT[0].upper()}\n2,Nothing of this is there.\n3,of book\n")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.txt").write_text(LEFT_OUT[1].replace(" ", ", "))
    lines: list[str] = []
    made = prepared(books, tmp_path / "out", tmp_path / "test.csv", tmp_path / "more", report=lines.append)
    gone = texts(corpus) - texts(made)
    assert len(gone) == 2 and all(any(text in document for document in gone) for text in LEFT_OUT)
    assert texts(made) < texts(corpus) and made.dropped == corpus.dropped | {"excluded": 2}
    assert lines[0] == "exclude: 4 texts; 1 with fewer than 5 words exclude nothing"
    samples = json.loads((tmp_path / "out" / "manifest.json").read_text())["samples"]["excluded"]
    assert sorted(id for id, _ in samples) == ["04.txt.gz#0", "11.txt#2"]


def test_a_corpus_without_excluded_texts_is_what_it_was(books: Path, corpus: Corpus, tmp_path: Path) -> None:
    """And one whose texts occur nowhere has the same shards."""
    settings = json.loads(Path(corpus.folder, "manifest.json").read_text())["settings"]
    assert settings.keys() == {f"prepare.{name}" for name in vars(SETTINGS)} - {"prepare.web_timeout"}
    (tmp_path / "test.txt").write_text("Nothing of this is in the books.")
    made = prepared(books, tmp_path / "out", tmp_path / "test.txt")
    assert made.fingerprint == corpus.fingerprint and made.dropped == corpus.dropped
    assert prepared(books, tmp_path / "out", tmp_path / "test.txt") == made


def test_other_texts_are_other_settings(books: Path, tmp_path: Path) -> None:
    file = tmp_path / "test.txt"
    file.write_text("Nothing of this is in the books.")
    prepared(books, tmp_path / "out", file)
    file.write_text(LEFT_OUT[0])
    with pytest.raises(
        ConfigError, match=r"was prepared with exclude \['test.txt \w{12}'\], but exclude is now \['test"
    ):
        prepared(books, tmp_path / "out", file)
    with pytest.raises(ConfigError, match=r"was prepared with exclude \['test.txt \w{12}'\], but exclude is now None"):
        prepared(books, tmp_path / "out")


def test_files_to_exclude_are_checked_before_the_corpus_is_read(books: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"exclude .*gone.txt: no such file or folder"):
        prepared(books, tmp_path / "out", tmp_path / "gone.txt")
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(DataError, match=r"empty.txt has no text"):
        prepared(books, tmp_path / "out", tmp_path / "empty.txt")
    assert not list((tmp_path / "out").rglob("*.parquet"))
