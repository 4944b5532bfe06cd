"""Vocabularies that are trained on a corpus or extended by its words, and the counts that they are made from."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config import data
from pipeline.config.data import VocabularySettings
from pipeline.corpus import counts as counting
from pipeline.corpus.counts import PARTITIONS, count_words, counting_tasks, sum_partition, texts_of, write_counts
from pipeline.corpus.prepared import Corpus, Window
from pipeline.corpus.vocabulary import (
    extended_vocabulary,
    first_windows,
    settings_of_training,
    sized_for,
    splitting_of,
    trained_vocabulary,
)
from pipeline.errors import ConfigError, DataError
from pipeline.files import storage
from pipeline.files.locks import locked_name
from pipeline.reporting import Report, no_op
from pipeline.text.extension import new_words
from pipeline.text.schema import DOCUMENT
from pipeline.text.splitting import Splitting
from pipeline.text.training import iterate_counts, train_vocabulary, word_counts
from pipeline.text.vocabulary import Vocabulary
from tests.in_process import IN_PROCESS, InProcessExecutor

UNCASED = Splitting(lowercase=True)
WINDOWS, DOCUMENTS = 12, 5


def blank(field: pa.Field) -> Any:
    return {pa.string(): "", pa.bool_(): False}.get(field.type, 0)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """12 windows of 5 documents whose words come at rates as in text, some with accents, capitals and Chinese
    characters.
    """
    random = np.random.default_rng(3)
    words = [
        f"{a}{b}{c}" for a in ("Ka", "lo", "mé", "ne", "力") for b in ("r", "nd", "") for c in ("ta", "su", "x1", ".")
    ]
    texts = [
        " ".join(words[i] for i in np.minimum(random.zipf(1.4, 80) - 1, len(words) - 1))
        for _ in range(WINDOWS * DOCUMENTS)
    ]
    folder, windows = tmp_path_factory.mktemp("counted"), []
    with pq.ParquetWriter(folder / "shard.parquet", DOCUMENT) as writer:
        for number in range(WINDOWS):
            group = texts[number * DOCUMENTS : (number + 1) * DOCUMENTS]
            rows = [{field.name: blank(field) for field in DOCUMENT} | {"text": text} for text in group]
            writer.write_table(pa.Table.from_pylist(rows, schema=DOCUMENT))
            windows.append(
                Window(shard="shard.parquet", row_group=number, documents=DOCUMENTS, characters=sum(map(len, group)))
            )
    return Corpus(
        folder=str(folder),
        fingerprint="0123456789abcdef",
        train=tuple(windows[:-1]),
        heldout=tuple(windows[-1:]),
        counts={},
        dropped={},
        sources={},
    )


def texts(corpus: Corpus) -> list[str]:
    return list(texts_of(corpus, corpus.train))


def train(settings: VocabularySettings, corpus: Corpus, output: Path, report: Report = no_op) -> Vocabulary:
    return trained_vocabulary(settings, corpus, str(output), report, executor=IN_PROCESS)


def extend(base: Vocabulary, words: int, corpus: Corpus, output: Path, report: Report = no_op) -> Vocabulary:
    settings = VocabularySettings(extend=words)
    return extended_vocabulary(base, settings, corpus, str(output), report, executor=IN_PROCESS)


@pytest.mark.parametrize("tasks", [1, 3, WINDOWS - 1])
def test_counts_are_those_of_the_whole_text_whatever_the_tasks_and_their_order(
    corpus: Corpus, tmp_path: Path, tasks: int
) -> None:
    characters = sum(window.characters for window in corpus.train)
    size = 1 if tasks == WINDOWS - 1 else characters // tasks
    assert len(counting_tasks(corpus.train, size)) == tasks
    lines: list[str] = []
    counts, other = (
        count_words(
            corpus,
            corpus.train,
            UNCASED,
            str(tmp_path / str(seed)),
            lines.append,
            executor=InProcessExecutor(seed=seed),
            task_characters=size,
        )
        for seed in (0, 1)
    )
    assert other == counts
    expected = word_counts(texts(corpus), UNCASED)
    assert dict(iterate_counts(counts.table)) == expected and expected["meta"] > 0 and expected["力"] > 0
    assert (counts.words, counts.distinct, counts.dropped) == (expected.total(), len(expected), 0)
    assert counts.characters == characters and lines[-1].startswith(
        "vocabulary: counting words: 11 of 11 windows, 0 M characters"
    )


def test_the_rarest_words_are_dropped_beyond_the_bound(corpus: Corpus, tmp_path: Path) -> None:
    expected = word_counts(texts(corpus), UNCASED)
    few = count_words(corpus, corpus.train, UNCASED, str(tmp_path), no_op, executor=IN_PROCESS, most_words=PARTITIONS)
    kept = dict(iterate_counts(few.table))
    assert len(kept) <= PARTITIONS and few.dropped == few.distinct - len(kept) == len(expected) - len(kept) > 0
    assert (
        kept.items() <= expected.items() and max(expected.values()) in kept.values() and few.words == expected.total()
    )


def test_partial_sums_are_added_up_before_they_fill_memory(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = counting_tasks(corpus.train, 1)
    files = [write_counts(task, corpus, UNCASED, str(tmp_path))["file"] for task in tasks]
    monkeypatch.setattr(counting, "COMBINED_ROWS", 3)
    sizes: list[int] = []
    real = counting.sum_by_word
    monkeypatch.setattr(counting, "sum_by_word", lambda tables: sizes.append(len(tables)) or real(tables))
    totals = [sum_partition(partition, files, str(tmp_path), 100)["words"] for partition in range(PARTITIONS)]
    assert sum(totals) == word_counts(texts(corpus), UNCASED).total() and len(sizes) > PARTITIONS


@pytest.mark.parametrize("kind", ["wordpiece", "byte-bpe", "unigram"])
def test_a_vocabulary_is_trained_once_and_is_that_of_one_process(corpus: Corpus, tmp_path: Path, kind: str) -> None:
    lowercase = kind == "wordpiece"  # said, because the corpus has accents, and is cased by default
    settings = VocabularySettings(kind=kind, size=300, unused=3, training_characters=None, lowercase=lowercase)
    lines: list[str] = []
    trained = train(settings, corpus, tmp_path, lines.append)
    assert trained == train_vocabulary(texts(corpus), kind=kind, size=300, lowercase=lowercase, unused=3)
    assert (
        lines[lowercase] == f"vocabulary: training 300 {'uncased' if lowercase else 'cased'} {kind} entries"
        and "learning from" in lines[lowercase + 2]
    )
    again: list[str] = []
    assert train(settings, corpus, tmp_path, again.append) == trained and again == []


def test_the_manifest_names_the_inputs_and_no_temporary_files_stay(corpus: Corpus, tmp_path: Path) -> None:
    settings = VocabularySettings(size=300, training_characters=None, lowercase=True)
    trained = train(settings, corpus, tmp_path)
    (folder,) = (tmp_path / "vocabularies").iterdir()
    assert folder.name.startswith("0123456789ab-wordpiece-300-")
    manifest = json.loads((folder / "manifest.json").read_text())
    counts = word_counts(texts(corpus), UNCASED)
    assert (
        manifest["corpus"] == corpus.fingerprint
        and manifest["settings"]["size"] == 300
        and manifest["settings"]["training_characters"] is None
    )
    assert manifest["counts"] == {
        "characters": sum(window.characters for window in corpus.train),
        "words": counts.total(),
        "distinct_words": len(counts),
        "dropped_words": 0,
        "entries": trained.size,
    }


def test_a_run_waits_for_the_vocabulary_that_another_run_trains(corpus: Corpus, tmp_path: Path) -> None:
    settings = VocabularySettings(size=300)
    trained = train(settings, corpus, tmp_path)
    (folder,) = (tmp_path / "vocabularies").iterdir()
    with ThreadPoolExecutor(max_workers=1) as other:
        with locked_name(str(folder)):
            waiting = other.submit(train, settings, corpus, tmp_path)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.2)
        assert waiting.result(timeout=60) == trained


def test_other_settings_are_another_folder(corpus: Corpus, tmp_path: Path) -> None:
    base = VocabularySettings(size=300, training_characters=None)
    for settings in (base, replace(base, unused=1)):
        train(settings, corpus, tmp_path)
    assert len([path for path in (tmp_path / "vocabularies").iterdir() if path.suffix == ""]) == 2


def test_every_setting_of_a_vocabulary_changes_its_folder() -> None:
    changes = [
        {},
        {"unused": 1},
        {"strip_accents": False},
        {"chinese_characters": False},
        {"training_characters": 1_000},
        {"lowercase": False},
        {"size": 200},
        {"kind": "unigram"},
    ]
    settings = [VocabularySettings(**changed) for changed in changes]
    assert len({json.dumps(settings_of_training(each, splitting_of(each))) for each in settings}) == len(changes)


def test_the_size_follows_from_the_text_and_what_the_text_does_not_give_is_said(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six characters are a word: 20 million words have 120 million characters."""
    automatic, lines = VocabularySettings(kind="byte-bpe", size="auto"), []
    sizes = [sized_for(automatic, characters).size for characters in (120_000_000, 120_000_006)]
    assert sizes == [8_192, 16_384]
    found = train(automatic, corpus, tmp_path, lines.append)
    assert found == train(replace(automatic, size=8_192), corpus, tmp_path)
    assert lines[0] == "vocabulary: training 8,192 cased byte-bpe entries" and 261 < found.size < 8_192
    assert lines[-1] == (
        f"note: vocabulary.size (8192) is more than the words of this text give, {found.size} entries: give more text, "
        f"or --vocabulary.size {found.size}"
    )
    lines.clear()
    train(VocabularySettings(kind="byte-bpe", size=270), corpus, tmp_path, lines.append)
    assert lines[-1].startswith("vocabulary: 270 entries in ")
    monkeypatch.setattr(data, "SIZES_BY_WORDS", ((20_000_000, 265),))
    train(VocabularySettings(kind="byte-bpe", size=271), corpus, tmp_path, lines.append)
    words = corpus.train_characters / 6
    assert lines[-1] == (
        f"note: vocabulary.size (271) is large for about {words:,.0f} words, which leave many entries rare: "
        "--vocabulary.size auto gives 265"
    )


