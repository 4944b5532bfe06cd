"""Anyone's own files: formats, the kind of task, and what is broken."""

import gzip
import json
import math
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config.task_kind import Kind
from pipeline.errors import ConfigError, DataError
from pipeline.tables.readers import TEXT_TABLES
from pipeline.tasks.files import Columns, own_task, read_file, require_labels, stem
from pipeline.tasks.schema import TEXTS
from pipeline.tasks.task import Task
from tests.refusals import refusal

REVIEWS = Columns(first="review", label="stars")
PAIRS = Columns(first="a", second="b", label="same")


def rows(texts: pa.Table) -> list[tuple]:
    assert texts.schema.equals(TEXTS)
    return [tuple(row.values()) for row in texts.to_pylist()]


def read(
    folder: Path, name: str, content: str | bytes, columns: Columns = REVIEWS, kind: Kind | None = None
) -> pa.Table:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_file(str(folder / name), columns, kind)


def parquet(folder: Path, table: dict[str, list[Any]], columns: Columns = REVIEWS) -> pa.Table:
    pq.write_table(pa.table(table), folder / "t.parquet")
    return read_file(str(folder / "t.parquet"), columns)


def labelled(*labels: str) -> pa.Table:
    return pa.table(
        [[str(n) for n in range(len(labels))], ["x"] * len(labels), [None] * len(labels), list(labels)], schema=TEXTS
    )


def test_csv_quotes_enclose_and_a_row_is_known_by_its_first_line(tmp_path: Path):
    content = '\ufeffstars,review\r\n5,"Good, he said\nand ""left"""\r\n\r\n1,Bad\r\n'
    assert rows(read(tmp_path, "t.csv", content)) == [
        ("2", 'Good, he said\nand "left"', None, "5"),
        ("5", "Bad", None, "1"),
    ]


def test_tsv_quotes_are_characters(tmp_path: Path):
    content = 'a\tsame\tb\n"x\tyes\ty "z"\nu\tno\tv\n'
    assert rows(read(tmp_path, "t.tsv", content, PAIRS)) == [("2", '"x', 'y "z"', "yes"), ("3", "u", "v", "no")]


def test_labels_of_json_lines_are_written_as_json_writes_them(tmp_path: Path):
    values = ["good", 5, 4.5, True]
    content = "\n\n".join(json.dumps({"review": "x", "stars": value}) for value in values)
    assert rows(read(tmp_path, "t.jsonl", content)) == [
        ("1", "x", None, "good"),
        ("3", "x", None, "5"),
        ("5", "x", None, "4.5"),
        ("7", "x", None, "true"),
    ]


def test_parquet_and_compressed_files(tmp_path: Path):
    assert rows(parquet(tmp_path, {"stars": [1, 2], "more": [0, 0], "review": ["bad", "fair"]})) == [
        ("1", "bad", None, "1"),
        ("2", "fair", None, "2"),
    ]
    decimals = [Decimal("1.00"), Decimal("-0.50")]
    assert [row[3] for row in rows(parquet(tmp_path, {"stars": decimals, "review": ["x", "y"]}))] == ["1", "-0.5"]
    assert rows(read(tmp_path, "t.CSV.gz", gzip.compress(b"review,stars\nbad,1\n"))) == [("2", "bad", None, "1")]


def test_without_a_label_column_labels_are_null(tmp_path: Path):
    assert rows(read(tmp_path, "t.csv", "review,stars\nbad,\n", Columns(first="review"))) == [("2", "bad", None, None)]


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(str.strip),
        min_size=1,
        max_size=5,
    )
)
def test_json_lines_give_back_any_text(tmp_path_factory: pytest.TempPathFactory, texts: list[str]):
    content = "\n".join(json.dumps({"review": text, "stars": 1}, ensure_ascii=False) for text in texts)
    found = read(tmp_path_factory.getbasetemp(), "any.jsonl", content)
    assert found["first"].to_pylist() == texts


