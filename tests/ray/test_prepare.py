import bz2
import gzip
import json
import os
import pickle
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from ray.data import DataContext

from jobs.prepare import main
from pipeline.config.data import Preparation
from pipeline.config.jobs import Pretrain
from pipeline.config.prepare import Prepare
from pipeline.corpus.inputs import InputFile, list_files
from pipeline.corpus.parts import parent_hash
from pipeline.corpus.prepare import finished_corpus, list_sources, prepare
from pipeline.corpus.prepared import Corpus, load_corpus, read_window
from pipeline.corpus.sources import Source
from pipeline.corpus.tasks import relay_reports, run_tasks
from pipeline.errors import ConfigError, DataError
from pipeline.text.schema import DOCUMENT
from pipeline.train.run_data import find_corpus, prepared_corpus
from pipeline.workflows.prepare import prepare as prepare_job

pytestmark = pytest.mark.usefixtures("local_ray")

SETTINGS = Preparation(
    window_characters=1000,
    windows_per_shard=4,
    piece_characters=200,
    minimum_characters=20,
    heldout_share=0.2,
    near_duplicates=None,
)
BOOKS = 30


def write_books(folder: Path) -> Path:
    """30 books of 10 paragraphs of about 50 characters, one more that repeats a book, and one that is too short."""
    folder.mkdir(parents=True)
    for number in range(BOOKS):
        paragraphs = [f"Paragraph {place} of book {number} has words of its own." for place in range(10)]
        content = "\n".join([f"Title: Book {number}", *paragraphs]).encode()
        if number % 2:
            (folder / f"{number:02d}.txt").write_bytes(content)
        else:
            (folder / f"{number:02d}.txt.gz").write_bytes(gzip.compress(content))
    (folder / "zz-again.txt").write_bytes((folder / "07.txt").read_bytes())
    (folder / "tiny.txt").write_text("Too short.")
    return folder


def documents(corpus: Corpus, split: str) -> list[dict]:
    return [row for window in getattr(corpus, split) for row in read_window(corpus, window).to_pylist()]


def quiet_prepare(sources: list, folder: Path, settings: Preparation = SETTINGS) -> Corpus:
    return prepare([str(source) for source in sources], settings, str(folder), report=lambda line: None)


def finished(sources: list[str], settings: Preparation, folder: str) -> Corpus | None:
    return finished_corpus(list_sources(sources, settings, folder, print))


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_books(tmp_path_factory.mktemp("data") / "books")


