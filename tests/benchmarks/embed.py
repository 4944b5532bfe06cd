"""Measure the peak memory of the job `embed` with some texts and with several times as many.

The memory is that of all processes of the job and of the Ray that it starts, with the object store: the sum of their
proportional set sizes (PSS), in which a page that n processes share counts 1/n in each.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from pipeline.bench.benches import temporary_folder
from pipeline.command_line.columns import aligned
from pipeline.config.checks import require
from pipeline.config.cutting import Truncation
from pipeline.config.model import Model
from pipeline.errors import PipelineError
from pipeline.fine_tuned.tuned import About, save_tuned
from pipeline.objectives.tasks import OBJECTIVES
from pipeline.reporting import Report
from pipeline.tasks.task import Task
from pipeline.text.training import train_vocabulary
from tests.benchmarks.job import processes_of, running
from tests.benchmarks.settings import Embed

TEXTS_PER_FILE = 100_000
WORDS_PER_TEXT = 6
WORDS = [first + second + third for first in ("ka", "lo", "mi") for second in ("ne", "su", "ta") for third in "rlmn"]
MODEL = Model(layers=1, width=32, heads=2, feed_forward=64, maximum_positions=32)
SECONDS_BETWEEN = 0.5
MOST_GROWTH = 1.1
"""Peak memory with several times the texts, as a multiple of the peak with the texts, above which a bench fails."""


@dataclass(frozen=True, kw_only=True)
class MeasuredJob:
    """One job."""

    texts: int
    peak: int
    """Peak memory of all processes together, in bytes."""
    seconds: float


def measure(counts: Sequence[int], checkpoint: str | None, folder: str) -> list[MeasuredJob]:
    """Embed each number of texts with a job of its own, and return the peaks. Files are written to `folder`.

    Raises PipelineError if a job fails.
    """
    model = checkpoint or save_random_model(f"{folder}/model")
    return [_measure_job(count, model, Path(folder, str(count))) for count in counts]


def write_texts(count: int, folder: Path) -> None:
    """Write `count` short texts with ids as Parquet files of TEXTS_PER_FILE rows; the same texts every time."""
    folder.mkdir(parents=True)
    for number, first in enumerate(range(0, count, TEXTS_PER_FILE)):
        rows = min(TEXTS_PER_FILE, count - first)
        drawn = np.array(WORDS)[np.random.default_rng(number).integers(len(WORDS), size=(rows, WORDS_PER_TEXT))]
        texts = [" ".join(words) for words in drawn.tolist()]
        table = pa.table({"id": [f"{row:09}" for row in range(first, first + rows)], "text": texts})
        pq.write_table(table, folder / f"{number:05}.parquet")


def save_random_model(folder: str) -> str:
    """Save an encoder with random weights for the texts of `write_texts`, and return its folder."""
    vocabulary = train_vocabulary(WORDS, size=100, lowercase=True)
    task = Task(name="random", kind="similarity", labels=(), metrics=("spearman",), paired=True)
    generator = torch.Generator().manual_seed(0)
    module = OBJECTIVES["similarity"](MODEL, vocabulary.size, 0, generator, "mean", None)
    cutting = Truncation(maximum_length=MODEL.maximum_positions, stride=2)
    save_tuned(
        folder, module, About(task=task, cutting=cutting, pooling="mean", thresholds={}, lineage={}), MODEL, vocabulary
    )
    return folder


def _measure_job(count: int, model: str, folder: Path) -> MeasuredJob:
    """Embed `count` texts with one process on a Ray of its own, and return the peak."""
    write_texts(count, folder / "texts")
    options = ["--checkpoint", model, "--input", f"{folder}/texts", "--output", f"{folder}/vectors"]
    command = [sys.executable, "jobs/embed.py", *options, "--actors", "1", "--placement.threads", "1"]
    begun, log = time.monotonic(), folder / "output.txt"
    environment = os.environ | {"RAY_ADDRESS": "local"}
    with log.open("w") as output, running(command, output, environment, subprocess.STDOUT) as process:
        peak = max(tree_sizes(process.pid), default=0)
        if process.wait() != 0:
            last = (log.read_text().strip() or "no output").splitlines()[-1]
            raise PipelineError(f"jobs/embed.py of {count:,} texts ended with exit code {process.returncode}: {last}")
    return MeasuredJob(texts=count, peak=peak, seconds=time.monotonic() - begun)


def tree_sizes(root: int) -> Iterator[int]:
    """Yield the bytes of a process and all its descendants together until the process ends."""
    while tree := [process for process in processes_of(root) if process.is_running()]:
        if tree[0].status() == psutil.STATUS_ZOMBIE:
            return
        yield sum(map(_proportional_bytes, tree))
        time.sleep(SECONDS_BETWEEN)


def _proportional_bytes(process: psutil.Process) -> int:
    """Return the proportional set size of a process; 0 if the process has ended."""
    try:
        return process.memory_full_info().pss
    except psutil.Error:
        return 0


def table(measured: Sequence[MeasuredJob]) -> list[str]:
    """Return the lines of a table, with the peak of each job and its ratio to that of the first."""
    rows = [
        [f"{one.texts:,}", f"{one.peak / 1e6:,.0f}", f"{one.peak / measured[0].peak:.3f}", f"{one.seconds:,.0f}"]
        for one in measured
    ]
    return aligned(["texts", "peak, MB", "ratio", "seconds"], rows)


def verdict(measured: Sequence[MeasuredJob]) -> int:
    """Return 0 if the second job's peak is at most MOST_GROWTH times that of the first, else 1."""
    return int(measured[1].peak > MOST_GROWTH * measured[0].peak)


def run(config: Embed, report: Report) -> int:
    """Measure and print; return 1 if the second peak is too high, else 0."""
    require(hasattr(psutil.Process().memory_full_info(), "pss"), "the bench embed needs Linux, which measures PSS")
    with temporary_folder() as folder:
        measured = measure([config.texts, config.texts * config.times], config.checkpoint, folder)
    print("\n".join(table(measured)))
    return verdict(measured)
