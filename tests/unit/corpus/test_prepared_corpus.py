"""Contents of a prepared corpus, whatever the order and place in which its texts are read."""

import bz2
import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.data import Preparation
from pipeline.corpus.parts import parent_hash
from pipeline.corpus.prepare import prepare
from pipeline.corpus.prepared import Corpus, load_corpus, read_window
from pipeline.errors import DataError
from pipeline.reporting import no_op
from pipeline.text.schema import DOCUMENT
from tests.books import BOOKS, SETTINGS, batch_records, documents, quiet_prepare, write_books
from tests.in_process import InProcessExecutor


def test_every_text_is_there_once_in_windows_of_the_asked_size(corpus: Corpus):
    train, heldout = documents(corpus, "train"), documents(corpus, "heldout")
    texts = [row["text"] for row in train + heldout]
    lines = [line for text in texts for line in text.split("\n")]
    assert sorted(lines) == sorted(
        f"Paragraph {place} of book {number} has words of its own." for number in range(BOOKS) for place in range(10)
    )
    assert max(map(len, texts)) <= 200
    for window in corpus.train:
        table = read_window(corpus, window)
        assert table.schema == DOCUMENT and table.num_rows == window.documents
        assert sum(map(len, table["text"].to_pylist())) == window.characters and window.characters < 1000 + 200 + 500
    assert sorted({window.shard[:12] for window in corpus.train}) == ["train/00000-", "train/00001-", "train/00002-"]
    assert all(window.characters < 125 + 200 + 63 for window in corpus.heldout)


def test_ids_titles_and_sources(corpus: Corpus, books: Path):
    row = next(row for row in documents(corpus, "train") + documents(corpus, "heldout") if row["id"] == "08.txt.gz#0")
    assert (row["parent"], row["title"], row["source"], row["lines_are_sentences"], row["language"]) == (
        "08.txt.gz",
        "Book 8",
        str(books),
        False,
        "en",
    )
    assert row["text"].startswith("Paragraph 0 of book 8 has")


def test_held_out_books_are_whole(corpus: Corpus):
    train, heldout = ({row["parent"] for row in documents(corpus, split)} for split in ("train", "heldout"))
    assert train.isdisjoint(heldout) and len(train | heldout) == BOOKS and len(heldout) >= 2
    assert len({"07.txt", "zz-again.txt"} & (train | heldout)) == 1


def test_sixty_books_hold_out_four_whatever_the_share(tmp_path: Path) -> None:
    (tmp_path / "sixty").mkdir()
    for number in range(60):
        (tmp_path / "sixty" / f"{number:02d}.txt").write_text(
            f"Paragraph of book {number} with words of its own, and some more."
        )
    found = quiet_prepare([tmp_path / "sixty"], tmp_path / "out", replace(SETTINGS, heldout_share=0.01))
    assert len({row["parent"] for row in documents(found, "heldout")}) == 4 and found.counts["documents"] == 60
    assert load_corpus(str(tmp_path / "out")) == found
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["settings"]["prepare.heldout_share"] == 0.01


def test_counts(corpus: Corpus):
    every = [*corpus.train, *corpus.heldout]
    assert corpus.dropped == {"duplicate": 3, "too short": 1}
    assert corpus.counts == {
        "files": BOOKS + 2,
        "documents": BOOKS,
        "pieces": 3 * BOOKS,
        "characters": sum(window.characters for window in every),
        "windows": len(every),
        "heldout_pieces": sum(window.documents for window in corpus.heldout),
        "heldout_characters": sum(window.characters for window in corpus.heldout),
        "heldout_windows": len(corpus.heldout),
    }
    samples = json.loads(Path(corpus.folder, "manifest.json").read_text())["samples"]
    again = max(("07.txt", "zz-again.txt"), key=lambda parent: -parent_hash(parent))
    assert samples["too short"] == [["tiny.txt#0", "Too short."]] and samples["duplicate"][0][0] == f"{again}#0"
    assert pickle.loads(pickle.dumps(corpus)) == corpus == load_corpus(corpus.folder)
    assert sorted(path.name for path in Path(corpus.folder).iterdir() if path.name[0] != ".") == [
        "heldout",
        "manifest.json",
        "parts",
        "train",
    ]


