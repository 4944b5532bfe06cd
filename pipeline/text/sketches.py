"""Sketches of texts for near-duplicate detection: samples of the hashes of their word sequences.

A sampled MinHash (Broder 1997's "mod m" sketch, FracMinHash): a hash is in the sketch if it is below a bound, so that
the share of one text contained in another can be estimated from the two sketches, also if one is a part of the other,
using the hashes that both could have.

Hand-written, as MinHash libraries estimate Jaccard similarity: 0.05 for a book and a twentieth of it, all of which is
in the book.
"""

import numpy as np

from pipeline.text.cuts import NEW_LINE, SPACE, WORD_CLASSES, cuts_around_words

SHINGLE_WORDS = 8
"""Sequences of eight words rarely occur in two texts by chance."""
LEAST_HASHES = 16
"""Hashes sampled from a short text, about; from a long text, an eighth of them."""
MOST_HALVINGS = 3
COMMON = 1 << (64 - MOST_HALVINGS)
"""Hashes below this are in the sketch of every text that contains them."""
CASING_SAMPLE = 2_000
"""Characters, spread over a text, from which its casing is determined."""
LARGEST = 11
"""Largest size class: 2^10 sequences or more, as in pieces of long documents."""
BASE = 0x9E3779B97F4A7C15
INVERSE = pow(BASE, -1, 1 << 64)


def shingle_hashes(text: str) -> np.ndarray:
    """Return the hashes of all eight-word sequences of a text, uint64, sorted and distinct; none below eight words.

    Case, punctuation and white space are ignored; every Chinese character is a word.
    """
    return np.unique(shingles(hash_words(np.frombuffer(text.lower().encode(), np.uint8))))


def sample_hashes(hashes: np.ndarray) -> np.ndarray:
    """Return the hashes of a text that are in its sketch."""
    halvings = min(MOST_HALVINGS, max(0, (len(hashes) // LEAST_HASHES).bit_length() - 1))
    return hashes[hashes <= np.uint64((1 << (64 - halvings)) - 1)]


def size_class(hashes: np.ndarray) -> int:
    """Return the size class of a text by the number of its sequences, 0 to LARGEST, in powers of two."""
    return min(len(hashes).bit_length(), LARGEST)


def casing(text: str) -> int:
    """Return 0 for text mostly in capitals, 1 for text without any, 2 for both or for a script without case."""
    sample = text[:: max(1, len(text) // CASING_SAMPLE)]
    capitals, small = sum(map(str.isupper, sample)), sum(map(str.islower, sample))
    if capitals > small:
        return 0
    return 1 if small and not capitals else 2


def shingles(words: np.ndarray) -> np.ndarray:
    """Hash each sequence of eight word hashes, uint64 (len - 7,)."""
    count = max(0, len(words) - SHINGLE_WORDS + 1)
    total = np.zeros(count, np.uint64)
    for index in range(SHINGLE_WORDS):
        total = total * np.uint64(BASE) + words[index : index + count]
    return _mix_bits(total)


def hash_words(text: np.ndarray) -> np.ndarray:
    """Hash each word of UTF-8 text (uint8), uint64."""
    cuts = cuts_around_words(text, np.array([0, len(text)]), chinese_characters=True)
    cuts[:1] = True
    edges = np.append(np.flatnonzero(cuts), len(text))
    starts, ends = edges[:-1], edges[1:]
    stops = ends - np.isin(text[ends - 1], (SPACE, NEW_LINE))
    full = stops > starts
    starts, stops = starts[full], stops[full]
    spoken = (WORD_CLASSES[text[starts]] == 0) & ~(
        (text[starts] == 0xE2) & (text[np.minimum(starts + 1, len(text) - 1)] == 0x80)
    )
    starts, stops = starts[spoken], stops[spoken]
    # A polynomial in the bytes, as a difference of prefix sums shifted to power zero; arithmetic is modulo 2^64.
    sums = np.zeros(len(text) + 1, np.uint64)
    np.cumsum((text.astype(np.uint64) + np.uint64(1)) * _powers(BASE, len(text)), out=sums[1:])
    return _mix_bits((sums[stops] - sums[starts]) * _powers(INVERSE, len(text) + 1)[starts])


def _powers(base: int, count: int) -> np.ndarray:
    """Return base^0, base^1, … modulo 2^64, uint64 (count,)."""
    factors = np.full(count, base, np.uint64)
    factors[:1] = 1
    return np.multiply.accumulate(factors)


def _mix_bits(values: np.ndarray) -> np.ndarray:
    """Mix the bits of each number (the finaliser of splitmix64), uint64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
