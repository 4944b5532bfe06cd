"""Details that are reported of a split in addition to its metrics."""

import numpy as np
import pyarrow as pa
import pytest

from pipeline.config.cutting import Truncation
from pipeline.predict.model_score import detail_lines
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.prepared import Prepared
from pipeline.tasks.schema import ENCODED, TEXTS
from pipeline.tasks.task import Task

TRUE, FOUND = [0, 0, 0, 1, 1], [0, 1, 1, 1, 1]


def split(labels: list[float]) -> Prepared:
    """Texts of one token with these labels; the second text has two passages."""
    places = [0, 1, 1, *range(2, len(labels))]
    rows = {
        "ids": [[2]] * len(places),
        "first_length": [1] * len(places),
        "label": [labels[place] for place in places],
        "labels": [None] * len(places),
        "row": places,
    }
    return Prepared(
        items=TEXTS.empty_table(), rows=pa.table({name: rows[name] for name in ENCODED.names}, schema=ENCODED)
    )


def test_classes_have_a_confusion_matrix_by_hand() -> None:
    logits = [np.eye(2, dtype=np.float32)[place] for place in (FOUND[0], FOUND[1], *FOUND[1:])]
    task, way = (
        Task(name="t", kind="classification", labels=("no", "yes"), metrics=("accuracy",)),
        KINDS["classification"],
    )
    found = way.details(task, split(TRUE), way.answers(task, split(TRUE), logits, Truncation()), {})
    assert found["confusion"] == [[1, 2], [0, 2]] and found["labels"] == ["no", "yes"]
    assert found["per_class"]["no"] == {
        "precision": 1.0,
        "recall": pytest.approx(1 / 3),
        "f1": pytest.approx(0.5),
        "count": 3.0,
    }
    assert found["per_class"]["yes"] == {"precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3), "count": 2.0}


def test_many_classes_have_no_confusion_matrix() -> None:
    task, way = (
        Task(name="t", kind="classification", labels=tuple(map(str, range(201))), metrics=("accuracy",)),
        KINDS["classification"],
    )
    found = way.details(task, split(TRUE), np.eye(201)[FOUND], {})
    assert "confusion" not in found and len(found["per_class"]) == 201


def test_labels_have_figures_of_their_own_by_hand() -> None:
    """Three texts of the labels a; a and b; b, of which the first and the second are given a."""
    columns = {
        "ids": [[2]] * 3,
        "first_length": [1] * 3,
        "label": [None] * 3,
        "labels": [[1, 0], [1, 1], [0, 1]],
        "row": [0, 1, 2],
    }
    prepared = Prepared(
        items=TEXTS.empty_table(), rows=pa.table({name: columns[name] for name in ENCODED.names}, schema=ENCODED)
    )
    task, way = Task(name="t", kind="multilabel", labels=("a", "b"), metrics=("f1",)), KINDS["multilabel"]
    found = way.details(
        task,
        prepared,
        way.answers(task, prepared, [np.array(one, np.float32) for one in ([3, -3], [3, -3], [-3, -3])], Truncation()),
        {},
    )
    assert found == {
        "labels": ["a", "b"],
        "per_class": {
            "a": {"precision": 1.0, "recall": 1.0, "f1": 1.0, "count": 2.0},
            "b": {"precision": 0.0, "recall": 0.0, "f1": 0.0, "count": 2.0},
        },
    }
    assert [line.split() for line in detail_lines(task, found)[1:]] == [
        ["label", "precision", "recall", "f1", "rows"],
        ["a", "100.0", "100.0", "100.0", "2"],
        ["b", "0.0", "0.0", "0.0", "2"],
    ]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("classification", "multilabel")])
def test_other_kinds_have_nothing_more(kind: str) -> None:
    assert KINDS[kind].details(Task(name="t", kind=kind, metrics=("f1",)), split(TRUE), [], {}) == {}
