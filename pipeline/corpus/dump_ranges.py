"""Byte ranges of MediaWiki dumps that are compressed with bz2: each can be read by itself, and together they give the pages of the whole file.

A page is of the range in which the block starts whose text holds its first byte.
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
"""Fetched after a range to finish its last page: as a rule four blocks of a wiki's text."""
HEAD_BYTES = 1 << 14
"""Compressed bytes that hold the head of a dump whose first stream is its head, as those of Wikimedia's multistream dumps are."""
LONGEST_HEAD = 1 << 18
NEVER_CLOSED = b"<next-page></page>"
"""Stands for the page that begins before one has ended: no XML, so that this one counts as broken, and not as the end of a file."""


@dataclass(frozen=True, kw_only=True)
class RangeInput:
    """What is at hand before a range is read: the head of its dump, and what `fetched` gave; None: its bytes are read from the file."""

    head: bytes = b""
    fetched: bytes | None = None


def byte_ranges(location: str, size: int, target: int) -> list[tuple[int, int]]:
    """Byte ranges [start, stop) that make up a dump of `size` bytes, of about `target` bytes each.

    The index beside a multistream dump tells where its streams start, so that no page needs two ranges. Raises DataError where it is of another file.
    """
    index = index_location(location)
    edges = [0, *(indexed_starts(index, location, size, target) if index else ()), size]
    return [part for start, stop in pairwise(edges) for part in equal_ranges(start, stop, target)]


def equal_ranges(start: int, stop: int, target: int) -> list[tuple[int, int]]:
    """Equal ranges that make up [start, stop), of about `target` bytes each."""
    count = max(1, round((stop - start) / target))
    return list(pairwise(start + (stop - start) * number // count for number in range(count + 1)))


def is_bz2(location: str, size: int) -> bool:
    """Whether a file can be opened anywhere and begins as bz2 data does. Raises DataError where a web server knows no Range."""
    return read_at(location, size - 1, 1) != b"" and STREAM.match(read_at(location, 0, STREAM_BYTES)) is not None


def read_dump_head(location: str) -> bytes:
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


def fetch_range(location: str, start: int, stop: int, stamp: str) -> bytes:
    """The stored bytes of a range, and those by which its last page ends, as a rule. Raises DataError where they cannot be had."""
    return b"".join(read_stored(location, start, stop + BEYOND_BYTES, stamp))


def stored_pieces(location: str, start: int, stop: int, stamp: str, fetched: bytes | None) -> Iterator[bytes]:
    """The stored bytes from the start of a range on, those that were fetched first; the file is opened where more are asked for."""
    if fetched is None:
        return read_stored(location, start, stamp=stamp)
    if len(fetched) < stop + BEYOND_BYTES - start:  # the file has no more
        return iter([fetched])
    return chain([fetched], stored_after(location, stop + BEYOND_BYTES, stamp))


def stored_after(location: str, start: int, stamp: str) -> Iterator[bytes]:
    """The stored bytes of a file from `start` on, which may be its end: servers refuse a range without bytes."""
    found = read_stored(location, start - 1, stamp=stamp)
    yield next(found)[1:]
    yield from found


def range_text(pieces: Iterator[bytes], start: int, stop: int, head: bytes, expansion_limit: int) -> Iterator[bytes]:
    """The decompressed pages of a range behind the head of their dump, in pieces; damaged blocks and the pages in them are left out.

    `pieces` are the stored bytes from `start` on. Raises CutOff, Damaged or ExpandsTooFar after all that could be decompressed.
    """
    blocks = Blocks(pieces, start)
    wrong: list[Exception] = []
    own = texts_in_range(blocks, stop, expansion_limit, wrong)
    for number, piece in enumerate(pages_in_range(own, blocks.texts())):
        if not number:
            yield head
        yield piece
    if wrong:
        raise wrong[0]


def texts_in_range(blocks: Blocks, stop: int, expansion_limit: int, wrong: list[Exception]) -> Iterator[bytes | None]:
    """The texts of the blocks that start before byte `stop`, None for a damaged one, and then what is wrong with them. Raises ExpandsTooFar."""
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


def pages_in_range(own: Iterator[bytes | None], beyond: Iterator[bytes | None]) -> Iterator[bytes]:
    """The pages that begin in the texts `own`, and what lies between them; `beyond` is taken to finish the last one.

    After None, which breaks a page, it goes on at the next one.
    """
    rest, wanted, size = b"", False, None
    for text in own:
        if text is None:
            rest, wanted, size = b"", False, None
            continue
        *found, rest = tokens([rest + text])
        for token in found:
            if edge := EDGE.fullmatch(token):
                size = None if edge[1] else 0
                wanted = wanted or size == 0
            if wanted:
                yield token
            if size is not None:
                size += len(token)
    if size is None and not rest:
        return
    yield from end_of_page(rest, beyond, size)


def end_of_page(rest: bytes, beyond: Iterator[bytes | None], size: int | None) -> Iterator[bytes]:
    """The end of a page of which `size` bytes were given, or of one whose first tag begins in `rest`; as much of one too long as shows it."""
    own = len(rest)
    for text in beyond:
        if text is None:
            return
        *found, rest = tokens([rest + text])
        for token in found:
            edge = EDGE.fullmatch(token)
            opens = edge is not None and not edge[1]
            if opens and size is not None:  # the next range's, before which this page was not closed
                yield NEVER_CLOSED
                return
            if opens and own <= 0:  # the next range's
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
