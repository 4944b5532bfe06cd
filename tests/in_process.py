"""An executor of tasks in this process, for tests of what runs as tasks on a cluster."""

import itertools
import random
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import Context
from dataclasses import dataclass
from functools import partial

import cloudpickle

from pipeline.on_ray.tasks import Operator, Row
from pipeline.reporting import Report


@dataclass(frozen=True, kw_only=True)
class InProcessExecutor:
    """Tasks in this process, with what a cluster asks of them.

    A call gets copies of its function and its row, so what cannot be pickled fails, and it sees no context variables
    of the caller. The rows arrive in an order that depends on the seed. An operator with a maximum of concurrent calls
    gets that many threads.
    """

    seed: int = 0

    def map_rows(self, rows: Sequence[Row], operators: Sequence[Operator]) -> Generator[Row]:
        results: Iterable[Row] = random.Random(self.seed).sample(rows, len(rows))
        with ExitStack() as pools:
            for operator in operators:
                call = partial(_call_with_copies, operator.call)
                if operator.most:
                    results = pools.enter_context(ThreadPoolExecutor(operator.most)).map(call, results)
                else:
                    results = map(call, results)
            yield from results

    @contextmanager
    def relay_reports(self, report: Report) -> Generator[Callable[[str], None]]:
        relay = _Relay(number=next(NUMBERS))
        REPORTS[relay.number] = report
        try:
            yield relay
        finally:
            del REPORTS[relay.number]


IN_PROCESS = InProcessExecutor()
NUMBERS = itertools.count()
REPORTS: dict[int, Report] = {}
"""Number of a relay -> the function that it calls, which itself may not be one that can be copied."""


@dataclass(frozen=True, kw_only=True)
class _Relay:
    number: int

    def __call__(self, line: str) -> None:
        REPORTS[self.number](line)


def _call_with_copies(function: Callable[[Row], Row], row: Row) -> Row:
    function, row = cloudpickle.loads(cloudpickle.dumps((function, row)))
    return Context().run(function, row)
