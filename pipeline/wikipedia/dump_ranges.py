"""Read byte ranges of a bz2-compressed MediaWiki dump independently. All ranges together give all pages of the file.

A page belongs to the range in which the bz2 block with the page's first byte starts.
"""

import bz2
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise

from pipeline.files.opening import CutOff, Damaged, read_at, read_stored, refuse_expansion
from pipeline.wikipedia.bz2_blocks import LONGEST_BLOCK, Bz2Blocks
from pipeline.wikipedia.dump import EDGE, LIMITS, LONGEST_HEAD, tokens
from pipeline.wikipedia.multistream import STREAM, STREAM_BYTES, index_location, indexed_starts

BEYOND_BYTES = 1 << 20
"""Compressed bytes fetched after the end of a range to complete its last page: usually four bz2 blocks of wiki text."""
HEAD_BYTES = 1 << 14
"""Compressed bytes that are read first to get the head of a dump.

This is enough for multistream dumps, whose first bz2 stream is the head alone.
"""
NEVER_CLOSED = b"<next-page></page>"
"""Yielded at the end of a page that has no </page> before the next page begins.

Because of this invalid XML, the page is dropped as a broken record. Without it, the page would be dropped as the end
of a truncated file.
"""


@dataclass(frozen=True, kw_only=True)
class RangeInput:
    """Data for reading a range of a dump.

    `head` has the decompressed bytes before the dump's first page. `fetched` has the stored bytes of the range if they
    were downloaded before; None: read them from the file.
    """

    head: bytes = b""
    fetched: bytes | None = None


def byte_ranges(location: str, size: int, target: int) -> list[tuple[int, int]]:
    """Split a dump of `size` bytes into byte ranges [start, stop) of about `target` bytes.

    If an index lies next to a multistream dump, ranges start at the dump's streams, so that no page extends over two
    ranges. Raises DataError if the index belongs to another dump.
    """
    index = index_location(location)
    edges = [0, *(indexed_starts(index, location, size, target) if index else ()), size]
    return [part for start, stop in pairwise(edges) for part in _equal_ranges(start, stop, target)]


