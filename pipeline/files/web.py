"""Read a file over http or https as a stream that resumes after a broken connection.

requests and smart-open do not resume. If a server ends each response after 1 MB, they read only 1 MB of a 10 MB file;
this stream reads all 10 MB.
"""

import io
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import requests
from urllib3.exceptions import HTTPError

from pipeline.reporting import Report

Answer = TypeVar("Answer")
WEB = ("http://", "https://")
WEB_TIMEOUT = 180.0
"""Default of prepare.web_timeout."""
TRIES_OF_SILENCE = 3
"""Number of connections to try within the time limit for silence. Silence is time in which no byte arrives."""
SHORTEST_TIMEOUT = 0.05
"""Minimum timeout of a connection in seconds."""
NOTICE_SECONDS = 10.0
"""Seconds of silence after which a line is reported."""
WAITS = (1.0, 4.0, 15.0, 60.0)
"""Seconds to wait before each retry. After PROGRESS_BYTES of new data, the waits start again with the first wait."""
PROGRESS_BYTES = 1 << 20
TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
"""Status codes worth a retry.

Sources: RFC 9110, sections 15.5.9 and 15.6; RFC 6585, section 4; RFC 8470, section 5.2.
"""
NO_HEAD = (403, 405, 501)
"""Status codes of servers that do not support HEAD."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """Time limit for a server's silence, in seconds, and the function that receives lines about silence."""

    seconds: float = WEB_TIMEOUT
    report: Report = partial(print, flush=True)


DEFAULT_PATIENCE = Patience()
PATIENCE: ContextVar[Patience] = ContextVar("patience", default=DEFAULT_PATIENCE)


@contextmanager
def patience(seconds: float, report: Report) -> Generator[None]:
    """Set the Patience of all reads from web servers inside this context."""
    token = PATIENCE.set(Patience(seconds=seconds, report=report))
    try:
        yield
    finally:
        PATIENCE.reset(token)


class Silence:
    """Timer of a server's silence: the time in which no byte arrives. After ten seconds, it reports a line."""

    def __init__(self, url: str):
        self.url, self.patience, self.standing = url, PATIENCE.get(), ""
        self.since: float | None = None  # start of the current wait; None if no read is waiting
        self.closed = threading.Event()
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self) -> None:
        """Report each silence once, until closed."""
        told: float | None = None
        while not self.closed.wait(NOTICE_SECONDS / 10):
            since = self.since
            if since is not None and since != told and time.monotonic() - since >= NOTICE_SECONDS:
                told = since
                limit = f"{self.patience.seconds:g} s (prepare.web_timeout)"
                self.patience.report(
                    f"{self.url}: no data for {NOTICE_SECONDS:g} s{self.standing}; "
                    f"trying again, until no data has come for {limit}"
                )

    def begin(self) -> None:
        """Start waiting."""
        self.since = time.monotonic()

    def end(self) -> None:
        """Stop waiting."""
        self.since = None

    def left(self) -> float:
        """Return the seconds left until the time limit."""
        return self.patience.seconds - (0.0 if self.since is None else time.monotonic() - self.since)

    def timeout(self) -> float:
        """Return the timeout of one connection in seconds."""
        return max(SHORTEST_TIMEOUT, min(self.patience.seconds / TRIES_OF_SILENCE, self.left()))

    def given_up(self) -> str:
        """Return words for an error message: the time limit has passed."""
        return (
            f"no data came for {self.patience.seconds:g} s; raise prepare.web_timeout ({self.patience.seconds:g}) "
            "to wait longer"
        )


class Broken(Exception):
    """A broken connection or a busy server: a retry may help."""


class Unreachable(Broken):
    """No connection could be made: a wrong host name, or a server that is down."""


