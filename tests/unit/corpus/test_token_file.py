import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.batch import collate
from pipeline.config.data import FullSentences, NextSentence, NgramMasking, Sampling, SentenceOrder, SingleSegment
from pipeline.config.training import Batch
from pipeline.corpus import token_file, token_file_saving
from pipeline.corpus.prepared import Corpus
from pipeline.corpus.stream import StreamSettings, window_rows
from pipeline.corpus.token_file_saving import save_tokens
from pipeline.errors import ConfigError, DataError
from pipeline.evaluation.evaluate import UNIGRAM_CHARACTERS
from pipeline.evaluation.heldout import unigram_counts
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.slots import CURSOR
from tests.unit.test_batch import assert_equal


@pytest.fixture
def written(tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tmp_path: Path) -> str:
    location = str(tmp_path / "tokens.npz")
    tokens = save_tokens(location, tiny_corpus, CachedTokenizer(tiny_vocabulary), words=8)
    assert tokens == sum(len(window.tokens) for window in token_file.read(location).train)
    return location


@pytest.mark.parametrize("copies", [None, 2])
@pytest.mark.parametrize("pairs", [NextSentence(), SentenceOrder(), FullSentences(), SingleSegment()])
def test_the_rows_are_those_of_the_stream(
    pairs: NextSentence, copies: int | None, written: str, tiny_corpus: Corpus, tiny_vocabulary: Vocabulary
) -> None:
    """In three epochs, with n-gram masks, and with two copies in turn."""
    sampling = Sampling(maximum_length=32, pairs=pairs, masking=NgramMasking(), copies=copies)
    settings = StreamSettings(corpus=tiny_corpus, vocabulary=tiny_vocabulary, sampling=sampling, batch=Batch(), seed=7)
    tokens, tokenizer = token_file.read(written), CachedTokenizer(tiny_vocabulary)
    for number in range(3 * len(tiny_corpus.train)):
        rows = window_rows(settings, tokenizer, tiny_corpus.train, *divmod(number, len(tiny_corpus.train)))
        ours = token_file.rows_of_window(tokens, sampling, 7, number)
        assert ours.num_rows == rows.num_rows > 0
        assert_equal(collate(ours), collate(rows))
        assert ours.cursors is not None and [tuple(cursor) for cursor in ours.cursors.tolist()] == [
            tuple(row[name] for name in CURSOR) for row in rows.select(CURSOR).to_pylist()
        ]


def test_the_file_holds_the_vocabulary_counts_and_words(
    written: str, tiny_corpus: Corpus, tiny_vocabulary: Vocabulary
) -> None:
    tokens, tokenizer = token_file.read(written), CachedTokenizer(tiny_vocabulary)
    assert tokens.vocabulary == tiny_vocabulary and tokens.corpus == tiny_corpus.fingerprint
    assert tokens.words is not None and tokens.words.shape == (tiny_vocabulary.size, 8) and tokens.words.any()
    counts = unigram_counts(tiny_corpus, tokenizer, tiny_vocabulary.size)
    assert np.array_equal(token_file.unigram_counts_of_tokens(tokens, UNIGRAM_CHARACTERS), counts)
    first = replace(tiny_corpus, train=tiny_corpus.train[:1])
    alone = unigram_counts(first, tokenizer, tiny_vocabulary.size)
    assert np.array_equal(token_file.unigram_counts_of_tokens(tokens, 1), alone) and alone.sum() < counts.sum()


def test_the_first_windows_alone(tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tmp_path: Path) -> None:
    location = str(tmp_path / "tokens.npz")
    save_tokens(location, tiny_corpus, CachedTokenizer(tiny_vocabulary), windows=2)
    tokens = token_file.read(location)
    assert len(tokens.train) == 2 and tokens.words is None
    assert tokens.characters == tuple(window.characters for window in tiny_corpus.train[:2])


def test_the_heldout_windows_of_an_evaluation_alone(
    tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_file_saving, "EVALUATED_WINDOWS", 1)
    save_tokens(str(tmp_path / "tokens.npz"), tiny_corpus, CachedTokenizer(tiny_vocabulary))
    tokens = token_file.read(str(tmp_path / "tokens.npz"))
    assert len(tokens.heldout) == len(tokens.heldout_words) == 1 < len(tiny_corpus.heldout)


@pytest.mark.parametrize(
    ("sources", "problem"),
    [
        ({"a": {"weight": 2.0, "languages": {"en": 1}}}, "a has a weight"),
        ({"a": {"weight": 1.0, "languages": {"en": 1, "de": 1}}}, "has de, en"),
    ],
)
def test_weights_and_several_languages_are_refused(
    sources: Mapping[str, Any], problem: str, tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=problem):
        save_tokens(
            str(tmp_path / "t.npz"), replace(tiny_corpus, sources=dict(sources)), CachedTokenizer(tiny_vocabulary)
        )


def test_other_files_are_refused_in_one_line(written: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    content = Path(written).read_bytes()
    np.savez(tmp_path / "array.npz", tokens=np.arange(3))
    for made in (b"", b"text", content[: len(content) // 2], (tmp_path / "array.npz").read_bytes()):
        other.write_bytes(made)
        with pytest.raises(DataError, match="is not a file of tokens") as refused:
            token_file.read(str(other))
        assert "\n" not in str(refused.value)
    with pytest.raises(DataError, match="is not a file of tokens"):
        token_file.read(str(tmp_path / "missing.npz"))
    with np.load(written) as file:
        arrays = dict(file)
    arrays["train_sentence_tokens"] = arrays["train_sentence_tokens"][1:]
    np.savez(tmp_path / "shorter.npz", **arrays)
    with pytest.raises(DataError, match="do not fit together"):
        token_file.read(str(tmp_path / "shorter.npz"))
    with np.load(written) as file:
        arrays = dict(file)
    about = json.loads(arrays["about"].tobytes())
    for changed in (about | {"vocabulary": {"unknown": 1}}, {"version": about["version"]}):
        arrays["about"] = np.frombuffer(json.dumps(changed).encode(), np.uint8)
        np.savez(tmp_path / "changed.npz", **arrays)
        with pytest.raises(DataError, match="is not a file of tokens"):
            token_file.read(str(tmp_path / "changed.npz"))
