"""Identify and name trials (a trial is one training with one seed), train them, and store their results.

OUTPUT/finetune/TASK-seedN-DIGEST/
    checkpoints/     only if the trial takes more than a few minutes, and only until its result is written
    model/           the fine-tuned model, if the trial keeps its model
    stopped.json     only if a search stopped the trial early
    result.json      written last: if it exists, the trial is done
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from pipeline.config.adapters import Bottleneck, NoAdapter
from pipeline.config.finetune import Finetune
from pipeline.config.flat import flatten
from pipeline.config.model import Model
from pipeline.config.model_parts import BucketedAttention, DisentangledAttention
from pipeline.config.placement import ModelPlacement
from pipeline.config.recipe import DISTILLED
from pipeline.errors import DataError
from pipeline.export.tuned_card import tuned_files
from pipeline.files import storage
from pipeline.files.locks import locked
from pipeline.fine_tuned.tuned import About, save_tuned
from pipeline.finetune.facts import teacher_facts, training_facts
from pipeline.finetune.kinds import TRAINING
from pipeline.finetune.problems import Problem
from pipeline.finetune.trial import assist_trial, load_encoder, run_trial
from pipeline.finetune.trial_rows import class_weights, label_mean_and_deviation
from pipeline.finetune.trial_state import Scores, TrialCheckpoints, delete_checkpoints
from pipeline.model.adapters import add_adapter, freeze
from pipeline.model.encoder import Encoder
from pipeline.objectives.masked import MaskedTokens
from pipeline.objectives.tasks import TASK_MODULES, TaskObjective
from pipeline.saved.checkpoints import steps_saved
from pipeline.saved.naming import is_unrecorded
from pipeline.tasks.kinds import KINDS, saved_task
from pipeline.tasks.prepared import outputs_of
from pipeline.tasks.task import Task
from pipeline.train.hardware import autocast_of, chosen_precision, cores, device_of
from pipeline.train.initial import Initial, load_initial
from pipeline.train.step import StepContext

RESULT, MODEL, STOPPED = "result.json", "model", "stopped.json"
IN_FILE = {"thresholds": "tuned"}
"""Field of TrialResult -> its key in result.json, where they differ."""
NARROW = 128
"""Encoder width up to which float32 is faster than bfloat16 on a CPU.

Measured times per step on SST-2: bert-tiny (width 128) takes 22 ms in float32 and 41 ms in bfloat16; bert-mini (width
256) takes 87 ms in float32 and 70 ms in bfloat16.
"""
SHAPING = ("recipe", "vocabulary", "optimizer", "schedule", "freeze", "adapter", "random_weights")
"""Groups of settings that define a trial, with those of its kind of task. Its encoder, rows, cutting (truncation
settings) and seed define it too: see `identity_of`.
"""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One training run of a problem with a setting and a seed."""

    problem: str
    config: Finetune
    seed: int
    name: str
    """TASK-seedN-DIGEST."""
    chosen: dict[str, Any]
    """Values of the searched settings, by dotted name."""
    stage: str
    """Purpose of the trial.

    select: help to select a setting. report: score the selected setting, and keep the model. fold: score the selected
    setting on a fold, and keep no model.
    """
    metric: str = ""
    """Metric that selects settings and models."""

    @property
    def folder(self) -> str:
        return storage.join(self.config.output, "finetune", self.name)


def make_trial(
    config: Finetune, problem: Problem, initial: Initial, seed: int, chosen: dict[str, Any], stage: str
) -> Trial:
    """Return the trial of a setting and seed. Its name has a digest of `identity_of`, so equal trials share a name."""
    identity = identity_of(config, problem, initial, seed)
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
    name, metric = f"{problem.task.name}-seed{seed}-{digest}", problem.task.metrics[0]
    return Trial(
        problem=problem.task.name, config=config, seed=seed, name=name, chosen=chosen, stage=stage, metric=metric
    )


def identity_of(config: Finetune, problem: Problem, initial: Initial, seed: int) -> dict[str, Any]:
    """Return, as JSON values, everything that defines a trial: two trials with equal values are the same trial."""
    device = device_of(config.placement, config.trials.gpus)
    # recipe.metric is left out: _task_identity already contains it, as the task's first metric.
    without = ("recipe.metric", *(DISTILLED if problem.teacher is None else ()))
    groups = (*SHAPING, *TRAINING[problem.task.kind].groups)
    shaping = {
        key: value
        for key, value in flatten(config).items()
        if key.split(".")[0] in groups and key not in without and not is_unrecorded(key, value)
    }
    cutting = {f"cutting.{key}": value for key, value in vars(problem.cutting).items()}
    cutting = {key: value for key, value in cutting.items() if not is_unrecorded(key, value)}
    shaping |= {"standardised": True} if _standardises(config, problem.task) else {}
    sampled = config.recipe.training_rows is not None or config.recipe.rows_per_class is not None
    shaping |= {"whole_texts": True} if sampled and problem.cutting.passages else {}  # earlier: single passages
    shaping |= {"freezes_all": True} if _freezes_more(config, initial.model) else {}
    if problem.teacher is not None:
        shaping |= {"teacher": problem.teacher.fingerprint, "unlabelled": problem.teacher.unlabelled}
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


