"""Read a grid's encoder, tasks and settings, and refuse combinations that do not fit together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline.config.adapters import Bottleneck, NoAdapter
from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune
from pipeline.config.model import ClassifierLayer, Model
from pipeline.config.ranking import Ranking
from pipeline.config.similarity import KIND_OF_LOSS, ROWS_OF_KIND, Similarity
from pipeline.errors import ConfigError, listed
from pipeline.files import storage
from pipeline.fine_tuned.tuned import ADAPTERS, TunedModel
from pipeline.finetune.encoder import read_encoder, report_missing_pooler
from pipeline.finetune.kinds import TRAINING
from pipeline.finetune.problems import Problem, in_cuttings, read_problems
from pipeline.finetune.settings import settings_of, with_setting
from pipeline.finetune.teacher import load_teacher, teacher_of, with_teacher
from pipeline.finetune.unlabelled import for_problem, read_unlabelled
from pipeline.grid.testing import require_readable
from pipeline.grid.trial_set import STARTED, first_of_each
from pipeline.reporting import Report
from pipeline.tasks.own import with_pair_columns
from pipeline.tasks.tag_schemes import require_scheme, scheme_of
from pipeline.tasks.task import Task
from pipeline.train.initial import Initial


@dataclass(frozen=True, kw_only=True)
class GridInputs:
    """Checked inputs of a grid (all trials of a fine-tuning job): encoder, tasks, and the settings to try."""

    config: Finetune
    initial: Initial
    settings: list[dict[str, Any]]
    cuttings: dict[str, dict[Truncation, Problem]]
    """Name of a problem -> cutting (truncation settings) to try -> the problem, encoded with this cutting."""
    teacher: TunedModel | None = None
    """Model of config.teacher; its logits are not yet in the problems."""

    @property
    def problems(self) -> dict[str, Problem]:
        """Name of a problem -> the problem, encoded with the first cutting."""
        return first_of_each(self.cuttings)


def read_inputs(config: Finetune, report: Report) -> GridInputs:
    """Read everything that the trials need. Raises PipelineError for inputs or settings that the user must fix."""
    settings = settings_of(config)
    _require_same_rows(config, settings)
    config = with_pair_columns(config)
    storage.require_writable("output", config.output)
    initial = read_encoder(config, config.checkpoint, report)
    config = config.for_model(initial.model)
    tried = [with_setting(config, setting).cutting for setting in settings]
    problems = {
        problem.task.name: problem for problem in read_problems(replace(config, cutting=tried[0]), initial, report)
    }
    report_missing_pooler(config, initial, [problem.task for problem in problems.values()], report)
    _require_start(config, problems)
    _require_fitting(config, settings, initial, problems)
    for problem in problems.values():
        require_readable(config, problem.task)
    cuttings = {name: in_cuttings(problem, tried, initial, report) for name, problem in problems.items()}
    inputs = GridInputs(config=config, initial=initial, settings=settings, cuttings=cuttings)
    return inputs if config.teacher is None else _with_teacher(inputs, config.teacher, report)


def _require_same_rows(config: Finetune, settings: Sequence[dict[str, Any]]) -> None:
    """Raise ConfigError if a search tries losses for other rows than similarity.loss, by which the file is read."""
    losses, own = [with_setting(config, setting).similarity.loss for setting in settings], config.similarity.loss
    other = next((loss for loss in losses if KIND_OF_LOSS[loss] != KIND_OF_LOSS[own]), None)
    if config.kind == "similarity" and other is not None:
        raise ConfigError(
            f"search.over tries similarity.loss {other}, which is for {ROWS_OF_KIND[KIND_OF_LOSS[other]]}, but "
            f"similarity.loss is {own}, which is for {ROWS_OF_KIND[KIND_OF_LOSS[own]]}: set similarity.loss to one of "
            "the losses to try, which must be for the same rows"
        )


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
        odd = [
            name for name, problem in problems.items() if "balance_classes" not in TRAINING[problem.task.kind].recipe
        ]
        if tried_config.recipe.balance_classes and odd:
            weighted = [kind for kind, handlers in TRAINING.items() if "balance_classes" in handlers.recipe]
            raise ConfigError(
                f"recipe.balance_classes (True) is for {' and '.join(weighted)}, but {', '.join(odd)} is "
                f"{problems[odd[0]].task.kind}: leave the setting out"
            )
        if tried_config.recipe.crf:
            for problem in problems.values():
                _require_scheme(problem)
        for problem in problems.values():
            _require_use_of_ranking(tried_config, problem.task)
            _require_few_labels(tried_config, problem, initial.model)
            TRAINING[problem.task.kind].require_fitting(tried_config, problem.task, initial.model)
        _require_use_of_similarity(tried_config, problems)
    if storage.exists(storage.join(config.checkpoint, ADAPTERS)):
        raise ConfigError(
            f"checkpoint ({config.checkpoint}) has bottleneck adapters, which cannot be fine-tuned again: "
            "choose another checkpoint"
        )


def _require_use_of_ranking(config: Finetune, task: Task) -> None:
    """Raise ConfigError for settings of ranking if the task is not of that kind."""
    if "ranking" not in TRAINING[task.kind].groups and config.ranking != Ranking():
        raise ConfigError(
            f"ranking.loss ({config.ranking.loss}) is for kind ranking, but {task.name} is {task.kind}: leave the "
            "setting out, or give --kind ranking"
        )


def _require_few_labels(config: Finetune, problem: Problem, model: Model) -> None:
    """Raise ConfigError if a recipe for few labels does not fit a task or the checkpoint."""
    task, recipe, own = problem.task, config.recipe, TRAINING[problem.task.kind].recipe
    if recipe.rows_per_class is not None and "rows_per_class" not in own:
        raise ConfigError(
            f"recipe.rows_per_class ({recipe.rows_per_class}) is for classification, but {task.name} is {task.kind}: "
            "set recipe.training_rows"
        )
    if recipe.contrastive_pairs is None:
        return
    fits = "contrastive_pairs" in own
    odd = {
        f"{task.name} is {task.kind}": not fits,
        f"{task.name} has pairs of texts": fits and problem.train.items["second"].null_count == 0,
        f"cutting.passages is {problem.cutting.passages}": bool(problem.cutting.passages),
        f"the head of family {model.family} has a layer of its own": _layer_on_all(model),
        "the whole encoder is frozen": _all_frozen(config, model),
    }
    if reasons := [reason for reason, applies in odd.items() if applies]:
        raise ConfigError(
            f"recipe.contrastive_pairs ({recipe.contrastive_pairs}) trains an encoder on classes of single texts and "
            f"fits a linear head, but {reasons[0]}: leave the setting out"
        )


def _all_frozen(config: Finetune, model: Model) -> bool:
    """Return whether no weight of the encoder is trained, because there is no adapter either."""
    whole = config.freeze.layers == model.layers and config.freeze.embeddings
    return whole and isinstance(config.adapter, NoAdapter)


def _layer_on_all(model: Model) -> bool:
    """Return whether the head has a layer between the mean of the last states and its last, linear layer."""
    layer = model.classifier
    return isinstance(layer, ClassifierLayer) and layer.on_all


def _require_scheme(problem: Problem) -> None:
    """Raise ConfigError if a task has no tags that form a scheme, and DataError if its training tags break it."""
    task, scheme = problem.task, scheme_of(problem.task.labels)
    if "crf" not in TRAINING[task.kind].recipe:
        raise ConfigError(f"recipe.crf (True) is for tags, but {task.name} is {task.kind}: leave the setting out")
    if scheme is None:
        raise ConfigError(
            f"recipe.crf (True) needs tags of the scheme IOB2 (O, B-TYPE, I-TYPE) or BIOES (also E-TYPE, S-TYPE), but "
            f"{task.name} has the tags {listed(task.labels)}: leave the setting out"
        )
    require_scheme(problem.train, task.labels, scheme)


def _require_use_of_similarity(config: Finetune, problems: Mapping[str, Problem]) -> None:
    """Raise ConfigError for settings of similarity if no task is of that kind."""
    changed = [name for name, value in vars(config.similarity).items() if value != getattr(Similarity, name)]
    if changed and all("similarity" not in TRAINING[problem.task.kind].groups for problem in problems.values()):
        tasks = ", ".join(f"{name} is of kind {problem.task.kind}" for name, problem in problems.items())
        value = getattr(config.similarity, changed[0])
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else value
        raise ConfigError(
            f"similarity.{changed[0]} ({shown}) is for kind similarity, but {tasks}: "
            "leave the setting out, or give --kind similarity"
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
