"""Tell whether a replica answers, at most once a second however many clients ask."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

LIMIT = 2.0
"""Seconds within which a replica must answer."""
KEPT = 1.0
"""Seconds for which an answer counts, so that requests to /health, which need no token, cannot load the cluster."""


class Health:
    """The last answer of the replicas."""

    def __init__(self, checks: Callable[[], Sequence[Coroutine[Any, Any, bool]]]) -> None:
        """`checks` asks each replica whether it answers; it runs in a thread."""
        self.checks, self.asked = checks, 0.0
        self.thread = ThreadPoolExecutor(1)  # asyncio's own threads are busy with the texts of requests
        self.answer: asyncio.Task[bool] | None = None

    async def alive(self) -> bool:
        """Return whether at least one replica answers within LIMIT."""
        if self.answer is None or (self.answer.done() and time.monotonic() - self.asked > KEPT):
            self.asked, self.answer = time.monotonic(), asyncio.create_task(self._ask())
        return await asyncio.shield(self.answer)  # a client that goes must not cancel the answer to others

    async def _ask(self) -> bool:
        """Ask all replicas, and return whether one answers."""
        asking: list[asyncio.Task[bool]] = []
        try:
            async with asyncio.timeout(LIMIT):
                checks = await asyncio.get_running_loop().run_in_executor(self.thread, self.checks)
                asking += [asyncio.create_task(check) for check in checks]
                for answer in asyncio.as_completed(asking):
                    if await answer:
                        return True
        except TimeoutError:
            pass  # no replica has answered in time
        finally:
            for task in asking:
                task.cancel()
        return False
