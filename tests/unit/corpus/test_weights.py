"""Weights of documents by source and by language, and the shares of languages that they give."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config.data import FullSentences, NextSentence, Sampling
from pipeline.config.training import Batch
from pipeline.corpus.counts import texts_of
from pipeline.corpus.order import WindowRange, permutation
from pipeline.corpus.prepared import Corpus, Window, read_window
from pipeline.corpus.shards import text_by_language as lengths_of_table
from pipeline.corpus.stream import StreamSettings, documents_of_window, rows_of_range
from pipeline.corpus.weights import (
    documents_of_epoch,
    language_factors,
    repeat_by_language,
    text_by_language,
    tokens_by_language,
)
from pipeline.errors import DataError
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.schema import DOCUMENT
from pipeline.text.training import train_vocabulary
from pipeline.text.vocabulary import Vocabulary

PARTS = {"en": 35, "de": 13, "uk": 2}
"""Language -> documents per window; all documents have about the same length, so the shares are 0.70, 0.26 and 0.04."""
WORDS = {"en": "the rain in may", "de": "der wind im mai", "uk": "дощ і сніг у степу"}
WINDOWS = 10


def document(language: str, number: int) -> dict[str, object]:
    words = WORDS[language].split()
    sentences = [
        " ".join(words[(number + 3 * place + index * index) % len(words)] for index in range(9)) for place in range(50)
    ]
    text = ". ".join(sentence.capitalize() for sentence in sentences) + "."
    about = {"id": f"{language}{number}#0", "parent": f"{language}{number}", "title": "", "text": text}
    return about | {"source": language, "lines_are_sentences": False, "language": language}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Ten windows, each with documents of three languages; every language is a source."""
    folder = tmp_path_factory.mktemp("languages")
    windows, tables = [], []
    with pq.ParquetWriter(folder / "train.parquet", DOCUMENT) as writer:
        for index in range(WINDOWS):
            rows = [document(code, 100 * index + n) for code, documents in PARTS.items() for n in range(documents)]
            tables.append(pa.Table.from_pylist(rows, schema=DOCUMENT))
            writer.write_table(tables[-1])
            characters = sum(len(str(row["text"])) for row in rows)
            windows.append(Window(shard="train.parquet", row_group=index, documents=len(rows), characters=characters))
    lengths = lengths_of_table(pa.concat_tables(tables))
    return Corpus(
        folder=str(folder),
        fingerprint="0",
        train=tuple(windows),
        heldout=(),
        counts={},
        dropped={},
        sources={code: {"weight": 1.0, "languages": lengths[code]} for code in PARTS},
    )


@pytest.fixture(scope="module")
def vocabulary(corpus: Corpus) -> Vocabulary:
    return train_vocabulary(texts_of(corpus, corpus.train[:1]), size=120, lowercase=True)


def settings_of(corpus: Corpus, vocabulary: Vocabulary, **sampling: object) -> StreamSettings:
    made = Sampling(**{"maximum_length": 16, "pairs": FullSentences(), "mix_languages": False} | sampling)
    return StreamSettings(corpus=corpus, vocabulary=vocabulary, sampling=made, batch=Batch(), seed=3)


def languages_of_rows(settings: StreamSettings) -> Iterator[tuple[str, str]]:
    """The languages of the first and the last document of each row, epoch after epoch."""
    tokenizer, windows = CachedTokenizer(settings.vocabulary), settings.corpus.train
    for number in range(100 * len(windows)):
        epoch, position = divmod(number, len(windows))
        window = windows[int(permutation(settings.seed, epoch, len(windows))[position])]
        codes = documents_of_window(settings, window, epoch)["language"].to_pylist()
        for table in rows_of_range(settings, tokenizer, WindowRange(first=number, count=1)):
            for a, b in zip(table["document_a"].to_pylist(), table["document_b"].to_pylist(), strict=True):
                yield codes[a], codes[b]


