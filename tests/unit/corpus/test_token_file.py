import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest

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

ROOT = Path(__file__).parents[3]


@pytest.fixture
def written(tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tmp_path: Path) -> str:
    location = str(tmp_path / "tokens.arrow")
    tokens = save_tokens(location, tiny_corpus, CachedTokenizer(tiny_vocabulary), words=8)
    file = token_file.read(location)
    assert tokens == sum(len(file.encoded_window(window).tokens) for window in file.train)
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
        assert ours.equals(rows) and ours.num_rows > 0


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
    location = str(tmp_path / "tokens.arrow")
    save_tokens(location, tiny_corpus, CachedTokenizer(tiny_vocabulary), windows=2)
    tokens = token_file.read(location)
    assert len(tokens.train) == 2 and tokens.words is None
    assert tokens.characters == tuple(window.characters for window in tiny_corpus.train[:2])


def test_the_heldout_windows_of_an_evaluation_alone(
    tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_file_saving, "EVALUATED_WINDOWS", 1)
    save_tokens(str(tmp_path / "tokens.arrow"), tiny_corpus, CachedTokenizer(tiny_vocabulary))
    tokens = token_file.read(str(tmp_path / "tokens.arrow"))
    assert len(tokens.heldout) == 1 < len(tiny_corpus.heldout)


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
            str(tmp_path / "t.arrow"), replace(tiny_corpus, sources=dict(sources)), CachedTokenizer(tiny_vocabulary)
        )


def test_the_file_is_mapped_into_memory(written: str) -> None:
    tokens = token_file.read(written)
    assert written in {mapped.path for mapped in psutil.Process().memory_maps()}
    assert tokens.train[0]["sentences"].values.values.type == pa.uint16()


def test_rows_are_made_without_pandas(written: str) -> None:
    """Each process that makes rows would take half a second longer to start."""
    code = (
        "import sys\nfrom pipeline.config.data import NextSentence, Sampling\nfrom pipeline.corpus import token_file\n"
        f"tokens = token_file.read({written!r})\n"
        "rows = token_file.rows_of_window(tokens, Sampling(maximum_length=32, pairs=NextSentence()), 0, 0)\n"
        "print(rows.num_rows > 0, 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"


def test_other_files_are_refused_in_one_line(written: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    content = Path(written).read_bytes()
    np.savez(tmp_path / "tokens.npz", tokens=np.arange(3))  # as earlier versions wrote
    for made in (b"", b"text", content[: len(content) // 2], (tmp_path / "tokens.npz").read_bytes()):
        other.write_bytes(made)
        with pytest.raises(DataError, match="is not a file of tokens .*: write one with `python jobs/bench.py tokens`"):
            token_file.read(str(other))
    with pytest.raises(DataError, match="is not a file of tokens"):
        token_file.read(str(tmp_path / "missing.arrow"))
    with pa.ipc.open_file(written) as file:
        batches, about = file.read_all().to_batches(), json.loads(file.schema.metadata[token_file.ABOUT])
    for changed, problem in (
        ({}, "is not a file of tokens"),
        (about | {"vocabulary": {"unknown": 1}}, "is not a file of tokens"),
        (about | {"version": 2}, "has version 2, and this program reads 3: write it again with"),
    ):
        schema = batches[0].schema.with_metadata({token_file.ABOUT: json.dumps(changed)})
        with pa.ipc.new_file(str(other), schema) as file:
            for batch in batches:
                file.write_batch(batch)
        with pytest.raises(DataError, match=problem) as refused:
            token_file.read(str(other))
        assert "\n" not in str(refused.value)


def test_a_damaged_window_is_refused_in_one_line(written: str, tiny_vocabulary: Vocabulary, tmp_path: Path) -> None:
    """Without the check, wrong offsets would read other memory."""
    content = bytearray(Path(written).read_bytes())
    window = token_file.read(written).train[0]
    offsets, tokens = (bytes(window["sentences"].values.buffers()[number]) for number in (1, 3))
    for part, number, problem in ((offsets, "<i4", "Negative|Offset"), (tokens, "<u2", "a token is not in the vocab")):
        damaged = bytearray(content)
        where = damaged.index(part) + 8
        damaged[where : where + np.dtype(number).itemsize] = np.array([tiny_vocabulary.size * 200], number).tobytes()
        (tmp_path / "damaged.arrow").write_bytes(damaged)
        file = token_file.read(str(tmp_path / "damaged.arrow"))
        with pytest.raises(DataError, match=f"damaged.arrow is damaged .*({problem}).*: write it again") as refused:
            file.encoded_window(file.train[0])
        assert "\n" not in str(refused.value)
