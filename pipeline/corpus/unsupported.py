"""Table of kinds of text files that cannot be a corpus, each with a drop reason and advice for the user."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from xml.parsers import expat

from pipeline.corpus.plain import is_plain_text
from pipeline.corpus.warc import is_warc_without_text
from pipeline.corpus.wikiextractor import is_wikiextractor
from pipeline.tables.records import NAMES, parse_json
from pipeline.text.documents import Reason
from pipeline.wikipedia.dump import end_of_prolog, is_dump

BLANK = b"\xef\xbb\xbf \t\r\n"
"""Byte order mark and white space, which may come before the content."""
HTML_NAMES = (".html", ".htm", ".xhtml")
HTML = re.compile(
    rb"(?:<\?xml[^>]*>\s*)?(?:<!--(?:[^-]++|-(?!->))*+-->\s*+)*+<(?:!doctype\s+html\s*(?:>|public\b|system\b)|html\b)",
    re.I,
)
XML_NAMES = (".xml", ".tei", ".svg", ".rss", ".atom", ".rdf", ".xsl", ".fb2", ".xlf", ".xliff", ".tmx")
DECLARATION = re.compile(rb"<\?xml\s+version\s*=|<!DOCTYPE\s", re.IGNORECASE)
ELEMENT = re.compile(rb"<(?:[A-Za-z_]|[^\x00-\x7f])[^\s<>/\"'=]*+(?:\s[^<>]*)?>")
RTF = re.compile(rb"\{\\rtf\d?\s*[\\{]")
TABLE_NAMES = (".csv", ".tsv")
ARRAY = re.compile(rb'\[\s*\{\s*"')
MAIL_NAMES = (".mbox", ".eml")
VALUE = rb":[^\n]*\n(?:[ \t][^\n]*\n)*"
FIELD = rb"(?:[A-Za-z][A-Za-z0-9-]*" + VALUE + rb")"
MAILBOX = re.compile(rb"From \S+ [^\n]*\d\d:\d\d[^\n]*\n" + FIELD)
MESSAGE = re.compile(
    FIELD + rb"{0,40}?(?:Message-ID|Received|Return-Path|Delivered-To|MIME-Version|Newsgroups)" + VALUE + FIELD,
    re.IGNORECASE,
)
"""A message with its headers, whose lines begin with names; one of them is a name that only messages have."""
SUBTITLE_NAMES = (".srt", ".vtt", ".ass", ".ssa")
SUBTITLES = re.compile(
    rb"WEBVTT(?:[ \t][^\n]*)?\r?\n|\[Script Info\]|\d+[ \t]*\r?\n(?:\d+:)?\d\d:\d\d[,.]\d{3}[ \t]+-->"
)
BIBLIOGRAPHY_NAMES = (".bib", ".ris")
BIBLIOGRAPHY = re.compile(
    rb"(?:%[^\n]*\n\s*)*@[A-Za-z]+\s*[{(]\s*[^\s{},]+\s*,\s*[\w-]+\s*=|TY  - [A-Z]+\s*\n[A-Z][A-Z\d]  - "
)
PO_NAMES = (".po", ".pot")
PO = re.compile(rb'(?:#[^\n]*\n|\s)*+(?:msgctxt "[^\n]*\n)?msgid "[^\n]*\n(?:"[^\n]*\n)*msg(?:str|id_plural)\b')
OBJECT = re.compile(rb'\{\s*\n\s*"(?:[^"\\\n]|\\.)*"\s*:\s*(?:[\[{"\d-]|true|false|null)')
"""The beginning of an object over several lines, such as a notebook of Jupyter (.ipynb)."""
CONTROL = bytes({*range(32), 127} - {*b"\t\n\x0b\x0c\r\x1a\x1b"})
"""Control characters that text does not have.

