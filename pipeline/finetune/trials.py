"""Trials: identity, name, training and stored result.

OUTPUT/finetune/TASK-seedN-DIGEST/
    checkpoints/     of a trial that takes more than a few minutes, until it has a result
    model/           the fine-tuned model, if it is kept
    stopped.json     of a trial that a search stopped early
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
from pipeline.config.model import Model
from pipeline.config.placement import ModelPlacement
from pipeline.errors import DataError
from pipeline.export.tuned_card import tuned_files
from pipeline.finetune.facts import training_facts
from pipeline.finetune.problems import Problem
from pipeline.locks import locked
from pipeline.model.adapters import add_adapter, freeze
from pipeline.model.encoder import Encoder
from pipeline.model.gpu import gpu_of, supports_matmul
from pipeline.objectives.masked import MaskedTokens
from pipeline.objectives.tasks import OBJECTIVES, TaskObjective
from pipeline.tasks.task import Task
from pipeline.train.checkpoint import steps_saved
from pipeline.train.hardware import autocast_of, chosen_precision, cores, device_of
from pipeline.train.initial import Initial, load_initial
from pipeline.train.step import Compute
from pipeline.train.trial import assist_trial, class_weights, label_mean_and_deviation, load_encoder, run_trial
from pipeline.train.trial_state import Scores, TrialCheckpoints, delete_checkpoints
from pipeline.train.tuned import About, save_tuned

NARROWER = ("bfloat16", "tf32")
"""Training number formats with fewer digits than float32."""
RESULT, MODEL, STOPPED = "result.json", "model", "stopped.json"
NARROW = 128
"""Width up to which float32 is faster on a CPU: bert-tiny on SST-2 takes 22 ms per step, and 41 in bfloat16; bert-mini
87 and 70.
"""
SHAPING = ("recipe", "vocabulary", "optimizer", "schedule", "freeze", "adapter", "random_weights")
"""Settings that define a trial, together with the encoder, rows, cutting and seed."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One training run of a problem with a setting and a seed."""

    problem: str
    config: Finetune
    seed: int
    name: str
    """TASK-seedN-DIGEST."""
    chosen: dict[str, Any]
    """The searched settings, by dotted name."""
    stage: str
    """select, report, or fold (reports without keeping a model)."""
    metric: str = ""
    """The metric that selects."""

    @property
    def folder(self) -> str:
        return storage.join(self.config.output, "finetune", self.name)


def make_trial(
    config: Finetune, problem: Problem, initial: Initial, seed: int, chosen: dict[str, Any], stage: str
) -> Trial:
    """Return the trial of a setting and seed; equal trials have equal names."""
    identity = identity_of(config, problem, initial, seed)
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
    name, metric = f"{problem.task.name}-seed{seed}-{digest}", problem.task.metrics[0]
    return Trial(
        problem=problem.task.name, config=config, seed=seed, name=name, chosen=chosen, stage=stage, metric=metric
    )


def identity_of(config: Finetune, problem: Problem, initial: Initial, seed: int) -> dict[str, Any]:
    """Return everything that defines a trial."""
    device = device_of(config.placement, config.trials.gpus)
    shaping = {
        key: value for key, value in flatten(config).items() if key.split(".")[0] in SHAPING and key != "recipe.metric"
    }  # the task's metrics say it
    cutting = {f"cutting.{key}": value for key, value in vars(problem.cutting).items()}
    shaping |= {"standardised": True} if _standardises(config, problem.task) else {}
    return (
        shaping
        | cutting
        | {
            "encoder": initial.fingerprint,
            "vocabulary": initial.vocabulary.fingerprint,
            "seed": seed,
            "rows": problem.digest,
        }
        | _task_identity(problem.task)
        | {"precision": precision_of(config.placement, initial.model.width, device)}
    )


def _task_identity(task: Task) -> dict[str, Any]:
    """Return the task properties that define its trials: kind, labels in order, metrics."""
    return {
        "task": task.name,
        "kind": task.kind,
        "labels": list(task.labels),
        "metrics": list(task.metrics),
        "unanswerable": task.unanswerable,
    }


def result_of(trial: Trial) -> dict[str, Any] | None:
    """Return a finished trial's result; None if there is none or it is damaged."""
    return _record_of(trial, RESULT, ("scores",))


def _record_of(trial: Trial, name: str, wanted: Sequence[str]) -> dict[str, Any] | None:
    """Return a JSON object with these keys from a trial's folder; None if there is none.

    Raises DataError if its storage cannot be read.
    """
    location = storage.join(trial.folder, name)
    try:
        value = storage.read_json(location)
    except (FileNotFoundError, ValueError):
        return None
    except OSError as error:
        raise DataError(
            f"{location} cannot be read ({storage.first_line(error)}): give access to it, or delete it to train the "
            "trial again"
        ) from error
    return value if isinstance(value, dict) and all(key in value for key in wanted) else None


def is_damaged(trial: Trial) -> bool:
    """Return whether a trial has a result file that is unusable."""
    return storage.exists(storage.join(trial.folder, RESULT)) and result_of(trial) is None


def has_model(trial: Trial) -> bool:
    """Return whether a trial's model exists and is complete."""
    return storage.exists(storage.join(trial.folder, MODEL, storage.MANIFEST))


