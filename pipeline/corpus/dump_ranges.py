"""Read byte ranges of bz2-compressed MediaWiki dumps independently; together they give the pages of the whole file.

A page belongs to the range in which the block with its first byte starts.
"""

import bz2
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise

from pipeline.corpus.bz2_blocks import LONGEST_BLOCK, Blocks
from pipeline.corpus.dump import EDGE, LIMITS, tokens
from pipeline.corpus.multistream import STREAM, STREAM_BYTES, index_location, indexed_starts
from pipeline.corpus.opening import CutOff, Damaged, read_at, read_stored, refuse_expansion

BEYOND_BYTES = 1 << 20
"""Bytes fetched after a range to finish its last page: usually four blocks of a wiki's text."""
HEAD_BYTES = 1 << 14
"""Compressed bytes that contain the head of a dump whose first stream is its head, as in multistream dumps."""
LONGEST_HEAD = 1 << 18
NEVER_CLOSED = b"<next-page></page>"
"""Replaces a page that begins before one has ended: invalid XML, so that this one is broken, not truncated."""


@dataclass(frozen=True, kw_only=True)
class RangeInput:
    """Inputs for reading a range: the head of its dump, and its fetched bytes; None: they are read from the file."""

    head: bytes = b""
    fetched: bytes | None = None


def byte_ranges(location: str, size: int, target: int) -> list[tuple[int, int]]:
    """Split a dump of `size` bytes into byte ranges [start, stop) of about `target` bytes.

    If a multistream dump has an index next to it, ranges start at its streams, so that no page needs two ranges. Raises
    DataError if the index belongs to another file.
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

    Raises DataError if a web server does not support Range.
    """
    return read_at(location, size - 1, 1) != b"" and STREAM.match(read_at(location, 0, STREAM_BYTES)) is not None


def read_dump_head(location: str) -> bytes:
    """Return what comes before a dump's first page; empty if it cannot be decompressed."""
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
    """Return the stored bytes of a range and usually the rest of its last page.

    Raises DataError if they cannot be read.
    """
    return b"".join(read_stored(location, start, stop + BEYOND_BYTES, stamp))


def stored_pieces(location: str, start: int, stop: int, stamp: str, fetched: bytes | None) -> Iterator[bytes]:
    """Yield the stored bytes from the start of a range on, fetched ones first; the file is opened only if needed."""
    if fetched is None:
        return read_stored(location, start, stamp=stamp)
    if len(fetched) < stop + BEYOND_BYTES - start:  # the fetched bytes reach the end of the file
        return iter([fetched])
    return chain([fetched], _stored_after(location, stop + BEYOND_BYTES, stamp))


def _stored_after(location: str, start: int, stamp: str) -> Iterator[bytes]:
    """Yield the stored bytes of a file from `start` on, which may be its end, because servers refuse an empty range."""
    pieces = read_stored(location, start - 1, stamp=stamp)
    yield next(pieces)[1:]
    yield from pieces


def range_text(pieces: Iterator[bytes], start: int, stop: int, head: bytes, expansion_limit: int) -> Iterator[bytes]:
    """Yield the decompressed pages of a range after the head of their dump, without damaged blocks and pages.

    `pieces` are the stored bytes from `start` on. Raises CutOff, Damaged or ExpandsTooFar after yielding all sound
    data.
    """
    blocks = Blocks(pieces, start)
    wrong: list[Exception] = []
    own = _texts_in_range(blocks, stop, expansion_limit, wrong)
    for number, piece in enumerate(_pages_in_range(own, blocks.texts())):
        if not number:
            yield head
        yield piece
    if wrong:
        raise wrong[0]


def _texts_in_range(blocks: Blocks, stop: int, expansion_limit: int, wrong: list[Exception]) -> Iterator[bytes | None]:
    """Yield the texts of the blocks that start before byte `stop`, None for a damaged one; errors go to `wrong`.

    Raises ExpandsTooFar.
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
    """Yield the pages that begin in the texts `own`, and what is between them; `beyond` is read to finish the last one.

    After None, which breaks a page, it continues at the next page.
    """
    rest, wanted, size = b"", False, None
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
    """Yield the end of a page of which `size` bytes were given, or of one whose first tag begins in `rest`.

    Of a page too long, yield only as much as shows it.
    """
    own = len(rest)
    for text in beyond:
        if text is None:
            return
        *complete, rest = tokens([rest + text])
        for token in complete:
            edge = EDGE.fullmatch(token)
            opens = edge is not None and not edge[1]
            if opens and size is not None:  # the next range's page begins, and the current one has no end
                yield NEVER_CLOSED
                return
            if opens and own <= 0:  # the next range's page
                return
            own -= len(token)
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
