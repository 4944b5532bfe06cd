"""Fine-tune two encoders on the same tasks and seeds, and compare their scores pairwise."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune
from pipeline.config.predict import Compare
from pipeline.config.recipe import DROPOUT
from pipeline.errors import ConfigError
from pipeline.evaluation.paired import Difference, format_difference, over_rows, over_seeds, verdict
from pipeline.fine_tuned.model import open_tuned
from pipeline.fine_tuned.tuned import TunedModel
from pipeline.finetune.encoder import read_encoder
from pipeline.finetune.kinds import TRAINING
from pipeline.finetune.problems import Problem, read_problems
from pipeline.finetune.row_scores import RowScore
from pipeline.finetune.settings import DROPOUT_NAME
from pipeline.finetune.table import Reported
from pipeline.objectives.logits import compute_logits
from pipeline.tasks.prepared import Logits, Prepared
from pipeline.tasks.task import Task
from pipeline.tasks.units import format_score, is_share
from pipeline.train.hardware import answer_precision, autocast_of, device_of


def names_of_sides(both: Sequence[Finetune]) -> list[str]:
    """Return one line per encoder: its letter (A or B) and its checkpoint."""
    return [
        f"{letter}: {'random weights of the sizes of ' * encoder.random_weights}{encoder.checkpoint}"
        for letter, encoder in zip("AB", both)
    ]


def comparison_lines(
    both: Sequence[Finetune], rows: Sequence[Sequence[Reported]], models: Sequence[Mapping[str, str]]
) -> list[str]:
    """Return the lines of the comparison; each argument has two entries, first A's, then B's.

    `rows`: rows of the result table. `models`: task -> folder of the best model.
    """
    lines, selecting = [], [first_of_each(reported) for reported in rows]
    for task in selecting[0]:
        a, b = selecting[0][task], selecting[1][task]
        lines += seed_lines(a, b)
        difference = row_difference(both, [of_side[task] for of_side in models], task)
        if difference is not None:
            lines.append(row_line(a.name, over_seeds(a.values, b.values), difference))
    if len(selecting[0]) > 1:
        lines.append(f"{len(selecting[0])} tasks were compared: about one in twenty shows a difference by chance alone")
    return lines


def require_equal_dropout(config: Compare, dropouts: Sequence[tuple[float, float]]) -> None:
    """Raise ConfigError if only one encoder was fine-tuned with the checkpoint's dropout, by an earlier version.

    `dropouts`: hidden and attention dropout of A and of B.
    """
    if len(set(dropouts)) == 1 or any(entry.startswith(f"{DROPOUT_NAME}=") for entry in config.search.over):
        return
    a, b = (" and ".join(f"{share:g}" for share in dropout) for dropout in dropouts)
    raise ConfigError(
        f"A was fine-tuned with dropout {a} (hidden and attention), but B with {b}, because an earlier version took "
        f"the checkpoint's: add --{DROPOUT_NAME} {DROPOUT} to train both alike"
    )


def sides(config: Compare) -> list[Finetune]:
    """Return the settings of both fine-tunings, A and B; with config.random_weights, A starts from random weights."""
    shared: dict[str, Any] = {field.name: getattr(config, field.name) for field in fields(Finetune)}
    starts: list[dict[str, Any]] = (
        [{"checkpoint": config.checkpoint[0], "random_weights": random} for random in (True, False)]
        if config.random_weights
        else [{"checkpoint": checkpoint, "random_weights": False} for checkpoint in config.checkpoint]
    )
    return [Finetune(**(shared | start)) for start in starts]


def first_of_each(rows: Sequence[Reported]) -> dict[str, Reported]:
    """Return task -> its first row. This row holds the metric that selects models, on the development split."""
    by_task: dict[str, Reported] = {}
    for row in rows:
        by_task.setdefault(row.task, row)
    return by_task


def seed_lines(a: Reported, b: Reported) -> list[str]:
    """Return three lines: both medians, the mean difference over seeds, and the verdict on this difference."""
    percent = is_share(a.name)
    seeds = over_seeds(a.values, b.values)
    collapsed = "".join(
        f"; {reported.collapsed} of {letter}'s seeds collapsed"
        for letter, reported in (("A", a), ("B", b))
        if reported.collapsed
    )
    medians = (
        f"{a.task}, {a.name}: median A {format_score(a.name, a.median)}, B {format_score(b.name, b.median)}, "
        f"{len(a.values)} seeds{collapsed}"
    )
    mean = f"  mean of B minus A over seeds, with 95% interval: {format_difference(seeds, percent)}"
    return [medians, mean, f"  {verdict(a.task, seeds, percent=percent, lower_is_better=not percent)}"]


def row_line(metric: str, seeds: Difference, rows: Difference) -> str:
    """Return the line on the best model of each encoder over development rows, which explains the verdict over seeds.

    The interval over rows is about these two models alone, so it gives no verdict on the encoders.
    """
    percent = is_share(metric)
    name = "B" if (rows.better > 0) == percent else "A"  # of errors, lower is better
    if not rows.better:
        about = "on other rows, either may be the better one"
    elif rows.better == seeds.better:
        about = f"{name}'s is better on other rows too"
    else:
        about = f"{name}'s is better on other rows too, but that is one pair of seeds: the verdict is over all seeds"
    return (
        f"  of the two best models alone, B minus A over development rows: {format_difference(rows, percent)}; {about}"
    )


def row_difference(both: Sequence[Finetune], models: Sequence[str], task: str) -> Difference | None:
    """Return the difference of the two best models over the development items.

    Return None for tags, rankings and Natural Questions, whose scores are not means over items. Also return None for
    kinds whose saved model cannot compute the scores of its training.
    """
    scores, rows = [], 0
    for config, model in zip(both, models, strict=True):
        tuned = open_tuned(model)
        # Use the cutting (truncation settings) of the model: a search may have selected another one than the config's.
        config = replace(config, cutting=tuned.about.cutting)
        problem = next(
            candidate
            for candidate in read_problems(config, read_encoder(config, config.checkpoint, _discard), _discard)
            if candidate.task.name == task
        )
        row_score = TRAINING[problem.task.kind].row_score
        if row_score is None or problem.task.script == "natural-questions":
            return None
        rows = len(next(iter(problem.splits.values())).items)
        scores.append(_scored(config, problem, tuned, row_score))
    return over_rows(scores[0], scores[1], rows)


def _discard(line: str) -> None:
    """Ignore lines that were already reported when the models were trained."""


def _scored(
    config: Finetune,
    problem: Problem,
    tuned: TunedModel,
    row_score: Callable[[Task, Prepared, Logits, Truncation], RowScore],
) -> RowScore:
    """Return the function that computes a model's selecting metric on development items."""
    task, prepared = problem.task, next(iter(problem.splits.values()))
    device = device_of(config.placement, config.trials.gpus)
    precision = answer_precision(config.placement, tuned.about.lineage.get("precision"), device)
    logits = compute_logits(tuned.module.to(device), prepared.rows, device, autocast_of(precision, device))
    return row_score(task, prepared, logits, problem.cutting)
