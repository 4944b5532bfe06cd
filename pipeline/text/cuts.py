"""Cut UTF-8 text only where a cut does not change the ids; each kind of vocabulary has its own rules.

Shapes: B bytes of all sentences, concatenated; S sentences.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from pipeline.text.splitting import parts_of
from pipeline.text.vocabulary import Vocabulary

Cut = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Function of the text, uint8 (B,), and the byte offsets of its sentences, int64 (S + 1,).

It returns for each byte whether the text may be cut before this byte, bool (B,). The caller also cuts between
sentences.
"""

SPACE, NEW_LINE, APOSTROPHE = 0x20, 0x0A, 0x27
ENDS, STARTS = 1, 2
OTHER, LETTER, DIGIT, SIGN, QUOTE = range(5)
KINDS_OF_BYTE = 5


def _word_classes() -> np.ndarray:
    """Return flags of each byte value, uint8 (256,).

    ENDS means that a chunk ends after the byte; STARTS means that a chunk starts at the byte. ASCII punctuation has
    both flags.
    """
    classes = np.zeros(256, np.uint8)
    classes[[code for code in range(33, 127) if not chr(code).isalnum()]] = ENDS | STARTS
    classes[[SPACE, NEW_LINE]] = ENDS
    return classes


def _byte_kinds() -> np.ndarray:
    """Return the kind of each byte value, uint8 (256,).

    Printable ASCII without the space is LETTER, DIGIT, QUOTE (the apostrophe) or SIGN; all else is OTHER.
    """
    kinds = np.full(256, OTHER, np.uint8)
    for code in range(33, 127):
        kinds[code] = LETTER if chr(code).isalpha() else DIGIT if chr(code).isdigit() else SIGN
    kinds[APOSTROPHE] = QUOTE
    return kinds


def _separable() -> np.ndarray:
    """Return whether GPT-2's pattern always splits between two kinds of bytes, bool (25,).

    The index of two kinds is 5 * (kind of the first byte) + (kind of the second byte).

    The pattern splits text into runs of letters, of digits and of signs. But contractions such as 's and 'll stay
    whole, so a cut between an apostrophe and a following letter is not safe.
    """
    table = np.zeros((KINDS_OF_BYTE, KINDS_OF_BYTE), bool)
    table[LETTER, [DIGIT, SIGN, QUOTE]] = True
    table[DIGIT, [LETTER, SIGN, QUOTE]] = True
    table[SIGN, [LETTER, DIGIT]] = True
    table[QUOTE, DIGIT] = True
    return table.ravel()


WORD_CLASSES, BYTE_KINDS, SEPARABLE = _word_classes(), _byte_kinds(), _separable()


def cuts_around_words(text: np.ndarray, bounds: np.ndarray, *, chinese_characters: bool) -> np.ndarray:
    """Cut after spaces and line feeds, and around punctuation and Chinese characters; return bool (B,), as a Cut.

    WordPiece always splits at these positions.
    """
    classes = WORD_CLASSES[text]
    cuts = classes >= STARTS
    cuts[1:] |= (classes[:-1] & ENDS).view(bool)
    if len(text) and text.max() >= 0x80:
        first = np.flatnonzero(_starts_of_single_characters(text, chinese_characters))
        cuts[first] = True
        cuts[(first + 3)[first + 3 < len(text)]] = True
    return cuts


def _starts_of_single_characters(text: np.ndarray, chinese_characters: bool) -> np.ndarray:
    """Return for each byte whether a three-byte character that is always a word of its own starts there, bool (B,).

    Such characters are U+2010 to U+2027 (dashes, quotes, ellipses) and, if `chinese_characters`, U+4E00 to U+9FFF.
    """
    starts = np.zeros(len(text), bool)
    first, second, third = text[:-2], text[1:-1], text[2:]
    starts[:-2] = (first == 0xE2) & (second == 0x80) & (third >= 0x90) & (third <= 0xA7)
    if chinese_characters:
        starts[:-2] |= (first >= 0xE5) & (first <= 0xE9) | (first == 0xE4) & (second >= 0xB8)
    return starts


def cuts_of_bytes(text: np.ndarray, bounds: np.ndarray, *, normalized: bool) -> np.ndarray:
    """Cut where GPT-2's pattern always splits: before spaces, and between ASCII letters, digits and signs (SEPARABLE).

    There is no cut before a space that is followed by white space or ends its sentence. If the tokenizer normalises the
    text first (`normalized`), there is a cut before a space only between two printable ASCII characters, because
    normalisation may remove other characters around a space. Return bool (B,), as a Cut.
    """
    cuts = cuts_at_plain_spaces(text, bounds) if normalized else _cuts_before_words(text, bounds)
    kinds = BYTE_KINDS[text]
    cuts[1:] |= SEPARABLE[kinds[:-1] * KINDS_OF_BYTE + kinds[1:]]
    return cuts


