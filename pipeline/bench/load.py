"""Send requests to a server and time them: one at a time, as many as it takes, or at random times (open loop)."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import numpy as np

PATIENCE = 120.0
"""Seconds until a request counts as failed."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """Seconds of the requests that were answered, how long sending took, and the number of failed requests."""

    latencies: Sequence[float]
    seconds: float
    failed: int

    @property
    def per_second(self) -> float:
        """Answered requests per second."""
        return len(self.latencies) / self.seconds

    def percentile(self, share: float) -> float:
        """Return the milliseconds within which `share` percent of the requests were answered; infinite without any."""
        return 1e3 * float(np.percentile(self.latencies, share)) if len(self.latencies) else float("inf")


def in_turns(url: str, bodies: Sequence[Any], seconds: float, clients: int) -> Load:
    """Ask for `seconds` seconds with a number of clients, each of which waits for its answer before it asks again."""

    async def run(session: aiohttp.ClientSession, ask: Callable[[int, float], Any]) -> float:
        begun = time.perf_counter()

        async def client(number: int) -> None:
            turn = number
            while time.perf_counter() - begun < seconds:
                await ask(turn, time.perf_counter())
                turn += clients

        await asyncio.gather(*(client(number) for number in range(clients)))
        return time.perf_counter() - begun

    return asyncio.run(_measured(url, bodies, run))


def at_random(url: str, bodies: Sequence[Any], seconds: float, rate: float, seed: int = 0) -> Load:
    """Ask at the times of a Poisson process with `rate` requests per second, whether or not answers have come.

    A latency counts from the time at which the request was due, so that a slow server cannot hide its queue
    (coordinated omission). Sending ends after `seconds` seconds; the function returns when all requests have ended.
    """
    rng = np.random.default_rng(seed)
    due = np.cumsum(rng.exponential(1 / rate, max(1, int(2 * rate * seconds) + 20)))
    due = due[due < seconds]

    async def run(session: aiohttp.ClientSession, ask: Callable[[int, float], Any]) -> float:
        begun = time.perf_counter()
        asked = []
        for turn, after in enumerate(due):
            await asyncio.sleep(max(0.0, begun + after - time.perf_counter()))
            asked.append(asyncio.create_task(ask(turn, begun + after)))
        await asyncio.gather(*asked)
        return max(seconds, time.perf_counter() - begun)

    return asyncio.run(_measured(url, bodies, run))


async def _measured(url: str, bodies: Sequence[Any], run: Callable[..., Any]) -> Load:
    """Return the load of `run`, which sends requests with a function of the turn and the time at which it was due."""
    latencies: list[float] = []
    failed = 0

    async def ask(turn: int, due: float) -> None:
        nonlocal failed
        try:
            async with session.post(url, json=bodies[turn % len(bodies)]) as response:
                await response.read()
                good = response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            good = False
        if good:
            latencies.append(time.perf_counter() - due)
        else:
            failed += 1

    timeout = aiohttp.ClientTimeout(total=PATIENCE)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        seconds = await run(session, ask)
    return Load(latencies=latencies, seconds=seconds, failed=failed)
