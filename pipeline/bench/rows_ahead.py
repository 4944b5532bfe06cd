"""Rows of a file of tokens in the global order, which other processes make ahead of the training."""

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import count
from multiprocessing import get_context

import pyarrow as pa

from pipeline.config.data import Sampling
from pipeline.corpus.token_file import RowMaker
from pipeline.errors import DataError
from pipeline.text.pairs import needed_documents

MAKERS = 2
"""Processes that make rows."""
AHEAD = 4
"""Windows whose rows are prefetched, over all processes."""
RowsFrom = Callable[[int, Sampling], Iterator[pa.Table]]
"""First window, sampling -> endless iterator of rows in the global order, a window at a time."""


@contextmanager
def rows_ahead(location: str, seed: int, windows: int) -> Generator[RowsFrom]:
    """Yield a function that returns rows, which other processes make ahead.

    Its iterators raise DataError if none of the `windows` of an epoch yields a row.
    """
    with ProcessPoolExecutor(MAKERS, get_context("spawn"), RowMaker.start, (location, seed)) as makers:

        def tables(first: int, sampling: Sampling) -> Iterator[pa.Table]:
            pending: deque[Future[pa.Table]] = deque()
            empty = 0
            for number in count(first):
                pending.append(makers.submit(RowMaker.make, number, sampling))
                if len(pending) <= AHEAD:
                    continue
                table = pending.popleft().result()
                empty = 0 if table.num_rows else empty + 1
                if empty == windows:
                    raise DataError(f"{location} yields no examples: it needs {needed_documents(sampling)}")
                if table.num_rows:
                    yield table

        try:
            yield tables
        except BrokenProcessPool as error:
            raise DataError(
                f"a process that makes rows from {location} ended, perhaps because memory ran out: start again"
            ) from error
        finally:
            makers.shutdown(wait=True, cancel_futures=True)