def kept_step(trial: Trial) -> int | None:
    """Return the last step with a checkpoint of an interrupted trial; None if there is none."""
    return max(steps_saved(trial.folder), default=None)


def stopped_of(trial: Trial) -> dict[str, Any] | None:
    """Return the record of a trial that a search stopped early; None if there is none.

    It is not a result of the trial.
    """
    return _record_of(trial, STOPPED, ("score", "stopped_after_epoch"))


def build(
    config: Finetune, problem: Problem, initial: Initial, seed: int, encoder: Encoder | None = None
) -> TaskObjective:
    """Return the module that a trial trains, on the CPU: the encoder (or a random one of its size) and a head
    initialised from the seed.

    `encoder`: one in memory, which is copied; None: that of `initial`, read from its folder.
    """
    dropout = (
        {}
        if config.recipe.dropout is None
        else {"hidden_dropout": config.recipe.dropout, "attention_dropout": config.recipe.dropout}
    )
    model, random = replace(initial.model, **dropout), torch.Generator().manual_seed(seed)
    weights = class_weights(problem.task, problem.train.rows) if config.recipe.balance_classes else None
    torch.manual_seed(seed)  # seeds parts that the checkpoint lacks
    module = OBJECTIVES[problem.task.kind](
        model, initial.vocabulary.size, len(problem.task.labels), random, config.recipe.pooling, weights
    )
    if not config.random_weights:
        load_encoder(encoder or _pretrained_encoder(initial, model), module)
    if not isinstance(config.adapter, NoAdapter):
        add_adapter(module, config.adapter, random)
    if _standardises(config, problem.task):
        module.learn_standardised(*label_mean_and_deviation(problem.train.rows))
    module.encoder.recompute = config.placement.recompute
    freeze(module, config.freeze.layers, config.freeze.embeddings)
    return module


def _pretrained_encoder(initial: Initial, model: Model) -> Encoder:
    """Return a checkpoint's encoder; a pooler that it lacks is initialised from torch's global generator."""
    module = MaskedTokens(model, initial.vocabulary.size)
    load_initial(initial, module)
    return module.encoder


def _standardises(config: Finetune, task: Task) -> bool:
    """Return whether a trial standardises its regression values: only for the user's own files, whose scale may be
    anything; published tasks are learnt unscaled.
    """
    return task.kind == "regression" and config.train is not None


def precision_of(placement: ModelPlacement, width: int, device: torch.device) -> str:
    """Return the number format for fine-tuning and using a model: as in pretraining, but float32 for narrow models on a
    CPU, which gain nothing from bfloat16.
    """
    narrow = placement.precision == "auto" and device.type == "cpu" and width <= NARROW
    return "float32" if narrow else chosen_precision(placement, device)


def answer_precision(placement: ModelPlacement, trained: str | None, device: torch.device) -> str:
    """Return the number format for answers: as requested, else float32 on a CPU, and on a GPU the training format.

    Also float32 if `trained` is unknown (None) or the GPU does not support it.
    """
    if placement.precision != "auto":
        return chosen_precision(placement, device)
    if device.type == "cpu" or trained not in NARROWER or not supports_matmul(gpu_of(device), trained):
        return "float32"
    return trained


def autocast_for(placement: ModelPlacement, width: int, device: torch.device) -> torch.autocast:
    """Return `precision_of` as an autocast context."""
    return autocast_of(precision_of(placement, width, device), device)


def load_or_train(
    trial: Trial,
    problem: Problem,
    initial: Initial,
    after_epoch: Callable[[int, Scores], None] = lambda epoch, scores: None,
    workers: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> dict[str, Any]:
    """Return the trial's result: the stored one, or after training, published after its model.

    Waits if another job on this machine runs the same trial.
    """
    with locked(trial.folder, wait=True):
        if (result := result_of(trial)) is not None and (trial.stage != "report" or has_model(trial)):
            delete_checkpoints(trial.folder)
            return result
        return _train(trial, problem, initial, after_epoch, workers)


def assist(trial: Trial, problem: Problem, initial: Initial, rank: int) -> None:
    """Train one rank's part of a trial whose rank 0 is in `load_or_train`."""
    config = trial.config
    device = device_of(config.placement, config.trials.gpus)
    _set_threads(config)
    compute = Compute(
        device=device,
        autocast=autocast_for(config.placement, initial.model.width, device),
        seed=trial.seed,
        rank=rank,
        world=config.trials.workers,
    )
    module = build(config, problem, initial, trial.seed).to(device)
    assist_trial(config, module, problem.train, compute, TrialCheckpoints(trial.folder))


def _set_threads(config: Finetune) -> None:
    """Give torch the threads that a worker of a trial may use."""
    torch.set_num_threads(config.placement.threads or max(1, min(cores(), round(config.trials.cpus))))


def _train(
    trial: Trial,
    problem: Problem,
    initial: Initial,
    after_epoch: Callable[[int, Scores], None],
    workers: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> dict[str, Any]:
    """Train a trial, store its result and return it."""
    config, checkpoints = trial.config, TrialCheckpoints(trial.folder)
    device = device_of(config.placement, config.trials.gpus)
    _set_threads(config)
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