def test_a_long_text_in_csv_is_read(tmp_path: Path):
    assert read(tmp_path, "t.csv", f"review,stars\n{'word ' * 40_000},1\n")["first"].to_pylist() == ["word " * 40_000]


BROKEN: list[tuple[str, str | bytes, str]] = [
    (
        "t.csv",
        "text,stars\nx,1\n",
        r"t.csv has no column review: its columns are text, stars; name yours with --text, --pair and --label "
        r"\(no header line\? put one before the rows\)",
    ),
    (
        "t.tsv",
        f"{'Good ' * 20}\t1\n",
        rf"t.tsv has no column review: its columns are {'Good ' * 6}…{'Good ' * 6}, 1; name yours with --text, "
        r"--pair and --label \(no header line\? put one before the rows\)",
    ),
    (
        "t.csv",
        'review,stars\nfine,1\n"good" he said,2\nbad,3\n',
        r"t.csv:3: quotes are broken in the row that begins here \(.*\); double the quotes within a text.*",
    ),
    (
        "t.csv",
        'review,stars\nfine,1\n"good,2\nbad,3\n',
        r"t.csv:3: quotes are broken in the row that begins here \(unexpected end of data\); double .*",
    ),
    (
        "t.csv",
        "review,stars\ngood, he said,2\n",
        r"t.csv:2: 3 columns where the first line names 2; enclose a text that holds a separator in quotes \(CSV\)",
    ),
    ("t.csv", "review,stars\n ,2\n", r"t.csv:2: column review is empty"),
    (
        "t.csv",
        "review,stars\nx,\n",
        r"t.csv:2: column stars has no label \(''\); give the row a label",
    ),
    (
        "t.csv",
        "review,stars\nx,NaN\ny,2\n",
        r"t.csv:2: column stars has no label \('nan'\); give the row a label",
    ),
    ("t.csv", "review,stars\n", r"t.csv has no rows"),
    ("t.csv", b"review,stars\n\xff,1\n", r"t.csv:2: byte 0xff is not UTF-8; save the file as UTF-8"),
    (
        "t.csv.gz",
        b"no gzip",
        r"t.csv.gz cannot be read \(Not a gzipped file .*\): give a plain or compressed file that can be read",
    ),
    (
        "t.csv.gz",
        gzip.compress(b"review,stars\n" * 9, mtime=0)[:10] + b"\xff" * 30,
        r"t.csv.gz cannot be read \(.*invalid.*\): give a plain or compressed file that can be read",
    ),
    (
        "t.xlsx",
        "x",
        r"t.xlsx: the file name must tell the format by ending in one of .csv, .tsv, .jsonl, .ndjson, .json, "
        r".txt, .parquet",
    ),
    (
        "t.jsonl",
        '{"review": "x", "stars": 1}\n{"review": "x"}\n',
        r"t.jsonl:2 has no column stars: its columns are review",
    ),
    ("t.jsonl", '{"review": "x", "stars": NaN}\n', r"t.jsonl:1: column stars has no label \('nan'\); give.*"),
    ("t.jsonl", '{"review": "x", "stars": null}\n', r"t.jsonl:1: column stars has no label \(''\); give.*"),
    (
        "t.jsonl",
        '{"review": "x", "stars": {"a": 1}}\n',
        r"t.jsonl:1: column stars is not a label but .*; a label is one text, number or truth value, or, for kind "
        r"multilabel, a list of them",
    ),
    (
        "t.jsonl",
        '{"review": "x", "stars": [[1]]}\n',
        r"t.jsonl:1: column stars is not a label but '\[1\]'; a label is one text, number or truth value, or, for "
        r".*",
    ),
    (
        "t.jsonl",
        '{"review": "x", "stars": ["a"]}\n{"review": "x", "stars": null}\n',
        r"t.jsonl:2: column stars has no label \(''\); give.*",
    ),
    ("t.jsonl", '{"review": 7, "stars": 1}\n', r"t.jsonl:1: column review is not text but '7'"),
    ("t.jsonl", '{"review": null, "stars": 1}\n', r"t.jsonl:1: column review is empty"),
    (
        "t.jsonl",
        '{"review": "\\ud800", "stars": 1}\n',
        r"t.jsonl: '.*' holds half of a surrogate pair, which is not a character",
    ),
    (
        "t.jsonl",
        "[1, 2]\n",
        r"t.jsonl:1: '\[1, 2\]' is not an object; expected one object per line, or one list of objects",
    ),
    ("t.jsonl", '{"review"\n', r"t.jsonl:1: not JSON \(.*\); expected one object per line, or one list of objects"),
    ("t.parquet", "no parquet", r"t.parquet cannot be read as Parquet: .*"),
]


