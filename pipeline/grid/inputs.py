"""Read a grid's encoder, tasks and settings, and refuse combinations that do not fit together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline.config.adapters import Bottleneck, LowRank, NoAdapter
from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune
from pipeline.config.model import ClassifierLayer, Model
from pipeline.config.ranking import Ranking
from pipeline.config.recipe import Recipe
from pipeline.config.similarity import KIND_OF_LOSS, LOSSES, ROWS_OF_KIND, Similarity
from pipeline.errors import ConfigError, listed
from pipeline.files import storage
from pipeline.fine_tuned.tuned import ADAPTERS, TunedModel
from pipeline.finetune.encoder import read_encoder, report_missing_pooler
from pipeline.finetune.problems import Problem, in_cuttings, read_problems
from pipeline.finetune.settings import settings_of, with_setting
from pipeline.finetune.teacher import load_teacher, teacher_of, with_teacher
from pipeline.finetune.unlabelled import for_problem, read_unlabelled
from pipeline.grid.testing import require_readable
from pipeline.grid.trial_set import STARTED, first_of_each
from pipeline.reporting import Report
from pipeline.tasks.matches import OF_NEGATIVES
from pipeline.tasks.own import with_pair_columns
from pipeline.tasks.tag_schemes import require_scheme, scheme_of
from pipeline.tasks.task import VECTOR_KINDS, Task
from pipeline.train.initial import Initial

WEIGHTED = ("classification", "tags")
"""Kinds of task whose loss can weight classes."""


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
        odd = [name for name, problem in problems.items() if problem.task.kind not in WEIGHTED]
        if tried_config.recipe.balance_classes and odd:
            raise ConfigError(
                f"recipe.balance_classes (True) is for {' and '.join(WEIGHTED)}, but {', '.join(odd)} is "
                f"{problems[odd[0]].task.kind}: leave the setting out"
            )
        if tried_config.recipe.crf:
            for problem in problems.values():
                _require_scheme(problem)
        for problem in problems.values():
            _require_ranking(tried_config, problem.task)
            _require_few_labels(tried_config, problem, initial.model)
            if problem.task.kind == "choices":
                _require_fitting_choices(tried_config, problem.task)
            if problem.task.kind in VECTOR_KINDS:
                _require_similarity(tried_config, problem.task, initial.model.layers)
                _require_dimensions(tried_config, initial.model.width)
        _require_use_of_similarity(tried_config, problems)
    if storage.exists(storage.join(config.checkpoint, ADAPTERS)):
        raise ConfigError(
            f"checkpoint ({config.checkpoint}) has bottleneck adapters, which cannot be fine-tuned again: "
            "choose another checkpoint"
        )


def _require_ranking(config: Finetune, task: Task) -> None:
    """Raise ConfigError for settings of ranking that do not fit a task, and for a ranking with a useless teacher."""
    ranking, recipe = config.ranking, config.recipe
    if task.kind != "ranking":
        if ranking != Ranking():
            raise ConfigError(
                f"ranking.loss ({ranking.loss}) is for kind ranking, but {task.name} is {task.kind}: leave the setting "
                "out, or give --kind ranking"
            )
        return
    if config.teacher is not None and ranking.loss != "margin":
        raise ConfigError(
            f"teacher ({config.teacher}) of a ranking needs ranking.loss margin, but ranking.loss is {ranking.loss}"
        )
    unused = {
        "unlabelled": (config.unlabelled, ()),
        "recipe.temperature": (recipe.temperature, Recipe.temperature),
        "recipe.teacher_weight": (recipe.teacher_weight, Recipe.teacher_weight),
    }
    for name, (value, default) in unused.items():
        if value != default:
            raise ConfigError(f"{name} has no effect on a ranking, whose loss is that of ranking.loss: leave it out")


def _require_few_labels(config: Finetune, problem: Problem, model: Model) -> None:
    """Raise ConfigError if a recipe for few labels does not fit a task or the checkpoint."""
    task, recipe = problem.task, config.recipe
    if recipe.rows_per_class is not None and task.kind != "classification":
        raise ConfigError(
            f"recipe.rows_per_class ({recipe.rows_per_class}) is for classification, but {task.name} is {task.kind}: "
            "set recipe.training_rows"
        )
    if recipe.contrastive_pairs is None:
        return
    texts = "pairs of texts" if problem.train.items["second"].null_count == 0 else "single texts"
    odd = {
        f"{task.name} is {task.kind}": task.kind != "classification",
        f"{task.name} has {texts}": texts != "single texts",
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
    if task.kind != "tags":
        raise ConfigError(f"recipe.crf (True) is for tags, but {task.name} is {task.kind}: leave the setting out")
    if scheme is None:
        raise ConfigError(
            f"recipe.crf (True) needs tags of the scheme IOB2 (O, B-TYPE, I-TYPE) or BIOES (also E-TYPE, S-TYPE), but "
            f"{task.name} has the tags {listed(task.labels)}: leave the setting out"
        )
    require_scheme(problem.train, task.labels, scheme)


def _require_fitting_choices(config: Finetune, task: Task) -> None:
    """Raise ConfigError for settings that a task of kind choices does not have."""
    of_kind = f"{task.name} is of kind {task.kind}"
    if config.recipe.pooling != Recipe.pooling:
        raise ConfigError(
            f"recipe.pooling ({config.recipe.pooling}) is for text classifiers, but {of_kind}, which reads "
            f"{Recipe.pooling}: leave the setting out"
        )
    if config.register is not None:
        raise ConfigError(
            f"register ({config.register}) is not possible, because {of_kind}, whose models MLflow cannot serve here: "
            "leave register out"
        )


def _require_use_of_similarity(config: Finetune, problems: Mapping[str, Problem]) -> None:
    """Raise ConfigError for settings of similarity if no task is of that kind."""
    changed = [name for name, value in vars(config.similarity).items() if value != getattr(Similarity, name)]
    if changed and all(problem.task.kind not in VECTOR_KINDS for problem in problems.values()):
        tasks = ", ".join(f"{name} is of kind {problem.task.kind}" for name, problem in problems.items())
        value = getattr(config.similarity, changed[0])
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else value
        raise ConfigError(
            f"similarity.{changed[0]} ({shown}) is for kind similarity, but {tasks}: "
            "leave the setting out, or give --kind similarity"
        )


def _require_similarity(config: Finetune, task: Task, layers: int) -> None:
    """Raise ConfigError for settings that do not fit a task of VECTOR_KINDS.

    `layers` is the checkpoint's number of layers.
    """
    recipe, freeze, name, loss = config.recipe, config.freeze, task.name, config.similarity.loss
    if KIND_OF_LOSS[loss] != task.kind:
        fitting = ", ".join(loss for loss, kind in KIND_OF_LOSS.items() if kind == task.kind)
        raise ConfigError(
            f"similarity.loss ({loss}) is for {ROWS_OF_KIND[KIND_OF_LOSS[loss]]}, but {name} has "
            f"{ROWS_OF_KIND[task.kind]}: choose one of {fitting}"
        )
    if freeze.layers == layers and (freeze.embeddings or isinstance(config.adapter, LowRank)):
        frozen = f"freeze.layers ({layers})" + f" and freeze.embeddings ({freeze.embeddings})" * freeze.embeddings
        head = "its head is not saved" if task.kind == "relations" else "has no head"
        raise ConfigError(
            f"{frozen} leave nothing to train, because {name} is of kind {task.kind} and {head}: lower freeze.layers"
        )
    if recipe.pooling != Recipe.pooling:
        raise ConfigError(
            f"recipe.pooling ({recipe.pooling}) is for tasks with a head, but {name} is of kind {task.kind}: set "
            "similarity.pooling instead"
        )
    if task.kind == "matching" and OF_NEGATIVES not in task.metrics:
        _require_no_need_of_negatives(config, name)
    _require_whole_steps(config)


def _require_no_need_of_negatives(config: Finetune, name: str) -> None:
    """Raise ConfigError if the loss needs negative texts, which the task does not have."""
    loss, rows = config.similarity.loss, config.recipe.rows_per_step
    if LOSSES[loss].needs_negatives:
        raise ConfigError(
            f"similarity.loss ({loss}) compares texts with negative texts, but {name} has none: name their column with "
            "--negative, or set similarity.loss contrastive"
        )
    if rows == 1 and LOSSES[loss].compares_rows:
        raise ConfigError(
            f"recipe.rows_per_step ({rows}) must be at least 2, because similarity.loss ({loss}) compares the texts of "
            f"a step, and {name} has no negative texts"
        )


def _require_dimensions(config: Finetune, width: int) -> None:
    """Raise ConfigError if a truncated vector would be longer than the encoder's vectors."""
    longest = max(config.similarity.dimensions, default=0)
    if longest > width:
        raise ConfigError(f"similarity.dimensions ({longest}) must be at most the checkpoint's width ({width})")


def _require_whole_steps(config: Finetune) -> None:
    """Raise ConfigError if a step is split, but the loss compares all pairs of a step at once."""
    recipe, loss = config.recipe, config.similarity.loss
    if LOSSES[loss].is_of_whole_step and config.splits_steps:
        workers = config.trials.workers
        setting = f"trials.workers ({workers})" if workers > 1 else f"recipe.rows_per_slot ({recipe.rows_per_slot})"
        raise ConfigError(
            f"{setting} would split a step, but similarity.loss ({loss}) compares all pairs of a step "
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
