"""Compare the training loop alone with the same loop in a Ray Train job on the live stream; time a job's first step.

Both sides start first. Then they run in turns of a few seconds: while one side runs, SIGSTOP stops the other side.
Whole runs cannot be compared, because the speed of a shared machine can change by a third within a minute.
"""

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import psutil

from pipeline.bench.benches import temporary_folder, verdict
from pipeline.config.checks import require
from pipeline.config.locations import BUILTIN
from pipeline.errors import ConfigError, PipelineError
from pipeline.files.locations import sqlite_uri
from pipeline.presets.table import require_preset
from pipeline.reporting import Report
from pipeline.saved.run import RUN, read_run
from pipeline.tracking.runs import Metric, MlflowRun, history
from pipeline.train.hardware import cores
from tests.benchmarks.plain import RATE, STEP_TIME, Interval
from tests.benchmarks.settings import Job

ROOT = Path(__file__).resolve().parents[2]
HEAD = str(ROOT / "cluster" / "head.sh")
NAME = "under Ray Train / the loop alone"
AIM, FLOOR = 0.97, 0.64
"""Ratio to aim for, and ratio below which the bench fails: 80% of a measured one."""
STEPS_AN_INTERVAL = 5
"""Training steps per log interval."""
ONE_PHASE = "phases:one-phase"
"""Command-line word that chooses a single phase, so that all steps have the same sequence length."""
WARM_UP = 4
"""Log intervals before the first turn. In this time, memory is mapped, code is compiled and first blocks are made."""
TURN = 8.0
"""Seconds per turn."""


