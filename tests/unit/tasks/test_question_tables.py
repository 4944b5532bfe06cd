"""Questions in tables of every format, and what is said of those that cannot be read."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config.finetune import Finetune
from pipeline.errors import DataError
from pipeline.tables.squad import Question
from pipeline.tasks.own import read_own
from pipeline.tasks.question_tables import AskedColumns, read_question_table

LONDON = "London, the big London."


def asked(id: str, answers: tuple[tuple[str, int], ...], context: str = LONDON) -> Question:
    return Question(id=id, question="What is big?", context=context, answers=answers, impossible=not answers)


def config(train: Path, **settings: object) -> Finetune:
    return Finetune(checkpoint="c", train=str(train), **settings)


def lines(path: Path, *rows: dict) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_answers_with_their_places_are_recognised(ending: str, tmp_path: Path) -> None:
    """As published datasets have them, whatever the columns are called."""
    rows = [
        {
            "question": "What is big?",
            "context": LONDON,
            "answers": {"text": ["London", "the big London"], "answer_start": [16, 8]},
        },
        {"question": "What is big?", "context": LONDON, "answers": {"text": [], "answer_start": []}},
    ]
    for names in ({}, {"text": "body", "pair": "asks", "label": ("found",)}):
        renamed = [dict(zip(("asks", "body", "found"), row.values())) for row in rows] if names else rows
        file = tmp_path / f"a.{ending}"
        if ending == "jsonl":
            lines(file, *renamed)
        else:
            pq.write_table(pa.Table.from_pylist(renamed), file)
        task, items, lost = read_own(config(file, **names), str(file), str(file))
        assert task.kind == "spans" and task.unanswerable and not any(lost.values())
        assert items["train"] == items["dev"] == [asked("1", (("London", 16), ("the big London", 8))), asked("2", ())]


@pytest.mark.parametrize(("ending", "mark"), [("csv", ","), ("tsv", "\t")])
def test_an_answer_is_at_its_place_or_where_it_first_stands(ending: str, mark: str, tmp_path: Path) -> None:
    file = tmp_path / f"a.{ending}"
    rows = [
        ("question", "context", "answer", "answer_start"),
        *(
            ("What is big?", "a London b London", answer, start)
            for answer, start in (("London", "11"), ("London", ""), ("", ""), ("Paris", ""))
        ),
    ]
    file.write_text("".join(mark.join(row) + "\n" for row in rows))
    task, items, lost = read_own(config(file), str(file), None)
    context = "a London b London"
    assert items["train"] == [
        asked("2", (("London", 11),), context),
        asked("3", (("London", 2),), context),
        asked("4", (), context),
    ]
    assert task.unanswerable and lost["train"] == ("1 questions left out (answer-not-at-its-offset)",)


def test_all_answered_is_a_task_without_no_answer(tmp_path: Path) -> None:
    file = lines(tmp_path / "a.jsonl", {"question": "What is big?", "context": LONDON, "answer": "London"})
    task, items, _ = read_own(config(file, kind="spans"), str(file), None)
    assert not task.unanswerable and items["train"] == [asked("1", (("London", 0),))]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"context": " "}, r"a.jsonl:1: column context is empty$"),
        ({"question": 3}, r"a.jsonl:1: column question is not text but '3'$"),
        (
            {"answers": {"text": ["x"], "answer_start": []}},
            r"column answers is .*; an object has a list of texts in \"text\" and equally many whole numbers in "
            r"\"answer_start\"$",
        ),
        ({"answers": ["London"]}, r"column answers is not an answer but .*; give its text, or"),
        (
            {"answers": "London", "answer_start": "first"},
            r"column answer_start is '?first'?; it holds the offset of the answer's first character in the context, "
            r"from 0$",
        ),
    ],
)
def test_what_is_no_question_is_one_line(change: dict, message: str, tmp_path: Path) -> None:
    file = lines(tmp_path / "a.jsonl", {"question": "What is big?", "context": LONDON, "answers": ""} | change)
    with pytest.raises(DataError, match=message) as refused:
        read_question_table(str(file))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "answers"),
    [
        ({"answers": "London", "answer_start": -1}, (("London", -1),)),
        ({"answers": "London", "answer_start": "-1"}, (("London", -1),)),
        ({"answers": "London", "answer_start": "16.0"}, (("London", 16),)),
        ({"answers": "London", "answer_start": float("nan")}, (("London", 0),)),
        ({"answers": {"text": ["London"], "answer_start": [16.0]}}, (("London", 16),)),
        ({"answers": [{"text": "London", "answer_start": 16}]}, (("London", 16),)),
        ({"answers": []}, ()),
        ({"answers": None}, ()),
    ],
)
def test_answers_as_tools_write_them(change: dict, answers: tuple[tuple[str, int], ...], tmp_path: Path) -> None:
    file = lines(tmp_path / "a.jsonl", {"question": "What is big?", "context": LONDON} | change)
    assert read_question_table(str(file)) == [asked("1", answers)]


def test_an_answer_without_text_is_no_answer(tmp_path: Path) -> None:
    row = {"question": "What is big?", "context": LONDON, "answers": {"text": [""], "answer_start": [-1]}}
    (read,) = read_question_table(str(lines(tmp_path / "a.jsonl", row)))
    assert read.impossible and read.answers == (("", -1),)


def test_columns_that_are_not_there_are_named(tmp_path: Path) -> None:
    file = lines(tmp_path / "a.jsonl", {"question": "q", "context": "c"})
    with pytest.raises(
        DataError,
        match=r"has no column answers: its columns are question, context; name yours with --text, --pair and --label$",
    ):
        read_own(config(file, kind="spans"), str(file), None)
    with pytest.raises(DataError, match=r"has no column body"):
        read_question_table(str(file), AskedColumns(context="body"))
    file.write_text("")
    with pytest.raises(DataError, match="a.jsonl is empty: give a file with rows$"):
        read_question_table(str(file))


def test_a_table_of_classes_stays_one(tmp_path: Path) -> None:
    """A context and a question beside a label are a pair of texts, where they are named so."""
    file = lines(
        tmp_path / "a.jsonl", *({"question": "q", "context": LONDON, "label": label} for label in ("yes", "no"))
    )
    assert read_own(config(file, text="question", pair="context"), str(file), None)[0].kind == "classification"
