"""Clean what WikiExtractor leaves in articles: entities, tags, links and its placeholders for formulas and code."""

import html
import re
from collections.abc import Iterable

from pipeline.text.template_arguments import HOLE
from pipeline.text.wikilines import ENTITY, WORD, is_ended, without_holes
from pipeline.text.wikitext import BLOCK_TAG, ITEM_TAG, LINE_TAG, TAG, Page, render_brackets

PLACEHOLDER = re.compile(r"(?<![A-Za-z_])(?:formula|codice)_\d+")
"""WikiExtractor's placeholders for <math> and <code> (placeholder_tags); may directly follow a Chinese character."""
IN_PARENTHESES = re.compile(rf" ?[(（][^()（）{HOLE}]*+{HOLE}[^()（）]*+[)）]")
NOTE = re.compile(r"<ref\b[^<>]*>[^<]*</ref\s*>", re.IGNORECASE)
BRACKETS = ("[[", "]]", "{{", "}}")
PAGE = Page()


def without_leftovers(lines: Iterable[str], language: str) -> list[str]:
    """Return the lines of an article as a reader sees them.

    A line that has no word after its markup is removed is dropped. A sentence whose formula or code was
    removed is dropped, as in `wikitext`. A formula on a line of its own is part of the sentence around it.
    """
    paragraphs: list[str] = []
    last, behind_formula = -1, False
    for line in map(_visible, lines):
        is_formula = HOLE in line and not WORD.search(line)
        open_before = last >= 0 and not is_ended(paragraphs[last])
        if (is_formula and open_before) or (behind_formula and line[:1].islower()):
            paragraphs[last] += f" {line}"
        else:
            paragraphs.append(line)
            last = len(paragraphs) - 1 if line.strip() else last
        behind_formula = is_formula or (behind_formula and not line.strip())
    return [without_holes(IN_PARENTHESES.sub("", line), language) if HOLE in line else line for line in paragraphs]


def _visible(line: str) -> str:
    """Return a line without entities, tags and brackets; a formula or code becomes HOLE."""
    if "&" in line:
        line = ENTITY.sub(lambda match: html.unescape(match[0]), line)
    plain = line
    if "<" in line:
        line = TAG.sub("", LINE_TAG.sub(" ", ITEM_TAG.sub(" ", BLOCK_TAG.sub(" ", NOTE.sub("", line)))))
    if any(bracket in line for bracket in BRACKETS):
        line = render_brackets(line, PAGE)
    if line != plain and not WORD.search(line):
        return ""
    return PLACEHOLDER.sub(HOLE, line) if "_" in line else line
