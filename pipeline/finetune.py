"""The whole way of fine-tuning: a published encoder -> trials -> results on disk -> a table."""

import hashlib
import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from pipeline import storage
from pipeline.config.finetune import Finetune
from pipeline.config.flat import flatten
from pipeline.config.jobs import Pretrain
from pipeline.errors import CheckpointError, ConfigError
from pipeline.objectives.sequences import SequenceTask
from pipeline.tasks.encoding import encode
from pipeline.tasks.glue import TASKS
from pipeline.tasks.metrics import majority
from pipeline.tasks.tables import left_out, read_split
from pipeline.tasks.task import Task
from pipeline.text.wordpiece import WordPiece
from pipeline.train.initial import Initial, module_of, read_initial
from pipeline.train.trial import run_trial, with_encoder
from pipeline.train.worker import autocast_of, chosen_precision, cores

Report = Callable[[str], None]
RESULT = "result.json"
SHAPING = ("epochs", "rows_per_step", "maximum_length", "vocabulary", "optimizer", "schedule")
"""Settings that, with the encoder, the task and the seed, make a trial what it is."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A task's rows as ids."""

    task: Task
    train: pa.Table
    dev: dict[str, pa.Table]


def finetune(config: Finetune, report: Report) -> dict[str, Any]:
    """Run every trial that has no result yet and give {task: {metric, values, median, majority}}.

    Raises PipelineError in one line for all that the user can fix, before anything is trained.
    """
    names = task_names(config)
    storage.require_writable("output", config.output)
    initial = encoder_of(config, report)
    if config.maximum_length > initial.model.maximum_positions:
        raise ConfigError(f"maximum_length ({config.maximum_length}) must be at most the checkpoint's positions ({initial.model.maximum_positions})")
    wordpiece = WordPiece(initial.vocabulary)
    rows = [read_rows(config, TASKS[name], wordpiece, report) for name in names]
    report(f"{len(rows) * config.seeds} trials: {len(rows)} task{'s' * (len(rows) > 1)} with {config.seeds} seeds each, {config.epochs} epochs")
    found = {}
    for one in rows:
        results = [trial(config, initial, one, seed, report) for seed in range(config.seeds)]
        found[one.task.name] = summary(one, results)
    return found


def encoder_of(config: Finetune, report: Report) -> Initial:
    """The published model that config.checkpoint names. Raises CheckpointError where it cannot be used."""
    try:
        return read_initial(Pretrain(init=config.checkpoint, output=storage.absolute(config.output), vocabulary=config.vocabulary), report)
    except CheckpointError as error:  # read_initial speaks of its own setting
        raise CheckpointError(f"checkpoint {str(error).removeprefix('init ')}") from error


def task_names(config: Finetune) -> list[str]:
    """The tasks asked for, each once; "glue" stands for all whose training file is there. Raises ConfigError for one that does not exist, and for none."""
    trained = {name: task.split("train") for name, task in TASKS.items() if any(split.name == "train" for split in task.splits)}
    there = [name for name, split in trained.items() if storage.exists(storage.join(config.glue, split.file))]
    wanted = [name for given in config.task for name in (there if given == "glue" else [given])]
    if unknown := [name for name in wanted if name not in trained]:
        raise ConfigError(f"task ({', '.join(unknown)}) is none that can be trained: choose of {', '.join(trained)}, or glue for all that are there")
    if not wanted:
        raise ConfigError(f"glue ({config.glue}) has none of the tasks' training files, such as {trained['sst2'].file}: name the folder of the official archives, unpacked")
    return list(dict.fromkeys(wanted))


