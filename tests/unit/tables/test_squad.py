"""SQuAD files written by hand: what is read, what cannot be learnt from, and what is said of broken ones."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.config.finetune import Finetune
from pipeline.errors import DataError
from pipeline.tables.squad import Question, read_questions, trainable
from pipeline.tasks.own import read_own

CONTEXT = "Zoë lives in Köln, not in Bonn."


def asked(id: str, *answers: tuple[str, int], **more: Any) -> dict[str, Any]:
    return {
        "id": id,
        "question": f"{id}?",
        "answers": [{"text": text, "answer_start": start} for text, start in answers],
    } | more


def write(folder: Path, *qas: Any, context: Any = CONTEXT, name: str = "squad.json") -> str:
    content = json.dumps(
        {
            "version": "1.1",
            "data": [
                {"title": "t", "paragraphs": [{"context": "", "qas": []}, {"context": context, "qas": list(qas)}]}
            ],
        }
    ).encode()
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return str(folder / name)


def question(id: str, *answers: tuple[str, int], context: str = CONTEXT, impossible: bool = False) -> Question:
    return Question(id=id, question=f"{id}?", context=context, answers=answers, impossible=impossible)


@pytest.mark.parametrize("name", ["squad.json", "squad.json.gz"])
def test_both_versions_are_read(name: str, tmp_path: Path) -> None:
    plausible = [{"text": "Bonn", "answer_start": 26}]
    two = asked("a", ("Köln", 13), ("in Köln", 10)), asked("b", is_impossible=True, plausible_answers=plausible)
    assert read_questions(write(tmp_path, *two, asked("c", ("Zoë", 0), is_impossible=False), name=name)) == [
        question("a", ("Köln", 13), ("in Köln", 10)),
        question("b", impossible=True),
        question("c", ("Zoë", 0)),
    ]


def test_questions_to_be_predicted_need_no_answers_and_files_may_begin_with_a_mark(tmp_path: Path) -> None:
    file = Path(write(tmp_path, {"id": "a", "question": "a?"}))
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert read_questions(str(file)) == [question("a")]


def test_half_a_surrogate_pair_is_a_replacement_character(tmp_path: Path) -> None:
    read = read_questions(write(tmp_path, asked("a", ("b\udc00", 2)), context="\ud800 b\udc00 🤖"))
    assert read == [question("a", ("b\ufffd", 2), context="\ufffd b\ufffd 🤖")] and trainable(read) == (read, {})


def test_annotation_tools_write_no_answer_as_a_list_without_text(tmp_path: Path) -> None:
    """They leave "is_impossible" out or write false. Without a list, the answers are not known."""
    nothing = [asked("a"), asked("b", is_impossible=False), asked("c", is_impossible=None), asked("d", ("", -1))]
    unknown = [{"id": "e", "question": "e?"}, {"id": "f", "question": "f?", "answers": None}]
    read = read_questions(write(tmp_path, *nothing, *unknown, asked("g", ("", 0), ("Zoë", 0))))
    assert [(one.id, one.impossible, one.answers) for one in read] == [
        ("a", True, ()),
        ("b", True, ()),
        ("c", True, ()),
        ("d", True, (("", -1),)),
        ("e", False, ()),
        ("f", False, ()),
        ("g", False, (("", 0), ("Zoë", 0))),
    ]
    assert trainable(read) == (read[:4], {"no-answer-given": 2, "answer-not-at-its-offset": 1})


def test_whole_numbers_are_ids_and_decimals_are_offsets(tmp_path: Path) -> None:
    numbered = {"id": 300000, "question": "300000?", "answers": [{"text": "Köln", "answer_start": 13.0}]}
    assert read_questions(write(tmp_path, numbered)) == [question("300000", ("Köln", 13))]


def test_what_cannot_be_learnt_from_is_counted_by_reason() -> None:
    fit = [question("a", ("Köln", 13)), question("b", impossible=True), question("c", ("Köln", 13), ("Bonn", 0))]
    unfit = [
        question("d", ("Köln", 14)),
        question("e", ("Bonn", -5)),
        question("f", ("", 3)),
        question("g", ("Bonn", 99)),
        question("h"),
    ]
    assert trainable([*unfit[:2], *fit, *unfit[2:]]) == (fit, {"answer-not-at-its-offset": 4, "no-answer-given": 1})


def test_answers_that_are_not_at_their_offset_are_counted_in_both_files(tmp_path: Path) -> None:
    """Training leaves them out, and scores keep them, as the official script compares texts only."""
    file = write(tmp_path, asked("a", ("Köln", 13)), asked("b", ("Bonn", -1)), asked("c", ("Zoë", 1)), asked("d"))
    task, items, lost = read_own(Finetune(checkpoint="c", train=file), file, file)
    assert task.unanswerable and [len(items[split]) for split in ("train", "dev")] == [2, 4]
    assert lost == {
        "train": ("2 questions left out (answer-not-at-its-offset)",),
        "dev": ("2 questions scored by the text of an answer that is not at its offset",),
    }


@pytest.mark.parametrize(
    "qa, message",
    [
        ({"question": "a?"}, "paragraphs[1].qas[0].id is missing (existing keys: question): give a SQuAD file"),
        ({}, "paragraphs[1].qas[0].id is missing (existing keys: none): give a SQuAD file"),
        ({"id": 7.5, "question": "a?"}, "paragraphs[1].qas[0].id is a float, expected a str: give a SQuAD file"),
        (
            asked("a", ("x", 3.5)),  # type: ignore[arg-type]
            "paragraphs[1].qas[0].answers[0].answer_start is a float, expected a int: give a SQuAD file",
        ),
        ("a?", "paragraphs[1].qas[0].id must be a key of an object, not of a str: give a SQuAD file"),
        (
            asked("a", ("x", "3")),
            "paragraphs[1].qas[0].answers[0].answer_start is a str, expected a int: give a SQuAD file",
        ),  # type: ignore[arg-type]
        (
            asked("a", ("x", True)),
            "paragraphs[1].qas[0].answers[0].answer_start is a bool, expected a int: give a SQuAD file",
        ),
        (
            asked("a", is_impossible="no"),
            "paragraphs[1].qas[0].is_impossible is a str, expected a bool: give a SQuAD file",
        ),
    ],
)
def test_a_broken_entry_is_named(qa: Any, message: str, tmp_path: Path) -> None:
    file = write(tmp_path, qa)
    with pytest.raises(DataError) as error:
        read_questions(file)
    assert str(error.value) == f"{file}: data[0].{message}"


@pytest.mark.parametrize(
    "content, message",
    [
        (
            b'{"data": [',
            "{file} is not valid JSON (Expecting value: line 1 column 11 (char 10)): give a SQuAD file",
        ),
        (b"[]", "{file}: data must be a key of an object, not of a list: give a SQuAD file"),
        (b'{"a": 1, "b": 2}', "{file}: data is missing (existing keys: a, b): give a SQuAD file"),
        (
            gzip.compress(b"{}", mtime=0)[:-9],
            "{file} cannot be read (Compressed file ended before the end-of-stream marker was reached): give a plain "
            "or compressed file that can be read",
        ),
        (b"[" * 100_000, "{file} is not valid JSON (maximum recursion depth exceeded"),
    ],
)
def test_a_broken_file_is_named(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(DataError) as error:
        read_questions(str(tmp_path / "a.json"))
    assert str(error.value).startswith(message.format(file=tmp_path / "a.json")) and "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none.json does not exist$"):
        read_questions(str(tmp_path / "none.json"))


def test_an_id_that_stands_twice_is_named(tmp_path: Path) -> None:
    file = write(tmp_path, asked("a"), asked("b"), asked("b"))
    with pytest.raises(DataError) as error:
        read_questions(file)
    assert str(error.value) == (
        f"{file} has more than one question with the id 'b': predictions are stored by id, so give each question an "
        "id of its own"
    )
