"""Text to sentences, with sentencex."""

import re

from sentencex import segment

# sentencex 1.0 panics on white space of more than one byte before an initial ("by\u00a0J. Smith").
WIDE_SPACE = re.compile("[\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")


def split_sentences(text: str, *, lines_are_sentences: bool = False, language: str = "en") -> list[str]:
    """The sentences of a text, in order, stripped and none empty.

    A line feed always ends a sentence. With `lines_are_sentences` every line is one sentence and none is split.
    White space beyond ASCII becomes a plain space. `language` is a code that sentencex knows ("en", "de"); for others it
    falls back to a related language or to English.
    """
    if not text.isascii():
        text = WIDE_SPACE.sub(" ", text)
    lines = text.split("\n")
    pieces = lines if lines_are_sentences else (piece for line in lines if line for piece in segment(language, line))
    return [sentence for piece in pieces if (sentence := piece.strip())]
