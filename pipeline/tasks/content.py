"""What a file of examples holds: its bytes and its text, decompressed where it is gzip."""

import gzip
import zlib

from pipeline import storage
from pipeline.errors import DataError

GZIP, COMPRESSED = b"\x1f\x8b", ".gz"


def content_of(location: str) -> bytes:
    """The bytes of a local file or URL, decompressed where they begin, or the name ends, as gzip's do. Raises DataError where it cannot be read."""
    try:
        stored = storage.read_bytes(location)
        return gzip.decompress(stored) if stored.startswith(GZIP) or location.lower().endswith(COMPRESSED) else stored
    except FileNotFoundError:
        raise DataError(f"{location} is not there") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{location} cannot be read ({storage.first_line(error)}): give a plain or gzip file that can") from error


def decoded(location: str, content: bytes) -> str:
    """UTF-8 text without its byte order mark. Raises DataError with the line of the first byte that is none."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise DataError(f"{location}:{line}: byte 0x{error.object[error.start]:02x} is not UTF-8; save the file as UTF-8") from None


def lines(location: str) -> list[str]:
    """The lines of a UTF-8 file, without a byte order mark and line ends (LF or CR LF). Raises DataError where it is not UTF-8."""
    return [line.removesuffix("\r") for line in decoded(location, content_of(location)).removesuffix("\n").split("\n")]
