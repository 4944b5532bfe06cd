"""The result table: each task's median and spread over seeds, with baselines and published results."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.config.model import Model
from pipeline.finetune.problems import Problem
from pipeline.finetune.trials import Trial
from pipeline.tasks.glue import NOT_AVERAGED, TASKS, glue_mean
from pipeline.tasks.selection import comparable_score
from pipeline.tasks.units import format_score

PUBLISHED: dict[tuple[int, int], tuple[str, dict[str, str]]] = {
    (2, 128): (
        "BERT-tiny",
        {
            "cola": "0.0",
            "sst2": "83.2",
            "mrpc": "81.1/71.1",
            "stsb": "74.3/73.6",
            "qqp": "62.2/83.4",
            "mnli": "70.2/70.3",
            "qnli": "81.5",
            "rte": "57.2",
            "wnli": "62.3",
        },
    ),
    (4, 256): (
        "BERT-mini",
        {
            "cola": "0.0",
            "sst2": "85.9",
            "mrpc": "81.1/71.8",
            "stsb": "75.4/73.3",
            "qqp": "66.4/86.2",
            "mnli": "74.8/74.3",
            "qnli": "84.1",
            "rte": "57.9",
            "wnli": "62.3",
        },
    ),
    (4, 512): (
        "BERT-small",
        {
            "cola": "27.8",
            "sst2": "89.7",
            "mrpc": "83.4/76.2",
            "stsb": "78.8/77.0",
            "qqp": "68.1/87.0",
            "mnli": "77.6/77.0",
            "qnli": "86.4",
            "rte": "61.8",
            "wnli": "62.3",
        },
    ),
    (8, 512): (
        "BERT-medium",
        {
            "cola": "38.0",
            "sst2": "89.6",
            "mrpc": "86.6/81.6",
            "stsb": "80.4/78.4",
            "qqp": "69.6/87.9",
            "mnli": "80.0/79.1",
            "qnli": "87.7",
            "rte": "62.2",
            "wnli": "62.3",
        },
    ),
    (12, 768): (
        "BERT-base",
        {
            "cola": "52.1",
            "sst2": "93.5",
            "mrpc": "88.9",
            "stsb": "85.8",
            "qqp": "71.2",
            "mnli": "84.6/83.4",
            "qnli": "90.5",
            "rte": "66.4",
        },
    ),
    (24, 1024): (
        "BERT-large",
        {
            "cola": "60.5",
            "sst2": "94.9",
            "mrpc": "89.3",
            "stsb": "86.5",
            "qqp": "72.1",
            "mnli": "86.7/85.9",
            "qnli": "92.7",
            "rte": "70.1",
        },
    ),
}
"""(layers, width) -> name and GLUE test scores in percent.

Sources: Devlin et al. 2019, table 1, for BERT-base and BERT-large; the README of google-research/bert for the others.
Two scores in one cell are F1/accuracy for MRPC and QQP, Pearson/Spearman for STS-B, and matched/mismatched for MNLI.
"""


@dataclass(frozen=True, kw_only=True)
class Reported:
    """One metric of one split of a task."""

    task: str
    name: str
    """Split and metric, such as "dev accuracy"."""
    values: tuple[float, ...]
    """One value per seed; with folds, one per fold and seed."""
    baseline: float | None
    """Score of the model-free baseline; None if the baseline has no score in this metric."""
    collapsed: int
    """Number of values from collapsed models, which gave the same answer to every row. `values` includes them."""
    setting: str
    """The selected setting and the number of candidates; "" without a search."""
    folds: int = 1
    """Number of folds, each with the same number of seeds; 1 for a single development split."""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def middle(self) -> str:
        """Text of the median over seeds; with folds, of mean ± standard deviation over folds and seeds."""
        if self.folds == 1:
            return format_score(self.name, self.median)
        return (
            f"{format_score(self.name, statistics.fmean(self.values))} ± "
            f"{format_score(self.name, statistics.stdev(self.values))}"
        )


def reported(
    problem: Problem,
    baselines: Mapping[str, Mapping[str, float]],
    results: Sequence[dict[str, Any]],
    setting: str,
    folds: int = 1,
) -> list[Reported]:
    """Return one row per split and metric, then one row per metric that was computed with thresholds tuned on dev.

    The names of rows with tuned thresholds end in "tuned on dev". `baselines` is split -> metric -> score. `results`
    has the results of all seeds and folds.
    """
    task, rows, collapsed = problem.fold_of or problem.task.name, [], sum(result["collapsed"] for result in results)
    for split in problem.splits:
        for metric in problem.task.metrics:
            values = tuple(result["scores"][split][metric] for result in results)
            chosen = (
                " (best epoch on dev)"
                if any(result["best_epoch"] < len(result["epochs"]) for result in results)
                else ""
            )
            rows.append(
                Reported(
                    task=task,
                    name=f"{split} {metric}{chosen}",
                    values=values,
                    baseline=baselines[split].get(metric),
                    collapsed=collapsed,
                    setting=setting,
                    folds=folds,
                )
            )
    for name in [name for name in results[0]["tuned"] if name.endswith("_tuned_on_dev")]:
        values = tuple(result["tuned"][name] for result in results)
        rows.append(
            Reported(
                task=task,
                name=name.replace("_", " "),
                values=values,
                baseline=None,
                collapsed=collapsed,
                setting=setting,
                folds=folds,
            )
        )
    return rows


def mean_baseline(baselines: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Return the mean of the folds' baselines, split -> metric -> score, for the metrics that all folds have."""
    means: dict[str, dict[str, float]] = {}
    for split, scores in baselines[0].items():
        shared = [name for name in scores if all(name in fold[split] for fold in baselines)]
        means[split] = {name: statistics.fmean(fold[split][name] for fold in baselines) for name in shared}
    return means