def test_files_of_an_interrupted_training_are_ignored(corpus: Corpus, tmp_path: Path) -> None:
    settings = VocabularySettings(size=300)
    trained = train(settings, corpus, tmp_path)
    folder = next(path for path in (tmp_path / "vocabularies").iterdir() if path.suffix == "")
    (folder / "manifest.json").unlink()
    (folder / "vocab.txt").write_text("half")
    left = folder.with_name(f"{folder.name}.counts")
    left.mkdir()
    (left / "part-00000.arrow").write_bytes(b"half")
    assert train(settings, corpus, tmp_path) == trained and storage.damage(str(folder)) is None
    assert not left.exists()


def test_a_damaged_vocabulary_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    settings = VocabularySettings(size=300)
    train(settings, corpus, tmp_path)
    next((tmp_path / "vocabularies").glob("*/vocab.txt")).write_text("other")
    with pytest.raises(
        DataError,
        match=r"^vocabulary .* is damaged \(vocab.txt has 5 bytes.*delete this folder to train it again",
    ):
        train(settings, corpus, tmp_path)


def test_the_first_windows_reach_the_requested_characters(corpus: Corpus) -> None:
    first, second = (window.characters for window in corpus.train[:2])
    assert first_windows(corpus, first) == corpus.train[:1] and first_windows(corpus, first + 1) == corpus.train[:2]
    assert first_windows(corpus, first + second) == corpus.train[:2] and first_windows(corpus, None) == corpus.train


