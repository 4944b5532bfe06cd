"""Recognise the task of a user's own file, and the known tagging tasks."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config.finetune import Finetune
from pipeline.errors import DataError
from pipeline.tasks import known
from pipeline.tasks.own import read_own
from pipeline.tasks.tagging import Sentence

ROWS = [{"words": ["New", "York"], "tags": ["B-LOC", "I-LOC"]}, {"words": ["a"], "tags": ["O"]}]


def config(train: Path, **settings: object) -> Finetune:
    return Finetune(checkpoint="c", train=str(train), **settings)


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_lists_of_words_beside_lists_of_tags_are_tags(ending: str, tmp_path: Path) -> None:
    file = tmp_path / f"a.{ending}"
    if ending == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    else:
        pq.write_table(pa.Table.from_pylist(ROWS), file)
    task, items, _ = read_own(config(file, text="words", label=("tags",)), str(file), None)
    assert task.kind == "tags" and items["train"][0] == Sentence(words=("New", "York"), tags=("B-LOC", "I-LOC"))
    with pytest.raises(DataError, match=r"column words is not text but "):
        read_own(config(file, text="words", label=("tags",), kind="multilabel"), str(file), None)


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        ("csv", "words,tags\nNew York,B-LOC I-LOC\na,O\n"),
        ("tsv", "words\ttags\nNew  York\tB-LOC I-LOC\na\tO\n"),
        ("jsonl", '{"words": "New York", "tags": "B-LOC I-LOC"}\n'),
    ],
)
def test_words_and_tags_divided_by_spaces_are_tags_where_asked_for(ending: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / f"a.{ending}"
    file.write_text(text)
    task, items, _ = read_own(config(file, text="words", label=("tags",), kind="tags"), str(file), None)
    assert task.kind == "tags" and items["train"][0] == Sentence(words=("New", "York"), tags=("B-LOC", "I-LOC"))


def test_texts_beside_lists_are_several_labels(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "x", "label": ["a"]}\n{"text": "y", "label": ["b"]}\n')
    assert read_own(config(file), str(file), None)[0].kind == "multilabel"
    file.write_text("\n")
    with pytest.raises(DataError):
        read_own(config(file), str(file), None)


def test_a_known_task_whose_tags_are_no_chunks_is_scored_by_words() -> None:
    sentences = [Sentence(words=("a", "b"), tags=("LOC", "O"))]
    found = known.with_labels(known.TASKS["conll2003"], sentences)
    assert found.labels == ("LOC", "O") and found.metrics == ("accuracy",)
    chunks = known.with_labels(known.TASKS["conll2003"], [Sentence(words=("a", "b"), tags=("B-LOC", "O"))])
    assert chunks.metrics == known.ENTITY_METRICS