def test_the_corpus_does_not_depend_on_place_batches_of_files_or_order_of_tasks(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("pipeline.corpus.parts.BATCH_FILES", 5)
    moved = write_books(tmp_path / "elsewhere" / "books")
    other = prepare([str(moved)], SETTINGS, str(tmp_path / "out"), no_op, InProcessExecutor(seed=1))
    assert other.fingerprint == corpus.fingerprint and other.train == corpus.train and other.heldout == corpus.heldout
    assert [row["text"] for row in documents(other, "train")] == [row["text"] for row in documents(corpus, "train")]


def test_other_text_gives_another_fingerprint(corpus: Corpus, tmp_path: Path):
    books = write_books(tmp_path / "books")
    (books / "07.txt").write_text((books / "07.txt").read_text().replace("own", "Own", 1))
    assert quiet_prepare([books], tmp_path / "out").fingerprint != corpus.fingerprint


def test_near_duplicates_are_dropped_across_sources_and_the_language_is_kept(tmp_path: Path):
    text = [f"word{number}" for number in range(600)]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "book.txt").write_text(
        "\n".join(" ".join(text[start : start + 20]) for start in range(0, 600, 20))
    )
    (tmp_path / "b" / "buch.txt").write_text(" ".join(text).title())
    (tmp_path / "b" / "own.txt").write_text(" ".join(f"own{word}" for word in text))
    settings = Preparation(window_characters=10_000, piece_characters=5000, heldout_share=0.0)
    found = quiet_prepare([tmp_path / "a", f"{tmp_path}/b::language=de"], tmp_path / "out", settings)
    assert found.dropped["near-duplicate"] >= 1 and found.counts["documents"] == 2
    assert {row["parent"]: row["language"] for row in documents(found, "train")}["own.txt"] == "de"


def test_several_sources_of_several_formats(tmp_path: Path):
    (tmp_path / "wiki").write_text(
        '<doc id="1" url="u" title="Cat">\nCat\n\nThe cat sat on the mat in the sun.\n</doc>\n<doc id="2" '
        'url="u" title="Dog">\nThe dog is'
    )
    (tmp_path / "lines").write_text(
        "One sentence of the first.\nAnother of the first.\n\nThe second document has one.\n"
    )
    found = quiet_prepare(
        [tmp_path / "wiki", f"{tmp_path}/lines::format=sentences"],
        tmp_path / "out",
        replace(SETTINGS, heldout_share=0.0),
    )
    assert {
        (row["id"], row["title"], row["text"], row["lines_are_sentences"]) for row in documents(found, "train")
    } == {
        ("wiki:0#0", "Cat", "The cat sat on the mat in the sun.", False),
        ("lines:0#0", "", "One sentence of the first.\nAnother of the first.", True),
        ("lines:1#0", "", "The second document has one.", True),
    }
    assert (found.dropped, found.heldout) == ({"broken record": 1}, ())


def test_a_multistream_dump_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = (
        "<page><title>T{0}</title><ns>0</ns><id>{0}</id><revision><text>Der [[Text|Artikel]] Nummer {0} hat "
        "ein paar eigene Worte.</text></revision></page>"
    )
    streams = [
        '<mediawiki xml:lang="de"><siteinfo></siteinfo>',
        *(page.format(number) for number in range(1, 7)),
        "</mediawiki>",
    ]
    dump = tmp_path / "dewiki-pages-articles-multistream.xml.bz2"
    dump.write_bytes(b"".join(bz2.compress(stream.encode()) for stream in streams))
    monkeypatch.setattr("pipeline.corpus.inputs.RANGE_BYTES", 300)
    found = quiet_prepare([dump], tmp_path / "out", replace(SETTINGS, heldout_share=0.0))
    assert sorted(row["text"] for row in documents(found, "train")) == [
        f"Der Artikel Nummer {number} hat ein paar eigene Worte." for number in range(1, 7)
    ]
    assert {row["language"] for row in documents(found, "train")} == {"de"} and found.counts["files"] == 1
    assert sum(len(record["files"]) for record in batch_records(tmp_path / "out").values()) > 1


def test_missing_and_damaged_corpora(own: Path, corpus: Corpus, tmp_path: Path):
    with pytest.raises(DataError, match="does not hold a prepared corpus"):
        load_corpus(str(tmp_path / "nothing"))
    found = load_corpus(str(own))
    (own / found.train[0].shard).write_bytes(b"PAR1 but no more")
    with pytest.raises(DataError, match=f"^{own}/{found.train[0].shard} cannot be read .*prepare it again$"):
        read_window(found, found.train[0])
    (own / "manifest.json").write_text("{")
    with pytest.raises(DataError, match="manifest.json cannot be read"):
        load_corpus(str(own))