LETTERS = "kalomeéndrtsux1."
BY_LETTERS = Vocabulary(
    tokens=(
        "[PAD]",
        "[unused0]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *LETTERS,
        *(f"##{letter}" for letter in LETTERS),
    ),
    lowercase=True,
)


def test_a_vocabulary_is_extended_by_the_corpus_words_once(corpus: Corpus, tmp_path: Path) -> None:
    lines: list[str] = []
    longer = extend(BY_LETTERS, 3, corpus, tmp_path, lines.append)
    counted = word_counts(texts(corpus), UNCASED)
    words = new_words(counting.counts_table(counted), BY_LETTERS, 3)
    assert len(words) == 3 and min(counted[word] for word in words) >= 5
    assert (longer.tokens[1], longer.tokens[BY_LETTERS.size :]) == (words[0], (words[1], words[2]))
    assert (
        lines[-1]
        == f"vocabulary: 3 words of the corpus added, 2 of them after the {BY_LETTERS.size} existing entries: "
        f"{', '.join(words)}"
    )
    lines.clear()
    assert extend(BY_LETTERS, 3, corpus, tmp_path, lines.append) == longer and len(lines) == 1
    assert extend(BY_LETTERS, 1, corpus, tmp_path).size == BY_LETTERS.size
    next((tmp_path / "vocabularies").glob("*extended-3*/words.json")).write_text("[]")
    with pytest.raises(
        DataError, match=r"^vocabulary .* is damaged \(words.json has 2 bytes.*delete this folder to make it again"
    ):
        extend(BY_LETTERS, 3, corpus, tmp_path)


def test_other_kinds_are_not_extended(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"^vocabulary.extend \(3\) is for WordPiece vocabularies, but this vocabulary is unigram: leave "
        r"vocabulary.extend out$",
    ):
        extend(replace(BY_LETTERS, kind="unigram"), 3, corpus, tmp_path)
