"""The main commands of the documents, run as they stand on small files, from text to a comparison of two encoders."""

import importlib
import os
import re
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import requests

from pipeline.command_line import stopping
from pipeline.saved.checkpoints import folder_of
from tests.chaos.simulated import free_port
from tests.documents import Written, commands
from tests.serving import become_health

pytestmark = [pytest.mark.second, pytest.mark.usefixtures("local_ray")]

SMALLER = {
    "prepare": "--prepare.window-characters 6000 --prepare.piece-characters 1000 --prepare.near-duplicates None",
    "pretrain": "--vocabulary.size 300 --model.layers 1 --model.width 32 --model.heads 2 --model.feed-forward 64 "
    "--sampling.maximum-length 32 --batch.rows-per-step 8 --schedule.warmup-steps 2 --evaluation.rows 16 "
    "--placement.compile off",
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


@pytest.fixture
def stoppable() -> Iterator[None]:
    """The handler of SIGTERM, and the note that the process was terminated, as they were before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    stopping.terminated.clear()


@pytest.mark.long  # its parts: the test above, test_pretrain.py, test_embed.py, tests/unit/serve/test_one_process.py
def test_the_first_commands_of_the_readme_lead_from_text_to_a_served_model(
    here: Path, capsys: pytest.CaptureFixture[str], stoppable: None
) -> None:
    *leading, serve = [written for written in commands() if written.page == "README.md" and written.job][:6]
    for written in leading:
        run(written)
    said = capsys.readouterr().out
    assert re.search(r"^how do bridges carry their weight\?\nrank +score +id +text\n +1  [01]\.\d+ ", said, re.M)
    assert list(here.glob("output/finetune/my-*/model/model.safetensors"))
    port = free_port()
    url = f"http://127.0.0.1:{port}"

    def ask() -> list[list[float]]:
        assert become_health(200, url, 60)
        try:
            return requests.post(f"{url}/embed", json={"inputs": ["kar mist"]}, timeout=30).json()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        stopped = importlib.import_module("jobs.serve").main([*serve.arguments, "--port", str(port)])
    assert stopped == 143 and len(asking.result()[0]) == 32
