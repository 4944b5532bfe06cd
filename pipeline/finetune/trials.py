"""Trials: what makes one what it is, its name, its training, and its result on disk.

OUTPUT/finetune/TASK-seedN-DIGEST/
    checkpoints/     of a trial of more than some minutes, as long as it has no result
    model/           the fine-tuned model, where it is asked for
    stopped.json     of a trial that a search with early stopping ended
    result.json      published last: its presence means done
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from pipeline import storage
from pipeline.config.adapters import Bottleneck, NoAdapter
from pipeline.config.finetune import Finetune
from pipeline.config.flat import flatten
from pipeline.config.training import ModelPlacement
from pipeline.errors import DataError
from pipeline.export.tuned_card import tuned_files
from pipeline.finetune.facts import training_facts
from pipeline.finetune.problems import Problem
from pipeline.model.adapters import add_adapter, freeze
from pipeline.model.encoder import Encoder
from pipeline.model.gpu import gpu_of, supports_matmul
from pipeline.objectives.tasks import OBJECTIVES, TaskObjective
from pipeline.tasks.task import Task
from pipeline.train.checkpoint import steps_saved
from pipeline.train.hardware import cores
from pipeline.train.initial import Initial, build_initial_module
from pipeline.train.precision import autocast_of, chosen_precision
from pipeline.train.step import Compute
from pipeline.train.trial import assist_trial, class_weights, label_mean_and_deviation, load_encoder, run_trial
from pipeline.train.trial_state import Scores, TrialCheckpoints, delete_checkpoints
from pipeline.train.tuned import About, save_tuned

NARROWER = ("bfloat16", "tf32")
"""Number formats of training that lose digits of float32."""
RESULT, MODEL, STOPPED = "result.json", "model", "stopped.json"
NARROW = 128
"""Width up to which float32 is faster on a CPU: a step of bert-tiny on SST-2 takes 22 ms and 41 in bfloat16, of bert-mini 87 and 70."""
SHAPING = ("recipe", "vocabulary", "optimizer", "schedule", "freeze", "adapter", "random_weights")
"""Settings that, with the encoder, the rows, the cutting and the seed, make a trial what it is."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One training: a problem, a setting and a seed."""

    problem: str
    config: Finetune
    seed: int
    name: str
    """TASK-seedN-DIGEST."""
    chosen: dict[str, Any]
    """The settings that are searched, by dotted name."""
    stage: str
    """select, report, or fold, which reports and keeps no model."""
    metric: str = ""
    """The one that selects."""

    @property
    def folder(self) -> str:
        return storage.join(storage.absolute(self.config.output), "finetune", self.name)


def make_trial(
    config: Finetune, problem: Problem, initial: Initial, seed: int, chosen: dict[str, Any], stage: str
) -> Trial:
    """The trial of a setting and seed; equal ones have equal names."""
    identity = identity_of(config, problem, initial, seed)
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
    name, metric = f"{problem.task.name}-seed{seed}-{digest}", problem.task.metrics[0]
    return Trial(
        problem=problem.task.name, config=config, seed=seed, name=name, chosen=chosen, stage=stage, metric=metric
    )


def identity_of(config: Finetune, problem: Problem, initial: Initial, seed: int) -> dict[str, Any]:
    """What makes a trial what it is."""
    shaping = {
        key: value for key, value in flatten(config).items() if key.split(".")[0] in SHAPING and key != "recipe.metric"
    }  # the task's metrics say it
    cutting = {f"cutting.{key}": value for key, value in vars(problem.cutting).items()}
    shaping |= {"standardised": True} if standardises(config, problem.task) else {}
    return (
        shaping
        | cutting
        | {
            "encoder": initial.fingerprint,
            "vocabulary": initial.vocabulary.fingerprint,
            "seed": seed,
            "rows": problem.digest,
        }
        | task_identity(problem.task)
        | {"precision": precision_of(config.placement, initial.model.width, device_of(config))}
    )


