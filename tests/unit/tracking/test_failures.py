"""Messages for workers' errors, and which errors end a run."""

import pickle

import pytest
import ray
import torch
from ray.exceptions import RayTaskError

from pipeline.errors import CheckpointError, ConfigError, DataError, StorageUnavailable
from pipeline.tracking.failures import Failure, Failures, error_line, failure_of, pipeline_cause

PLACE = "worker 1 on 10.0.0.2"
RESET = (
    "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:16267: Connection reset by peer"
)


def starts(*errors: tuple[BaseException | None, int]) -> tuple[list[str], str | None]:
    """Lines of starts of the workers, each ending with an error after a step, and what ends the run."""
    failures, lines = Failures(), []
    for error, step in errors:
        lines.append(failures.begin())
        if error:
            lines.append(failures.add(failure_of(error, PLACE), step))
    return [line for line in lines if line], failures.error and str(failures.error)


def test_an_unknown_error_is_told_at_once_and_twice_ends_the_run() -> None:
    (line,), ended = starts(
        (RuntimeError("shapes differ\nat 0x7f12"), 0), (RuntimeError("shapes differ\nat 0x8f34"), 0)
    )
    assert (
        line == f"{PLACE} failed: RuntimeError: shapes differ at 0x7f12; the workers start again, as often as "
        f"placement.restarts allows"
    )
    assert ended == (
        f"{PLACE} failed twice with the same error and no step in between: RuntimeError: shapes differ at 0x8f34; "
        "the full error is in Ray's logs; the same command continues from the newest checkpoint"
    )


def test_steps_between_or_another_error_go_on() -> None:
    broken = RuntimeError("broken")
    assert starts((broken, 10), (broken, 20), (broken, 30))[1] is None
    assert starts((broken, 10), (ValueError("broken"), 10), (broken, 10))[1] is None
    # Gone back to a checkpoint before it, and no further than the first time.
    assert starts((broken, 130), (broken, 110))[1] is not None


def test_all_workers_of_one_start_are_one_failure() -> None:
    failures = Failures()
    failures.begin()
    assert failures.add(failure_of(RuntimeError("broken"), PLACE), 0) and not failures.add(
        failure_of(RuntimeError("broken"), "worker 0 on 10.0.0.1"), 0
    )
    assert failures.error is None
    failures.begin()
    failures.add(failure_of(RuntimeError("broken"), PLACE), 0)
    assert failures.error is not None


def test_what_another_start_may_mend_never_ends_the_run() -> None:
    for error in (
        StorageUnavailable("s3://b/x cannot be read now"),
        ConnectionResetError("peer"),
        TimeoutError("late"),
        OSError("AWS Error SLOW_DOWN during GetObject"),
    ):
        lines, ended = starts(*[(error, 0)] * 4)
        assert ended is None and len(lines) == 4 and str(error) in lines[0] and " failed again: " in lines[1]


def test_a_lost_worker_is_told_where_the_workers_start_again() -> None:
    lost = "the workers start again, because a worker was lost or the number of nodes changed"
    assert starts((None, 0), (None, 0)) == ([lost], None)
    # The others' connections to it break; the same again without a step is no loss but their network.
    for echo in (
        RuntimeError(RESET),
        torch.distributed.DistBackendError("NCCL error in: NCCLUtils.hpp:317"),
        ray.exceptions.ActorDiedError(),
    ):
        assert starts((echo, 0), (None, 0), (echo, 5), (None, 0)) == ([lost] * 3, None)
        lines, ended = starts((echo, 0), (echo, 0), (echo, 0))
        assert ended is None and lines[0] == lost and f"{PLACE} failed again: {type(echo).__name__}: " in lines[1]


def test_a_second_start_is_told() -> None:
    failures = Failures()
    assert [failures.begin() for _ in range(2)] == [
        None,
        "the workers start again, because a worker was lost or the number of nodes changed",
    ]


def test_our_own_error_ends_the_run_at_once() -> None:
    wrapped = RayTaskError("f", "Traceback …", DataError("x is damaged"))
    assert starts((wrapped, 0)) == ([], "x is damaged")
    failures = Failures()
    for error in (ConfigError("first"), ConfigError("second")):
        failures.add(failure_of(error, PLACE), 0)
    assert failures.error.args == ("first",)


def test_errors_in_a_line() -> None:
    assert error_line(RayTaskError("f", "Traceback …", KeyError("name")).as_instanceof_cause()) == "KeyError: 'name'"
    assert error_line(RuntimeError()) == "RuntimeError"
    assert (
        error_line(RuntimeError("Traceback (most recent call last):\n  File x\nValueError: bad\n")) == "ValueError: bad"
    )
    assert error_line(ValueError("x" * 500)) == f"ValueError: {'x' * 300}…"


@pytest.mark.parametrize("kind", ["echo", "transient", "unknown"])
def test_failures_can_be_sent(kind: str) -> None:
    failure = Failure(worker=PLACE, text="x", kind=kind)
    assert pickle.loads(pickle.dumps(failure)) == failure


def test_our_own_error_is_found_in_ray_s_wrappers_with_the_words_added_last() -> None:
    inner, outer = CheckpointError("config.json is missing"), CheckpointError("checkpoint m: config.json is missing")
    outer.__cause__ = inner
    assert pipeline_cause(outer) is outer
    wrapped = RayTaskError("f", "Traceback …\n…", outer)
    assert pipeline_cause(wrapped) is outer
    assert pipeline_cause(wrapped.as_instanceof_cause()) is outer  # Ray's own class of both
    later = RuntimeError("while reading")
    later.__cause__ = wrapped
    assert pipeline_cause(later) is outer
    assert pipeline_cause(RayTaskError("f", "Traceback …", KeyError("name"))) is None and pipeline_cause(None) is None
