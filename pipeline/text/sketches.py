"""Sketches of texts for near-duplicate detection: samples of the hashes of their word sequences.

A sketch is a FracMinHash (the "mod m" sketch of Broder 1997): all hashes of a text that are below a bound. The sketches
of two texts show which share of text X is contained in text Y, even if Y is much longer. The estimate uses the hashes
below both bounds.

We use no MinHash library, because such libraries estimate Jaccard similarity. For a book and an excerpt of a twentieth
of its text, this similarity is 0.05, although the whole excerpt is in the book.
"""

import numpy as np

from pipeline.text.cuts import NEW_LINE, SPACE, WORD_CLASSES, cuts_around_words

SHINGLE_WORDS = 8
"""Words per sequence; two texts rarely have the same eight words in a row by chance."""
LEAST_HASHES = 16
"""A sketch keeps at least about this many hashes of a text, or all hashes if the text has fewer.

If a text has at least eight times this many hashes, its sketch keeps about an eighth of the hashes.
"""
MOST_HALVINGS = 3
"""The bound of a sketch is halved at most three times, so at least an eighth of the hashes stays."""
COMMON = 1 << (64 - MOST_HALVINGS)
"""Hashes below this bound are in the sketch of every text that contains them."""
CASING_SAMPLE = 2_000
"""Approximate number of characters, spread over a text, that determine its casing."""
LARGEST = 11
"""Largest size class: texts with 2^10 hashes or more, such as pieces of long documents."""
BASE = 0x9E3779B97F4A7C15
INVERSE = pow(BASE, -1, 1 << 64)


def shingle_hashes(text: str) -> np.ndarray:
    """Return the distinct hashes of all eight-word sequences of a text, uint64, sorted.

    The result is empty for a text of fewer than eight words. Case, punctuation and white space are ignored; every
    Chinese character is a word.
    """
    return np.unique(shingles(hash_words(np.frombuffer(normalized(text), np.uint8))))


def normalized(text: str) -> bytes:
    """Return a text as texts are compared: in lower case, as UTF-8. `word_spans` finds its words."""
    return text.lower().encode(errors="replace")


def sample_hashes(hashes: np.ndarray) -> np.ndarray:
    """Return those hashes of a text that are in its sketch; `hashes` is a result of shingle_hashes."""
    halvings = min(MOST_HALVINGS, max(0, (len(hashes) // LEAST_HASHES).bit_length() - 1))
    return hashes[hashes <= np.uint64((1 << (64 - halvings)) - 1)]


def size_class(hashes: np.ndarray) -> int:
    """Return the size class of a text, 0 to LARGEST: the bit length of its number of hashes."""
    return min(len(hashes).bit_length(), LARGEST)


def casing(text: str) -> int:
    """Return 0 for text mostly in capitals, 1 for text without capitals, 2 for other text and scripts without case."""
    sample = text[:: max(1, len(text) // CASING_SAMPLE)]
    capitals, small = sum(map(str.isupper, sample)), sum(map(str.islower, sample))
    if capitals > small:
        return 0
    return 1 if small and not capitals else 2


def shingles(words: np.ndarray) -> np.ndarray:
    """Hash each sequence of eight word hashes, uint64 (len(words) - 7,); empty for fewer than eight words."""
    count = max(0, len(words) - SHINGLE_WORDS + 1)
    total = np.zeros(count, np.uint64)
    for index in range(SHINGLE_WORDS):
        total = total * np.uint64(BASE) + words[index : index + count]
    return mix_bits(total)


def hash_words(text: np.ndarray) -> np.ndarray:
    """Return the hash of each word of a UTF-8 text (its bytes, uint8), uint64."""
    return hash_spans(text, *word_spans(text))


def word_spans(text: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the offsets where the words of a UTF-8 text (its bytes, uint8) start and stop, int64 (words,) each."""
    cuts = cuts_around_words(text, np.array([0, len(text)]), chinese_characters=True)
    cuts[:1] = True
    edges = np.append(np.flatnonzero(cuts), len(text))
    starts, ends = edges[:-1], edges[1:]
    stops = ends - np.isin(text[ends - 1], (SPACE, NEW_LINE))
    full = stops > starts
    starts, stops = starts[full], stops[full]
    # A part is no word if it begins with ASCII punctuation, or with a character from U+2000 to U+203F (bytes E2 80).
    is_word = (WORD_CLASSES[text[starts]] == 0) & ~(
        (text[starts] == 0xE2) & (text[np.minimum(starts + 1, len(text) - 1)] == 0x80)
    )
    return starts[is_word], stops[is_word]


def hash_spans(text: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Return the hash of each word of a text, uint64 (words,); the offsets are those of `word_spans`."""
    # The hash of a word is a polynomial in its bytes, modulo 2^64: a difference of prefix sums. The powers of INVERSE
    # make the hash independent of the word's position in the text.
    sums = np.zeros(len(text) + 1, np.uint64)
    np.cumsum((text.astype(np.uint64) + np.uint64(1)) * powers(BASE, len(text)), out=sums[1:])
    return mix_bits((sums[stops] - sums[starts]) * powers(INVERSE, len(text) + 1)[starts])


def powers(base: int, count: int) -> np.ndarray:
    """Return base^0, base^1, … modulo 2^64, uint64 (count,)."""
    factors = np.full(count, base, np.uint64)
    factors[:1] = 1
    return np.multiply.accumulate(factors)


def mix_bits(values: np.ndarray) -> np.ndarray:
    """Mix the bits of each number (the finaliser of splitmix64), uint64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
