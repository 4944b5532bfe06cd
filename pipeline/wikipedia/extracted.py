"""Clean the markup that WikiExtractor leaves in articles: entities, tags, links, placeholders for formulas and code."""

import html
import re
from collections.abc import Iterable

from pipeline.wikipedia.residue import without_residue
from pipeline.wikipedia.template_arguments import HOLE
from pipeline.wikipedia.wikilines import ENTITY, WORD, is_ended, without_holes
from pipeline.wikipedia.wikitext import BLOCK_TAG, ITEM_TAG, LINE_TAG, TAG, Page, render_brackets

PLACEHOLDER = re.compile(r"(?<![A-Za-z_])(?:formula|codice)_\d+")
"""WikiExtractor's placeholders for <math> and <code> (its placeholder_tags).

A placeholder may directly follow a Chinese character, so the pattern requires no word boundary before it.
"""
IN_PARENTHESES = re.compile(rf" ?[(（][^()（）{HOLE}]*+{HOLE}[^()（）]*+[)）]")
NOTE = re.compile(r"<ref\b[^<>]*>[^<]*</ref\s*>", re.IGNORECASE)
BRACKETS = ("[[", "]]", "{{", "}}")
PAGE = Page()


def without_leftovers(lines: Iterable[str], language: str) -> list[str]:
    """Return the lines of an article as a reader of the page sees them.

    If a line has no word left after its markup is removed, the line becomes empty. A sentence with a placeholder for a
    formula or code is dropped; if the placeholder is in parentheses, only the parentheses and their content are
    dropped. A formula on a line of its own is part of the sentence around it.
    """
    paragraphs: list[str] = []
    last, after_formula = -1, False
    for line in map(_visible, lines):
        is_formula = HOLE in line and not WORD.search(line)
        open_before = last >= 0 and not is_ended(paragraphs[last])
        if (is_formula and open_before) or (after_formula and line[:1].islower()):
            paragraphs[last] += f" {line}"
        else:
            paragraphs.append(line)
            last = len(paragraphs) - 1 if line.strip() else last
        after_formula = is_formula or (after_formula and not line.strip())
    return [without_holes(IN_PARENTHESES.sub("", line), language) if HOLE in line else line for line in paragraphs]


def _visible(line: str) -> str:
    """Decode the entities of a line and remove its tags, brackets and residue; each PLACEHOLDER becomes HOLE."""
    if "&" in line:
        line = ENTITY.sub(lambda match: html.unescape(match[0]), line)
    plain = line
    if "<" in line:
        line = TAG.sub("", LINE_TAG.sub(" ", ITEM_TAG.sub(" ", BLOCK_TAG.sub(" ", NOTE.sub("", line)))))
    if any(bracket in line for bracket in BRACKETS):
        line = render_brackets(line, PAGE)
    line = without_residue(line)
    if line != plain and not WORD.search(line):
        return ""
    return PLACEHOLDER.sub(HOLE, line) if "_" in line else line
