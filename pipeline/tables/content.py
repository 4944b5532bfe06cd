"""Read a file of examples: its bytes or text, decompressed."""

import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Callable

import pyarrow as pa

from pipeline.errors import DataError
from pipeline.files import storage

BOM = "\ufeff"
"""Byte order mark. Programs write this mark at the start of a file, or alone on an extra last line."""
SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair, which JSON can hold, but which is not a character; Arrow refuses it."""
BZ2_BLOCK = b"1AY&SY"
"""Magic number after bzip2's four-byte header. The header alone is not enough: a plain text may begin with "BZh"."""


def _unzstd(stored: bytes) -> bytes:
    """Decompress Zstandard frames. Raises OSError if they are damaged."""
    with pa.input_stream(pa.BufferReader(stored), compression="zstd") as stream:
        return stream.read()


COMPRESSED: dict[str, tuple[bytes, Callable[[bytes], bytes]]] = {
    ".gz": (b"\x1f\x8b", gzip.decompress),
    ".bz2": (b"BZh", bz2.decompress),
    ".xz": (b"\xfd7zXZ\x00", lzma.decompress),
    ".zst": (b"\x28\xb5\x2f\xfd", _unzstd),
}
"""File name suffix -> (magic number, function that decompresses the bytes of such a file)."""


def bare_name(location: str) -> str:
    """Return a path or URL in lower case, without query and compression suffix."""
    name = (location.split("?")[0] if "://" in location else location).lower()
    return next((name.removesuffix(ending) for ending in COMPRESSED if name.endswith(ending)), name)


def existing_file(location: str) -> str | None:
    """Return a file's location, plain or compressed; None if it does not exist."""
    return next(
        (path for path in (location, *(location + ending for ending in COMPRESSED)) if storage.exists(path)), None
    )


def _compression_of(location: str, stored: bytes) -> str | None:
    """Return the compression suffix detected from the first bytes, else from the name; None for a plain file."""
    for ending, (magic, _) in COMPRESSED.items():
        if stored.startswith(magic) and (ending != ".bz2" or stored[4:10] == BZ2_BLOCK):
            return ending
    name = location.split("?")[0] if "://" in location else location
    return next((ending for ending in COMPRESSED if name.lower().endswith(ending)), None)


def content_of(location: str) -> bytes:
    """Return the bytes of a local file or URL, decompressed if the file is compressed.

    The compression is detected from the first bytes, else from the file name. Raises DataError if the file cannot be
    read or decompressed.
    """
    try:
        stored = storage.read_bytes(location)
        ending = _compression_of(location, stored)
        return stored if ending is None else COMPRESSED[ending][1](stored)
    except FileNotFoundError:
        raise DataError(f"{location} does not exist") from None
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise DataError(
            f"{location} cannot be read ({storage.first_line(error)}): give a plain or compressed file that can be read"
        ) from error


def decoded(location: str, content: bytes) -> str:
    """Decode UTF-8 text without its byte order mark. Raises DataError with the line of the first invalid byte."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise DataError(
            f"{location}:{line}: byte 0x{error.object[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from None


def is_blank(line: str) -> bool:
    """Return whether a line (without its line end) is empty except for byte order marks."""
    return not line.strip(BOM)


def lines(location: str) -> list[str]:
    """Return the lines of a UTF-8 file, without byte order marks and line ends (LF or CR LF).

    Raises DataError if the file cannot be read or is not UTF-8.
    """
    text = decoded(location, content_of(location)).removesuffix("\n")
    return [line.removesuffix("\r").lstrip(BOM) for line in text.split("\n")]
