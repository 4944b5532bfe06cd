"""A file behind http:// or https:// as a stream that goes on where a connection broke."""

import io
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import requests
from urllib3.exceptions import HTTPError

Answer = TypeVar("Answer")
WEB = ("http://", "https://")
WEB_TIMEOUT = 180.0
"""Default of prepare.web_timeout."""
TRIES_OF_SILENCE = 3
"""Connections among which the time without a byte is shared."""
SHORTEST_TIMEOUT = 0.05
NOTICE_SECONDS = 10.0
"""Without a byte, after which a line says so."""
WAITS = (1.0, 4.0, 15.0, 60.0)
"""Seconds before each new try; a try that brought a megabyte starts them over."""
PROGRESS_BYTES = 1 << 20
TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
"""Answers that may be another a little later (RFC 9110, 15.5.9, 15.6; RFC 6585, 4; RFC 8470, 5.2)."""
NO_HEAD = (403, 405, 501)
"""What servers answer that know no HEAD."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long a server may send nothing, and where a line about that goes."""

    seconds: float = WEB_TIMEOUT
    report: Callable[[str], None] = partial(print, flush=True)


PATIENCE: ContextVar[Patience] = ContextVar("patience", default=Patience())


@contextmanager
def patience(seconds: float, report: Callable[[str], None]) -> Iterator[None]:
    """Read from web servers with this patience."""
    token = PATIENCE.set(Patience(seconds=seconds, report=report))
    try:
        yield
    finally:
        PATIENCE.reset(token)


class Silence:
    """The time without a byte while a server is waited for; a line says so after ten seconds."""

    def __init__(self, url: str):
        self.url, self.patience, self.standing = url, PATIENCE.get(), ""
        self.since: float | None = None  # None: nobody waits
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
                    f"{self.url}: no byte for {NOTICE_SECONDS:g} s{self.standing}; new tries are made until there was none for {limit}"
                )

    def begin(self) -> None:
        """Wait from now on."""
        self.since = time.monotonic()

    def end(self) -> None:
        """Wait no more."""
        self.since = None

    def left(self) -> float:
        """Seconds that the server may still send nothing."""
        return self.patience.seconds - (0.0 if self.since is None else time.monotonic() - self.since)

    def timeout(self) -> float:
        """Seconds for one connection."""
        return max(SHORTEST_TIMEOUT, min(self.patience.seconds / TRIES_OF_SILENCE, self.left()))

    def given_up(self) -> str:
        """For messages, what was waited in vain."""
        return (
            f"no byte came for {self.patience.seconds:g} s; prepare.web_timeout ({self.patience.seconds:g}) allows more"
        )


class Broken(Exception):
    """A connection that broke, or a server that is busy: a new try may help."""


class Unreachable(Broken):
    """No connection at all: a name that is wrong, or a server that is away."""


