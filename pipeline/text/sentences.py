"""Split text into sentences, with sentencex."""

import importlib.metadata
import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from sentencex import segment

from pipeline.text.abbreviations import INITIALS, NEVER_LAST, SELDOM_LAST
from pipeline.text.documents import WORDY

# sentencex 1.0 panics on white space of more than one byte before an initial ("by\u00a0J. Smith"), so such white space
# is replaced by a space.
WIDE_SPACE = re.compile("[\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")

TWO_LETTER_CODES = (
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee "
    "el en eo "
    "es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja "
    "jv ka kg "
    "ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne "
    "ng nl nn "
    "no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss st "
    "su sv sw "
    "ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"
)
TWO_LETTERS = frozenset(TWO_LETTER_CODES.split())
"""The codes of ISO 639-1, and bh and sh, which Wikipedia still uses."""
CODE = re.compile(r"([a-z]{2,3})(-[A-Za-z0-9]+)*")
VERSION = 2
"""Increase this number when a change gives other sentences for the same text, so no run resumes with other rows."""
LIBRARIES = ("numpy", "sentencex", "tokenizers")
"""Libraries that may give a run different rows in another version."""
ENOUGH = re.compile(rf"(?:[\W\d_]*[^\W\d_]){{4}}|.*{WORDY.pattern}.*{WORDY.pattern}")
"""Matches a piece long enough for a sentence: four letters, or two ideographs, kana or Hangul syllables."""
SHORT = 12
"""A piece with fewer characters than this may be too short for a sentence.

Every abbreviation with its full stop has at most this many characters.
"""
NOT_CAPITAL = frozenset(sign for sign in map(chr, range(0x2000)) if sign.islower() or sign.isdigit() or sign.isspace())
"""A piece that begins with one of these characters may continue the piece before it."""
OPENING = "([\"'“‘„«"
ITEM_NUMBER = re.compile(r"\(?\d{1,3}[.)]\s*")
LAST_WORD = re.compile(rf"[^\s.{re.escape(OPENING)}]+(?=\.\s*$)")


def row_versions() -> dict[str, str | int]:
    """Return {dotted name: version} of what may give a run different rows in another version."""
    return {f"version.{name}": importlib.metadata.version(name) for name in LIBRARIES} | {"version.sentences": VERSION}


def is_language_code(code: str) -> bool:
    """Whether sentencex may know this language code ("de", "ceb", "zh-min-nan").

    sentencex treats other codes as English.
    """
    match = CODE.fullmatch(code)
    return match is not None and (len(match[1]) == 3 or match[1] in TWO_LETTERS)


def split_sentences(
    text: str,
    *,
    lines_are_sentences: bool = False,
    language: str = "en",
    keep_spaces: bool = False,
    join_lines: bool = False,
) -> list[str]:
    """Return the sentences of a text, in order, stripped and not empty.

    A line feed always ends a sentence. With `lines_are_sentences`, every line is one sentence. Non-ASCII white space
    becomes a plain space. `language` is a code that sentencex knows ("en", "de"); for another code, sentencex uses a
    related language or English. Splits after an abbreviation are undone, and so are splits that leave fewer than four
    letters.

    With `keep_spaces`, a sentence begins with a space if white space separates it from the sentence before it in the
    same line. The sentences of a line can then be joined to the text of the line. With `lines_are_sentences` or
    `join_lines` too, a sentence on a new line also begins with a space, except the first of the text.
    """
    if not text.isascii():
        text = WIDE_SPACE.sub(" ", text)
    lines = text.split("\n")
    if lines_are_sentences:
        sentences = [sentence for line in lines if (sentence := line.strip())]
        return [*sentences[:1], *(f" {sentence}" for sentence in sentences[1:])] if keep_spaces else sentences
    known = _abbreviations(language)
    pieces: list[str] = []
    ends: list[int] = []
    for line in lines:
        if line:
            segments = segment(language, line)
            pieces += _join_fragments(segments, known) if known.never_last and len(segments) > 1 else segments
            ends.append(len(pieces))
    if not known.never_last:
        pieces = _join_suspicious_lines(pieces, ends, known)
    if keep_spaces:
        return _with_spaces(pieces, lines, join_lines)
    return [sentence for piece in pieces if (sentence := piece.strip())]


