"""Write a folder of each kind that people have, by this checkout's jobs: `python -m tests.kept.make FOLDER`.

The files name FOLDER, so it should say nothing about a machine: `/kept`. Copy what is there to tests/kept/folders.
"""

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pipeline.command_line.environment import set_ray_defaults

set_ray_defaults()

from mlflow.tracking import MlflowClient  # noqa: E402

from jobs import ablate, embed, export, finetune, predict, prepare, pretrain, search  # noqa: E402
from pipeline.command_line.command import Command  # noqa: E402
from pipeline.config.finetune import Finetune  # noqa: E402
from pipeline.config.locations import with_absolute_locations  # noqa: E402
from pipeline.finetune.trial_state import TrialCheckpoints  # noqa: E402
from pipeline.finetune.trials import load_or_train, make_trial  # noqa: E402
from pipeline.grid.inputs import read_inputs  # noqa: E402
from pipeline.on_ray import cluster  # noqa: E402
from pipeline.predict.work import PartsWork  # noqa: E402
from tests.chaos.simulated import small_corpus  # noqa: E402
from tests.kept import commands  # noqa: E402
from tests.kept.answers import ANSWERS, CODE, EXPECTED, all_answers  # noqa: E402

WORDS = [a + b for a in ("ka", "lo", "mi", "ne", "su", "ta") for b in ("r", "nd", "p", "st", "l", "m")]
STOPPED_BY_USER = 130
URI = "sqlite:///output/mlflow.db"


def make(folder: Path) -> None:
    """Write all folders, and the answers of their models."""
    os.chdir(folder)
    cluster.start(num_cpus=6, log_to_driver=False, logging_level="ERROR")
    write_inputs()
    expected: dict[str, Any] = {"losses": write_runs(), "ablation": write_ablation(), "trials": write_models()}
    expected["trial"] = write_trial()
    expected["predictions"] = write_parts()
    clean()
    expected[ANSWERS] = all_answers()
    Path("found.jsonl").unlink()
    expected["code"] = {name: hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in CODE}
    Path(EXPECTED).write_text(json.dumps(expected, indent=1) + "\n")


def run(main: Callable[[Sequence[str]], int], words: Sequence[str]) -> None:
    """Run a job, which must succeed."""
    if code := main(words):
        raise SystemExit(f"{main.__module__} {' '.join(words)}: exit code {code}")