def corpus_of(sources: dict[str, tuple[float, dict[str, int]]]) -> Corpus:
    about = {name: {"weight": weight, "languages": lengths} for name, (weight, lengths) in sources.items()}
    return Corpus(folder="/f", fingerprint="0", train=(), heldout=(), counts={}, dropped={}, sources=about)


def test_factors_by_hand() -> None:
    """Shares 0.64, 0.32 and 0.04 have the square roots 0.8, 0.5657 and 0.2, which add up to 1.5657."""
    text = text_by_language(corpus_of({"a": (1.0, {"de": 32, "en": 24}), "b": (2.0, {"en": 20, "uk": 2})}))
    assert text == {"de": 32, "en": 64, "uk": 4}
    factors = language_factors(text, 0.5)
    assert factors == pytest.approx({"de": 1.76777 / 1.56569, "en": 1.25 / 1.56569, "uk": 5 / 1.56569}, rel=1e-5)
    assert sum(share * factors[code] for code, share in (("de", 0.32), ("en", 0.64), ("uk", 0.04))) == pytest.approx(1)
    assert language_factors(text, 0.0) == pytest.approx({"de": 1 / 0.96, "en": 1 / 1.92, "uk": 1 / 0.12})
    assert language_factors({"en": 9.0}, 0.3) == {"en": 1}


def test_a_chinese_character_counts_as_three_letters() -> None:
    rows = [document("en", 0) | {"text": "abc d"}, document("en", 1) | {"text": "力加 a", "language": "zh"}]
    assert lengths_of_table(pa.Table.from_pylist(rows, schema=DOCUMENT)) == {"en": {"en": 5, "zh": 8}}


def test_a_corpus_without_lengths_is_refused() -> None:
    earlier = replace(corpus_of({}), sources={"books": {"weight": 1.0}})
    with pytest.raises(
        DataError,
        match=r"^/f does not state how much text of books each language has, because an earlier version prepared the "
        r"corpus: prepare it again in another folder \(or delete this one\), or set sampling.language_exponent to 1$",
    ):
        text_by_language(earlier)


def counted_languages(settings: StreamSettings, rows: int) -> Counter[str]:
    return Counter(first for first, _ in islice(languages_of_rows(settings), rows))


@pytest.mark.parametrize("exponent", [0.7, 0.3])
def test_shares_of_100_000_rows_are_the_unweighted_shares_to_a_power(
    corpus: Corpus, vocabulary: Vocabulary, exponent: float
) -> None:
    unweighted = counted_languages(settings_of(corpus, vocabulary), 20_000)
    powers = {code: (rows / 20_000) ** exponent for code, rows in unweighted.items()}
    counted = counted_languages(settings_of(corpus, vocabulary, language_exponent=exponent), 100_000)
    assert powers.keys() == PARTS.keys() and powers["uk"] < 0.1**exponent
    for code, power in powers.items():
        assert abs(counted[code] / 100_000 - power / sum(powers.values())) < 0.01, (code, counted)


def test_an_exponent_of_1_shows_every_document_once(corpus: Corpus, vocabulary: Vocabulary) -> None:
    window = corpus.train[0]
    once = documents_of_window(settings_of(corpus, vocabulary), window, 0)
    assert once == read_window(corpus, window) == documents_of_epoch(corpus, window, {}, 0)
    even = documents_of_window(settings_of(corpus, vocabulary, language_exponent=0.0), window, 0)
    counted = Counter(even["language"].to_pylist())
    assert counted.keys() == PARTS.keys() and max(counted.values()) - min(counted.values()) <= 2, counted


