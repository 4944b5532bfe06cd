"""The model of a server and the one thread that computes its answers, in batches. No Ray and no HTTP."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pipeline.config.serve import Serve
from pipeline.embed.model import use_threads
from pipeline.serve.batches import Batcher
from pipeline.serve.model import Refused, ServedModel
from pipeline.serve.uses import Inputs


class Replica:
    """A loaded model that answers requests."""

    def __init__(self, config: Serve, threads: int, load: Callable[[], ServedModel]) -> None:
        """Load the model with `load`, and compute with this many CPU threads."""
        # Each thread that runs torch's operators starts OpenMP threads of its own. If all of them are more than the
        # cores, libgomp lets them sleep after each operator, and to wake them takes longer than a small operator. So
        # one thread loads the model and computes.
        self.thread = ThreadPoolExecutor(1, "model")
        self.thread.submit(use_threads, threads).result()
        self.model = self.thread.submit(load).result()
        self.batcher = Batcher(self.model.answer_all, self.thread, config.batching.tokens, config.batching.wait)

    async def ask(self, request: Inputs) -> list[Any] | Refused:
        """Return the answers to a request's rows, which may be computed together with those of other requests."""
        return await self.batcher.ask(request)