def read_rows(config: Finetune, task: Task, wordpiece: WordPiece, report: Report) -> Rows:
    """A task's training and development rows; says what was left out and cut."""
    names = ["train", *(split.name for split in task.splits if split.name.startswith("dev"))]
    texts = {name: read_split(task, config.glue, name) for name in names}
    encoded = {name: encode(task, table, wordpiece, config.maximum_length) for name, table in texts.items()}
    for name, table in texts.items():
        lost = left_out(table)
        notes = [f"{encoded[name].cut:,} cut at {config.maximum_length} tokens"] * bool(encoded[name].cut) + [f"{len(lost)} lines left out, the first {lost[0]}" if lost else ""] * bool(lost)
        report(f"{task.name} {name}: {table.num_rows:,} rows" + "".join(f", {note}" for note in notes))
    return Rows(task=task, train=encoded["train"].rows, dev={name: encoded[name].rows for name in names[1:]})


def trial(config: Finetune, initial: Initial, rows: Rows, seed: int, report: Report) -> dict[str, Any]:
    """The result of one task and seed: read where it is there, else trained and published."""
    about = {key: value for key, value in flatten(config).items() if key.split(".")[0] in SHAPING}
    about |= {"encoder": initial.fingerprint, "vocabulary": initial.vocabulary.fingerprint, "task": rows.task.name, "seed": seed, "rows": digest(rows.train)}
    name = f"{rows.task.name}-seed{seed}-{hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:12]}"
    place = storage.join(storage.absolute(config.output), "finetune", name, RESULT)
    if storage.exists(place):
        result = storage.read_json(place)
        report(f"{name}: there already, {scores_line(result)}")
        return result
    device = torch.device("cuda" if config.placement.device != "cpu" and torch.cuda.is_available() else "cpu")
    torch.set_num_threads(config.placement.threads or cores())
    autocast = autocast_of(chosen_precision(config.placement, device), device)
    torch.manual_seed(seed)  # of parts that a checkpoint lacks
    pretrained = module_of(initial, initial.model).encoder
    classes = None if rows.task.kind == "regression" else len(rows.task.labels)
    module = with_encoder(pretrained, SequenceTask(initial.model, initial.vocabulary.size, classes, torch.Generator().manual_seed(seed)))
    result = asdict(run_trial(config, rows.task, module.to(device), rows.train, rows.dev, seed=seed, device=device, autocast=autocast)) | {"settings": about}
    storage.write_json(place, result)
    report(f"{name}: {scores_line(result)} in {result['seconds']:.0f} s")
    return result


def digest(rows: pa.Table) -> str:
    """Of the ids and labels: another file of the same name is another trial."""
    found = hashlib.sha256(np.ascontiguousarray(rows["ids"].combine_chunks().flatten().to_numpy()))
    found.update(np.ascontiguousarray(rows["label"].to_numpy()))
    return found.hexdigest()[:16]


def scores_line(result: dict[str, Any]) -> str:
    """The scores of a trial on one line."""
    return "; ".join(f"{split} " + ", ".join(f"{name} {value:.3f}" for name, value in found.items()) for split, found in result["scores"].items())


def summary(rows: Rows, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Of each development split and metric: values by seed, their median, and what the majority's answer scores."""
    labels = {name: table["label"].to_numpy() for name, table in {"train": rows.train, **rows.dev}.items()}
    found = {}
    for split in rows.dev:
        beside = majority(rows.task, labels["train"], labels[split])
        for metric in rows.task.metrics:
            values = [result["scores"][split][metric] for result in results]
            found[f"{split} {metric}"] = {"values": values, "median": statistics.median(values), "majority": beside[metric]}
    return found


def table(found: dict[str, Any]) -> str:
    """The summary as a table, in percent."""
    lines = [f"{'task':<8}{'dev metric':<28}{'median':>8}{'lowest':>8}{'highest':>8}{'majority':>10}{'seeds':>7}"]
    for task, metrics in found.items():
        for name, one in metrics.items():
            values = [100 * value for value in (one["median"], min(one["values"]), max(one["values"]))]
            lines.append(f"{task:<8}{name:<28}" + "".join(f"{value:>8.1f}" for value in values) + f"{100 * one['majority']:>10.1f}{len(one['values']):>7}")
    return "\n".join(lines)
