"""Which trials a grid asks for."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune, GridSearch
from pipeline.config.model import Model
from pipeline.config.recipe import Recipe
from pipeline.errors import ConfigError, DataError
from pipeline.files.storage import write_json
from pipeline.finetune.live import Live
from pipeline.finetune.plan import Share
from pipeline.finetune.problems import Problem, digest, in_cuttings
from pipeline.finetune.settings import settings_of, with_setting
from pipeline.finetune.trials import Trial, search_of
from pipeline.grid import runs, tune
from pipeline.grid.closing import use_line
from pipeline.grid.planning import grid_recipe, plan_location, planned
from pipeline.grid.trial_set import (
    Grid,
    finished_result,
    remaining_tasks,
    report_trials,
    selection_trials,
    summary,
    trial_of,
)
from pipeline.grid.waves import best_model, run_all
from pipeline.tasks import known, sequences
from pipeline.tasks.glue import TASKS
from pipeline.tasks.tables import read_split
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.initial import Initial


def grid_of(glue: Path, vocabulary: Vocabulary, share: Share, *over: str) -> Grid:
    cutting = Truncation(maximum_length=32, stride=8)
    train = sequences.prepare(TASKS["cola"], read_split(TASKS["cola"], str(glue), "train"), vocabulary, cutting)
    problem = Problem(task=TASKS["cola"], cutting=cutting, train=train, splits={}, digest=digest([train]))
    config = Finetune(
        checkpoint="c",
        task=("cola",),
        data="/d",
        output=str(glue / "o"),
        recipe=Recipe(epochs=3),
        search=GridSearch(over=over),
    )
    initial = Initial(folder="f", fingerprint="e", model=Model(), vocabulary=vocabulary)
    return Grid(
        config=config,
        initial=initial,
        cuttings={"cola": {config.cutting: problem}},
        settings=settings_of(config),
        shares={"cola": share},
        seconds={"cola": 1.0},
        baselines={},
    )


def test_what_is_said_to_be_chosen_is_what_is_trained(glue: Path, tiny_vocabulary: Vocabulary) -> None:
    grid = grid_of(
        glue, tiny_vocabulary, Share(seeds=1, epochs=1, rows=50), "recipe.epochs=1,2,3", "recipe.training_rows=20,1000"
    )
    trials = [trial_of(grid, "cola", 0, setting, "select") for setting in grid.settings]
    assert len(trials) == 6 and [trial.config.recipe.epochs for trial in trials] == [1] * 6
    assert [trial.config.recipe.training_rows for trial in trials] == [
        20,
        50,
    ] * 3  # a share lowers what was set, and raises nothing
    assert (
        all(
            trial.chosen == {"recipe.epochs": 1, "recipe.training_rows": trial.config.recipe.training_rows}
            for trial in trials
        )
        and len({trial.name for trial in trials}) == 2
    )
    assert trial_of(grid, "cola", 0, trials[1].chosen, "select").name == trials[1].name
    longer = grid_of(glue, tiny_vocabulary, Share(seeds=1, epochs=2, rows=None), "recipe.epochs=1,3")
    assert [trial_of(longer, "cola", 0, setting, "select").config.recipe.epochs for setting in longer.settings] == [
        1,
        2,
    ]
    rows = grid_of(glue, tiny_vocabulary, Share(seeds=1, epochs=3, rows=20), "recipe.training_rows=10,40")
    whole = replace(rows, config=replace(rows.config, recipe=replace(rows.config.recipe, training_rows=20)))
    for grid, trained in ((rows, [10, 20]), (whole, [10, 40])):
        trials = [trial_of(grid, "cola", 0, setting, "select") for setting in grid.settings]
        assert [trial.config.recipe.training_rows for trial in trials] == trained


def test_a_trial_has_the_rows_of_the_cutting_and_the_adapter_that_are_tried(
    glue: Path, tiny_vocabulary: Vocabulary
) -> None:
    grid = grid_of(
        glue,
        tiny_vocabulary,
        Share(seeds=1, epochs=3, rows=None),
        "adapter=no-adapter,low-rank",
        "cutting.maximum-length=32,8",
        "adapter.rank=2,4",
    )
    said: list[str] = []
    tried = [with_setting(grid.config, setting).cutting for setting in grid.settings]
    model = replace(grid.initial.model, maximum_positions=32)
    cuttings = in_cuttings(grid.problems["cola"], tried, replace(grid.initial, model=model), said.append)
    assert (
        list(cuttings) == [Truncation(maximum_length=32), Truncation(maximum_length=8)]
        and cuttings[Truncation(maximum_length=32)] is grid.problems["cola"]
    )
    assert {len(row) for row in cuttings[Truncation(maximum_length=8)].train.rows["ids"].to_pylist()} <= set(range(9))
    assert said == ["cola train, maximum length 8: 28 cut at 8 tokens (--cutting.passages reads the rest)"]
    trials = [
        trial_of(replace(grid, cuttings={"cola": cuttings}), "cola", 0, setting, "select") for setting in grid.settings
    ]
    assert [
        (type(config.adapter).__name__, getattr(config.adapter, "rank", None), config.cutting.maximum_length)
        for config in (trial.config for trial in trials)
    ] == [
        ("NoAdapter", None, 32), ("NoAdapter", None, 8), ("LowRank", 2, 32),
        ("LowRank", 4, 32), ("LowRank", 2, 8), ("LowRank", 4, 8)
    ]  # fmt: skip
    assert len({one.name for one in trials}) == 6
    with pytest.raises(
        ConfigError, match=r"^cutting.maximum_length \(64\) must be at most the checkpoint's positions \(32\)$"
    ):
        in_cuttings(
            grid.problems["cola"],
            [Truncation(), Truncation(maximum_length=64)],
            replace(grid.initial, model=model),
            said.append,
        )


def test_the_best_model_is_that_of_the_seed_with_the_best_score_on_the_first_split(
    glue: Path, tiny_vocabulary: Vocabulary
) -> None:
    grid = grid_of(glue, tiny_vocabulary, Share(seeds=3, epochs=3, rows=None))
    trials = [trial_of(grid, "cola", seed, {}, "report") for seed in range(3)]
    problem = replace(
        grid.problems["cola"], splits={"dev": grid.problems["cola"].train, "other": grid.problems["cola"].train}
    )
    results = [{"scores": {"dev": {"matthews": value}, "other": {"matthews": -value}}} for value in (0.1, 0.3, 0.2)]
    assert best_model(problem, trials, results) == f"{trials[1].folder}/model"
    errors = [{"scores": {"dev": {"mean_absolute_error": value}}} for value in (0.3, float("nan"), 0.2)]
    problem = replace(problem, task=replace(problem.task, metrics=("mean_absolute_error",)))
    assert best_model(problem, trials, errors) == f"{trials[2].folder}/model", "of an error the lowest"


def test_a_trial_that_a_search_ended_is_a_result_in_such_a_search_alone(
    glue: Path, tiny_vocabulary: Vocabulary
) -> None:
    grid = grid_of(glue, tiny_vocabulary, Share(seeds=1, epochs=3, rows=None))
    select, report = (trial_of(grid, "cola", 0, {}, stage) for stage in ("select", "report"))
    ended = {"score": 0.1, "stopped_after_epoch": 1, "search": "s"}
    write_json(f"{select.folder}/stopped.json", ended)
    assert finished_result(select, "s") == ended
    assert finished_result(select, None) is None and finished_result(select, "other") is None
    write_json(f"{select.folder}/stopped.json", {"score": 0.1, "stopped_after_epoch": 1})
    assert finished_result(select, "s") is None, "which trials an earlier version compared is not known"
    write_json(f"{select.folder}/result.json", {"scores": {}})
    assert (
        finished_result(select, None) == {"scores": {}} and finished_result(report, None) is None
    )  # what is reported has its model


@pytest.mark.parametrize("content", ['{"scores": {"dev": {"matth', "", "[]", '{"seconds": 1}', "\xff", "[" * 100_000])
def test_a_trial_with_a_damaged_result_is_trained_again(
    glue: Path, tiny_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    grid = grid_of(glue, tiny_vocabulary, Share(seeds=1, epochs=3, rows=None))
    trial = trial_of(grid, "cola", 0, {}, "select")
    Path(trial.folder).mkdir(parents=True)
    for name in ("result.json", "stopped.json"):
        Path(trial.folder, name).write_text(content, encoding="latin-1")
    said: list[str] = []
    trained = {"scores": {"dev": {"matthews": 0.5}}}
    monkeypatch.setattr(
        tune, "run_trials", lambda config, trials, *rest, **named: {one.name: trained for one in trials}
    )
    monkeypatch.setattr(runs, "log_trial", lambda *given: None)
    assert run_all(grid, [trial, trial], None, Live(said.append), may_stop=True) == {trial.name: trained}
    assert said == [f"{trial.folder}/result.json is damaged: the trial is trained again"]


def test_a_result_that_cannot_be_read_is_named(glue: Path, tiny_vocabulary: Vocabulary) -> None:
    trial = trial_of(grid_of(glue, tiny_vocabulary, Share(seeds=1, epochs=3, rows=None)), "cola", 0, {}, "select")
    Path(trial.folder, "result.json").mkdir(parents=True)
    with pytest.raises(
        DataError,
        match=rf"^{trial.folder}/result.json cannot be read \(.+\): give access to it, or delete it to train the trial "
        r"again$",
    ):
        finished_result(trial, None)


def test_a_grid_of_an_earlier_version_keeps_the_dropout_of_its_checkpoint(
    glue: Path, tiny_vocabulary: Vocabulary
) -> None:
    grid, lines = grid_of(glue, tiny_vocabulary, Share(seeds=1, epochs=1, rows=None)), []
    initial = replace(grid.initial, model=Model(hidden_dropout=0.1, attention_dropout=0.0))
    problems = {"cola": next(iter(grid.cuttings["cola"].values()))}
    assert grid_recipe(grid.config, problems, initial, [{}], lines.append) == replace(grid.config.recipe, dropout=0.1)
    assert grid_recipe(grid.config, problems, initial, [{"recipe.dropout": 0.2}], lines.append) == grid.config.recipe
    write_json(plan_location(grid.config, problems, initial), {})
    assert lines == [] and grid_recipe(grid.config, problems, initial, [{}], lines.append) == grid.config.recipe
    assert lines == [
        f"{grid.config.output} has trials of an earlier version with the checkpoint's dropout (hidden 0.1, attention "
        "0), so the others have it too; with --recipe.dropout 0.1 all are trained again"
    ]
    asked = replace(grid.config, recipe=replace(grid.config.recipe, dropout=0.3))
    assert grid_recipe(asked, problems, initial, [{}], lines.append) == asked.recipe


def test_the_longest_trials_are_sent_first(
    glue: Path, tiny_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = grid_of(glue, tiny_vocabulary, Share(seeds=2, epochs=3, rows=None))
    longer = replace(grid.problems["cola"], task=replace(grid.problems["cola"].task, name="longer"))
    grid = replace(
        grid,
        cuttings=grid.cuttings | {"longer": {grid.config.cutting: longer}},
        shares=grid.shares | {"longer": grid.shares["cola"]},
        seconds={"cola": 1.0, "longer": 2.0},
    )
    asked = [trial_of(grid, name, seed, {}, "report") for name in grid.problems for seed in range(2)]
    sent: list[Trial] = []
    monkeypatch.setattr(
        tune,
        "run_trials",
        lambda config, trials, *rest, **named: sent.extend(trials) or {trial.name: {} for trial in trials},
    )
    monkeypatch.setattr(runs, "log_trial", lambda *given: None)
    assert run_all(grid, asked, None, Live(lambda line: None), may_stop=False).keys() == {trial.name for trial in asked}
    assert [trial.problem for trial in sent] == ["longer", "longer", "cola", "cola"]


def test_trials_that_have_their_results_take_no_more_time(glue: Path, tiny_vocabulary: Vocabulary) -> None:
    def finish(trial: Trial, score: float) -> None:
        write_json(f"{trial.folder}/result.json", {"scores": {"dev": {"matthews": score}}})
        if trial.stage == "report":
            write_json(f"{trial.folder}/model/manifest.json", {})

    grid = grid_of(glue, tiny_vocabulary, Share(seeds=2, epochs=3, rows=None), "optimizer.learning_rate=1e-4,1e-3")
    problem = replace(grid.problems["cola"], splits={"dev": grid.problems["cola"].train})
    grid = replace(grid, cuttings={"cola": {grid.config.cutting: problem}}, seconds={"cola": 10.0})
    words = "4 trials: 2 that select one of 2 settings, 2 that report it on fresh seeds; "
    assert list(remaining_tasks(grid)) == ["cola"] * 4 and summary(grid, 2) == f"{words}2 at once, about 20 s"
    first, second = selection_trials(grid)
    finish(first, 0.1)
    assert summary(grid, 2) == f"{words}1 of them have their results, the others 2 at once, about 20 s"
    finish(second, 0.2)
    best = report_trials(grid, "cola", second.chosen)
    assert [trial.seed for trial in best] == [1, 2] and best[0].config.optimizer.learning_rate == 1e-3
    finish(best[0], 0.3)
    assert summary(grid, 2) == f"{words}3 of them have their results, the others 2 at once, about 10 s"
    finish(best[1], 0.3)
    assert summary(grid, 2) == f"{words}all of them have their results"


def test_a_trial_that_a_search_stopped_runs_again_against_other_trials(glue: Path, tiny_vocabulary: Vocabulary) -> None:
    def searching(rates: str) -> Grid:
        grid = grid_of(glue, tiny_vocabulary, Share(seeds=1, epochs=3, rows=None), f"optimizer.learning_rate={rates}")
        problem = replace(grid.problems["cola"], splits={"dev": grid.problems["cola"].train})
        config = replace(grid.config, search=replace(grid.config.search, stop_early=True))
        return replace(grid, config=config, cuttings={"cola": {config.cutting: problem}})

    first, second = selection_trials(grid := searching("1e-4,1e-3"))
    record = {"score": 0.1, "stopped_after_epoch": 1, "search": search_of([first, second])}
    write_json(f"{first.folder}/stopped.json", record)
    write_json(f"{second.folder}/result.json", {"scores": {"dev": {"matthews": 0.2}}})
    assert list(remaining_tasks(grid)) == ["cola"], "the trial that reports"
    assert list(remaining_tasks(searching("1e-4,1e-5"))) == ["cola"] * 3


def test_how_a_model_is_used_is_a_command_for_its_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/usr/bin/python3")
    config = Finetune(checkpoint="c", task=("mrpc",), data="/d")
    start, end = "python jobs/predict.py --checkpoint 'o/my model' --input FILE", "--output answers.csv"
    assert use_line(config, TASKS["mrpc"], "o/my model") == f"{start} --text '#1 String' --pair '#2 String' {end}"
    assert use_line(config, known.TASKS["squad1"], "o/my model") == f"{start} {end}"
    own = Finetune(checkpoint="c", train="my.csv", text="review", label=("stars",))
    assert use_line(own, replace(TASKS["sst2"], splits=()), "o/my model") == f"{start} --text review {end}"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.executable", str(tmp_path / ".venv/bin/python"))
    here = use_line(config, known.TASKS["squad1"], str(tmp_path / "o/m"))
    assert here == ".venv/bin/python jobs/predict.py --checkpoint o/m --input FILE --output answers.csv"


def test_what_the_start_took_is_taken_from_the_minutes(
    glue: Path, tiny_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = grid_of(glue, tiny_vocabulary, Share(seeds=3, epochs=3, rows=None))
    monkeypatch.setattr(tune, "at_once", lambda config: 1)
    monkeypatch.setattr(tune, "seconds_per_step", lambda *given: {"cola": 0.01})

    def seeds(folder: str, spent: float) -> int:
        config = replace(grid.config, minutes=5, output=str(glue / folder))
        return (
            planned(config, grid.initial, grid.cuttings, grid.settings, time.monotonic() - spent, lambda line: None)
            .shares["cola"]
            .seeds
        )

    assert seeds("all", 0.0) == 3 and seeds("little", 299.0) == 1
