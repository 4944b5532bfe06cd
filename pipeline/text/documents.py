"""A raw record -> documents of bounded length, or a named reason to drop it."""

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

Reason = Literal[
    "binary",  # a NUL byte, or undecodable bytes in much of the beginning of a file
    "broken record",  # a record that does not end or cannot be parsed, or text outside the records
    "damaged file",  # compressed data or Parquet that cannot be decoded; what came before is kept
    "disambiguation",  # a page of a wiki that lists the meanings of its title
    "does not compile",  # a Python file of another version of the language
    "duplicate",  # the same text as a document that is kept
    "empty",  # a record without text
    "expands too far",  # compressed data beyond prepare.expansion_limit; what came before is kept
    "near-duplicate",  # most of its word sequences stand in other documents, or some of a held-out one's in training documents
    "not language",  # fewer letters than prepare.minimum_letters: tables, symbols, numbers
    "not UTF-8",  # bytes, or halves of surrogate pairs, that are no text
    "other namespace",  # a page of a wiki that is no article: a template, a category, a talk page
    "page too long",  # a page of a dump that would not fit in memory
    "redirect",  # a page of a wiki that only names another
    "too short",  # shorter than prepare.minimum_characters
    "truncated file",  # compressed data that ends too early; what came before is kept
]
BROKEN_FILE: frozenset[Reason] = frozenset({"binary", "damaged file", "does not compile", "expands too far", "truncated file"})
"""Reasons that break a file; they count towards prepare.error_limit, as a share of all files."""
BROKEN_RECORD: frozenset[Reason] = frozenset({"broken record", "not UTF-8"})
"""Reasons that break a record; they count towards prepare.error_limit, as a share of all records."""

SENTENCE_END = re.compile(r"""[.!?…؟۔।]["'”’»)\]]*\s|[。！？]["'”’」』）]*""")
SPACE = re.compile(r"\s")
LETTERS = re.compile(r"[^\W\d_]+")
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


def documents(
    record: Record, *, piece_characters: int, minimum_characters: int, minimum_letters: float = 0.0, language: str = ENGLISH
) -> Iterator[Document | Dropped]:
    """The pieces of a record, with ids "…#0", "…#1" and one parent, or the one reason why there are none.

    `language` is what the record is in where it does not say so itself. A piece that is no text (not UTF-8) or no language is dropped
    alone. Memory is bounded by a few pieces, whatever the record's length.
    """
    pieces = cut(paragraphs(record.paragraphs), piece_characters)
    first = list(itertools.islice(pieces, 2))
    if not first:
        yield Dropped(id=record.id, reason="empty")
    elif len(first) == 1 and len(first[0]) < minimum_characters:
        yield dropped(f"{record.id}#0", "too short", first[0])
    else:
        for number, text in enumerate(itertools.chain(first, pieces)):
            yield piece(record, f"{record.id}#{number}", text, language, minimum_letters)


def piece(record: Record, id: str, text: str, language: str, minimum_letters: float) -> Document | Dropped:
    """One piece of a record, unless its text is no text or no language."""
    if not is_text(text):
        return dropped(id, "not UTF-8", text)
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


def cut(paragraphs: Iterable[str], limit: int) -> Iterator[str]:
    """Join paragraphs by line feeds to pieces of at most `limit` characters.

    The last two pieces are balanced, so that no short rest is left. Nothing but white space is lost.
    """
    held: list[str] = []
    size = 0
    for part in (part for paragraph in paragraphs for part in split(paragraph, limit)):
        held.append(part)
        size += len(part) + 1
        while size > 2 * limit:
            joined = take(held, limit, limit)
            size -= len(joined) + 1
            yield joined
    while held:
        total = sum(map(len, held)) + len(held) - 1
        yield take(held, limit, limit if total <= limit else total // 2)


def take(held: list[str], limit: int, target: int) -> str:
    """Remove paragraphs from the front, until there are `target` characters and never more than `limit`, and join them."""
    size, count = len(held[0]), 1
    while count < len(held) and size < target and size + 1 + len(held[count]) <= limit:
        size += 1 + len(held[count])
        count += 1
    joined = "\n".join(held[:count])
    del held[:count]
    return joined


def split(paragraph: str, limit: int) -> Iterator[str]:
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
