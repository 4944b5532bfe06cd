"""A lease between drivers, on a store of generations of our own: the emulator of Google's store does not check them."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from obstore.store import GCSStore

from pipeline.errors import CheckpointError
from pipeline.files.lease import Lease, LeaseHeld, LeaseLost, LeaseRecord, PutRefused, in_store


@dataclass
class Generations:
    """An object with a generation, which is 0 while there is none, as in Google's store.

    `before_put` runs once before the next put reaches the store, `after_put` once before its answer is returned.
    """

    content: bytes = b""
    generation: int = 0
    before_put: Callable[[], None] = field(default=lambda: None)
    after_put: Callable[[], None] = field(default=lambda: None)

    def read(self) -> tuple[bytes, dict[str, str]] | None:
        return (self.content, {"version": str(self.generation)}) if self.generation else None

    def write(self, content: bytes, version: dict[str, str] | None) -> dict[str, str]:
        before, after, self.before_put, self.after_put = self.before_put, self.after_put, lambda: None, lambda: None
        before()
        if (version or {"version": "0"})["version"] != str(self.generation):
            raise PutRefused(f"generation {self.generation}")
        self.content, self.generation = content, self.generation + 1
        answer = {"version": str(self.generation)}
        after()
        return answer


class Watch:
    """A clock that stands still but for `wait`, and then runs at a speed of its own; `meanwhile` runs at each wait."""

    def __init__(self, now: float = 0.0, speed: float = 1.0, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.time, self.speed, self.meanwhile = now, speed, meanwhile
        self.waits = 0

    def now(self) -> float:
        return self.time

    def wait(self, seconds: float) -> None:
        self.waits, self.time = self.waits + 1, self.time + seconds * self.speed
        self.meanwhile()


def lease(store: Generations, driver: str = "a", watch: Watch | None = None) -> Lease:
    return Lease(store, driver, watch or Watch())


def taken(store: Generations, driver: str = "a", watch: Watch | None = None, least: int = 0) -> Lease:
    mine = lease(store, driver, watch)
    mine.take(least, lambda record: None)
    return mine


def test_attempts_are_counted_and_a_released_lease_is_taken_at_once() -> None:
    store, watch = Generations(), Watch()
    first = taken(store)
    assert first.begin(0) == 1
    first.release()
    second = lease(store, "b", watch)
    second.take(0, lambda record: pytest.fail("it was released"))
    assert (second.begin(40), watch.waits) == (2, 0)
    assert json.loads(store.content)["began"] == {"1": 0, "2": 40}
    assert taken(Generations(), least=7).held().attempt == 8  # a lease was deleted, and names with attempts were not


def test_the_second_driver_of_two_is_refused_at_the_first_renewal() -> None:
    store = Generations()
    first, watched = taken(store), list[LeaseRecord]()
    watch = Watch(meanwhile=lambda: first.renew() if watch.waits == 3 else None)
    with pytest.raises(LeaseHeld) as refused:
        lease(store, "b", watch).take(0, watched.append)
    (record,) = refused.value.args
    assert (record.driver, record.attempt, watch.waits) == ("a", 1, 3) and [each.driver for each in watched] == ["a"]
    first.renew()


def test_a_lease_that_was_not_renewed_for_a_minute_is_taken_and_its_holder_learns_by_whom() -> None:
    store, watch = Generations(), Watch(now=5.0)
    first = taken(store)
    first.begin(0)
    second = taken(store, "b", watch)
    assert (watch.time, second.held().attempt) == (65.0, 2)
    for late in (first.renew, lambda: first.begin(3)):
        with pytest.raises(LeaseLost) as lost:
            late()
        assert (lost.value.args[0].driver, lost.value.args[0].attempt) == ("b", 2)
    first.release()  # changes nothing
    second.renew()
    assert json.loads(store.content)["driver"] == "b" and not json.loads(store.content)["released"]


def test_a_lease_released_or_deleted_while_another_driver_watches_is_taken() -> None:
    for ending in (lambda store, first: first.release(), lambda store, first: setattr(store, "generation", 0)):
        store = Generations()
        first = taken(store)
        watch = Watch(meanwhile=lambda: ending(store, first))  # noqa: B023
        assert taken(store, "b", watch, least=1).held().attempt == 2 and watch.waits == 1


def test_one_of_two_drivers_that_take_it_at_once_gets_it() -> None:
    store = Generations()
    taken(store)
    other = lease(store, "c")
    store.before_put = lambda: other.take(0, lambda record: None)
    with pytest.raises(LeaseHeld) as refused:
        taken(store, "b")
    assert refused.value.args[0].driver == "c" and other.held().attempt == 2
    empty = Generations()
    empty.before_put = lambda: taken(empty, "c") and None
    with pytest.raises(LeaseHeld):
        taken(empty, "b")


@pytest.mark.parametrize(("now", "speed"), [(-1e9, 1.0), (1e12, 1.0), (0.0, 0.01)])
def test_wrong_clocks_change_nothing(now: float, speed: float) -> None:
    store = Generations()
    first = taken(store, watch=Watch(now=now, speed=speed))
    watch = Watch(now=-now, meanwhile=lambda: first.renew() if watch.waits == 2 else None)
    with pytest.raises(LeaseHeld):
        taken(store, "b", watch)
    assert set(json.loads(store.content)) == {"attempt", "driver", "holder", "renewals", "released", "began"}  # no time


def test_a_clock_that_runs_too_fast_takes_a_living_lease_but_there_is_one_holder() -> None:
    store = Generations()
    first = taken(store)
    second = taken(store, "b", Watch(speed=1_000))
    with pytest.raises(LeaseLost):
        first.renew()
    second.renew()


def test_a_put_whose_answer_is_lost_is_found_to_have_arrived() -> None:
    store = Generations()
    first = taken(store)

    def lose_answer() -> None:
        raise PutRefused("the library put it again")

    for write in (first.renew, lambda: first.begin(3), first.renew):
        store.after_put = lose_answer
        write()
    assert (first.held().renewals, first.held().began) == (2, {"1": 3})

    def time_out() -> None:
        raise OSError("no answer within 15 s")

    for write in (lambda: first.begin(7), first.release):
        store.after_put = time_out
        with pytest.raises(OSError):
            first.renew()
        write()
    assert json.loads(store.content)["began"] == {"1": 7} and json.loads(store.content)["released"]


def test_a_renewal_that_arrives_after_the_take_over_is_refused() -> None:
    store = Generations()
    first = taken(store)
    store.before_put = lambda: taken(store, "b") and None
    with pytest.raises(LeaseLost):
        first.renew()
    assert json.loads(store.content)["driver"] == "b"


def test_a_renewal_that_arrives_before_a_late_take_over_keeps_the_lease() -> None:
    store = Generations()
    first, second = taken(store), lease(store, "b")
    store.before_put = first.renew
    with pytest.raises(LeaseHeld) as refused:
        second.take(0, lambda record: None)
    assert refused.value.args[0].driver == "a"
    first.renew()


def test_a_store_that_is_away_or_refuses_both_of_two_puts_is_asked_again() -> None:
    store = Generations()
    first = taken(store)

    def fail(error: Exception) -> Callable[[], None]:
        def raising() -> None:
            raise error

        return raising

    for error in (OSError("away"), PutRefused("409 Conflict")):
        store.before_put = fail(error)
        with pytest.raises(OSError):
            first.renew()
        first.renew()
    store.before_put = fail(OSError("away"))
    first.release()
    assert not json.loads(store.content)["released"]


def test_a_store_that_ignores_conditions_is_noticed() -> None:
    class Careless(Generations):
        def write(self, content: bytes, version: dict[str, str] | None) -> dict[str, str]:
            return super().write(content, {"version": str(self.generation)})

    for store, keeps in ((Generations(), True), (Careless(), False)):
        mine = taken(store)
        content = store.content
        assert mine.is_kept() is keeps and store.content == content
        mine.renew()


def test_a_deleted_lease_is_lost_and_a_damaged_one_is_named() -> None:
    store = Generations()
    first = taken(store)
    store.generation = 0
    with pytest.raises(LeaseLost) as lost:
        first.renew()
    assert lost.value.args == (None,)
    other = Generations()
    taken(other)
    other.before_put = lambda: setattr(other, "generation", 0)
    with pytest.raises(OSError, match="^the lease was deleted while it was taken$"):
        taken(other, "b")
    for content in (b"{", b"[]", b'{"attempt": 1}'):
        with pytest.raises(CheckpointError, match=r"^a lease is damaged \(.+\): delete it when no driver is left$"):
            taken(Generations(content=content, generation=3))
    held = taken(damaged := Generations())
    damaged.content, damaged.generation = b"{", 9
    with pytest.raises(CheckpointError, match="^a lease is damaged"):
        held.renew()
    held.release()  # the run has ended all the same
    assert damaged.content == b"{"


def test_an_emulator_of_googles_store_has_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", raising=False)
    location = "gs://anonymous@texts/runs/a/lease.json"
    stored = in_store(location)
    assert stored and isinstance(stored.store, GCSStore) and stored.key == "runs/a/lease.json"
    monkeypatch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", "http://127.0.0.1:9")
    assert in_store(location) is None
