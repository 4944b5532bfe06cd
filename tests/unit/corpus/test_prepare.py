"""Preparation before and after its stages, without Ray."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config.data import Preparation
from pipeline.corpus.inputs import list_files
from pipeline.corpus.parts import part_settings, records, sketch_document, write_parts
from pipeline.corpus.prepare import Plan, delete_unused_files, finished_corpus, list_sources, manifest_contents, prepare
from pipeline.corpus.prepared import Corpus, load_corpus, read_window
from pipeline.corpus.shards import write_shard, write_windows
from pipeline.corpus.sources import parse
from pipeline.errors import ConfigError, DataError, StorageUnavailable
from pipeline.files import storage
from pipeline.text.documents import Document
from pipeline.text.schema import DOCUMENT

SETTINGS = Preparation(
    window_characters=1000, piece_characters=200, minimum_characters=1, heldout_share=0.0, near_duplicates=None
)


@pytest.fixture
def books(tmp_path: Path) -> Path:
    """A folder of three texts."""
    (tmp_path / "books").mkdir()
    for number in range(3):
        (tmp_path / "books" / f"{number}.txt").write_text(f"This is the text of book {number}.")
    return tmp_path / "books"


def finished(sources: list[str], settings: Preparation, folder: str) -> Corpus | None:
    return finished_corpus(list_sources(sources, settings, folder, print))


def names(source: Path, folder: Path) -> list[str]:
    return [
        file.name
        for files in list_sources([str(source)], SETTINGS, str(folder), print).sources.values()
        for file in files
    ]


def test_a_corpus_prepared_inside_its_source_is_not_read(books: Path, tmp_path: Path):
    (books / "prepared" / "parts").mkdir(parents=True)
    (books / "prepared" / "parts" / "x.parquet").write_bytes(b"PAR1")
    (books / "prepared-not.txt").write_text("x")
    assert names(books, books / "prepared") == ["0.txt", "1.txt", "2.txt", "prepared-not.txt"]
    assert names(books, tmp_path / "other")[-1] == "prepared/parts/x.parquet"
    (tmp_path / "link").symlink_to(books)
    assert (
        names(books, tmp_path / "link" / "prepared")
        == names(tmp_path / "link", books / "prepared")
        == ["0.txt", "1.txt", "2.txt", "prepared-not.txt"]
    )
    with pytest.raises(ConfigError) as refused:
        names(books / "prepared", books / "prepared")
    assert str(refused.value) == (
        f"corpus {books}/prepared: all its files lie in {books}/prepared, where the corpus is to be prepared: choose "
        "another folder"
    )


def test_what_is_refused_is_refused_before_anything_is_written(books: Path, tmp_path: Path):
    folder = tmp_path / "new"
    for source, words in ((f"{books}x", "no such file or folder"), (f"{books}/*.pdf", "no file matches this pattern")):
        for refuse in (finished, lambda *about: prepare(*about, lambda line: None)):
            with pytest.raises(ConfigError, match=words):
                refuse([source], SETTINGS, str(folder))
    folder.mkdir()
    (folder / "thesis.tex").write_text("x")
    with pytest.raises(
        ConfigError, match="holds thesis.tex, which does not belong to a prepared corpus: choose an empty or new folder"
    ):
        finished([str(books)], SETTINGS, str(folder))
    with pytest.raises(ConfigError, match="both hold"):
        prepare([str(books), f"{books}/0.txt"], SETTINGS, str(tmp_path / "empty"), lambda line: None)
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"] and not (tmp_path / "empty").exists()


@pytest.mark.parametrize("manifest", ['{"files": {}, "settings": {}}', "[1]", '{"name": "my app"}', "no JSON"])
def test_nobody_is_told_to_delete_a_folder_of_something_else(books: Path, tmp_path: Path, manifest: str):
    folder = tmp_path / "vocabulary"
    folder.mkdir()
    (folder / "manifest.json").write_text(manifest)
    for call in (lambda: finished([str(books)], SETTINGS, str(folder)), lambda: load_corpus(str(folder))):
        with pytest.raises(ConfigError) as refused:
            call()
        assert (
            str(refused.value)
            == f"{folder} holds manifest.json, which does not belong to a prepared corpus: choose another folder"
        )
    (folder / "train").mkdir()
    (folder / "train" / "data.parquet").write_bytes(b"")
    with pytest.raises(ConfigError, match="which does not belong to a prepared corpus"):
        load_corpus(str(folder))
    (folder / "train" / "00000-0123456789ab.parquet").write_bytes(b"")
    with pytest.raises(
        DataError, match=r"manifest.json cannot be read \(.*\): delete the folder and prepare it again$"
    ):
        finished([str(books)], SETTINGS, str(folder))


def test_a_batch_counts_only_while_all_its_parts_are_there(books: Path, tmp_path: Path):
    folder = tmp_path / "parts"
    record = write_parts(list_files(parse(str(books))), str(folder), SETTINGS, {})
    (part,) = record["parts"]
    assert list(records(str(folder), SETTINGS).values()) == [record] and record["settings"] == part_settings(SETTINGS)
    for suffix in (".parquet", ".sketch.parquet"):
        data = (folder / f"{part}{suffix}").read_bytes()
        (folder / f"{part}{suffix}").unlink()
        assert records(str(folder), SETTINGS) == {}
        (folder / f"{part}{suffix}").write_bytes(data)
    assert len(records(str(folder), SETTINGS)) == 1
    (folder / f"{next(iter(records(str(folder), SETTINGS)))}").write_text('{"parts": ["')
    assert records(str(folder), SETTINGS) == {}


def test_a_shard_whose_file_is_gone_is_written_again(books: Path, tmp_path: Path):
    record = write_parts(list_files(parse(str(books))), str(tmp_path / "out" / "parts"), SETTINGS, {})
    report = write_shard(str(tmp_path / "out"), record["parts"], "plan", 0, 1, SETTINGS)
    shard = tmp_path / "out" / report["train"]["file"]
    whole, when = shard.read_bytes(), shard.stat().st_mtime_ns
    assert (
        write_shard(str(tmp_path / "out"), record["parts"], "plan", 0, 1, SETTINGS) == report
        and shard.stat().st_mtime_ns == when
    )
    shard.unlink()
    assert (
        write_shard(str(tmp_path / "out"), record["parts"], "plan", 0, 1, SETTINGS) == report
        and shard.read_bytes() == whole
    )
    assert not (tmp_path / "out" / report["heldout"]["file"]).exists() and report["heldout"]["windows"] == []


def test_pieces_of_a_held_out_book_are_all_held_out(tmp_path: Path):
    (tmp_path / "books").mkdir()
    for book in range(12):
        paragraphs = [f"Paragraph {number} of book {book} has words of its own. " * 3 for number in range(6)]
        (tmp_path / "books" / f"{book}.txt").write_text("\n\n".join(paragraphs))
    record = write_parts(list_files(parse(str(tmp_path / "books"))), str(tmp_path / "out" / "parts"), SETTINGS, {})
    report = write_shard(str(tmp_path / "out"), record["parts"], "plan", 0, 1, replace(SETTINGS, heldout_share=0.4))
    train, heldout = (
        pq.read_table(tmp_path / "out" / report[split]["file"])["parent"].to_pylist() for split in ("train", "heldout")
    )
    assert len(train) > 2 * len(set(train)) and len(heldout) > 2 * len(set(heldout)) > 2
    assert len(set(train)) + len(set(heldout)) == 12


def fingerprint(places: dict[str, float], folder: Path) -> str:
    """The fingerprint of a corpus of two texts, of sources at these places with these weights."""
    texts = {place: f"The text of source {number}." for number, place in enumerate(places)}
    (folder / "parts").mkdir(parents=True)
    sources = {
        place: {"format": None, "column": None, "language": None, "weight": weight} for place, weight in places.items()
    }
    report: dict = {"tallies": {}}
    for split in ("train", "heldout"):
        rows = [
            {
                name: value
                for name, value in sketch_document(document(text, f"{number}.txt"), place).row.items()
                if name in DOCUMENT.names
            }
            for number, (place, text) in enumerate(texts.items())
        ]
        report[split] = write_windows(
            str(folder), split, 0, pa.Table.from_pylist(rows if split == "train" else [], schema=DOCUMENT), 1000
        )
    return manifest_contents([report], {}, Plan(sources=sources, settings={}, inputs={}))["fingerprint"]


def document(text: str, name: str) -> Document:
    return Document(id=f"{name}#0", parent=name, title="", text=text, lines_are_sentences=False, language="en")


def test_the_fingerprint_follows_the_weights_and_not_where_the_sources_lie(tmp_path: Path):
    one = fingerprint({"/a/x": 2.0, "/a/y": 1.0}, tmp_path / "1")
    assert fingerprint({"/b/z": 2.0, "s3://c": 1.0}, tmp_path / "2") == one
    others = [
        fingerprint(dict(zip("xy", weights)), tmp_path / str(weights))
        for weights in ((1.0, 2.0), (2.0, 2.0), (3.0, 1.0), (1.0, 1.0))
    ]
    assert len({one, *others}) == 5


def test_what_a_killed_preparation_was_just_writing_is_deleted(tmp_path: Path):
    kept = (
        "manifest.json",
        "notes.tmp",
        "parts/0123456789abcdef.json",
        "parts/0123456789abcdef-00000.parquet",
        "parts/feed-00000.json",
        "train/00000-a.parquet",
    )
    gone = (
        "manifest.json.77aa77aa77aa77aa.tmp",
        "parts/0123456789abcdef.json.0123456789abcdef.tmp",
        "parts/feed-00000.json.feedfeedfeedfeed.tmp",
        "parts/old.json",
        "train/00000-a.parquet.7777777777777777.tmp",
    )
    for name in (*kept, *gone):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    delete_unused_files(str(tmp_path), {"train/00000-a.parquet"}, ["0123456789abcdef-00000"], "feed")
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")) == sorted(kept)


def test_a_shard_that_is_broken_is_one_thing_and_storage_that_is_away_another(
    tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
):
    window = tiny_corpus.train[0]

    def refuse(*_: object, **__: object) -> None:
        raise OSError("AWS Error ACCESS_DENIED")

    with monkeypatch.context() as patch:
        patch.setattr(pq, "ParquetFile", refuse)
        with pytest.raises(
            DataError, match=r"AWS Error ACCESS_DENIED\): delete .* and prepare it again"
        ) as broken:  # its storage lets it be read
            read_window(tiny_corpus, window)
        patch.setattr(storage, "is_unavailable", lambda location: True)
        with pytest.raises(
            StorageUnavailable,
            match=r"cannot be read now \(AWS Error ACCESS_DENIED\); run the same command again later",
        ):
            read_window(tiny_corpus, window)
    assert not isinstance(broken.value, StorageUnavailable) and read_window(tiny_corpus, window).num_rows
    place = storage.join(tiny_corpus.folder, window.shard)
    assert not storage.is_unavailable(place) and not storage.is_unavailable(f"{place}.gone")
    with monkeypatch.context() as patch:
        patch.setattr(storage, "filesystem", refuse)
        assert storage.is_unavailable("s3://bucket/key")
