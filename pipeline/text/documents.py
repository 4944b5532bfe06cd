"""Turn a raw record into documents of bounded length, or drop it with a named reason."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Literal
from unicodedata import category

Reason = Literal[
    "bibliography not text",  # BibTeX or RIS: fields of references, not sentences
    "binary",  # a file that is not text: a NUL byte at its start, or much data in no text encoding
    "broken record",  # a record that does not end or cannot be parsed, or text outside the records
    "CSV not JSON lines",  # a table of separated values, whose lines look like prose
    "damaged file",  # compressed data or Parquet that cannot be decoded; text before the damage is kept
    "disambiguation",  # a wiki page that lists the meanings of its title
    "does not compile",  # a Python file for another version of Python
    "duplicate",  # the same text as another document, which is kept
    "empty",  # a record without text, or a pair in which one of the two texts is empty
    "excluded",  # contains a text of --exclude
    "expands too far",  # compressed data beyond prepare.expansion_limit; text up to the limit is kept
    "file not UTF-8",  # a file in another encoding; or more than a tenth of a file is not UTF-8, and the rest is kept
    "HTML not text",  # a web page, for example one that a server sends instead of a file
    "JSON not JSON lines",  # one JSON value over several lines, or an array
    "mail not text",  # mailboxes and saved messages, with their headers
    "near-duplicate",  # most of the text is in other documents; if held-out: part of the text is in training documents
    "not language",  # fewer letters than prepare.minimum_letters: tables, symbols, numbers
    "no text column",  # a table in which no column is the text
    "not UTF-8",  # a paragraph with invalid bytes or lone surrogates
    "other namespace",  # a wiki page that is not an article: a template, a category, a talk page
    "page too long",  # a page of a dump that would not fit in memory
    "PO not text",  # translations of a program's messages, in pairs with their markers
    "redirect",  # a wiki page that only points to another page
    "RTF not text",  # a Rich Text file, with its control words
    "subtitles not text",  # SRT, WebVTT or ASS: lines between numbers and times
    "too short",  # shorter than prepare.minimum_characters
    "truncated file",  # compressed data, or the XML of a dump, that ends too early; text before the end is kept
    "WARC not text",  # a web archive of pages in HTML, or of data about pages
    "web page not text",  # a page in HTML, in a web archive that is read
    "XML not text",  # XML that is neither HTML nor a dump: TEI, SVG, feeds
]
BROKEN_FILE: frozenset[Reason] = frozenset(
    {
        *("bibliography not text", "binary", "CSV not JSON lines", "damaged file", "does not compile"),
        *("expands too far", "file not UTF-8", "HTML not text", "JSON not JSON lines", "mail not text"),
        *("no text column", "PO not text", "RTF not text", "subtitles not text", "truncated file", "WARC not text"),
        "XML not text",
    }
)
"""Reasons for which a whole file counts as broken; prepare.error_limit is the maximum share of broken files."""
BROKEN_RECORD: frozenset[Reason] = frozenset({"broken record"})
"""Reasons for which a record counts as broken; prepare.error_limit is also the maximum share of broken records."""

SENTENCE_END = re.compile(r"""[.!?…؟۔।]["'”’»)\]]*\s|[。！？]["'”’」』）]*""")
SPACE = re.compile(r"\s")
LETTERS = re.compile(r"[^\W\d_]+")
WORDY = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")
"""Ideographs, kana and Hangul syllables."""
LETTERS_OF_WORDY = 3
"""A character that WORDY matches says about as much as this number of letters of an alphabetic script."""
UNDECODABLE_CHARACTERS = 1_000
"""An undecodable paragraph is cut into parts of at most this many characters; only undecodable parts are lost."""
SAMPLE_CHARACTERS = 200
ENGLISH = "en"


@dataclass(frozen=True, kw_only=True)
class Record:
    """One record from a reader; `paragraphs` can be iterated only once, and only before the reader's next record."""

    id: str
    parent: str
    title: str
    paragraphs: Iterable[str]
    lines_are_sentences: bool = False
    language: str | None = None
    """Language code, such as "de"; None if the record does not state its language."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A given pair of texts with its hard negatives, from a reader of tables."""

    id: str
    texts: tuple[str, ...]
    """The two texts, and then the negatives."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """One document, or one piece of a long document: a row of `schema.DOCUMENT` without the column `source`."""

    id: str
    parent: str
    title: str
    text: str
    lines_are_sentences: bool
    language: str


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """Text left out of the corpus, with the reason; `sample` is the beginning of the text."""

    id: str
    reason: Reason
    sample: str = ""
    characters: int = 0
    """Number of lost characters if the reason is "not UTF-8", else 0."""


def documents(
    record: Record,
    *,
    piece_characters: int,
    minimum_characters: int,
    minimum_letters: float = 0.0,
    language: str = ENGLISH,
) -> Iterator[Document | Dropped]:
    """Yield the pieces of a record as documents with ids "…#0", "…#1", and a Dropped for each text that is left out.

    All pieces have the record's parent. `language` is used if the record does not state its language. A paragraph that
    is not UTF-8 is dropped, and so is a piece whose share of letters is below `minimum_letters`; the rest of the record
    stays. A record of one piece is dropped if its `length` is below `minimum_characters`. Only a few pieces are in
    memory at a time, however long the record is.
    """
    number, held, any_paragraph = 0, "", False
    for item in join_into_pieces(paragraphs(record.paragraphs), piece_characters):
        any_paragraph = True
        if isinstance(item, Undecodable):
            yield replace(dropped(record.id, "not UTF-8", item), characters=len(item))
        elif number == 0 and not held:  # held until it is known whether the record has other pieces
            held = item
        else:
            for text in filter(None, (held, item)):
                yield _piece(record, f"{record.id}#{number}", text, language, minimum_letters)
                number += 1
            held = ""
    if held and length(held) < minimum_characters:
        yield dropped(f"{record.id}#0", "too short", held)
    elif held:
        yield _piece(record, f"{record.id}#0", held, language, minimum_letters)
    elif not any_paragraph:
        yield Dropped(id=record.id, reason="empty")


def pair_document(pair: Pair, limit: int, language: str) -> Document | Dropped:
    """Return a pair as a document with one text per line, each of at most `limit` characters; or a Dropped if one of
    the two texts is empty, or if any text is not UTF-8.

    Negatives without text, and those equal to another text of the pair, are left out. The parent is named by a hash of
    the second text, so pairs with the same second text are held out together and are not compared with each other.
    """
    texts = [" ".join(text.replace("\0", "").split())[:limit] for text in pair.texts]
    if undecodable := [text for text in texts if not _is_text(text)]:
        lost = dropped(f"{pair.id}#0", "not UTF-8", undecodable[0])
        return replace(lost, characters=sum(map(len, texts)))
    if not all(texts[:2]):
        return dropped(f"{pair.id}#0", "empty", " ".join(filter(None, texts)))
    negatives = [text for text in dict.fromkeys(texts[2:]) if text and text not in texts[:2]]
    return Document(
        id=f"{pair.id}#0",
        parent=f"pairs:{blake2b(texts[1].encode(), digest_size=8).hexdigest()}",
        title="",
        text="\n".join([*texts[:2], *negatives]),
        lines_are_sentences=True,
        language=language,
    )


def length(text: str) -> int:
    """Return the length in characters. An ideograph, kana or Hangul syllable counts as 3, to be fair to all scripts."""
    return len(text) if text.isascii() else len(text) + (LETTERS_OF_WORDY - 1) * len(WORDY.findall(text))


def _piece(record: Record, id: str, text: str, language: str, minimum_letters: float) -> Document | Dropped:
    """Return one piece of a record as a document, or a Dropped if its share of letters is below `minimum_letters`."""
    if letters_share(text, minimum_letters) < minimum_letters:
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
    """Return a Dropped with the beginning of `text`, in which "?" replaces undecodable bytes."""
    sample = text[:SAMPLE_CHARACTERS].encode("utf-8", "replace").decode()
    return Dropped(id=id, reason=reason, sample=sample)


def _is_text(text: str) -> bool:
    """Whether a string can be encoded as UTF-8: it has no lone surrogates, which represent undecodable bytes here."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def letters_share(text: str, enough: float = 1.0) -> float:
    """Return the share of letters among non-space characters, 0 to 1.

    Combining marks, such as vowels in Burmese, are letters too. They are counted only if the share without them is
    below `enough`, because counting them is slow.
    """
    letters, characters = sum(map(len, LETTERS.findall(text))), max(1, sum(map(len, text.split())))
    if letters / characters < enough and not text.isascii():
        letters += sum(count for character, count in Counter(text).items() if category(character).startswith("M"))
    return letters / characters


def one_line(text: str) -> str:
    """Return a title as one line of valid UTF-8."""
    return " ".join(text.replace("\0", "").split()).encode("utf-8", "replace").decode()


def paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Yield each non-blank line as a paragraph, stripped and without NULs; CR, LF and CR LF all end a line."""
    for line in lines:
        for part in line.replace("\0", "").replace("\r", "\n").split("\n"):
            if part := part.strip():
                yield part


class Undecodable(str):
    """A paragraph, or a part of one, that cannot be encoded as UTF-8."""


def join_into_pieces(paragraphs: Iterable[str], limit: int) -> Iterator[str]:
    """Join paragraphs with line feeds into pieces of at most `limit` characters.

    The last two pieces have about the same length, so that the last piece is not short. Only white space is lost.
    Undecodable parts are not joined; they are yielded as soon as they are read.
    """
    held: list[str] = []
    size = 0
    for part in (part for paragraph in paragraphs for part in _writable_parts(paragraph, limit)):
        if isinstance(part, Undecodable):
            yield part
            continue
        held.append(part)
        size += len(part) + 1
        while size > 2 * limit:
            joined = _take_piece(held, limit, limit)
            size -= len(joined) + 1
            yield joined
    while held:
        total = sum(map(len, held)) + len(held) - 1
        yield _take_piece(held, limit, limit if total <= limit else total // 2)


def _writable_parts(paragraph: str, limit: int) -> Iterator[str]:
    """Yield a paragraph in parts of at most `limit` characters.

    A paragraph that cannot be encoded as UTF-8 is cut into smaller parts. Each part that still cannot be encoded is
    yielded as Undecodable.
    """
    if _is_text(paragraph):
        yield from split_paragraph(paragraph, limit)
        return
    for part in split_paragraph(paragraph, min(limit, UNDECODABLE_CHARACTERS)):
        yield part if _is_text(part) else Undecodable(part)


def _take_piece(held: list[str], limit: int, target: int) -> str:
    """Remove paragraphs of about `target` characters, at most `limit`, from the front of `held`, and join them."""
    size, count = len(held[0]), 1
    while count < len(held) and size < target and size + 1 + len(held[count]) <= limit:
        size += 1 + len(held[count])
        count += 1
    joined = "\n".join(held[:count])
    del held[:count]
    return joined


def split_paragraph(paragraph: str, limit: int) -> Iterator[str]:
    """Split a paragraph into parts of at most `limit` characters: after a sentence, else at a space, else anywhere."""
    start = 0
    while len(paragraph) - start > limit:
        end = _break_point(paragraph, start, limit)
        if part := paragraph[start:end].strip():
            yield part
        start = end
    if part := paragraph[start:].strip():
        yield part


def _break_point(text: str, start: int, limit: int) -> int:
    """Return the end of the part that begins at `start`.

    The part ends after the last sentence end in its second half. If that half has no sentence end, the part ends after
    the last space in that half. If that half has no space either, the part ends at the limit.
    """
    middle, end = start + limit // 2, start + limit
    for pattern in (SENTENCE_END, SPACE):
        ends = [match.end() for match in pattern.finditer(text, middle, end)]
        if ends:
            return ends[-1]
    return end
