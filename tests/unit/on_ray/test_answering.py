"""Progress lines while a model answers."""

from types import SimpleNamespace

import pytest

from pipeline import reporting
from pipeline.on_ray import answering
from pipeline.on_ray.answering import AnswerProgress, line


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("", 4_000, 10_000, 3_000, 10.0), "4,000 of 10,000 rows answered, 300 rows/s, about 20 s left"),
        (("QQP", 120, 390_965, 30, 10.0), "QQP: 120 of 390,965 rows answered, 3.0 rows/s, about 36.2 hours left"),
        (("", 4_000, None, 3_000, 10.0), "4,000 rows answered, 300 rows/s"),
        (("", 64, 100, 0, 0.0), "64 of 100 rows answered"),
        (("", 100, 100, 50, 5.0), "100 of 100 rows answered, 10 rows/s"),
    ],
)
def test_a_line_has_total_rate_and_time_left(given: tuple, said: str) -> None:
    assert line(*given) == said


def test_the_start_of_processes_is_not_in_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [100.0], []
    monkeypatch.setattr(answering, "time", SimpleNamespace(monotonic=lambda: now[0]))
    progress = AnswerProgress(said.append, 1_000, before=100)
    for seconds, rows in ((60.0, 50), (1.0, 10), (9.0, 90)):
        now[0] += seconds
        progress.add(rows)
    # A minute of starting; then 100 rows in 10 s, and 750 are left.
    assert said == ["150 of 1,000 rows answered", "250 of 1,000 rows answered, 10 rows/s, about 75 s left"]


def test_lines_count_rows_of_unfinished_parts_and_never_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [100.0], []
    for module in (answering, reporting):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    progress = AnswerProgress(said.append, 100, done="texts embedded")
    for unfinished in (0, 0, 10, 30):  # nothing after 5 s and 10 s, then parts of the first part
        now[0] += 5.0
        progress.beat(unfinished)
    now[0] += 5.0
    progress.add(20)  # the first part is complete, and 10 texts of the second one were counted before
    now[0] += 5.0
    progress.beat(20)
    assert said == [
        "loading the model, no texts embedded yet, 5s so far",
        "10 of 100 texts embedded",
        "30 of 100 texts embedded, 4.0 texts/s, about 18 s left",
        "40 of 100 texts embedded, 2.0 texts/s, about 30 s left",
    ]


def test_while_the_first_part_is_answered_no_line_says_that_the_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, said = [100.0], []
    for module in (answering, reporting):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    progress = AnswerProgress(said.append, 100)
    now[0] += 5.0
    progress.beat()
    progress.model_loaded()
    now[0] += 10.0
    progress.beat()
    assert said == ["loading the model, no rows answered yet, 5s so far", "no rows answered yet, 15s so far"]
