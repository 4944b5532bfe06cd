"""Compare the throughput of the stream through Ray Data with one plain process that reads the same windows."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
import ray
from ray.data import ExecutionOptions

from pipeline.corpus.order import WindowRange
from pipeline.corpus.stream import StreamSettings, blocks_for_ranks, build_stream, rows_of_range, windows_for
from pipeline.errors import ConfigError
from pipeline.on_ray.tasks import quiet_ray_data
from pipeline.text.cached_tokenizer import CachedTokenizer

WARM_SHARE = 0.25
"""Share of the rows that are read before timing starts, while processes start and the tokenizers' tables fill."""


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Throughput after the warm-up."""

    tokens: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


def _clocked(tables: Iterator, rows: int) -> Rate:
    """Read at least `rows` rows from tables with a column "ids"; return the rate after the warm-up.

    Raises ConfigError if all rows come before the end of the warm-up.
    """
    seen = tokens = 0
    start: float | None = None
    for table in tables:
        seen += table.num_rows
        if start is not None:
            tokens += len(table["ids"].combine_chunks().flatten())
        elif seen >= WARM_SHARE * rows:
            start = time.perf_counter()
        if seen >= rows:
            break
    if start is None or not tokens:
        raise ConfigError(f"rows ({rows}) must be above {seen}, the rows that are made before the clock starts")
    return Rate(tokens=tokens, seconds=time.perf_counter() - start)


def plain_rate(settings: StreamSettings, rows: int) -> Rate:
    """Measure the rate at which this process makes rows, in the stream's order."""
    tokenizer = CachedTokenizer(settings.vocabulary)
    return _clocked(rows_of_range(settings, tokenizer, WindowRange(first=0, count=windows_for(settings, rows))), rows)


def stream_rate(settings: StreamSettings, rows: int) -> tuple[Rate, dict[str, float]]:
    """Measure the rate at which Ray Data's tasks make rows, and the peak memory in MB (see `Memory`)."""
    stream = blocks_for_ranks(build_stream(settings, None, rows), world=1)
    stream.context.execution_options = ExecutionOptions(preserve_order=True)
    with quiet_ray_data(), Memory() as memory:
        rate = _clocked(stream.iter_batches(batch_size=None, batch_format="pyarrow"), rows)
    return rate, memory.peak


class Memory:
    """Measure peak memory in MB while the context is open.

    "worker": memory of the largest Ray worker of this machine, without shared memory; "object store": memory of the
    object store.
    """

    def __init__(self) -> None:
        self.peak = {"worker": 0.0, "object store": 0.0}
        self.stop = threading.Event()

    def __enter__(self) -> "Memory":
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join()

    def watch(self) -> None:
        while not self.stop.wait(0.5):
            # All processes, because the workers of a Ray that ran before are no children of this one.
            workers = [process for process in psutil.process_iter() if name(process).startswith("ray::")]
            self.keep("worker", max(map(_own_bytes, workers), default=0))
            total, available = (
                resources().get("object_store_memory", 0)
                for resources in (ray.cluster_resources, ray.available_resources)
            )
            self.keep("object store", total - available)

    def keep(self, kind: str, size: float) -> None:
        """Record `size` bytes of a kind of memory; only the peak is kept."""
        self.peak[kind] = max(self.peak[kind], size / 1e6)


def name(process: psutil.Process) -> str:
    """Return a process's command line; an empty string if the process has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _own_bytes(process: psutil.Process) -> int:
    """Return the bytes of memory of a process, without files and object store; 0 if the process has ended."""
    try:
        memory = process.memory_info()
        return memory.rss - memory.shared
    except psutil.Error:
        return 0
