"""What a file of examples holds: its bytes and its text, decompressed."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable

import pyarrow as pa

from pipeline import storage
from pipeline.errors import DataError

BOM = "\ufeff"
"""Byte order mark: some programs write one at the beginning of a file, others on a line of its own at the end."""
BZ2_BLOCK = b"1AY&SY"
"""What follows the four bytes of a bzip2 header: three letters alone could begin a text."""


def unzstd(stored: bytes) -> bytes:
    """Return what Zstandard's frames hold. Raises OSError where they are damaged."""
    with pa.input_stream(pa.BufferReader(stored), compression="zstd") as stream:
        return stream.read()


COMPRESSED: dict[str, tuple[bytes, Callable[[bytes], bytes]]] = {
    ".gz": (b"\x1f\x8b", gzip.decompress),
    ".bz2": (b"BZh", bz2.decompress),
    ".xz": (b"\xfd7zXZ\x00", lzma.decompress),
    ".zst": (b"\x28\xb5\x2f\xfd", unzstd),
}
"""Ending of a name -> first bytes of such a file, and what decompresses it."""


def bare_name(location: str) -> str:
    """Return a path or URL in small letters, without a query and without the ending of a compression."""
    name = (location.split("?")[0] if "://" in location else location).lower()
    return next((name.removesuffix(ending) for ending in COMPRESSED if name.endswith(ending)), name)


def compression_of(location: str, stored: bytes) -> str | None:
    """Return the ending of the compression that first bytes show, else the name's; None for a plain file."""
    for ending, (magic, _) in COMPRESSED.items():
        if stored.startswith(magic) and (ending != ".bz2" or stored[4:10] == BZ2_BLOCK):
            return ending
    name = location.split("?")[0] if "://" in location else location
    return next((ending for ending in COMPRESSED if name.lower().endswith(ending)), None)


def content_of(location: str) -> bytes:
    """The bytes of a local file or URL, decompressed as its first bytes say, or else its name.

    Raises DataError where it cannot be read.
    """
    try:
        stored = storage.read_bytes(location)
        ending = compression_of(location, stored)
        return stored if ending is None else COMPRESSED[ending][1](stored)
    except FileNotFoundError:
        raise DataError(f"{location} is not there") from None
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        said = f"{location} cannot be read ({storage.first_line(error)}): give a plain or compressed file that can"
        raise DataError(said) from error


def decoded(location: str, content: bytes) -> str:
    """UTF-8 text without its byte order mark. Raises DataError with the line of the first byte that is none."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise DataError(
            f"{location}:{line}: byte 0x{error.object[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from None


def is_blank(line: str) -> bool:
    """Return whether a line without its end has nothing in it but byte order marks."""
    return not line.strip(BOM)


def lines(location: str) -> list[str]:
    """The lines of a UTF-8 file, without byte order marks before them and line ends (LF or CR LF).

    Raises DataError where it is not UTF-8.
    """
    text = decoded(location, content_of(location)).removesuffix("\n")
    return [line.removesuffix("\r").lstrip(BOM) for line in text.split("\n")]
