"""Turn lines of wikitext without brackets into clean prose: no tables, headings, lists of links or other markup."""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pipeline.text.sentences import split_sentences
from pipeline.wikipedia.residue import without_residue
from pipeline.wikipedia.template_arguments import ASIDE, ASIDE_END, GLUED, HOLE
from pipeline.wikipedia.wikinames import LINK_SECTIONS

FORMULA = "\ue003"
"""Mark before and after a formula."""
FORMULAS = re.compile(rf"[: \t]*+(?:{FORMULA}[^{FORMULA}\n]*+{FORMULA}[^\w{FORMULA}]*+)++$")
EQUALS = re.compile("[=≈≤≥→⇌↔⇒]")
LONG_WORD = re.compile(r"[^\W\d_]{4,}")
UNFINISHED = re.compile(r"(?<!&nbsp)[,;](?: \w{1,4})?$")
"""End of a list item that continues in the next item: a comma or semicolon, possibly followed by "and"."""
LIST_MARKS = "*#:;|"
ASIDE_TEXT = re.compile(rf"{ASIDE}[^{ASIDE_END}\n]*+{ASIDE_END}")
SEPARATORS, BACK = str.maketrans(";,", "\ue004\ue005"), str.maketrans("\ue004\ue005", ";,")
"""Translation tables: SEPARATORS hides the separators inside an aside while the text is split at separators, and BACK
restores them.
"""
IN_PARENTHESES = re.compile(rf"\((?:[^()\n{ASIDE}]++|{ASIDE_TEXT.pattern}|\([^()\n]*+\))*+\)")

FEWEST_WORDS = 5
FEWEST_CHARACTERS = 10
HEADING = re.compile(r"\s*(=++)(?!\s*$)([^=\n].*?)(?<!=)(=++)\s*$|\s*(={2,})([^=\n]{1,80}+)$")
"""The level of a heading is the length of the shorter run of "=", as in MediaWiki.

A short line with a run of "=" only at its start is an unclosed heading.
"""
SENTENCE = re.compile(r"""[.!?…。！？।؟۔։။።\u17d4]["'”’»」』)）\]]*$""")
UNMARKED = re.compile(r"""[\u0e00-\u0eff\u1780-\u17d3][\d\s.,()"'”’»]*$""")
"""End of a line in Thai, Lao or Khmer, where a space may be all that stands between two sentences."""
UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
CITATION = re.compile(r"\b(?:ISBN|ISSN|doi|OCLC|PMID|DOI)\b|[—–-] ?[СC]\. ?\d|\b\d+ ?[сc]\.(?!\w)|\bpp\. ?\d|\bS\. ?\d")
LINK_BAR = re.compile(r" [·•|] ")
ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|\w{2,32});")
WORD = re.compile(r"\w")

TWO_LETTERS = r"(?:[A-Za-zÀ-ɏ]{2}|[^\x00-\u02ff\u2000-\u2bff\s]{2})"
"""Two letters of any script, or combining marks."""
DEBRIS: list[tuple[str, re.Pattern[str], str]] = [
    ("[", re.compile(r"\[(?<!\b\w\[)[1-9]\d{0,2}(?:[,;–-] ?\d{1,3})*\](?![\w-])"), ""),
    ("==", re.compile(r"==+[^=\n]{1,80}+==+"), r"\n"),
    ("==", re.compile(r"==+"), "="),
    ("|", re.compile(rf"\|(?<={TWO_LETTERS}\|)(?={TWO_LETTERS})"), "/"),
    (
        "|",
        re.compile(rf"\|(?:\|+|(?<=[ (]\|)(?={TWO_LETTERS})|(?<={TWO_LETTERS}\|)(?= \w)|(?= ?$))", re.MULTILINE),
        " ",
    ),
]
"""Remains of markup that authors left in the text: copied note marks, headings inside a line, ends of table cells.

Each row is (substring that the text must contain, pattern, replacement). A bar next to a sign, a number or a single
letter is mathematics and stays.
"""
BAR = re.compile(rf"(?<={TWO_LETTERS} )\|(?= {TWO_LETTERS})")

BRACKETS = re.compile(r"[\[\]{}]{2,}")
DOUBLE = ("[[", "]]", "{{", "}}")