@dataclass(frozen=True, kw_only=True)
class Turns:
    """Start and end of each side's turns, in seconds since 1970."""

    alone: tuple[tuple[float, float], ...]
    under_ray: tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Mean tokens per second of each side in one pair of turns."""

    alone: float
    under_ray: float


def prepare(folder: str, corpus: Sequence[str]) -> str:
    """Prepare the corpus with jobs/prepare.py and return its folder."""
    prepared = f"{folder}/corpus"
    _call(
        [
            sys.executable,
            "jobs/prepare.py",
            "--folder",
            prepared,
            *(word for source in corpus for word in ("--corpus", source)),
        ]
    )
    return prepared


def first_steps(words: Sequence[str], folder: str, repetitions: int) -> list[float]:
    """Return the seconds from submitting a job to the end of its first step, one value per repetition.

    `words`: command line of jobs/pretrain.py, without name and steps. A job that is not measured runs first on the same
    Ray head, because the first job also trains the vocabulary.
    """
    seconds = []
    with _head(folder) as environment:
        for number in range(-1, repetitions):  # -1 is the unmeasured job
            submitted = time.time()
            _call(
                [
                    HEAD,
                    "submit",
                    "python",
                    "jobs/pretrain.py",
                    *words,
                    "--name",
                    f"first-{number}",
                    "--steps",
                    "1",
                    "--tracking.every",
                    "1",
                    ONE_PHASE,
                ],
                environment,
            )
            (point,) = _points(folder, f"first-{number}", RATE)
            seconds.append(point.timestamp / 1000 - submitted)
    return seconds[1:]


def rates(words: Sequence[str], folder: str, *, steps: int, compiled: str, threads: int) -> list[Rates]:
    """Run a job under Ray and the loop alone in turns until one side ends; return the rates of each pair of turns.

    Call `first_steps` with the same folder first: the loop alone reads settings, corpus and vocabulary from the first
    run of `first_steps`.
    """
    every = str(STEPS_AN_INTERVAL)
    plain_words = [f"{folder}/runs/first--1", str(steps), compiled, every, str(threads)]
    with (
        _head(folder) as environment,
        open(f"{folder}/alone", "w+") as printed,
        running([sys.executable, "-m", "tests.benchmarks.plain", *plain_words], printed) as plain,
    ):
        alone = JobSide(
            plain, lambda: [Interval(**json.loads(line)) for line in Path(printed.name).read_text().splitlines()]
        )
        alone.wait(WARM_UP)
        alone.stop()
        submission = [
            HEAD,
            "submit",
            "python",
            "jobs/pretrain.py",
            *words,
            "--name",
            "under-ray",
            "--steps",
            str(steps),
            "--tracking.every",
            every,
            ONE_PHASE,
        ]
        with running(submission, subprocess.DEVNULL, environment) as client:
            ray = JobSide(client, lambda: _logged(folder, "under-ray"), Path(environment["HEAD_FOLDER"], "pid"))
            ray.wait(WARM_UP)
            turns = take_turns(alone, ray)
            if client.wait():
                raise PipelineError(
                    f"the job under Ray ended with exit code {client.returncode}; "
                    f"its log is in {environment['HEAD_FOLDER']}"
                )
    return by_turn(turns, alone.intervals(), ray.intervals())


class JobSide:
    """One side of the comparison: its process, its log intervals so far, and the pid file of its Ray head, if any."""

    def __init__(
        self, process: subprocess.Popen[Any], intervals: Callable[[], list[Interval]], head_pid: Path | None = None
    ) -> None:
        self.process, self.intervals, self.head_pid = process, intervals, head_pid

    def wait(self, intervals: int) -> None:
        """Wait until the side has `intervals` log intervals. Raises PipelineError if the process ends earlier."""
        while len(self.intervals()) < intervals:
            if self.process.poll() is not None:
                raise PipelineError(
                    f"{self.process.args} ended with exit code {self.process.returncode} before "
                    f"log interval {intervals}"
                )
            time.sleep(0.5)

    def stop(self) -> None:
        """Stop all processes of this side (SIGSTOP)."""
        self.send(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let all processes of this side continue (SIGCONT)."""
        self.send(signal.SIGCONT)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, its Ray head, and all their descendants."""
        for root in [self.process.pid, *([int(self.head_pid.read_text())] if self.head_pid else [])]:
            for process in processes_of(root):
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)


def processes_of(root: int) -> list[psutil.Process]:
    """Return a process and all its descendants; an empty list if the process has ended."""
    try:
        top = psutil.Process(root)
        return [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def take_turns(alone: JobSide, ray: JobSide) -> Turns:
    """Run the two sides in turns until the process of one side ends; return the times of the turns.

    `alone` must be stopped before the call. After the call, `alone` is stopped and `ray` continues.
    """
    taken: dict[JobSide, list[tuple[float, float]]] = {ray: [], alone: []}
    try:
        while all(side.process.poll() is None for side in taken):
            for side, other in ((ray, alone), (alone, ray)):
                other.stop()
                side.go_on()
                begun = time.time()
                time.sleep(TURN)
                taken[side].append((begun, time.time()))
    finally:
        alone.stop()
        ray.go_on()
    return Turns(alone=tuple(taken[alone]), under_ray=tuple(taken[ray]))


def by_turn(turns: Turns, alone: Sequence[Interval], under_ray: Sequence[Interval]) -> list[Rates]:
    """Return the rates of each pair of turns.

    Only log intervals within one turn count. A pair of turns is left out if a side has no log interval within its turn.
    """
    rates_of_pairs = []
    for pair in zip(turns.alone, turns.under_ray, strict=True):
        sides = [
            [
                interval.tokens_per_second
                for interval in side
                if begun <= interval.end - interval.seconds and interval.end <= end
            ]
            for side, (begun, end) in zip((alone, under_ray), pair, strict=True)
        ]
        if all(sides):
            rates_of_pairs.append(Rates(alone=statistics.mean(sides[0]), under_ray=statistics.mean(sides[1])))
    return rates_of_pairs


def _logged(folder: str, name: str) -> list[Interval]:
    """Return the log intervals of a run so far; an empty list before the run has written its run.json."""
    if not Path(folder, "runs", name, RUN).exists():
        return []
    pairs = zip(_points(folder, name, RATE), _points(folder, name, STEP_TIME), strict=False)
    return [
        Interval(
            step=rate.step,
            end=rate.timestamp / 1000,
            seconds=STEPS_AN_INTERVAL * step_time.value / 1000,
            tokens_per_second=rate.value,
        )
        for rate, step_time in pairs
    ]


def _points(folder: str, name: str, metric: str) -> list[Metric]:
    """Return the points of a metric that a run has logged. The run must have written its run.json."""
    recorded = read_run(f"{folder}/runs/{name}")
    assert recorded, name
    return history(MlflowRun(uri=sqlite_uri(f"{folder}/mlflow.db"), run_id=recorded["mlflow_run_id"]), metric)


@contextmanager
def _head(folder: str) -> Generator[dict[str, str]]:
    """Start a Ray head for this bench alone, with files in `folder`, and stop the head at the end.

    Yields the environment for commands that use this head.
    """
    with socket.socket() as free_port:
        free_port.bind(("127.0.0.1", 0))
        port = free_port.getsockname()[1]
    # Without MLFLOW_TRACKING_URI, the runs log to the database in `folder`, which `_points` reads.
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    environment |= {"DASHBOARD_PORT": str(port), "HEAD_FOLDER": f"{folder}/head"}
    _call([HEAD, "start"], environment)
    try:
        yield environment
    finally:
        _call([HEAD, "stop"], environment)


@contextmanager
def running(
    command: Sequence[str],
    output: TextIO | int,
    environment: dict[str, str] | None = None,
    errors: TextIO | int | None = None,
) -> Generator[subprocess.Popen]:
    """Start a process. At the end, kill the process and its descendants if they still run.

    `errors` takes what the process writes to stderr; None: this process's stderr.
    """
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=errors)
    try:
        yield process
    finally:
        for running_process in processes_of(process.pid):
            with suppress(psutil.NoSuchProcess):
                running_process.kill()
        process.wait()


def _call(command: Sequence[str], environment: dict[str, str] | None = None) -> None:
    """Run a command. If the command fails, raises PipelineError with the last line of the command's output."""
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise PipelineError(f"{' '.join(command)} ended with exit code {done.returncode}: {last}")


