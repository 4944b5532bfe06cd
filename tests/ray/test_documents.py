"""The main commands of the documents, run as they stand on small files, from text to a comparison of two encoders.

The command that pretrains is run by test_wheel.py.
"""

import importlib
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline.saved.checkpoints import folder_of
from tests.documents import Written, commands

pytestmark = [pytest.mark.second, pytest.mark.usefixtures("local_ray")]

SMALLER = {
    "prepare": "--prepare.window-characters 6000 --prepare.piece-characters 1000 --prepare.near-duplicates None",
    "finetune": "--seeds 1 --recipe.epochs 1 --trials.at-once 1",
    "compare": "--seeds 2 --recipe.epochs 1 --trials.at-once 1",
    "predict": "--actors 1",
}
"""Options that stand after those of the document."""


@pytest.fixture
def here(tiny_run: Path, small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the files that the commands name: texts, tables and encoders."""
    monkeypatch.chdir(tmp_path)
    texts = sorted(small_corpus.iterdir())[:24]
    for folder, files in (("books", texts[::2]), ("wiki", texts[1::2])):
        Path(folder).mkdir()
        for file in files:
            shutil.copy(file, folder)
    rows = [f"{'kar mist' if row % 2 else 'lond sur'} {row},{'good' if row % 2 else 'bad'}\n" for row in range(40)]
    for file, columns in (("my", "review"), ("my-dev", "review"), ("reviews", "body"), ("labelled", "body")):
        Path(f"{file}.csv").write_text("".join([f"{columns},stars\n", *rows]))
    for encoder, step in (("EXPORT", 3), ("A", 2), ("B", 3)):
        Path(encoder).symlink_to(folder_of(str(tiny_run), step))
    return tmp_path


def first(page: str, job: str, *words: str) -> Written:
    """The first command of a page that has these words."""
    return next(
        written for written in commands() if (written.page, written.job) == (page, job) and {*words} <= {*written.words}
    )


def run(written: Written) -> None:
    asked = [*written.arguments, *SMALLER.get(str(written.job), "").split()]
    assert importlib.import_module(f"jobs.{written.job}").main(asked) == 0, written


def test_the_commands_of_the_documents_run(here: Path, tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(first("README.md", "prepare", "corpora/mine"))
    run(first("jobs/CORPORA.md", "show", "documents", "corpora/mine"))
    assert "is ready: 24 documents" in capsys.readouterr().out
    run(first("README.md", "pretrain", "--plan"))
    assert "price" in capsys.readouterr().out.lower()

    taken_out = first("jobs/export.py", "export")
    shutil.copytree(tiny_run, taken_out.arguments[0])
    run(taken_out)
    assert list(Path(taken_out.arguments[0]).glob("exports/*/huggingface/model.safetensors"))

    run(first("README.md", "finetune", "my-dev.csv"))
    (model,) = here.glob("output/finetune/my-*/model")
    (here / "output/finetune/TRIAL").symlink_to(model.parent)
    run(first("README.md", "predict", "reviews.csv"))
    assert pq.read_table("answers.parquet").num_rows == 40
    run(first("jobs/FINETUNING.md", "score", "labelled.csv"))
    run(first("jobs/compare.py", "compare", "my.csv"))
    said = capsys.readouterr().out
    assert "accuracy" in said and "no significant difference on my" in said
