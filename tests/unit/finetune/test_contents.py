"""Lines about a task's splits, printed before training starts."""

from pathlib import Path

import pyarrow as pa

from pipeline.config.finetune import Finetune
from pipeline.config.model import Model
from pipeline.config.task_kind import Kind
from pipeline.finetune.contents import contradictions_in_words, lengths_in_words, shared_in_words
from pipeline.finetune.kinds import TRAINING
from pipeline.finetune.problems import read_problems
from pipeline.tables.squad import Question
from pipeline.tasks.prepared import Prepared
from pipeline.tasks.schema import ENCODED, TEXTS
from pipeline.tasks.tagging import Sentence
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.initial import Initial

CLASSES = Task(name="own", kind="classification", labels=("0", "1"), metrics=("accuracy",))


def table(*rows: tuple[str, str], second: str | None = None) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": "1", "first": text, "second": second, "label": label} for text, label in rows], schema=TEXTS
    )


def words(kind: Kind, items: object) -> str:
    task = Task(name="own", kind=kind, labels=("a",), metrics=("f1",), unanswerable=True)
    return TRAINING[kind].labels_in_words(task, Prepared(items=items, rows=ENCODED.empty_table()))


def test_classes_have_their_counts_the_commonest_first() -> None:
    assert words("classification", table(("x", "b"), ("y", "a"), ("z", "b"))) == "labels b 2, a 1"
    assert (
        words("multilabel", table(("x", '["a", "b"]'), ("y", "[]"), ("z", '["b"]')))
        == "labels b 2, a 1, 1 rows without a label"
    )
    assert words("regression", table(("x", "1"), ("y", "2.5"), ("z", "4"))) == "values from 1 to 4, mean 2.5"
    assert (
        words("tags", [Sentence(words=("x", "y"), tags=("O", "B-A")), Sentence(words=("x",), tags=("O",))])
        == "tags O 2, B-A 1"
    )
    assert (
        words(
            "spans",
            [
                Question(id="1", question="q", context="c", answers=()),
                Question(id="2", question="q", context="c", answers=(("c", 0),)),
            ],
        )
        == "1 questions without an answer"
    )
    assert words("classification", table(*(("x", f"{n:04}") for n in range(1_000)))).endswith("0019 1 and 980 more")


def test_lengths_are_those_of_rows_in_tokens() -> None:
    ids = pa.array([[1] * length for length in (*range(1, 100), 128)], ENCODED.field("ids").type)
    rows = pa.table([ids if field.name == "ids" else pa.nulls(100, field.type) for field in ENCODED], schema=ENCODED)
    assert lengths_in_words(rows) == "tokens per row: median 50, 95% at most 95, longest 128"


def test_texts_that_training_has_too_are_counted() -> None:
    train = table(("a  b", "0"), ("c", "1"), ("d", "0"), ("d", "1"))
    assert shared_in_words(CLASSES, train, table(("x", "0"))) == ""
    dev = table(("a b", "0"), ("c", "0"), ("d", "1"), ("x", "0"))
    assert (
        shared_in_words(CLASSES, train, dev)
        == "3 of 4 have a text that is also in train, so the scores are too high; 1 of them have another label "
        "in train"
    )
    assert shared_in_words(CLASSES, train, table(("c", "1"), second="other")) == ""
    assert contradictions_in_words(CLASSES, train) == "2 of 4 have a text that also occurs with another label"
    assert contradictions_in_words(CLASSES, dev) == ""
    sentences = [Sentence(words=("x",), tags=("O",)), Sentence(words=("x",), tags=("B-A",))]
    assert (
        shared_in_words(CLASSES, sentences[:1], sentences)
        == "2 of 2 have a text that is also in train, so the scores are too high; 1 of them have another label "
        "in train"
    )
    questions = [
        Question(id="1", question="q", context="c", answers=()),
        Question(id="2", question="r", context="c", answers=()),
    ]
    assert (
        shared_in_words(CLASSES, questions[:1], questions)
        == "1 of 2 have a text that is also in train, so the scores are too high"
    )


def test_all_of_it_is_said_before_training(tmp_path: Path, tiny_vocabulary: Vocabulary) -> None:
    said: list[str] = []
    (tmp_path / "a.csv").write_text("text,label\nkar,1\nmir,0\nmir,1\n,0\n")
    (tmp_path / "b.csv").write_text("text,label\nkar,1\nnel,0\n")
    config = Finetune(checkpoint="c", train=str(tmp_path / "a.csv"), dev=str(tmp_path / "b.csv"), on_bad_rows="skip")
    read_problems(config, Initial(folder="f", fingerprint="e", model=Model(), vocabulary=tiny_vocabulary), said.append)
    assert said == [
        f"a train: 3 rows, classification of 2 labels, 1 rows left out (empty-text, the first: {tmp_path}/a.csv:5: "
        "column text is empty)",
        "a dev: 2 rows",
        "a train: labels 1 2, 0 1; tokens per row: median 3, 95% at most 3, longest 3",
        "a train: 2 of 3 have a text that also occurs with another label",
        "a dev: 1 of 2 have a text that is also in train, so the scores are too high",
    ]
