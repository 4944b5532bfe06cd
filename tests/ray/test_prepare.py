"""jobs/prepare.py from end to end, with texts in a folder and on a web server."""

import gzip
from pathlib import Path

import pytest

from jobs.prepare import main
from pipeline.config.data import Preparation
from pipeline.corpus import inputs, stages
from pipeline.corpus.prepared import load_corpus
from tests.books import quiet_prepare, write_books, write_dump
from tests.file_server import file_server

pytestmark = pytest.mark.usefixtures("local_ray")

SETTINGS = Preparation(window_characters=100_000, windows_per_shard=4, minimum_characters=20, heldout_share=0.2)
PAGES, RANGES = 120, 6


def test_the_job_prepares_the_corpus_that_one_process_prepares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(inputs, "RANGE_BYTES", 40_000)
    monkeypatch.setattr(stages, "batches", lambda files: [[file] for file in files])
    books, folder = write_books(tmp_path / "books"), tmp_path / "out"
    flags = {
        "--prepare.window-characters": SETTINGS.window_characters,
        "--prepare.windows-per-shard": SETTINGS.windows_per_shard,
        "--prepare.minimum-characters": SETTINGS.minimum_characters,
        "--prepare.heldout-share": SETTINGS.heldout_share,
    }
    with file_server(tmp_path / "served", pause=0.3) as server:
        (server.folder / "a.txt.gz").write_bytes(gzip.compress(b"Title: Far\nA document from far away, compressed."))
        write_dump(server.folder / "dump.xml.bz2", PAGES)
        sources = [f"{books}/*", f"{server.url}/a.txt.gz", f"{server.url}/dump.xml.bz2"]
        arguments = [word for source in sources for word in ("--corpus", source)] + ["--folder", str(folder)]
        arguments += [str(word) for flag in flags.items() for word in flag]
        assert main(arguments) == 0
        assert server.most <= 2
        server.pause = 0
        expected = quiet_prepare(sources, tmp_path / "in-process", SETTINGS)
        assert main([*arguments, "--prepare.piece-characters", "100"]) == 2
    output = capsys.readouterr()
    files = len(list(books.iterdir())) + 1 + RANGES
    assert f"prepare: reading: {files} of {files} files" in output.out and "dropped: duplicate" in output.out
    assert output.err.startswith(
        f"error: {folder} was prepared with prepare.piece_characters 32000, but prepare.piece_characters is now 100"
    )
    found = load_corpus(str(folder))
    assert (found.fingerprint, found.train, found.heldout) == (expected.fingerprint, expected.train, expected.heldout)
    assert (found.counts, found.dropped, found.sources) == (expected.counts, expected.dropped, expected.sources)
    assert found.counts["documents"] + sum(found.dropped.values()) == len(list(books.iterdir())) + 1 + PAGES
    assert found.dropped.keys() == {"duplicate", "near-duplicate", "too short"}


def test_the_job_refuses_what_cannot_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--corpus", str(tmp_path / "none"), "--folder", str(tmp_path / "out")]) == 2
    assert main(["--folder", str(tmp_path / "out"), "--prepare.heldout-share", "2"]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2 and errors[1] == "error: prepare.heldout_share (2.0) must lie between 0 and 1"
