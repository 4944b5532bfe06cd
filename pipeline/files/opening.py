"""Read the bytes and lines of a file or URL, decompressed as a stream."""

import codecs
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from pipeline.errors import DataError
from pipeline.files import storage
from pipeline.files.retries import with_retries
from pipeline.files.web import WEB, WebStream

COMPRESSED = (".gz", ".bz2", ".zst", ".xz")
MAGIC = {b"\x1f\x8b\x08": ".gz", b"BZh": ".bz2", b"\x28\xb5\x2f\xfd": ".zst", b"\xfd7zXZ\x00": ".xz"}
BZ2_BLOCK = b"1AY&SY"
"""Bytes after the four bytes of a bz2 header. They are checked because a text could begin with "BZh"."""
BLOCK_BYTES = 1 << 18
LONGEST_LINE = 1 << 20
"""Maximum characters of a line; a longer line is split."""
EXPANSION_LIMIT = 200
"""Default of prepare.expansion_limit."""
UTF16 = (b"\xff\xfe", b"\xfe\xff")
"""Byte order marks of UTF-16."""
HARMLESS_BYTES = 64 << 20
"""Decompressed bytes that are allowed for every file, whatever its stored size: repetitive text is not an attack."""


BOM = "\ufeff"
"""Byte order mark. Programs write this mark at the start of a file, or alone on an extra last line."""


class CutOff(Exception):
    """Compressed data that is truncated."""


class Damaged(Exception):
    """Compressed data that cannot be decompressed."""


class ExpandsTooFar(Exception):
    """Compressed data that expands beyond the limit."""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """Input of a format's reader: the decompressed blocks of one file, and the user's options for the file.

    The ids of the file's records begin with `name`. `column` names the text column; `language` is a code such as "de".
    Both are None if the user did not set them.
    """

    location: str
    name: str
    blocks: Iterator[bytes]
    column: str | None = None
    language: str | None = None


class LocatedStream(io.RawIOBase):
    """Raw stream that raises its read errors as DataError, to distinguish them from errors of decompression.

    Transient errors of storage are retried: a read that failed has not moved the stream. The messages name the stream's
    location. `given` counts the bytes read.
    """

    def __init__(self, location: str, opening: Callable[[str], Any] | None = None):
        self.location = location
        self.given = 0
        self.stream: BinaryIO = self.guarded(opening or _open_raw, location)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.guarded(self.stream.read, len(buffer))
        buffer[: len(data)] = data
        self.given += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed and hasattr(self, "stream"):
            self.stream.close()
        super().close()

    def guarded(self, call: Any, argument: Any) -> Any:
        try:
            return with_retries(lambda: call(argument))
        except Exception as error:  # file systems and web clients raise their own types
            raise DataError(f"{self.location} cannot be read: {storage.first_line(error)}") from error


def _open_raw(location: str) -> Any:
    """Open a file's stored bytes. Raises whatever errors the file system or web client raises."""
    if location.startswith(WEB):
        return WebStream(location)
    system, path = storage.filesystem(location)
    return system.open_input_stream(path, compression=None)


def read_stored(location: str, start: int, stop: int | None = None, stamp: str = "") -> Iterator[bytes]:
    """Yield blocks of a file's stored bytes from `start` up to `stop` (exclusive), or to the file's end for None.

    Raises DataError if the bytes cannot be read. For a `start` above 0, DataError is also raised if the ETag or date
    of a web server's file differs from `stamp`.
    """
    with LocatedStream(location, lambda location: _open_at(location, start, stop, stamp)) as stream:
        while (stop is None or start < stop) and (
            block := stream.read(BLOCK_BYTES if stop is None else min(BLOCK_BYTES, stop - start))
        ):
            start += len(block)
            yield block


def read_at(location: str, start: int, size: int) -> bytes:
    """Return `size` stored bytes of a file from `start` on, or fewer at the file's end."""
    return b"".join(read_stored(location, start, start + size))


def _open_at(location: str, start: int, stop: int | None, stamp: str) -> Any:
    """Open a file's stored bytes at `start`. The stream ends at `stop` for a web server, else at the file's end.

    Raises whatever errors the file system or web client raises.
    """
    if location.startswith(WEB):
        return WebStream(location, start, stop, stamp)
    system, path = storage.filesystem(location)
    stream = system.open_input_file(path)
    stream.seek(start)
    return stream


