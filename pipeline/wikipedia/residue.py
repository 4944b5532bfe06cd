"""Remove what dropped templates leave in prose: brackets that hold only signs, single letters and abbreviations."""

import re

AFTER_OPENING = re.compile(r"[(（][\s,;\])–，、；）]")
MARKS = (" )", ",)", ";)", "]", '""', "“”", ". .", "，）", "、）", "；）")
"""Residue has one of these, or a sign after its opening bracket; most texts have none, and are not searched further."""
LETTER = r"[^\W\d_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
"""A letter, but no ideograph, kana or Hangul syllable, because these can be words by themselves."""
SHORT_WORD = rf"{LETTER}{{1,3}}(?!\w)"
"""A word such as "or", "ed." and "α"."""
CANDIDATE = re.compile(rf"[(（](?<![A-Za-z0-9_]\()((?:{SHORT_WORD}|[^\w()（）\n]){{0,80}}+)[)）]")
"""A bracket without numbers and longer words. A bracket directly after a word is a call in code: min()."""
GAP = re.compile(
    r"^[\s,;:/–、，；\[\]]*$"
    r"|^\s*[,;、，；\]]|^\s+(?=[a-z]{2})|(?<=[a-z]{2})[.,]?\s+$|[,;、，；]\s*$"
    r"|[,;] ?[,;]|\w.*\. \.|\. \..*\w|\[ ?\]|(?<!\w)\"\"(?!\w)|“”|„“|« ?»"
)
"""The place of a dropped template in a bracket: separators without text before, after or between them.

Signs within spaces are text: "degrees ( ° )", "(. . .)". Two quote marks after a letter are a formula: ("x""n").
"""
ONE_SIGN = frozenset(",;:/")
"""A single one of these in brackets is text: "a comma (,)"."""
SEPARATORS = re.compile(r"[(（]\s*+\]?\s*+[,;、，；][\s\],;、，；]*+(?![)）])|(?<=[^\s(（])\s*[,;、，；]\s*[)）]")
CAPITALS = re.compile("[A-Z]{2}")
"""Two capitals are an abbreviation that says something: "(POW, )" -> "(POW)"."""
CLOSING = re.compile(r"[,;]?\s?\](?=\s?[,;)])")
SPACES = re.compile(r"(?<=[^.][.!?]) ?\.(?=\s|$)|(?<=\S)  +| +(?=[,.;](?:\s|$))")
EMPTY = re.compile(r"(?<=\w) \[[\s,;]*\](?=[\s,;.)]|$)")


def without_residue(text: str) -> str:
    """Return a text without the brackets whose words were dropped, and without the separators around dropped words.

    "Asia ( or ; ]) is" -> "Asia is"; "Hipparchus (; Greek: Ἵππαρχος)" -> "Hipparchus (Greek: Ἵππαρχος)".
    """
    if "(" not in text and "（" not in text:
        return text
    if not (AFTER_OPENING.search(text) or any(mark in text for mark in MARKS)):
        return text
    shorter = EMPTY.sub("", text) if "[" in text else text
    shorter = CANDIDATE.sub(_without_gap, shorter)
    shorter = SEPARATORS.sub(lambda match: match[0].strip()[0] if match[0][0] in "(（" else match[0][-1], shorter)
    if "]" in shorter and "[" not in shorter:
        shorter = CLOSING.sub("", shorter)
    return SPACES.sub(_one_space, shorter).lstrip() if shorter != text else text


def _without_gap(match: re.Match[str]) -> str:
    inner = match[1]
    return "" if inner not in ONE_SIGN and GAP.search(inner) and not CAPITALS.search(inner) else match[0]


def _one_space(match: re.Match[str]) -> str:
    return " " if match[0].startswith("  ") and match.string[match.end() : match.end() + 1] not in ",.;" else ""
