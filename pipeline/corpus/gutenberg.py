"""Read text files of Project Gutenberg: books without the licence, with lines joined to paragraphs."""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice

from pipeline.files.opening import Opened, lines
from pipeline.text.documents import Dropped, Record

START = re.compile(r"\s*\*+\s*START OF TH(?:E|IS) PROJECT GUTENBERG", re.I)
SMALL_PRINT_END = re.compile(r"\s*\*END\s*\*?\s*THE SMALL PRINT!", re.I)
"""End of the licence in files from before 2003, where the licence comes before or after the title."""
END = re.compile(
    r"\s*\**\s*(?:END OF TH(?:E|IS) PROJECT GUTENBERG"
    r"|End of (?:the |this )?Project Gutenberg(?:['’]s|-tm| E(?:book|text))|"
    r"\*+\s*START:? ?(?:\*+\s*THE SMALL PRINT|FULL LICENSE)|THE FULL PROJECT GUTENBERG LICENSE)",
    re.I,
)
RECOGNISED = re.compile(
    rb"^\s*\*+\s*START OF TH(?:E|IS) PROJECT GUTENBERG|^\s*\*END\s*\*?\s*THE SMALL PRINT!", re.I | re.M
)
HEADER = re.compile(r"(Title|Language|Character set encoding):\s*(.+)", re.I)
LANGUAGES = {
    "english": "en", "french": "fr", "german": "de", "spanish": "es", "italian": "it", "portuguese": "pt",
    "dutch": "nl", "finnish": "fi", "swedish": "sv", "danish": "da", "norwegian": "no", "polish": "pl",
    "hungarian": "hu", "greek": "el", "latin": "la", "chinese": "zh", "japanese": "ja", "russian": "ru",
    "czech": "cs", "catalan": "ca", "esperanto": "eo", "tagalog": "tl",
}  # fmt: skip
HEADER_LINES = 2_000
"""Maximum lines before a book that are searched for the licence and the header."""

LICENCE = (
    "project gutenberg",
    "gutenberg.org",
    "gutenberg.net",
    "gutenberg-tm",
    "pgdp.net",
    "pgdpcanada.net",
    "distributed proofread",
)
"""Words, in lower case, that occur only in the licence and the credits."""
LICENCE_LINES = 30
"""If a block of at most this many lines contains one of the LICENCE words, the whole block is removed.

From a longer block, as in files without blank lines, only the lines with these words are removed.
"""
CREDITS = re.compile(
    r"(?:This )?(?:e-?(?:text|book)|file|HTML|text)? ?(?:version )?(?:was )?"
    r"(?:Produced|Prepared|Scanned|Transcribed|Digiti[sz]ed|Typed|Proofread(?:ed)?|Created"
    r"|Converted)(?: and \w+)? (?:from|by|for)\b"
    r"|This (?:e-?text|e-?book|file) was |Images of the original pages",
    re.I,
)
CREDIT_BLOCKS = 40
"""Number of blocks at the beginning of a book that are searched for credits. Later matches are the author's text."""
TRANSCRIBER = re.compile(
    r"\W*(?:Note: )?Transcriber['’]?s?['’]? Notes?\b|[|+][^\n]*(?:\n *[|+][^\n]*)+$"
    r"|Page \d+,[^\n]*(?:added|removed|changed|corrected)",
    re.I,
)
"""Start of a transcriber's note: its title, a box drawn with | or +, or a list of corrected misprints."""
NOTE_BLOCKS = 6
"""Maximum blocks of a caption in brackets after its first block. If the bracket is not closed by then, later blocks are
text.
"""
CAPTION = re.compile(r"\s*\[\s*(?:Illustration|Blank Page|Music|Decoration|\*\* ?Transcriber|Transcriber)", re.I)
PAGE = re.compile(
    r"\s?(?:\[(?:\d{1,3}|[A-Z*])\]|\{\d{1,4}\}|[\[{](?:Pg\.? ?|Page |p\. ?)(?:\d{1,4}|[ivxl]{1,7})[\]}])", re.I
)
RULE = re.compile(r"[-=*~]{5,}")
BOLD = re.compile(r"(?<![\w=])=(?=\S)([^=\n]{1,200})(?<=\S)=(?![\w=])")
FOOTNOTE = re.compile(r"\s*\[(?:Footnote|Note|Sidenote)(?: \w+)?:\s*(.*)\]\s*$", re.I | re.S)
COLUMNS = "   "
"""Minimum space between the columns of a table."""
LOWER = re.compile(r"\W*[a-z]")