def _equal_ranges(start: int, stop: int, target: int) -> list[tuple[int, int]]:
    """Split [start, stop) into equal ranges of about `target` bytes."""
    count = max(1, round((stop - start) / target))
    return list(pairwise(start + (stop - start) * number // count for number in range(count + 1)))


def is_bz2(location: str, size: int) -> bool:
    """Whether a file is bz2 data and can be read at any offset.

    Raises DataError if a web server does not support the header Range.
    """
    return read_at(location, size - 1, 1) != b"" and STREAM.match(read_at(location, 0, STREAM_BYTES)) is not None


def read_dump_head(location: str) -> bytes:
    """Return the decompressed bytes before a dump's first page, or b"" if they cannot be decompressed."""
    for size in (HEAD_BYTES, LONGEST_BLOCK):
        decoder = bz2.BZ2Decompressor()
        try:
            text, page, _ = decoder.decompress(read_at(location, 0, size), LONGEST_HEAD).partition(b"<page>")
        except OSError:
            return b""
        if page or decoder.eof:
            break
    return text


def fetch_range(location: str, start: int, stop: int, stamp: str) -> bytes:
    """Return the stored bytes of a range and of the 1 MiB after the range. The extra bytes usually end the last page.

    Raises DataError if the bytes cannot be read.
    """
    return b"".join(read_stored(location, start, stop + BEYOND_BYTES, stamp))


def stored_pieces(location: str, start: int, stop: int, stamp: str, fetched: bytes | None) -> Iterator[bytes]:
    """Return an iterator over a file's stored bytes from `start` on: first `fetched`, then bytes read from the file.

    The file is opened only when bytes after `fetched` are needed.
    """
    if fetched is None:
        return read_stored(location, start, stamp=stamp)
    if len(fetched) < stop + BEYOND_BYTES - start:  # the fetched bytes reach the end of the file
        return iter([fetched])
    return chain([fetched], _stored_after(location, stop + BEYOND_BYTES, stamp))


def _stored_after(location: str, start: int, stamp: str) -> Iterator[bytes]:
    """Yield the stored bytes of a file from `start` on; `start` may be the file's end."""
    # Also read the byte before `start`: if `start` is the file's end, servers refuse the empty range from `start` on.
    pieces = read_stored(location, start - 1, stamp=stamp)
    yield next(pieces)[1:]
    yield from pieces


def range_text(pieces: Iterator[bytes], start: int, stop: int, head: bytes, expansion_limit: int) -> Iterator[bytes]:
    """Yield the head of a dump and then, in pieces, the decompressed pages that belong to a range.

    If no page belongs to the range, yield nothing, not even the head. `pieces` are the stored bytes from `start` on.
    Damaged blocks are skipped; a page that a damaged block interrupts is yielded without its end. Raises CutOff or
    Damaged after yielding all intact data, and ExpandsTooFar as soon as the data exceeds the limit.
    """
    blocks = Bz2Blocks(pieces, start)
    wrong: list[Exception] = []
    own = _texts_in_range(blocks, stop, expansion_limit, wrong)
    for number, piece in enumerate(_pages_in_range(own, blocks.texts())):
        if not number:
            yield head
        yield piece
    if wrong:
        raise wrong[0]


def _texts_in_range(
    blocks: Bz2Blocks, stop: int, expansion_limit: int, wrong: list[Exception]
) -> Iterator[bytes | None]:
    """Yield the texts of the blocks that start before byte `stop`, and None for a damaged block.

    At the end, if blocks were damaged or the data was truncated, append a Damaged or CutOff error to `wrong`. Raises
    ExpandsTooFar.
    """
    size, start = 0, blocks.at
    for text in blocks.texts(8 * stop):
        size += len(text or b"")
        refuse_expansion(size, (blocks.at - start) // 8, expansion_limit)
        yield text
    if blocks.damaged:
        wrong.append(
            Damaged(
                f"blocks that cannot be decompressed: {len(blocks.damaged):,}, the first at byte {blocks.damaged[0]:,}"
            )
        )
    elif blocks.cut_off:
        wrong.append(CutOff())


def _pages_in_range(own: Iterator[bytes | None], beyond: Iterator[bytes | None]) -> Iterator[bytes]:
    """Yield, in pieces, the pages that begin in the texts `own`, and the bytes between these pages.

    The end of the last page is read from `beyond`, the texts after the range. After a damaged block (None), the bytes
    up to the next <page> are skipped.
    """
    rest, wanted, size = b"", False, None  # `size`: bytes of the open page; None outside pages
    for text in own:
        if text is None:
            rest, wanted, size = b"", False, None
            continue
        *complete, rest = tokens([rest + text])
        for token in complete:
            if edge := EDGE.fullmatch(token):
                size = None if edge[1] else 0
                wanted = wanted or size == 0
            if wanted:
                yield token
            if size is not None:
                size += len(token)
    if size is None and not rest:
        return
    yield from _end_of_page(rest, beyond, size)


def _end_of_page(rest: bytes, beyond: Iterator[bytes | None], size: int | None) -> Iterator[bytes]:
    """Yield the end of a range's last page from the texts `beyond`.

    `rest` is the end of the range's own text; a tag may begin in `rest`. `size` is the number of already yielded bytes
    of the last page. If no page is open, `size` is None, but a <page> tag may begin in `rest`.

    If a page is too long, yield only enough of the page to show that it is too long.
    """
    own_bytes = len(rest)
    for text in beyond:
        if text is None:
            return
        *complete, rest = tokens([rest + text])
        for token in complete:
            edge = EDGE.fullmatch(token)
            opens = edge is not None and not edge[1]
            if opens and size is not None:  # a page of the next range begins, but the current page has not ended
                yield NEVER_CLOSED
                return
            if opens and own_bytes <= 0:  # this page begins in the next range
                return
            own_bytes -= len(token)
            if opens:
                size = 0
            if size is None:
                continue
            yield token
            size += len(token)
            if (edge and not opens) or size > LIMITS["page"]:
                return
        if size is None:
            return
    if size is not None:
        yield rest
