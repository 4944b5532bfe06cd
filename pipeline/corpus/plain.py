"""Read plain text: one document per file, or one sentence per line."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from pipeline.files.opening import Opened, lines
from pipeline.text.documents import Dropped, Record

TITLE = re.compile(r"#?\s*Title:\s*(.+)")
BOOKS = re.compile(r"(^|/)books_large_p\d+(\.txt)?$")
SENTENCES_A_DOCUMENT = 500
"""Sentences per document where the source does not show where a book ends.

At 13 words per sentence (Zhu et al. 2015, table 2), 500 sentences have about 32,000 characters, the default of
prepare.piece_characters. Each such document counts as a separate book: its NotNext sentences come from other documents.
"""
MUCH = 0.05
"""Maximum share of undecodable bytes in UTF-8 text; only a file's first bytes are counted."""


def is_plain_text(name: str, head: bytes) -> bool:
    """Whether a file's first bytes are UTF-8 text: no NUL, and at most 3 undecodable bytes, or at most 5%."""
    undecodable = sum("\udc80" <= c <= "\udcff" for c in head.decode("utf-8", "surrogateescape"))
    return b"\0" not in head and undecodable <= max(3, MUCH * len(head))


def is_bookscorpus(name: str, head: bytes) -> bool:
    """Whether a file is text and named as a half of BooksCorpus (books_large_p1.txt, books_large_p2.txt)."""
    return BOOKS.search(name) is not None and is_plain_text(name, head)


def read_text(file: Opened) -> Iterator[Record | Dropped]:
    """Yield a file as one document, one paragraph per line; a first line "Title: X" or "# Title: X" is its title."""
    paragraphs = lines(file.blocks)
    first = next(paragraphs)
    title = TITLE.match(first)
    yield Record(
        id=file.name,
        parent=file.name,
        title=title[1] if title else file.name.rsplit("/", 1)[-1],
        paragraphs=paragraphs if title else chain([first], paragraphs),
    )


def read_sentences(file: Opened) -> Iterator[Record | Dropped]:
    """Read the input format of google-research/bert: one sentence per line, a blank line between documents."""
    text = lines(file.blocks)
    number = 0
    for first in text:
        if first.strip():
            id = f"{file.name}:{number}"
            rest = iter(lambda: next(text, "").strip(), "")
            yield Record(id=id, parent=id, title="", paragraphs=chain([first], rest), lines_are_sentences=True)
            number += 1


def read_bookscorpus(file: Opened) -> Iterator[Record | Dropped]:
    """Read BooksCorpus as released by Zhu et al. (2015): one tokenised sentence per line, without book boundaries."""
    return sentence_blocks(file.name, lines(file.blocks))


def sentence_blocks(name: str, sentences: Iterable[str]) -> Iterator[Record]:
    """Yield documents of 500 sentences from sentences without document boundaries."""
    rest = (sentence for sentence in sentences if sentence.strip())
    for number, first in enumerate(rest):
        id = f"{name}:{number}"
        more = islice(rest, SENTENCES_A_DOCUMENT - 1)
        yield Record(id=id, parent=id, title="", paragraphs=chain([first], more), lines_are_sentences=True)