def task_identity(task: Task) -> dict[str, Any]:
    """What of a task shapes its trials: its kind, its labels by their names and order, its metrics."""
    return {
        "task": task.name,
        "kind": task.kind,
        "labels": list(task.labels),
        "metrics": list(task.metrics),
        "unanswerable": task.unanswerable,
    }


def result_of(trial: Trial) -> dict[str, Any] | None:
    """A finished trial's result; None where there is none yet, or a damaged one."""
    return record_of(trial, RESULT, ("scores",))


def record_of(trial: Trial, name: str, wanted: Sequence[str]) -> dict[str, Any] | None:
    """A JSON object of a trial's folder with these keys; None where there is none. Raises DataError where its storage does not let it be read."""
    place = storage.join(trial.folder, name)
    try:
        value = storage.read_json(place)
    except (FileNotFoundError, ValueError):
        return None
    except OSError as error:
        raise DataError(
            f"{place} cannot be read ({storage.first_line(error)}): give access to it, or delete it to train the trial again"
        ) from error
    return value if isinstance(value, dict) and all(key in value for key in wanted) else None


def is_damaged(trial: Trial) -> bool:
    """Whether a trial's result is there and says nothing."""
    return storage.exists(storage.join(trial.folder, RESULT)) and result_of(trial) is None


def has_model(trial: Trial) -> bool:
    """Whether a trial's model is there, whole."""
    return storage.exists(storage.join(trial.folder, MODEL, storage.MANIFEST))


def kept_step(trial: Trial) -> int | None:
    """The last step whose state a trial that was killed has kept; None where it has none."""
    return max(steps_saved(trial.folder), default=None)


def stopped_of(trial: Trial) -> dict[str, Any] | None:
    """What is known of a trial that a search ended early; None where none did. It is no result of the trial."""
    return record_of(trial, STOPPED, ("score", "stopped_after_epoch"))


def build(
    config: Finetune, problem: Problem, initial: Initial, seed: int, encoder: Encoder | None = None
) -> TaskObjective:
    """The module that a trial trains, on the CPU: the encoder (or one of its sizes at random) and a head drawn by the seed.

    `encoder`: one in memory, which is copied; None: that of `initial`, read from its folder.
    """
    dropout = (
        {}
        if config.recipe.dropout is None
        else {"hidden_dropout": config.recipe.dropout, "attention_dropout": config.recipe.dropout}
    )
    model, random = replace(initial.model, **dropout), torch.Generator().manual_seed(seed)
    weights = class_weights(problem.task, problem.train.rows) if config.recipe.balance_classes else None
    torch.manual_seed(seed)  # of parts that a checkpoint lacks
    module = OBJECTIVES[problem.task.kind](
        model, initial.vocabulary.size, len(problem.task.labels), random, config.recipe.pooling, weights
    )
    if not config.random_weights:
        load_encoder(encoder or build_initial_module(initial, model).encoder, module)
    if not isinstance(config.adapter, NoAdapter):
        add_adapter(module, config.adapter, random)
    if standardises(config, problem.task):
        module.learn_standardised(*label_mean_and_deviation(problem.train.rows))
    module.encoder.recompute = config.placement.recompute
    freeze(module, config.freeze.layers, config.freeze.embeddings)
    return module


def standardises(config: Finetune, task: Task) -> bool:
    """Whether a trial learns values by their deviations from the mean: those of own files, which may measure anything; the published tasks are learnt as published."""
    return task.kind == "regression" and config.train is not None


def precision_of(placement: ModelPlacement, width: int, device: torch.device) -> str:
    """The number format in which a model is fine-tuned and used: as pretraining's, but for float32 where a narrow model's few tokens on a CPU gain nothing from bfloat16."""
    narrow = placement.precision == "auto" and device.type == "cpu" and width <= NARROW
    return "float32" if narrow else chosen_precision(placement, device)


