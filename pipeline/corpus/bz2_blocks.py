"""Find blocks in bz2 data by their magic and decompress them one by one, starting at any byte of a file.

A block has up to 900,000 bytes of text and can start in the middle of a byte.

Hand-written because Python's bz2 can only read from the first byte, on one core: 19 MB/s of a dump's XML on an AMD
EPYC, however many cores it has.
"""

import bz2
from collections.abc import Iterator
from dataclasses import dataclass

MAGIC_BITS = 48
BLOCK_MAGIC = 0x314159265359
END_MAGIC = 0x177245385090
CHECKSUM_BITS = 32
"""Bits of the checksum after a magic: the block's after BLOCK_MAGIC, the whole stream's after END_MAGIC."""
HEADER = b"BZh9"
"""Header of a stream with the largest blocks; its decoder accepts smaller ones as well."""
LONGEST_BLOCK = 1_100_000
"""Maximum compressed bytes of a block of 900,000 bytes, even of incompressible data."""


@dataclass(frozen=True, kw_only=True, order=True)
class Mark:
    """A magic: `bit` is its offset in the file; `block` tells whether a block starts or a stream ends there."""

    bit: int
    block: bool


def find_marks(data: bytes | bytearray, start: int = 0) -> list[Mark]:
    """Find all magics in the data from byte `start` on, in order.

    A magic is found only if the data has 7 bytes from the byte in which it starts. Bits are counted from the data's
    first bit.
    """
    marks = []
    for magic, block in ((BLOCK_MAGIC, True), (END_MAGIC, False)):
        for shift in range(8):
            whole = (magic << 8 - shift).to_bytes(7)[1:6]  # 5 bytes fully inside the magic: `find` is fast
            at = data.find(whole, start + 1)
            while at >= 0:
                around = data[at - 1 : at + 6]
                if len(around) == 7 and int.from_bytes(around) >> 8 - shift & (1 << MAGIC_BITS) - 1 == magic:
                    marks.append(Mark(bit=8 * (at - 1) + shift, block=block))
                at = data.find(whole, at + 1)
    return sorted(marks)


def _decompress_block(block: int, bits: int) -> bytes:
    """Return the text of a block, given as a number of `bits` bits with its magic and checksum.

    Raises OSError if this is not a complete, valid block.
    """
    checksum = block >> bits - MAGIC_BITS - CHECKSUM_BITS & (1 << CHECKSUM_BITS) - 1
    decoder = bz2.BZ2Decompressor()
    text = decoder.decompress(
        _as_stream((block << MAGIC_BITS | END_MAGIC) << CHECKSUM_BITS | checksum, bits + MAGIC_BITS + CHECKSUM_BITS)
    )
    if not decoder.eof:
        raise OSError("the block does not end at the last given bit")
    return text


def _as_stream(content: int, bits: int) -> bytes:
    """Return a stream's header followed by these bits; the last byte is filled with zeros."""
    return HEADER + (content << -bits % 8).to_bytes(-(-bits // 8))


class Blocks:
    """Blocks of bz2 data that arrives in pieces, the first of which starts at byte `start` of the file.

    Memory is bounded by a few blocks and a piece.

    `cut_off` says that the data ended within a stream; `damaged` lists the start bytes of blocks that cannot be
    decompressed.
    """

    def __init__(self, pieces: Iterator[bytes], start: int):
        self.pieces, self.held, self.base = pieces, bytearray(), start
        self.at = 8 * start  # the next bit to look at
        self.searched = 0  # number of held bytes already searched for marks
        self.marks: list[Mark] = []
        self.ended = self.cut_off = False
        self.damaged: list[int] = []

    def texts(self, stop: int | None = None) -> Iterator[bytes | None]:
        """Yield the text of each block that starts before bit `stop`, or None for a damaged one.

        Without `stop`, yield the blocks that follow without a gap.
        """
        while mark := self.mark(self.at, self.at + 8 * LONGEST_BLOCK if stop is None else stop):
            self.forget(mark.bit)
            self.at = mark.bit + MAGIC_BITS
            if mark.block:
                yield self.text(mark)
            elif not self.holds(mark.bit + MAGIC_BITS + CHECKSUM_BITS):
                self.cut_off = True

    def text(self, start: Mark) -> bytes | None:
        """Return the text of the block that starts at a mark, and continue after it."""
        longest = start.bit + 8 * LONGEST_BLOCK
        first = end = self.mark(self.at, longest)
        for _ in range(2):  # a magic can occur within a block by chance; then the block ends at the next one
            if end is None:
                break
            try:
                text = _decompress_block(self.bits(start.bit, end.bit), end.bit - start.bit)
            except OSError:
                end = self.mark(end.bit + 1, longest)
            else:
                self.at = end.bit
                return text
        if first is None and self.ended:
            try:
                return self.rest(start)
            except OSError:
                pass
        self.damaged.append(start.bit // 8)
        return None

    def rest(self, start: Mark) -> bytes | None:
        """Return the text of the last block of truncated data, or None if that block itself is incomplete."""
        bits = 8 * (self.base + len(self.held)) - start.bit
        bits -= bits % 8  # padding the last byte with zeros would add data
        decoder = bz2.BZ2Decompressor()
        text = decoder.decompress(_as_stream(self.bits(start.bit, start.bit + bits), bits))
        while more := decoder.decompress(b""):  # the first call may not return all of the output
            text += more
        self.cut_off = True
        return text or None

    def mark(self, first: int, stop: int) -> Mark | None:
        """Return the first mark at bit `first` or later and before bit `stop`, reading as much as needed."""
        while not (next_mark := next((mark for mark in self.marks if mark.bit >= first), None)):
            if self.ended or 8 * (self.base + self.searched) >= stop:
                return None
            self.take()
        return next_mark if next_mark.bit < stop else None

    def holds(self, stop: int) -> bool:
        """Whether the data reaches bit `stop`, reading as much as needed."""
        while not self.ended and 8 * (self.base + len(self.held)) < stop:
            self.take()
        return 8 * (self.base + len(self.held)) >= stop

    def take(self) -> None:
        """Append the next piece and find the marks that begin in it."""
        piece = next(self.pieces, None)
        self.ended = piece is None
        self.held += piece or b""
        known = self.marks[-1].bit if self.marks else -1
        new = [Mark(bit=8 * self.base + mark.bit, block=mark.block) for mark in find_marks(self.held, self.searched)]
        self.marks += [mark for mark in new if mark.bit > known]
        self.searched = max(0, len(self.held) - 7)

    def forget(self, bit: int) -> None:
        """Free the data before a bit."""
        gone = bit // 8 - self.base
        del self.held[:gone]
        self.base += gone
        self.searched = max(0, self.searched - gone)
        self.marks = [mark for mark in self.marks if mark.bit >= bit]

    def bits(self, start: int, stop: int) -> int:
        """Return the bits from `start` up to `stop` (exclusive) as a number."""
        data = self.held[start // 8 - self.base : -(-stop // 8) - self.base]
        return int.from_bytes(data) >> -stop % 8 & (1 << stop - start) - 1
