"""jobs/finetune.py on Ray Tune: a table, models, MLflow; again from its results; killed and continued; what is
refused.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from mlflow.tracking import MlflowClient

from jobs.finetune import main
from pipeline.command_line.command import Command
from pipeline.config.data import VocabularySettings
from pipeline.config.finetune import Finetune
from pipeline.config.placement import TrialPlacement
from pipeline.files import storage
from pipeline.fine_tuned.model import open_tuned
from pipeline.finetune.encoder import read_encoder
from pipeline.finetune.problems import read_problems
from pipeline.finetune.settings import with_setting
from pipeline.finetune.submission_zip import FILES
from pipeline.finetune.trials import load_or_train, make_trial, precision_of
from pipeline.grid.precision import node_precisions
from pipeline.saved.checkpoints import folder_of
from pipeline.tasks.glue import INFERENCE, TASKS
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.initial import read_initial
from tests.unit.finetune.test_teacher import saved

pytestmark = pytest.mark.usefixtures("local_ray")


SMALL = """--recipe.epochs 2 --seeds 1 --recipe.rows-per-step 16 --cutting.maximum-length 32 --placement.threads 1
    --trials.cpus 3"""


def command(tiny_run: Path, data: Path, output: Path, *more: str) -> list[str]:
    checkpoint = folder_of(str(tiny_run), 3)
    return ["--checkpoint", checkpoint, "--data", str(data), "--output", str(output), *SMALL.split(), *more]


def write_glue(folder: Path, vocabulary: Vocabulary, rows: int) -> None:
    """Every file of GLUE, with `rows` rows of made-up words; a task's splits have the same texts, and AX those of
    MNLI.
    """
    words = sorted(word for word in vocabulary.tokens if word.isalpha() and len(word) > 2)
    for task in TASKS.values():
        for split in task.splits:
            columns = split.headings or tuple(
                dict.fromkeys(filter(None, (split.id, split.first, split.second, split.label)))
            )
            lines = [] if split.headings else ["\t".join(columns)]
            for row in range(rows):
                label = task.labels[row % len(task.labels)] if task.labels else str(row / 2)
                cells = {
                    split.id: str(row),
                    split.first: f"{words[row]} {words[row + 1]}",
                    split.second: words[row + 2],
                    split.label: label,
                }
                lines.append("\t".join(cells.get(column, "x") for column in columns))
            place = folder / split.file
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("\n".join(lines) + "\n")


def statuses(output: Path) -> list[str]:
    """Return the status of each MLflow run of a grid: its trials, and the one that groups them."""
    client = MlflowClient(tracking_uri=f"sqlite:///{output}/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("finetune").experiment_id])
    assert sum("mlflow.parentRunId" not in run.data.tags for run in runs) == 1
    return [run.info.status for run in runs]


def train_here(asked: list[str], output: Path, done: dict[str, Any]) -> None:
    """Train the trials of a job that is done in this process, one after another."""
    config = replace(Command(prog="", about="", settings=Finetune).read(asked), output=str(output))
    initial = read_encoder(config, config.checkpoint, print)
    config = config.for_model(initial.model)
    (problem,) = read_problems(config, initial, print)
    for name, result in done.items():
        seed = int(name.split("-seed")[1].split("-")[0])
        setting = with_setting(config, result["chosen"])
        trial = make_trial(setting, problem, initial, seed, result["chosen"], result["stage"])
        load_or_train(trial, problem, initial)


def results(output: Path) -> dict[str, Any]:
    """Return trial -> result."""
    return {
        path.parent.name: json.loads(path.read_text()) for path in sorted((output / "finetune").glob("*/result.json"))
    }


def learnt(results: dict[str, Any]) -> dict[str, Any]:
    """Return trial -> scores and losses."""
    return {name: (result["scores"], result["curve"]) for name, result in results.items()}


def test_a_killed_grid_trains_only_what_is_missing_and_selects_a_setting(
    tiny_run: Path, glue: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    searched = ("--task", "cola", "--search.over", "optimizer.learning_rate=1e-4,1e-3", "--trials.at-once", "1")
    asked = command(tiny_run, glue, tmp_path / "killed", *searched)
    environment = os.environ | {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    with subprocess.Popen(
        [sys.executable, "jobs/finetune.py", *asked],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
    ) as job:
        until = time.monotonic() + 150
        while job.poll() is None and not results(tmp_path / "killed") and time.monotonic() < until:
            time.sleep(0.01)
        job.kill()
    assert job.returncode == -signal.SIGKILL, job.stderr
    time.sleep(1)  # the trial that was under way ends with its job
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "killed" / "finetune").glob("*/result.json")}
    assert 1 <= len(before) < 3
    assert main(asked) == 0
    out = capsys.readouterr().out
    assert f"{len(before)} of 2 trials have their results already" in out
    assert "cola: selected learning rate 0.00" in out and "(best of 2: " in out and "selected on dev" in out
    assert any(line.startswith("| cola ") for line in out.splitlines())
    assert all(path.stat().st_mtime_ns == then for path, then in before.items())

    found = results(tmp_path / "killed")
    assert [name.rsplit("-", 1)[0] for name in found] == ["cola-seed0", "cola-seed0", "cola-seed1"]
    train_here(asked, tmp_path / "alone", found)
    assert learnt(found) == learnt(results(tmp_path / "alone"))
    (model,) = (tmp_path / "killed" / "finetune").glob("cola-seed1-*/model")
    assert open_tuned(str(model)).about.task.name == "cola"
    assert statuses(tmp_path / "killed") == ["FINISHED"] * 4


@pytest.mark.second
def test_a_grid_of_two_tasks_has_a_model_of_each(
    tiny_run: Path, glue: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    searched = ("--task", "glue", "--search.over", "optimizer.learning_rate=1e-4,1e-3")
    assert main(command(tiny_run, glue, tmp_path, *searched)) == 0
    out = capsys.readouterr().out
    assert "6 trials: 4 that select one of 2 settings, 2 that report it on fresh seeds" in out
    assert (
        "no GLUE submission file, because these are missing: a model of sst2, a model of mrpc, "
        "a model of qqp, a model of mnli, a model of qnli and " in out
    )
    names = [name.rsplit("-", 1)[0] for name in results(tmp_path)]
    assert names == [f"{task}-seed{seed}" for task in ("cola", "stsb") for seed in (0, 0, 1)]
    models = [path.parent for path in (tmp_path / "finetune").glob("*/model/task.json")]
    assert sorted(open_tuned(str(model)).about.task.name for model in models) == ["cola", "stsb"]
    assert statuses(tmp_path) == ["FINISHED"] * 7


@pytest.mark.long  # its parts: tests/unit/finetune/test_trial_workers.py
def test_a_trial_on_two_workers_has_the_losses_of_one(tiny_run: Path, glue: Path, tmp_path: Path) -> None:
    small = ("--task", "cola", "--recipe.rows-per-slot", "8", "--trials.cpus", "1", "--trials.workers", "2")
    asked = command(tiny_run, glue, tmp_path / "2", *small)
    assert main(asked) == 0
    found = results(tmp_path / "2")
    train_here([*asked, "--trials.workers", "1"], tmp_path / "1", found)
    alone = results(tmp_path / "1")
    assert alone.keys() == found.keys()
    for name, one in alone.items():
        losses = [[loss for _, loss in result["curve"]] for result in (one, found[name])]
        assert len(losses[0]) == 8 and losses[1] == pytest.approx(losses[0], rel=1e-5)


@pytest.mark.second
def test_a_student_learns_from_a_teacher(
    tiny_run: Path, glue: Path, tiny_vocabulary: Vocabulary, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    teacher = saved(tmp_path / "large", TASKS["cola"], tiny_vocabulary)
    dev = (glue / TASKS["cola"].split("dev").file).read_text().splitlines()[0].split("\t")[3]
    (tmp_path / "more.txt").write_text(f"one more text\n{dev}\nand another\n")
    taught = ("--teacher", teacher, "--unlabelled", str(tmp_path / "more.txt"))
    asked = command(tiny_run, glue, tmp_path / "o", "--task", "cola", *taught)
    assert main(asked) == 0
    out = capsys.readouterr().out
    assert "cola unlabelled: 1 of 3 rows left out, because dev or test has the same text" in out
    assert "teacher large: answers " in out and "cola: teacher large has matthews " in out
    (row,) = (line for line in out.splitlines() if line.startswith("| cola "))
    assert row.endswith(" with teacher large |")
    (path,) = (tmp_path / "o" / "finetune").glob("*/result.json")
    result = json.loads(path.read_text())
    assert result["teacher"]["checkpoint"] == teacher and result["teacher"]["unlabelled rows"] == 2
    assert result["settings"]["teacher"] == storage.sha256(f"{teacher}/{storage.MANIFEST}")[:16]
    assert result["rows"] == 2 + len((glue / TASKS["cola"].split("train").file).read_text().splitlines())
    assert main(asked) == 0
    again = capsys.readouterr().out
    assert "teacher large: its answers to " in again and "all of them have their results" in again
    assert main([*asked, "--task", "stsb"]) == 2
    assert capsys.readouterr().err == (
        f"error: teacher ({teacher}) is of kind classification, but stsb is of kind regression: give a model of that "
        "kind\n"
    )


def test_a_node_reports_the_precision_of_its_trials() -> None:
    config = Finetune(checkpoint="c", task=("cola",), placement=TrialPlacement(device="cpu"))
    assert node_precisions(config, 768, {"CPU": 1.0}) == [precision_of(config.placement, 768, torch.device("cpu"))]


def test_errors_before_training_are_one_line(
    tiny_run: Path, glue: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more, message in (
        (
            ("--cutting.maximum-length", "99"),
            "cutting.maximum_length (99) must be at most the checkpoint's positions (32)",
        ),
        (("--checkpoint", str(glue)), f"checkpoint {glue} has no config.json"),
        (
            ("--data", str(tmp_path / "empty")),
            f"data ({tmp_path}/empty) is not a folder with files: name the folder with the files of glue",
        ),
        (("--task", "ax"), "task (ax) cannot be trained: choose from cola, sst2,"),
        (("--task", "rte"), f"{glue}/RTE/train.tsv (split train of rte) does not exist; {glue} has CoLA, STS-B"),
        (
            ("--trials.gpus", "0.5"),
            "trials.gpus (0.5) must be at most 0, the number of GPUs in the cluster: lower trials.gpus, or leave it "
            "out",
        ),
        (
            ("--trials.workers", "9"),
            "trials.workers (9) must be at most ",
        ),
        (("--freeze.layers", "7"), "freeze.layers (7) must be at most the checkpoint's layers (2)"),
        (
            ("--start-from", "mnli"),
            "start_from (mnli) must be one of the tasks (cola, stsb), but not rte, mrpc, stsb, because "
            "these start from the model of the task start_from",
        ),
        (
            ("--train", "my.csv"),
            "task (glue) or train (my.csv): give exactly one, such as --task sst2 or --train my.csv",
        ),
    ):
        assert main(command(tiny_run, glue, tmp_path / "output", "--task", "glue", *more)) == 2, more
        found = capsys.readouterr().err
        assert found.startswith(f"error: {message}") and found.count("\n") == 1, found
    assert not results(tmp_path / "output")


@pytest.mark.second
def test_an_own_file_with_a_tenth_set_aside(tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["review,stars"] + [
        f'"{"kar mist" if row % 2 else "lond sur"} {"nest " * (row % 7)}{row}",{"good" if row % 2 else "bad"}'
        for row in range(80)
    ]
    (tmp_path / "my.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "test.csv").write_text("\n".join([lines[0], *lines[-7:]]) + "\n")
    asked = [
        "--checkpoint",
        folder_of(str(tiny_run), 3),
        "--train",
        str(tmp_path / "my.csv"),
        "--test",
        str(tmp_path / "test.csv"),
        "--text",
        "review",
        "--label",
        "stars",
        "--output",
        str(tmp_path / "o"),
        "--seeds",
        "1",
        # Fmt: skip
        "--recipe.epochs",
        "4",
        "--search.over",
        "adapter=no-adapter,low-rank",
        "--cutting.maximum-length",
        "16",
        "--search.stop-early",
        "--trials.cpus",
        "3",
        "--trials.at-once",
        "1",
        "--recipe.patience",
        "2",
        "adapter:low-rank",
        "--adapter.rank",
        "4",
    ]
    assert main(asked) == 0
    out = capsys.readouterr().out
    assert (
        "no --dev: " in out
        and "of 80 rows, chosen by a hash of their text, are set aside as dev" in out
        and "| my   | dev accuracy" in out
    )
    selected = re.search(r"my: selected adapter (no-adapter|low-rank) \(best of 2: ", out)
    assert selected, out
    ended = [
        {path.name for path in folder.iterdir() if path.name != ".lock"}
        for folder in sorted((tmp_path / "o" / "finetune").glob("my-seed0-*"))
    ]
    assert (
        len(ended) == 2
        and all(names in ({"result.json"}, {"stopped.json"}) for names in ended)
        and {"result.json"} in ended
    )
    (folder,) = (tmp_path / "o" / "finetune").glob("my-seed1-*/model")
    settings = json.loads((folder.parent / "result.json").read_text())["settings"]
    assert settings["adapter"] == {"no-adapter": "NoAdapter", "low-rank": "LowRank"}[selected[1]]
    assert settings["cutting.maximum_length"] == open_tuned(str(folder)).about.cutting.maximum_length == 16
    assert f"{tmp_path}/test.csv: 7 rows" in out and "predict.py --checkpoint" in out and "mlflow ui --workers 1" in out
    written = (folder.parent / "test-answers.csv").read_text().splitlines()
    assert len(written) == 8 and written[0].startswith('"review","stars",')
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/o/mlflow.db")
    runs = client.search_runs(
        [client.get_experiment_by_name("finetune").experiment_id], "metrics.`my/test accuracy` >= 0"
    )
    assert [run.data.tags["mlflow.runName"].split("-")[0] for run in runs] == ["my"]
    assert "epoch 1 of 4: accuracy" in out and "seed 0, adapter low-rank: " in out
    assert (
        open_tuned(str(folder)).about.task.labels == ("bad", "good") and not (folder / "adapters.safetensors").exists()
    )


@pytest.mark.second
def test_folds_are_separate_trials_and_one_row_of_the_table(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{'kar mist' if row % 2 else 'lond sur'} {row};{'good' if row % 2 else 'bad'}" for row in range(24)]
    (tmp_path / "my.csv").write_text("\n".join(["text;label", *rows, ";bad", "kar;"]) + "\n")
    asked = [
        "--checkpoint",
        folder_of(str(tiny_run), 3),
        "--train",
        str(tmp_path / "my.csv"),
        "--output",
        str(tmp_path / "o"),
        "--seeds",
        "1",
        "--recipe.epochs",
        "1",
        "--search.folds",
        "2",
        "--on-bad-rows",
        "skip",
        "--trials.cpus",
        "3",
        "--trials.at-once",
        "1",
    ]
    assert main(asked) == 0
    out = capsys.readouterr().out
    assert (
        "my train: 24 rows, classification of 2 labels, 1 rows left out (empty-text, " in out
        and "my train: labels bad 12, good 12; tokens per row: " in out
    )
    assert (
        "my: 2 folds of 12 rows, with equal shares of each class" in out
        and "2 trials: 2 folds, 1 seed at most; " in out
    )
    row = next(line for line in out.splitlines() if line.startswith("| my "))
    assert (
        " ± " in row
        and " 2 x 1 " in row
        and "run the same command with the best settings and without --search.folds" in out
    )
    assert [name.rsplit("-", 1)[0] for name in results(tmp_path / "o")] == ["my-fold1of2-seed0", "my-fold2of2-seed0"]
    assert not list((tmp_path / "o" / "finetune").glob("*/model")), "what folds train is no model to keep"
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/o/mlflow.db")
    (parent,) = [
        run
        for run in client.search_runs([client.get_experiment_by_name("finetune").experiment_id])
        if "mlflow.parentRunId" not in run.data.tags
    ]
    found = [one["scores"]["dev"]["accuracy"] for one in results(tmp_path / "o").values()]
    assert parent.data.metrics["my/dev accuracy/mean"] == pytest.approx(sum(found) / 2)


@pytest.mark.long  # its parts: tests/unit/finetune
def test_all_of_glue_makes_a_submission_file_and_starts_tasks_from_mnli(
    tiny_run: Path,
    tiny_vocabulary: Vocabulary,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_glue(tmp_path / "glue", tiny_vocabulary, rows=6)
    files = {name: replace(one, rows=6) for name, one in FILES.items()}  # the official splits have up to 390,965
    monkeypatch.setattr("pipeline.finetune.submission_zip.FILES", files)
    monkeypatch.setattr("pipeline.finetune.submission.FILES", files)
    asked = [
        "--checkpoint",
        folder_of(str(tiny_run), 3),
        "--data",
        str(tmp_path / "glue"),
        "--task",
        "glue",
        "--output",
        str(tmp_path / "o"),
        "--recipe.epochs",
        "1",
        "--seeds",
        "1",
        # Fmt: skip
        "--recipe.rows-per-step",
        "6",
        "--cutting.maximum-length",
        "32",
        "--trials.cpus",
        "3",
        "--start-from",
        "mnli",
        "--optimizer.learning-rate",
        "1e-3",
    ]
    assert main(asked) == 0
    out = capsys.readouterr().out
    assert "then the 66 test rows of GLUE's submission file, about " in out
    assert "mean of 9 of GLUE's 9 tasks" in out and f"GLUE submission file: {tmp_path}/o/glue-submission.zip" in out
    with zipfile.ZipFile(tmp_path / "o" / "glue-submission.zip") as written:
        answers = {name: written.read(name).decode().splitlines() for name in written.namelist()}
    assert sorted(answers) == sorted(f"{name}.tsv" for name in files) and {
        len(lines) for lines in answers.values()
    } == {7}
    assert answers["AX.tsv"] == answers["MNLI-m.tsv"], "the same rows, by the same model"
    assert {line.split("\t")[1] for line in answers["AX.tsv"][1:]} <= set(INFERENCE)

    (mnli,) = (tmp_path / "o" / "finetune").glob("mnli-seed0-*/model")
    started = {
        path.name.split("-")[0]: json.loads((path / "result.json").read_text())["settings"]["encoder"]
        for path in (tmp_path / "o" / "finetune").glob("*-seed0-*")
    }
    encoder = read_initial(str(mnli), VocabularySettings(), str(tmp_path / "o"), lambda line: None).fingerprint
    assert {name for name, found in started.items() if found == encoder} == {"rte", "mrpc", "stsb"}
    assert len(set(started.values())) == 2