def _cuts_before_words(text: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Cut before each space whose next character in the same sentence is not white space, bool (B,)."""
    cuts = text == SPACE
    cuts[bounds[1:][bounds[1:] > bounds[:-1]] - 1] = False  # a space that ends its sentence has no next character
    spaces = np.flatnonzero(cuts)
    cuts[spaces] = ~_is_white_space(text, spaces + 1)
    return cuts


def _is_white_space(text: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return whether white space (or a control below U+0020) starts at each of these bytes, bool (len(offsets),)."""
    white = text[offsets] <= SPACE
    not_ascii = np.flatnonzero(text[offsets] >= 0x80)
    # mode="clip" because a character of two bytes at the end of the text has no third byte.
    first, second, third = (np.take(text, offsets[not_ascii] + shift, mode="clip") for shift in range(3))
    of_e2 = (second == 0x80) & ((third <= 0x8A) | np.isin(third, (0xA8, 0xA9, 0xAF))) | (second == 0x81) & (
        third == 0x9F
    )
    white[not_ascii] = (
        (first == 0xC2) & ((second == 0x85) | (second == 0xA0))
        | (first == 0xE1) & (second == 0x9A) & (third == 0x80)
        | (first == 0xE2) & of_e2
        | (first == 0xE3) & (second == 0x80) & (third == 0x80)
    )
    return white


def cuts_at_plain_spaces(text: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Cut before each space between two printable ASCII characters; return bool (B,), as a Cut.

    Next to other characters a cut is not safe, because normalisation may change the text on both sides of the space
    together. For example, NFKD and the removal of accents leave runs of spaces.
    """
    cuts = np.zeros(len(text), bool)
    plain = BYTE_KINDS[text] != OTHER
    cuts[1:-1] = (text[1:-1] == SPACE) & plain[:-2] & plain[2:]
    return cuts


PASSED_BY = frozenset({"NFC", "NFD", "NFKC", "NFKD", "Nmt", "StripAccents", "Lowercase", "Precompiled"})
"""Normalizers that keep a space between two printable ASCII characters, and change no text across such a space."""


def _keeps_plain_spaces(normalizer: dict[str, Any]) -> bool:
    """Whether a normalizer, given as JSON of a tokenizer.json, gives the same result on text cut at plain spaces."""
    if normalizer["type"] == "BertNormalizer":
        return not normalizer["clean_text"] and not normalizer["handle_chinese_chars"]
    if normalizer["type"] == "Replace":
        pattern = normalizer["pattern"]
        return pattern == {"Regex": " {2,}"} or ("String" in pattern and " " not in pattern["String"])
    return normalizer["type"] in PASSED_BY


def _of_wordpiece(vocabulary: Vocabulary, normalizers: list, splitters: list) -> Cut:
    return partial(cuts_around_words, chinese_characters=vocabulary.chinese_characters)


def _of_bytes(vocabulary: Vocabulary, normalizers: list, splitters: list) -> Cut | None:
    usual = len(splitters) == 1 and splitters[0]["type"] == "ByteLevel" and splitters[0].get("use_regex", True)
    # A Replace normalizer may match text on both sides of a cut, for example "n't".
    kept = all(part["type"] != "Replace" and _keeps_plain_spaces(part) for part in normalizers)
    if not usual or not kept:
        return None
    return partial(cuts_of_bytes, normalized=bool(normalizers))


def _of_unigram(vocabulary: Vocabulary, normalizers: list, splitters: list) -> Cut | None:
    types = [part["type"] for part in splitters]
    always = splitters[-1].get("prepend_scheme", "always") == "always" and splitters[-1].get("split", True)
    if types not in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]) or not always:
        return None
    # Strip may remove a chunk's first space without harm, because the tokenizer puts a space before every text.
    kept = all(part["type"] == "Strip" or _keeps_plain_spaces(part) for part in normalizers)
    return cuts_at_plain_spaces if kept else None


CUTS: dict[str, Callable[[Vocabulary, list, list], Cut | None]] = {
    "wordpiece": _of_wordpiece,
    "byte-bpe": _of_bytes,
    "unigram": _of_unigram,
}
"""Kind of vocabulary -> function of (vocabulary, normalizers, splitters) that returns a Cut or None, as cut_of does."""


def cut_of(vocabulary: Vocabulary) -> Cut | None:
    """Return the function that marks where text may be cut for this vocabulary.

    Return None if the tokenizer has a normalizer or splitter for which no cut is known to be safe.
    """
    whole = json.loads(vocabulary.model) if vocabulary.model else {"normalizer": None, "pre_tokenizer": None}
    return CUTS[vocabulary.kind](vocabulary, parts_of(whole["normalizer"]), parts_of(whole["pre_tokenizer"]))
