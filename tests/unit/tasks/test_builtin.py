"""The built-in task on made-up packages, by hand and by its laws."""

import random

import pytest

from pipeline.errors import DataError
from pipeline.tasks.builtin import LONGEST_CHARACTERS, builtin_task
from pipeline.tasks.schema import TEXTS
from pipeline.tasks.task import Task


def documents(counts: dict[str, int]) -> list[tuple[str, str]]:
    return [
        (package, f"text {number} of kind {kind}")
        for kind, (package, count) in enumerate(counts.items())
        for number in range(count)
    ]


def shown(package: str, text: str) -> str:
    """The text of one document among others, as the task shows it."""
    _, train, dev = builtin_task([(package, text), *documents({package: 1, "other": 2})])
    rows = train.to_pylist() + dev.to_pylist()
    (found,) = {row["first"] for row in rows if row["label"] == package} - {"text 0 of kind 0"}
    return found


def test_the_packages_with_the_most_texts_have_as_many_rows_each():
    counts = {f"p{n}": 20 + n for n in range(9)} | {"big": 900}
    task, train, dev = builtin_task(documents(counts))
    assert task == Task(
        name="builtin",
        kind="classification",
        labels=("big", *(f"p{n}" for n in range(2, 9))),
        metrics=("accuracy", "macro_f1"),
    )
    assert train.schema.equals(TEXTS) and dev.schema.equals(TEXTS)
    # the least has 22: 22 * 100 // 700 = 3 are development
    assert {row["values"]: row["counts"] for row in train["label"].value_counts().to_pylist()} == dict.fromkeys(
        task.labels, 19
    )
    assert {row["values"]: row["counts"] for row in dev["label"].value_counts().to_pylist()} == dict.fromkeys(
        task.labels, 3
    )
    assert not set(train["first"].to_pylist()) & set(dev["first"].to_pylist())
    assert (
        train["id"].to_pylist() == sorted(set(train["id"].to_pylist())) and train["second"].null_count == train.num_rows
    )


def test_there_is_a_most_of_rows():
    _, train, dev = builtin_task(documents({"a": 800, "b": 701}))
    assert (train.num_rows, dev.num_rows) == (1_200, 200)


def test_the_order_of_documents_changes_nothing():
    given = documents({"a": 50, "b": 40})
    mixed = random.Random(0).sample(given, len(given))
    assert builtin_task(mixed) == builtin_task(given)
    labels = builtin_task(given)[1]["label"].to_pylist()
    assert labels != sorted(labels) and labels != sorted(labels, reverse=True)


def test_the_own_name_is_masked_where_it_is_a_word():
    assert shown("ray", "Ray: ray.get(x), an array, x-rays, RAY_ADDRESS, _ray_ and torch.\n  New\tline") == (
        "package: package.get(x), an array, x-rays, package_ADDRESS, _package_ and torch. New line"
    )
    assert shown("a.b", "axb a.b") == "axb package"


def test_long_texts_are_cut_after_masking_and_half_characters_are_none():
    assert shown("b", "b " * 400) == ("package " * 100)[:LONGEST_CHARACTERS].strip()
    assert shown("b", "x\ud800y") == "x?y"


def test_the_same_text_is_one_row_and_none_where_packages_share_it():
    task, train, dev = builtin_task(
        [
            ("a", "same"),
            ("b", "same"),
            ("a", "a twice"),
            ("a", "package  twice"),
            ("a", "one"),
            ("b", "two"),
            ("b", "three"),
            ("b", ""),
        ]
    )
    assert task.labels == ("a", "b") and sorted(train["first"].to_pylist() + dev["first"].to_pylist()) == [
        "one",
        "package twice",
        "three",
        "two",
    ]
    assert (train.num_rows, dev.num_rows) == (2, 2)


@pytest.mark.parametrize(
    ("counts", "found"),
    [({}, (0, 0)), ({"a": 9}, (1, 9)), ({"a": 9, "b": 1}, (2, 1))],
)
def test_too_few_texts_are_refused(counts: dict[str, int], found: tuple[int, int]):
    with pytest.raises(DataError) as error:
        builtin_task(documents(counts))
    assert str(error.value) == (
        "the built-in task needs at least 2 packages of at least 2 different texts each; "
        f"packages found: {found[0]}, texts in the smallest: {found[1]}"
    )