def blocks(location: str, expansion_limit: int = EXPANSION_LIMIT) -> Iterator[bytes]:
    """Yield a file's decompressed contents in blocks of at most 256 KiB.

    The compression is taken from the file's first bytes, else from its name. Raises CutOff, Damaged or ExpandsTooFar
    after yielding all data before the error, and DataError if the file cannot be read.
    """
    raw = LocatedStream(location)
    with io.BufferedReader(raw, BLOCK_BYTES) as source:
        compression, stream = _compression_by_magic(source.peek(16)) or compression_by_name(location), source
        if compression is not None:
            # Imported here because smart_open imports every installed cloud library.
            from smart_open.compression import compression_wrapper

            # Bypass the wrapper's buffer: it would lose data that was decompressed just before an error.
            wrapper: Any = compression_wrapper(source, "rb", compression=compression)
            stream = wrapper.raw
        size = 0
        try:
            while block := stream.read1(BLOCK_BYTES):
                size += len(block)
                refuse_expansion(size, raw.given, expansion_limit)
                yield block
        except (DataError, ExpandsTooFar):
            raise
        except EOFError as error:
            raise CutOff from error
        except Exception as error:  # each compression raises its own types
            raise Damaged(storage.first_line(error)) from error


def refuse_expansion(size: int, stored: int, limit: int) -> None:
    """Raise ExpandsTooFar if `size` decompressed bytes exceed both 64 MiB and `limit` times the `stored` bytes."""
    if size > HARMLESS_BYTES and size > limit * stored:
        raise ExpandsTooFar(
            f"{stored:,} bytes were decompressed to {size:,} bytes: the factor is above "
            f"prepare.expansion_limit ({limit})"
        )


def compression_by_name(location: str) -> str | None:
    """Return the compression suffix of a file name, such as ".gz", or None if the name has none.

    smart_open uses the same suffixes as names of compressions.
    """
    path = location.split("?")[0] if location.startswith(WEB) else location
    return next((suffix for suffix in COMPRESSED if path.lower().endswith(suffix)), None)


def bare_name(name: str) -> str:
    """Return a file's name without its compression suffix."""
    return next((name[: -len(suffix)] for suffix in COMPRESSED if name.lower().endswith(suffix)), name)


def _compression_by_magic(head: bytes) -> str | None:
    """Return smart_open's name for the compression that the first bytes show; None if they show none.

    File names of downloads often do not show the compression.
    """
    recognised = next((suffix for start, suffix in MAGIC.items() if head.startswith(start)), None)
    return None if recognised == ".bz2" and head[4:10] != BZ2_BLOCK else recognised


def is_utf16(head: bytes) -> bool:
    """Whether the first bytes of a file are UTF-16 with a byte order mark.

    Other data that begins with the same two bytes has many invalid characters: about one in thirty.
    """
    text = head[: len(head) // 2 * 2].decode("utf-16", "replace") if head.startswith(UTF16) else ""
    return head.startswith(UTF16) and text.count("\ufffd") <= max(2, len(text) // 100)


def as_utf8(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Convert UTF-16 with a byte order mark to UTF-8.

    Lone surrogates and an incomplete last character become invalid UTF-8.
    """
    decoder = codecs.getincrementaldecoder("utf-16")("surrogatepass")
    for block in blocks:
        yield decoder.decode(block).encode("utf-8", "surrogatepass")
    try:
        yield decoder.decode(b"", final=True).encode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        yield b"\xff"


def _decode_utf8(blocks: Iterator[bytes]) -> Iterator[str]:
    """Decode UTF-8 to text without byte order mark and with LF line ends; undecodable bytes become lone surrogates."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8-sig")("surrogateescape"), translate=True)
    for block in blocks:
        yield decoder.decode(block)
    yield decoder.decode(b"", final=True)


def lines(blocks: Iterator[bytes]) -> Iterator[str]:
    """Yield the lines of UTF-8 text without line ends (LF, CR or CR LF); undecodable bytes become lone surrogates.

    A line of more than about a million characters is split: after a space, if its first million characters have one.
    """
    rest = ""
    for text in _decode_utf8(blocks):
        *whole, rest = (rest + text).split("\n")
        yield from whole
        while len(rest) > LONGEST_LINE:
            end = rest.rfind(" ", 0, LONGEST_LINE) + 1 or LONGEST_LINE
            yield rest[:end]
            rest = rest[end:]
    yield rest


def without_end(line: str) -> str:
    """Return a line without its end, LF or CR LF."""
    return line.removesuffix("\n").removesuffix("\r")


def is_blank(line: str) -> bool:
    """Return whether a line (without its line end) is empty except for byte order marks."""
    return not line.strip(BOM)


def whole_lines(blocks: Iterator[bytes], longest: int) -> Iterator[tuple[str, bool]]:
    """Yield (line, True) for each line of UTF-8 text, or (first `longest` characters, False) for a longer line."""
    held: list[str] = []
    size = 0
    for text in _decode_utf8(blocks):
        first, *more = text.split("\n")
        for part, ends in [
            (first, bool(more)),
            *((line, True) for line in more[:-1]),
            *((line, False) for line in more[-1:]),
        ]:
            if size <= longest:
                held.append(part)
            size += len(part)
            if ends:
                yield "".join(held)[:longest], size <= longest
                held, size = [], 0
    yield "".join(held)[:longest], size <= longest