class WebStream(io.RawIOBase):
    """Stream of the stored bytes of a URL from `start` up to `stop` (exclusive), or to the end for None.

    If the server does not support Range, a `start` above 0 is an error, and `stop` is ignored. For a `start` above 0,
    the file must have the ETag or date `stamp`, unless `stamp` is empty or a weak ETag.

    Raises OSError if no retry can help; the message has the numbers of received and expected bytes.
    """

    def __init__(self, url: str, start: int = 0, stop: int | None = None, stamp: str = ""):
        self.url, self.start, self.stop, self.had, self.expected = url, start, stop, start, -1
        self.validator = _strong_tag(stamp) if start else ""
        self.answer: requests.Response | None = None
        self.waits, self.mark = iter(WAITS), start
        self.silence = Silence(url)
        self.persist(lambda: None)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        if hasattr(self, "silence"):
            self.silence.closed.set()
        if self.answer is not None:
            self.answer.close()
        super().close()

    def read(self, size: int = -1) -> bytes:
        return self.persist(lambda: self.receive(size))

    def persist(self, call: Callable[[], Answer]) -> Answer:
        """Return the result of a call on an open connection; if the connection breaks, wait, reconnect and repeat."""
        self.silence.standing = self.standing()
        self.silence.begin()
        try:
            while True:
                try:
                    if self.answer is None:
                        self.ask()
                    return call()
                except Broken as error:
                    self.wait(error)
        except OSError:
            self.close()
            raise
        finally:
            self.silence.end()

    def wait(self, error: Broken) -> None:
        """Wait before the next connection. Raises OSError after the last retry or at the time limit."""
        if self.answer is not None:
            self.answer.close()
        self.answer = None
        if self.had >= self.mark + PROGRESS_BYTES:
            self.waits, self.mark = iter(WAITS), self.had
        wait = next(self.waits, None)
        if wait is None:
            raise OSError(f"{error}{self.standing()}, in {1 + len(WAITS)} tries") from error
        if self.silence.left() <= wait:
            raise OSError(f"{error}{self.standing()}: {self.silence.given_up()}") from error
        time.sleep(wait)

    def standing(self) -> str:
        """Return words for messages: how many bytes were read."""
        if self.start and self.had == self.start:
            return f" for the bytes from {self.start:,} on"
        return (
            f" after {self.had:,} of {self.expected:,} bytes"
            if self.expected >= 0
            else f" after {self.had:,} bytes"
            if self.had
            else ""
        )

    def ask(self) -> None:
        """Open a connection for the bytes that have not arrived yet."""
        headers = {"Accept-Encoding": "identity"}
        if self.had or self.stop is not None:
            headers["Range"] = f"bytes={self.had}-{'' if self.stop is None else self.stop - 1}"
        if self.had and self.validator:
            headers["If-Range"] = self.validator
        try:
            answer = requests.get(self.url, headers=headers, stream=True, timeout=self.silence.timeout())
        except (requests.ConnectionError, requests.Timeout) as error:
            raise Broken(f"no connection ({reason(error)})") from error
        self.check(answer)
        self.answer = answer

    def check(self, answer: requests.Response) -> None:
        """Store the response's size and ETag or date.

        Raises an error for a failed request, or if the response does not continue the same file.
        """
        about = answer.headers
        validator = _strong_tag(about.get("ETag", "")) or about.get("Last-Modified", "")
        _refuse_failure(answer, self.standing())
        if self.had and (
            answer.status_code != 206
            or (self.validator and validator != self.validator)
            or not about.get("Content-Range", "").startswith(f"bytes {self.had}-")
        ):
            broke = f"the connection broke{self.standing()}, and " if self.had > self.start else ""
            raise OSError(
                f"{broke}the server cannot continue at byte {self.had:,}: "
                "it does not support Range requests, or the file has changed"
            )
        if self.had == self.start:
            self.validator = validator
            self.expected = self.start + int(about["Content-Length"]) if "Content-Length" in about else -1

    def receive(self, size: int) -> bytes:
        """Return the next bytes, at most `size`; b"" at the end."""
        assert self.answer is not None
        try:
            data = self.answer.raw.read1(
                size, decode_content=False
            )  # `read` would lose received bytes if the rest does not arrive
        except (HTTPError, OSError) as error:
            raise self.broken() from error
        self.had += len(data)
        if not data and size != 0 and self.had < self.expected:
            raise self.broken()
        return data

    def broken(self) -> Exception:
        """Return the error for a broken connection.

        Without an ETag or date, a retry is not allowed, because the file may have changed.
        """
        if self.had > self.start and not self.validator:
            return OSError(
                f"the connection broke{self.standing()}, and the download cannot continue: "
                "the server sends no ETag or date, so the file may have changed"
            )
        return Broken("the connection broke")


def describe(url: str) -> Mapping[str, str]:
    """Return a server's headers for a file. Raises OSError if no retry can help.

    Retries are as in WebStream, but end after about five seconds if no connection can be made at all.
    """
    silence = Silence(url)
    silence.begin()
    try:
        for tries, wait in enumerate((*WAITS, None), 1):
            try:
                return _headers(url, silence.timeout())
            except Broken as error:
                if wait is not None and silence.left() <= wait:
                    raise OSError(f"{error}: {silence.given_up()}") from error
                if wait is None or isinstance(error, Unreachable) and wait > WAITS[1]:
                    raise OSError(f"{error}, in {tries} tries") from error
                time.sleep(wait)
        raise AssertionError("the last try returns or raises")
    finally:
        silence.closed.set()


def _headers(url: str, timeout: float) -> Mapping[str, str]:
    """Return the headers of one response. Raises Broken if a retry may help, else OSError."""
    try:
        answer = _request_headers(requests.head, url, timeout)
        if answer.status_code in NO_HEAD:
            answer = _request_headers(requests.get, url, timeout)
    except (requests.ConnectionError, requests.Timeout) as error:
        raise Unreachable(f"no connection ({reason(error)})") from error
    _refuse_failure(answer, "")
    return answer.headers


def _request_headers(method: Callable[..., requests.Response], url: str, timeout: float) -> requests.Response:
    """Return a server's response without its body."""
    with method(
        url, allow_redirects=True, timeout=timeout, headers={"Accept-Encoding": "identity"}, stream=True
    ) as answer:
        return answer


def _refuse_failure(answer: requests.Response, standing: str) -> None:
    """Raise Broken for a transient status code, and OSError for any other error."""
    if answer.status_code in TRANSIENT:
        raise Broken(f"the server answers {answer.status_code} {answer.reason}")
    if answer.status_code >= 400:
        raise OSError(f"the server answers {answer.status_code} {answer.reason}{standing}")


def _strong_tag(tag: str) -> str:
    """Return an ETag or date, but "" for a weak ETag.

    A weak ETag does not guarantee identical bytes (RFC 9110, section 8.8.1).
    """
    return "" if tag.startswith("W/") else tag


def reason(error: BaseException) -> str:
    """Return the innermost cause of a connection error, without object addresses."""
    while error.args and isinstance(error.args[-1], BaseException):
        error = error.args[-1]
    cause = getattr(error, "reason", None)
    if isinstance(cause, BaseException):
        return reason(cause)
    return str(error).rpartition(": ")[2].strip() or type(error).__name__