def write_inputs() -> None:
    """Write texts, tables of each kind of task, and a prepared corpus with its vocabulary."""
    small_corpus(Path("documents"))
    words = "--prepare.window-characters 4000 --prepare.piece-characters 1000 --prepare.near-duplicates None"
    run(prepare.main, f"--corpus documents --folder corpus --prepare.heldout-share 0.1 {words}".split())
    shutil.rmtree("documents")
    for name in ("texts", "tables"):
        Path(name).mkdir()
    for file in range(2):
        rows = [{"id": f"{file}-{row}", "text": sentence(20 * file + row)} for row in range(20)]
        Path(f"texts/{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    moods = [f"{sentence(row)},{mood_of(row)}" for row in range(48)]
    ratings = [f"{sentence(row)},{len(sentence(row).split()) / 2}" for row in range(48)]
    likeness = [f"{sentence(row)},{sentence(row + row % 5)},{5 - row % 5}" for row in range(48)]
    for name, head, lines in (
        ("moods", "text,label", moods),
        ("ratings", "text,label", ratings),
        ("likeness", "text,pair,label", likeness),
    ):
        Path(f"tables/{name}.csv").write_text("\n".join([head, *lines]) + "\n")
    tagged = [[f"{word} {tag_of(word)}" for word in sentence(row).split()] for row in range(32)]
    Path("tables/tags.conll").write_text("\n\n".join("\n".join(lines) for lines in tagged) + "\n")


def sentence(number: int) -> str:
    return " ".join(WORDS[(7 * number + (1 + number % 3) * place) % len(WORDS)] for place in range(4 + number % 5))


def mood_of(number: int) -> str:
    return "glad" if sentence(number)[0] in "kls" else "sad"


def tag_of(word: str) -> str:
    return {"k": "B-PER", "l": "I-PER"}.get(word[0], "O")


def write_runs() -> dict[str, dict[str, float]]:
    """Write a run stopped half-way and exports of both families; return metric -> step -> value of the whole run."""
    run(pretrain.main, commands.PRETRAIN)
    client, (folder,) = MlflowClient(tracking_uri=URI), Path("output/runs").glob("stopped")
    run_id = json.loads((folder / "run.json").read_text())["mlflow_run_id"]
    losses = {
        name: {str(point.step): point.value for point in client.get_metric_history(run_id, name)}
        for name in ("train/mlm_loss", "train/nsp_loss", "stream/rows_crc32")
    }
    run(export.main, ["output/runs/stopped", "--kinds", "huggingface", "mlflow", "--folder", "exports"])
    shutil.move("exports/huggingface", "export")
    Path("exports").rmdir()
    stop(folder)
    run(pretrain.main, commands.MODERNBERT)
    shutil.move("output/runs/modernbert/export", "modernbert")
    shutil.rmtree("output/runs/modernbert")
    return losses


def stop(run_folder: Path) -> None:
    """Take a finished run back to what it was when it was stopped after its first checkpoint."""
    (run_folder / "summary.json").unlink()
    shutil.rmtree(run_folder / "export")
    for path in (*run_folder.glob("checkpoints/step-*"), *run_folder.glob("positions/*")):
        if not path.stem.endswith(f"{commands.STOPPED:08d}"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def write_ablation() -> dict[str, float]:
    """Write an ablation whose second run is missing; return run -> held-out loss of the whole ablation."""
    run(ablate.main, commands.ABLATE)
    runs = {
        json.loads(path.read_text())["identity"]["sampling.masking.share"]: path.parent
        for path in Path("ablation/runs").glob("*/run.json")
    }
    losses = {
        path.name: json.loads((path / "summary.json").read_text())["heldout_after"]["heldout/mlm_loss"]
        for path in runs.values()
    }
    shutil.rmtree(runs[0.3])
    for path in Path("ablation/ablations").glob("over-*/*"):
        if path.name != "mlflow.json":
            path.unlink()
    return losses


def write_models() -> dict[str, Any]:
    """Write a grid of which one trial is done, and models of each kind; return trial of the whole grid -> its scores
    and losses.
    """
    run(finetune.main, commands.GRID)
    trials = {path.parent: json.loads(path.read_text()) for path in Path("output/finetune").glob("*/result.json")}
    Path("models").mkdir()
    for task, words in commands.TUNINGS.items():
        run(finetune.main, words)
        (model,) = Path("output/finetune").glob(f"{task}-*/model")
        shutil.move(model, f"models/{task}")
        shutil.rmtree(model.parent)
    (model,) = Path("output/finetune").glob("moods-*/model")
    shutil.move(model, "models/moods")
    selecting = sorted(path for path, result in trials.items() if result["stage"] == "select")
    for path in trials.keys() - {selecting[0]}:
        shutil.rmtree(path)
    return {path.name: {"scores": result["scores"], "curve": result["curve"]} for path, result in trials.items()}


def write_trial() -> dict[str, Any]:
    """Write a trial with a low-rank adapter that was stopped after a checkpoint; return scores and losses of a whole
    one.
    """
    inputs = read_inputs(
        with_absolute_locations(Command(prog="", about="", settings=Finetune).read(commands.LOW_RANK)), print
    )
    (problem,) = inputs.problems.values()
    trial = make_trial(inputs.config, problem, inputs.initial, 0, {}, "report")
    whole = load_or_train(trial, problem, inputs.initial)
    shutil.rmtree(trial.folder)

    def stop(epoch: int, scores: Any) -> None:
        if epoch == commands.DONE_EPOCHS:
            raise KeyboardInterrupt

    checkpoints = partial(TrialCheckpoints, seconds=0.0, share=1e9)
    with patch("pipeline.finetune.trials.TrialCheckpoints", checkpoints), suppress(KeyboardInterrupt):
        load_or_train(trial, problem, inputs.initial, stop)
    return {"scores": whole["scores"], "curve": whole["curve"]}


def write_parts() -> list[dict[str, Any]]:
    """Write vectors with their index, and the first parts of predictions and vectors; return all predictions."""
    without_ray = patch("pipeline.predict.running.reason_for_ray", lambda *_: None)
    with without_ray:
        run(embed.main, commands.VECTORS)
        run(predict.main, commands.PREDICT)
    run(search.main, [*commands.SEARCH, sentence(3)])
    Path("found.jsonl").unlink()
    predictions = [json.loads(line) for line in Path("answers.jsonl").read_text().splitlines()]
    for path in Path().glob("answers.jsonl*"):
        path.unlink()
    with without_ray, patch.object(PartsWork, "missing_files", first_file_alone):
        assert embed.main(commands.STOPPED_VECTORS) == predict.main(commands.PREDICT) == STOPPED_BY_USER
    return predictions


def first_file_alone(work: PartsWork) -> Iterator[int]:
    """Yield the first file, and then stop the job."""
    yield 0
    raise KeyboardInterrupt


def clean() -> None:
    """Keep MLflow's models, without its stores, and no locks."""
    for code, name in (("served.py", "mlflow-run"), ("served_task.py", "mlflow-task")):
        (path,) = Path("output/mlartifacts/models").glob(f"*/artifacts/{code}")
        about = path.with_name("MLmodel")  # the last name of these places is read, and the others are this machine's
        about.write_text(re.sub(r"(?m)^( +(?:uri|model_code_path): ).*/", r"\g<1>/kept/gone/", about.read_text()))
        shutil.move(path.parent, name)
    for folder in ("output", "ablation"):
        for name in ("mlartifacts", "ray"):
            shutil.rmtree(f"{folder}/{name}", ignore_errors=True)
        Path(folder, "mlflow.db").unlink()
    for path in [*Path().rglob("*.lock"), *Path().rglob(".*lock*")]:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir()
    make(target)
