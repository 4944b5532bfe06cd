"""Table of text files that cannot be a corpus: each kind with its drop reason and advice for the user."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from xml.parsers import expat

from pipeline.corpus.dump import end_of_prolog, is_dump
from pipeline.corpus.plain import is_plain_text
from pipeline.corpus.records import NAMES, parse_json
from pipeline.corpus.wikiextractor import is_wikiextractor
from pipeline.text.documents import Reason

BLANK = b"\xef\xbb\xbf \t\r\n"
HTML_NAMES = (".html", ".htm", ".xhtml")
HTML = re.compile(
    rb"(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html\s*(?:>|public\b|system\b)|html\b)", re.I | re.S
)
XML_NAMES = (".xml", ".tei", ".svg", ".rss", ".atom", ".rdf", ".xsl", ".fb2", ".xlf", ".xliff", ".tmx")
DECLARATION = re.compile(rb"<\?xml\s+version\s*=|<!DOCTYPE\s", re.IGNORECASE)
ELEMENT = re.compile(rb"<(?:[A-Za-z_]|[^\x00-\x7f])[^\s<>/\"'=]*+(?:\s[^<>]*)?>")
RTF = re.compile(rb"\{\\rtf\d?\s*[\\{]")
TABLE_NAMES = (".csv", ".tsv")
ARRAY = re.compile(rb'\[\s*\{\s*"')
CONTROL = bytes({*range(32), 127} - {*b"\t\n\x0b\x0c\r\x1a\x1b"})
"""Bytes that no text encoding uses; an old file may end in 0x1a, and ISO 2022 needs 0x1b."""
MOST_CONTROL_SHARE = 0.005
"""Maximum share of control characters in a text."""


@dataclass(frozen=True, kw_only=True)
class UnsupportedKind:
    """Recognition of a kind of file (name without compression suffix, first bytes), and advice for its owner."""

    recognises: Callable[[str, bytes], bool]
    advice: str


def _is_html(name: str, head: bytes) -> bool:
    """Whether a file is a web page, by its name or its first bytes."""
    return name.lower().endswith(HTML_NAMES) or HTML.match(head.lstrip(BLANK)) is not None


def _is_xml(name: str, head: bytes) -> bool:
    """Whether a file is XML, or SGML with a document type, but neither a dump nor WikiExtractor's output.

    Without a declaration, a document type or an XML file name, its first bytes must parse as XML: one element around
    the whole file, or around further elements, one of which has ended. A text that only begins with "<", mentions tags
    or marks up some words does not.
    """
    start = head.lstrip(BLANK)
    if not start.startswith(b"<") or is_dump(head) or is_wikiextractor(name, head):
        return False
    root = ELEMENT.match(start, at := end_of_prolog(start))
    if root is None:
        return False
    if name.lower().endswith(XML_NAMES) or DECLARATION.search(start, 0, at):
        return True
    return _is_element(start[at:], nested=start[root.end() :].lstrip().startswith(b"<"))


def _is_element(text: bytes, nested: bool) -> bool:
    """Whether the beginning of a file parses as XML whose first element has ended or, if `nested`, an element in it."""
    depth = 0
    ended: list[int] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        ended.append(depth)

    parser = expat.ParserCreate("utf-8")
    parser.StartElementHandler, parser.EndElementHandler = start, end
    try:
        parser.Parse(text.decode("utf-8", "ignore").encode(), False)
    except expat.ExpatError:
        return False
    return 0 in ended or (nested and ended != [])


def _is_rtf(name: str, head: bytes) -> bool:
    """Whether a file is Rich Text, by its first control word."""
    return RTF.match(head.lstrip(BLANK)) is not None


def _is_separated(name: str, head: bytes) -> bool:
    """Whether a file is a table of separated values, by its name."""
    return name.lower().endswith(TABLE_NAMES)


def _is_json_document(name: str, head: bytes) -> bool:
    """Whether a file has JSON that is not one object per line: an array, or an object over several lines."""
    start = head.lstrip(BLANK)
    if not start.startswith((b"[", b"{")) or not (name.lower().endswith(NAMES) or ARRAY.match(start)):
        return False
    first, *more = [line for line in start.split(b"\n")[:-1] if line.strip()] or [b""]
    if first.strip() == b"[" or (not more and start.startswith(b"[")):
        return True
    has_object = any(isinstance(parse_json(line.decode("utf-8", "replace")), dict) for line in (first, *more))
    return not has_object and more != [] and not any(line.startswith(b"{") for line in more)


def _is_other_encoding(name: str, head: bytes) -> bool:
    """Whether first bytes look like text but not like UTF-8: no NUL and almost no control characters."""
    controls = len(head) - len(head.translate(None, CONTROL))
    return b"\0" not in head and controls <= MOST_CONTROL_SHARE * len(head) and not is_plain_text(name, head)


UNSUPPORTED: dict[Reason, UnsupportedKind] = {
    "HTML not text": UnsupportedKind(
        recognises=_is_html,
        advice="this is a web page: take the text out of it, or read it as it is with ::format=text",
    ),
    "XML not text": UnsupportedKind(
        recognises=_is_xml,
        advice="this is XML: take the text out of its elements, or read it as it is with ::format=text; "
        "a part of a MediaWiki dump is ::format=wikipedia-dump",
    ),
    "RTF not text": UnsupportedKind(
        recognises=_is_rtf,
        advice="this is Rich Text: save it as plain text in UTF-8, or read it as it is with ::format=text",
    ),
    "CSV not JSON lines": UnsupportedKind(
        recognises=_is_separated,
        advice="this is a table: save it as JSON lines or Parquet, or read its lines as prose with ::format=text",
    ),
    "JSON not JSON lines": UnsupportedKind(
        recognises=_is_json_document,
        advice="this is JSON, but JSON lines are wanted, one object a line, as jq -c '.[]' makes them of an array",
    ),
    "file not UTF-8": UnsupportedKind(
        recognises=_is_other_encoding,
        advice="this is text in another encoding, not UTF-8: save it as UTF-8, as iconv -f ENCODING -t UTF-8 does",
    ),
}


def unsupported_reason(name: str, head: bytes) -> Reason | None:
    """Return why a file with these first bytes is unsupported; None if it may be a corpus, or is binary."""
    return next((reason for reason, kind in UNSUPPORTED.items() if kind.recognises(name, head)), None)