def test_documents_are_shown_as_often_as_their_weight_says(corpus: Corpus) -> None:
    documents = read_window(corpus, corpus.train[0])
    factors, weights = {"en": 0.3, "de": 2.0, "uk": 4.5}, {"en": 2.0, "de": 1.0, "uk": 1.0}
    shown = [repeat_by_language(documents, weights, factors, epoch) for epoch in range(400)]
    times: dict[str, list[int]] = {id: [] for id in documents["id"].to_pylist()}
    for table in shown:
        counted = Counter(table["id"].to_pylist())
        for id, counts in times.items():
            counts.append(counted[id])
    for id, counts in times.items():
        low, high, mean = {"en": (0, 1, 0.6), "de": (2, 2, 2.0), "uk": (4, 5, 4.5)}[id[:2]]
        assert (min(counts), max(counts)) == (low, high) and abs(sum(counts) / 400 - mean) < 0.1, id
    english = {Counter(table["language"].to_pylist())["en"] for table in shown}
    assert english <= {20, 21, 22}  # 21 of 35 documents; drawn one by one, it would be 21 +- 3
    assert shown[3] == repeat_by_language(documents, weights, factors, 3) != shown[4]
    ids = shown[0]["id"].to_pylist()
    assert all(first != second for first, second in zip(ids, ids[1:])), "no document is next to its copy"


def test_tokens_of_languages_are_estimated_from_the_first_windows(
    corpus: Corpus, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, exact = CachedTokenizer(vocabulary), Counter()
    for window in corpus.train:
        for code, text in zip(*(read_window(corpus, window)[name].to_pylist() for name in ("language", "text"))):
            exact[code] += len(tokenizer.encode([text])[0])
    assert tokens_by_language(corpus, tokenizer) == pytest.approx(exact)
    monkeypatch.setattr("pipeline.corpus.weights.SAMPLED", 1)
    unread = replace(corpus.train[1], shard="missing.parquet")
    sampled = tokens_by_language(replace(corpus, train=(corpus.train[0], unread)), tokenizer)
    assert sampled == pytest.approx(exact, rel=0.05)
    more = replace(corpus, sources=corpus.sources | {"x": {"weight": 1.0, "languages": {"th": 1_000}}})
    overall = sum(sampled.values()) / sum(text_by_language(corpus).values())
    assert tokens_by_language(more, tokenizer)["th"] == pytest.approx(1_000 * overall, rel=0.05)


def test_words_of_a_vocabulary_are_counted_in_the_same_shares(corpus: Corpus) -> None:
    assert list(texts_of(corpus, corpus.train)) == [
        text for window in corpus.train for text in read_window(corpus, window)["text"].to_pylist()
    ]
    factors = language_factors(text_by_language(corpus), 0.0)
    texts = list(texts_of(corpus, corpus.train, factors))
    sizes = Counter({code: sum(len(text) for text in texts if is_in(code, text)) for code in PARTS})
    assert all(abs(size / sizes.total() - 1 / 3) < 0.01 for size in sizes.values()), sizes


def is_in(language: str, text: str) -> bool:
    return text.split()[1].strip(".").lower() in WORDS[language].split() and (" in " in text) == (language == "en")


@pytest.mark.parametrize("pairs", [FullSentences(), NextSentence()], ids=["full sentences", "next sentence"])
def test_sequences_have_one_language_if_languages_do_not_mix(
    corpus: Corpus, vocabulary: Vocabulary, pairs: FullSentences | NextSentence
) -> None:
    for mix in (False, True):
        settings = settings_of(corpus, vocabulary, pairs=pairs, maximum_length=64, mix_languages=mix)
        rows = languages_of_rows(settings)
        found = list(islice(rows, 500))
        assert any(first != last for first, last in found) == mix
        assert {first for first, _ in found} == PARTS.keys()


def test_a_stream_of_weighted_languages_resumes_at_any_row(corpus: Corpus, vocabulary: Vocabulary) -> None:
    settings = settings_of(corpus, vocabulary, language_exponent=0.3, maximum_length=64)
    tokenizer = CachedTokenizer(vocabulary)
    whole = list(rows_of_range(settings, tokenizer, WindowRange(first=9, count=3)))
    assert [table.num_rows > 9 for table in whole] == [True] * 3
    for skip in (0, 1, whole[0].num_rows - 1):
        again = list(rows_of_range(settings, CachedTokenizer(vocabulary), WindowRange(first=9, count=3, skip=skip)))
        assert pa.concat_tables(again) == pa.concat_tables(whole).slice(skip)
