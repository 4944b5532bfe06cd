"""Byte ranges of Wikipedia's multistream dumps: many bz2 streams one after the other, each of whole pages (100 as a rule), that can be read apart."""

import bz2
import re
from collections.abc import Iterator
from typing import Any

from pipeline import storage
from pipeline.corpus.opening import BLOCK_BYTES, CutOff, Damaged, ExpandsTooFar, Source, blocks, lines
from pipeline.corpus.web import WEB, WebStream
from pipeline.errors import DataError

STREAM = re.compile(rb"BZh[1-9]1AY&SY")
"""Head of a stream and magic of its first block, 0x314159265359."""
STREAM_BYTES = 10
NAME = re.compile(r"multistream(\d*)\.xml([^/?]*)\.bz2")
OFFSET = re.compile(r"(\d{1,18}):")
REMEDY = "delete the index, or get the one of this dump"
LONGEST_BLOCK = 1_100_000
"""Compressed bytes within which a bz2 block of 900,000 bytes ends, also where nothing could be compressed."""
SEARCHED = 1 << 20
"""Bytes read at once in the search for a stream."""
PAGES = (b"<page>", b"</mediawiki>")
HEAD_BYTES = 1 << 14
"""Compressed bytes that hold the head of a dump whose first stream is its head, as Wikimedia's are."""
LONGEST_HEAD = 1 << 18


def stream_ranges(location: str, size: int, target: int) -> list[tuple[int, int]]:
    """Byte ranges [start, stop) that make up a dump of `size` bytes, each of whole streams and of `target` bytes or a little more.

    The index beside the dump tells where streams start; without one they are searched for. Raises DataError where the index is of another file.
    """
    if size <= target:
        return [(0, size)]
    index = index_location(location)
    starts = indexed_starts(index, location, size, target) if index else searched_starts(location, size, target)
    edges = [0, *starts, size]
    return list(zip(edges[:-1], edges[1:], strict=True))


def index_location(location: str) -> str | None:
    """Where the index of a dump lies, if there is one."""
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
    """Starts of streams by the index's lines "offset:page id:title", about `target` bytes apart, each looked at in the dump."""
    starts: list[int] = []
    last = 0
    try:
        for number, line in enumerate(filter(None, lines(blocks(index))), 1):
            offset = OFFSET.match(line)
            if offset is None or not last <= int(offset[1]) < size:
                raise DataError(f"{index}, line {number}: {line[:80]!r} does not fit {location} of {size:,} bytes; {REMEDY}")
            last = int(offset[1])
            if last - (starts[-1] if starts else 0) >= target:
                starts.append(last)
    except (CutOff, Damaged, ExpandsTooFar) as error:
        raise DataError(f"{index} cannot be decompressed to its end; {REMEDY}") from error
    for start in starts:
        if not STREAM.match(read_at(location, start, STREAM_BYTES)):
            raise DataError(f"{index}: no bz2 stream starts at byte {start:,} of {location}; {REMEDY}")
    return starts


def searched_starts(location: str, size: int, target: int) -> list[int]:
    """The first start of a stream at or after each multiple of `target`."""
    starts: list[int] = []
    while (at := (starts[-1] if starts else 0) + target) < size:
        start = next_start(location, at, size)
        if start is None:
            break
        starts.append(start)
    return starts


def next_start(location: str, at: int, size: int) -> int | None:
    """Where the first stream of whole pages at or after byte `at` starts; None where there is none."""
    while at < size:
        data = read_at(location, at, SEARCHED + STREAM_BYTES - 1)
        for match in STREAM.finditer(data):
            if starts_with_pages(read_at(location, at + match.start(), LONGEST_BLOCK)):
                return at + match.start()
        at += SEARCHED
    return None


def starts_with_pages(data: bytes) -> bool:
    """Whether these bytes begin a bz2 stream of whole pages, and not one of a compressor that cuts anywhere."""
    try:
        text = bz2.BZ2Decompressor().decompress(data, 1 << 16)
    except OSError:
        return False
    return text.lstrip().startswith(PAGES)


def range_blocks(location: str, start: int, stop: int) -> Iterator[bytes]:
    """The decompressed bytes of a range's streams, in blocks, after the head of the dump, so that its language is known.

    Raises CutOff or Damaged after all that could be decompressed, and DataError where the file cannot be read.
    """
    if start:
        yield head(location)
    decoder, whole = bz2.BZ2Decompressor(), True
    for data in stored(location, start, stop):
        while data or not decoder.needs_input:
            try:
                block = decoder.decompress(data, BLOCK_BYTES)
            except OSError as error:
                raise Damaged(location) from error
            whole, data = decoder.eof, decoder.unused_data
            yield block
            if whole:
                decoder = bz2.BZ2Decompressor()
    if not whole:
        raise CutOff(location)


def head(location: str) -> bytes:
    """What a dump says before its first page; nothing where it cannot be decompressed."""
    for size in (HEAD_BYTES, LONGEST_BLOCK):
        decoder = bz2.BZ2Decompressor()
        try:
            text, page, _ = decoder.decompress(read_at(location, 0, size), LONGEST_HEAD).partition(b"<page>")
        except OSError:
            return b""
        if page or decoder.eof:
            break
    return text


def stored(location: str, start: int, stop: int) -> Iterator[bytes]:
    """The bytes of a range as they are stored, in blocks. Raises DataError where they cannot be read."""
    with Source(location, lambda location: open_at(location, start)) as stream:
        while start < stop and (block := stream.read(min(BLOCK_BYTES, stop - start))):
            start += len(block)
            yield block


def read_at(location: str, start: int, size: int) -> bytes:
    """At most `size` stored bytes from `start` on; fewer at the end of the file."""
    return b"".join(stored(location, start, start + size))


def open_at(location: str, start: int) -> Any:
    """A file's stored bytes from `start` on. Raises what the file system or web client raises."""
    if not location.startswith(WEB):
        system, path = storage.filesystem(location)
        stream = system.open_input_file(path)
        stream.seek(start)
        return stream
    web = WebStream(location)
    if start and web.answer is not None:  # go on there, as after a connection that broke
        web.answer.close()
        web.answer, web.had, web.mark = None, start, start
    return web
