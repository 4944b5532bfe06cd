"""Run the work on parts in this process or on Ray: a small input is done before Ray would have started."""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from pipeline.command_line.stopping import interrupt_on_sigterm
from pipeline.config.embed import Embed
from pipeline.config.predict import Predict
from pipeline.files.locations import is_url
from pipeline.on_ray.answering import AnswerProgress
from pipeline.on_ray.heads import ray_at_hand
from pipeline.predict.inputs import RowFile
from pipeline.predict.unfinished import UnfinishedParts
from pipeline.predict.work import PartsWork, close_part, count
from pipeline.reporting import Report, beating
from pipeline.train.hardware import cores

MOST_ROWS, MOST_BYTES = 4_000, 4_000_000
"""Largest input that is worked on in this process.

A small model on two cores needs about as long for it as Ray needs to start.
"""


def run_work(work: PartsWork, progress: AnswerProgress, report: Report) -> None:
    """Work on every missing part, in this process or on Ray, and report which and why. The parts have the same bytes.

    Raises the PipelineError of a part.
    """
    if work.config.gpus == 0:
        work = replace(work, config=replace(work.config, placement=replace(work.config.placement, device="cpu")))
    rows = _rows_of_small(work.files)
    reason = reason_for_ray(work.config, work.files, rows)
    if reason is None:
        size = "a small input" if rows is None else f"{rows:,} row{'s' * (rows != 1)}, at most {MOST_ROWS:,}"
        report(f"without Ray: {size}")
        progress.total = rows
        _run_here(work, progress)
    else:
        from pipeline.predict import distributed  # loads Ray, which takes more than half a second

        report(f"on Ray: {reason}")
        distributed.run_on_ray(work, progress, report)


def reason_for_ray(config: Predict | Embed, files: Sequence[RowFile], rows: int | None) -> str | None:
    """Return why Ray is used, in words; None if the work is done in this process.

    Ray is used if it is at hand, if settings ask for a cluster, and for inputs above MOST_ROWS or MOST_BYTES. `rows` is
    the number of rows of all files; None if unknown.
    """
    size = sum(file.bytes for file in files)
    reasons = {
        "placement.autoscaled is set": config.placement.autoscaled,
        f"actors is {config.actors}": config.actors is not None and config.actors > 1,
        f"gpus is {config.gpus}": bool(config.gpus),
        "the size of the input is not known": any(file.bytes < 0 for file in files),
        f"{size / 1e6:,.1f} MB, more than {MOST_BYTES / 1e6:g} MB": size > MOST_BYTES,
        f"{rows or 0:,} rows, more than {MOST_ROWS:,}": rows is not None and rows > MOST_ROWS,
    }
    return ray_at_hand(config.placement.address) or next((reason for reason, holds in reasons.items() if holds), None)


def _rows_of_small(files: Sequence[RowFile]) -> int | None:
    """Return the number of rows of all files; None if they are large, at URLs, or cannot be read."""
    if sum(file.bytes for file in files) > MOST_BYTES or any(is_url(file.location) for file in files):
        return None
    return count(files)


def _run_here(work: PartsWork, progress: AnswerProgress) -> None:
    """Work on one missing part after the other in this process, with all of its cores."""
    interrupt_on_sigterm()
    unfinished = UnfinishedParts()
    with beating(lambda: progress.beat(int(unfinished.texts()))):
        worker = work.make_worker(work, threads=work.config.placement.threads or cores(), note=unfinished.report)
        progress.model_loaded()
        for file in work.missing_files():
            for row in work.reader(pa.table({"file": [file]})):
                (done,) = worker(row).to_pylist()
                close_part(done, work.parts, progress)
