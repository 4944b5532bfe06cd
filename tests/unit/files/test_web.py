"""Reading from a web server that breaks off, is busy, or does not have the file."""

import gzip
import random
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.corpus.inputs import list_files
from pipeline.corpus.parts import file_records
from pipeline.corpus.sources import parse
from pipeline.errors import DataError
from pipeline.files import web
from pipeline.files.opening import blocks

DATA = random.Random(0).randbytes(3_000_000)


class Server(BaseHTTPRequestHandler):
    """Serve `files` with a tag.

    Each path's `plan` lists its next responses: a status, or the bytes after which the connection breaks.
    """

    files: ClassVar[dict[str, bytes]] = {}
    plan: ClassVar[dict[str, list[str]]] = {}
    tags: ClassVar[dict[str, list[str]]] = {}
    asked: ClassVar[list[tuple[str, str]]] = []
    ranges: ClassVar[bool] = True

    heads: ClassVar[list[int]] = []
    over: ClassVar[threading.Event] = threading.Event()

    def do_HEAD(self) -> None:
        if self.heads:
            return self.send_error(self.heads.pop(0))
        return self.answer(b"")

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("Range", "")))
        data = self.files.get(self.path)
        if data is None:
            return self.send_error(404)
        step = self.plan.get(self.path, []).pop(0) if self.plan.get(self.path) else "whole"
        if step.startswith("status"):
            return self.send_error(int(step.split()[1]))
        if step == "silent":
            return self.stall()
        start = int(self.headers["Range"][6:-1]) if "Range" in self.headers and self.ranges else 0
        self.answer(data[start:], start, len(data))
        rest = data[start:]
        self.wfile.write(rest if step == "whole" else rest[: int(step.split()[1])])
        self.close_connection = True
        if step.startswith("stall"):
            self.stall()
        return None

    def stall(self) -> None:
        """Send nothing more until the test is over."""
        self.wfile.flush()
        self.over.wait(20)
        self.close_connection = True

    def answer(self, rest: bytes, start: int = 0, size: int = 0) -> None:
        tags = self.tags.get(self.path, ['"one"'])
        tag = tags.pop(0) if len(tags) > 1 else tags[0]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(rest)))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        if tag:
            self.send_header("ETag", tag)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server without files; waits between tries are short."""
    monkeypatch.setattr(web, "WAITS", (0.01, 0.01))
    for name, empty in (("files", {}), ("plan", {}), ("tags", {}), ("asked", []), ("heads", []), ("ranges", True)):
        monkeypatch.setattr(Server, name, empty)
    running = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    monkeypatch.setattr(Server, "over", threading.Event())
    yield f"http://127.0.0.1:{running.server_port}"
    Server.over.set()
    running.shutdown()
    running.server_close()


def test_a_broken_connection_goes_on_from_where_it_broke(server: str):
    Server.files["/a"], Server.plan["/a"] = DATA, ["break 1000000", "break 5", "whole"]
    assert b"".join(blocks(f"{server}/a")) == DATA
    assert Server.asked == [("/a", ""), ("/a", "bytes=1000000-"), ("/a", "bytes=1000005-")]


def test_tries_that_bring_much_do_not_use_up_the_tries(server: str):
    Server.files["/a"], Server.plan["/a"] = DATA * 3, ["break 1100000"] * 6
    assert b"".join(blocks(f"{server}/a")) == DATA * 3 and len(Server.asked) == 7


def test_compressed_data_goes_on_too(server: str):
    Server.files["/a.gz"], Server.plan["/a.gz"] = gzip.compress(DATA), ["break 700000", "break 700000"]
    assert b"".join(blocks(f"{server}/a.gz")) == DATA


def message(location: str) -> str:
    with pytest.raises(DataError) as refused:
        list(blocks(location))
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_connection_that_breaks_again_and_again_is_reported(server: str):
    Server.files["/a"], Server.plan["/a"] = DATA, ["break 1000", "break 0", "break 0", "whole"]
    assert (
        message(f"{server}/a")
        == f"{server}/a cannot be read: the connection broke after 1,000 of 3,000,000 bytes, in 3 tries"
    )
    assert len(Server.asked) == 3


def test_a_file_that_changed_meanwhile_is_not_mixed(server: str):
    Server.files["/a"], Server.plan["/a"], Server.tags["/a"] = DATA, ["break 1000"], ['"one"', '"two"']
    assert message(f"{server}/a") == (
        f"{server}/a cannot be read: the connection broke after 1,000 of 3,000,000 bytes, and the server cannot "
        f"continue at byte 1,000: it does not support Range requests, or the file has changed"
    )


def test_a_server_without_ranges_is_not_believed(server: str):
    Server.files["/a"], Server.plan["/a"], Server.ranges = DATA, ["break 1000"], False
    assert "after 1,000 of 3,000,000 bytes, and the server cannot continue at byte 1,000" in message(f"{server}/a")


@pytest.mark.parametrize("tag", ["", 'W/"one"'])
def test_without_a_strong_tag_nothing_is_continued(server: str, tag: str):
    Server.files["/a"], Server.plan["/a"], Server.tags["/a"] = DATA, ["break 1000"], [tag]
    assert message(f"{server}/a").endswith(
        "the connection broke after 1,000 of 3,000,000 bytes, and the download cannot continue: the server sends no "
        "ETag or date, so the file may have changed"
    )


def test_a_missing_file_is_reported_at_once(server: str):
    assert message(f"{server}/none") == f"{server}/none cannot be read: the server answers 404 Not Found"
    assert Server.asked == [("/none", "")]


def test_a_busy_server_is_asked_again(server: str):
    Server.files["/a"], Server.plan["/a"] = b"text", ["status 503", "status 429", "whole"]
    assert list(blocks(f"{server}/a")) == [b"text"]
    Server.plan["/a"] = ["status 500"] * 9
    assert (
        message(f"{server}/a") == f"{server}/a cannot be read: the server answers 500 Internal Server Error, in 3 tries"
    )


def test_a_server_that_is_busy_when_files_are_listed_is_asked_again(server: str):
    Server.heads = [503, 429]
    assert [file.name for file in list_files(parse(f"{server}/a.txt"))] == ["a.txt"] and Server.heads == []
    Server.heads = [500] * 9
    with pytest.raises(
        DataError,
        match=f"^corpus {server}/a.txt cannot be read: the server answers 500 Internal Server Error, in 3 tries$",
    ):
        list_files(parse(f"{server}/a.txt"))
    assert len(Server.heads) == 6


def test_a_server_that_knows_no_head_is_asked_for_the_file(server: str):
    Server.files["/a.txt"], Server.heads = b"text", [405]
    assert [file.bytes for file in list_files(parse(f"{server}/a.txt"))] == [4] and Server.asked == [("/a.txt", "")]


def test_no_server_is_reported_after_some_tries(server: str):
    location = re.sub(r":\d+$", ":1", server) + "/a"
    assert message(location) == f"{location} cannot be read: no connection ([Errno 111] Connection refused), in 3 tries"


def test_parquet_comes_over_the_web(server: str, tmp_path: Path):
    pq.write_table(pa.table({"title": ["A", "B"], "text": ["One.", "Two."]}), tmp_path / "a.parquet")
    Server.files["/a.parquet"], Server.plan["/a.parquet"] = (tmp_path / "a.parquet").read_bytes(), ["break 300"]
    (file,) = list_files(parse(f"{server}/a.parquet"))
    assert [(record.title, list(record.paragraphs)) for record in file_records(file)] == [
        ("A", ["One."]),
        ("B", ["Two."]),
    ]


def test_a_body_that_stalls_is_reported_and_given_up_with_what_had_come(server: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(web, "NOTICE_SECONDS", 0.2)
    monkeypatch.setattr(web, "WAITS", (0.01,) * 9)
    Server.files["/a"], Server.plan["/a"] = DATA, ["stall 2000", *["silent"] * 9]
    lines: list[str] = []
    with web.patience(0.9, lines.append):
        said = message(f"{server}/a")
    assert said.startswith(f"{server}/a cannot be read: ")
    assert said.endswith(
        " after 2,000 of 3,000,000 bytes: no data came for 0.9 s; raise prepare.web_timeout (0.9) to wait longer"
    )
    assert lines == [
        f"{server}/a: no data for 0.2 s after 2,000 of 3,000,000 bytes; "
        "trying again, until no data has come for 0.9 s (prepare.web_timeout)"
    ]
    assert [asked for _, asked in Server.asked[:2]] == ["", "bytes=2000-"]


def test_a_stall_that_ends_costs_nothing(server: str):
    Server.files["/a"], Server.plan["/a"] = DATA, ["stall 2000", "silent", "whole"]
    with web.patience(3, lambda line: None):
        assert b"".join(blocks(f"{server}/a")) == DATA


def test_a_server_without_an_answer_is_reported_and_given_up(server: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(web, "NOTICE_SECONDS", 0.2)
    monkeypatch.setattr(web, "WAITS", (0.01,) * 9)
    monkeypatch.setattr(Server, "do_HEAD", Server.stall)
    lines: list[str] = []
    with (
        web.patience(0.6, lines.append),
        pytest.raises(DataError, match=r"no data came for 0.6 s; raise prepare.web_timeout \(0.6\) to wait longer$"),
    ):
        list_files(parse(f"{server}/a.txt"))
    assert lines == [
        f"{server}/a.txt: no data for 0.2 s; trying again, until no data has come for 0.6 s (prepare.web_timeout)"
    ]


def test_a_reader_that_takes_its_time_is_no_silence(server: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(web, "NOTICE_SECONDS", 0.1)
    Server.files["/a"] = DATA
    lines: list[str] = []
    with web.patience(30, lines.append):
        for number, _ in enumerate(blocks(f"{server}/a")):
            threading.Event().wait(0.3 if number == 0 else 0)
    assert lines == []


def test_a_server_that_is_away_from_the_beginning_is_refused_in_seconds(monkeypatch: pytest.MonkeyPatch):
    waited: list[float] = []
    monkeypatch.setattr(web.time, "sleep", waited.append)
    with pytest.raises(OSError, match=r"^no connection \(.*refused\), in 3 tries$"):
        web.describe("http://127.0.0.1:9/a.txt")
    assert waited == [1.0, 4.0]
