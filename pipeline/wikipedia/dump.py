"""Read articles from a MediaWiki XML export in bounded memory, starting at its beginning or at any page."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal
from xml.parsers import expat

from pipeline.text.documents import Dropped, Reason, Record, dropped
from pipeline.wikipedia.wikinames import DISAMBIGUATIONS, MEANINGS, REDIRECTS
from pipeline.wikipedia.wikitext import prose

LONGEST_PAGE = 50_000_000
"""Maximum bytes of a page; MediaWiki itself refuses texts above two million bytes ($wgMaxArticleSize)."""
LONGEST_HEAD = 1 << 18
"""Bytes before the first page that are searched for the wiki's language and names."""
LONGEST_REDIRECT = 1000
"""A text that begins with #WORD [[…]] and has fewer characters than this is a redirect, for any upper-case WORD."""
KEPT_BYTES = 1 << 12
"""Bytes kept of a page that is too long or broken, to identify the page."""

EDGE = re.compile(rb"<(/?)page[ \t\r\n]{0,4}>")
EDGE_BYTES = 11
"""Length of the longest match of EDGE."""
BOM = b"\xef\xbb\xbf"
PROLOG = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:\s++|<\?[^>]*+>|<!--(?:[^-]++|-(?!->))*+-->|<!DOCTYPE\b[^\[>]*+(?:\[[^\]]*+\]\s*+)?>)*+",
    re.IGNORECASE,
)
"""Prolog before the first XML element: byte order mark, declaration, comments and document type."""
MEDIAWIKI = re.compile(rb"<mediawiki\b")
LANGUAGE = re.compile(rb"\bxml:lang=[\"']([\w-]+)[\"']")
DATABASE = re.compile(rb"<dbname>([a-z]{2,3}(?:_[a-z_]{1,20})?)wik[a-z]{1,20}</dbname>")
NAMESPACE = re.compile(r"<namespace key=\"(-?\d+)\"[^<>]*>([^<]+)</namespace>")
PICTURES_AND_CATEGORIES = ("6", "14")
PAGE_ID = re.compile(rb"<id>(\d{1,20})</id>")
REDIRECT = re.compile(r"\s*#\s*([^\s\[\]#:]+)\s*:?\s*\[\[[^\[\]\n]+\]\]")
TEMPLATE_NAME = re.compile(r"\{\{\s*([^{}|\n<]{1,100})")
DISAMBIGUATION_NAME = re.compile(
    r"disambig|desambig|dezambig|disamb\b|homonymie$|begriffskl|doorverwijs|ujednoznaczn|неоднознач|багатозначн"
    r"|многозначн|неадназнач|消歧|曖昧さ回避|동음이의"
)
"""Parts of the names of templates that mark disambiguation pages, for templates that are not in DISAMBIGUATIONS."""
HATNOTE = re.compile(r"needed|link|hinweis|redirect|check|^(?:voir|ver|nota|zie|about|other|see) |\?$")
"""Parts of the names of templates about links to disambiguation pages, such as "disambiguation needed".

A page with such a template is not a disambiguation page.
"""

Kind = Literal["outside", "page", "page too long", "broken record", "truncated file", "head"]
LIMITS: dict[Kind, int] = {"outside": LONGEST_HEAD, "page": LONGEST_PAGE, "page too long": KEPT_BYTES}
"""Kind -> maximum bytes held: of the content outside pages, of a page, and of a page that is too long."""
ELEMENTS = frozenset({"title", "ns", "id", "redirect", "revision/text"})
"""Elements that are read, as paths below <page>."""
DEEPEST = 10
"""Maximum nesting of elements in a page; the format has five levels."""


class TooDeep(Exception):
    """A page whose elements are nested too deeply."""


@dataclass(frozen=True, kw_only=True)
class Wiki:
    """Language of a wiki, and (number, name) of each namespace, from the head of a dump. None and () if unknown."""

    language: str | None = None
    namespaces: tuple[tuple[str, str], ...] = ()

    def named(self, *numbers: str) -> list[str]:
        """Return the names of the namespaces with these numbers."""
        return [name for number, name in self.namespaces if number in numbers]