def test_what_is_broken_is_named_with_file_and_line(tmp_path: Path):
    said = [(refusal(read, tmp_path, name, content), f"{words}$") for name, content, words in BROKEN]
    assert [pair for pair in said if "\n" in pair[0] or not re.search(pair[1], pair[0])] == []


def test_parquet_s_missing_columns_and_labels_are_named(tmp_path: Path):
    with pytest.raises(
        DataError,
        match=r"t.parquet has no column review: its columns are text; name yours with --text, --pair and --label$",
    ):
        parquet(tmp_path, {"text": ["x"]})
    with pytest.raises(DataError, match=r"t.parquet:2: column stars has no label \('nan'\)"):
        parquet(tmp_path, {"review": ["x", "y"], "stars": [1.0, math.nan]})
    with pytest.raises(DataError, match=r"gone.csv does not exist$"):
        read_file(str(tmp_path / "gone.csv"), REVIEWS)


RECOGNISED = {
    ("good", "bad"): "classification",
    ("1", "2", "5"): "classification",
    ("1.0", "2.0"): "classification",
    ("1.0", "2.5"): "regression",
    tuple(map(str, range(20))): "classification",
    tuple(map(str, range(21))): "classification",
    tuple(map(str, range(1, 22))): "regression",
    (*map(str, range(20)), "21"): "regression",
    (*map(str, range(21)), "many", "few", "some"): "classification",
    ("1.5", "2.5", "three"): "classification",
    ("1", "2", "three"): "classification",
    tuple(f"{n}_{m}" for n in range(1, 6) for m in range(1, 6)): "classification",
}


def test_the_kind_is_recognised():
    assert {labels: own_task("x.csv", labelled(*labels, *labels)).kind for labels in RECOGNISED} == RECOGNISED


@pytest.mark.parametrize("slip", ["4,5", "Infinity", "high"])
def test_a_slip_among_values_is_named_and_makes_no_classes(slip: str):
    with pytest.raises(DataError) as found:
        own_task("x.csv", labelled("1.5", "2.5", *map(str, range(20)), slip))
    assert (
        str(found.value)
        == f"x.csv:22: label {slip!r} is not a number, but 22 other labels are; correct it, or pass --kind "
        f"classification "
        "if each label is a class"
    )
    assert (
        own_task("x.csv", labelled("1.5", "2.5", *map(str, range(20)), slip), "classification").kind == "classification"
    )


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match=r"t.csv: column 'stars' occurs twice; give each column its own name$"):
        read(tmp_path, "t.csv", "stars,review,stars\n1,x,2\n")
    assert rows(read(tmp_path, "t.csv", "more,stars,review,more\n1,5,x,2\n")) == [("2", "x", None, "5")]


def test_labels_are_sorted_as_numbers_where_all_are():
    assert own_task("/x/reviews.csv", labelled("10", "9", "10")).labels == ("9", "10")
    assert own_task("x.csv", labelled("10", "9", "none")).labels == ("10", "9", "none")
    assert own_task("/x/reviews.train.csv", labelled("a", "b")).name == "reviews"


def test_a_long_file_name_leaves_room_for_a_trials_seed_and_digest():
    assert stem("/data/reviews.train.csv") == "reviews"
    assert stem("é" * 120 + ".csv") == "é" * 75  # two bytes each
    assert own_task(f"/x/{'é' * 120}.csv", labelled("a", "b")).name == "é" * 75