WIDTH_LINES = 400
"""Number of lines at the start of a book that are used to estimate its wrap width."""
NARROW, WIDE = 50, 80
"""Bounds of the wrap width, in characters."""
FULL = 0.8
"""A line is full if the line and the next line's first word together reach this share of the wrap width.

A shorter line was ended on purpose, as in verse.
"""
LONGEST_BLOCK = 2_000
"""Maximum lines of a block. A longer block is cut; no book has a paragraph of this length."""
LONGEST_LINE = 1_000
"""Maximum characters kept of each line between two books; these lines are searched for the next book's header."""
LONGEST_LINES = 200_000
"""Maximum total characters of the lines that are held in memory at once."""
UNDECODABLE = re.compile("[\udc80-\udcff]")


@dataclass
class Header:
    """Title, language and encoding of a book, from its first lines."""

    title: str = ""
    language: str | None = None
    latin: bool = False
    """Whether bytes that are not UTF-8 are decoded as Windows-1252, which older files use."""
    body: list[str] = field(default_factory=list)
    """First lines of the book, which were read in the search for the end of the header."""


def is_gutenberg(name: str, head: bytes) -> bool:
    """Whether a file's first bytes contain the end of the licence that precedes a book."""
    return b"\0" not in head and RECOGNISED.search(head) is not None


def read_gutenberg(file: Opened) -> Iterator[Record | Dropped]:
    """Yield one record per book; several books in one file are separated by their licences.

    Wrapped lines are joined to paragraphs; lines of verse, headings and tables are not. The licence, transcribers'
    notes, captions of pictures, page numbers, footnote marks and the underscores of italics are removed.
    """
    text = lines(file.blocks)
    title = file.name.rsplit("/", 1)[-1]
    header: Header | None = _header(text, [])
    number = 0
    while header is not None:
        id = f"{file.name}:{number}" if number else file.name
        rest = chain(header.body, text)
        body = _until_end(rest if not header.latin else map(_decode_windows_1252, rest))
        yield Record(
            id=id, parent=id, title=header.title or title, paragraphs=_paragraphs(body), language=header.language
        )
        header = _next_header(rest)
        number += 1


def _header(text: Iterator[str], before: list[str]) -> Header:
    """Return the header of a book, which ends with the last line that ends a licence.

    `before` has the lines up to the first such line, as far as they were already read. Without such a line, the header
    is empty.
    """
    held = [*before]
    end = len(held)
    for line in _next_lines(text, HEADER_LINES):
        held.append(line)
        if START.match(line) or SMALL_PRINT_END.match(line):
            end = len(held)
        elif END.match(line) and end:
            break
    while (
        end and end < len(held) and held[end - 1].count("***") < 2 and held[end].rstrip().endswith("***")
    ):  # the line "*** START … TITLE ***" continues on the next line
        end += 1
    return _parse_header(held[:end], held[end:])


def _next_lines(text: Iterator[str], count: int) -> Iterator[str]:
    """Yield the next lines: at most `count` lines and about 200,000 characters."""
    size = 0
    for line in islice(text, count):
        yield line
        size += len(line)
        if size > LONGEST_LINES:
            return


def _next_header(text: Iterator[str]) -> Header | None:
    """Return the header of the next book, after the licence of the previous one; None if no book follows."""
    held: deque[str] = deque(maxlen=HEADER_LINES)
    for line in text:
        held.append(line[:LONGEST_LINE])
        if START.match(line) or SMALL_PRINT_END.match(line):
            header = _header(text, list(held))
            return header if any(map(str.strip, header.body)) else None
    return None


def _parse_header(head: list[str], body: list[str]) -> Header:
    """Parse the header lines `head`; `body` has the lines of the book that were already read."""
    # Files with the older licence are not UTF-8, and few state their encoding.
    header = Header(body=body, latin=bool(head) and SMALL_PRINT_END.match(head[-1]) is not None)
    for index, line in enumerate(head):
        if field := HEADER.match(line.strip()):
            name, value = field[1].lower(), field[2].strip()
            if name == "title":
                more = [part.strip() for part in head[index + 1 : index + 4]]
                indented = head[index + 1 : index + 2] and head[index + 1].startswith("  ") and more[0]
                header.title = f"{value} {more[0]}" if indented else value
            elif name == "language":
                header.language = LANGUAGES.get(value.lower())
            else:
                header.latin = "utf" not in value.lower()
    header.title = _decode_windows_1252(header.title) if header.latin else header.title
    return header


def _decode_windows_1252(line: str) -> str:
    """Decode the undecodable bytes of a line as Windows-1252."""
    return (
        line
        if line.isascii()
        else UNDECODABLE.sub(lambda c: bytes([ord(c[0]) - 0xDC00]).decode("cp1252", "replace"), line)
    )


