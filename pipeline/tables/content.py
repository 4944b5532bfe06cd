"""Read a file of examples, decompressed: as a stream of lines, or as a whole."""

import json
import re
from collections.abc import Iterator
from typing import Any

from pipeline.errors import DataError
from pipeline.files import opening, storage
from pipeline.files.local_files import require_regular
from pipeline.files.locations import is_url
from pipeline.files.opening import BOM, without_end

SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair, which JSON can hold, but which is not a character; Arrow refuses it."""


class EmptyTable(DataError):
    """A file without a header and without rows."""

    def __init__(self, location: str) -> None:
        super().__init__(f"{location} is empty: give a file with rows")


def bare_name(location: str) -> str:
    """Return a path or URL in lower case, without query and compression suffix."""
    return opening.bare_name((location.split("?")[0] if "://" in location else location).lower())


def existing_file(location: str) -> str | None:
    """Return a file's location, plain or compressed; None if it does not exist."""
    return next(
        (path for path in (location, *(location + ending for ending in opening.COMPRESSED)) if storage.exists(path)),
        None,
    )


def content_of(location: str) -> bytes:
    """Return the bytes of a local file or URL, decompressed if the file is compressed.

    The compression is detected from the first bytes, else from the file name. Raises DataError if the file cannot be
    read or decompressed.
    """
    try:
        return b"".join(_blocks(location))
    except (opening.CutOff, opening.Damaged, opening.ExpandsTooFar) as error:
        raise _damaged(location, "", error) from error


def json_value(location: str, wanted: str) -> Any:
    """Return the value of a JSON file. Raises DataError, which says to give `wanted`, for another file."""
    try:
        return json.loads(content_of(location))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{location} is not valid JSON ({storage.first_line(error)}): give {wanted}") from error


def text_lines(location: str) -> Iterator[str]:
    """Yield the lines of a UTF-8 file without its byte order mark. Line ends are kept, because fields may hold them.

    Raises DataError with the line number for an invalid byte and for damaged compressed data.
    """
    held, number = list[bytes](), 0
    try:
        for block in _blocks(location):
            first, *more = block.split(b"\n")
            held.append(first)
            for line in more:
                number += 1
                yield _utf8(location, number, b"".join(held) + b"\n")
                held = [line]
    except (opening.CutOff, opening.Damaged, opening.ExpandsTooFar) as error:
        raise _damaged(location, f" after line {number}" * (number > 0), error) from error
    if rest := b"".join(held):
        yield _utf8(location, number + 1, rest)


def lines(location: str) -> list[str]:
    """Return the lines of a UTF-8 file, without byte order marks and line ends (LF or CR LF).

    Raises DataError as `text_lines` does.
    """
    return [without_end(line).lstrip(BOM) for line in text_lines(location)]


def _blocks(location: str) -> Iterator[bytes]:
    """Yield a file's decompressed contents in blocks, as `opening.blocks`. Raises DataError if it does not exist."""
    try:
        if not is_url(location):
            require_regular(location)
        yield from opening.blocks(location)
    except OSError as error:
        raise DataError(
            f"{location} cannot be read ({storage.first_line(error)}): give a plain or compressed file that can be read"
        ) from error
    except DataError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise DataError(f"{location} does not exist") from None
        raise


def _damaged(location: str, after: str, error: Exception) -> DataError:
    """Return the error for compressed data that are cut off or damaged, or expand too far."""
    if isinstance(error, opening.ExpandsTooFar):
        return DataError(
            f"{location} is more than {opening.EXPANSION_LIMIT} times as large when it is decompressed: decompress it, "
            "and give the plain file"
        )
    reason = storage.first_line(error.__cause__ or error)
    return DataError(f"{location} cannot be read{after} ({reason}): give a plain or compressed file that can be read")


def _utf8(location: str, number: int, line: bytes) -> str:
    """Decode a line; drop a byte order mark at the start of line 1. Raises DataError for an invalid byte."""
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{location}:{number}: byte 0x{error.object[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from None
