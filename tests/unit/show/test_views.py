"""What jobs/show.py prints of a corpus of 30 made-up training documents in five windows."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.show import main
from pipeline.corpus.prepare import Corpus, read_window
from pipeline.show.views import labels
from pipeline.text.vocabulary import Vocabulary, save_vocabulary


@pytest.fixture
def folder(tiny_corpus: Corpus) -> str:
    """The corpus with a manifest as preparation writes it."""
    train, heldout = (sum(window.characters for window in split) for split in (tiny_corpus.train, tiny_corpus.heldout))
    counts = {"files": 3, "documents": 42, "pieces": 42, "characters": train + heldout, "heldout_characters": heldout}
    windows = {split: [list(vars(window).values()) for window in getattr(tiny_corpus, split)] for split in ("train", "heldout")}
    about = {
        "fingerprint": tiny_corpus.fingerprint,
        "counts": counts | {"windows": 7, "heldout_windows": 2},
        "dropped": {"too short": 2, "duplicate": 1},
        "samples": {"too short": [["made up:7", "Too short."], ["made up:8", "Also."]], "duplicate": [["made up:9", "Kar lond."]]},
        "sources": {"made up": counts | {"weight": 2.0, "format": None, "column": None, "language": None, "dropped": {"too short": 2, "duplicate": 1}}},
    }
    Path(tiny_corpus.folder, "manifest.json").write_text(json.dumps(windows | about))
    return tiny_corpus.folder


@pytest.fixture
def vocabulary(tiny_vocabulary: Vocabulary, tmp_path: Path) -> list[str]:
    save_vocabulary(tiny_vocabulary, tmp_path / "vocabulary", 32)
    return ["--vocabulary.path", str(tmp_path / "vocabulary")]


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(arguments) == 0
    return capsys.readouterr().out.splitlines()


def test_documents_sentence_by_sentence(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, "documents", folder, "--number", "2", "--sentences", "3", "--window", "1")
    text = "\n".join(lines)
    assert "6#0" in text and "7#0" in text and "8#0" not in text and "made up" in text
    assert "Lor" in text and "6 more" in text  # of nine sentences


def test_what_was_dropped_with_samples(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join(shown(capsys, "dropped", folder))
    assert all(part in text for part in ("too short", "2", "duplicate", "made up:8", "Also."))


def test_statistics_and_their_picture(
    tiny_corpus: Corpus, folder: str, vocabulary: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "statistics.svg"
    text = "\n".join(shown(capsys, "statistics", folder, "--windows", "5", "--picture", str(picture), *vocabulary))
    assert "a sample of 5 of 5 training windows" in text and "dropped: too short" in text
    words = sum(len(row.split()) for window in tiny_corpus.train for row in read_window(tiny_corpus, window)["text"].to_pylist())
    assert f"sentences, {words:,} words in the whole training set" in text
    assert picture.read_text().count("<svg") == 1


def test_examples_with_their_documents_and_labels(folder: str, vocabulary: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("examples", folder, "--number", "2", "--sampling.maximum-length", "32", *vocabulary)
    first, *lines = shown(capsys, *arguments)
    assert "examples in window 0 of epoch 0" in first and "% NotNext; masked positions" in first
    assert sum("[CLS]" in line for line in lines) == 2 and sum("from made up" in line for line in lines) >= 2
    first, *_ = shown(capsys, *arguments, "sampling.pairs:sentence-order")
    assert "% swapped; masked" in first and "NotNext" not in first
    first, *_ = shown(capsys, *arguments, "sampling.pairs:single-segment")
    assert "tokens; masked" in first


def test_the_share_of_labels() -> None:
    table = pa.table({"not_next": [True, False, False, False], "swapped": pa.nulls(4, pa.bool_())})
    assert labels(table) == ", 25.0% NotNext"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("documents", "--window", "5"), "error: window (5) must be from 0 to 4"),
        (("documents", "--source", "elsewhere"), "error: source (elsewhere) matches no document of window 0; the corpus has made up"),
        (("examples",), "error: vocabulary.path must be given"),
    ],
)
def test_what_is_not_there_is_one_line(arguments: tuple[str, ...], message: str, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main((arguments[0], folder, *arguments[1:])) == 2
    assert capsys.readouterr().err.startswith(message)


def test_a_folder_without_a_corpus_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("statistics", str(tmp_path))) == 2
    assert "holds no prepared corpus" in capsys.readouterr().err