def is_dump(head: bytes) -> bool:
    """Whether a file's first decompressed bytes are from a MediaWiki export."""
    return MEDIAWIKI.match(head, end_of_prolog(head)) is not None


def end_of_prolog(head: bytes) -> int:
    """Return the offset of the first byte after the XML prolog: an element or other text."""
    prolog = PROLOG.match(head)
    return prolog.end() if prolog else 0


def read_dump(blocks: Iterable[bytes], name: str) -> Iterator[Record | Dropped]:
    """Yield the articles of a MediaWiki export of any version and language, and a Dropped for every other page.

    A broken page gives the reason "broken record", and reading continues at the next page. XML that ends within a page
    gives the reason "truncated file". A stream may start at any page; then the language of the articles is unknown.
    """
    wiki = Wiki()
    for number, (kind, content) in enumerate(split_pages(_without_prolog(blocks))):
        if kind == "head":
            wiki = _parse_head(content)
            continue
        page_id = PAGE_ID.search(content)
        id = f"{name}:{page_id[1].decode()}" if page_id else f"{name}:page {number}"
        if kind != "page":
            reason: Any = kind  # split_pages yields "page", "head" and drop reasons
            yield dropped(id, reason, content[:KEPT_BYTES].decode("utf-8", "replace"))
            continue
        try:
            page = _parse(content)
        except (expat.ExpatError, TooDeep):
            yield dropped(id, "broken record", content[:KEPT_BYTES].decode("utf-8", "replace"))
        else:
            yield _article(page, id, wiki)


def _article(page: dict[str, str], id: str, wiki: Wiki) -> Record | Dropped:
    """Return the record of a page, or the reason why it is not an article."""
    title, text = page.get("title", ""), page.get("revision/text", "")
    if reason := _reason_to_drop(page, title, text, wiki):
        return dropped(id, reason, title)
    return Record(
        id=id,
        parent=id,
        title=title,
        paragraphs=prose(text, wiki.language, title, wiki.named(*PICTURES_AND_CATEGORIES)),
        language=wiki.language,
    )


def _reason_to_drop(page: dict[str, str], title: str, text: str, wiki: Wiki) -> Reason | None:
    """Return the reason why a page is not an article, or None for an article.

    Exports before version 0.6 have no <ns> element, so the namespace is taken from the prefix of the title.
    """
    space = page.get("ns", "").strip() or next(
        (number for number, name in wiki.namespaces if title.startswith(f"{name}:")), "0"
    )
    if space != "0":
        return "other namespace"
    if "redirect" in page or _is_redirect(text):
        return "redirect"
    return "disambiguation" if _is_disambiguation(title, text) else None


def _is_redirect(text: str) -> bool:
    """Whether a text begins with #WORD [[…]], where WORD means "redirect" in some language.

    In a short text, WORD may be any upper-case word.
    """
    redirect = REDIRECT.match(text)
    return redirect is not None and (
        redirect[1].lower() in REDIRECTS or (len(text) < LONGEST_REDIRECT and redirect[1] == redirect[1].upper())
    )


def _is_disambiguation(title: str, text: str) -> bool:
    """Whether a page is a disambiguation page, by its title, the word __DISAMBIG__ or a template."""
    if "__DISAMBIG__" in text or MEANINGS.search(title.lower()):
        return True
    names = {" ".join(name.replace("_", " ").lower().split()) for name in TEMPLATE_NAME.findall(text)}
    return any(
        name in DISAMBIGUATIONS or (DISAMBIGUATION_NAME.search(name) and not HATNOTE.search(name)) for name in names
    )


