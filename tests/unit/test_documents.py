"""Commands in the documents are taken by the program that they name, so that no option is misspelt there."""

import importlib
import importlib.util
import json
import os
import re
import subprocess
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any

import click
import pytest

from jobs import pretrain
from pipeline.command_line.arguments import Argument
from pipeline.command_line.command import Command
from pipeline.command_line.main import JOBS
from pipeline.config.data import FullSentences
from pipeline.train.summary import next_commands
from tests.benchmarks import __main__ as benchmarks
from tests.documents import FENCED, ROOT, Written, commands, split

COMMANDS = list(dict.fromkeys(commands()))
OF_JOBS = [written for written in COMMANDS if written.job in JOBS]
OF_RAY = [written for written in COMMANDS if written.program == "ray" and len(written.words) > 1]
OF_MAKE = [written for written in COMMANDS if written.program == "make" and len(written.words) > 1]
OF_MODULES = [written for written in COMMANDS if written.program.startswith("python") and written.words[1:2] == ("-m",)]
OPTIONS_ALONE = [written for written in COMMANDS if written.words[0].startswith("--")]
OTHER_PROGRAMS = {"--requeue", "--json", "--find-links", "--torch-backend"}  # of Slurm, WikiExtractor and uv


class Parsed(BaseException):
    """The settings of a command, raised in place of the work."""


@pytest.fixture
def parse_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A job parses its command and stops there; run.toml is what --show prints, as the documents say."""
    monkeypatch.chdir(tmp_path)
    pretrain.main(["bert-mini", "--show"])
    Path("run.toml").write_text(capsys.readouterr().out)
    parse = Command.parse

    def parse_and_stop(self: Command, words: Sequence[Argument], default: Any = None) -> Any:
        raise Parsed(parse(self, words, default))

    def parse_args_and_stop(self: ArgumentParser, words: Sequence[str]) -> Any:
        raise Parsed(parse_args(self, words))

    monkeypatch.setattr(Command, "parse", parse_and_stop)
    parse_args = ArgumentParser.parse_args  # of `bench.py step`, which runs where only torch, NumPy and pyarrow are
    monkeypatch.setattr(ArgumentParser, "parse_args", parse_args_and_stop)
    for name in ("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM"):  # set by bench.py
        monkeypatch.setenv(name, os.environ.get(name, ""))


def run_job(written: Written) -> int:
    return importlib.import_module(f"jobs.{written.job}").main(written.arguments)


def test_a_job_takes_its_command(parse_only: None, capsys: pytest.CaptureFixture[str]) -> None:
    refused = []
    for written in {(written.job, *written.arguments): written for written in OF_JOBS}.values():
        try:
            taken = run_job(written) == 0
        except Parsed:
            taken = True
        except SystemExit as ended:  # --help
            taken = ended.code == 0
        if not taken:
            refused.append(f"{written}: {capsys.readouterr().err}")
    assert refused == []


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_job_takes_its_command_at_the_end_of_a_run(
    device: str, parse_only: None, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = {"name": "mine", "export": "/my output/runs/mine/export", "device": device}
    lines = next_commands(summary | {"blanks": {}, "heldout_after": {}}).splitlines()
    written = [Written(page="a run", words=words) for line in lines if "jobs/" in line for words in split(line)]
    assert [one.job for one in written] == ["embed", "search", "adapt", "finetune", "pretrain"]
    settings = []
    for one in written:
        with pytest.raises(Parsed) as parsed:
            run_job(one)
        settings.append(parsed.value.args[0])
    embed, search, adapted, finetune, continued = settings
    assert embed.checkpoint == finetune.checkpoint == adapted.init == continued.init == "/my output/runs/mine/export"
    assert embed.output == search.vectors == "/my output/vectors/mine"
    assert continued.batch.rows_per_step == (64 if device == "cpu" else 256)
    assert isinstance(continued.sampling.pairs, FullSentences), "not every model has a head for pairs"


def test_the_benchmarks_take_their_commands(parse_only: None, capsys: pytest.CaptureFixture[str]) -> None:
    found = [written for written in COMMANDS if "tests.benchmarks" in written.words]
    assert {written.words[written.words.index("tests.benchmarks") + 1] for written in found} >= {"ablation", "shape"}
    for written in found:
        with pytest.raises(Parsed):
            benchmarks.main(written.words[written.words.index("tests.benchmarks") + 1 :])


def test_a_misspelt_command_is_refused(parse_only: None, capsys: pytest.CaptureFixture[str]) -> None:
    written = Written(page="a page", words=("python", "jobs/predict.py", "--chekpoint", "A"))
    assert run_job(written) == 2 and "did you mean --checkpoint?" in capsys.readouterr().err


def test_commands_of_every_job_and_document_are_found() -> None:
    assert {written.job for written in OF_JOBS} == set(JOBS)
    pages = {written.page for written in OF_JOBS}
    assert pages >= {"README.md", "cluster/README.md", *(f"jobs/{job}.py" for job in JOBS)}
    assert pages >= {
        f"jobs/{page}.md" for page in ("README", "CORPORA", "PRETRAINING", "FINETUNING", "results/step-speed")
    }
    found = {written.words for written in COMMANDS if written.page == "README.md"}
    assert (
        "python",
        "jobs/pretrain.py",
        "encoder-xs",
        "--corpus",
        "corpora/mine",
        "--tokens",
        "100M",
        "--plan",
    ) in found
    assert ("make", "stop") in found and ("python", "jobs/bench.py", "step") in found


def documents() -> list[Path]:
    """Every page of the project."""
    folders = (".github", "cluster", "jobs", "pipeline")
    return [
        *ROOT.glob("*.md"),
        ROOT / "tests/README.md",
        *(page for name in folders for page in (ROOT / name).rglob("*.md")),
    ]


def anchors(page: Path) -> set[str]:
    """Names by which GitHub finds the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_of_documents_lead_to_files_and_headings() -> None:
    wrong, links = [], 0
    for page in documents():
        for link in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", page.read_text())):
            name, _, heading = link.partition("#")
            to = (page.parent / name) if name else page
            links += 1
            if "://" not in link and not (to.exists() and (not heading or heading in anchors(to))):
                wrong.append(f"{page.relative_to(ROOT)}: {link}")
    assert links > 100 and wrong == []


