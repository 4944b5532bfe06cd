"""Occurrences of each document in an epoch: the weight of its source, times the factor of its language."""

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.corpus.prepared import Corpus, Window, read_window
from pipeline.errors import DataError
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.documents import length
from pipeline.text.examples import window_sentences

NO_FACTORS: Mapping[str, float] = {}
SAMPLED = 6_000_000
"""Length of the text sample, over all languages, that is used to measure each language's tokens per unit of length."""


def documents_of_epoch(corpus: Corpus, window: Window, factors: Mapping[str, float], epoch: int) -> pa.Table:
    """Return the documents of a window, each repeated as often as it occurs in the epoch (schema DOCUMENT)."""
    documents = read_window(corpus, window)
    if not factors:
        return repeat_by_weight(documents, corpus.weights, epoch)
    return repeat_by_language(documents, corpus.weights, factors, epoch)


def language_factors(text: Mapping[str, float], exponent: float) -> dict[str, float]:
    """Return {language: factor for the weights of its documents}. `text` is {language: amount of text}.

    Let p be the share of a language in the text, and S the sum of p ** exponent over all languages. The language gets
    the share p ** exponent / S of an epoch. So its factor is p ** (exponent - 1) / S, and an epoch has as much text as
    before (Conneau & Lample 2019, section 3.1).
    """
    shares = {language: amount / sum(text.values()) for language, amount in text.items() if amount}
    total = sum(share**exponent for share in shares.values())
    return {language: share ** (exponent - 1) / total for language, share in shares.items()}


def text_by_language(corpus: Corpus) -> dict[str, float]:
    """Return {language: length of its training text}, in the order of the language codes.

    Each source's lengths are multiplied by the source's weight. The length is in characters; a Chinese character, kana
    or Hangul syllable counts as three. Raises DataError for a corpus without these lengths.
    """
    text: Counter[str] = Counter()
    for location, about in corpus.sources.items():
        if "languages" not in about:
            raise DataError(
                f"{corpus.folder} does not state how much text of {location} each language has, because an earlier "
                "version prepared the corpus: prepare it again in another folder (or delete this "
                "one), or set sampling.language_exponent to 1"
            )
        for language, amount in about["languages"].items():
            text[language] += amount * about["weight"]
    return dict(sorted(text.items()))


def tokens_by_language(corpus: Corpus, tokenizer: CachedTokenizer) -> dict[str, float]:
    """Return {language: estimated tokens of its training text}.

    Each source's tokens are multiplied by the source's weight. The tokens per unit of length are measured for each
    language in the first windows, which are a random sample. A language that is not in the sample gets the mean of the
    whole sample.
    """
    text = text_by_language(corpus)
    tokens: Counter[str] = Counter()
    lengths: Counter[str] = Counter()
    for window in corpus.train:
        documents = read_window(corpus, window)
        sentences, offsets = window_sentences(documents, keep_spaces=tokenizer.vocabulary.keeps_spaces)
        ends = tokenizer.encode(sentences)[1][offsets]
        rows = zip(
            documents["language"].to_pylist(), documents["text"].to_pylist(), np.diff(ends).tolist(), strict=True
        )
        for language, document, count in rows:
            tokens[language] += count
            lengths[language] += length(document)
        if lengths.total() >= SAMPLED:
            break
    overall = tokens.total() / lengths.total()
    return {
        language: amount * (tokens[language] / lengths[language] if language in lengths else overall)
        for language, amount in text.items()
    }


def repeat_by_weight(documents: pa.Table, weights: dict[str, float], epoch: int) -> pa.Table:
    """Repeat each document according to the weight of its source; the copies follow after all documents.

    The fractional part of a weight is the probability of one more copy. A hash of document and epoch decides.
    """
    if all(weight == 1 for weight in weights.values()):
        return documents
    identities = zip(documents["source"].to_pylist(), documents["id"].to_pylist())
    return _repeat(documents, [int(weights[source] + uniform(id, epoch)) for source, id in identities])


def repeat_by_language(
    documents: pa.Table, weights: dict[str, float], factors: Mapping[str, float], epoch: int
) -> pa.Table:
    """Repeat each document. Its number of occurrences is its source's weight multiplied by its language's factor.

    This number is rounded up or down. The documents of a language are taken in the order of hashes of document and
    epoch. Each number is rounded so that the total length of text so far is as close as possible to the total with
    unrounded numbers. With independent rounding, the shares of languages would be wrong by about one percentage point
    over 100,000 rows.
    """
    languages, sources, ids = (documents[name].to_pylist() for name in ("language", "source", "id"))
    lengths = pc.utf8_length(documents["text"]).to_pylist()
    rows = [
        (language, uniform(id, epoch), index, factors.get(language, 1.0) * weights[source])
        for index, (language, source, id) in enumerate(zip(languages, sources, ids, strict=True))
    ]
    times, missing, last = [0] * len(rows), 0.0, None
    for language, _, index, weight in sorted(rows):
        if language != last:
            # With a random start, even the only document of a language occurs, on average, as often as its weight says.
            missing, last = (uniform(f"start {ids[index]}", epoch) - 0.5) * lengths[index], language
        wanted = weight * lengths[index] + missing
        times[index] = min(max(math.floor(wanted / lengths[index] + 0.5), math.floor(weight)), math.ceil(weight))
        missing = wanted - times[index] * lengths[index]
    return _repeat(documents, times)


def _repeat(documents: pa.Table, times: Sequence[int]) -> pa.Table:
    """Repeat each document as often as `times` says."""
    # Copies must not be next to each other: in one sequence, a copy would show the tokens that are masked in the other.
    rounds = [np.flatnonzero(np.array(times) > copies) for copies in range(max(times, default=0))]
    return documents.take(np.concatenate([np.zeros(0, np.int64), *rounds]))


def uniform(id: str, epoch: int) -> float:
    """Return a hash of a document and an epoch as a number in [0, 1)."""
    return int.from_bytes(hashlib.blake2b(f"{epoch}:{id}".encode(), digest_size=6).digest(), "big") / 2**48