TIDY: list[tuple[str, re.Pattern[str], str]] = [
    (
        "",
        re.compile(r"[\x00-\x08\x0e-\x1b\x7f\xad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\ufeff\ue001-\ue005]"),
        "",
    ),
    ("", re.compile(rf"\([^()\n{HOLE}]*+{HOLE}[^()\n]*+\)"), ""),
    ("://", re.compile(r"\b(?:ht|f)tps?://[^\s<>\[\]{}|\"”»]*", re.IGNORECASE), ""),
    ("", re.compile(r"[\t\x0b\x0c\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f]"), " "),
    ("", re.compile(r"  +"), " "),
    ("", re.compile(r"([(\[（]) ?(?:[,;:、，；] ?)++"), r"\1"),
    ("", re.compile(r"([,;])(?: ?[,;])++"), r"\1"),
    ("", re.compile(r"[,;:、，；](?<![,;:、，；]{2})[,;:、，；]*+ ?(?=[)\]）])"), ""),
    ("", re.compile(r"\((?!\.{3})[ .,;:/–-]*\)|\[[ ,;:/]*\]|（[ 、，；,;]*）"), ""),
    ("", re.compile(r"\((?!\.{3})[ .,;:/–-]*\)|\[[ ,;:/]*\]"), ""),
    ("", re.compile(r"\((?:e\.g|i\.e|cf|see|vgl|z\. ?B|siehe|див|напр|см|voir|p\. ex)\.?[,:]? ?\)", re.IGNORECASE), ""),
    ("", re.compile(r"([(\[]) +"), r"\1"),
    ("", re.compile(r" +(?=[)\]])"), ""),
    ("", re.compile(r"\"\"(?!\w)|“ ?”|« ?»|„ ?“(?!\w)"), ""),
    ("", re.compile(r"  +"), " "),
    ("", re.compile(r" (?=[,.](?:\s|$))"), ""),
    ("", re.compile(r",(?=\.(?:\s|$))"), ""),
]
"""Patterns for the remains of notes and templates that were removed, for example empty parentheses.

The patterns are applied in this order; each row is as in DEBRIS.
"""


@dataclass(slots=True)
class ParserState:
    """State of the parser: finished paragraphs, the lines of the current paragraph, and the list that follows it."""

    language: str
    paragraphs: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    broken: bool = False  # a blank line follows the held lines
    behind_formula: bool = False  # the last held line is a formula by itself
    items: list[str] | None = None
    lead: str = ""  # the paragraph before the items
    term: str = ""  # the term of a definition list that the next item explains
    links_level: int = 0  # heading level of the current section of links; 0 outside such sections

    def text(self, line: str) -> None:
        """Add a line of text or a formula."""
        is_display = _is_formula(line) and (line[0] == ":" or self.broken)
        line = line.strip(": \t") if is_display else line.strip()
        if is_display and (not self.held or is_ended(self.held[-1])):
            self.broken = True  # no unfinished sentence precedes the formula, so the formula is dropped
            return
        if self.items is not None:
            self.end_list()
        elif self.held and not is_display and (self.broken or self.behind_formula) and not self.continues(line):
            self.end_paragraph()
        self.held.append(line)
        self.broken, self.behind_formula = False, is_display

    def continues(self, line: str) -> bool:
        """Whether `line` continues the sentence before a formula or a blank line."""
        return line.lstrip(FORMULA)[:1].islower() and (self.behind_formula or not is_ended(self.held[-1]))

    def end_paragraph(self) -> None:
        """Finish the current paragraph."""
        if self.held:
            self.paragraphs.append(" ".join(self.held))
            self.held.clear()

    def item(self, line: str) -> None:
        """Add a line of a list; at the first line of a list, the current paragraph becomes the lead of the list."""
        if self.items is None:
            self.items, self.lead, self.term = [], " ".join(self.held), ""
            self.held.clear()
        text = line.lstrip(f"{LIST_MARKS} \t").rstrip() if line[0] in LIST_MARKS[:-1] else ""
        if line[0] == ";" and not _is_sentence(text):
            self.term = text.rstrip(" :")
        elif text:
            self.items.append(
                f"{self.term}: {text}" if self.term else text.replace(" : ", ": ", 1) if line[0] == ";" else text
            )
            self.term = ""

    def end_list(self) -> None:
        """Finish the current list; its items are dropped in a section of links."""
        items, self.items = self.items or [], None
        if self.links_level:
            self.paragraphs += [self.lead] * (self.lead != "")
        else:
            self.paragraphs += _render_list(self.lead, items, self.language)

    def end(self) -> None:
        """Finish the current list or paragraph, before a heading or the end of the text."""
        if self.items is not None:
            self.end_list()
        elif self.held:
            self.paragraphs += _render_list(" ".join(self.held), [], self.language)
            self.held.clear()


