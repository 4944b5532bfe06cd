"""The formats of input files: one row each in the table at the end."""

import html
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from pipeline.corpus.builtin import read_docstrings
from pipeline.corpus.opening import lines
from pipeline.text.documents import Dropped, Record, dropped

TITLE = re.compile(r"#?\s*Title:\s*(.+)")
DOC = re.compile(r"<doc\b[^>]*?\bid=\"(?P<id>[^\"]*)\"(?:.*?\btitle=\"(?P<title>.*)\")?[^\"]*>\s*$")
LONGEST_ARTICLE = 50_000_000
"""Characters after which an article that does not end counts as broken, so that memory stays bounded."""
HEAD_BYTES = 1 << 16
MUCH = 0.05
"""Share of undecodable bytes in a file's head that makes it binary."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """How the files of a format are read (blocks of bytes, file name -> records) and known (name, first bytes)."""

    read: Callable[[Iterator[bytes], str], Iterator[Record | Dropped]]
    recognises: Callable[[str, bytes], bool]


def never(name: str, head: bytes) -> bool:
    """For formats that cannot be told from plain text and must be asked for."""
    return False


def is_plain_text(name: str, head: bytes) -> bool:
    """Whether a file's first bytes are UTF-8, but for a few: no NUL, and less than 5% undecodable."""
    undecodable = sum("\udc80" <= c <= "\udcff" for c in head.decode("utf-8", "surrogateescape"))
    return b"\0" not in head and undecodable <= max(3, MUCH * len(head))


def read_text(blocks: Iterator[bytes], name: str) -> Iterator[Record | Dropped]:
    """Plain text: one document a file, one paragraph a line; a first line "Title: X" or "# Title: X" is its title."""
    paragraphs = lines(blocks)
    first = next(paragraphs)
    title = TITLE.match(first)
    yield Record(
        id=name,
        parent=name,
        title=title[1] if title else name.rsplit("/", 1)[-1],
        paragraphs=paragraphs if title else chain([first], paragraphs),
    )


def read_sentences(blocks: Iterator[bytes], name: str) -> Iterator[Record | Dropped]:
    """The input of google-research/bert: one sentence a line, a blank line between documents."""
    text = lines(blocks)
    number = 0
    for first in text:
        if first.strip():
            id = f"{name}:{number}"
            rest = iter(lambda: next(text, "").strip(), "")
            yield Record(id=id, parent=id, title="", paragraphs=chain([first], rest), lines_are_sentences=True)
            number += 1


def read_wikiextractor(blocks: Iterator[bytes], name: str) -> Iterator[Record | Dropped]:
    """WikiExtractor's output: `<doc id= url= title=>`, the title once more, the article, `</doc>`."""
    for number, (head, body, sound) in enumerate(articles(lines(blocks))):
        id = f"{name}:{number}"
        if not sound:
            yield dropped(id, "broken record", " ".join([head, *body[:1]]).strip())
            continue
        title = html.unescape(DOC.match(head)["title"] or "")
        first = next((line for line in body if line.strip()), "")
        repeated = html.unescape(first).strip() == title.strip()
        yield Record(id=id, parent=id, title=title, paragraphs=body[body.index(first) + 1 :] if repeated and first else body)


def articles(text: Iterable[str]) -> Iterator[tuple[str, list[str], bool]]:
    """(head line, body lines, soundness) of each article; text outside the articles comes with an empty head and is not sound."""
    head, body, size = "", [], 0
    for line in text:
        opens = DOC.match(line) is not None
        closes = line.strip() == "</doc>"
        if opens or closes:
            if head or body:
                yield head, body, closes and head != "" and size <= LONGEST_ARTICLE
            head, body, size = line if opens else "", [], 0
        elif line.strip() or head:
            size += len(line) + 1
            if size <= LONGEST_ARTICLE:
                body.append(line)
    if head or body:
        yield head, body, False


FORMATS: dict[str, Format] = {
    "builtin": Format(read=read_docstrings, recognises=never),
    "sentences": Format(read=read_sentences, recognises=never),
    "wikiextractor": Format(read=read_wikiextractor, recognises=lambda name, head: head.lstrip(b"\xef\xbb\xbf \r\n").startswith(b"<doc ")),
    "text": Format(read=read_text, recognises=is_plain_text),
}
"""Files of no named format are of the first that recognises them; what none recognises is binary."""


def recognise(name: str, head: bytes) -> str | None:
    """The name of the format of a file with these first bytes; None for binary files."""
    return next((format for format, row in FORMATS.items() if row.recognises(name, head)), None)
