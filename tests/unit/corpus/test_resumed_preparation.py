"""A preparation that is stopped, or whose inputs change, reads again only what it must."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.command_line import progress
from pipeline.config.data import Preparation
from pipeline.config.jobs import Pretrain
from pipeline.config.prepare import Prepare
from pipeline.corpus import parts
from pipeline.corpus.inputs import InputFile, list_files
from pipeline.corpus.prepare import Listing, finished_corpus, list_sources, prepare, prepare_listed
from pipeline.corpus.prepared import Corpus, load_corpus
from pipeline.corpus.sources import Source
from pipeline.errors import ConfigError, DataError
from pipeline.reporting import no_op
from pipeline.train.run_data import find_corpus, prepared_corpus
from pipeline.workflows.prepare import prepare as prepare_job
from tests.books import BOOKS, SETTINGS, batch_records, documents, quiet_prepare, write_books
from tests.in_process import IN_PROCESS


def finished(sources: list[str], folder: Path, settings: Preparation = SETTINGS) -> Corpus | None:
    return finished_corpus(list_sources(sources, settings, str(folder), no_op))


def test_an_interrupted_preparation_resumes_from_finished_tasks(
    corpus: Corpus, books: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(parts, "BATCH_FILES", 11)
    monkeypatch.setattr(progress, "REPORT_SECONDS", 0)
    folder, done = tmp_path / "out", []

    def stop_after_the_first_task(stage: str) -> None:
        def report(line: str) -> None:
            if line.startswith(f"prepare: {stage}: "):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            prepare([str(books)], SETTINGS, str(folder), report, IN_PROCESS)
        with pytest.raises(DataError, match="does not hold a prepared corpus"):
            load_corpus(str(folder))
        done.append({path: path.stat().st_mtime_ns for path in folder.glob("parts/*.json")})

    stop_after_the_first_task("reading")
    stop_after_the_first_task("shuffling")
    assert [len(files) for files in done] == [1, 3 + 1] and done[0].items() <= done[1].items()
    for path in done[1]:  # what was done is taken as it is
        report = json.loads(path.read_text())
        report["tallies"].setdefault(str(books), {})["dropped"] = {
            "kept " + ("part" if "parts" in report else "shard"): 1
        }
        path.write_text(json.dumps(report))
    (folder / "train" / "99999.parquet").write_text("of a preparation with other settings")
    found = quiet_prepare([books], folder)
    assert (found.fingerprint, found.train, found.heldout) == (corpus.fingerprint, corpus.train, corpus.heldout)
    assert {reason: count for reason, count in found.dropped.items() if reason.startswith("kept")} == {
        "kept part": 3,
        "kept shard": 1,
    }
    assert not (folder / "train" / "99999.parquet").exists()


def test_a_finished_corpus_is_not_made_again(own: Path, books: Path):
    before = {path: path.stat().st_mtime_ns for path in own.rglob("*.*")}
    lines: list[str] = []
    assert prepare([str(books)], SETTINGS, str(own), lines.append, IN_PROCESS).folder == str(own)
    assert {path: path.stat().st_mtime_ns for path in own.rglob("*.*")} == before
    assert len(lines) == 1 and lines[0].startswith(f"prepare: {own} is ready: 30 documents, 0.0 M characters")


def test_deleted_files_are_made_again(own: Path, corpus: Corpus, books: Path, tmp_path: Path):
    shutil.rmtree(own / "train")
    assert finished([str(books)], own) is None
    assert documents(quiet_prepare([books], own), "train") == documents(corpus, "train")
    shutil.rmtree(own / "train")
    (own / "manifest.json").unlink()
    assert documents(quiet_prepare([books], own), "train") == documents(corpus, "train")
    (own / "manifest.json").unlink()
    next(own.glob("parts/*[0-9a-f]-00000.parquet")).unlink()
    for report in own.glob("parts/*-?????.json"):
        report.unlink()
    assert quiet_prepare([books], own).fingerprint == corpus.fingerprint


def test_sources_are_listed_once_per_start(
    own: Path, books: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = []

    def list_and_count(source: Source) -> list[InputFile]:
        listed.append(source.location)
        return list_files(source)

    monkeypatch.setattr("pipeline.corpus.prepare.list_files", list_and_count)
    prepare_job(Prepare(corpus=(str(books),), prepare=SETTINGS, folder=str(own)), no_op)
    assert listed == [str(books)]
    config = Pretrain(corpus=(f"{books}/01.txt",), prepare=replace(SETTINGS, heldout_share=0.0), output=str(tmp_path))
    for _ in range(2):  # made, and finished
        listing = find_corpus(config, no_op)
        assert isinstance(listing, Listing)
        made = prepare_listed(listing, no_op, IN_PROCESS)
        assert prepared_corpus(config, listing, no_op) == made
    assert listed[1:] == [f"{books}/01.txt"] * 2


def test_a_corpus_of_other_settings_or_without_a_source_is_refused(own: Path, books: Path, tmp_path: Path):
    with pytest.raises(
        ConfigError,
        match="was prepared with prepare.window_characters 1000, but prepare.window_characters is now 2000: choose "
        "another folder",
    ):
        finished([str(books)], own, replace(SETTINGS, window_characters=2000))
    (tmp_path / "07.txt").write_text("text")
    with pytest.raises(
        ConfigError,
        match=f"{own} was also prepared from corpus {books}, which is not given now: name this corpus as well, or "
        f"choose another folder",
    ):
        finished([str(tmp_path / "07.txt")], own)
    (own / "manifest.json").write_text(
        json.dumps(json.loads((own / "manifest.json").read_text()) | {"sources": [str(books)]})
    )
    with pytest.raises(DataError, match="manifest.json cannot be read .*: delete the folder and prepare it again"):
        finished([str(books)], own)


def test_other_folders_are_refused_unchanged(books: Path, tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ConfigError, match="holds thesis.tex, which does not belong to a prepared corpus"):
        quiet_prepare([books], tmp_path)
    (tmp_path / "thesis.tex").rename(tmp_path / "train")
    with pytest.raises(ConfigError, match="holds train, which does not belong to a prepared corpus"):
        quiet_prepare([books], tmp_path)


def test_one_source_may_be_named_once(books: Path, tmp_path: Path):
    with pytest.raises(ConfigError, match="is given twice"):
        prepare_job(Prepare(corpus=(str(books), f"{books}/"), folder=str(tmp_path / "out")), no_op)
    with pytest.raises(ConfigError, match="both hold .*07.txt: give sources that have no file in common"):
        quiet_prepare([books, books / "07.txt"], tmp_path / "out")


def test_a_corpus_is_prepared_inside_its_source_and_again(tmp_path: Path):
    data = write_books(tmp_path / "data")
    first = quiet_prepare([data], data / "prepared")
    assert quiet_prepare([data], data / "prepared") == first and first.counts["files"] == BOOKS + 2


def test_adding_a_file_reads_only_that_file_and_keeps_the_old_corpus(tmp_path: Path):
    books = write_books(tmp_path / "books")
    before = quiet_prepare([books], tmp_path / "out")
    texts = documents(before, "train")
    times = {path: path.stat().st_mtime_ns for path in batch_records(tmp_path / "out")}
    (books / "new.txt").write_text("\n".join(f"Line {place} of a book that was added later on." for place in range(9)))
    assert finished([str(books)], tmp_path / "out") is None
    after = quiet_prepare([books], tmp_path / "out")
    assert after.fingerprint != before.fingerprint and after.counts["documents"] == BOOKS + 1
    assert documents(before, "train") == texts
    records = batch_records(tmp_path / "out")
    (added,) = (records.pop(path) for path in records.keys() - times.keys())
    assert {path: path.stat().st_mtime_ns for path in records} == times
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