class WebStream(io.RawIOBase):
    """The stored bytes of a URL from byte `start` on, of the file with a tag or date (`stamp`) where one is given; none from `stop` on where the server knows Range.

    Raises OSError with what was had and what was expected where no new try can help.
    """

    def __init__(self, url: str, start: int = 0, stop: int | None = None, stamp: str = ""):
        self.url, self.start, self.stop, self.had, self.expected = url, start, stop, start, -1
        self.validator = strong_tag(stamp) if start else ""
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
        """What a call gives on an open connection, after a wait and a new connection for each time that it breaks."""
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
        """Wait before a new connection. Raises OSError where there were enough of them, or nothing came for too long."""
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
        """How far it came, for messages."""
        if self.start and self.had == self.start:
            return f" for what lies behind byte {self.start:,}"
        return (
            f" after {self.had:,} of {self.expected:,} bytes"
            if self.expected >= 0
            else f" after {self.had:,} bytes"
            if self.had
            else ""
        )

    def ask(self) -> None:
        """Open a connection from where the last one broke."""
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
        """Take the answer's size and tag, or refuse it."""
        about = answer.headers
        validator = strong_tag(about.get("ETag", "")) or about.get("Last-Modified", "")
        refuse_failure(answer, self.standing())
        if self.had and (
            answer.status_code != 206
            or (self.validator and validator != self.validator)
            or not about.get("Content-Range", "").startswith(f"bytes {self.had}-")
        ):
            broke = f"the connection broke{self.standing()}, and " if self.had > self.start else ""
            raise OSError(
                f"{broke}the server cannot go on {'there' if broke else f'from byte {self.had:,}'}: it knows no Range, or the file has changed"
            )
        if self.had == self.start:
            self.validator = validator
            self.expected = self.start + int(about["Content-Length"]) if "Content-Length" in about else -1

    def receive(self, size: int) -> bytes:
        """The next bytes; none at the end."""
        assert self.answer is not None
        try:
            data = self.answer.raw.read1(
                size, decode_content=False
            )  # what is there: `read` would lose it where the rest does not come
        except (HTTPError, OSError) as error:
            raise self.broken() from error
        self.had += len(data)
        if not data and size != 0 and self.had < self.expected:
            raise self.broken()
        return data

    def broken(self) -> Exception:
        """The error of a connection that broke in the middle; without a tag nobody knows whether the rest is of the same file."""
        if self.had > self.start and not self.validator:
            return OSError(f"the connection broke{self.standing()}, and the server gives no ETag or date to go on by")
        return Broken("the connection broke")


def describe(url: str) -> Mapping[str, str]:
    """The headers with which a server answers for a file, tried as often as a WebStream would, or for a few seconds where there is no connection: nothing is begun yet. Raises OSError."""
    silence = Silence(url)
    silence.begin()
    try:
        for tries, wait in enumerate((*WAITS, None), 1):
            try:
                return headers(url, silence.timeout())
            except Broken as error:
                if wait is not None and silence.left() <= wait:
                    raise OSError(f"{error}: {silence.given_up()}") from error
                if wait is None or isinstance(error, Unreachable) and wait > WAITS[1]:
                    raise OSError(f"{error}, in {tries} tries") from error
                time.sleep(wait)
        raise AssertionError("the last try returns or raises")
    finally:
        silence.closed.set()


def headers(url: str, timeout: float) -> Mapping[str, str]:
    """The headers of one answer. Raises Broken where a new try may help, else OSError."""
    try:
        answer = request_headers(requests.head, url, timeout)
        if answer.status_code in NO_HEAD:
            answer = request_headers(requests.get, url, timeout)
    except (requests.ConnectionError, requests.Timeout) as error:
        raise Unreachable(f"no connection ({reason(error)})") from error
    refuse_failure(answer, "")
    return answer.headers


def request_headers(method: Callable[..., requests.Response], url: str, timeout: float) -> requests.Response:
    """A server's answer without its body."""
    with method(
        url, allow_redirects=True, timeout=timeout, headers={"Accept-Encoding": "identity"}, stream=True
    ) as answer:
        return answer


def refuse_failure(answer: requests.Response, standing: str) -> None:
    """Raise Broken for an answer that may be another a little later, and OSError for any other that is no file."""
    if answer.status_code in TRANSIENT:
        raise Broken(f"the server answers {answer.status_code} {answer.reason}")
    if answer.status_code >= 400:
        raise OSError(f"the server answers {answer.status_code} {answer.reason}{standing}")


def strong_tag(tag: str) -> str:
    """An entity tag that promises the same bytes; weak ones do not (RFC 9110, 8.8.1)."""
    return "" if tag.startswith("W/") else tag


def reason(error: BaseException) -> str:
    """The innermost cause of a connection's error, without the addresses of objects."""
    while error.args and isinstance(error.args[-1], BaseException):
        error = error.args[-1]
    cause = getattr(error, "reason", None)
    if isinstance(cause, BaseException):
        return reason(cause)
    return str(error).rpartition(": ")[2].strip() or type(error).__name__
