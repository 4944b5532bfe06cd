"""Labels and tables as other programs write them: nan, 1 beside 1.0, class numbers, spans, "sep=;", empty files."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.config.finetune import Finetune
from pipeline.config.predict import Score
from pipeline.errors import DataError
from pipeline.predict.inputs import RowFile, parts_of
from pipeline.predict.score import of_file
from pipeline.tasks.labels import with_number_labels
from pipeline.tasks.own import read_own
from pipeline.tasks.task import Task


def written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def csv(path: Path, *labels: str) -> str:
    return written(path, "text,label\n" + "".join(f"nan,{label}\n" for label in labels))


def jsonl(path: Path, *labels: object) -> str:
    return written(path, "".join(json.dumps({"text": "x", "label": label}) + "\n" for label in labels))


def read(train: str, dev: str | None = None, **settings: object) -> tuple[Task, dict, dict]:
    return read_own(Finetune(checkpoint="c", train=train, **settings), train, dev)


def labels_of(items: pa.Table) -> list[str]:
    return items["label"].to_pylist()


def test_a_class_may_be_called_nan(tmp_path: Path) -> None:
    for train in (csv(tmp_path / "a.csv", "eng", "nan", "NaN"), jsonl(tmp_path / "a.jsonl", "eng", "nan", "NaN")):
        task, items, _ = read(train, csv(tmp_path / "dev.csv", "nan"))
        assert task.labels == ("NaN", "eng", "nan") and labels_of(items["train"]) == ["eng", "nan", "NaN"]
        assert labels_of(items["dev"]) == ["nan"]
    topics = jsonl(tmp_path / "b.jsonl", ["nan", "eng"], ["eng"])
    assert labels_of(read(topics)[1]["train"]) == ['["eng", "nan"]', '["eng"]']


@pytest.mark.parametrize(
    "train",
    [
        lambda folder: csv(folder / "a.csv", "0", "nan", "1.0", "", "1"),
        lambda folder: jsonl(folder / "a.jsonl", 0, float("nan"), 1, None, 1),
        lambda folder: jsonl(folder / "a.jsonl", "eng", float("nan"), "deu", None, "deu"),
    ],
)
def test_missing_numbers_null_and_empty_cells_are_no_class(train, tmp_path: Path) -> None:
    location = train(tmp_path)
    with pytest.raises(DataError, match=r"column label has no label \('nan'\); give the row a label; "
                       r"--on-bad-rows skip leaves such rows out$"):  # fmt: skip
        read(location)
    task, items, lost = read(location, on_bad_rows="skip")
    assert (
        len(task.labels) == 2 and items["train"].num_rows == 3 and lost["train"][0].startswith("2 rows left out (no-l")
    )


def test_a_whole_number_with_decimals_is_the_same_class(tmp_path: Path) -> None:
    whole, decimal = csv(tmp_path / "a.csv", "0", "1", "0"), csv(tmp_path / "b.csv", "0.0", "1.0", "1.00")
    task, items, _ = read(whole, decimal)
    assert task.labels == ("0", "1") and labels_of(items["dev"]) == ["0", "1", "1"]
    assert labels_of(of_file(Score(checkpoint="c", input=decimal), task).items) == ["0", "1", "1"]
    task, items, _ = read(csv(tmp_path / "c.csv", "0.0", "1.0"), jsonl(tmp_path / "d.jsonl", 1, 0.0))
    assert task.labels == ("0.0", "1.0") and labels_of(items["dev"]) == ["1.0", "0.0"]
    assert task.number("1") == 1.0 and task.numbers == {"0.0": 0.0, "1.0": 1.0}
    task, items, _ = read(csv(tmp_path / "e.csv", "1", "2", "1.0", "01"))
    assert sorted(task.labels) == ["01", "1", "2"] and labels_of(items["train"]) == ["1", "2", "1", "01"]
    with pytest.raises(DataError, match=r"all 2 rows have the label '1'; training needs"):
        read(csv(tmp_path / "f.csv", "1", "1.0"))
    task, items, _ = read(jsonl(tmp_path / "g.jsonl", [1, 2.0], ["2", 1.0]), jsonl(tmp_path / "h.jsonl", [2.0]))
    assert task.labels == ("1", "2") and labels_of(items["train"]) == ['["1", "2"]'] * 2
    assert labels_of(items["dev"]) == ['["2"]']
    published = Task(name="m", kind="classification", labels=("LABEL_0", "LABEL_1"), metrics=("accuracy",))
    assert with_number_labels(published, {"0.0", "1.0"}).labels == ("0", "1")


def test_values_keep_their_spelling(tmp_path: Path) -> None:
    task, items, _ = read(csv(tmp_path / "a.csv", "1", "1.0", "2.5"))
    assert task.kind == "regression" and labels_of(items["train"]) == ["1", "1.0", "2.5"]


def test_numbers_from_0_without_a_gap_are_classes(tmp_path: Path) -> None:
    numbers = list(map(str, range(25)))
    assert read(csv(tmp_path / "a.csv", *numbers, *numbers))[0].labels == tuple(numbers)
    assert read(csv(tmp_path / "b.csv", *numbers, *(f"{number}.0" for number in numbers)))[0].labels == tuple(numbers)
    for values in (numbers, [*numbers[1:], *numbers], [*numbers, *numbers, "26"], [*numbers, *numbers, "0.5"]):
        assert read(csv(tmp_path / "c.csv", *values))[0].kind == "regression", values
    assert read(csv(tmp_path / "d.csv", *numbers, *numbers), kind="regression")[0].kind == "regression"


SPAN = (
    r"which are not read: split each text into words and give each word a tag, as in \{\"words\": \[\"Tom\", \"left\"\]"
)


@pytest.mark.parametrize(
    ("row", "settings", "column"),
    [
        ({"text": "Tom left", "label": [[0, 3, "PER"]]}, {}, "label"),
        ({"text": "Tom left", "label": [[0, 3, "PER"]]}, {"kind": "tags"}, "label"),
        ({"text": "Tom left", "label": [[0, 3, "PER"]]}, {"on_bad_rows": "skip"}, "label"),
        ({"text": "Tom left", "entities": [{"start_offset": 0, "end_offset": 3, "label": "PER"}]}, {}, "entities"),
        ({"text": "Tom left", "spans": [{"start": 0, "end": 3}]}, {"label": ("spans",)}, "spans"),
        (
            {"data": {"text": "Tom"}, "annotations": [{"result": [{"value": {"start": 0, "end": 3}}]}]}, {},
            "annotations",
        ),
    ],
)  # fmt: skip
def test_spans_of_annotation_tools_are_told(row: dict, settings: dict, column: str, tmp_path: Path) -> None:
    empty = {"text": "x", "label": []} if "label" in row and settings != {"kind": "tags"} else row
    for name, text in (("a.jsonl", f"{json.dumps(empty)}\n{json.dumps(row)}\n"), ("a.json", json.dumps([row]))):
        with pytest.raises(DataError, match=rf"column {column} has spans of characters, such as .*, {SPAN}"):
            read(written(tmp_path / name, text), **settings)


def test_lists_of_labels_are_no_spans(tmp_path: Path) -> None:
    assert read(jsonl(tmp_path / "a.jsonl", [1, 2, "b"], ["b"]))[0].labels == ("1", "2", "b")


@pytest.mark.parametrize("first", ["sep=;\r\n", "\ufeffsep=;\n", '"sep=;"\r\n', "sep=;;\n", "\nsep=;\n"])
def test_the_separator_that_excel_reads_is_obeyed(first: str, tmp_path: Path) -> None:
    location = written(tmp_path / "a.csv", f'{first}text;label\r\n"a, b;c";x\r\nd;y\r\n')
    line = first.count("\n") + 2
    rows = read(location)[1]["train"].to_pylist()
    assert [(row["id"], row["first"], row["label"]) for row in rows] == [
        (str(line), "a, b;c", "x"), (str(line + 1), "d", "y"),
    ]  # fmt: skip
    file = RowFile(location=location, form="table", bytes=1, stamp="")
    assert [row for part in parts_of(file, 9) for row in part.to_pylist()] == [
        {"text": "a, b;c", "label": "x"}, {"text": "d", "label": "y"},
    ]  # fmt: skip


def test_a_separator_that_the_header_lacks_is_obeyed(tmp_path: Path) -> None:
    assert labels_of(read(written(tmp_path / "a.csv", "sep=^\ntext^label\na,b^x\nc^y\n"))[1]["train"]) == ["x", "y"]
    with pytest.raises(DataError, match=r"a.csv:3: 3 columns where the first line names 2"):
        read(written(tmp_path / "a.csv", "sep=;\ntext;label\na;b;c\n"))


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.json", "a.conll", "a.txt", "a.parquet"])
def test_an_empty_file_is_empty(name: str, tmp_path: Path) -> None:
    for text in ("",) if name == "a.parquet" else ("", "\n\n", "\ufeff\n"):
        location = written(tmp_path / name, text)
        for settings in ({}, {"kind": "similarity"}, {"kind": "spans"}) if name == "a.csv" else ({},):
            with pytest.raises(DataError, match=rf"{name} is empty: give a file with rows$"):
                read(location, **settings)


def test_an_empty_development_file_is_empty(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"dev.csv is empty: give a file with rows$"):
        read(csv(tmp_path / "a.csv", "0", "1"), written(tmp_path / "dev.csv", ""))
