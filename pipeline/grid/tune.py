"""Run trials on Ray Tune, distributed over the cluster, with optional early stopping."""

import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler

from pipeline import cluster, ray_private, storage
from pipeline.config.finetune import Cutting, Finetune
from pipeline.errors import ConfigError, DataError, PipelineError
from pipeline.finetune import plan
from pipeline.finetune import trials as trial_work
from pipeline.finetune.problems import Problem
from pipeline.finetune.trials import Trial
from pipeline.local_files import scratch_folder
from pipeline.tasks.selection import comparable_score
from pipeline.train.failures import pipeline_cause
from pipeline.train.initial import Initial
from pipeline.train.probe import gpus_of_process
from pipeline.train.trial_state import Scores, delete_checkpoints

SCORE, VALUE, EPOCH, LAST = "score", "value", "epoch", "last"
"""Keys of a trial's report to Tune after an epoch: the selecting metric as a number that is higher for better models,
the metric itself, the epoch, and whether this epoch is the trial's result.
"""
LOGINS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SECURITY_TOKEN", "AWS_SESSION_TOKEN")
MEASURED_AT_ONCE = 8
"""Maximum number of measuring processes."""
Results = dict[str, dict[str, Any]]
"""Trial's name -> content of its result.json."""


class Watch(tune.Callback):
    """Report the trials' state changes as they happen."""

    def __init__(self, trials: Sequence[Trial], tell: Callable[[Trial, str, dict[str, Any]], None]) -> None:
        self.trials, self.tell = trials, tell

    def __getstate__(self) -> dict[str, Any]:
        """Return nothing: Tune pickles its callbacks to restore an experiment, and trials are not resumed that way
        here.
        """
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
    """Return CPUs and GPUs per trial in this cluster. Raises ConfigError if it has fewer, unless it autoscales."""
    return fit(
        config, dict.fromkeys(("CPU", "GPU"), math.inf) if config.placement.autoscaled else ray.cluster_resources()
    )


def fit(config: Finetune, total: Mapping[str, float]) -> dict[str, float]:
    """Return CPUs and GPUs per trial in a cluster with `total`. Raises ConfigError if that is too little."""
    gpus = gpus_of_process("trials.gpus", config.trials.gpus, config.placement.device, total.get("GPU", 0.0))
    if gpus > 1 and gpus != int(gpus):
        raise ConfigError(f"trials.gpus ({gpus:g}) must be at most 1, or whole: a trial uses one")
    if config.trials.workers > 1 and 0 < gpus < 1:
        raise ConfigError(
            f"trials.gpus ({gpus:g}) with trials.workers ({config.trials.workers}): workers of a trial cannot "
            f"share a GPU; "
            "give each one, or use one worker"
        )
    if config.trials.cpus > total.get("CPU", 0.0):
        raise ConfigError(
            f"trials.cpus ({config.trials.cpus:g}) is more than there is: the cluster has {total.get('CPU', 0.0):g} "
            "CPUs"
        )
    return {"CPU": config.trials.cpus} | ({"GPU": gpus} if gpus else {})


def _of_all_workers(asked: dict[str, float], workers: int) -> dict[str, float] | tune.PlacementGroupFactory:
    """Resources that Tune reserves for a trial: `asked` for each worker, all on one machine."""
    return asked if workers == 1 else tune.PlacementGroupFactory([asked] * workers, strategy="STRICT_PACK")


def _room(asked: Mapping[str, float], total: Mapping[str, float]) -> int:
    """Return how many times `asked` fits into `total`."""
    return int(min(total.get(name, 0.0) / share for name, share in asked.items()) + 1e-6)


def _refuse_crowded(config: Finetune) -> None:
    """Raise ConfigError where no machine has room for all workers of a trial, unless machines come when they are asked
    for.
    """
    if config.placement.autoscaled or config.trials.workers == 1:
        return
    asked = resources(config)
    most = max(_room(asked, node["Resources"]) for node in ray.nodes() if node["Alive"])
    if config.trials.workers > most:
        each = " and ".join(f"{share:g} {name}s" for name, share in asked.items())
        raise ConfigError(
            f"trials.workers ({config.trials.workers}) of {each} each are more than one machine has room for, "
            f"which is {most}; lower it, or trials.cpus"
        )


def at_once(config: Finetune) -> int:
    """Return the number of concurrent trials."""
    if config.placement.autoscaled and config.trials.at_once:
        return config.trials.at_once
    _refuse_crowded(config)
    each, workers = resources(config), config.trials.workers
    fitting = _room({name: workers * share for name, share in each.items()}, ray.cluster_resources())
    return max(1, min(fitting, config.trials.at_once or fitting))


def connect(config: Finetune) -> None:
    """Join or start Ray. Raises ConfigError if an address does not answer."""
    # With its own handler, Tune would treat Ctrl-C as the end of the experiment and return.
    os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")  # the new output prints a box per experiment even at verbose=0
    # Tune would pass these to its trials as a runtime environment, which Ray writes into its logs; nodes have their own
    # credentials, which all other stages use.
    ray_private.keep_from_trials(LOGINS)
    cluster.connect(config.placement.address)


