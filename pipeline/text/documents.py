"""A raw record -> documents of bounded length, or a named reason to drop it."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

Reason = Literal[
    "binary",  # a NUL byte in the beginning of a file, or much that neither UTF-8 nor another encoding of text has
    "broken record",  # a record that does not end or cannot be parsed, or text outside the records
    "CSV not JSON lines",  # a table in a form that cannot be told from prose
    "damaged file",  # compressed data or Parquet that cannot be decoded; what came before is kept
    "disambiguation",  # a page of a wiki that lists the meanings of its title
    "does not compile",  # a Python file of another version of the language
    "duplicate",  # the same text as a document that is kept
    "empty",  # a record without text
    "expands too far",  # compressed data beyond prepare.expansion_limit; what came before is kept
    "file not UTF-8",  # a file in another encoding, or one that loses a tenth of its text for bytes that are no UTF-8; the rest of that is kept
    "HTML not text",  # a web page, also one that a server sends in place of a file
    "JSON not JSON lines",  # one value that goes over many lines, or an array
    "near-duplicate",  # most of its word sequences stand in other documents, or some of a held-out one's in training documents
    "not language",  # fewer letters than prepare.minimum_letters: tables, symbols, numbers
    "no text column",  # a table of which no column is the text
    "not UTF-8",  # a paragraph with bytes, or halves of surrogate pairs, that are no text
    "other namespace",  # a page of a wiki that is no article: a template, a category, a talk page
    "page too long",  # a page of a dump that would not fit in memory
    "redirect",  # a page of a wiki that only names another
    "RTF not text",  # Rich Text, with its control words
    "too short",  # says less than prepare.minimum_characters
    "truncated file",  # compressed data, or the XML of a dump, that ends too early; what came before is kept
    "XML not text",  # markup of another kind than HTML and than dumps: TEI, SVG, feeds
]
BROKEN_FILE: frozenset[Reason] = frozenset(
    {
        *("binary", "CSV not JSON lines", "damaged file", "does not compile", "expands too far", "file not UTF-8"),
        *("HTML not text", "JSON not JSON lines", "no text column", "RTF not text", "truncated file", "XML not text"),
    }
)
"""Reasons that break a file; they count towards prepare.error_limit, as a share of all files."""
BROKEN_RECORD: frozenset[Reason] = frozenset({"broken record"})
"""Reasons that break a record; they count towards prepare.error_limit, as a share of all records."""

SENTENCE_END = re.compile(r"""[.!?…؟۔।]["'”’»)\]]*\s|[。！？]["'”’」』）]*""")
SPACE = re.compile(r"\s")
LETTERS = re.compile(r"[^\W\d_]+")
WORDY = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")
"""Ideographs, kana and Hangul syllables."""
LETTERS_OF_WORDY = 3
"""What one of them says takes about so many letters."""
UNDECODABLE_CHARACTERS = 1_000
"""Of a longer paragraph that is no text, about so many characters around what is wrong are dropped."""
SAMPLE_CHARACTERS = 200
ENGLISH = "en"


@dataclass(frozen=True, kw_only=True)
class Record:
    """One record as a format's reader found it; `paragraphs` may be read once and only before the next record."""

    id: str
    parent: str
    title: str
    paragraphs: Iterable[str]
    lines_are_sentences: bool = False
    language: str | None = None
    """A code such as "de", where the record itself says so."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """One document, or one piece of a long one: a row of `schema.DOCUMENT` but for its source."""

    id: str
    parent: str
    title: str
    text: str
    lines_are_sentences: bool
    language: str


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """What is left out of the corpus, and why; `sample` is the beginning of its text."""

    id: str
    reason: Reason
    sample: str = ""
    characters: int = 0
    """Of a paragraph that is not UTF-8, as many as are lost."""


def documents(
    record: Record,
    *,
    piece_characters: int,
    minimum_characters: int,
    minimum_letters: float = 0.0,
    language: str = ENGLISH,
) -> Iterator[Document | Dropped]:
    """The pieces of a record, with ids "…#0", "…#1" and one parent, or the one reason why there are none.

    `language` is what the record is in where it does not say so itself. A paragraph that is no text (not UTF-8) and a piece that is no
    language are dropped alone. Memory is bounded by a few pieces, whatever the record's length.
    """
    number, held, found = 0, "", False
    for item in join_into_pieces(paragraphs(record.paragraphs), piece_characters):
        found = True
        if isinstance(item, Undecodable):
            yield replace(dropped(record.id, "not UTF-8", item), characters=len(item))
        elif number == 0 and not held:  # whether it is the only one shows the next
            held = item
        else:
            for text in filter(None, (held, item)):
                yield piece(record, f"{record.id}#{number}", text, language, minimum_letters)
                number += 1
            held = ""
    if held and length(held) < minimum_characters:
        yield dropped(f"{record.id}#0", "too short", held)
    elif held:
        yield piece(record, f"{record.id}#0", held, language, minimum_letters)
    elif not found:
        yield Dropped(id=record.id, reason="empty")


def length(text: str) -> int:
    """Characters of a text, in a measure that is fair to all scripts: an ideograph, kana or Hangul syllable counts as three."""
    return len(text) if text.isascii() else len(text) + (LETTERS_OF_WORDY - 1) * len(WORDY.findall(text))


def piece(record: Record, id: str, text: str, language: str, minimum_letters: float) -> Document | Dropped:
    """One piece of a record, unless its text is no language."""
    if letters_share(text) < minimum_letters:
        return dropped(id, "not language", text)
    return Document(
        id=id,
        parent=record.parent,
        title=one_line(record.title),
        text=text,
        lines_are_sentences=record.lines_are_sentences,
        language=record.language or language,
    )


def dropped(id: str, reason: Reason, text: str) -> Dropped:
    """A dropped record with the beginning of its text, made printable."""
    sample = text[:SAMPLE_CHARACTERS].encode("utf-8", "replace").decode()
    return Dropped(id=id, reason=reason, sample=sample)


def is_text(text: str) -> bool:
    """Whether a string can be written as UTF-8: it has no lone surrogates, which stand for undecodable bytes here."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def letters_share(text: str) -> float:
    """Letters among the characters other than white space, from 0 to 1; a combining mark, as of Hindi vowels, is none."""
    return sum(map(len, LETTERS.findall(text))) / max(1, sum(map(len, text.split())))


def one_line(text: str) -> str:
    """A title on one line that can be written as UTF-8."""
    return " ".join(text.replace("\0", "").split()).encode("utf-8", "replace").decode()


def paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """The non-blank paragraphs: line ends of every system are breaks, NULs and white space at either end are removed."""
    for line in lines:
        for part in line.replace("\0", "").replace("\r", "\n").split("\n"):
            if part := part.strip():
                yield part


class Undecodable(str):
    """A paragraph that cannot be written as UTF-8."""


def join_into_pieces(paragraphs: Iterable[str], limit: int) -> Iterator[str]:
    """Join paragraphs by line feeds to pieces of at most `limit` characters.

    The last two pieces are balanced, so that no short rest is left. Nothing but white space is lost; what is Unwritable comes as it is.
    """
    held: list[str] = []
    size = 0
    for part in (part for paragraph in paragraphs for part in writable_parts(paragraph, limit)):
        if isinstance(part, Undecodable):
            yield part
            continue
        held.append(part)
        size += len(part) + 1
        while size > 2 * limit:
            joined = take_piece(held, limit, limit)
            size -= len(joined) + 1
            yield joined
    while held:
        total = sum(map(len, held)) + len(held) - 1
        yield take_piece(held, limit, limit if total <= limit else total // 2)


def writable_parts(paragraph: str, limit: int) -> Iterator[str]:
    """A paragraph in parts of at most `limit` characters; one that is no text in smaller ones, of which those that are no text are Unwritable."""
    if is_text(paragraph):
        yield from split_paragraph(paragraph, limit)
        return
    for part in split_paragraph(paragraph, min(limit, UNDECODABLE_CHARACTERS)):
        yield part if is_text(part) else Undecodable(part)


def take_piece(held: list[str], limit: int, target: int) -> str:
    """Remove paragraphs from the front, until there are `target` characters and never more than `limit`, and join them."""
    size, count = len(held[0]), 1
    while count < len(held) and size < target and size + 1 + len(held[count]) <= limit:
        size += 1 + len(held[count])
        count += 1
    joined = "\n".join(held[:count])
    del held[:count]
    return joined


def split_paragraph(paragraph: str, limit: int) -> Iterator[str]:
    """Cut a paragraph to parts of at most `limit` characters: at a sentence end, else at white space, else anywhere."""
    start = 0
    while len(paragraph) - start > limit:
        at = break_point(paragraph, start, limit)
        if part := paragraph[start:at].strip():
            yield part
        start = at
    if part := paragraph[start:].strip():
        yield part


def break_point(text: str, start: int, limit: int) -> int:
    """Where to end a part that starts at `start`: after the last sentence end or white space of its second half, else `limit` on."""
    middle, end = start + limit // 2, start + limit
    for pattern in (SENTENCE_END, SPACE):
        ends = [match.end() for match in pattern.finditer(text, middle, end)]
        if ends:
            return ends[-1]
    return end
