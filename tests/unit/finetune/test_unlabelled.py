"""Texts without labels: which files and columns are read, and which rows are left out."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune
from pipeline.config.recipe import Recipe
from pipeline.errors import ConfigError, DataError
from pipeline.finetune.problems import Problem
from pipeline.finetune.unlabelled import for_problem, read_unlabelled
from pipeline.tasks.glue import TASKS
from pipeline.tasks.prepared import Prepared
from pipeline.tasks.task import Task
from tests.unit.finetune.test_teacher import texts

OWN = Task(name="own", kind="classification", labels=("no", "yes"), metrics=("accuracy",))


def written(path: Path, content: str) -> str:
    path.write_text(content)
    return str(path)


def config_of(*unlabelled: str, train: str = "t.csv", **settings: object) -> Finetune:
    return Finetune(checkpoint="c", train=train, teacher="m", unlabelled=unlabelled, **settings)  # ty: ignore


def problem_of(task: Task, *dev: str) -> Problem:
    split = Prepared(items=texts([(text, "no") for text in dev]), rows=None)  # ty: ignore[invalid-argument-type]
    return Problem(task=task, cutting=Truncation(), train=split, splits={"dev": split}, digest="")


def test_lines_and_columns_of_files_are_read_and_empty_rows_counted(tmp_path: Path) -> None:
    lines = written(tmp_path / "a.txt", "one text\n\nanother, text\n")
    table = written(tmp_path / "b.csv", "stars,review\n1,good\n2,\n")
    said: list[str] = []
    found = read_unlabelled(config_of(lines, table, text="review"), said.append)
    assert found["first"].to_pylist() == ["one text", "another, text", "good"]
    assert found["label"].null_count == found["second"].null_count == 3
    assert said == ["unlabelled: 3 rows in 2 files, 2 left out because a text is empty"]
    pairs = written(tmp_path / "c.jsonl", '{"review": "a", "reply": "b"}\n')
    assert read_unlabelled(config_of(pairs, text="review", pair="reply"), said.append)["second"].to_pylist() == ["b"]


def test_rows_of_dev_and_test_are_left_out(tmp_path: Path) -> None:
    test = written(tmp_path / "test.csv", "text,label\nin test,no\n")
    rows = texts([("in  dev", None), ("new", None), ("in test", None)])
    said: list[str] = []
    kept = for_problem(config_of("u", test=test), problem_of(OWN, "in dev"), rows, said.append)
    assert kept["first"].to_pylist() == ["new"]
    assert said == ["own unlabelled: 2 of 3 rows left out, because dev or test has the same text"]
    with pytest.raises(
        DataError, match=r"^unlabelled \(u\): dev or test of own has the texts of all 1 rows: give other"
    ):
        for_problem(config_of("u"), problem_of(OWN, "new"), kept, said.append)


def test_rows_of_a_known_test_split_are_left_out(glue: Path) -> None:
    (glue / "CoLA" / "test.tsv").write_text("index\tsentence\n0\tin test\n")
    config = Finetune(checkpoint="c", task=("cola",), data=str(glue), teacher="m", unlabelled=("u",))
    kept = for_problem(config, problem_of(TASKS["cola"], "in dev"), texts([("in test", None), ("new", None)]), print)
    assert kept["first"].to_pylist() == ["new"]


def test_single_texts_and_pairs_are_not_mixed(tmp_path: Path) -> None:
    rows = texts([("a", None)])
    with pytest.raises(ConfigError) as refused:
        for_problem(config_of("u"), problem_of(replace(OWN, paired=True)), rows, print)
    assert str(refused.value) == (
        "unlabelled (u) has single texts, but own is on pairs: name the column of the second text with --pair"
    )
    with pytest.raises(
        ConfigError, match=r"^pair \(b\) names a second text for unlabelled \(u\), and own is on single"
    ):
        for_problem(config_of("u", pair="b"), problem_of(OWN), rows, print)
    lines = written(tmp_path / "a.txt", "one text\n")
    with pytest.raises(DataError, match=r"a.txt has the form text: give a table, because the texts are pairs$"):
        read_unlabelled(config_of(lines, pair="b"), print)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    table = written(tmp_path / "b.csv", "stars,review\n1,good\n")
    with pytest.raises(DataError, match=r"^unlabelled .*b.csv has no column text: its columns are stars, review; name"):
        read_unlabelled(config_of(table), print)
    with pytest.raises(ConfigError, match=r"^unlabelled \(.*none.csv\) does not exist"):
        read_unlabelled(config_of(str(tmp_path / "none.csv")), print)
    with pytest.raises(DataError, match=r"^unlabelled \(.*e.txt\) has no rows$"):
        read_unlabelled(config_of(written(tmp_path / "e.txt", "\n")), print)
    with pytest.raises(DataError, match=r"^unlabelled .*n.jsonl: '1' is not a text$"):
        read_unlabelled(config_of(written(tmp_path / "n.jsonl", '{"text": 1}\n')), print)


def test_settings_without_a_teacher_are_refused() -> None:
    plain = Finetune(checkpoint="c", task=("sst2",))
    with pytest.raises(ConfigError) as refused:
        replace(plain, unlabelled=("a.txt",))
    assert str(refused.value) == (
        "unlabelled (a.txt) needs a teacher, whose answers serve as their labels: "
        "name a fine-tuned model with --teacher"
    )
    with pytest.raises(ConfigError, match=r"^recipe.temperature \(4.0\) needs a teacher, which is not given"):
        replace(plain, recipe=Recipe(temperature=4.0))
    with pytest.raises(ConfigError, match=r"^recipe.teacher_weight \(0.1\) needs a teacher"):
        replace(plain, recipe=Recipe(teacher_weight=0.1))
    with pytest.raises(
        ConfigError, match=r"^recipe.teacher_weight \(0\) leaves the texts of unlabelled \(a.txt\) without"
    ):
        replace(plain, teacher="m", unlabelled=("a.txt",), recipe=Recipe(teacher_weight=0.0))
    with pytest.raises(ConfigError, match=r"^recipe.temperature \(0.0\) must be above 0$"):
        Recipe(temperature=0.0)
    with pytest.raises(ConfigError, match=r"^recipe.teacher_weight \(1.5\) must lie between 0 and 1$"):
        Recipe(teacher_weight=1.5)