def clean_paragraphs(text: str, language: str | None = None) -> list[str]:
    """Return the paragraphs of a text, one line each.

    Its templates, links and tags must already be rendered or removed. `language` None: English.
    """
    language = language or "en"
    return _tidy(_paragraphs(list(_without_tables(text.split("\n"))), language), language)


def _without_tables(lines: list[str]) -> Iterator[str]:
    """Yield the lines outside tables. An unclosed table ends at a heading, or at a blank line not followed by a row."""
    closed = _closed_tables(lines)
    last, in_open_table = -1, False
    for number, line in enumerate(lines):
        start = line.lstrip(" \t:*#")
        if number <= last:
            if number == last and not in_open_table:
                yield start[2:]
        elif start.startswith("{|"):
            last = closed.get(number, last)
            in_open_table = in_open_table or number not in closed
            yield "*"  # an empty list item, so that a sentence that introduces the table is dropped
        elif not in_open_table or _table_is_over(lines, number):
            in_open_table = False
            yield line


def _closed_tables(lines: list[str]) -> dict[int, int]:
    """Return {number of the first line: number of the last line} for each closed table."""
    open_tables: list[int] = []
    ends: dict[int, int] = {}
    for number, line in enumerate(lines):
        start = line.lstrip(" \t:*#")
        if start.startswith("{|"):
            open_tables.append(number)
        elif start.startswith("|}") and open_tables:
            ends[open_tables.pop()] = number
    return ends


def _table_is_over(lines: list[str], number: int) -> bool:
    """Whether an unclosed table has ended before this line."""
    line = lines[number]
    return HEADING.match(line) is not None or (
        line != "" and line[0] not in "|!{ *#:;" and number > 0 and not lines[number - 1].strip()
    )


def _paragraphs(lines: list[str], language: str) -> list[str]:
    """Return the paragraphs of wikitext lines: text lines are joined, list items stay separate."""
    body = ParserState(language=language)
    for number, line in enumerate(lines):
        if heading := HEADING.match(line):
            body.end()
            body.links_level = _section(heading, body.links_level)
        elif not line.strip() or not line.strip("-="):
            body.broken = True
        elif not _is_formula(line) and (line[0] in LIST_MARKS or _preformatted(lines, number)):
            body.item(line)
        else:
            body.text(line)
    body.end()
    return [paragraph for paragraph in body.paragraphs if paragraph]


def _render_list(lead: str, items: list[str], language: str) -> list[str]:
    """Return the paragraph `lead`, followed by those items of its list that are kept.

    If all items continue the last sentence of the paragraph, the paragraph and the list become one paragraph.
    Otherwise, items that are long sentences are kept. If a paragraph precedes the list, and more than half of the items
    are long sentences, then short sentences are kept too. If no item is kept, the last sentence of the paragraph is
    left out in two cases: it ends with a colon ("They are:"), or it has no full stop and a list follows. Thai, Lao and
    Khmer do without full stops, so only the colon counts there.
    """
    is_open = lead != "" and not is_ended(lead)
    if len(items) > 1 and is_open and all(map(UNFINISHED.search, items[:-1])) and SENTENCE.search(items[-1]):
        return [" ".join([lead, *items])]
    ended = [item for item in items if SENTENCE.search(item) and not CITATION.search(item)]
    kept = [item for item in ended if _is_long(item)]
    if lead and 2 * len(kept) > len(items):
        kept = [item for item in ended if " " in item]
    if not kept and (lead.endswith(":") or (is_open and items and not UNMARKED.search(lead))):
        lead = " ".join(split_sentences(lead, language=language)[:-1])
    return [lead, *kept]


def is_ended(line: str) -> bool:
    """Whether a line ends a sentence."""
    return SENTENCE.search(line.rstrip(FORMULA)) is not None