def test_the_kind_can_be_forced():
    assert own_task("x.csv", labelled("1.5", "2.5"), "classification").labels == ("1.5", "2.5")
    assert own_task("x.csv", labelled("1", "2"), "regression").labels == ()
    with pytest.raises(DataError, match=r"x.csv:1: label 'two' is not a number$"):
        own_task("x.csv", labelled("1", "two"), "regression")


def test_one_class_only_is_refused():
    with pytest.raises(
        DataError, match=r"x.csv: all 2 rows have the label 'a'; training needs at least two different labels$"
    ):
        own_task("x.csv", labelled("a", "a"))


def test_labels_unseen_in_training_are_named():
    task = own_task("train.csv", labelled("a", "b"))
    require_labels(task, "dev.csv", labelled("b", "a", "b"))
    with pytest.raises(DataError, match=r"dev.csv:1: label 'c' is not among the labels of train \(a, b\)$"):
        require_labels(task, "dev.csv", labelled("b", "c"))


def test_every_format_is_read(tmp_path: Path):
    tabs = "review\tstars\nx\t1\n"
    made = {".csv": "review,stars\nx,1\n", ".tsv": tabs, ".txt": tabs} | dict.fromkeys(
        (".jsonl", ".ndjson", ".json"), '{"review": "x", "stars": 1}'
    )
    assert set(made) == set(TEXT_TABLES)
    for suffix, content in made.items():
        assert read(tmp_path, f"t{suffix}", content).drop_columns("id").to_pylist() == [
            {"first": "x", "second": None, "label": "1"}
        ]


def test_lists_of_labels_are_seen_and_then_all_are_lists(tmp_path: Path):
    values = [["war", "art", "war"], [], "law; sea ;", "law", [1, True]]
    content = "\n".join(json.dumps({"review": "x", "stars": value}) for value in values)
    assert read(tmp_path, "t.jsonl", content)["label"].to_pylist() == [
        '["art", "war"]',
        "[]",
        '["law", "sea"]',
        '["law"]',
        '["1", "true"]',
    ]
    assert parquet(tmp_path, {"review": ["x", "y"], "stars": [["b", "a"], []]})["label"].to_pylist() == [
        '["a", "b"]',
        "[]",
    ]
    assert read(tmp_path, "t.csv", 'review,stars\nx,"[""b"", ""a""]"\ny,c;d\n')["label"].to_pylist() == [
        '["a", "b"]',
        '["c", "d"]',
    ]


def test_semicolons_divide_labels_only_where_the_kind_is_forced(tmp_path: Path):
    content = "review,stars\nx,é; b\ny,\nz,[a\n"
    assert read(tmp_path, "t.csv", content, kind="multilabel")["label"].to_pylist() == ['["b", "é"]', "[]", '["[a"]']
    assert read(tmp_path, "t.csv", "review,stars\nx,a; b\n")["label"].to_pylist() == ["a; b"]
    with pytest.raises(
        DataError, match=r"t.jsonl:1: column stars is not a label but .* or, for kind multilabel, a list of them$"
    ):
        read(tmp_path, "t.jsonl", '{"review": "x", "stars": ["a"]}', kind="classification")


def test_columns_of_0_and_1_are_labels(tmp_path: Path):
    topics = Columns(first="review", labels=("war", "art"))
    assert read(tmp_path, "t.csv", "art,review,war\n1,x,True\n0,y,1\n1.0,z,false\n", topics)["label"].to_pylist() == [
        '["art", "war"]',
        '["war"]',
        '["art"]',
    ]
    texts = parquet(tmp_path, {"review": ["x", "y"], "war": [1.0, 0.0], "art": [False, False]}, topics)
    assert texts["label"].to_pylist() == ['["war"]', "[]"]
    assert own_task("t.parquet", texts, labels=topics.labels).labels == ("war", "art")
    for value, shown in (("2", "'2'"), ("", "''"), ("yes", "'yes'")):
        with pytest.raises(
            DataError, match=rf"t.csv:2: column war is {shown}; a label column holds 0 or 1, or false or true$"
        ):
            read(tmp_path, "t.csv", f"art,review,war\n1,x,{value}\n", topics)


