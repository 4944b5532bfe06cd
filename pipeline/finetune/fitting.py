"""Settings that belong to a kind of task: refuse those that do not fit, and name the loss's for model cards."""

from typing import Any

from pipeline.config.adapters import LowRank
from pipeline.config.finetune import Finetune
from pipeline.config.model import Model
from pipeline.config.recipe import Recipe
from pipeline.config.similarity import KIND_OF_LOSS, LOSSES, LOSSES_WITH, ROWS_OF_KIND
from pipeline.errors import ConfigError
from pipeline.tasks.matches import OF_NEGATIVES
from pipeline.tasks.task import Task


def require_ranking(config: Finetune, task: Task, model: Model) -> None:
    """Raise ConfigError for a teacher that a ranking cannot learn from, and for settings without an effect on it."""
    ranking, recipe = config.ranking, config.recipe
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


def require_choices(config: Finetune, task: Task, model: Model) -> None:
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


def require_scores(config: Finetune, task: Task, model: Model) -> None:
    """Raise ConfigError for settings that do not fit pairs of texts with a score."""
    _require_vectors(config, task, model, "has no head")
    recipe, loss = config.recipe, config.similarity.loss
    if LOSSES[loss].is_of_whole_step and config.splits_steps:
        workers = config.trials.workers
        setting = f"trials.workers ({workers})" if workers > 1 else f"recipe.rows_per_slot ({recipe.rows_per_slot})"
        raise ConfigError(
            f"{setting} would split a step, but similarity.loss ({loss}) compares all pairs of a step "
            f"(recipe.rows_per_step {recipe.rows_per_step}): leave the setting out, or set similarity.loss cosine"
        )


def require_matches(config: Finetune, task: Task, model: Model) -> None:
    """Raise ConfigError for settings that do not fit texts with their matches, and for a loss that needs negatives."""
    _require_vectors(config, task, model, "has no head")
    if OF_NEGATIVES in task.metrics:
        return
    name, loss, rows = task.name, config.similarity.loss, config.recipe.rows_per_step
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


def require_relations(config: Finetune, task: Task, model: Model) -> None:
    """Raise ConfigError for settings that do not fit pairs of texts with a class."""
    _require_vectors(config, task, model, "its head is not saved")


def _require_vectors(config: Finetune, task: Task, model: Model, head: str) -> None:
    """Raise ConfigError for settings that do not fit a task that trains vectors; `head` says what becomes of a head."""
    recipe, freeze, name, loss = config.recipe, config.freeze, task.name, config.similarity.loss
    if KIND_OF_LOSS[loss] != task.kind:
        fitting = ", ".join(loss for loss, kind in KIND_OF_LOSS.items() if kind == task.kind)
        raise ConfigError(
            f"similarity.loss ({loss}) is for {ROWS_OF_KIND[KIND_OF_LOSS[loss]]}, but {name} has "
            f"{ROWS_OF_KIND[task.kind]}: choose one of {fitting}"
        )
    if freeze.layers == model.layers and (freeze.embeddings or isinstance(config.adapter, LowRank)):
        frozen = f"freeze.layers ({model.layers})" + f" and freeze.embeddings ({freeze.embeddings})" * freeze.embeddings
        raise ConfigError(
            f"{frozen} leave nothing to train, because {name} is of kind {task.kind} and {head}: lower freeze.layers"
        )
    if recipe.pooling != Recipe.pooling:
        raise ConfigError(
            f"recipe.pooling ({recipe.pooling}) is for tasks with a head, but {name} is of kind {task.kind}: set "
            "similarity.pooling instead"
        )
    longest = max(config.similarity.dimensions, default=0)
    if longest > model.width:
        raise ConfigError(f"similarity.dimensions ({longest}) must be at most the checkpoint's width ({model.width})")


def similarity_facts(config: Finetune) -> dict[str, Any]:
    """Return the loss of a training of vectors, and the settings that the loss has, by dotted name."""
    settings = config.similarity
    used = [name for name, losses in LOSSES_WITH.items() if settings.loss in losses]
    facts = {f"similarity.{name}": getattr(settings, name) for name in ("loss", *used)}
    if settings.dimensions:
        facts["similarity.dimensions"] = ", ".join(map(str, settings.dimensions))
    return facts


def ranking_facts(config: Finetune) -> dict[str, Any]:
    """Return the loss of a ranking, and the number of candidates if the loss compares them, by dotted name."""
    names = ("loss", "candidates") if config.ranking.grouped else ("loss",)
    return {f"ranking.{name}": getattr(config.ranking, name) for name in names}
