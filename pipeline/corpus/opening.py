"""Bytes and lines of a file or URL, decompressed as a stream."""

import codecs
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from pipeline import storage
from pipeline.corpus.web import WEB, WebStream
from pipeline.errors import DataError

COMPRESSED = (".gz", ".bz2", ".zst", ".xz")
MAGIC = {b"\x1f\x8b\x08": ".gz", b"BZh": ".bz2", b"\x28\xb5\x2f\xfd": ".zst", b"\xfd7zXZ\x00": ".xz"}
BZ2_BLOCK = b"1AY&SY"
"""What follows the four bytes of a bzip2 header: three letters alone could begin a text."""
BLOCK_BYTES = 1 << 18
LONGEST_LINE = 1 << 20
"""Characters of a line that are held in memory; a longer line arrives in parts."""
EXPANSION_LIMIT = 200
"""Default of prepare.expansion_limit."""
UTF16 = (b"\xff\xfe", b"\xfe\xff")
"""Byte order marks."""
HARMLESS_BYTES = 64 << 20
"""What may come out of any file, however small: repeated text is no attack."""


class CutOff(Exception):
    """Compressed data that ends too early."""


class Damaged(Exception):
    """Compressed data that cannot be decompressed."""


class ExpandsTooFar(Exception):
    """Compressed data that would fill the disk."""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """One file for a format's reader: its decompressed blocks, and what the user said about it.

    `name` is what its records' ids begin with; `column` names the column that holds the text; `language` is a code such as "de".
    """

    location: str
    name: str
    blocks: Iterator[bytes]
    column: str | None = None
    language: str | None = None


class LocatedStream(io.RawIOBase):
    """A raw stream whose errors name its location, so that they are told from errors of the decompression above it."""

    def __init__(self, location: str, opening: Callable[[str], Any] | None = None):
        self.location = location
        self.given = 0
        self.stream: BinaryIO = self.guarded(opening or open_raw, location)

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
            return call(argument)
        except Exception as error:  # file systems and web clients raise kinds of their own
            raise DataError(f"{self.location} cannot be read: {storage.first_line(error)}") from error


def open_raw(location: str) -> Any:
    """A file's bytes as they are stored. Raises what the file system or web client raises."""
    if location.startswith(WEB):
        return WebStream(location)
    system, path = storage.filesystem(location)
    return system.open_input_stream(path, compression=None)


def read_stored(location: str, start: int, stop: int | None = None, stamp: str = "") -> Iterator[bytes]:
    """The bytes of a file as they are stored, from `start` on to before `stop` or its end, in blocks.

    Raises DataError where they cannot be read, or where a web server's file has another tag or date than `stamp`.
    """
    with LocatedStream(location, lambda location: open_at(location, start, stop, stamp)) as stream:
        while (stop is None or start < stop) and (
            block := stream.read(BLOCK_BYTES if stop is None else min(BLOCK_BYTES, stop - start))
        ):
            start += len(block)
            yield block


def read_at(location: str, start: int, size: int) -> bytes:
    """At most `size` stored bytes from `start` on; fewer at the end of the file."""
    return b"".join(read_stored(location, start, start + size))


def open_at(location: str, start: int, stop: int | None, stamp: str) -> Any:
    """A file's stored bytes from `start` on, of a web server's none from `stop` on. Raises what the file system or web client raises."""
    if location.startswith(WEB):
        return WebStream(location, start, stop, stamp)
    system, path = storage.filesystem(location)
    stream = system.open_input_file(path)
    stream.seek(start)
    return stream


def blocks(location: str, expansion_limit: int = EXPANSION_LIMIT) -> Iterator[bytes]:
    """A file's contents in blocks of at most 256 KiB, decompressed as its name says, or else its first bytes.

    Raises CutOff, Damaged or ExpandsTooFar after all that could be decompressed, and DataError where the file cannot be read.
    """
    from smart_open.compression import compression_wrapper  # brings every cloud's library along that is installed

    raw = LocatedStream(location)
    with io.BufferedReader(raw, BLOCK_BYTES) as source:
        # The wrapper's own buffer would lose what was decompressed just before an error: read below it.
        wrapper: Any = compression_wrapper(
            source, "rb", compression=compression_by_name(location) or compression_by_magic(source.peek(16))
        )
        stream = wrapper.raw if wrapper is not source else source
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
        except Exception as error:  # each compression raises kinds of its own
            raise Damaged from error


def refuse_expansion(size: int, given: int, limit: int) -> None:
    """Raise ExpandsTooFar where more came out of so many stored bytes than is harmless."""
    if size > HARMLESS_BYTES and size > limit * given:
        raise ExpandsTooFar(
            f"{size:,} bytes came out of {given:,}: more than prepare.expansion_limit ({limit}) times as many"
        )


def compression_by_name(location: str) -> str | None:
    """What smart_open calls the compression that a name ends in."""
    path = location.split("?")[0] if location.startswith(WEB) else location
    return next((suffix for suffix in COMPRESSED if path.lower().endswith(suffix)), None)


def compression_by_magic(head: bytes) -> str:
    """What smart_open calls the compression that first bytes show, for downloads without a telling name."""
    found = next((suffix for start, suffix in MAGIC.items() if head.startswith(start)), "disable")
    return "disable" if found == ".bz2" and head[4:10] != BZ2_BLOCK else found


def is_utf16(head: bytes) -> bool:
    """Whether first bytes are UTF-16 with its byte order mark; of what only begins like it, one character in thirty would be no character."""
    text = head[: len(head) // 2 * 2].decode("utf-16", "replace") if head.startswith(UTF16) else ""
    return head.startswith(UTF16) and text.count("\ufffd") <= max(2, len(text) // 100)


def as_utf8(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """UTF-16 with its byte order mark as UTF-8; halves of surrogate pairs and of a last character come as bytes that are no UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-16")("surrogatepass")
    for block in blocks:
        yield decoder.decode(block).encode("utf-8", "surrogatepass")
    try:
        yield decoder.decode(b"", final=True).encode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        yield b"\xff"


def decode_utf8(blocks: Iterator[bytes]) -> Iterator[str]:
    """UTF-8 text without BOM and with LF as its line ends; undecodable bytes come as lone surrogates."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8-sig")("surrogateescape"), translate=True)
    for block in blocks:
        yield decoder.decode(block)
    yield decoder.decode(b"", final=True)


def lines(blocks: Iterator[bytes]) -> Iterator[str]:
    """The lines of UTF-8 text without their line ends (LF, CR or CR LF); undecodable bytes come as lone surrogates.

    A line of more than a million characters comes in parts that end at white space where there is some.
    """
    rest = ""
    for text in decode_utf8(blocks):
        *whole, rest = (rest + text).split("\n")
        yield from whole
        while len(rest) > LONGEST_LINE:
            at = rest.rfind(" ", 0, LONGEST_LINE) + 1 or LONGEST_LINE
            yield rest[:at]
            rest = rest[at:]
    yield rest


def whole_lines(blocks: Iterator[bytes], longest: int) -> Iterator[tuple[str, bool]]:
    """(line, True) of each line as `lines` finds them, and of one of more than `longest` characters (its beginning, False)."""
    held: list[str] = []
    size = 0
    for text in decode_utf8(blocks):
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