def _with_spaces(pieces: list[str], lines: list[str], join_lines: bool) -> list[str]:
    """Return the stripped sentences; white space between two sentences of a line becomes a space before the second.

    With `join_lines`, a line feed is white space too.
    The concatenated pieces must equal the concatenated lines.
    """
    ends = set(accumulate(map(len, lines)))
    sentences: list[str] = []
    offset, follows, space_before = 0, False, False
    for piece in pieces:
        if offset in ends or offset == 0:
            follows, space_before = join_lines and bool(sentences), join_lines
        if sentence := piece.strip():
            sentences.append(f" {sentence}" if follows and (space_before or piece[0].isspace()) else sentence)
            follows, space_before = True, piece[-1].isspace()
        else:
            space_before = True
        offset += len(piece)
    return sentences


@dataclass(frozen=True, kw_only=True)
class Abbreviations:
    """Abbreviations of a language without their full stop, in lower case, upper case and capitalised."""

    never_last: frozenset[str]
    """Abbreviations that never end a sentence, and the initials that sentencex does not know."""
    seldom_last: frozenset[str]
    """Abbreviations that do not end a sentence before a lower-case letter or a digit."""
    endings: frozenset[str]
    """All abbreviations with their full stop, with and without an opening mark before them.

    A piece that does not end with one of these needs no check.
    """


@cache
def _abbreviations(language: str) -> Abbreviations:
    """Return the abbreviations of a language that sentencex does not know."""
    code = language.split("-")[0]
    never, seldom = (
        frozenset(form for word in words.get(code, "").split() for form in (word, word.capitalize(), word.upper()))
        for words in (NEVER_LAST, SELDOM_LAST)
    )
    never |= frozenset(INITIALS.get(code, "").split())
    endings = frozenset(f"{before}{word}." for word in never | seldom for before in ("", *OPENING))
    return Abbreviations(never_last=never, seldom_last=seldom, endings=endings)


def _join_suspicious_lines(pieces: list[str], ends: list[int], known: Abbreviations) -> list[str]:
    """Join pieces in suspicious lines.

    A line is suspicious if one of its pieces is short, or begins with a character of NOT_CAPITAL.

    `ends` holds, for each line, one past the index of its last piece.
    """
    odd = [index for index, piece in enumerate(pieces) if len(piece) < SHORT or piece[0] in NOT_CAPITAL]
    for number in sorted({bisect_right(ends, index) for index in odd}, reverse=True):
        start, end = ends[number - 1] if number else 0, ends[number]
        if end - start > 1:
            pieces[start:end] = _join_fragments(pieces[start:end], known)
    return pieces


def _join_fragments(pieces: list[str], known: Abbreviations) -> list[str]:
    """Join pieces of a line that were split at an abbreviation or an initial, or are too short for a sentence.

    A short piece is joined to the piece before it. The number of a list item, a piece that ends with an abbreviation,
    and a short first piece are joined to the piece after them.
    """
    ends = "\n".join([piece[-SHORT:] for piece in pieces])
    is_long = len(ends) == len(pieces) * (SHORT + 1) - 1
    has_no_cut = ends.count(".") <= len(pieces) and known.endings.isdisjoint(ends.split())
    if has_no_cut and (is_long or not any(map(is_fragment, pieces))):
        return pieces  # fast path for most lines
    whole: list[str] = []
    continues = False
    for piece, following in zip(pieces, (*pieces[1:], "")):
        is_short = is_fragment(piece)
        is_open = following != "" and _is_cut(piece, following, known)
        if whole and (continues or (is_short and not is_open and not (following and ITEM_NUMBER.fullmatch(piece)))):
            whole[-1] += piece
        else:
            whole.append(piece)
        continues = is_open or (is_short and is_fragment(whole[-1]))
    if len(whole) > 1 and is_fragment(whole[-1]):
        whole[-2:] = ["".join(whole[-2:])]
    return whole


def is_fragment(piece: str) -> bool:
    """Whether a piece has too few letters for a sentence."""
    return len(piece) < SHORT and not (len(piece) > 3 and piece[:4].isalpha()) and not ENOUGH.match(piece)


def _is_cut(piece: str, following: str, known: Abbreviations) -> bool:
    """Whether a piece ends with an abbreviation, so that the sentence continues in the following piece."""
    match = LAST_WORD.search(piece[-SHORT:])
    if match is None:
        return False
    if match[0] in known.never_last:
        return True
    start = following.lstrip()[:1]
    return match[0] in known.seldom_last and (start.islower() or start.isdigit())