0x1a (the end of old files) and 0x1b (part of ISO 2022 text) are allowed.
"""
MOST_CONTROL_SHARE = 0.005
"""Maximum share of control characters in a text."""


@dataclass(frozen=True, kw_only=True)
class UnsupportedKind:
    """Kind of file that is not supported, with advice for the user.

    `recognises` gets a file's name without compression suffix and the file's first bytes.
    """

    recognises: Callable[[str, bytes], bool]
    advice: str


def _is_html(name: str, head: bytes) -> bool:
    """Whether a file is a web page, by its name or its first bytes."""
    return name.lower().endswith(HTML_NAMES) or HTML.match(head.lstrip(BLANK)) is not None


def _is_xml(name: str, head: bytes) -> bool:
    """Whether a file is XML, or SGML with a document type. Dumps and WikiExtractor's output do not count as XML.

    A file that begins with a tag is XML if it has an XML declaration, a document type or an XML file name. Otherwise
    the first bytes must parse as XML and contain the end of the first element. If the first element begins with
    another element, the end of any element is enough. This excludes texts that merely begin with "<", and texts that
    mention tags or mark up some words.
    """
    start = head.lstrip(BLANK)
    if not start.startswith(b"<") or is_dump(head) or is_wikiextractor(name, head):
        return False
    root = ELEMENT.match(start, root_offset := end_of_prolog(start))
    if root is None:
        return False
    if name.lower().endswith(XML_NAMES) or DECLARATION.search(start, 0, root_offset):
        return True
    return _is_element(start[root_offset:], nested=start[root.end() :].lstrip().startswith(b"<"))


def _is_element(text: bytes, nested: bool) -> bool:
    """Whether a file's first bytes parse as XML, and the first element has ended.

    If `nested`, it is enough that any element has ended.
    """
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
    """Whether a file is JSON but not one object per line: an array, or an object over several lines."""
    start = head.lstrip(BLANK)
    if not (name.lower().endswith(NAMES) and start.startswith((b"[", b"{")) or ARRAY.match(start)):
        return OBJECT.match(start) is not None
    # Leave out the last line, which may be incomplete.
    first, *more = [line for line in start.split(b"\n")[:-1] if line.strip()] or [b""]
    if first.strip() == b"[" or (not more and start.startswith(b"[")):
        return True
    has_object = any(isinstance(parse_json(line.decode("utf-8", "replace")), dict) for line in (first, *more))
    return not has_object and more != [] and not any(line.startswith(b"{") for line in more)


def _is_named_or_begins(names: tuple[str, ...], *beginnings: re.Pattern[bytes]) -> Callable[[str, bytes], bool]:
    """Return a function that tells whether a file has one of these names, or begins with one of these patterns."""

    def recognises(name: str, head: bytes) -> bool:
        start = head.lstrip(BLANK)
        return name.lower().endswith(names) or any(beginning.match(start) for beginning in beginnings)

    return recognises


def _is_other_encoding(name: str, head: bytes) -> bool:
    """Whether a file's first bytes are text, with no NUL and almost no control characters, but are not UTF-8."""
    controls = len(head) - len(head.translate(None, CONTROL))
    return b"\0" not in head and controls <= MOST_CONTROL_SHARE * len(head) and not is_plain_text(name, head)


UNSUPPORTED: dict[Reason, UnsupportedKind] = {
    "HTML not text": UnsupportedKind(
        recognises=_is_html,
        advice="this is a web page: extract its text, or read it as it is with ::format=text",
    ),
    "XML not text": UnsupportedKind(
        recognises=_is_xml,
        advice="this is XML: extract the text from its elements, or read it as it is with ::format=text; "
        "read a part of a MediaWiki dump with ::format=wikipedia-dump",
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
        advice="this is JSON, but not JSON lines: write one object per line, for example with "
        "jq -c '.[]' from an array",
    ),
    "WARC not text": UnsupportedKind(
        recognises=is_warc_without_text,
        advice="this is a web archive without plain text: give the WET file of the archive (.warc.wet.gz), or extract "
        "the text of its pages",
    ),
    "mail not text": UnsupportedKind(
        recognises=_is_named_or_begins(MAIL_NAMES, MAILBOX, MESSAGE),
        advice="these are messages with their headers: save their bodies as JSON lines, or read the file as it is with "
        "::format=text",
    ),
    "subtitles not text": UnsupportedKind(
        recognises=_is_named_or_begins(SUBTITLE_NAMES, SUBTITLES),
        advice="these are subtitles: save the lines without numbers and times, or read the file as it is with "
        "::format=text",
    ),
    "bibliography not text": UnsupportedKind(
        recognises=_is_named_or_begins(BIBLIOGRAPHY_NAMES, BIBLIOGRAPHY),
        advice="this is a bibliography: save its abstracts as JSON lines, or read the file as it is with ::format=text",
    ),
    "PO not text": UnsupportedKind(
        recognises=_is_named_or_begins(PO_NAMES, PO),
        advice="these are a program's messages with their translations: save the texts of one language one per line, "
        "or read the file as it is with ::format=text",
    ),
    "file not UTF-8": UnsupportedKind(
        recognises=_is_other_encoding,
        advice="this is text in another encoding, not UTF-8: save it as UTF-8, for example with "
        "iconv -f ENCODING -t UTF-8",
    ),
}


def unsupported_reason(name: str, head: bytes) -> Reason | None:
    """Return the reason why a file is unsupported, by its name and first bytes; None if it may be text or is binary."""
    return next((reason for reason, kind in UNSUPPORTED.items() if kind.recognises(name, head)), None)