def answer_precision(placement: ModelPlacement, trained: str | None, device: torch.device) -> str:
    """The number format in which a model answers: as asked for, else float32 on a CPU, and on a GPU as it was trained.

    Float32 too where `trained` is not known (None), or is a format that the GPU does not multiply in.
    """
    if placement.precision != "auto":
        return chosen_precision(placement, device)
    if device.type == "cpu" or trained not in NARROWER or not supports_matmul(gpu_of(device), trained):
        return "float32"
    return trained


def autocast_for(placement: ModelPlacement, width: int, device: torch.device) -> torch.autocast:
    """The same as a context."""
    return autocast_of(precision_of(placement, width, device), device)


def device_of(config: Finetune) -> torch.device:
    """The GPU that this process sees, unless the CPU or no share of a GPU is asked for."""
    wanted = config.placement.device != "cpu" and config.trials.gpus != 0
    return torch.device("cuda" if wanted and torch.cuda.is_available() else "cpu")


def load_or_train(
    trial: Trial,
    problem: Problem,
    initial: Initial,
    after_epoch: Callable[[int, Scores], None] = lambda epoch, scores: None,
    workers: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> dict[str, Any]:
    """The trial's result: read where it is there, else trained, and published after its model. Where another job of this machine is at the same trial, its result is waited for.

    `workers`: a context in which the trial's other workers train, and this process is rank 0 of their group.
    """
    with storage.locked(trial.folder, wait=True):
        if (found := result_of(trial)) is not None and (trial.stage != "report" or has_model(trial)):
            delete_checkpoints(trial.folder)
            return found
        return train(trial, problem, initial, after_epoch, workers)


def assist(trial: Trial, problem: Problem, initial: Initial, rank: int) -> None:
    """Train one rank's part of a trial whose rank 0 is in `load_or_train`."""
    config, device = trial.config, device_of(trial.config)
    set_threads(config)
    compute = Compute(
        device=device,
        autocast=autocast_for(config.placement, initial.model.width, device),
        seed=trial.seed,
        rank=rank,
        world=config.trials.workers,
    )
    module = build(config, problem, initial, trial.seed).to(device)
    assist_trial(config, module, problem.train, compute, TrialCheckpoints(trial.folder))


def set_threads(config: Finetune) -> None:
    """Give torch the threads that a worker of a trial may use."""
    torch.set_num_threads(config.placement.threads or max(1, min(cores(), round(config.trials.cpus))))


def train(
    trial: Trial,
    problem: Problem,
    initial: Initial,
    after_epoch: Callable[[int, Scores], None],
    workers: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> dict[str, Any]:
    """The result of training it."""
    config, device, checkpoints = trial.config, device_of(trial.config), TrialCheckpoints(trial.folder)
    set_threads(config)
    module = build(config, problem, initial, trial.seed).to(device)
    with workers():
        came_to = run_trial(
            config,
            problem.task,
            problem.cutting,
            module,
            problem.train,
            problem.splits,
            seed=trial.seed,
            device=device,
            autocast=autocast_for(config.placement, initial.model.width, device),
            after_epoch=after_epoch,
            checkpoints=checkpoints,
            world=config.trials.workers,
        )
    result = vars(came_to) | {
        "settings": identity_of(config, problem, initial, trial.seed),
        "chosen": trial.chosen,
        "stage": trial.stage,
    }
    if trial.stage == "report":
        lineage = {"encoder": initial.fingerprint, "trial": trial.name, "chosen": trial.chosen}
        lineage |= {"precision": precision_of(config.placement, initial.model.width, device)}
        lineage |= training_facts(config, problem, trial.seed, came_to)
        said = About(
            task=problem.task,
            cutting=problem.cutting,
            pooling=config.recipe.pooling,
            tuned=came_to.tuned,
            lineage=lineage,
        )
        beside = tuned_files(said, initial.model, plain=not isinstance(config.adapter, Bottleneck))
        save_tuned(
            storage.join(trial.folder, MODEL),
            module.cpu(),
            said,
            initial.model,
            initial.vocabulary,
            config.adapter,
            beside,
        )
    storage.write_json(storage.join(trial.folder, RESULT), result)
    checkpoints.delete()
    return result