def _freezes_more(config: Finetune, model: Model) -> bool:
    """Return whether earlier versions trained DeBERTa's relative embeddings or a final LayerNorm otherwise."""
    adapts, all_layers = not isinstance(config.adapter, NoAdapter), config.freeze.layers == model.layers
    decays = config.optimizer.layer_decay not in (None, 1)
    relative = isinstance(model.attention, DisentangledAttention | BucketedAttention)
    return (model.block == "pre-norm" and (adapts or all_layers)) or (
        relative and (adapts or decays or config.freeze.embeddings)
    )


def _task_identity(task: Task) -> dict[str, Any]:
    """Return the properties of a task that define its trials."""
    return {
        "task": task.name,
        "kind": task.kind,
        "labels": list(task.labels),
        **({"intents": list(task.intents)} if task.intents else {}),
        "metrics": list(task.metrics),
        "unanswerable": task.unanswerable,
    }


def result_of(trial: Trial) -> dict[str, Any] | None:
    """Return the stored result of a trial; None if it is missing or damaged.

    Raises DataError if the storage cannot be read.
    """
    return _record_of(trial, RESULT, ("scores",))


def _record_of(trial: Trial, name: str, wanted: Sequence[str]) -> dict[str, Any] | None:
    """Return the JSON object in the file `name` of a trial's folder; None if it is missing, damaged or lacks a key of
    `wanted`.

    Raises DataError if the storage cannot be read.
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
    """Return whether a trial's result file exists but cannot be used."""
    return storage.exists(storage.join(trial.folder, RESULT)) and result_of(trial) is None


def has_model(trial: Trial) -> bool:
    """Return whether a trial's model is stored completely: its manifest is written last."""
    return storage.exists(storage.join(trial.folder, MODEL, storage.MANIFEST))


def kept_step(trial: Trial) -> int | None:
    """Return the highest step for which a trial has a checkpoint folder; None if it has none."""
    return max(steps_saved(trial.folder), default=None)


def search_of(trials: Sequence[Trial]) -> str:
    """Return a digest of the trials that a search compares with each other."""
    names = sorted({trial.name for trial in trials})
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()[:12]


def stopped_of(trial: Trial, search: str) -> dict[str, Any] | None:
    """Return the record of a trial that the search `search` stopped early; None if this search did not stop the trial.

    A trial that another search stopped was worse than other trials. The record holds only the trial's last score, not a
    full result.
    """
    record = _record_of(trial, STOPPED, ("score", "stopped_after_epoch"))
    return record if record is not None and record.get("search") == search else None


def build(
    config: Finetune, problem: Problem, initial: Initial, seed: int, encoder: Encoder | None = None
) -> TaskObjective:
    """Return the module to train: an encoder, and a head initialised from the seed. The module is on the CPU.

    If config.random_weights is set, the encoder has random weights. Otherwise its weights are copied from `encoder`,
    or read from the folder of `initial` if `encoder` is None.
    """
    hidden, attention = config.recipe.dropouts(initial.model)
    model = replace(initial.model, hidden_dropout=hidden, attention_dropout=attention)
    random = torch.Generator().manual_seed(seed)
    outputs = outputs_of(problem.task, problem.cutting)
    weights = class_weights(problem.task, problem.train.rows, outputs) if config.recipe.balance_classes else None
    torch.manual_seed(seed)  # for parts that the checkpoint lacks, such as a pooler
    pooling, kind = _pooling_of(config, problem.task), TASK_MODULES[problem.task.kind]
    module = kind.build(model, initial.vocabulary.size, outputs, random, pooling, weights)
    if not config.random_weights:
        load_encoder(encoder or _pretrained_encoder(initial, model), module)
    if not isinstance(config.adapter, NoAdapter):
        add_adapter(module, config.adapter, random)
    kind.add_parts(module, problem.task, problem.cutting, config.recipe.crf, random)
    if _standardises(config, problem.task):
        module.learn_standardised(*label_mean_and_deviation(problem.train.rows))
    kind.learn(module, config, problem.train.rows, problem.teacher is not None)
    module.encoder.recompute = config.placement.recompute
    module.encoder.recompute_products = config.placement.recompute_products
    freeze(module, config.freeze.layers, config.freeze.embeddings)
    return module


