"""Text to sentences, with sentencex."""

import re

from sentencex import segment

# sentencex 1.0 panics on white space of more than one byte before an initial ("by\u00a0J. Smith").
WIDE_SPACE = re.compile("[\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")

TWO_LETTERS = frozenset(
    """aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en eo es et eu fa ff fi fj fo fr
    fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo
    lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl
    sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu""".split()
)
"""The codes of ISO 639-1, and bh and sh, which Wikipedia still uses."""
CODE = re.compile(r"([a-z]{2,3})(-[A-Za-z0-9]+)*")


def is_language_code(code: str) -> bool:
    """Whether sentencex may know a language by this code, such as "de", "ceb" or "zh-min-nan"; any other it would take for English."""
    match = CODE.fullmatch(code)
    return match is not None and (len(match[1]) == 3 or match[1] in TWO_LETTERS)


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
