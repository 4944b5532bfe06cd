"""Read the index of a Wikipedia multistream dump, which is a sequence of bz2 streams of whole pages (usually 100)."""

import re

from pipeline import storage
from pipeline.corpus.opening import CutOff, Damaged, ExpandsTooFar, blocks, lines, read_at
from pipeline.corpus.web import WEB, WebStream
from pipeline.errors import DataError

STREAM = re.compile(rb"BZh[1-9]1AY&SY")
"""Head of a bz2 stream and magic of its first block."""
STREAM_BYTES = 10
NAME = re.compile(r"multistream(\d*)\.xml([^/?]*)\.bz2")
OFFSET = re.compile(r"(\d{1,18}):")
REMEDY = "delete the index, or get the one of this dump"


def index_location(location: str) -> str | None:
    """Return the location of a dump's index, or None."""
    index = NAME.sub(r"multistream-index\1.txt\2.bz2", location)
    if index == location:
        return None
    if not location.startswith(WEB):
        return index if storage.exists(index) else None
    try:
        WebStream(index).close()
    except OSError:
        return None
    return index


def indexed_starts(index: str, location: str, size: int, target: int) -> list[int]:
    """Return stream offsets from the index's lines "offset:page id:title", about `target` bytes apart.

    Each is checked against the dump.
    """
    starts: list[int] = []
    last = 0
    try:
        for number, line in enumerate(filter(None, lines(blocks(index))), 1):
            offset = OFFSET.match(line)
            if offset is None or not last <= int(offset[1]) < size:
                raise DataError(
                    f"{index}, line {number}: {line[:80]!r} does not fit {location} of {size:,} bytes; {REMEDY}"
                )
            last = int(offset[1])
            if last - (starts[-1] if starts else 0) >= target:
                starts.append(last)
    except (CutOff, Damaged, ExpandsTooFar) as error:
        raise DataError(f"{index} cannot be decompressed to its end; {REMEDY}") from error
    for start in starts:
        if not STREAM.match(read_at(location, start, STREAM_BYTES)):
            raise DataError(f"{index}: no bz2 stream starts at byte {start:,} of {location}; {REMEDY}")
    return starts
