"""Run independent tasks on a Ray cluster, as one Ray Data graph. Each row of the graph is one task."""

import json
import logging
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray
from ray.data import DataContext, Dataset
from ray.util.queue import Queue

from pipeline import errors
from pipeline.errors import PipelineError
from pipeline.reporting import Report
from pipeline.retries import with_retries

LISTEN_SECONDS = 0.5
MOST_BLOCKS = 2_000
"""With more input blocks, Ray Data's planning takes seconds."""


def run_tasks(work: Callable[[Any], Any], items: Sequence[Any], most_tasks: int | None = None) -> Iterator[Any]:
    """Call `work` on each item, in Ray tasks, and yield the results as they arrive.

    Items and results must be JSON values. Each task takes one CPU; at most `most_tasks` run at once (None: no limit).

    Re-raises the PipelineError of a task.
    """

    def working(row: dict[str, Any]) -> dict[str, Any]:
        return _result_or_error(lambda: {"result": json.dumps(work(json.loads(row["item"])))}, {"result": ""})

    if not items:
        return
    with DataContext.current(context_without_time_limit()), quiet_ray_data():
        yield from _unpack_results(
            _rows_of(items).map(working, num_cpus=1, concurrency=most_tasks and _block_count(most_tasks, items))
        )


def fetch_and_run_tasks(
    fetch: Callable[[Any], list[bytes]],
    most_fetches: int,
    work: Callable[[Any, list[bytes]], Any],
    items: Sequence[Any],
) -> Iterator[Any]:
    """Call `fetch` on each item, then `work` on the item and the fetched bytes; yield the results as they arrive.

    A call of `work` takes one CPU, a call of `fetch` none. At most `most_fetches` fetches run at once; fetched bytes
    wait in the object store, within its capacity. Re-raises the PipelineError of a task.
    """

    def fetching(row: dict[str, Any]) -> dict[str, Any]:
        return _result_or_error(
            lambda: {"item": row["item"], "bytes": fetch(json.loads(row["item"]))}, {"item": row["item"], "bytes": []}
        )

    def working(row: dict[str, Any]) -> dict[str, Any]:
        failed = {"result": ""}
        if row["error"]:
            return failed | {"error": row["error"], "message": row["message"]}
        return _result_or_error(lambda: {"result": json.dumps(work(json.loads(row["item"]), row["bytes"]))}, failed)

    if not items:
        return
    with DataContext.current(context_without_time_limit()), quiet_ray_data():
        # 0 CPUs, because a task that only waits for a server should not hold a CPU.
        fetched = _rows_of(items).map(fetching, num_cpus=0, concurrency=_block_count(most_fetches, items))
        yield from _unpack_results(fetched.map(working, num_cpus=1))


@contextmanager
def relay_reports(report: Report) -> Generator[Callable[[str], None]]:
    """Provide a function that tasks call to report lines to the driver. Ray does not show what tasks print."""
    queue = Queue(actor_options={"num_cpus": 0})
    over = threading.Event()

    def listen() -> None:
        last = False
        while not last:
            last = over.wait(LISTEN_SECONDS)
            for line in queue.get_nowait_batch(queue.qsize()):
                report(line)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        yield queue.put
    finally:
        over.set()
        listener.join()
        queue.shutdown()


def _rows_of(items: Sequence[Any]) -> Dataset:
    """Return a dataset with one row per item."""
    rows = [{"item": json.dumps(item)} for item in items]
    return ray.data.from_items(rows, override_num_blocks=_block_count(MOST_BLOCKS, items))


def _block_count(most: int, items: Sequence[Any]) -> int:
    """Return the number of blocks or of concurrent tasks: `most`, but at most 2,000 and at most one per item.

    Ray Data warns if there are more concurrent tasks than blocks.
    """
    return min(most, len(items), MOST_BLOCKS)


def _result_or_error(call: Callable[[], dict[str, Any]], failed: dict[str, Any]) -> dict[str, Any]:
    """Return the row that a call returns; if the call raises a PipelineError, return `failed` with the error.

    Transient storage errors are retried. The PipelineError is returned and not raised, because Ray would wrap a raised
    error in another error and print a traceback.
    """
    try:
        return with_retries(call) | {"error": "", "message": ""}
    except PipelineError as error:
        return failed | {"error": type(error).__name__, "message": str(error)}


def _unpack_results(rows: Dataset) -> Iterator[Any]:
    """Yield the result of each row as rows arrive. If a row has a PipelineError, raise this error."""
    for row in rows.iter_rows():
        if row["error"]:
            raise getattr(errors, row["error"])(row["message"])
        yield json.loads(row["result"])


def context_without_time_limit() -> DataContext:
    """Return a copy of the caller's context without progress bars and without a time limit for tasks."""
    context = DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.execution_no_progress_timeout_s = -1
    return context


@contextmanager
def quiet_ray_data() -> Generator[None]:
    """Keep Ray Data's messages below ERROR off the console; its log file still has them."""
    consoles = [
        handler for handler in logging.getLogger("ray.data").handlers if isinstance(handler, logging.StreamHandler)
    ]
    levels = [handler.level for handler in consoles]
    for handler in consoles:
        handler.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for handler, level in zip(consoles, levels):
            handler.setLevel(level)