def _is_formula(line: str) -> bool:
    """Whether a line has formulas and no words: TeX, or indented text such as a chemical equation."""
    if FORMULAS.match(line):
        return True
    return line[0] == ":" and EQUALS.search(line) is not None and LONG_WORD.search(line) is None


def _preformatted(lines: list[str], number: int) -> bool:
    """Whether a line is in a block of lines that begin with a space (code, diagrams); a single such line is text."""
    return lines[number][0] == " " and any(
        line[:1] == " " and line.strip()
        for line in (*lines[max(0, number - 1) : number], *lines[number + 1 : number + 2])
    )


def _section(heading: re.Match[str], links_level: int) -> int:
    """Return the heading level of the section of links that begins at this heading or continues after it, else 0.

    `links_level` is the level before the heading.
    """
    level = min(len(heading[1]), len(heading[3])) if heading[1] else len(heading[4])
    if (heading[2] or heading[5]).strip(" :*\t").lower() in LINK_SECTIONS:
        return min(level, links_level or level)
    return links_level if links_level and level > links_level else 0


def _is_sentence(item: str) -> bool:
    """Whether a list item is prose: long enough, with a full stop at the end, and not a citation."""
    return _is_long(item) and SENTENCE.search(item) is not None and CITATION.search(item) is None


def _is_prose(paragraph: str) -> bool:
    """Whether a paragraph is prose: it ends like a sentence, or is long and neither a citation nor a list of links."""
    return SENTENCE.search(paragraph) is not None or (
        _is_long(paragraph) and CITATION.search(paragraph) is None and len(LINK_BAR.findall(paragraph)) < 2
    )


def _is_long(text: str) -> bool:
    """Whether a text has at least five words, or ten characters of a script without spaces."""
    return text.count(" ") >= FEWEST_WORDS - 1 or len(UNSPACED.findall(text[:100])) >= FEWEST_CHARACTERS


def _without_asides(match: re.Match[str]) -> str:
    """Return parentheses without their asides (pronunciations, coordinates).

    An aside after words in lower case, such as "pronounced", stays.
    """
    if ASIDE not in match[0]:
        return match[0]
    parts = re.split("([;,])", ASIDE_TEXT.sub(lambda aside: aside[0].translate(SEPARATORS), match[0][1:-1]))
    return f"({''.join(_without_aside(part) if ASIDE in part else part for part in parts)})".translate(BACK)


def _without_aside(part: str) -> str:
    """Return a part of the text between two parentheses, without its asides.

    If the words outside the asides are all in lower case, return the part unchanged.
    """
    rest = ASIDE_TEXT.sub("", part).rstrip()
    return part if rest.islower() else rest if WORD.search(rest) else ""


def without_holes(line: str, language: str) -> str:
    """Return a line without the sentences that contain HOLE."""
    return (
        " ".join(sentence for sentence in split_sentences(line, language=language) if HOLE not in sentence)
        if HOLE in line
        else line
    )


def _apply_patterns(text: str, table: list[tuple[str, re.Pattern[str], str]]) -> str:
    """Apply the rows of a table such as DEBRIS in order; skip a row if the text lacks its required substring."""
    for mark, pattern, replacement in table:
        if mark in text:
            text = pattern.sub(replacement, text)
    return text


def _tidy(paragraphs: list[str], language: str) -> list[str]:
    """Decode entities in paragraphs, remove the remains of markup, and keep only the lines that are prose."""
    text = "\n".join(paragraphs)
    text = _apply_patterns(text, DEBRIS)
    text = ENTITY.sub(lambda match: html.unescape(match[0]), text)
    if ASIDE in text:
        text = IN_PARENTHESES.sub(_without_asides, text)
    if GLUED in text:
        text = re.sub(rf"(?<=\d){GLUED}", " ", text)
    if ". ." in text:
        text = "\n".join(without_residue(line) if ". ." in line else line for line in text.split("\n"))
    text = _apply_patterns(text, TIDY)
    text = BRACKETS.sub(lambda match: "" if any(pair in match[0] for pair in DOUBLE) else match[0], text)
    lines = (without_holes(line, language).lstrip(" ,;:.|").rstrip() for line in text.split("\n"))
    kept = [line for line in lines if WORD.search(line) and _is_prose(line)]
    return [BAR.sub("–", line) if "|" in line else line for line in kept]
