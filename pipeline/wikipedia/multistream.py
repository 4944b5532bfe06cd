"""Read the index of a Wikipedia multistream dump.

Such a dump is a sequence of bz2 streams. Each stream contains whole pages (usually 100).
"""

import re

from pipeline.errors import DataError
from pipeline.files import storage
from pipeline.files.opening import CutOff, Damaged, ExpandsTooFar, blocks, lines, read_at
from pipeline.files.web import WEB, WebStream

STREAM = re.compile(rb"BZh[1-9]1AY&SY")
"""Header of a bz2 stream, and the magic number of its first block."""
STREAM_BYTES = 10
NAME = re.compile(r"multistream(\d*)\.xml([^/?]*)\.bz2")
OFFSET = re.compile(r"(\d{1,18}):")
REMEDY = "delete the index, or download the index of this dump"


def index_beside(location: str) -> str | None:
    """Return where a dump's index would be; None if `location` does not have the file name of a multistream dump."""
    index = NAME.sub(r"multistream-index\1.txt\2.bz2", location)
    return None if index == location else index


def index_location(location: str) -> str | None:
    """Return the location of a dump's index.

    Returns None if there is no index, or if `location` does not have the file name of a multistream dump.
    """
    index = index_beside(location)
    if index is None:
        return None
    if not location.startswith(WEB):
        return index if storage.exists(index) else None
    try:
        WebStream(index).close()
    except OSError:
        return None
    return index


def indexed_starts(index: str, location: str, size: int, target: int) -> list[int]:
    """Read the index of a dump, and return the byte offsets of some of the dump's streams.

    The offsets are at least `target` bytes apart. A line of the index is "offset:page id:title". Raises DataError if a
    line has no offset, if the offsets decrease or reach the dump's `size` in bytes, if no stream starts at a returned
    offset, or if the index cannot be decompressed.
    """
    starts: list[int] = []
    offset = 0
    try:
        for number, line in enumerate(filter(None, lines(blocks(index))), 1):
            match = OFFSET.match(line)
            if match is None or not offset <= int(match[1]) < size:
                raise DataError(
                    f"{index}, line {number}: {line[:80]!r} is not an entry for {location} of {size:,} bytes; {REMEDY}"
                )
            offset = int(match[1])
            if offset - (starts[-1] if starts else 0) >= target:
                starts.append(offset)
    except (CutOff, Damaged, ExpandsTooFar) as error:
        raise DataError(f"{index} cannot be decompressed to its end; {REMEDY}") from error
    for start in starts:
        if not STREAM.match(read_at(location, start, STREAM_BYTES)):
            raise DataError(f"{index}: no bz2 stream starts at byte {start:,} of {location}; {REMEDY}")
    return starts