def _until_end(text: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a book up to the licence at its end."""
    for line in text:
        if END.match(line):
            return
        yield line


def _paragraphs(text: Iterator[str]) -> Iterator[str]:
    """Yield the paragraphs of a book; a line that is not wrapped is a paragraph of its own."""
    first = list(_next_lines(text, WIDTH_LINES))
    lengths = sorted(len(line) for line in first if line.strip()) or [WIDE]
    # The wrap width is the 95th percentile of line lengths, because single lines may be longer.
    width = min(WIDE, max(NARROW, lengths[len(lengths) * 19 // 20]))
    for block in _without_notes(_blocks(chain(first, text))):
        for paragraph in _join_lines(block, FULL * width):
            if clean := _clean_paragraph(paragraph):
                yield clean


def _blocks(text: Iterable[str]) -> Iterator[list[str]]:
    """Yield the blocks of lines between blank lines; very long blocks are cut."""
    held: list[str] = []
    size = 0
    for line in text:
        full = len(held) >= LONGEST_BLOCK or size > LONGEST_LINES
        if held and (full or not line.strip()):
            yield held
            held, size = [], 0
        if line.strip():
            held.append(line.rstrip().expandtabs())
            size += len(line)
    if held:
        yield held


def _without_notes(blocks: Iterable[list[str]]) -> Iterator[list[str]]:
    """Yield the blocks without captions in brackets, transcribers' notes, credits and licence.

    A caption may extend over several blocks.
    """
    depth = inside = 0
    for number, block in enumerate(blocks):
        text = "\n".join(block)
        if depth or CAPTION.match(text):
            text, depth = _after_bracket(text, depth)
            inside = inside + 1 if depth else 0
            if inside > NOTE_BLOCKS:
                depth = inside = 0
        start = text.lstrip()
        if TRANSCRIBER.match(start) or (number < CREDIT_BLOCKS and CREDITS.match(start)):
            continue
        kept = text.split("\n") if start else []
        if _is_licence(text):
            kept = [line for line in kept if not _is_licence(line)] if len(kept) > LICENCE_LINES else []
        if kept:
            yield kept


def _is_licence(text: str) -> bool:
    """Whether a text is part of the licence or the credits."""
    flat = " ".join(text.lower().split())
    return any(word in flat for word in LICENCE)


def _after_bracket(text: str, depth: int) -> tuple[str, int]:
    """Return the text after the outermost closing bracket, and the number of brackets that are still open.

    `depth` is the number of brackets that are open before the text. If brackets are still open at the end of the text,
    the returned text is empty.
    """
    for index, c in enumerate(text):
        depth += (c == "[") - (c == "]")
        if depth == 0 and c == "]":
            return text[index + 1 :], 0
    return "", depth


def _join_lines(block: list[str], full: float) -> Iterator[str]:
    """Yield the lines of a block; a line that continues the line before it is joined to that line.

    `full` is as in `is_wrapped`.
    """
    paragraph, last = "", ""
    for line in block:
        if last and is_wrapped(last, line, full):
            paragraph += line.strip() if paragraph.endswith("-") else " " + line.strip()
        else:
            if paragraph:
                yield paragraph
            paragraph = line.strip()
        last = line
    if paragraph:
        yield paragraph


def is_wrapped(last: str, line: str, full: float) -> bool:
    """Whether `line` continues `last`, the line before it.

    It does if all of these hold: `last`, a space and the first word of `line` together have at least `full` characters;
    neither line is a row of a table; and `line` is not the indented start of a paragraph.
    """
    if COLUMNS in last.strip() or COLUMNS in line.strip():
        return False
    deeper = _indent(line) - _indent(last)
    if deeper >= 2 and last.rstrip()[-1:] in ".!?\"'”’:" and not LOWER.match(line):
        return False
    return len(last) + 1 + len(line.split(maxsplit=1)[0]) >= full


def _indent(line: str) -> int:
    """Return the width of the white space before a line."""
    return len(line) - len(line.lstrip())


def _clean_paragraph(paragraph: str) -> str:
    """Return a paragraph without page numbers and marks of footnotes, bold and italics; "" if it has no word."""
    text = FOOTNOTE.sub(r"\1", PAGE.sub("", paragraph)) if "[" in paragraph or "{" in paragraph else paragraph
    text = (
        BOLD.sub(r"\1", RULE.sub(" ", text.replace("_", "")))
        if "=" in text or "--" in text or "**" in text or "~~" in text
        else text.replace("_", "")
    )
    text = " ".join(text.split())
    return text if any(map(str.isalnum, text)) else ""
