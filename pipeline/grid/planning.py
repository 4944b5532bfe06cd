"""Plan a grid (all trials of a fine-tuning job): choose how much of each task to train in the time left, and estimate
the time needed.
"""

import hashlib
import json
import time
from collections.abc import Mapping
from typing import Any

from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune
from pipeline.config.flat import flatten
from pipeline.config.recipe import DISTILLED, DROPOUT, Recipe
from pipeline.files import storage
from pipeline.finetune import plan
from pipeline.finetune.folds import by_task
from pipeline.finetune.kinds import TRAINING
from pipeline.finetune.problems import Problem, data_of
from pipeline.finetune.settings import DROPOUT_NAME
from pipeline.finetune.submission import rows_to_answer
from pipeline.grid import trial_set, tune
from pipeline.grid.trial_set import Grid, first_of_each
from pipeline.reporting import Report, estimate
from pipeline.saved.naming import is_unrecorded
from pipeline.tasks.kinds import KINDS
from pipeline.train.initial import Initial

UNNAMED = (
    *("placement", "trials", "output", "mlflow_uri", "register"),
    *("checkpoint", "data", "train", "dev", "test", "teacher", "unlabelled"),
)
"""Settings that are not part of a grid's name. Some do not define the trials. The others are locations of files: the
name depends on the content of these files instead.
"""


def planned(
    config: Finetune,
    initial: Initial,
    cuttings: dict[str, dict[Truncation, Problem]],
    settings: list[dict[str, Any]],
    begun: float,
    report: Report,
) -> Grid:
    """Return the grid, and report its size and estimated time.

    If config.minutes is set, the grid is reduced so that it ends within this time after `begun`, a value of
    time.monotonic(). `cuttings`: name of a problem -> cutting (truncation settings) to try -> the problem, encoded with
    this cutting.
    """
    problems, concurrent = first_of_each(cuttings), tune.at_once(config)
    location = plan_location(config, problems, initial)
    to_answer = rows_to_answer(data_of(config), problems)
    if known := plan.read_plan(location):
        shares, per_step = known
        answering = plan.answering_seconds(config, to_answer, per_step, concurrent)
    else:
        measured = tune.seconds_per_step(
            config, {names[0]: cuttings[names[0]] for names in by_task(problems).values()}, initial
        )
        per_step = {name: measured[names[0]] for names in by_task(problems).values() for name in names}
        answering = plan.answering_seconds(config, to_answer, per_step, concurrent)
        spent = time.monotonic() - begun + answering
        shares = plan.fit_to_time(config, list(problems.values()), per_step, concurrent, len(settings), spent=spent)
        # all folds of a task get the same share
        shares = {
            name: min((shares[other] for other in names), key=plan.size)
            for names in by_task(problems).values()
            for name in names
        }
        plan.write_plan(location, shares, per_step)
    for name, problem in problems.items():
        if line := plan.left_out(problem, config, shares[name]):
            report(line)
    baselines = {
        name: {
            split: KINDS[problem.task.kind].baseline(problem.task, problem.train, prepared)
            for split, prepared in problem.splits.items()
        }
        for name, problem in problems.items()
    }
    each = {
        name: plan.trial_seconds(config, problem, per_step[name], shares[name]) for name, problem in problems.items()
    }
    grid = Grid(
        config=config,
        initial=initial,
        cuttings=cuttings,
        settings=settings,
        shares=shares,
        seconds=each,
        baselines=baselines,
    )
    report(trial_set.summary(grid, concurrent))
    if to_answer:
        report(f"then the {sum(to_answer.values()):,} test rows of GLUE's submission file, about {estimate(answering)}")
    return grid


def plan_location(config: Finetune, problems: Mapping[str, Problem], initial: Initial) -> str:
    """Return the location of a grid's plan, which is written before the grid's first trial."""
    return storage.join(config.output, "finetune", "grids", f"{grid_name(config, problems, initial)}.json")


def grid_recipe(
    config: Finetune,
    problems: Mapping[str, Problem],
    initial: Initial,
    settings: list[dict[str, Any]],
    report: Report,
) -> Recipe:
    """Return the recipe with the default dropout.

    A grid that an earlier version began keeps the checkpoint's dropout, which was the default then, so that all of its
    trials are alike. A search over dropouts needs no default.
    """
    recipe, model = config.recipe.for_dropout(initial.model), initial.model
    if recipe == config.recipe or any(DROPOUT_NAME in setting for setting in settings):
        return config.recipe
    if not storage.exists(plan_location(config, problems, initial)):
        return recipe
    report(
        f"{config.output} has trials of an earlier version with the checkpoint's dropout (hidden "
        f"{model.hidden_dropout:g}, attention {model.attention_dropout:g}), so the others have it too; with "
        f"--{DROPOUT_NAME} {DROPOUT} all are trained again"
    )
    return config.recipe


def grid_name(config: Finetune, problems: Mapping[str, Problem], initial: Initial) -> str:
    """Return the name of a grid: the tasks' names, and a digest of everything that defines the trials."""
    of_kinds = {group for problem in problems.values() for group in TRAINING[problem.task.kind].groups}
    unused = (group for handlers in TRAINING.values() for group in handlers.groups if group not in of_kinds)
    without = (*UNNAMED, *unused, *(() if config.teacher else DISTILLED))
    shaping = {
        key: value
        for key, value in flatten(config).items()
        if key not in without and key.split(".")[0] not in without and not is_unrecorded(key, value)
    }
    content = json.dumps(
        [shaping, initial.fingerprint, sorted((name, problem.digest) for name, problem in problems.items())],
        sort_keys=True,
    )
    tasks = by_task(problems)
    names = "-".join(tasks) if len(tasks) < 4 else f"{len(tasks)}-tasks"
    names += "-random-weights" * config.random_weights
    return f"{names}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"
