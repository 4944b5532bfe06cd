"""Bytes and lines of a file or URL, decompressed as a stream."""

import codecs
import io
from collections.abc import Iterator
from typing import Any, BinaryIO

import smart_open
from smart_open.compression import compression_wrapper

from pipeline import storage
from pipeline.errors import DataError

COMPRESSED = (".gz", ".bz2", ".zst", ".xz")
WEB = ("http://", "https://")
WEB_TIMEOUT = 60.0
"""Seconds without a byte after which a web server counts as gone."""
BLOCK_BYTES = 1 << 18
LONGEST_LINE = 1 << 20
"""Characters of a line that are held in memory; a longer line arrives in parts."""


class CutOff(Exception):
    """Compressed data that ends too early."""


class Damaged(Exception):
    """Compressed data that cannot be decompressed."""


class Source(io.RawIOBase):
    """A raw stream whose errors name its location, so that they are told from errors of the decompression above it."""

    def __init__(self, location: str):
        self.location = location
        self.stream: BinaryIO = self.guarded(open_raw, location)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.guarded(self.stream.read, len(buffer))
        buffer[: len(data)] = data
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
        return smart_open.open(location, "rb", compression="disable", transport_params={"timeout": WEB_TIMEOUT})
    system, path = storage.filesystem(location)
    return system.open_input_stream(path, compression=None)


def blocks(location: str) -> Iterator[bytes]:
    """A file's contents, decompressed as its name says, in blocks of at most 256 KiB.

    Raises CutOff or Damaged after all that could be decompressed, and DataError where the file cannot be read.
    """
    with io.BufferedReader(Source(location), BLOCK_BYTES) as source:
        # The wrapper's own buffer would lose what was decompressed just before an error: read below it.
        wrapper: Any = compression_wrapper(source, "rb", compression=compression(location))
        stream = wrapper.raw if wrapper is not source else source
        try:
            while block := stream.read1(BLOCK_BYTES):
                yield block
        except DataError:
            raise
        except EOFError as error:
            raise CutOff(location) from error
        except Exception as error:  # each compression raises kinds of its own
            raise Damaged(location) from error


def compression(location: str) -> str:
    """What smart_open calls the compression that a name ends in."""
    path = location.split("?")[0] if location.startswith(WEB) else location
    return next((suffix for suffix in COMPRESSED if path.lower().endswith(suffix)), "disable")


def lines(blocks: Iterator[bytes]) -> Iterator[str]:
    """The lines of UTF-8 text without their line ends (LF, CR or CR LF); undecodable bytes come as lone surrogates.

    A line of more than a million characters comes in parts that end at white space where there is some.
    """
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8-sig")("surrogateescape"), translate=True)
    rest = ""
    for block in blocks:
        *whole, rest = (rest + decoder.decode(block)).split("\n")
        yield from whole
        while len(rest) > LONGEST_LINE:
            at = rest.rfind(" ", 0, LONGEST_LINE) + 1 or LONGEST_LINE
            yield rest[:at]
            rest = rest[at:]
    yield from (rest + decoder.decode(b"", final=True)).split("\n")