def test_label_and_labels_do_not_go_together(tmp_path: Path):
    with pytest.raises(
        ConfigError,
        match=r"columns.label \(c\) and columns.labels \(a, b\) are both given: leave columns.label or "
        r"columns.labels out$",
    ):
        Columns(first="x", label="c", labels=("a", "b"))
    with pytest.raises(ConfigError, match=r"^label \(a, b, a\) names a column twice: give each column of labels once$"):
        Columns(first="x", labels=("a", "b", "a"))
    with pytest.raises(
        ConfigError,
        match=r"columns.labels \(a, b\) make a multilabel task, but kind is regression: leave kind out, or name a "
        r"single label$",
    ):
        read(tmp_path, "t.csv", "", Columns(first="x", labels=("a", "b")), "regression")


def test_a_task_of_several_labels_is_recognised():
    task = own_task("/x/topics.jsonl", labelled('["b", "a"]', "[]", '["c"]'))
    assert (task.kind, task.labels, task.metrics) == (
        "multilabel",
        ("a", "b", "c"),
        ("micro_f1", "macro_f1", "subset_accuracy"),
    )
    assert own_task("x.csv", labelled('["10", "9"]', "[]")).labels == ("9", "10")
    assert own_task("x.csv", labelled("[1]", "b")).kind == "classification"
    require_labels(task, "dev.csv", labelled('["c", "a"]', "[]"))
    with pytest.raises(DataError, match=r"dev.csv:1: label 'd' is not among the labels of topics \(a, b, c\)$"):
        require_labels(task, "dev.csv", labelled("[]", '["d"]'))
    with pytest.raises(DataError, match=r"x.csv:1: label 'b;c' is not a list of labels$"):
        own_task("x.csv", labelled('["a"]', "b;c"), "multilabel")


def test_labels_that_are_nearly_one_a_row_are_no_classes():
    texts = [f"text {n}" for n in range(300)]
    with pytest.raises(DataError) as found:
        own_task("x.csv", labelled(*texts))
    assert str(found.value) == (
        "x.csv: 300 different labels, such as 'text 0', in 300 rows: fewer than 2 rows for each; name the column of "
        "the label with --label, or pass --kind classification if each label is a class"
    )
    assert len(own_task("x.csv", labelled(*texts), "classification").labels) == 300
    assert len(own_task("x.csv", labelled(*texts, *texts)).labels) == 300
    assert len(own_task("x.csv", labelled(*texts[:10])).labels) == 10


@pytest.mark.parametrize(("label", "value"), [("12.50%", "12.5"), ("0,14", "0.14"), ("-3,5 %", "-3.5")])
def test_values_written_otherwise_are_told_how(label: str, value: str):
    with pytest.raises(DataError) as found:
        own_task("x.csv", labelled(label, *(f"{n},5%" for n in range(10, 40))))
    assert "x.csv: labels such as '" in str(found.value) and "are not written as numbers; write " in str(found.value)
    with pytest.raises(DataError, match=rf"x.csv:0: label {label!r} is not a number; write {value}$"):
        own_task("x.csv", labelled(label, "1", "2"), "regression")
    assert own_task("x.csv", labelled("10%", "20%", "10%")).kind == "classification"


class Counted(str):
    """A label that counts its comparisons."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)


def test_a_labels_number_is_looked_up_and_not_searched():
    labels = tuple(Counted(f"{n:05}") for n in range(2_000))
    task = Task(name="a", kind="classification", labels=labels, metrics=("accuracy",))
    assert [task.number(label) for label in labels] == list(range(2_000)) and Counted.compared < 20_000


def test_a_file_of_another_task_is_told_so():
    with pytest.raises(DataError) as found:
        require_labels(own_task("train.csv", labelled("a", "b")), "dev.csv", labelled("some text", "more"))
    assert str(found.value) == (
        "dev.csv: none of its 2 rows has a label of train (a, b); the first label is 'some text': is it another "
        "task's file, or are the columns of text and label swapped?"
    )