@pytest.fixture(scope="module")
def corpus(local_ray: None, books: Path, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return quiet_prepare([books], tmp_path_factory.mktemp("out") / "corpus")


def test_sixty_books_hold_out_four_whatever_the_share(local_ray: None, tmp_path: Path) -> None:
    (tmp_path / "sixty").mkdir()
    for number in range(60):
        (tmp_path / "sixty" / f"{number:02d}.txt").write_text(
            f"Paragraph of book {number} with words of its own, and some more."
        )
    found = quiet_prepare([tmp_path / "sixty"], tmp_path / "out", replace(SETTINGS, heldout_share=0.01))
    assert len({row["parent"] for row in documents(found, "heldout")}) == 4 and found.counts["documents"] == 60
    assert load_corpus(str(tmp_path / "out")) == found
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["settings"]["prepare.heldout_share"] == 0.01


@pytest.fixture
def own(corpus: Corpus, tmp_path: Path) -> Path:
    """Return a copy of the prepared corpus, for tests that change it."""
    return Path(shutil.copytree(corpus.folder, tmp_path / "own"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """Yield (folder, URL) of a web server."""
    folder = tmp_path / "served"
    folder.mkdir()
    found = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder))
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{found.server_port}"
    found.shutdown()
    found.server_close()


class Handler(SimpleHTTPRequestHandler):
    """A file server that has a file which can be asked about and not be had; of dumps it serves ranges, and counts how
    many at once.
    """

    lock: ClassVar[threading.Lock] = threading.Lock()
    open: ClassVar[int] = 0
    most: ClassVar[int] = 0
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        if "broken" in self.path:
            self.send_error(500)
        elif "Range" in self.headers and "dump" in self.path:
            self.counted(1)
            self.send_range(*self.headers["Range"].removeprefix("bytes=").split("-"))
        else:
            super().do_GET()

    def counted(self, change: int) -> None:
        with self.lock:
            Handler.open += change
            Handler.most = max(Handler.most, Handler.open)

    def send_range(self, first: str, last: str) -> None:
        """Send a range slowly, so that two requests overlap."""
        self.asked.append(f"{first}-{last}")
        data = Path(self.translate_path(self.path)).read_bytes()
        found = data[int(first) : int(last or len(data)) + 1]
        time.sleep(0.3)
        self.send_response(206)
        self.send_header("Last-Modified", self.date_time_string(int(os.stat(self.translate_path(self.path)).st_mtime)))
        self.send_header("Content-Length", str(len(found)))
        self.send_header("Content-Range", f"bytes {first}-{int(first) + len(found) - 1}/{len(data)}")
        self.end_headers()
        self.counted(-1)  # before the last byte, which lets the reader go on
        self.wfile.write(found)

    def log_message(self, *_: object) -> None:
        pass


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


def test_the_corpus_does_not_depend_on_place_or_batches_of_files(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("pipeline.corpus.parts.BATCH_FILES", 5)
    moved = write_books(tmp_path / "elsewhere" / "books")
    other = quiet_prepare([moved], tmp_path / "out")
    assert other.fingerprint == corpus.fingerprint and other.train == corpus.train and other.heldout == corpus.heldout
    assert [row["text"] for row in documents(other, "train")] == [row["text"] for row in documents(corpus, "train")]


def test_other_text_gives_another_fingerprint(corpus: Corpus, tmp_path: Path):
    books = write_books(tmp_path / "books")
    (books / "07.txt").write_text((books / "07.txt").read_text().replace("own", "Own", 1))
    assert quiet_prepare([books], tmp_path / "out").fingerprint != corpus.fingerprint


def test_an_interrupted_preparation_resumes_from_finished_tasks(corpus: Corpus, books: Path, tmp_path: Path):
    def stop_after(stage: str):
        def report(line: str) -> None:
            if stage in line:
                raise KeyboardInterrupt

        return report

    folder = tmp_path / "out"
    for stage in ("files", "shards"):
        with pytest.raises(KeyboardInterrupt):
            prepare([str(books)], SETTINGS, str(folder), stop_after(stage))
        with pytest.raises(DataError, match="does not hold a prepared corpus"):
            load_corpus(str(folder))
    for path in folder.glob("parts/*.json"):  # what was done is taken as it is
        report = json.loads(path.read_text())
        report["tallies"].setdefault(str(books), {})["dropped"] = {
            "kept " + ("part" if "parts" in report else "shard"): 1
        }
        path.write_text(json.dumps(report))
    (folder / "train" / "99999.parquet").write_text("of a preparation with other settings")
    found = quiet_prepare([books], folder)
    assert (found.fingerprint, found.train, found.heldout) == (corpus.fingerprint, corpus.train, corpus.heldout)
    assert {reason: count for reason, count in found.dropped.items() if reason.startswith("kept")} == {
        "kept part": 1,
        "kept shard": 3,
    }
    assert not (folder / "train" / "99999.parquet").exists()


def test_a_finished_corpus_is_not_made_again(own: Path, books: Path):
    before = {path: path.stat().st_mtime_ns for path in own.rglob("*.*")}
    lines: list[str] = []
    assert prepare([str(books)], SETTINGS, str(own), lines.append).folder == str(own)
    assert {path: path.stat().st_mtime_ns for path in own.rglob("*.*")} == before
    assert len(lines) == 1 and lines[0].startswith(f"prepare: {own} is ready: 30 documents, 0.0 M characters")


def test_sources_are_listed_once_per_start(
    own: Path, books: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = []

    def list_and_count(source: Source) -> list[InputFile]:
        listed.append(source.location)
        return list_files(source)

    monkeypatch.setattr("pipeline.corpus.prepare.list_files", list_and_count)
    prepare_job(Prepare(corpus=(str(books),), prepare=SETTINGS, folder=str(own)), print)
    assert listed == [str(books)]
    config = Pretrain(corpus=(f"{books}/01.txt",), prepare=SETTINGS, output=str(tmp_path))
    prepared_corpus(config, find_corpus(config, print), print)
    assert listed == [str(books), f"{books}/01.txt"]


def test_a_corpus_of_other_settings_or_without_a_source_is_refused(own: Path, books: Path, tmp_path: Path):
    with pytest.raises(
        ConfigError,
        match="was prepared with prepare.window_characters 1000, but prepare.window_characters is now 2000: choose "
        "another folder",
    ):
        finished([str(books)], replace(SETTINGS, window_characters=2000), str(own))
    (tmp_path / "07.txt").write_text("text")
    with pytest.raises(
        ConfigError,
        match=f"{own} was also prepared from corpus {books}, which is not given now: name this corpus as well, or "
        f"choose another folder",
    ):
        finished([str(tmp_path / "07.txt")], SETTINGS, str(own))
    (own / "manifest.json").write_text(
        json.dumps(json.loads((own / "manifest.json").read_text()) | {"sources": [str(books)]})
    )
    with pytest.raises(DataError, match="manifest.json cannot be read .*: delete the folder and prepare it again"):
        finished([str(books)], SETTINGS, str(own))


def test_adding_a_file_reads_only_that_file_and_keeps_the_old_corpus(tmp_path: Path):
    books = write_books(tmp_path / "books")
    before = quiet_prepare([books], tmp_path / "out")
    texts = documents(before, "train")
    parts = {
        path.name: path.stat().st_mtime_ns
        for path in (tmp_path / "out" / "parts").glob("*[0-9a-f].json")
        if "-" not in path.name
    }
    (books / "new.txt").write_text("\n".join(f"Line {place} of a book that was added later on." for place in range(9)))
    assert finished([str(books)], SETTINGS, str(tmp_path / "out")) is None
    after = quiet_prepare([books], tmp_path / "out")
    assert after.fingerprint != before.fingerprint and after.counts["documents"] == BOOKS + 1
    assert documents(before, "train") == texts
    records = {path.name: path for path in (tmp_path / "out" / "parts").glob("*[0-9a-f].json") if "-" not in path.name}
    assert {name: records[name].stat().st_mtime_ns for name in parts} == parts and len(records) == len(parts) + 1
    (added,) = (json.loads(path.read_text()) for name, path in records.items() if name not in parts)
    assert [file["name"] for file in added["files"]] == ["new.txt"]
    assert quiet_prepare([books], tmp_path / "elsewhere").fingerprint == after.fingerprint


def test_changed_and_removed_files_are_no_longer_in_the_corpus(tmp_path: Path):
    books = write_books(tmp_path / "books")
    quiet_prepare([books], tmp_path / "out")
    (books / "03.txt").unlink()
    (books / "05.txt").write_text("Title: Five\nThis is the only paragraph that is left of it.")
    after = quiet_prepare([books], tmp_path / "out")
    assert after.fingerprint == quiet_prepare([books], tmp_path / "elsewhere").fingerprint
    rows = documents(after, "train") + documents(after, "heldout")
    assert not any(row["parent"] == "03.txt" for row in rows) and [
        row["title"] for row in rows if row["parent"] == "05.txt"
    ] == ["Five"]


def test_an_added_source_and_weights(own: Path, books: Path, tmp_path: Path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.txt").write_text(
        "\n".join(f"Sentence {place} of another source than the books." for place in range(9))
    )
    both = quiet_prepare([books, tmp_path / "other"], own)
    assert both.weights == {str(books): 1.0, str(tmp_path / "other"): 1.0}
    assert both.sources[str(tmp_path / "other")]["pieces"] == 3 and both.sources[str(books)]["documents"] == BOOKS
    assert both.sources[str(books)]["dropped"]["too short"] == 1
    times = {window.shard: (own / window.shard).stat().st_mtime_ns for window in both.train}
    weighted = quiet_prepare([books, f"{tmp_path}/other::weight=2.5"], own)
    assert (
        weighted.weights == {str(books): 1.0, str(tmp_path / "other"): 2.5} and weighted.fingerprint != both.fingerprint
    )
    assert weighted.train == both.train and times == {
        window.shard: (own / window.shard).stat().st_mtime_ns for window in both.train
    }


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


def test_other_folders_are_refused_unchanged(books: Path, tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ConfigError, match="holds thesis.tex, which does not belong to a prepared corpus"):
        quiet_prepare([books], tmp_path)
    (tmp_path / "thesis.tex").rename(tmp_path / "train")
    with pytest.raises(ConfigError, match="holds train, which does not belong to a prepared corpus"):
        quiet_prepare([books], tmp_path)


def test_one_source_may_be_named_once(books: Path, tmp_path: Path):
    with pytest.raises(ConfigError, match="is given twice"):
        prepare_job(Prepare(corpus=(str(books), f"{books}/"), folder=str(tmp_path / "out")), print)
    with pytest.raises(ConfigError, match="both hold .*07.txt: give sources that have no file in common"):
        quiet_prepare([books, books / "07.txt"], tmp_path / "out")


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
        Preparation(**(vars(SETTINGS) | {"heldout_share": 0.0})),
    )
    assert {
        (row["id"], row["title"], row["text"], row["lines_are_sentences"]) for row in documents(found, "train")
    } == {
        ("wiki:0#0", "Cat", "The cat sat on the mat in the sun.", False),
        ("lines:0#0", "", "One sentence of the first.\nAnother of the first.", True),
        ("lines:1#0", "", "The second document has one.", True),
    }
    assert (found.dropped, found.heldout) == ({"broken record": 1}, ())


def test_too_much_broken_input_is_refused_and_one_file_is_tolerated(tmp_path: Path):
    data = write_books(tmp_path / "data")
    (data / "a.png").write_bytes(b"\x89PNG\0\0")
    quiet_prepare([data], tmp_path / "one")
    (data / "b.png").write_bytes(b"\x89PNG\0\0")
    with pytest.raises(
        DataError,
        match=r"2 of 34 files are broken, more than prepare.error_limit \(0.05\); the first: a.png \(binary\)",
    ):
        quiet_prepare([data], tmp_path / "two")


def test_a_corpus_is_prepared_inside_its_source_and_again(tmp_path: Path):
    data = write_books(tmp_path / "data")
    first = quiet_prepare([data], data / "prepared")
    assert quiet_prepare([data], data / "prepared") == first and first.counts["files"] == BOOKS + 2


def test_deleted_files_are_made_again(own: Path, corpus: Corpus, books: Path, tmp_path: Path):
    shutil.rmtree(own / "train")
    assert finished([str(books)], SETTINGS, str(own)) is None
    assert documents(quiet_prepare([books], own), "train") == documents(corpus, "train")
    shutil.rmtree(own / "train")
    (own / "manifest.json").unlink()
    assert documents(quiet_prepare([books], own), "train") == documents(corpus, "train")
    (own / "manifest.json").unlink()
    for part in [*own.glob("parts/*[0-9a-f]-00000.parquet")][:1]:
        part.unlink()
    for report in own.glob("parts/*-?????.json"):
        report.unlink()
    assert quiet_prepare([books], own).fingerprint == corpus.fingerprint


def test_unsupported_files_are_skipped_up_to_a_limit(tmp_path: Path):
    data = write_books(tmp_path / "data")
    (data / "meta.json").write_text('{"version": 1}\n')
    assert quiet_prepare([data], tmp_path / "one").dropped["no text column"] == 1
    (data / "labels.csv").write_text("id,label\n")
    with pytest.raises(
        DataError,
        match=r"2 of 34 files are broken, more than prepare.error_limit \(0.05\); the first: (labels.csv \(CSV "
        r"not|meta.json \(no text)",
    ):
        quiet_prepare([data], tmp_path / "two")


def test_broken_records_are_limited(tmp_path: Path):
    article = '<doc id="1" url="u" title="T">\nThe text of article {} is long enough.\n'
    (tmp_path / "wiki").write_text(
        "".join(article.format(number) + ("</doc>\n" if number > 1 else "") for number in range(10))
    )
    with pytest.raises(
        DataError,
        match=r"2 of 10 records are broken, more than prepare.error_limit \(0.05\); the first: wiki:0 \(broken "
        r"record\)",
    ):
        quiet_prepare([tmp_path / "wiki"], tmp_path / "out")
    loose = Preparation(**(vars(SETTINGS) | {"error_limit": 0.2, "heldout_share": 0.0}))
    assert quiet_prepare([tmp_path / "wiki"], tmp_path / "out", loose).counts["pieces"] == 8


def test_a_corpus_without_text_is_refused_with_its_reasons(tmp_path: Path):
    (tmp_path / "a.bin").write_bytes(b"\0")
    with pytest.raises(DataError, match=r"a.bin: no text of the 1 files was kept \(binary: 1\)"):
        quiet_prepare([tmp_path / "a.bin"], tmp_path / "out")
    (tmp_path / "b.txt").write_text("This is the only document there is.")
    with pytest.raises(DataError, match=r"prepare.heldout_share \(0.999\) leaves no training text"):
        quiet_prepare(
            [tmp_path / "b.txt"], tmp_path / "out2", Preparation(**(vars(SETTINGS) | {"heldout_share": 0.999}))
        )


def test_a_web_source(server: tuple[Path, str], tmp_path: Path):
    folder, url = server
    (folder / "a.txt.gz").write_bytes(gzip.compress(b"Title: Far\nA document from far away, compressed."))
    found = quiet_prepare(
        [f"{url}/a.txt.gz"], tmp_path / "out", Preparation(**(vars(SETTINGS) | {"heldout_share": 0.0}))
    )
    assert [(row["id"], row["title"], row["text"]) for row in documents(found, "train")] == [
        ("a.txt.gz#0", "Far", "A document from far away, compressed.")
    ]


@pytest.mark.long  # it is asked for five times, in 80 seconds; tests/unit/corpus/test_web.py has the tries
def test_a_web_source_that_fails_for_good(server: tuple[Path, str], tmp_path: Path):
    folder, url = server
    (folder / "broken.txt").write_text("can be asked about")
    with pytest.raises(DataError, match=f"^{url}/broken.txt cannot be read: .*500 .*$"):
        quiet_prepare([f"{url}/broken.txt"], tmp_path / "out")


def test_messages_of_tasks_about_a_server_are_reported():
    lines: list[str] = []
    with relay_reports(lines.append) as say:
        assert list(run_tasks(partial(said, say=say), [1, 2])) == [1, 2]
    assert sorted(lines) == ["line 1", "line 2"]


def said(number: int, say: Callable[[str], None]) -> int:
    say(f"line {number}")
    return number


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
    records = [
        json.loads(path.read_text()) for path in (tmp_path / "out" / "parts").glob("*.json") if "-" not in path.name
    ]
    assert sum(len(record["files"]) for record in records) > 1


def write_dump(path: Path, pages: int) -> Path:
    """A dump in one bz2 stream with blocks of 100 kB; each page is about 8 kB."""
    words = [a + b + c for a in "bdfgkl" for b in "aeiou" for c in "lmnrst"]
    page = "<page><title>T{0}</title><ns>0</ns><id>{0}</id><revision><text>Artikel {0}: {1}.</text></revision></page>\n"
    texts = [
        page.format(number, " ".join(random.Random(number).choices(words, k=2_000))) for number in range(1, pages + 1)
    ]
    path.write_bytes(
        bz2.compress(('<mediawiki xml:lang="de"><siteinfo></siteinfo>\n' + "".join(texts) + "</mediawiki>").encode(), 1)
    )
    return path


def test_a_dump_in_one_stream_is_read_in_parts_from_disk_and_web(
    server: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder, url = server
    settings = replace(SETTINGS, heldout_share=0.0, piece_characters=32_000, window_characters=100_000)
    dump = write_dump(folder / "dump.xml.bz2", 120)
    whole = quiet_prepare([dump], tmp_path / "whole", settings)
    monkeypatch.setattr("pipeline.corpus.inputs.RANGE_BYTES", 40_000)
    monkeypatch.setattr("pipeline.corpus.stages.batches", lambda files: [[file] for file in files])
    for name, empty in (("asked", []), ("open", 0), ("most", 0)):
        monkeypatch.setattr(Handler, name, empty)
    folders = {spec: tmp_path / name for spec, name in ((str(dump), "local"), (f"{url}/dump.xml.bz2", "web"))}
    found = {spec: quiet_prepare([spec], out, settings) for spec, out in folders.items()}
    rows = [
        sorted((row["id"], row["text"], row["language"]) for row in documents(corpus, "train"))
        for corpus in (whole, *found.values())
    ]
    assert rows[0] == rows[1] == rows[2] and len(rows[0]) == 120 and rows[0][0][2] == "de"
    for corpus in found.values():
        ranges = [file["start"] for record in records_of(Path(corpus.folder)) for file in record["files"]]
        assert len(ranges) == 6 and corpus.counts["files"] == 1
    assert 1 <= Handler.most <= 2
    # Its size, its beginning and its head once by the driver, and each range once.
    assert len(Handler.asked) == len(ranges) + 4


def records_of(folder: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in (folder / "parts").glob("*.json") if "-" not in path.name]


def test_ranges_that_are_done_are_not_fetched_again(
    server: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder, url = server
    settings = replace(SETTINGS, heldout_share=0.0, piece_characters=32_000, window_characters=100_000)
    write_dump(folder / "dump.xml.bz2", 120)
    monkeypatch.setattr("pipeline.corpus.inputs.RANGE_BYTES", 40_000)
    monkeypatch.setattr("pipeline.corpus.stages.batches", lambda files: [[file] for file in files])
    whole = quiet_prepare([f"{url}/dump.xml.bz2"], tmp_path / "out", settings)
    (tmp_path / "out" / "manifest.json").unlink()
    records = {
        path: json.loads(path.read_text())
        for path in (tmp_path / "out" / "parts").glob("*.json")
        if "-" not in path.name
    }
    lost = sorted(records, key=lambda path: records[path]["files"][0]["start"])[2:4]
    for path in lost:
        path.unlink()
    monkeypatch.setattr(Handler, "asked", [])
    assert quiet_prepare([f"{url}/dump.xml.bz2"], tmp_path / "out", settings).fingerprint == whole.fingerprint
    starts = [records[path]["files"][0]["start"] for path in lost]
    assert len(Handler.asked) == 4 + 2 and {asked.split("-")[0] for asked in Handler.asked[4:]} == {
        str(start) for start in starts
    }


def test_a_range_that_cannot_be_fetched_is_an_error_of_one_line(
    server: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder, url = server
    write_dump(folder / "dump.xml.bz2", 40)
    monkeypatch.setattr("pipeline.corpus.inputs.RANGE_BYTES", 40_000)
    real = Handler.send_range
    monkeypatch.setattr(
        Handler,
        "send_range",
        lambda self, first, last: (
            self.send_error(404) if first not in ("0", str(size - 1)) else real(self, first, last)
        ),
    )
    size = (folder / "dump.xml.bz2").stat().st_size
    with pytest.raises(DataError, match=f"^{url}/dump.xml.bz2 cannot be read: the server answers 404 Not Found[^\n]*$"):
        quiet_prepare([f"{url}/dump.xml.bz2"], tmp_path / "out")


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


def test_the_callers_settings_of_ray_data_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    context = DataContext.get_current()
    monkeypatch.setattr(context, "enable_progress_bars", True)
    monkeypatch.setattr(context, "execution_no_progress_timeout_s", 77.0)
    (tmp_path / "a.txt").write_text("A text that is long enough for this.")
    quiet_prepare([tmp_path / "a.txt"], tmp_path / "out", Preparation(**(vars(SETTINGS) | {"heldout_share": 0.0})))
    assert DataContext.get_current() is context
    assert (context.enable_progress_bars, context.execution_no_progress_timeout_s) == (True, 77.0)


def test_the_job(books: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    arguments = [
        "--corpus",
        str(books / "0*"),
        "--corpus",
        str(books / "zz-again.txt"),
        "--folder",
        str(tmp_path / "out"),
        "--prepare.minimum-characters",
        "30",
    ]
    assert main(arguments) == 0
    output = capsys.readouterr().out
    assert (
        "prepare: reading: 11 of 11 files" in output
        and "dropped: duplicate" in output
        and output.splitlines()[-1].startswith("1 windows")
    )
    assert main([*arguments, "--prepare.piece-characters", "100"]) == 2
    assert capsys.readouterr().err.startswith(
        f"error: {tmp_path}/out was prepared with prepare.piece_characters 32000, but prepare.piece_characters is now "
        f"100"
    )
    assert main(["--corpus", str(tmp_path / "none"), "--folder", str(tmp_path / "out2")]) == 2
    assert main(["--folder", str(tmp_path / "out2"), "--prepare.heldout-share", "2"]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2 and errors[1] == "error: prepare.heldout_share (2.0) must lie between 0 and 1"
