"""Lines of wikitext whose brackets are gone -> clean paragraphs: no tables, no headings, no lists of links, no debris."""

import html
import re
from collections.abc import Iterator

from pipeline.text.templates import COMPUTED
from pipeline.text.wikinames import LINK_SECTIONS

FEWEST_WORDS = 5
FEWEST_CHARACTERS = 10
HEADING = re.compile(r"\s*(={1,6})(?!=)(.+?)\1\s*$")
SENTENCE = re.compile(r"""[.!?…。！？।؟۔]["'”’»」』)）\]]*$""")
UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
CITATION = re.compile(r"\b(?:ISBN|ISSN|doi|OCLC|PMID|DOI)\b|[—–-] ?[СC]\. ?\d|\b\d+ ?[сc]\.(?!\w)|\bpp\. ?\d|\bS\. ?\d")
LINK_BAR = re.compile(r" [·•|] ")
ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|\w{2,32});")
WORD = re.compile(r"\w")

BRACKETS = re.compile(r"[\[\]{}]{2,}")
DOUBLE = ("[[", "]]", "{{", "}}")

TIDY: list[tuple[re.Pattern[str], str]] = [
    (re.compile(r"[\x00-\x08\x0e-\x1b\x7f\xad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\ufeff]"), ""),
    (re.compile(rf"\([^()\n]*{COMPUTED}[^()\n]*\)|{COMPUTED}"), ""),
    (re.compile(r"\b(?:ht|f)tps?://[^\s<>\[\]{}|\"”»]*", re.IGNORECASE), ""),
    (re.compile(r"[\t\x0b\x0c\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f]"), " "),
    (re.compile(r"  +"), " "),
    (re.compile(r"([(\[（]) ?(?:[,;:、，；] ?)++"), r"\1"),
    (re.compile(r"([,;])(?: ?[,;])++"), r"\1"),
    (re.compile(r"[,;:、，；](?<![,;:、，；]{2})[,;:、，；]*+ ?(?=[)\]）])"), ""),
    (re.compile(r"\([ .,;:/–-]*\)|\[[ .,;:/–-]*\]|（[ 、，；,;]*）"), ""),
    (re.compile(r"\([ .,;:/–-]*\)|\[[ .,;:/–-]*\]"), ""),
    (re.compile(r"([(\[]) +"), r"\1"),
    (re.compile(r" +(?=[)\]])"), ""),
    (re.compile(r"\"\"(?!\w)|“ ?”|« ?»|„ ?“(?!\w)"), ""),
    (re.compile(r"  +"), " "),
    (re.compile(r" (?=[,.](?:\s|$))"), ""),
    (re.compile(r",(?=\.(?:\s|$))"), ""),
]
"""What removed notes and templates leave behind, in the order of its removal."""


def clean_paragraphs(text: str) -> list[str]:
    """The paragraphs of a text without templates, links and tags, each on one line."""
    return tidy(paragraphs(list(without_tables(text.split("\n")))))


def without_tables(lines: list[str]) -> Iterator[str]:
    """The lines outside tables. A table that is never closed ends at a heading, or at a blank line that no row follows."""
    closed = closed_tables(lines)
    last, in_open_table = -1, False
    for number, line in enumerate(lines):
        start = line.lstrip(" \t:*#")
        if number <= last:
            if number == last and not in_open_table:
                yield start[2:]
        elif start.startswith("{|"):
            last = closed.get(number, last)
            in_open_table = in_open_table or number not in closed
        elif not in_open_table or table_is_over(lines, number):
            in_open_table = False
            yield line


def closed_tables(lines: list[str]) -> dict[int, int]:
    """First line -> last line of each table that is closed."""
    open_tables: list[int] = []
    found: dict[int, int] = {}
    for number, line in enumerate(lines):
        start = line.lstrip(" \t:*#")
        if start.startswith("{|"):
            open_tables.append(number)
        elif start.startswith("|}") and open_tables:
            found[open_tables.pop()] = number
    return found


def table_is_over(lines: list[str], number: int) -> bool:
    """Whether a table that is never closed has ended before this line."""
    line = lines[number]
    return HEADING.match(line) is not None or (line != "" and line[0] not in "|!{ *#:;" and number > 0 and not lines[number - 1].strip())


def paragraphs(lines: list[str]) -> list[str]:
    """Paragraphs of wikitext lines: lines of text are joined, headings end them, and list items stand alone."""
    found: list[str] = []
    held: list[str] = []
    links_level = 0  # of the heading over a section of links, where we are in one
    for number, line in enumerate(lines):
        heading = HEADING.match(line)
        if not heading and line.strip() and line[0] not in "*#:;|" and line.strip("-") and not preformatted(lines, number):
            held.append(line.strip())
            continue
        found.append(" ".join(held))
        held.clear()
        if heading:
            links_level = section(heading, links_level)
        elif not links_level and line[:1] in ("*", "#", ":", ";") and is_sentence(item := line.lstrip("*#:; \t").rstrip()):
            found.append(item)
    found.append(" ".join(held))
    return [paragraph for paragraph in found if paragraph]


def preformatted(lines: list[str], number: int) -> bool:
    """Whether a line belongs to a block of lines that begin with a space: code and diagrams. A single one is a slip."""
    return lines[number][0] == " " and any(line[:1] == " " and line.strip() for line in (*lines[max(0, number - 1) : number], *lines[number + 1 : number + 2]))


def section(heading: re.Match[str], links_level: int) -> int:
    """The level of the section of links that begins or goes on with this heading; 0 in other sections."""
    level = len(heading[1])
    if heading[2].strip(" :*\t").lower() in LINK_SECTIONS:
        return min(level, links_level or level)
    return links_level if links_level and level > links_level else 0


def is_sentence(item: str) -> bool:
    """Whether a list item reads as prose: it is long enough and has a full stop at the end, and no page numbers."""
    return is_long(item) and SENTENCE.search(item) is not None and CITATION.search(item) is None


def is_prose(paragraph: str) -> bool:
    """Whether a paragraph is no fragment: it is long enough, or a short sentence; the name of a book and a bar of links are none."""
    return SENTENCE.search(paragraph) is not None or (is_long(paragraph) and CITATION.search(paragraph) is None and len(LINK_BAR.findall(paragraph)) < 2)


def is_long(text: str) -> bool:
    """Five words, or ten characters of a script without spaces."""
    return text.count(" ") >= FEWEST_WORDS - 1 or len(UNSPACED.findall(text[:100])) >= FEWEST_CHARACTERS


def tidy(paragraphs: list[str]) -> list[str]:
    """Paragraphs with their entities decoded and without what removed notes and templates leave behind."""
    text = ENTITY.sub(lambda match: html.unescape(match[0]), "\n".join(paragraphs))
    for pattern, replacement in TIDY:
        text = pattern.sub(replacement, text)
    text = BRACKETS.sub(lambda match: "" if any(pair in match[0] for pair in DOUBLE) else match[0], text)
    lines = (line.lstrip(" ,;:.|").rstrip() for line in text.split("\n"))
    return [line for line in lines if WORD.search(line) and is_prose(line)]
