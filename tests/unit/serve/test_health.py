"""Whether a replica answers: the first answer counts, a dead or silent replica does not, and many clients ask once."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from pipeline.serve import health
from pipeline.serve.health import Health


async def answers() -> bool:
    return True


async def has_died() -> bool:
    return False


async def is_silent() -> bool:
    await asyncio.sleep(60)
    return True


Check = Callable[[], Coroutine[Any, Any, bool]]


def alive(*replicas: Check) -> bool:
    return asyncio.run(Health(lambda: [replica() for replica in replicas]).alive())


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        ((answers,), True),
        ((is_silent, has_died, answers), True),
        ((has_died, has_died), False),
        ((), False),
    ],
)
def test_one_replica_that_answers_is_enough(replicas: Sequence[Check], expected: bool) -> None:
    begun = time.monotonic()
    assert alive(*replicas) is expected
    assert time.monotonic() - begun < health.LIMIT / 2


def test_silent_replicas_are_waited_for_no_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "LIMIT", 0.1)
    begun = time.monotonic()
    assert not alive(is_silent, has_died)
    assert 0.1 <= time.monotonic() - begun < 2


def test_an_error_of_another_kind_is_not_hidden() -> None:
    async def is_wrong() -> bool:
        raise ValueError("a mistake of ours")

    with pytest.raises(ValueError, match="a mistake of ours"):
        alive(is_wrong)


def test_clients_share_an_answer_until_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "KEPT", 0.2)
    asked: list[int] = []

    def checks() -> list[Coroutine[Any, Any, bool]]:
        asked.append(1)
        return [answers() if len(asked) == 1 else has_died()]

    async def clients() -> None:
        shared = Health(checks)
        assert await asyncio.gather(*(shared.alive() for _ in range(50))) == [True] * 50
        assert await shared.alive() and len(asked) == 1
        await asyncio.sleep(0.3)
        assert not await shared.alive() and len(asked) == 2

    asyncio.run(clients())


def test_a_client_that_goes_does_not_cancel_the_answer_to_others() -> None:
    async def slow() -> bool:
        await asyncio.sleep(0.2)
        return True

    async def clients() -> None:
        shared = Health(lambda: [slow()])
        first, second = asyncio.create_task(shared.alive()), asyncio.create_task(shared.alive())
        await asyncio.sleep(0.05)
        first.cancel()
        assert await second

    asyncio.run(clients())


def test_busy_threads_do_not_delay_the_answer() -> None:
    """The texts of requests are counted in asyncio's threads, and under load they wait for a thread."""

    async def clients() -> None:
        done = threading.Event()
        counting = [asyncio.create_task(asyncio.to_thread(done.wait, 10)) for _ in range(100)]
        await asyncio.sleep(0.05)
        found = await Health(lambda: [answers()]).alive()
        done.set()
        await asyncio.gather(*counting)
        assert found

    asyncio.run(clients())
