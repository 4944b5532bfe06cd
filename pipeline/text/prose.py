"""Sentences of plain prose, and their words, in scripts whose sentences end with a mark: not in Thai and Lao."""

import re
import unicodedata
from functools import cache

from pipeline.text.documents import WORDY

SENTENCE_ENDS = ".!?…。！？؟।۔։။።"
TECHNICAL = frozenset("#%&*/@[\\]{}")
"""Marks that Unicode counts as punctuation, but that stand in code, markup and addresses more than in prose."""
JOINERS = "\u200c\u200d"
"""Characters inside words of Persian and of scripts of India."""
LETTER = rf"(?:(?!{WORDY.pattern})[^\W\d_])"  # an ideograph may follow a mark without a space
IN_CODE = re.compile(
    rf"[.,:;!?]{LETTER}"  # numpy.array, :class:, f(x,y)
    rf"|{LETTER}\("  # a call
    rf"|(?:^|[\s(\"'-])['-]{LETTER}"  # --option, 'name'
    r"|[a-z][A-Z]|::|  "  # camelCase
)
UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+")
"""Matches text in scripts without spaces between words: Thai, Lao, Burmese, Khmer, kana, ideographs."""


def is_complete(sentence: str) -> bool:
    """Return whether a sentence begins with a letter that is not lower-case, and ends with a mark in SENTENCE_ENDS."""
    return sentence[-1] in SENTENCE_ENDS and sentence[0].isalpha() and sentence[0] == sentence[0].title()


def is_plain(sentence: str) -> bool:
    """Return whether a sentence has only letters and usual punctuation, and nothing that looks like code or markup."""
    return all(map(_is_usual, set(sentence))) and not IN_CODE.search(sentence)


@cache
def _is_usual(character: str) -> bool:
    """Return whether a character is a letter, a mark on a letter, a space or usual punctuation."""
    kind = unicodedata.category(character)
    if kind[0] == "P":
        return kind != "Pc" and unicodedata.normalize("NFKC", character)[0] not in TECHNICAL
    return kind[0] in "LM" or character in f" {JOINERS}"


def is_letters(word: str) -> bool:
    """Return whether a text is one or more letters, with marks such as the vowels of Hindi."""
    return word != "" and all(unicodedata.category(character)[0] in "LM" for character in word) and word[0].isalpha()


def word_spans(sentence: str) -> set[tuple[int, int]]:
    """Return (start, end) of each piece between spaces, without the punctuation around it.

    "don't" and "well-known" are one word each.
    """
    around = "".join({character for character in sentence if unicodedata.category(character)[0] not in "LMN"})
    spans = set()
    for match in re.finditer(r"\S+", sentence):
        word = match[0].strip(around)
        start = match.start() + match[0].find(word)
        spans.add((start, start + len(word)))
    return spans