def _pretrained_encoder(initial: Initial, model: Model) -> Encoder:
    """Return the encoder of `initial`; if `initial` lacks a pooler, torch's global generator initialises the pooler."""
    module = MaskedTokens(model, initial.vocabulary.size)
    load_initial(initial, module)
    return module.encoder


def _standardises(config: Finetune, task: Task) -> bool:
    """Return whether a trial standardises its regression values.

    Values of the user's own file are standardised, because they may have any scale; those of published tasks are not.
    """
    return TASK_MODULES[task.kind].standardises and config.train is not None


def _pooling_of(config: Finetune, task: Task) -> str:
    """Return the pooling of a task's vectors: similarity.pooling if the vectors are what is trained."""
    return config.similarity.pooling if KINDS[task.kind].makes_vectors else config.recipe.pooling


def precision_of(placement: ModelPlacement, width: int, device: torch.device) -> str:
    """Return the number format for fine-tuning.

    The choice is the same as for pretraining, with one exception: on a CPU, `auto` means float32 for models up to width
    NARROW.
    """
    narrow = placement.precision == "auto" and device.type == "cpu" and width <= NARROW
    return "float32" if narrow else chosen_precision(placement, device)


def autocast_for(placement: ModelPlacement, width: int, device: torch.device) -> torch.autocast:
    """Return the autocast context for the number format of `precision_of`."""
    return autocast_of(precision_of(placement, width, device), device)


def load_or_train(
    trial: Trial,
    problem: Problem,
    initial: Initial,
    after_epoch: Callable[[int, Scores], None] = lambda epoch, scores: None,
    workers: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> dict[str, Any]:
    """Return a trial's stored result. If the result or a model that the trial must keep is missing, train first.

    `after_epoch` is called with each epoch (from 1) and its scores. `workers` returns a context in which the other
    workers of the trial train. Waits while another process on this machine runs the same trial.
    """
    with locked(trial.folder, wait=True):
        if (result := result_of(trial)) is not None and (trial.stage != "report" or has_model(trial)):
            delete_checkpoints(trial.folder)
            return result
        return _train(trial, problem, initial, after_epoch, workers)


def assist(trial: Trial, problem: Problem, initial: Initial, rank: int) -> None:
    """Train the slots of one rank of a trial, while rank 0 of the trial is in `load_or_train`."""
    config = trial.config
    device = device_of(config.placement, config.trials.gpus)
    _set_threads(config)
    compute = StepContext(
        device=device,
        autocast=autocast_for(config.placement, initial.model.width, device),
        seed=trial.seed,
        rank=rank,
        world=config.trials.workers,
    )
    module = build(config, problem, initial, trial.seed).to(device)
    unlabelled = problem.unlabelled.rows if problem.unlabelled else None
    assist_trial(config, problem.task, module, problem.train, compute, TrialCheckpoints(trial.folder), unlabelled)


def _set_threads(config: Finetune) -> None:
    """Set torch's number of threads to the number that one worker of a trial may use."""
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
        outcome = run_trial(
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
            unlabelled=problem.unlabelled.rows if problem.unlabelled else None,
        )
    result = {IN_FILE.get(name, name): value for name, value in vars(outcome).items()} | {
        "settings": identity_of(config, problem, initial, trial.seed),
        "chosen": trial.chosen,
        "stage": trial.stage,
    }
    if problem.teacher is not None:
        result["teacher"] = teacher_facts(config, problem)
    if trial.stage == "report":
        lineage = {"encoder": initial.fingerprint, "trial": trial.name, "chosen": trial.chosen}
        lineage |= {"precision": precision_of(config.placement, initial.model.width, device)}
        lineage |= training_facts(config, problem, trial.seed, outcome)
        about = About(
            task=saved_task(problem.task),
            cutting=problem.cutting,
            pooling=_pooling_of(config, problem.task),
            crf=config.recipe.crf,
            thresholds=outcome.thresholds,
            lineage=lineage,
        )
        TASK_MODULES[problem.task.kind].finish(module)
        further_files = tuned_files(about, initial.model, plain=not isinstance(config.adapter, Bottleneck))
        save_tuned(
            storage.join(trial.folder, MODEL),
            module.cpu(),
            about,
            initial.model,
            initial.vocabulary,
            config.adapter,
            further_files,
        )
    storage.write_json(storage.join(trial.folder, RESULT), result)
    checkpoints.delete()
    return result
