"""Read WikiExtractor's output: `<doc>` elements or, if it ran with --json, one JSON object per line."""

import html
import re
from collections.abc import Iterable, Iterator
from itertools import chain

from pipeline.files.opening import Opened, lines
from pipeline.tables.records import line_records
from pipeline.text.documents import ENGLISH, Dropped, Record, dropped
from pipeline.wikipedia.extracted import without_leftovers

DOC = re.compile(r"<doc\b[^>]*?\bid=\"(?P<id>[^\"]*)\"(?:.*?\btitle=\"(?P<title>.*)\")?[^\"]*>\s*$")
LONGEST_ARTICLE = 50_000_000
"""Maximum characters of an article, to bound memory. A longer article probably lacks </doc> and counts as broken."""
OBJECT = re.compile(
    rb'\{"id": ?"[^"]*", ?("revid": ?"[^"]*", ?)?"url": ?"[^"]*", ?"title": ?"(?:[^"\\]|\\.)*", ?"text": ?"'
)
"""Beginning of an article in the form of a JSON object."""
BLANK = b"\xef\xbb\xbf \r\n"


def is_wikiextractor(name: str, head: bytes) -> bool:
    """Whether a file begins with an article of WikiExtractor: a <doc> element or a JSON object."""
    start = head.lstrip(BLANK)
    return start.startswith(b"<doc ") or OBJECT.match(start) is not None


def read_wikiextractor(file: Opened) -> Iterator[Record | Dropped]:
    """Yield articles without leftover markup and without a repeated title.

    Some versions of WikiExtractor repeat the title before the text.
    """
    first = b""
    while not first.strip(BLANK) and (block := next(file.blocks, None)):
        first += block
    blocks = chain([first], file.blocks)
    if first.lstrip(BLANK).startswith(b"{"):
        return (
            _without_repeated_title(item, file.language or ENGLISH)
            for item in line_records(file.location, file.name, blocks, "text")
        )
    return _read_elements(blocks, file.name, file.language or ENGLISH)


def _without_repeated_title(item: Record | Dropped, language: str) -> Record | Dropped:
    """Return a record of JSON lines without a repeated title and leftover markup; return a drop unchanged."""
    if isinstance(item, Dropped):
        return item
    body = [line for paragraph in item.paragraphs for line in paragraph.split("\n")]
    return Record(
        id=item.id,
        parent=item.id,
        title=item.title,
        paragraphs=without_leftovers(_without_title(body, item.title), language),
    )


def _without_title(body: list[str], title: str) -> list[str]:
    """Return the paragraphs of an article; leave out the first non-blank paragraph if it repeats the title."""
    index, first = next(((index, line) for index, line in enumerate(body) if line.strip()), (0, ""))
    return body[index + 1 :] if first and html.unescape(first).strip() == title.strip() else body


def _read_elements(blocks: Iterator[bytes], name: str, language: str) -> Iterator[Record | Dropped]:
    """Yield the articles of a file. An article has the lines <doc id= url= title=>, its title, its text and </doc>."""
    for number, (head, body, sound) in enumerate(_articles(lines(blocks))):
        id = f"{name}:{number}"
        if not sound:
            yield dropped(id, "broken record", " ".join([head, *body[:1]]).strip())
            continue
        match = DOC.match(head)
        title = html.unescape(match["title"] or "") if match else ""
        yield Record(id=id, parent=id, title=title, paragraphs=without_leftovers(_without_title(body, title), language))


def _articles(text: Iterable[str]) -> Iterator[tuple[str, list[str], bool]]:
    """Yield (line with <doc>, other lines, whether the article is intact) for each article.

    Text between articles is yielded as an article that is not intact, with "" as its first line.
    """
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
