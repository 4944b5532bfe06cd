"""Run trials on Ray Tune, distributed over the cluster, with optional early stopping."""

import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler

from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune
from pipeline.errors import ConfigError, DataError, PipelineError
from pipeline.files import storage
from pipeline.files.local_files import scratch_folder
from pipeline.finetune import plan
from pipeline.finetune import trials as trial_work
from pipeline.finetune.problems import Problem
from pipeline.finetune.trial_state import Scores, delete_checkpoints
from pipeline.finetune.trials import Trial
from pipeline.on_ray import cluster, ray_private
from pipeline.tasks.selection import comparable_score
from pipeline.tracking.failures import pipeline_cause
from pipeline.train.initial import Initial
from pipeline.train.probe import gpus_of_process

SCORE, VALUE, EPOCH, LAST = "score", "value", "epoch", "last"
"""Keys of a trial's reports to Tune.

score: the selecting metric as a number that is higher for better models. value: the metric itself. epoch: the epoch of
the score. last: whether this is the trial's last report.
"""
LOGINS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SECURITY_TOKEN", "AWS_SESSION_TOKEN")
"""Environment variables with credentials."""
MEASURED_AT_ONCE = 8
"""Maximum number of processes that measure the time per step."""
Results = dict[str, dict[str, Any]]
"""Name of a trial -> content of its result.json, or of its stopped.json if the trial was stopped early."""


class Watch(tune.Callback):
    """Call `tell` (trial, state, news) whenever a trial starts, finishes an epoch, ends or fails.

    After an epoch, `news` holds the epoch and its score. When a trial is done, `news` is its result. Otherwise `news`
    is empty.
    """

    def __init__(self, trials: Sequence[Trial], tell: Callable[[Trial, str, dict[str, Any]], None]) -> None:
        self.trials, self.tell = trials, tell

    def __getstate__(self) -> dict[str, Any]:
        """Return an empty state. Tune pickles callbacks to restore experiments, but this project never restores one."""
        return {}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.tell(self.trials[trial.config["number"]], "running", {})

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        if SCORE in result and not result[LAST]:  # on_trial_complete reports the end
            self.tell(self.trials[trial.config["number"]], "running", {EPOCH: result[EPOCH], VALUE: result[VALUE]})

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        mine = self.trials[trial.config["number"]]
        own_result = trial_work.result_of(mine)
        self.tell(mine, "stopped early" if own_result is None else "done", own_result or {})

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.tell(self.trials[trial.config["number"]], "failed", {})


def resources(config: Finetune) -> dict[str, float]:
    """Return CPUs and GPUs per worker of a trial, as `fit` does.

    An autoscaling cluster is assumed to grow as needed.
    """
    return fit(
        config, dict.fromkeys(("CPU", "GPU"), math.inf) if config.placement.autoscaled else ray.cluster_resources()
    )


def fit(config: Finetune, total: Mapping[str, float]) -> dict[str, float]:
    """Return CPUs and GPUs per worker of a trial, in a cluster with the resources `total`.

    Raises ConfigError if a worker needs more than `total`, or if trials.gpus is a fraction that a worker cannot have.
    """
    gpus = gpus_of_process("trials.gpus", config.trials.gpus, config.placement.device, total.get("GPU", 0.0))
    if gpus > 1 and gpus != int(gpus):
        raise ConfigError(f"trials.gpus ({gpus:g}) must be at most 1 or a whole number: a worker uses one GPU")
    if config.trials.workers > 1 and 0 < gpus < 1:
        raise ConfigError(
            f"trials.gpus ({gpus:g}) with trials.workers ({config.trials.workers}): workers of a trial cannot "
            "share a GPU; give each worker 1, or use one worker"
        )
    if config.trials.cpus > total.get("CPU", 0.0):
        raise ConfigError(
            f"trials.cpus ({config.trials.cpus:g}) must be at most {total.get('CPU', 0.0):g}, the number of CPUs in "
            "the cluster"
        )
    return {"CPU": config.trials.cpus} | ({"GPU": gpus} if gpus else {})


def _of_all_workers(asked: dict[str, float], workers: int) -> dict[str, float] | tune.PlacementGroupFactory:
    """Return the resources that Tune reserves for a trial: `asked` for each of its workers, all on one machine."""
    return asked if workers == 1 else tune.PlacementGroupFactory([asked] * workers, strategy="STRICT_PACK")


