"""The contract of an executor of tasks, asked of Ray and of the executor in this process, on which other tests rely."""

import threading
from pathlib import Path
from typing import Any

import pytest
from ray.data import DataContext

from pipeline.corpus.counts import count_words
from pipeline.corpus.prepared import Corpus
from pipeline.errors import ConfigError, DataError, PipelineError, StorageUnavailable
from pipeline.on_ray.tasks import RAY, Executor, fetch_and_run_tasks, run_tasks
from pipeline.reporting import no_op
from pipeline.text.splitting import Splitting
from pipeline.text.training import iterate_counts, word_counts
from tests.conftest import text_of
from tests.in_process import IN_PROCESS, InProcessExecutor

pytestmark = pytest.mark.usefixtures("local_ray")


@pytest.fixture(params=[IN_PROCESS, RAY], ids=["process", "ray"])
def executor(request: pytest.FixtureRequest) -> Executor:
    return request.param


def test_each_item_has_one_result(executor: Executor) -> None:
    seen: list[int] = []

    def work(item: list[int]) -> dict[str, Any]:
        seen.append(item[0])
        return {"item": item, "sum": sum(item), "pair": (1, None)}

    results = run_tasks(executor, work, [(number, number + 1) for number in range(20)])
    expected = [{"item": [n, n + 1], "sum": 2 * n + 1, "pair": [1, None]} for n in range(20)]
    assert sorted(results, key=lambda result: result["sum"]) == expected  # copied through JSON
    assert list(run_tasks(executor, work, [])) == seen == []


def test_fetched_bytes_reach_the_work_of_their_item(executor: Executor) -> None:
    def fetch(number: int) -> list[bytes]:
        return [bytes([place]) * number for place in range(number)]

    def work(number: int, fetched: list[bytes]) -> list[Any]:
        return [number, [piece.hex() for piece in fetched]]

    results = fetch_and_run_tasks(executor, fetch, 2, work, range(5))
    assert sorted(results) == [[number, [f"{place:02x}" * number for place in range(number)]] for number in range(5)]


@pytest.mark.parametrize(
    ("function", "error"), [("work", DataError), ("fetch", StorageUnavailable), ("work after fetch", ConfigError)]
)
def test_an_error_of_a_task_keeps_its_type_and_words(
    executor: Executor, function: str, error: type[PipelineError]
) -> None:
    def refuse(number: int, *_: list[bytes]) -> int:
        if number == 3:
            raise error(f"{function} of 3")
        return number

    tasks = {
        "work": run_tasks(executor, refuse, range(5), most_tasks=2),
        "fetch": fetch_and_run_tasks(executor, lambda n: [b"%d" % refuse(n)], 2, lambda n, _: n, range(5)),
        "work after fetch": fetch_and_run_tasks(executor, lambda n: [b"%d" % n], 2, refuse, range(5)),
    }
    with pytest.raises(error) as raised:
        list(tasks[function])
    assert (type(raised.value), str(raised.value)) == (error, f"{function} of 3")


def test_transient_errors_of_storage_are_tried_again(executor: Executor, tmp_path: Path) -> None:
    def fail_once(number: int) -> int:
        tried = tmp_path / str(number)
        if not tried.exists():
            tried.touch()
            raise OSError("AWS Error SLOW_DOWN")
        return number

    assert sorted(run_tasks(executor, fail_once, range(2))) == [0, 1]


def test_work_that_cannot_be_copied_is_refused(executor: Executor) -> None:
    lock = threading.Lock()
    with pytest.raises(TypeError, match="cannot pickle '_thread.lock' object"):
        list(run_tasks(executor, lambda item: lock.locked(), [1]))


def test_lines_of_tasks_are_reported(executor: Executor) -> None:
    lines: list[str] = []
    with executor.relay_reports(lines.append) as say:

        def work(number: int) -> int:
            say(f"line {number}")
            return number

        assert sorted(run_tasks(executor, work, [1, 2])) == [1, 2]
    assert sorted(lines) == ["line 1", "line 2"]


def test_words_are_counted_by_tasks(executor: Executor, tiny_corpus: Corpus, tmp_path: Path) -> None:
    uncased = Splitting(lowercase=True)
    counts = count_words(
        tiny_corpus, tiny_corpus.train, uncased, str(tmp_path), no_op, executor=executor, task_characters=1
    )
    expected = word_counts(map(text_of, range(30)), uncased)
    assert dict(iterate_counts(counts.table)) == expected and counts.words == expected.total()


def test_results_in_this_process_arrive_in_another_order_than_the_items() -> None:
    once, again, other = (
        list(run_tasks(InProcessExecutor(seed=seed), lambda item: item, range(20))) for seed in (0, 0, 1)
    )
    assert once == again != other and list(range(20)) == sorted(once) == sorted(other) not in (once, other)


def test_the_callers_settings_of_ray_data_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    context = DataContext.get_current()
    monkeypatch.setattr(context, "enable_progress_bars", True)
    monkeypatch.setattr(context, "execution_no_progress_timeout_s", 77.0)

    def refuse(number: int) -> int:
        raise DataError("no")

    assert list(run_tasks(RAY, lambda number: number, [1])) == [1]
    with pytest.raises(DataError) as error:  # its traceback keeps what ran
        list(run_tasks(RAY, refuse, [1]))
    assert str(error.value) == "no" and DataContext.get_current() is context
    assert (context.enable_progress_bars, context.execution_no_progress_timeout_s) == (True, 77.0)