def seconds_per_step(
    config: Finetune, problems: Mapping[str, Mapping[Cutting, Problem]], initial: Initial
) -> dict[str, float]:
    """Return task -> seconds per step in its first cutting, scaled so that an epoch takes the mean over all cuttings.

    Measured where the trials will run, and concurrently, because cores that share memory and caches slow each other
    down. Raises PipelineError in one line if a few steps cannot be run.
    """
    asked, there = (
        resources(config),
        {name: [ray.put(problem) for problem in variants.values()] for name, variants in problems.items()},
    )
    few_steps = ray.remote(num_cpus=asked["CPU"], num_gpus=asked.get("GPU", 0.0), max_retries=0)(_measure)
    try:
        measured = ray.get(
            [few_steps.remote(config, there, initial) for _ in range(min(at_once(config), MEASURED_AT_ONCE))]
        )
    except ray.exceptions.RayError as error:
        raise cause([error], "measuring a few steps failed: {}") from error
    return {name: statistics.median(seconds[name] for seconds in measured) for name in problems}


def _measure(config: Finetune, problems: dict[str, list[Any]], initial: Initial) -> dict[str, float]:
    """Return one process's measurements."""
    seconds: dict[str, float] = {}
    for name, variants in ((name, ray.get(variants)) for name, variants in problems.items()):
        epochs = [plan.seconds_of(config, variant, initial) * variant.train.rows.num_rows for variant in variants]
        seconds[name] = statistics.mean(epochs) / variants[0].train.rows.num_rows
    return seconds


def run_trials(
    config: Finetune,
    trials: Sequence[Trial],
    problems: Mapping[str, Mapping[Cutting, Problem]],
    initial: Initial,
    tell: Callable[[Trial, str, dict[str, Any]], None],
    *,
    may_stop: bool,
) -> Results:
    """Return the results of all trials, training those that have none. `may_stop`: search.stop_early may stop some.

    Raises PipelineError for the first failed trial, after all others are done.
    """
    asked, many = resources(config), at_once(config)
    scheduler: TrialScheduler = FIFOScheduler()
    if may_stop:
        most = max(trial.config.recipe.epochs for trial in trials)
        # One more than the epochs: at max_t the scheduler would stop trials that are at their end anyway.
        scheduler = ASHAScheduler(
            time_attr="training_iteration", metric=SCORE, mode="max", max_t=most + 1, grace_period=1, reduction_factor=3
        )
    with scratch_folder("tune") as folder:
        there = {
            (name, cutting): ray.put(problems[name][cutting])
            for name, cutting in {(trial.problem, trial.config.cutting) for trial in trials}
        }
        function = tune.with_parameters(_work, trials=list(trials), problems=there, initial=initial, share=asked)
        results = tune.Tuner(
            tune.with_resources(function, _of_all_workers(asked, config.trials.workers)),
            param_space={"number": tune.grid_search(list(range(len(trials))))},
            tune_config=tune.TuneConfig(
                scheduler=scheduler,
                max_concurrent_trials=many,
                reuse_actors=config.trials.workers == 1,  # a trial's other workers end with its actor
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
            f"{len(results.errors)} trials failed, the first with: {{}}; the others have their results, and the same "
            "command tries these again",
        )
    return published(trials, {result.config["number"]: result.metrics or {} for result in results}, may_stop=may_stop)


def published(trials: Sequence[Trial], last: Mapping[int, dict[str, Any]], *, may_stop: bool) -> Results:
    """Return the results written by the trials that did not fail; for early-stopped trials, their last report, keyed by
    number in `last`.

    Raises DataError if a result is not visible.
    """
    results = {trial.name: trial_work.result_of(trial) for trial in trials}
    if lost := [trial for trial in trials if results[trial.name] is None and not may_stop]:
        raise DataError(
            f"{len(lost)} trials wrote their results where this machine does not see them, the first at "
            f"{lost[0].folder}: give an output that all machines see, or a URL"
        )
    return {trial.name: results[trial.name] or _stopped(trial, last[number]) for number, trial in enumerate(trials)}


def _work(
    settings: dict[str, int],
    trials: list[Trial],
    problems: dict[tuple[str, Cutting], Any],
    initial: Initial,
    share: dict[str, float],
) -> None:
    """Run one trial in its process."""
    trial = trials[settings["number"]]
    there = problems[trial.problem, trial.config.cutting]
    problem = ray.get(there)
    first, metric = next(iter(problem.splits)), problem.task.metrics[0]

    def tell(scores: Scores, epoch: int, last: bool) -> None:
        value = scores[first][metric]
        tune.report({SCORE: comparable_score(metric, value), VALUE: value, EPOCH: epoch, LAST: last})

    def after_epoch(epoch: int, scores: Scores) -> None:
        # not after the last epoch: Tune might stop the trial before its result is published
        if epoch < trial.config.recipe.epochs:
            tell(scores, epoch, last=False)

    if trial.config.trials.workers == 1:
        result = trial_work.load_or_train(trial, problem, initial, after_epoch)
    else:
        from pipeline.grid import team  # imports Ray Train, which most trials do not need

        result = trial_work.load_or_train(
            trial, problem, initial, after_epoch, lambda: team.workers(trial, there, initial, share)
        )
    tell(result["scores"], result["best_epoch"], last=True)


def _stopped(trial: Trial, last: dict[str, Any]) -> dict[str, Any]:
    """Publish and return the record of a trial that the scheduler stopped."""
    result = {"stopped_after_epoch": last[EPOCH], "score": last[VALUE], "chosen": trial.chosen, "stage": trial.stage}
    storage.write_json(storage.join(trial.folder, trial_work.STOPPED), result)
    delete_checkpoints(trial.folder)
    return result


def cause(errors: Sequence[BaseException], words: str) -> PipelineError:
    """Return the pipeline's own error inside Ray's first error, else a PipelineError with its last line in `words`."""
    if known := pipeline_cause(errors[0]):
        return known
    said = [line.strip() for line in str(errors[0]).splitlines() if line.strip()] or [type(errors[0]).__name__]
    return PipelineError(words.format(said[-1]))