def _room(asked: Mapping[str, float], total: Mapping[str, float]) -> int:
    """Return how many times `asked` fits into `total`."""
    return int(min(total.get(name, 0.0) / share for name, share in asked.items()) + 1e-6)


def _refuse_crowded(config: Finetune) -> None:
    """Raise ConfigError if no machine has room for all workers of a trial. An autoscaling cluster is not checked."""
    if config.placement.autoscaled or config.trials.workers == 1:
        return
    asked = resources(config)
    most = max(_room(asked, node["Resources"]) for node in ray.nodes() if node["Alive"])
    if config.trials.workers > most:
        each = " and ".join(f"{share:g} {name}s" for name, share in asked.items())
        raise ConfigError(
            f"trials.workers ({config.trials.workers}) must be at most {most}: no machine has room for more workers "
            f"with {each} each; lower trials.workers or trials.cpus"
        )


def at_once(config: Finetune) -> int:
    """Return the number of trials that run at the same time, at least 1."""
    if config.placement.autoscaled and config.trials.at_once:
        return config.trials.at_once
    _refuse_crowded(config)
    each, workers = resources(config), config.trials.workers
    fitting = _room({name: workers * share for name, share in each.items()}, ray.cluster_resources())
    return max(1, min(fitting, config.trials.at_once or fitting))


def connect(address: str | None) -> None:
    """Join or start Ray, as `cluster.connect`, with settings for Tune.

    Raises ConfigError if the address does not answer.
    """
    # With its own handler, Tune would treat Ctrl-C as the end of the experiment and return.
    os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")  # the new output prints a box per experiment even at verbose=0
    # Tune would pass these variables to its trials in a runtime environment, which Ray writes to its logs. The trials
    # use the credentials of their nodes instead, as all other jobs do.
    ray_private.keep_from_trials(LOGINS)
    cluster.connect(address)


def seconds_per_step(
    config: Finetune, problems: Mapping[str, Mapping[Truncation, Problem]], initial: Initial
) -> dict[str, float]:
    """Return name of a problem -> seconds per step, measured on nodes that run the trials.

    If a problem has several cuttings (truncation settings), the seconds per epoch are averaged over the cuttings, and
    divided by the steps per epoch of the first cutting. Several processes measure at the same time, as trials run,
    because cores that share memory and caches slow each other down. Raises PipelineError if the steps fail.
    """
    asked, references = (
        resources(config),
        {name: [ray.put(problem) for problem in variants.values()] for name, variants in problems.items()},
    )
    few_steps = ray.remote(num_cpus=asked["CPU"], num_gpus=asked.get("GPU", 0.0), max_retries=0)(_measure)
    try:
        measured = ray.get(
            [few_steps.remote(config, references, initial) for _ in range(min(at_once(config), MEASURED_AT_ONCE))]
        )
    except ray.exceptions.RayError as error:
        raise cause([error], "measuring a few steps failed: {}") from error
    return {name: statistics.median(seconds[name] for seconds in measured) for name in problems}


def _measure(config: Finetune, problems: dict[str, list[Any]], initial: Initial) -> dict[str, float]:
    """Return name of a problem -> seconds per step (as `seconds_per_step`), measured in this process."""
    seconds: dict[str, float] = {}
    for name, variants in ((name, ray.get(variants)) for name, variants in problems.items()):
        # proportional to the seconds per epoch, with the same factor for all cuttings
        epochs = [plan.seconds_of(config, variant, initial) * variant.rows_per_epoch() for variant in variants]
        seconds[name] = statistics.mean(epochs) / variants[0].rows_per_epoch()
    return seconds


