"""When notices are asked for, and what they make of the steps."""

from pipeline.train.extra_checkpoints import POLLS_BETWEEN, ExtraCheckpoints


def saved(steps: int, step_seconds: float, leaving: range, elastic: bool = False) -> tuple[list[int], list[int]]:
    """Steps after which was asked, and after which a checkpoint was wanted, where the node is leaving in the steps of a
    range.
    """
    asked: list[int] = []
    now = [0]

    def answer() -> bool:
        asked.append(now[0])
        return now[0] in leaving

    extra, wanted = ExtraCheckpoints(answer, elastic=elastic), []
    for step in range(1, steps + 1):
        now[0] = step
        if extra.is_due(step, step_seconds):
            wanted.append(step)
    return asked, wanted


def test_polls_are_a_second_apart_or_every_step():
    assert saved(100, 0.05, range(0))[0] == [20, 40, 60, 80, 100]
    assert saved(4, 3.0, range(0))[0] == [1, 2, 3, 4] == saved(4, 0.0, range(0))[0]


def test_a_preemption_notice_gives_a_checkpoint_at_once_and_every_ten_polls():
    _, wanted = saved(40, 1.0, range(5, 32))
    assert wanted == [5, 5 + POLLS_BETWEEN, 5 + 2 * POLLS_BETWEEN]


def test_a_second_preemption_notice_is_handled_like_the_first():
    assert saved(20, 1.0, range(5, 7))[1] == [5]
    _, wanted = saved(20, 1.0, range(12, 13))
    assert wanted == [12]


def test_an_elastic_run_writes_one_every_minute():
    assert saved(300, 0.5, range(0), elastic=True)[1] == [120, 240]
    assert saved(300, 0.0, range(0), elastic=True)[1] == []  # before the first steps are timed
    assert saved(2, 100.0, range(0), elastic=True)[1] == [1, 2]


def test_any_run_writes_one_every_ten_minutes():
    assert saved(700, 2.0, range(0))[1] == [300, 600]
    assert saved(290, 2.0, range(0))[1] == []


def test_steps_before_the_first_times_count_once_these_are_known():
    extra = ExtraCheckpoints(lambda: False, elastic=False)
    assert [step for step in range(1, 20) if extra.is_due(step, 0.0 if step < 10 else 120.0)] == [10, 15]


def test_elastic_checkpoints_are_a_minute_apart_at_varying_step_times():
    extra, since, most = ExtraCheckpoints(lambda: False, elastic=True), 0.0, 0.0
    for step in range(1, 5_001):
        seconds = 0.2 * (0.95, 1.0, 1.05)[step // 10 % 3]
        since += seconds
        if extra.is_due(step, seconds, due=step % 1_000 == 0):
            since = 0.0
        most = max(most, since)
    assert 59 < most < 61
