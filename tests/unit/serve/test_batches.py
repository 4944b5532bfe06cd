"""Batches fill while an earlier batch is computed, in order, up to their tokens; and what happens to dead replicas."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from ray.exceptions import ActorDiedError
from ray.serve.exceptions import BackPressureError, RayServeException

from pipeline.serve.batches import Batcher
from pipeline.serve.deployments import answer_of
from pipeline.serve.problems import RequestError
from pipeline.serve.uses import Inputs

THREAD = ThreadPoolExecutor(1)
"""The thread that computes batches."""


def request(name: str, tokens: int = 1) -> Inputs:
    return Inputs(use="embed", rows=[name], tokens=tokens)


class Recorder:
    """A model that takes 0.1 s per batch, and answers with a request's text."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def compute(self, requests: Sequence[Inputs]) -> list[Any]:
        self.batches.append([one.rows[0] for one in requests])
        time.sleep(0.1)
        if "bad" in self.batches[-1]:
            raise ValueError("bad")
        return [one.rows[0] for one in requests]


def test_requests_that_come_while_a_batch_is_computed_form_the_next() -> None:
    model = Recorder()

    async def run() -> list[Any]:
        batcher = Batcher(model.compute, THREAD, 100, 0.0)
        first = asyncio.create_task(batcher.ask(request("a")))
        await asyncio.sleep(0.03)
        later = []
        for name in "bcdef":
            later.append(asyncio.create_task(batcher.ask(request(name))))
            await asyncio.sleep(0.005)
        return await asyncio.gather(first, *later)

    assert asyncio.run(run()) == list("abcdef")
    assert model.batches == [["a"], list("bcdef")]


def test_a_batch_has_at_most_its_tokens_and_a_larger_request_is_alone() -> None:
    model = Recorder()

    async def run() -> None:
        batcher = Batcher(model.compute, THREAD, 10, 0.01)
        asked = [request("a", 4), request("b", 6), request("c", 1), request("d", 50), request("e", 10)]
        await asyncio.gather(*(batcher.ask(one) for one in asked))

    asyncio.run(run())
    assert model.batches == [["a", "b"], ["c"], ["d"], ["e"]]


def test_requests_of_clients_that_have_gone_are_not_computed() -> None:
    model = Recorder()

    async def run() -> None:
        batcher = Batcher(model.compute, THREAD, 100, 0.0)
        first = asyncio.create_task(batcher.ask(request("a")))
        await asyncio.sleep(0.03)
        gone, kept = (asyncio.create_task(batcher.ask(request(name))) for name in "bc")
        await asyncio.sleep(0.01)
        gone.cancel()
        assert [await first, await kept] == ["a", "c"]

    asyncio.run(run())
    assert model.batches == [["a"], ["c"]]


def test_an_error_reaches_its_batch_and_the_next_one_is_computed() -> None:
    async def run() -> None:
        batcher = Batcher(Recorder().compute, THREAD, 1, 0.0)
        bad, good = (asyncio.create_task(batcher.ask(request(name))) for name in ("bad", "a"))
        with pytest.raises(ValueError, match="bad"):
            await bad
        assert await good == "a"
        assert await batcher.ask(request("b")) == "b"

    asyncio.run(run())


def asked(*outcomes: Any, seconds: float = 5.0) -> tuple[Any, int]:
    """The answer to a request whose attempts end with these outcomes, and the number of attempts."""
    left = list(outcomes)

    async def attempt(request: Inputs) -> Any:
        outcome = left.pop(0)
        if isinstance(outcome, float):
            await asyncio.sleep(outcome)
        if isinstance(outcome, Exception):
            raise outcome
        return [outcome]

    try:
        answer: Any = asyncio.run(answer_of(attempt, request("a"), seconds))
    except RequestError as error:
        answer = error
    return answer, len(outcomes) - len(left)


def test_a_dead_replicas_request_is_asked_once_more() -> None:
    assert asked(ActorDiedError(), "right") == (["right"], 2)
    error, attempts = asked(ActorDiedError(), ActorDiedError(), "late")
    assert (error.status, error.kind, attempts) == (503, "Unhealthy", 2)


def test_other_failures_have_their_own_status() -> None:
    full, _ = asked(BackPressureError(num_queued_requests=9, max_queued_requests=9))
    assert (full.status, full.kind) == (429, "Overloaded")
    late, _ = asked(1.0, seconds=0.05)
    assert late.status == 503 and late.message == "no answer within 0.05 seconds (limits.seconds)"
    failed, attempts = asked(RayServeException("odd"), "right")
    assert (failed.status, attempts) == (500, 1) and "the model failed: RayServeException" in failed.message
