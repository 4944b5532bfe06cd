"""Occurrences of each document in an epoch: the weight of its source, times the factor of its language."""

import hashlib
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from pipeline.corpus.prepared import Corpus, Window, read_window
from pipeline.errors import DataError

NO_FACTORS: Mapping[str, float] = {}


def documents_of_epoch(corpus: Corpus, window: Window, language_exponent: float, epoch: int) -> pa.Table:
    """Return the documents of a window, repeated as often as the epoch shows each of them (schema DOCUMENT)."""
    factors = language_factors(corpus, language_exponent)
    return repeat_by_weight(read_window(corpus, window), corpus.weights, epoch, factors)


def language_factors(corpus: Corpus, exponent: float) -> Mapping[str, float]:
    """Return {language: factor of the weights of its documents}; empty if `exponent` is 1.

    A language with the share p of the text gets the share p ** exponent / (sum over all languages) of an epoch. So its
    factor is p ** (exponent - 1) / (that sum), and an epoch has as much text as before (Conneau & Lample 2019, 3.1).
    """
    if exponent == 1:
        return NO_FACTORS
    text = text_by_language(corpus)
    shares = {language: length / sum(text.values()) for language, length in text.items() if length}
    total = sum(share**exponent for share in shares.values())
    return {language: share ** (exponent - 1) / total for language, share in shares.items()}


def text_by_language(corpus: Corpus) -> dict[str, float]:
    """Return {language: length of its training text}, in the order of the codes; a source counts by its weight.

    The length is in characters; a Chinese character, kana or Hangul syllable counts as three. Raises DataError for a
    corpus without these lengths.
    """
    text: Counter[str] = Counter()
    for location, about in corpus.sources.items():
        if "languages" not in about:
            raise DataError(
                f"{corpus.folder} does not state how much text of {location} each language has, because an earlier "
                "version prepared the corpus: prepare it again in another folder, or leave out "
                "sampling.language_exponent"
            )
        for language, length in about["languages"].items():
            text[language] += length * about["weight"]
    return dict(sorted(text.items()))


def repeat_by_weight(
    documents: pa.Table, weights: dict[str, float], epoch: int, factors: Mapping[str, float] = NO_FACTORS
) -> pa.Table:
    """Repeat each document as often as its weight says; the copies follow after all documents.

    A document's weight is that of its source, times the factor of its language. The fraction of a weight is the
    probability of one more copy, decided by a hash of the document and the epoch.
    """
    if all(weight == 1 for weight in weights.values()) and all(factor == 1 for factor in factors.values()):
        return documents
    languages = documents["language"].to_pylist() if factors else [None] * documents.num_rows
    identities = zip(documents["source"].to_pylist(), languages, documents["id"].to_pylist(), strict=True)
    times = np.array(
        [int(weights[source] * factors.get(language, 1.0) + uniform(id, epoch)) for source, language, id in identities],
        np.int64,
    )
    # Copies must not be next to each other: in one sequence, a copy would show the tokens that are masked in the other.
    rounds = [np.flatnonzero(times > copies) for copies in range(times.max(initial=0))]
    return documents.take(np.concatenate([np.zeros(0, np.int64), *rounds]))


def uniform(id: str, epoch: int) -> float:
    """Return a hash of a document and an epoch as a number in [0, 1)."""
    return int.from_bytes(hashlib.blake2b(f"{epoch}:{id}".encode(), digest_size=6).digest(), "big") / 2**48