def _without_prolog(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a dump from the first XML element on, because an earlier comment could contain "<page>".

    A stream that does not begin like a dump is yielded unchanged.
    """
    rest = iter(blocks)
    head = b""
    for block in rest:
        head += block
        offset = end_of_prolog(head)
        unfinished = len(head) < offset + EDGE_BYTES or head.startswith((b"<!", b"<?"), offset)
        if not unfinished or len(head) > LONGEST_HEAD:
            break
    offset = end_of_prolog(head)
    yield head[offset:] if MEDIAWIKI.match(head, offset) else head
    yield from rest


def _parse_head(head: bytes) -> Wiki:
    """Parse the head of a dump; a missing language gives None, missing namespaces give ()."""
    tag = head.partition(b"<mediawiki")[2].partition(b">")[0]
    language = LANGUAGE.search(tag) or DATABASE.search(head)
    names = NAMESPACE.findall(head.decode("utf-8", "replace"))
    return Wiki(language=language[1].decode().replace("_", "-") if language else None, namespaces=tuple(names))


def tokens(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a stream in pieces; each <page> and each </page> is a piece of its own."""
    rest = b""
    for block in blocks:
        rest += block
        start = 0
        for edge in EDGE.finditer(rest):
            yield rest[start : edge.start()]
            yield edge[0]
            start = edge.end()
        tail = rest.rfind(b"<", max(start, len(rest) - EDGE_BYTES))  # the next block may complete this tag
        tail = len(rest) if tail < 0 else tail
        yield rest[start:tail]
        rest = rest[tail:]
    yield rest


def split_pages(blocks: Iterable[bytes]) -> Iterator[tuple[Kind, bytes]]:
    """Yield the parts of a stream as (kind, bytes).

    A kind is "page", "head" (the bytes before the first page), or the drop reason of an invalid part. An invalid part
    may be cut to its first bytes. Memory is bounded by LONGEST_PAGE.
    """
    kind: Kind = "outside"
    held = bytearray()
    for token in tokens(blocks):
        if edge := EDGE.fullmatch(token):
            yield from _finish_piece(kind, bytes(held), closed=edge[1] != b"")
            kind = "outside" if edge[1] else "page"
            held = bytearray(b"" if edge[1] else token)
            continue
        if kind == "page" and len(held) + len(token) > LIMITS["page"]:
            kind = "page too long"
            del held[KEPT_BYTES:]
        held += token[: max(0, LIMITS[kind] - len(held))]
    if kind == "page":
        yield "truncated file", bytes(held[:KEPT_BYTES])
        return
    yield from _finish_piece(kind, bytes(held), closed=False)
    if kind == "outside" and b"<mediawiki" in held and not held.rstrip().endswith(b"</mediawiki>"):
        yield "truncated file", bytes(held)


def _finish_piece(kind: Kind, content: bytes, closed: bool) -> Iterator[tuple[Kind, bytes]]:
    """Yield (kind or drop reason, bytes) for the bytes read before a </page>, a <page> or the end of the stream.

    `closed` is True if a </page> follows. Yield nothing for white space between pages, or for the final </mediawiki>.
    """
    if kind == "page":
        yield ("page", content + b"</page>") if closed else ("broken record", content)
    elif kind == "page too long":
        yield kind, content
    elif b"<mediawiki" in content:
        yield "head", content
    elif closed or content.removeprefix(BOM).strip() not in (b"", b"</mediawiki>"):
        yield "broken record", content


def _parse(content: bytes) -> dict[str, str]:
    """Return {path: text} of a page's elements (see ELEMENTS).

    If the page has several revisions, the text is that of the last revision.

    Safe for untrusted input: the content begins with <page>, and XML allows definitions of entities, which could expand
    to much text, only before the first element. Raises ExpatError or TooDeep.
    """
    texts: dict[str, list[str]] = {}
    path: list[str] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        path.append(name)
        if len(path) > DEEPEST:
            raise TooDeep
        if (element_path := "/".join(path[1:])) in ELEMENTS:
            texts[element_path] = []

    def characters(text: str) -> None:
        if (element_path := "/".join(path[1:])) in texts:
            texts[element_path].append(text)

    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = (
        start,
        lambda name: path.pop(),
        characters,
    )
    parser.Parse(content, True)
    return {element_path: "".join(parts) for element_path, parts in texts.items()}
