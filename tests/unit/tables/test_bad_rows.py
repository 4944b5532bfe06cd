"""Rows that cannot be used: the first is an error, or each is left out under its reason."""

import json
from pathlib import Path

import pytest

from pipeline.config.finetune import Finetune
from pipeline.errors import DataError
from pipeline.tasks import known
from pipeline.tasks.own import read_own


def config(train: Path, **settings: object) -> Finetune:
    return Finetune(checkpoint="c", train=str(train), **settings)


def read(train: Path, dev: Path | None = None, **settings: object):
    return read_own(config(train, **settings), str(train), str(dev) if dev else None)


def written(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(rows) + "\n")
    return path


def test_bad_rows_of_texts_are_left_out_under_their_reasons(tmp_path: Path) -> None:
    train = written(tmp_path / "a.csv", "text,label", "x,1", " ,1", "y,0", "z,", "one,two,three", "v,nan")
    dev = written(tmp_path / "b.csv", "text,label", "x,1", "y,2", "z,0", "w,2")
    with pytest.raises(
        DataError, match=r"a.csv:6: 3 columns where the first line names 2"
    ):  # rows are read before they are looked into
        read(train)
    task, items, lost = read(train, dev, on_bad_rows="skip")
    assert (
        items["train"]["first"].to_pylist() == ["x", "y"]
        and items["dev"]["first"].to_pylist() == ["x", "z"]
        and task.labels == ("0", "1")
    )
    assert lost["train"] == (
        f"2 rows left out (no-label, the first: {train}:5: column label has no label (''); give the row a label)",
        f"1 rows left out (number-of-columns, the first: {train}:6: 3 columns where the first line names 2; enclose a "
        "text that holds a separator in quotes (CSV))",
        f"1 rows left out (empty-text, the first: {train}:3: column text is empty)",
    )
    assert lost["dev"] == (
        f"2 rows left out (unknown-label, the first: {dev}:3: label '2' is not among the labels of a (0, 1))",
    )


def test_without_skip_the_first_bad_row_is_the_error(tmp_path: Path) -> None:
    dev = written(tmp_path / "b.csv", "text,label", "x,1", "y,2")
    with pytest.raises(DataError, match=r"a.csv:3: column text is empty; --on-bad-rows skip leaves such rows out$"):
        read(written(tmp_path / "a.csv", "text,label", "x,1", ",1", "y,0"))
    with pytest.raises(
        DataError, match=r"b.csv:3: label '2' is not among the labels of c \(0, 1\); --on-bad-rows skip"
    ):
        read(written(tmp_path / "c.csv", "text,label", "x,1", "y,0"), dev)


def test_a_file_of_bad_rows_alone_says_why(tmp_path: Path) -> None:
    with pytest.raises(
        DataError,
        match=r"a.csv has no row that can be used: 2 rows left out \(empty-text, the first: .*a.csv:2: column text is "
        r"empty\)$",
    ):
        read(written(tmp_path / "a.csv", "text,label", ",1", ",0"), on_bad_rows="skip")


def test_values_that_are_none_are_left_out(tmp_path: Path) -> None:
    train = written(tmp_path / "a.csv", "text,label", *(f"x,{n / 8}" for n in range(30)), "y,high")
    with pytest.raises(DataError, match=r"a.csv:32: label 'high' is not a number, but 30 other labels are; correct it"):
        read(train)
    task, items, lost = read(train, on_bad_rows="skip")
    assert (
        task.kind == "regression"
        and len(items["train"]) == 30
        and lost["train"][0].startswith("1 rows left out (unknown-label, the first: ")
    )


@pytest.mark.parametrize("one_list", [False, True])
def test_json_that_is_broken_or_lacks_a_column_is_left_out(one_list: bool, tmp_path: Path) -> None:
    rows: list[object] = [{"text": "x", "label": "a"}, {"text": "y"}, 7, {"text": "z", "label": "b"}]
    text = json.dumps(rows, indent=1) if one_list else "\n".join([*map(json.dumps, rows), "{broken"])
    task, items, lost = read(written(tmp_path / "a.json", text), on_bad_rows="skip")
    assert items["train"]["first"].to_pylist() == ["x", "z"]
    assert [words.split(",")[0] for words in lost["train"]] == [
        "1 rows left out (no-column",
        "1 rows left out (no-object",
    ] + ["1 rows left out (not-json"] * (not one_list)


def test_a_first_row_of_json_that_lacks_the_label_is_left_out(tmp_path: Path) -> None:
    rows = [json.dumps(row) for row in ({"text": "x"}, {"text": "y", "label": "a"}, {"text": "z", "label": "b"})]
    train = written(tmp_path / "a.jsonl", *rows)
    _, items, lost = read(train, on_bad_rows="skip")
    assert items["train"]["first"].to_pylist() == ["y", "z"]
    assert lost["train"] == (
        f"1 rows left out (no-column, the first: {train}:1 has no column label: its columns are text)",
    )
    message = r"a.jsonl:1 has no column label: its columns are text; name yours with --text, --pair and --label$"
    with pytest.raises(DataError, match=message):
        read(train)
    with pytest.raises(DataError, match=message):
        read(written(train, *rows[:1] * 2), on_bad_rows="skip")


def test_sentences_and_questions_are_left_out(tmp_path: Path) -> None:
    train = written(tmp_path / "a.conll", "EU B-ORG", "is O", "", "here O X", "", "London B-LOC", "")
    dev = written(tmp_path / "b.conll", "EU B-ORG", "", "Bob B-PER", "")
    _, items, lost = read(train, dev, on_bad_rows="skip")
    assert [one.words for one in items["train"]] == [("EU", "is"), ("London",)] and [
        one.words for one in items["dev"]
    ] == [("EU",)]
    assert lost["train"] == (
        f"1 rows left out (number-of-columns, the first: {train}, line 4 ('here O X') has 3 columns, and the file's "
        "first word has 2: give each word the same number of columns)",
    )
    assert lost["dev"][0].startswith(
        f"1 rows left out (unknown-tag, the first: {dev}, sentence 2: tag 'B-PER' is not among the 5 tags of a (O, "
        "B-LOC, "
    )
    with pytest.raises(
        DataError,
        match=r"sentence 2: tag 'B-PER' is not among the 3 tags of c \(O, B-ORG, I-ORG\); correct the file, or train "
        r"on a file with that tag; --on-bad-rows skip leaves such rows out$",
    ):
        read(written(tmp_path / "c.conll", "EU B-ORG", "is O", ""), dev)
    table = written(
        tmp_path / "q.jsonl",
        *(
            json.dumps({"question": question, "context": "London is big.", "answer": "London"})
            for question in ("What?", "", "Who?")
        ),
    )
    _, items, lost = read(table, on_bad_rows="skip")
    assert len(items["train"]) == 2 and lost["train"] == (
        f"1 rows left out (empty-text, the first: {table}:2: column question is empty)",
    )


def test_broken_lines_of_a_known_task_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "SST-2").mkdir()
    written(tmp_path / "SST-2/train.tsv", "sentence\tlabel", "a\t0", "\t1", "b\t1", "c\t7")
    with pytest.raises(DataError, match=r"train.tsv:3: column sentence is empty$"):
        known.read_items(known.TASKS["sst2"], str(tmp_path), "train")
    items, _ = known.read_items(known.TASKS["sst2"], str(tmp_path), "train", skip=True)
    assert items["first"].to_pylist() == ["a", "b"]
