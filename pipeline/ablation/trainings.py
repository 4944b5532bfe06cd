"""Pretrain the runs of an ablation as trials of Ray Tune, several at the same time if the cluster has room."""

import sys
import threading
import traceback
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ray import tune

from pipeline.ablation.budget import Train
from pipeline.command_line.environment import set_ray_defaults
from pipeline.command_line.stopping import interrupts_deferred
from pipeline.config.jobs import Pretrain
from pipeline.errors import ClusterLost, PipelineError
from pipeline.files import storage
from pipeline.files.local_files import scratch_folder
from pipeline.files.shared_output import unshared_output
from pipeline.grid.tune import cause
from pipeline.reporting import Report
from pipeline.saved.run import SUMMARY, run_folder
from pipeline.tracking.drivers import this_driver
from pipeline.tracking.failures import error_line
from pipeline.tracking.runs import end_killed
from pipeline.train.launch import wait_until_unlocked

DRIVER, LINE, ERROR, DONE = "driver", "line", "error", "done"
"""Keys of a trial's reports to Tune.

driver: the process that drives the run (`this_driver`); line: a progress line; error: the PipelineError that ended the
run; done: the run has its summary.
"""
RESERVED = {"memory": 1}
"""Resources that Tune reserves for a trial: one byte of memory, because Tune must reserve something.

A trial only waits for the run. The run's workers and data stream request their own CPUs and GPUs from Ray. If Tune
reserved CPUs or GPUs as well, the workers might wait for ever.
"""


class TrainingsWatch(tune.Callback):
    """Report the lines of each trial, with the label of its run in front."""

    def __init__(self, labels: Sequence[str], names: Sequence[str], report: Report) -> None:
        self.labels, self.names, self.report = labels, names, report
        self.drivers: set[str] = set()
        """Processes that drive or drove runs."""

    def __getstate__(self) -> dict[str, Any]:
        """Return an empty state: Tune pickles callbacks to restore an experiment, which is never done here."""
        return {}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._say(trial, f"run {self.names[trial.config['number']]}")

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        if DRIVER in result:
            self.drivers.add(result[DRIVER])
        if LINE in result:
            self._say(trial, result[LINE])

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._say(trial, "the process that drove the run is lost, perhaps with its node; the run is tried again")

    def _say(self, trial: Any, line: str) -> None:
        self.report(f"{self.labels[trial.config['number']]}: {line}")


class Stop(tune.Stopper):
    """Stop all trials when a run fails with an error that no retry fixes, or when the user stops the command."""

    def __init__(self, stopped: threading.Event, report: Report) -> None:
        self.stopped, self.report, self.told = stopped, report, False
        self.error: PipelineError | None = None
        """The first error of a run; None if no run has failed."""

    def __getstate__(self) -> dict[str, Any]:
        """Return an empty state, as `TrainingsWatch` does."""
        return {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self.error = self.error or result.get(ERROR)
        return ERROR in result

    def stop_all(self) -> bool:
        if self.stopped.is_set() and not self.told:
            self.told = True
            self.report("stopping all runs, which takes a few seconds")
        return self.error is not None or self.stopped.is_set()


def train_runs(runs: Mapping[str, Pretrain], at_once: int, train: Train, report: Report) -> list[dict[str, Any]]:
    """Train the runs, at most `at_once` at the same time, and return their summaries.

    `runs`: label for progress lines -> settings of the run. Locations in the settings must be absolute. The first
    PipelineError of a run stops all runs and is raised. If the process of a run is lost, the run is tried again, at
    most placement.restarts times. After Ctrl-C or SIGTERM, stops all runs and raises KeyboardInterrupt.
    """
    each = list(runs.values())
    watch = TrainingsWatch(list(runs), [str(run.name) for run in each], report)
    with scratch_folder("tune") as folder, interrupts_deferred() as stopped:
        stop = Stop(stopped, report)
        try:
            results = _tuner(each, at_once, train, str(folder), stop, watch).fit()
            for run in each:
                wait_until_unlocked(run_folder(run))
            if stopped.is_set():
                raise KeyboardInterrupt
            if stop.error is not None:
                raise stop.error
        except BaseException:
            _end_mlflow_runs(each[0], watch.drivers)
            raise
    if results.errors:
        raise cause(
            results.errors, f"{len(results.errors)} runs failed, the first with: {{}}; the same command continues"
        )
    return [_summary(run) for run in each]


def _tuner(
    runs: list[Pretrain], at_once: int, train: Train, folder: str, stop: Stop, watch: TrainingsWatch
) -> tune.Tuner:
    """Return the Tuner with a trial per run; `folder` is a temporary folder for the files of Tune."""
    return tune.Tuner(
        tune.with_resources(tune.with_parameters(_train, runs=runs, train=train, command=sys.argv), RESERVED),
        param_space={"number": tune.grid_search(list(range(len(runs))))},
        tune_config=tune.TuneConfig(
            max_concurrent_trials=at_once,
            reuse_actors=True,
            trial_name_creator=lambda trial: str(runs[trial.config["number"]].name),
        ),
        run_config=tune.RunConfig(
            name="runs",
            storage_path=folder,
            verbose=0,
            stop=stop,
            callbacks=[watch],
            failure_config=tune.FailureConfig(max_failures=runs[0].placement.restarts),
        ),
    )


def _end_mlflow_runs(run: Pretrain, drivers: Collection[str]) -> None:
    """Set the status KILLED for the MLflow runs that `drivers` left running in the experiment of `run`."""
    if run.tracking.uri is not None:
        end_killed(run.tracking.uri, run.tracking.experiment, drivers)


def _summary(run: Pretrain) -> dict[str, Any]:
    """Return the summary of a finished run. Raises ConfigError if this machine cannot see the summary."""
    summary = storage.read_object(storage.join(run_folder(run), SUMMARY))
    if summary is None:
        raise unshared_output(run.output, f"the summary of run {run.name} is not there")
    return summary


def _train(settings: dict[str, int], runs: list[Pretrain], train: Train, command: list[str]) -> dict[str, Any]:
    """Train run number settings["number"], and report its progress lines to Tune.

    Return {DONE: True}, or the error that ended the run under the key ERROR. Raises ClusterLost, because a retry may
    help.
    """
    set_ray_defaults()
    sys.argv = command  # MLflow's tags name the command of a run
    run = runs[settings["number"]]
    tune.report({DRIVER: this_driver()})
    try:
        train(run, lambda line: tune.report({LINE: line}))
    except ClusterLost:
        raise
    except PipelineError as error:
        return {ERROR: error}
    except Exception as error:
        traceback.print_exc()
        return {ERROR: PipelineError(f"run {run.name} failed: {error_line(error)}; the full error is in Ray's logs")}
    return {DONE: True}
