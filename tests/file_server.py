"""A web server of a folder's files, for tests of corpora on the web."""

import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass
class FileServer:
    """A running server, and what was asked of it.

    `refuse` takes the path and the range ("0-99", or "" for a whole file) of each GET request and may return a status
    of failure. Before it sends a range, the server waits for `pause` seconds, so that requests overlap. `ranges` are
    the ranges that it sent, and `most` is the number that were asked for at once.
    """

    folder: Path
    url: str = ""
    refuse: Callable[[str, str], int | None] = lambda path, range: None
    pause: float = 0.0
    ranges: list[str] = field(default_factory=list)
    open: int = 0
    most: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, change: int) -> None:
        with self.lock:
            self.open += change
            self.most = max(self.most, self.open)


@contextmanager
def file_server(folder: Path, pause: float = 0.0) -> Generator[FileServer]:
    """Start a server of a folder's files; stop it at the end."""
    folder.mkdir(exist_ok=True)
    state = FileServer(folder=folder, pause=pause)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, state=state))
    state.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=partial(server.serve_forever, poll_interval=0.02), daemon=True).start()
    yield state
    server.shutdown()
    server.server_close()


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, *about: Any, state: FileServer):
        self.state = state
        super().__init__(*about, directory=str(state.folder))

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "").removeprefix("bytes=")
        if status := self.state.refuse(self.path, wanted):
            self.send_error(status)
        elif wanted:
            self.state.count(1)
            self.send_range(wanted)
        else:
            super().do_GET()

    def send_range(self, wanted: str) -> None:
        self.state.ranges.append(wanted)
        first, last = wanted.split("-")
        path = self.translate_path(self.path)
        data = Path(path).read_bytes()
        part = data[int(first) : int(last or len(data)) + 1]
        time.sleep(self.state.pause)
        self.send_response(206)
        self.send_header("Last-Modified", self.date_time_string(int(os.stat(path).st_mtime)))
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}")
        self.end_headers()
        self.state.count(-1)  # before the last byte, which lets the reader go on
        self.wfile.write(part)

    def log_message(self, *_: object) -> None:
        pass