def run_trials(
    config: Finetune,
    trials: Sequence[Trial],
    problems: Mapping[str, Mapping[Truncation, Problem]],
    initial: Initial,
    tell: Callable[[Trial, str, dict[str, Any]], None],
    search: str | None,
) -> Results:
    """Run the trials and return their results; a trial that has a stored result is not trained again.

    `problems`: name of a problem -> cutting -> the problem. `search`: the search (`trial_work.search_of`) that stops
    trials with low scores early; None: no trial is stopped. Raises PipelineError for the first failed trial, after all
    others are done.
    """
    asked, many = resources(config), at_once(config)
    scheduler: TrialScheduler = FIFOScheduler()
    if search is not None:
        most = max(trial.config.recipe.epochs for trial in trials)
        # At max_t the scheduler stops a trial. max_t is above the last epoch, so that trials end by themselves.
        scheduler = ASHAScheduler(
            time_attr="training_iteration", metric=SCORE, mode="max", max_t=most + 1, grace_period=1, reduction_factor=3
        )
    with scratch_folder("tune") as folder:
        references = {
            (name, cutting): ray.put(problems[name][cutting])
            for name, cutting in {(trial.problem, trial.config.cutting) for trial in trials}
        }
        function = tune.with_parameters(_work, trials=list(trials), problems=references, initial=initial, share=asked)
        results = tune.Tuner(
            tune.with_resources(function, _of_all_workers(asked, config.trials.workers)),
            param_space={"number": tune.grid_search(list(range(len(trials))))},
            tune_config=tune.TuneConfig(
                scheduler=scheduler,
                max_concurrent_trials=many,
                # the other workers of a trial end with its actor
                reuse_actors=config.trials.workers == 1,
                trial_name_creator=lambda trial: trials[trial.config["number"]].name,
            ),
            run_config=tune.RunConfig(
                name="trials",
                storage_path=str(folder),
                verbose=0,
                callbacks=[Watch(trials, tell)],
                failure_config=tune.FailureConfig(max_failures=1),
            ),
        ).fit()
    if results.errors:
        raise cause(
            results.errors,
            f"{len(results.errors)} trials failed, the first with: {{}}; the other trials have their results; "
            "run the same command again to repeat the failed trials",
        )
    return published(trials, {result.config["number"]: result.metrics or {} for result in results}, search)


def published(trials: Sequence[Trial], last: Mapping[int, dict[str, Any]], search: str | None) -> Results:
    """Return the results that the trials wrote; for a trial that was stopped early, write and return its record.

    `last`: number of a trial -> its last report to Tune. `search` is as in `run_trials`. Raises DataError if this
    machine does not see a result.
    """
    results = {trial.name: trial_work.result_of(trial) for trial in trials}
    lost = [
        trial
        for number, trial in enumerate(trials)
        if results[trial.name] is None and (search is None or last[number].get(LAST))
    ]
    if lost:
        raise DataError(
            f"this machine does not see the results of {len(lost)} trials, the first of them in {lost[0].folder}: "
            "set output to a folder that all machines share, or to a URL"
        )
    return {
        trial.name: results[trial.name] or _stopped(trial, last[number], search) for number, trial in enumerate(trials)
    }


def _work(
    settings: dict[str, int],
    trials: list[Trial],
    problems: dict[tuple[str, Truncation], Any],
    initial: Initial,
    share: dict[str, float],
) -> None:
    """Run the trial number settings["number"] in this process; `problems` has references to the problems."""
    trial = trials[settings["number"]]
    reference = problems[trial.problem, trial.config.cutting]
    problem = ray.get(reference)
    first, metric = next(iter(problem.splits)), problem.task.metrics[0]

    def tell(scores: Scores, epoch: int, last: bool) -> None:
        value = scores[first][metric]
        tune.report({SCORE: comparable_score(metric, value), VALUE: value, EPOCH: epoch, LAST: last})

    def after_epoch(epoch: int, scores: Scores) -> None:
        # The last epoch is not reported here: Tune might stop the trial before its result is published.
        if epoch < trial.config.recipe.epochs:
            tell(scores, epoch, last=False)

    if trial.config.trials.workers == 1:
        result = trial_work.load_or_train(trial, problem, initial, after_epoch)
    else:
        from pipeline.grid import team  # imports Ray Train, which most trials do not need

        result = trial_work.load_or_train(
            trial, problem, initial, after_epoch, lambda: team.workers(trial, reference, initial, share)
        )
    tell(result["scores"], result["best_epoch"], last=True)


def _stopped(trial: Trial, last: dict[str, Any], search: str | None) -> dict[str, Any]:
    """Write and return the record of a trial that the scheduler stopped; `last`: its last report to Tune."""
    result = {"stopped_after_epoch": last[EPOCH], "score": last[VALUE], "chosen": trial.chosen, "stage": trial.stage}
    result |= {"search": search}
    storage.write_json(storage.join(trial.folder, trial_work.STOPPED), result)
    delete_checkpoints(trial.folder)
    return result


def cause(errors: Sequence[BaseException], words: str) -> PipelineError:
    """Return the PipelineError that caused the first of Ray's errors.

    If no PipelineError was the cause, return a new PipelineError. Its message is `words`, with {} replaced by the last
    line of Ray's error.
    """
    if known := pipeline_cause(errors[0]):
        return known
    lines = [line.strip() for line in str(errors[0]).splitlines() if line.strip()] or [type(errors[0]).__name__]
    return PipelineError(words.format(lines[-1]))
