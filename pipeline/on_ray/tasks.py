"""Run independent tasks on an executor: a Ray cluster, unless the caller passes another one."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pipeline import errors
from pipeline.errors import PipelineError, class_of
from pipeline.files.retries import with_retries
from pipeline.reporting import Report

if TYPE_CHECKING:  # imported inside functions, because Ray takes seconds to import and other executors do not need it
    from ray.data import DataContext

LISTEN_SECONDS = 0.5
MOST_BLOCKS = 2_000
"""With more input blocks, Ray Data's planning takes seconds."""
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Operator:
    """Function that is called on each row. A call takes `cpus` CPUs; at most `most` run at once (None: no limit)."""

    call: Callable[[Row], Row]
    cpus: int = 1
    most: int | None = None


class Executor(Protocol):
    """A place to run tasks. A row stands for one task; its values are text, bytes, and lists of these."""

    def map_rows(self, rows: Sequence[Row], operators: Sequence[Operator]) -> Generator[Row]:
        """Send each row through all operators, and yield the resulting rows as they arrive, in any order.

        A call gets copies of the function and the row, because it may run in another process.
        """
        ...

    def relay_reports(self, report: Report) -> AbstractContextManager[Callable[[str], None]]:
        """Provide a function that tasks call to report lines to the driver."""
        ...


def run_tasks(
    executor: Executor, work: Callable[[Any], Any], items: Sequence[Any], most_tasks: int | None = None
) -> Iterator[Any]:
    """Call `work` on each item, in tasks of the executor, and yield the results as they arrive.

    Items and results must be JSON values. Each task takes one CPU; at most `most_tasks` run at once (None: no limit).

    Re-raises the PipelineError of a task.
    """

    def working(row: Row) -> Row:
        return _result_or_error(lambda: {"result": json.dumps(work(json.loads(row["item"])))}, {"result": ""})

    yield from _results(executor, items, [Operator(call=working, most=most_tasks)])


def fetch_and_run_tasks(
    executor: Executor,
    fetch: Callable[[Any], list[bytes]],
    most_fetches: int,
    work: Callable[[Any, list[bytes]], Any],
    items: Sequence[Any],
) -> Iterator[Any]:
    """Call `fetch` on each item, then `work` on the item and the fetched bytes; yield the results as they arrive.

    A call of `work` takes one CPU, a call of `fetch` none. At most `most_fetches` fetches run at once. On Ray, fetched
    bytes wait in the object store, within its capacity. Re-raises the PipelineError of a task.
    """

    def fetching(row: Row) -> Row:
        return _result_or_error(
            lambda: {"item": row["item"], "bytes": fetch(json.loads(row["item"]))}, {"item": row["item"], "bytes": []}
        )

    def working(row: Row) -> Row:
        failed = {"result": ""}
        if row["error"]:
            return failed | {"error": row["error"], "message": row["message"]}
        return _result_or_error(lambda: {"result": json.dumps(work(json.loads(row["item"]), row["bytes"]))}, failed)

    # 0 CPUs, because a task that only waits for a server should not hold a CPU.
    operators = [Operator(call=fetching, cpus=0, most=most_fetches), Operator(call=working)]
    yield from _results(executor, items, operators)


def _result_or_error(call: Callable[[], Row], failed: Row) -> Row:
    """Return the row that a call returns; if the call raises a PipelineError, return `failed` with the error.

    Transient storage errors are retried. The PipelineError is returned and not raised, because Ray would wrap a raised
    error in another error and print a traceback.
    """
    try:
        return with_retries(call) | {"error": "", "message": ""}
    except PipelineError as error:
        return failed | {"error": class_of(error).__name__, "message": str(error)}


def _results(executor: Executor, items: Sequence[Any], operators: Sequence[Operator]) -> Iterator[Any]:
    """Yield the result of each item as rows arrive. If a row has a PipelineError, raise this error."""
    if not items:
        return
    # Closed at once after an error: until then, Ray Data has other settings than the caller's.
    with closing(executor.map_rows([{"item": json.dumps(item)} for item in items], operators)) as rows:
        for row in rows:
            if row["error"]:
                raise getattr(errors, row["error"])(row["message"])
            yield json.loads(row["result"])


class RayExecutor:
    """Tasks on the running Ray cluster, as one Ray Data graph."""

    def map_rows(self, rows: Sequence[Row], operators: Sequence[Operator]) -> Generator[Row]:
        import ray
        from ray.data import DataContext

        with DataContext.current(context_without_time_limit()), quiet_ray_data():
            mapped = ray.data.from_items(list(rows), override_num_blocks=_block_count(MOST_BLOCKS, rows))
            for operator in operators:
                most = operator.most and _block_count(operator.most, rows)
                mapped = mapped.map(operator.call, num_cpus=operator.cpus, concurrency=most)
            yield from mapped.iter_rows()

    @contextmanager
    def relay_reports(self, report: Report) -> Generator[Callable[[str], None]]:
        """Provide a function that tasks call to report lines to the driver. Ray does not show what tasks print."""
        from ray.util.queue import Queue

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


RAY = RayExecutor()


def _block_count(most: int, rows: Sequence[Row]) -> int:
    """Return the number of blocks or of concurrent tasks: `most`, but at most 2,000 and at most one per row.

    Ray Data warns if there are more concurrent tasks than blocks.
    """
    return min(most, len(rows), MOST_BLOCKS)


def context_without_time_limit() -> DataContext:
    """Return a copy of the caller's context without progress bars and without a time limit for tasks."""
    from ray.data import DataContext

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
