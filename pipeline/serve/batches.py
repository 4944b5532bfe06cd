"""Compute requests together: while a batch is computed, the next requests wait and form the next batch."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

from pipeline.serve.uses import Inputs


class Batcher:
    """A queue of requests whose rows are computed together, in the order of their arrival.

    `serve.batch` of Ray Serve 2.60 closes a batch every few milliseconds, also while an earlier batch is computed, so
    that a busy replica would compute one request at a time.
    """

    def __init__(
        self, compute: Callable[[Sequence[Inputs]], Sequence[Any]], thread: Executor, most_tokens: int, wait: float
    ) -> None:
        """`compute` returns an answer per request; it runs in `thread`. `wait`: seconds that an idle replica waits."""
        self.compute, self.thread, self.most_tokens, self.wait = compute, thread, most_tokens, wait
        self.waiting: deque[tuple[Inputs, asyncio.Future[Any]]] = deque()
        self.working: asyncio.Task[None] | None = None

    async def ask(self, request: Inputs) -> Any:
        """Return the answer to a request. Raises what `compute` raised for its batch."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting.append((request, answer))
        if self.working is None or self.working.done():
            self.working = asyncio.create_task(self._work())
        return await answer

    async def _work(self) -> None:
        """Compute batches until no request waits."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self.wait)
        while batch := self._take():
            requests = [request for request, _ in batch]
            try:
                answers: Sequence[Any] = await loop.run_in_executor(self.thread, self.compute, requests)
            except Exception as error:  # the clients of this batch get the error, and later batches are computed
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for (_, answer), value in zip(batch, answers, strict=True):
                if not answer.done():  # it is done if its client has gone meanwhile
                    answer.set_result(value)

    def _take(self) -> list[tuple[Inputs, "asyncio.Future[Any]"]]:
        """Remove and return the next requests that fit into a batch, at least one.

        Requests whose clients have gone are dropped.
        """
        batch: list[tuple[Inputs, asyncio.Future[Any]]] = []
        tokens = 0
        while self.waiting:
            request, answer = self.waiting[0]
            if not answer.done():
                if batch and tokens + request.tokens > self.most_tokens:
                    break
                batch.append((request, answer))
                tokens += request.tokens
            self.waiting.popleft()
        return batch
