"""Read a grid's encoder, tasks and settings, and refuse combinations that do not fit together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline import storage
from pipeline.config.adapters import Bottleneck, LowRank
from pipeline.config.finetune import Cutting, Finetune, Recipe, Similarity
from pipeline.errors import ConfigError
from pipeline.finetune.encoder import read_encoder
from pipeline.finetune.problems import Problem, in_cuttings, read_problems
from pipeline.finetune.settings import settings_of, with_setting
from pipeline.finetune.teacher import load_teacher, teacher_of, with_teacher
from pipeline.finetune.unlabelled import for_problem, read_unlabelled
from pipeline.grid.testing import require_readable
from pipeline.grid.trial_set import STARTED, first_of_each
from pipeline.reporting import Report
from pipeline.tasks.own import with_pair_columns
from pipeline.train.initial import Initial
from pipeline.train.tuned import ADAPTERS, TunedModel

WEIGHTED = ("classification", "tags")
"""Kinds of task whose loss can weight classes."""


@dataclass(frozen=True, kw_only=True)
class GridInputs:
    """Checked inputs of a grid (all trials of a fine-tuning job): encoder, tasks, and the settings to try."""

    config: Finetune
    initial: Initial
    settings: list[dict[str, Any]]
    cuttings: dict[str, dict[Cutting, Problem]]
    """Name of a problem -> cutting (truncation settings) to try -> the problem, encoded with this cutting."""
    teacher: TunedModel | None = None
    """Model of config.teacher; its logits are not yet in the problems."""

    @property
    def problems(self) -> dict[str, Problem]:
        """Name of a problem -> the problem, encoded with the first cutting."""
        return first_of_each(self.cuttings)


def read_inputs(config: Finetune, report: Report) -> GridInputs:
    """Read everything that the trials need. Raises PipelineError for inputs or settings that the user must fix."""
    config, settings = with_pair_columns(config), settings_of(config)
    storage.require_writable("output", config.output)
    initial = read_encoder(config, config.checkpoint, report)
    config = config.for_model(initial.model)
    tried = [with_setting(config, setting).cutting for setting in settings]
    problems = {
        problem.task.name: problem for problem in read_problems(replace(config, cutting=tried[0]), initial, report)
    }
    _require_start(config, problems)
    _require_fitting(config, settings, initial, problems)
    for problem in problems.values():
        require_readable(config, problem.task)
    cuttings = {name: in_cuttings(problem, tried, initial, report) for name, problem in problems.items()}
    inputs = GridInputs(config=config, initial=initial, settings=settings, cuttings=cuttings)
    return inputs if config.teacher is None else _with_teacher(inputs, config.teacher, report)


def _with_teacher(inputs: GridInputs, location: str, report: Report) -> GridInputs:
    """Add the teacher, and the unlabelled texts that the teacher will answer, to each problem; return the new inputs.

    Raises PipelineError if the teacher or the unlabelled texts do not fit a problem.
    """
    config, tuned, cuttings = inputs.config, load_teacher(location), {}
    teachers = {name: teacher_of(config, problem, tuned) for name, problem in inputs.problems.items()}
    texts = read_unlabelled(config, report) if config.unlabelled else None
    for name, variants in inputs.cuttings.items():
        kept = None if texts is None else for_problem(config, inputs.problems[name], texts, report)
        cuttings[name] = {
            cutting: with_teacher(problem, teachers[name], kept, inputs.initial.vocabulary)
            for cutting, problem in variants.items()
        }
    return replace(inputs, cuttings=cuttings, teacher=tuned)


def _require_fitting(
    config: Finetune, settings: Sequence[dict[str, Any]], initial: Initial, problems: Mapping[str, Problem]
) -> None:
    """Raise ConfigError for settings that do not fit the checkpoint or the tasks."""
    for tried_config in (with_setting(config, setting) for setting in settings):
        tried_config.for_workers()  # raises ConfigError if a worker would have no rows
        if config.start_from and (isinstance(tried_config.adapter, Bottleneck) or config.random_weights):
            raise ConfigError(
                f"start_from ({config.start_from}) passes a whole encoder to other tasks: leave out "
                f"{'random_weights' if config.random_weights else 'adapter:bottleneck'}"
            )
        if tried_config.freeze.layers > initial.model.layers:
            raise ConfigError(
                f"freeze.layers ({tried_config.freeze.layers}) must be at most the checkpoint's layers "
                f"({initial.model.layers})"
            )
        tried_config.for_model(initial.model)  # raises ConfigError for settings that treat shared layers unequally
        odd = [name for name, problem in problems.items() if problem.task.kind not in WEIGHTED]
        if tried_config.recipe.balance_classes and odd:
            raise ConfigError(
                f"recipe.balance_classes (True) is for {' and '.join(WEIGHTED)}, but {', '.join(odd)} is "
                f"{problems[odd[0]].task.kind}: leave the setting out"
            )
        for name, problem in problems.items():
            if problem.task.kind == "similarity":
                _require_similarity(tried_config, name, initial.model.layers)
        _require_use_of_similarity(tried_config, problems)
    if storage.exists(storage.join(config.checkpoint, ADAPTERS)):
        raise ConfigError(
            f"checkpoint ({config.checkpoint}) has bottleneck adapters, which cannot be fine-tuned again: "
            "choose another checkpoint"
        )


def _require_use_of_similarity(config: Finetune, problems: Mapping[str, Problem]) -> None:
    """Raise ConfigError for settings of similarity if no task is of that kind."""
    changed = [name for name, value in vars(config.similarity).items() if value != getattr(Similarity, name)]
    if changed and all(problem.task.kind != "similarity" for problem in problems.values()):
        tasks = ", ".join(f"{name} is of kind {problem.task.kind}" for name, problem in problems.items())
        raise ConfigError(
            f"similarity.{changed[0]} ({getattr(config.similarity, changed[0])}) is for kind similarity, but {tasks}: "
            "leave the setting out, or give --kind similarity"
        )


def _require_similarity(config: Finetune, name: str, layers: int) -> None:
    """Raise ConfigError for settings that do not fit a task of kind similarity.

    `layers` is the checkpoint's number of layers.
    """
    recipe, freeze = config.recipe, config.freeze
    if freeze.layers == layers and (freeze.embeddings or isinstance(config.adapter, LowRank)):
        frozen = f"freeze.layers ({layers})" + f" and freeze.embeddings ({freeze.embeddings})" * freeze.embeddings
        raise ConfigError(
            f"{frozen} leave nothing to train, because {name} is of kind similarity and has no head: lower "
            "freeze.layers"
        )
    if recipe.pooling != Recipe.pooling:
        raise ConfigError(
            f"recipe.pooling ({recipe.pooling}) is for tasks with a head, but {name} is of kind similarity: set "
            "similarity.pooling instead"
        )
    slots = recipe.rows_per_slot is not None and recipe.rows_per_slot < recipe.rows_per_step
    if config.similarity.loss == "cosent" and (slots or config.trials.workers > 1):
        setting = (
            f"recipe.rows_per_slot ({recipe.rows_per_slot})" if slots else f"trials.workers ({config.trials.workers})"
        )
        raise ConfigError(
            f"{setting} would split a step, but similarity.loss (cosent) compares all pairs of a step "
            f"(recipe.rows_per_step {recipe.rows_per_step}): leave the setting out, or set similarity.loss cosine"
        )


def _require_start(config: Finetune, problems: Mapping[str, Problem]) -> None:
    """Raise ConfigError if config.start_from is not a requested task, or is one of STARTED.

    A task of STARTED would start from itself.
    """
    start = config.start_from
    if start is not None and (start not in problems or start in STARTED):
        raise ConfigError(
            f"start_from ({start}) must be one of the tasks ({', '.join(problems)}), but not {', '.join(STARTED)}, "
            "because these start from the model of the task start_from"
        )