def test_results_are_a_table_of_questions_with_a_page_each() -> None:
    lines = (ROOT / "jobs/RESULTS.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| [")]
    linked = {name for row in rows for name in re.findall(r"results/([\w-]+\.md)", row)} | {"did-not-help.md"}
    pages = {path.name: path.read_text() for path in (ROOT / "jobs/results").glob("*.md")}
    assert len(lines) <= 40 and {len(row.split(" | ")) for row in rows} == {5} and linked == pages.keys()
    assert [name for name, text in pages.items() if not re.match(r"# .*\?\n\n\w", text)] == []
    undated = [name for name, text in pages.items() if not re.search(r"20\d\d-\d\d-\d\d", text)]
    assert undated == [] and not [name for name, text in pages.items() if "anecdote" in text.lower()]


def test_the_site_lists_every_page_but_those_of_one_question() -> None:
    listed = re.findall(r'"([\w/]+\.md)"', (ROOT / ".zensical.toml").read_text())
    pages = {str(path.relative_to(ROOT)) for path in documents() if not path.is_relative_to(ROOT / "jobs/results")}
    assert sorted(listed) == sorted(pages - {".github/SECURITY.md"}), "see nav in .zensical.toml"


def test_the_tour_is_small_and_has_no_outputs() -> None:
    content = (ROOT / "jobs/tour.ipynb").read_text()
    cells = [cell for cell in json.loads(content)["cells"] if cell["cell_type"] == "code"]
    assert len(content) < 10_000 and all(cell["outputs"] == [] and not cell["execution_count"] for cell in cells)


def explained(job: str, *words: str) -> set[str]:
    """Options in the help of a job, or of one of its commands."""
    with redirect_stdout(StringIO()) as said, suppress(SystemExit):
        importlib.import_module(f"jobs.{job}").main([*words, "--help", *["all"] * (not words)])
    return set(re.findall(r"(?<![\w-])--[a-z0-9.-]+", said.getvalue()))


def test_options_on_their_own_are_explained_by_a_job(parse_only: None) -> None:
    known = set().union(*map(explained, JOBS), OTHER_PROGRAMS)
    several = {(written.job, *written.arguments[:1]) for written in OF_JOBS if written.job in ("show", "bench")}
    known |= set().union(*(explained(*words) for words in several))
    assert "--trials.at-once" in known and "--number" in known and "--no-attention-dropout" in known
    wrong = [
        f"{written}: {word}"
        for written in OPTIONS_ALONE
        for word in written.words
        if word.startswith("--") and word.partition("=")[0].replace("_", "-") not in known
    ]
    assert wrong == []


def test_make_knows_its_targets_and_variables() -> None:
    targets = {word for written in OF_MAKE for word in written.words[1:] if "=" not in word and word[0] != "-"}
    planned = subprocess.run(["make", "--dry-run", "--keep-going", *targets], cwd=ROOT, capture_output=True, text=True)
    assert targets and planned.returncode == 0, planned.stderr
    known = re.findall(r"^([A-Z_]+) \?=", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = {word.partition("=")[0] for written in OF_MAKE for word in written.words[1:] if "=" in word}
    assert named - set(known) == set()


def group_of_ray() -> click.Group:
    from ray.scripts.scripts import cli

    return cli


def test_ray_takes_its_options() -> None:
    refused = []
    for written in OF_RAY:
        command: click.Command = group_of_ray()
        words = list(written.words[1:])
        try:
            while isinstance(command, click.Group):
                command = command.commands[words.pop(0)]
            command.make_parser(click.Context(command)).parse_args(words)
        except (KeyError, IndexError, click.UsageError) as error:
            refused.append(f"{written}: {error!r}")
    assert OF_RAY and refused == []


def test_modules_exist() -> None:
    assert OF_MODULES and [written for written in OF_MODULES if not importlib.util.find_spec(written.words[2])] == []
