"""Independent tasks on a Ray cluster, as one Ray Data graph whose rows are tasks."""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray
from ray.data import DataContext

from pipeline import errors
from pipeline.errors import PipelineError

MOST_BLOCKS = 2_000
"""Ray Data plans more input blocks than this for seconds."""


def results(work: Callable[[Any], Any], items: Sequence[Any], most_tasks: int | None = None) -> Iterator[Any]:
    """The results of `work` on each item, as they come; items and results must be JSON values. One CPU a task, at most so many at once.

    Raises the PipelineError that a task raised, as itself.
    """
    # Errors travel as values: Ray would wrap them in its own and print a traceback for each.
    def guarded(row: dict[str, str]) -> dict[str, str]:
        try:
            return {"result": json.dumps({"value": work(json.loads(row["item"]))})}
        except PipelineError as error:
            return {"result": json.dumps({"error": type(error).__name__, "message": str(error)})}

    if not items:
        return
    with DataContext.current(patient()), quiet():
        rows = ray.data.from_items([{"item": json.dumps(item)} for item in items], override_num_blocks=min(len(items), MOST_BLOCKS))
        for row in rows.map(guarded, num_cpus=1, concurrency=most_tasks).iter_rows():
            answer = json.loads(row["result"])
            if "error" in answer:
                raise getattr(errors, answer["error"])(answer["message"])
            yield answer["value"]


def patient() -> DataContext:
    """The caller's context without progress bars, and without the limit on how long one task may take."""
    context = DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.execution_no_progress_timeout_s = -1
    return context


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Ray Data's notes off the console; its log file has them."""
    consoles = [handler for handler in logging.getLogger("ray.data").handlers if isinstance(handler, logging.StreamHandler)]
    levels = [handler.level for handler in consoles]
    for handler in consoles:
        handler.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for handler, level in zip(consoles, levels):
            handler.setLevel(level)
