"""What a file of examples holds: its bytes and its text, decompressed where it is gzip."""

import gzip
import zlib

from pipeline import storage
from pipeline.errors import DataError

GZIP = b"\x1f\x8b"


def content(location: str) -> bytes:
    """The bytes of a local file or URL, decompressed where they begin as gzip does. Raises DataError where it cannot be read."""
    try:
        stored = storage.read_bytes(location)
        return gzip.decompress(stored) if stored.startswith(GZIP) else stored
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{location} cannot be read ({storage.first_line(error)}): give a plain or gzip file that can") from error


def lines(location: str) -> list[str]:
    """The lines of a UTF-8 file, without a byte order mark and line ends (LF or CR LF). Raises DataError where it is not UTF-8."""
    try:
        text = content(location).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{location} is not UTF-8 at byte {error.start}: save it as UTF-8") from error
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
