"""The training loop alone beside the same loop under Ray Train with the live stream, and how long a submitted job takes to its first step."""

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.bench.plain import RATE
from pipeline.errors import PipelineError
from pipeline.train import run
from pipeline.train.tracking import Metric, MlflowRun, history

ROOT = Path(__file__).resolve().parents[2]
HEAD = str(ROOT / "cluster" / "head.sh")
INTERVAL = 10
"""Steps between log lines, each with its rate."""
WARM_UP = 2
"""Intervals before those that count: memory is mapped, and code compiled."""


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """One time around."""

    alone: float
    """Tokens a second of the loop alone, the median of its intervals."""
    under_ray: float
    """The same under Ray Train."""
    first_step: float
    """Seconds from `ray job submit` to the end of the first step."""


def measure(preset: str, corpus: Sequence[str], folder: str, *, steps: int, compiled: str, repetitions: int) -> Iterator[Repetition]:
    """Repetitions of a preset's job on a corpus that is prepared once, all in `folder`."""
    prepared = f"{folder}/corpus"
    call([sys.executable, "jobs/prepare.py", "--folder", prepared, *(word for source in corpus for word in ("--corpus", source))])
    words = [preset, "--corpus", prepared, "--output", folder, "--placement.compile", compiled]
    with head(folder) as environment:  # trains the vocabulary, and leaves the compiler's files
        submit([*words, "--name", "before", "--steps", "2"], environment)
    for number in range(repetitions):
        printed = call([sys.executable, "-m", "pipeline.bench.plain", f"{folder}/runs/before", str(steps), compiled, str(INTERVAL)])
        alone = {int(step): rate for step, rate in json.loads(printed.splitlines()[-1]).items()}
        with head(folder) as environment:
            submitted = submit([*words, "--name", f"first-{number}", "--steps", "1", "--tracking.every", "1"], environment)
            (first,) = points(folder, f"first-{number}")
            submit([*words, "--name", f"run-{number}", "--steps", str(steps), "--tracking.every", str(INTERVAL)], environment)
        under_ray = {point.step: point.value for point in points(folder, f"run-{number}")}
        yield Repetition(alone=rate_of(alone), under_ray=rate_of(under_ray), first_step=first.timestamp / 1000 - submitted)


def rate_of(rates: dict[int, float]) -> float:
    """The median rate of the intervals after the warm-up."""
    return statistics.median(rate for step, rate in rates.items() if step > WARM_UP * INTERVAL)


def points(folder: str, name: str) -> list[Metric]:
    """The rates that a run logged, in the order of steps."""
    recorded = run.read_run(f"{folder}/runs/{name}")
    assert recorded, name
    return history(MlflowRun(uri=f"sqlite:///{folder}/mlflow.db", run_id=recorded["mlflow_run_id"]), RATE)


@contextmanager
def head(folder: str) -> Iterator[dict[str, str]]:
    """A Ray head of this bench alone, and the environment that reaches it; its files lie in `folder`."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"} | {"DASHBOARD_PORT": str(port), "HEAD_FOLDER": f"{folder}/head"}
    call([HEAD, "start"], environment)
    try:
        yield environment
    finally:
        call([HEAD, "stop"], environment)


def submit(words: Sequence[str], environment: dict[str, str]) -> float:
    """Submit a pretraining job and wait for its end; the moment of submission, in seconds since 1970."""
    started = time.time()
    call([HEAD, "submit", "python", "jobs/pretrain.py", *words], environment)
    return started


def call(command: Sequence[str], environment: dict[str, str] | None = None) -> str:
    """What a command prints. Raises PipelineError with its last line where it fails."""
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise PipelineError(f"{' '.join(command)} ended with exit code {done.returncode}: {last}")
    return done.stdout