def select(
    trials: Sequence[Trial], results: Mapping[str, dict[str, Any]], *problems: Problem
) -> tuple[dict[str, Any], float]:
    """Return the setting with the best development score, and this score.

    The score is the median over the seeds of the search. With several problems (folds), it is the mean over folds and
    seeds. Only the settings with the most finished trials count. Reason: trials with low scores are stopped early, so
    the median of a setting's remaining trials would be too high.
    """
    by_setting: dict[str, list[Trial]] = {}
    first, metric = next(iter(problems[0].splits)), problems[0].task.metrics[0]
    centre, names = (
        statistics.fmean if len(problems) > 1 else statistics.median,
        {problem.task.name for problem in problems},
    )
    for trial in trials:
        if trial.problem in names:
            by_setting.setdefault(str(trial.chosen), []).append(trial)
    scores = {
        name: [results[trial.name]["scores"][first][metric] for trial in own if "scores" in results[trial.name]]
        for name, own in by_setting.items()
    }
    most = max(len(values) for values in scores.values())
    name = max(
        (name for name, values in scores.items() if len(values) == most),
        key=lambda name: comparable_score(metric, centre(scores[name])),
    )
    return by_setting[name][0].chosen, centre(scores[name])


def published_figure(row: Reported, published: Mapping[str, str]) -> str:
    """Return the published score for a row's task and metric; "" if no score was published."""
    split, metric = row.name.split(" ")[:2]
    if row.task not in published or metric not in TASKS[row.task].metrics:
        return ""
    figures = published[row.task].split("/")
    order = {"mrpc": ("f1", "accuracy"), "qqp": ("f1", "accuracy"), "stsb": ("pearson", "spearman")}
    if row.task == "mnli":
        column = 1 if split == "dev-mismatched" else 0
    elif row.task in order:
        # BERT-base and BERT-large have one figure for these tasks: F1, or Spearman for STS-B.
        column = order[row.task].index(metric) if len(figures) == 2 else 0 if metric in ("f1", "spearman") else 1
    else:
        column = 0
    return figures[column] if column < len(figures) else ""


def _cells(row: Reported, published: Mapping[str, str]) -> list[str]:
    """Return the cells of a row as text."""
    collapsed = f"{row.collapsed} of {len(row.values)}" if row.collapsed else ""
    spread = f"{format_score(row.name, min(row.values))} to {format_score(row.name, max(row.values))}"
    seeds = f"{row.folds} x {len(row.values) // row.folds}" if row.folds > 1 else str(len(row.values))
    return [
        row.task,
        row.name,
        row.middle,
        spread,
        seeds,
        collapsed,
        format_score(row.name, row.baseline),
        published_figure(row, published),
        row.setting,
    ]


def table(rows: Sequence[Reported], model: Model) -> str:
    """Return the table in Markdown, aligned for terminals. Scores are in percent, except for mean_absolute_error."""
    name, published = PUBLISHED.get((model.layers, model.width), ("", {}))
    middle = (
        ["mean ± deviation", "of folds and seeds", "folds x seeds"]
        if any(row.folds > 1 for row in rows)
        else ["median", "of seeds", "seeds"]
    )
    head = [
        "task",
        "split and metric",
        *middle,
        "collapsed",
        "without a model",
        f"{name}, GLUE test" if name else "published",
        "setting",
    ]
    lines = [head, *(_cells(row, published) for row in rows)]
    kept = [column for column in range(len(head)) if column < 5 or any(line[column] for line in lines[1:])]
    widths = [max(len(line[column]) for line in lines) for column in kept]
    text = [
        [line[column].ljust(width) if column < 2 else line[column].rjust(width) for column, width in zip(kept, widths)]
        for line in lines
    ]
    rule = ["-" * width for width in widths]
    return "\n".join(f"| {' | '.join(line)} |" for line in (text[0], rule, *text[1:]))


def glue_line(rows: Sequence[Reported], names: Sequence[str]) -> str | None:
    """Return a line with the mean score of the reported GLUE tasks; None if fewer than two tasks are averaged.

    The score of a task is the mean of its metrics' medians over seeds. `names` are all GLUE tasks.
    """
    by_task = {
        name: {
            row.name: row.median for row in rows if row.task == name and row.name.split(" ")[1] in TASKS[name].metrics
        }
        for name in names
    }
    averaged = {name: values for name, values in by_task.items() if values and name not in NOT_AVERAGED}
    if len(averaged) < 2:
        return None
    with_wnli = " (with the score of the WNLI trials; Devlin et al. 2019 left WNLI out)" if "wnli" in averaged else ""
    mean = f"{100 * glue_mean(averaged):.1f}{with_wnli}"
    return f"mean of {len(averaged)} of GLUE's 9 tasks on the development sets: {mean}"