def run(config: Job, report: Report) -> int:
    """Measure and print; return 1 if the ratio is below FLOOR, else 0."""
    corpus, preset, steps, compiled = config.corpus or (BUILTIN,), config.preset, config.steps, config.compile
    require_preset(preset)
    startable = not preset.startswith("continue")
    require(startable, f"preset ({preset}) continues from a published model: choose another preset")
    threads = config.threads or cores()
    print(f"{preset}, {threads} of {cores()} CPU threads, torch.compile {compiled}", flush=True)
    with temporary_folder() as folder:
        words = [
            preset,
            "--corpus",
            prepare(folder, corpus),
            "--output",
            folder,
            "--placement.compile",
            compiled,
            "--placement.threads",
            str(threads),
        ]
        seconds = first_steps(words, folder, config.repetitions)
        print("submission to first step  " + "  ".join(f"{value:.1f} s" for value in seconds), flush=True)
        turns = rates(words, folder, steps=steps, compiled=compiled, threads=threads)
    if not turns:
        raise ConfigError(
            f"steps ({steps}) are too few: a run ended before both sides had logged in a turn of {TURN:g} seconds; "
            "give more steps"
        )
    print(f"{'tokens/s':<10}{'alone':>10}{'under Ray':>12}{'ratio':>8}")
    for number, turn in enumerate(turns, 1):
        print(f"{f'turn {number}':<10}{turn.alone:>10,.0f}{turn.under_ray:>12,.0f}{turn.under_ray / turn.alone:>8.3f}")
    ratio = statistics.median(turn.under_ray / turn.alone for turn in turns)
    return verdict({NAME: ratio}, {NAME: AIM}, {NAME: FLOOR})
