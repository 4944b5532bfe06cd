"""Choice of trials when time is short, and the table of results."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune, Trials
from pipeline.config.model import Model
from pipeline.config.recipe import Recipe
from pipeline.errors import DataError
from pipeline.finetune import plan
from pipeline.finetune.plan import (
    SURE,
    Share,
    answering_seconds,
    fit_to_time,
    left_out,
    makespan,
    read_plan,
    total_seconds,
    trial_seconds,
    write_plan,
)
from pipeline.finetune.problems import Problem
from pipeline.finetune.submission import rows_to_answer
from pipeline.finetune.submission_zip import FILES
from pipeline.finetune.table import PUBLISHED, Reported, glue_line, published_figure, reported, select, table
from pipeline.tasks import sequences
from pipeline.tasks.glue import TASKS
from pipeline.tasks.tables import read_split
from pipeline.tasks.units import format_score
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.initial import Initial
from pipeline.train.step import Slot


def problem(name: str, rows: int, dev: int = 320, unlabelled: int = 0) -> SimpleNamespace:
    """As much of a problem as a plan asks of it."""

    def sized(number: int) -> SimpleNamespace:
        return SimpleNamespace(rows=SimpleNamespace(num_rows=number))

    return SimpleNamespace(
        task=SimpleNamespace(name=name, metrics=("accuracy",)),
        train=sized(rows),
        splits={"dev": sized(dev)},
        fold_of=None,
        rows_per_epoch=lambda most=None: min(most or rows, rows) + unlabelled,
    )


def config(minutes: float | None, seeds: int = 3) -> Finetune:
    return Finetune(
        checkpoint="c", task=("a",), data="d", seeds=seeds, minutes=minutes, recipe=Recipe(epochs=3, rows_per_step=32)
    )


def test_a_trial_takes_its_steps_and_evaluations() -> None:
    # 4 s to start; in each of 3 epochs 100 steps of 0.1 s, and 10 batches of evaluation at 0.4 of a step.
    assert trial_seconds(config(None), problem("a", 3_200), 0.1, Share(seeds=1, epochs=3, rows=None)) == pytest.approx(
        4 + 3 * (10 + 0.4)
    )
    assert trial_seconds(config(None), problem("a", 3_200), 0.1, Share(seeds=1, epochs=3, rows=320)) == pytest.approx(
        4 + 3 * (1 + 0.4)
    )


def test_rows_without_a_label_take_time_and_are_never_left_out() -> None:
    # 3,200 labelled rows, or 320 of them, and 640 without a label: 120 and 30 steps of 0.1 s.
    with_more, whole = problem("a", 3_200, unlabelled=640), Share(seeds=1, epochs=3, rows=None)
    assert trial_seconds(config(None), with_more, 0.1, whole) == pytest.approx(4 + 3 * (12 + 0.4))
    assert trial_seconds(config(None), with_more, 0.1, replace(whole, rows=320)) == pytest.approx(4 + 3 * (3 + 0.4))


@pytest.mark.parametrize(
    ("workers", "rows_per_slot", "share"),
    [(2, None, 1 / 2), (3, None, 1 / 3), (3, 8, 2 / 4), (4, 2, 4 / 16), (1, 8, 1)],
)
def test_workers_share_the_steps_of_a_trial_and_not_its_evaluation(
    workers: int, rows_per_slot: int | None, share: float
) -> None:
    recipe = replace(config(None).recipe, rows_per_slot=rows_per_slot)
    shared = replace(config(None), recipe=recipe, trials=Trials(workers=workers))
    whole = Share(seeds=1, epochs=3, rows=None)
    assert trial_seconds(shared, problem("a", 3_200), 0.1, whole) == pytest.approx(4 + 3 * (10 * share + 0.4))
    # the driver answers with the cores of all trials that run at once
    assert answering_seconds(shared, {"a": 3_200}, {"a": 0.1}, 2) == pytest.approx(0.4 * 10 / (2 * workers))


def test_test_sets_are_answered_where_a_submission_can_be(tmp_path: Path) -> None:
    names = [*TASKS.keys() - {"ax"}]
    for one in FILES.values():
        path = tmp_path / TASKS[one.task].split(one.split).file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    rows = rows_to_answer(str(tmp_path), names)
    assert sum(rows.values()) == sum(one.rows for one in FILES.values()) and set(rows) == set(names)
    assert rows["mnli"] == 9_796 + 9_847 + 1_104 and rows["qqp"] == 390_965  # as gluebenchmark.com counts them
    assert answering_seconds(config(None), {"a": 3_200, "b": 320}, {"a": 0.1, "b": 1.0, "c": 9.0}, 2) == pytest.approx(
        0.4 * (100 * 0.1 + 10 * 1.0) / 2
    )
    assert rows_to_answer(str(tmp_path), names[1:]) == {}
    compressed = path.rename(f"{path}.gz")
    assert rows_to_answer(str(tmp_path), names) == rows
    compressed.unlink()
    assert rows_to_answer(str(tmp_path), names) == {}


def test_a_few_steps_tell_of_steps_of_other_lengths(
    glue: Path, tiny_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    cutting = Truncation(maximum_length=32, stride=8)
    train = sequences.prepare(TASKS["stsb"], read_split(TASKS["stsb"], str(glue), "train"), tiny_vocabulary, cutting)
    lengths = np.diff(train.rows["ids"].combine_chunks().offsets)
    model = Model(layers=1, width=16, heads=2, feed_forward=32, maximum_positions=32)
    asked = replace(config(None), random_weights=True, recipe=Recipe(rows_per_step=1, group_lengths=False)).for_model(
        model
    )
    now, measured, real = [0.0], [], plan.batches

    def watched(*arguments: Any) -> Iterator[list[Slot]]:
        for slots in real(*arguments):
            measured.append(sum(batch.tokens for _, batch in slots))
            yield slots

    def clock() -> float:
        now[0] += 0.5 * measured[-1]
        return now[0]

    monkeypatch.setattr(plan, "batches", watched)
    monkeypatch.setattr(plan, "time", SimpleNamespace(perf_counter=clock))
    found = plan.seconds_of(
        asked,
        Problem(task=TASKS["stsb"], cutting=cutting, train=train, splits={}, digest=""),
        Initial(folder="f", fingerprint="e", model=model, vocabulary=tiny_vocabulary),
    )
    assert len(measured) == plan.LEAST_STEPS < len(lengths) and np.mean(measured[plan.WARMUP :]) != lengths.mean()
    assert found == pytest.approx(0.5 * lengths.mean())


def test_a_large_task_loses_seeds_then_epochs_then_rows_before_a_small_one_loses_seeds() -> None:
    small, large, steps = problem("small", 3_200), problem("large", 320_000), {"small": 0.01, "large": 0.01}
    whole = Share(seeds=3, epochs=3, rows=None)
    seconds = total_seconds(config(None), [small, large], steps, {"small": whole, "large": whole}, 1, 1)
    assert (
        fit_to_time(config(None), [small, large], steps, 1, 1)
        == fit_to_time(config(seconds / 60 / SURE + 0.1), [small, large], steps, 1, 1)
        == {"small": whole, "large": whole}
    )
    assert fit_to_time(config(seconds / 60 / 2), [small, large], steps, 1, 1) == {
        "small": whole,
        "large": Share(seeds=1, epochs=3, rows=None),
    }
    found = fit_to_time(config(1.5), [small, large], steps, 1, 1)
    assert (
        found["small"] == whole
        and found["large"].seeds == 1
        and found["large"].epochs == 1
        and found["large"].rows in (50_000, 100_000)
    )
    assert (
        left_out(large, config(1.5), found["large"])
        == f"large: 1 of 3 seeds, 1 of 3 epochs, {found['large'].rows:,} of 320,000 rows, to fit 1.5 minutes"
    )
    assert left_out(small, config(1.5), whole) is None
    least = fit_to_time(config(0.01), [small, large], steps, 1, 1)
    assert least == {"small": Share(seeds=1, epochs=3, rows=None), "large": Share(seeds=1, epochs=1, rows=5_000)}


def test_time_that_is_spent_before_the_trials_is_not_theirs() -> None:
    large, steps = problem("large", 320_000), {"large": 0.01}
    whole = Share(seeds=3, epochs=3, rows=None)
    minutes = total_seconds(config(None), [large], steps, {"large": whole}, 1, 1) / 60 / SURE + 0.1
    assert fit_to_time(config(minutes), [large], steps, 1, 1) == {"large": whole}
    assert fit_to_time(config(minutes), [large], steps, 1, 1, spent=12.0) == {"large": replace(whole, seeds=1)}


def test_a_long_trial_is_not_shorter_for_those_beside_it() -> None:
    assert makespan([60.0, 10.0, 10.0, 10.0], 2) == 60.0
    assert makespan([3.0, 1.0, 4.0, 2.0], 2) == 5.0
    assert makespan([3.0, 1.0], 4) == 3.0
    assert makespan([], 2) == 0.0


def test_fewer_rows_than_asked_for_are_a_way_out() -> None:
    large = problem("large", 320_000)
    asked = replace(config(0.01), recipe=Recipe(epochs=3, rows_per_step=32, training_rows=60_000))
    assert fit_to_time(asked, [large], {"large": 0.01}, 1, 1)["large"].rows == 5_000


def test_seeds_that_collapsed_are_counted_and_stay_among_the_values() -> None:
    results = [
        {
            "scores": {"dev": {"accuracy": value}},
            "collapsed": value == 0.5,
            "best_epoch": 3,
            "epochs": [{}] * 3,
            "tuned": {},
        }
        for value in (0.5, 0.8, 0.5)
    ]
    (found,) = reported(problem("a", 10), {"dev": {"accuracy": 0.5}}, results, "")
    assert (
        found.collapsed == 2
        and found.values == (0.5, 0.8, 0.5)
        and found.median == 0.5
        and found.name == "dev accuracy"
    )
    assert (
        reported(problem("a", 10), {"dev": {}}, [results[0] | {"best_epoch": 1}], "")[0].name
        == "dev accuracy (best epoch on dev)"
    )


def test_what_was_decided_stays_decided(tmp_path: Path) -> None:
    shares, per_step = (
        {"a": Share(seeds=1, epochs=2, rows=None), "b": Share(seeds=3, epochs=3, rows=5)},
        {"a": 0.1, "b": 0.25},
    )
    write_plan(str(tmp_path / "plan.json"), shares, per_step)
    assert read_plan(str(tmp_path / "plan.json")) == (shares, per_step)
    assert read_plan(str(tmp_path / "none.json")) is None


@pytest.mark.parametrize("content", ["", '{"a": {"seeds": 1', "[]", '{"a": 3}', '{"a": {"seeds": 1}}'])
def test_a_damaged_plan_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(
        DataError,
        match=rf"^{tmp_path}/plan.json cannot be read \(.+\): delete it "
        "and run the same command again to plan the trials again$",
    ):
        read_plan(str(tmp_path / "plan.json"))


def row(task: str, name: str, *values: float, collapsed: int = 0, setting: str = "") -> Reported:
    return Reported(task=task, name=name, values=values, baseline=0.5, collapsed=collapsed, setting=setting)


def test_the_table_has_medians_and_spreads_beside_the_published_row_of_the_size() -> None:
    rows = [
        row("mrpc", "dev accuracy", 0.7, 0.95, 0.8, collapsed=1),
        row("mrpc", "dev f1", 0.1, 0.2, 0.3, collapsed=1),
        row("own", "dev mean_absolute_error", 1.5),
    ]
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table(rows, Model(layers=2, width=128, heads=2, feed_forward=512)).split("\n")
    ]
    assert lines[0] == [
        "task",
        "split and metric",
        "median",
        "of seeds",
        "seeds",
        "collapsed",
        "without a model",
        "BERT-tiny, GLUE test",
    ]
    assert (
        lines[2] == ["mrpc", "dev accuracy", "80.0", "70.0 to 95.0", "3", "1 of 3", "50.0", "71.1"]
        and lines[3][-1] == "81.1"
    )
    assert lines[4] == ["own", "dev mean_absolute_error", "1.50", "1.50 to 1.50", "1", "", "0.50", ""]
    other = table(rows, Model(layers=3, width=48, heads=2, feed_forward=512))
    assert "published" not in other.split("\n")[0] and "GLUE test" not in other and format_score("x", None) == ""
    assert set(PUBLISHED) == {(2, 128), (4, 256), (4, 512), (8, 512), (12, 768), (24, 1024)}


def test_glue_is_a_mean_of_tasks_each_averaged_first() -> None:
    rows = [
        row("mrpc", "dev accuracy", 0.6),
        row("mrpc", "dev f1", 0.8),
        row("wnli", "dev accuracy", 0.5),
        row("ax", "test matthews", 0.1),
        row("builtin", "dev accuracy", 1.0),
    ]
    assert glue_line(rows, ("mrpc", "wnli", "ax")).startswith(
        "mean of 2 of GLUE's 9 tasks on the development sets: 60.0 (with the score of the WNLI trials; "
    )
    assert glue_line(rows[:2], ("mrpc", "wnli", "ax")) is None
    chosen = row("mrpc", "dev matthews", 0.0)
    assert glue_line([chosen, *rows], ("mrpc", "wnli", "ax")) == glue_line(rows, ("mrpc", "wnli", "ax")), (
        "a metric that selects is none of the benchmark's"
    )


def test_the_best_median_selects_and_trials_stopped_early_do_not_count() -> None:
    trials = [
        SimpleNamespace(problem="a", name=f"{rate}-{seed}", chosen={"rate": rate})
        for rate in (1, 2, 3)
        for seed in range(3)
    ]
    values = {"1-0": 0.5, "1-1": 0.9, "1-2": 0.1, "2-0": 0.6, "2-1": 0.6, "2-2": 0.0}
    results = {
        trial.name: {"scores": {"dev": {"accuracy": values[trial.name]}}} if trial.name in values else {"score": 0.99}
        for trial in trials
    }
    assert select(trials, results, problem("a", 10)) == ({"rate": 2}, 0.6)
    # One seed that did well while the others were stopped does not win; where all lost some, those with the most are
    # left.
    del values["2-1"], values["2-2"]
    results |= {f"2-{seed}": {"score": 0.1} for seed in (1, 2)}
    assert select(trials, results, problem("a", 10)) == ({"rate": 1}, 0.5)


def test_of_errors_the_lowest_median_selects() -> None:
    trials = [SimpleNamespace(problem="a", name=str(rate), chosen={"rate": rate}) for rate in (1, 2, 3)]
    results = {
        str(rate): {"scores": {"dev": {"mean_absolute_error": value}}} for rate, value in ((1, 0.5), (2, 0.2), (3, 0.9))
    }
    asked = problem("a", 10)
    asked.task.metrics = ("mean_absolute_error", "pearson")
    assert select(trials, results, asked) == ({"rate": 2}, 0.2)


def test_the_published_figure_is_of_the_same_metric() -> None:
    base = PUBLISHED[(12, 768)][1]
    mini = PUBLISHED[(4, 256)][1]

    def figure(task: str, name: str, row: dict[str, str]) -> str:
        reported = Reported(task=task, name=name, values=(0.0,), baseline=None, collapsed=0, setting="")
        return published_figure(reported, row)

    assert [figure("mrpc", name, mini) for name in ("dev accuracy", "dev f1")] == ["71.8", "81.1"] and [
        figure("mrpc", name, base) for name in ("dev accuracy", "dev f1")
    ] == ["", "88.9"]
    assert [figure("stsb", name, mini) for name in ("dev pearson", "dev spearman")] == ["75.4", "73.3"] and [
        figure("stsb", name, base) for name in ("dev pearson", "dev spearman")
    ] == ["", "85.8"]
    assert [figure("mnli", name, base) for name in ("dev accuracy", "dev-mismatched accuracy")] == [
        "84.6",
        "83.4",
    ] and figure("own", "dev accuracy", base) == ""
    assert figure("sst2", "dev accuracy (best epoch on dev)", mini) == "85.9"
    others = {"mrpc": "matthews", "qqp": "auc", "stsb": "mean_absolute_error", "cola": "accuracy"}
    assert {figure(task, f"dev {metric}", row) for task, metric in others.items() for row in (mini, base)} == {""}


def test_a_limit_that_was_set_is_never_raised() -> None:
    limited = Finetune(
        checkpoint="c",
        task=("a",),
        data="d",
        minutes=0.01,
        recipe=Recipe(epochs=3, rows_per_step=32, training_rows=20_000),
    )
    found = fit_to_time(limited, [problem("large", 320_000)], {"large": 0.01}, 1, 1)
    assert found == {"large": Share(seeds=1, epochs=1, rows=5_000)}
    small = Finetune(
        checkpoint="c",
        task=("a",),
        data="d",
        minutes=0.01,
        recipe=Recipe(epochs=3, rows_per_step=32, training_rows=2_000),
    )
    assert fit_to_time(small, [problem("large", 320_000)], {"large": 0.01}, 1, 1) == {
        "large": Share(seeds=1, epochs=3, rows=2_000)
    }


def test_an_error_is_in_its_unit_whatever_else_is_said_of_it() -> None:
    assert (
        format_score("dev mean_absolute_error (best epoch on dev)", 0.25) == "0.25"
        and format_score("dev accuracy (best epoch on dev)", 0.25) == "25.0"
    )
    assert format_score("mean_absolute_error", 0.25, 2) == "0.250" and format_score("f1", 0.25, 2) == "25.00"
