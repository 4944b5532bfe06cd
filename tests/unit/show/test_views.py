"""Output of jobs/show.py for a corpus of 30 made-up training documents in five windows."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from rich.text import Text

from jobs.show import main
from pipeline.config.show import Dropped
from pipeline.corpus.prepared import Corpus, read_window
from pipeline.show import views
from pipeline.show.statistics import documents_line
from pipeline.show.views import WIDEST, labels, with_margin
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary


@pytest.fixture
def folder(tiny_corpus: Corpus, tmp_path: Path) -> str:
    """The corpus with a manifest as preparation writes it."""
    train, heldout = (sum(window.characters for window in split) for split in (tiny_corpus.train, tiny_corpus.heldout))
    counts = {"files": 3, "documents": 42, "pieces": 42, "characters": train + heldout, "heldout_characters": heldout}
    windows = {
        split: [list(vars(window).values()) for window in getattr(tiny_corpus, split)] for split in ("train", "heldout")
    }
    about = {
        "fingerprint": tiny_corpus.fingerprint,
        "counts": counts | {"windows": 7, "heldout_windows": 2},
        "dropped": {"too short": 2, "duplicate": 1},
        "samples": {
            "too short": [["made up:7", "Too short."], ["made up:8", "Also."]],
            "duplicate": [["made up:9", "Kar lond."]],
        },
        "sources": {
            "made up": counts
            | {
                "weight": 2.0,
                "format": None,
                "column": None,
                "language": None,
                "dropped": {"too short": 2, "duplicate": 1},
            }
        },
    }
    shutil.copytree(tiny_corpus.folder, tmp_path / "corpus", ignore=shutil.ignore_patterns("manifest.json"))
    (tmp_path / "corpus" / "manifest.json").write_text(json.dumps(windows | about))
    return str(tmp_path / "corpus")


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


def test_nothing_dropped_is_said(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = Path(folder, "manifest.json")
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"dropped": {}, "samples": {}}))
    assert shown(capsys, "dropped", folder)[-1] == "nothing was dropped"


def test_statistics_and_their_picture(
    tiny_corpus: Corpus, folder: str, vocabulary: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "statistics.svg"
    text = "\n".join(shown(capsys, "statistics", folder, "--windows", "5", "--picture", str(picture), *vocabulary))
    assert (
        f"a sample of 5 of 5 training windows, {sum(window.characters for window in tiny_corpus.train):,} characters"
        in text
        and "dropped: too short" in text
    )
    words = sum(
        len(row.split()) for window in tiny_corpus.train for row in read_window(tiny_corpus, window)["text"].to_pylist()
    )
    assert f"sentences and {words:,} words in the whole training set" in text
    characters = sum(window.characters for window in (*tiny_corpus.train, *tiny_corpus.heldout))
    assert f"42 documents, each in one piece; {characters / 42:,.0f} characters per document on average" in text
    assert "characters per piece" in text and picture.read_text().count("<svg") == 1


@pytest.mark.parametrize(
    ("documents", "pieces", "line"),
    [
        (
            6,
            67,
            "6 documents in 67 pieces, since long documents are cut (prepare.piece_characters); 200,000 characters per "
            "document on average",
        ),
        (0, 4, "4 pieces of documents whose first pieces were dropped"),
    ],
)
def test_what_is_counted_is_said(documents: int, pieces: int, line: str) -> None:
    assert documents_line({"documents": documents, "pieces": pieces, "characters": 1_200_000}) == line


def test_examples_with_their_documents_and_labels(
    folder: str, vocabulary: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("examples", folder, "--number", "2", "--sampling.maximum-length", "32", *vocabulary)
    first, *lines = shown(capsys, *arguments)
    assert "examples in window 0 of epoch 0" in first and first.endswith("% NotNext")
    assert sum("[CLS]" in line for line in lines) == 2 and sum("from made up" in line for line in lines) >= 2
    assert [line[:5] for line in lines if line.startswith(("  A", "  B"))] == ["  A  ", "  B  "] * 2
    first, *_ = shown(capsys, *arguments, "sampling.pairs:sentence-order")
    assert first.endswith("% swapped") and "NotNext" not in first
    first, *_ = shown(capsys, *arguments, "sampling.pairs:single-segment")
    assert first.endswith("tokens")


def test_the_share_of_labels() -> None:
    table = pa.table({"not_next": [True, False, False, False], "swapped": pa.nulls(4, pa.bool_())})
    assert labels(table) == ", 25.0% NotNext"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("documents", "--window", "5"), "error: window (5) must be from 0 to 4"),
        (
            ("documents", "--source", "elsewhere"),
            "error: source (elsewhere) matches no document of window 0; the sources are made up",
        ),
        (("documents", "--number", "-1"), "error: number (-1) must be at least 1"),
        (("documents", "--sentences", "0"), "error: sentences (0) must be at least 1"),
        (("examples",), "error: vocabulary.path must be given"),
        (("examples", "--number", "0"), "error: number (0) must be at least 1"),
        (("examples", "--epoch", "-1"), "error: epoch (-1) must be a whole number from 0 to 2^63 - 1"),
        (("examples", "--seed", str(2**63)), f"error: seed ({2**63}) must be a whole number from 0 to 2^63 - 1"),
        (("statistics", "--windows", "0"), "error: windows (0) must be at least 1"),
        (("statistics", "--picture", "/s.xyz"), "error: picture (/s.xyz) must end in .png, .svg or .pdf"),
        (
            ("statistics", "--picture", "/none/s.png"),
            "error: picture (/none/s.png) cannot be written: there is no folder /none; make it, or name another",
        ),
        (("seen", "1", "--number", "0"), "error: number (0) must be at least 1"),
    ],
)
def test_what_is_not_there_is_one_line(
    arguments: tuple[str, ...], message: str, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main((arguments[0], folder, *arguments[1:])) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(message) and printed.err.count("\n") == 1 and printed.out == ""


def test_a_picture_over_a_folder_is_refused(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.png").mkdir()
    assert main(("statistics", folder, "--picture", str(tmp_path / "a.png"))) == 2
    assert "cannot be written: name a file in a folder that you may write to" in capsys.readouterr().err


def test_an_interrupt_is_no_traceback(
    folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(**settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(views.VIEWS, Dropped, interrupted)
    assert main(("dropped", folder)) == 130
    assert capsys.readouterr().err == "stopped\n"


def test_lines_stay_beside_their_margin() -> None:
    text = with_margin(Text.assemble(("  A  ", "bold cyan")), Text("one two three " * 20))
    lines = text.plain.split("\n")
    assert (
        len(lines) > 2
        and lines[0].startswith("  A  one two")
        and all(line.startswith("     ") and len(line) <= WIDEST for line in lines[1:])
    )
    assert " ".join(text.plain.split()[1:]) == " ".join(["one two three"] * 20)
    assert [(span.start, span.end, str(span.style)) for span in text.spans] == [
        (0, 5, "bold cyan")
    ] and text.style == ""


def test_a_folder_without_a_corpus_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("statistics", str(tmp_path))) == 2
    assert "does not hold a prepared corpus" in capsys.readouterr().err
