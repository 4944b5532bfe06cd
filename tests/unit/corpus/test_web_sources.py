"""A corpus from a web server: files as a whole, and dumps in ranges."""

import gzip
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.corpus import inputs, stages
from pipeline.corpus.prepare import prepare
from pipeline.errors import DataError
from pipeline.files import web
from tests.books import SETTINGS, batch_records, documents, quiet_prepare, write_dump
from tests.file_server import FileServer, file_server
from tests.in_process import IN_PROCESS

ALL = replace(SETTINGS, heldout_share=0.0)
OF_DUMPS = replace(ALL, piece_characters=32_000, window_characters=100_000)
DRIVERS_REQUESTS = 4
"""Ranges of a dump that the driver asks for: of its size, its beginning and its head."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FileServer]:
    with file_server(tmp_path / "served", pause=0.05) as running:
        yield running


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read dumps in ranges of 40 kB, each in a task of its own."""
    monkeypatch.setattr(inputs, "RANGE_BYTES", 40_000)
    monkeypatch.setattr(stages, "batches", lambda files: [[file] for file in files])


def test_a_file_on_the_web_is_read_as_a_whole(server: FileServer, tmp_path: Path) -> None:
    (server.folder / "a.txt.gz").write_bytes(gzip.compress(b"Title: Far\nA document from far away, compressed."))
    found = quiet_prepare([f"{server.url}/a.txt.gz"], tmp_path / "out", ALL)
    assert [(row["id"], row["title"], row["text"]) for row in documents(found, "train")] == [
        ("a.txt.gz#0", "Far", "A document from far away, compressed.")
    ]


def test_a_file_that_cannot_be_read_is_an_error_of_one_line(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "WAITS", (0.01,))
    (server.folder / "broken.txt").write_text("can be asked about")
    server.refuse = lambda path, range: 500
    with pytest.raises(DataError, match=f"^{server.url}/broken.txt cannot be read: .*500 [^\n]*$"):
        quiet_prepare([f"{server.url}/broken.txt"], tmp_path / "out")


@pytest.mark.usefixtures("small_ranges")
def test_a_dump_in_one_stream_is_read_in_ranges_from_disk_and_web(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = write_dump(server.folder / "dump.xml.bz2", 120)
    folders = {str(dump): tmp_path / "local", f"{server.url}/dump.xml.bz2": tmp_path / "web"}
    found = [quiet_prepare([source], folder, OF_DUMPS) for source, folder in folders.items()]
    for corpus in found:
        ranges = [file["start"] for record in batch_records(Path(corpus.folder)).values() for file in record["files"]]
        assert len(ranges) == 6 and corpus.counts["files"] == 1
    assert server.most == 2 and len(server.ranges) == len(ranges) + DRIVERS_REQUESTS
    monkeypatch.setattr(inputs, "RANGE_BYTES", dump.stat().st_size)
    whole = quiet_prepare([dump], tmp_path / "whole", OF_DUMPS)
    rows = [
        sorted((row["id"], row["text"], row["language"]) for row in documents(corpus, "train"))
        for corpus in (whole, *found)
    ]
    assert rows[0] == rows[1] == rows[2] and len(rows[0]) == 120 and rows[0][0][2] == "de"


@pytest.mark.usefixtures("small_ranges")
def test_ranges_that_are_done_are_not_fetched_again(server: FileServer, tmp_path: Path) -> None:
    write_dump(server.folder / "dump.xml.bz2", 80)
    source, folder = f"{server.url}/dump.xml.bz2", tmp_path / "out"
    before = quiet_prepare([source], folder, OF_DUMPS)
    (folder / "manifest.json").unlink()
    starts = {record["files"][0]["start"]: path for path, record in batch_records(folder).items()}
    lost = sorted(starts)[1:3]
    for start in lost:
        starts[start].unlink()
    server.ranges.clear()
    assert quiet_prepare([source], folder, OF_DUMPS).fingerprint == before.fingerprint
    fetched = server.ranges[DRIVERS_REQUESTS:]
    assert len(starts) > 2 == len(fetched) and sorted(int(range.split("-")[0]) for range in fetched) == lost


@pytest.mark.usefixtures("small_ranges")
def test_a_range_that_cannot_be_fetched_is_an_error_of_one_line(server: FileServer, tmp_path: Path) -> None:
    size = write_dump(server.folder / "dump.xml.bz2", 40).stat().st_size
    server.refuse = lambda path, range: None if range.split("-")[0] in ("0", str(size - 1)) else 404
    source = f"{server.url}/dump.xml.bz2"
    with pytest.raises(DataError, match=f"^{source} cannot be read: the server answers 404 Not Found[^\n]*$"):
        quiet_prepare([source], tmp_path / "out")


@pytest.mark.usefixtures("small_ranges")
def test_tasks_report_a_silent_server_with_the_time_limit_of_the_settings(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "NOTICE_SECONDS", 0.1)
    (server.folder / "a.txt").write_text("A document that comes late.")
    write_dump(server.folder / "dump.xml.bz2", 40)
    files, late = [f"{server.url}/a.txt", f"{server.url}/dump.xml.bz2"], []

    def wait_for_tasks(path: str, range: str) -> None:
        if path == "/a.txt" or len(server.ranges) >= DRIVERS_REQUESTS:
            late.append(path)
            time.sleep(0.3)

    server.refuse = wait_for_tasks
    lines: list[str] = []
    prepare(files, replace(OF_DUMPS, web_timeout=7), str(tmp_path / "out"), lines.append, IN_PROCESS)
    end = "no data for 0.1 s; trying again, until no data has come for 7 s (prepare.web_timeout)"
    assert {f"{file}: {end}" for file in files} <= set(lines) and len(late) >= 3
