"""Parts on disk, the columns that they come to together, and the files that they are joined to."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from pipeline.config.predict import Predict
from pipeline.errors import ConfigError, DataError
from pipeline.files import storage
from pipeline.predict import output
from pipeline.predict.columns import require_form
from pipeline.predict.parts import Parts, renamed, unified, widest
from pipeline.workflows.predict import _write

ANSWERS = pa.table({"label": ["good", None], "shares": [[0.25, 0.75], None]})


def parts(tmp_path: Path) -> Parts:
    """Two parts of file 0 and one of file 1, whose columns differ."""
    made = Parts(folder=str(tmp_path / "out.parts"))
    made.publish(0, 1, pa.table({"text": ["c", "d"], "n": [1.5, 2.0]}), ANSWERS, 1, "float32")
    made.publish(0, 0, pa.table({"text": ["a", ""], "n": [1, 2]}), ANSWERS, 1, "float32")
    made.publish(1, 0, pa.table({"text": ["e", "f"], "label": ["x", "y"], "m": [[1], []]}), ANSWERS, 1, "float32")
    return made


def joined(made: Parts, target: Path) -> None:
    whole = made.counted()
    assert (whole.rows, whole.empty) == (6, 3)
    schema = unified(whole.schemas)
    output.write(made.tables(schema), made.final(schema), str(target), made.folder)


def test_what_is_done_is_told_from_what_is_missing(tmp_path: Path) -> None:
    made = parts(tmp_path)
    assert made.done() == {(0, 0), (0, 1), (1, 0)}
    assert made.missing(2)  # nothing says that the files have no more
    made.close(0, 2)
    made.close(1, 2)
    assert made.counts() == {0: 2, 1: 2} and made.missing(2) and not made.missing(1)


def test_the_precision_of_each_part_is_counted_and_stands_in_the_manifest(tmp_path: Path) -> None:
    made = parts(tmp_path)
    assert made.counted().precisions == {"float32": 6}
    made.publish(1, 1, pa.table({"text": ["g", "h"]}), ANSWERS, 1, "bfloat16")
    assert made.counted().precisions == {"bfloat16": 2, "float32": 6}
    output.write_manifest(str(tmp_path / "out.csv"), {"model": "m", "precision": "auto"}, made.counted())
    said = json.loads((tmp_path / "out.csv.manifest.json").read_text())
    assert said == {"model": "m", "precision": {"bfloat16": 2, "float32": 6}, "rows": 8, "empty": 4, "cut": 0}


def test_what_is_damaged_of_the_parts_is_made_again_or_named(tmp_path: Path) -> None:
    parts = Parts(folder=str(tmp_path / "parts"))
    parts.begin({"input": "a"}, 9)
    parts.close(0, 2)
    parts.close(1, 1)
    (tmp_path / "parts" / "000001.json").write_text('{"par')
    assert parts.counts() == {0: 2}
    about = next(path for path in (tmp_path / "parts").iterdir() if not path.name.startswith("0000"))
    about.write_text("{")
    parts.publish(0, 0, pa.table({"text": ["a", "b"]}), ANSWERS, 0, "float32")
    with pytest.raises(
        ConfigError,
        match=rf"^{about} is damaged: delete {tmp_path}/parts to compute all answers again, or choose another --output",
    ):
        parts.begin({"input": "a"}, 9)


def test_parts_of_something_else_are_refused_with_both_values(tmp_path: Path) -> None:
    made = parts(tmp_path)
    made.begin({"input": "a.csv", "model": "m1"}, 9)
    made.begin({"input": "a.csv", "model": "m1"}, 9)
    with pytest.raises(ConfigError) as error:
        made.begin({"input": "a.csv", "model": "m2"}, 9)
    assert (
        str(error.value)
        == f"{made.folder} holds answers for model m1, not for model m2: give the same model again, delete the "
        "folder, or choose another --output"
    )


def test_records_without_parts_do_not_hold_back_a_corrected_input(tmp_path: Path) -> None:
    made = Parts(folder=str(tmp_path / "out.parts"))
    made.begin({"input": "broken.csv"}, 9)
    made.close(0, 0)
    made.begin({"input": "corrected.csv"}, 8)
    assert made.counts() == {} and made.characters(before=7) == 8
    made.publish(0, 0, pa.table({"text": ["a", "b"]}), ANSWERS, 0, "float32")
    with pytest.raises(ConfigError, match=r"holds answers for input corrected\.csv, not for input broken\.csv: give"):
        made.begin({"input": "broken.csv"}, 9)


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_columns_that_no_format_holds_are_written_as_text(ending: str, tmp_path: Path) -> None:
    answers = pa.table({"label": ["good"]})
    cases = {
        "objects without fields": ([[{}], [{}]], ["{}", "{}"]),
        "lists of them": ([[[{}]], [[{}]]], ["[{}]", "[{}]"]),
        "objects without fields in one part": ([[{}], [{"a": 1}]], None),
        "whole numbers that no float holds": ([[2**60 + 1], [2.5]], [str(2**60 + 1), "2.5"]),
        "bytes": ([pa.array([b"\xff"]), pa.array([b"a"])], None),
        "views": ([pa.array(["a"], pa.string_view()), pa.array(["b"], pa.string_view())], None),
        "half floats": (
            [pa.array([1.5], pa.float32()).cast(pa.float16()), pa.array([0.5], pa.float32()).cast(pa.float16())],
            None,
        ),
        "categories": ([pa.array(["a"]).dictionary_encode(), pa.array(["b"]).dictionary_encode()], None),
    }
    for number, (name, (columns, wanted)) in enumerate(cases.items()):
        made = Parts(folder=str(tmp_path / f"{number}.parts"))
        for part, column in enumerate(columns):
            made.publish(0, part, pa.table({"m": column}), answers, 0, "float32")
        schema, target = unified(made.counted().schemas), tmp_path / f"{number}.{ending}"
        output.write(made.tables(schema), made.final(schema), str(target), made.folder)
        assert wanted is None or made.final(schema).field("m").type == pa.string(), name
        if ending == "parquet" and wanted:
            assert pq.read_table(target)["m"].to_pylist() == wanted, name


def test_whole_numbers_and_fractions_that_floats_hold_stay_numbers(tmp_path: Path) -> None:
    made = Parts(folder=str(tmp_path / "a.parts"))
    for part, column in enumerate(([2**53], [2.5])):
        made.publish(0, part, pa.table({"m": column}), pa.table({"label": ["good"]}), 0, "float32")
    assert unified(made.counted().schemas).field("input/m").type == pa.float64()
    alone = Parts(folder=str(tmp_path / "b.parts"))
    alone.publish(0, 0, pa.table({"m": [2**60 + 1]}), pa.table({"label": ["good"]}), 0, "float32")
    assert unified(alone.counted().schemas).field("input/m").type == pa.int64()


def test_parts_are_joined_in_order_with_all_their_columns(tmp_path: Path) -> None:
    made = parts(tmp_path)
    joined(made, tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.column_names == ["text", "n", "label", "m", "predicted_label", "shares"]
    assert found["text"].to_pylist() == ["a", "", "c", "d", "e", "f"]
    assert found["n"].to_pylist() == [1.0, 2.0, 1.5, 2.0, None, None]
    assert found["label"].to_pylist() == [None] * 4 + ["x", "y"]
    assert found["predicted_label"].to_pylist() == ["good", None] * 3
    assert not (tmp_path / "out.parts" / output.JOINED).exists()


def test_an_object_appears_only_when_it_is_complete() -> None:
    def interrupted() -> Iterator[pa.Table]:
        yield ANSWERS
        raise KeyboardInterrupt

    for ending in (".jsonl", ".csv", ".parquet"):
        target = f"mock://bucket/out{ending}"
        with pytest.raises(KeyboardInterrupt):
            output.write_stream(interrupted(), ANSWERS.schema, target)
        assert not storage.exists(target)
    output.write_stream(iter([ANSWERS]), ANSWERS.schema, target)
    assert pq.read_table(pa.BufferReader(storage.read_bytes(target))) == ANSWERS


def test_csv_has_lists_as_json(tmp_path: Path) -> None:
    joined(parts(tmp_path), tmp_path / "out.csv")
    found = pc.read_csv(tmp_path / "out.csv").to_pylist()
    assert found[0] == {
        "text": "a",
        "n": 1.0,
        "label": "",
        "m": "",
        "predicted_label": "good",
        "shares": "[0.25, 0.75]",
    }


def test_json_lines_have_a_row_each(tmp_path: Path) -> None:
    joined(parts(tmp_path), tmp_path / "out.jsonl")
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(found) == 6
    assert found[4] == {
        "text": "e",
        "n": None,
        "label": "x",
        "m": [1],
        "predicted_label": "good",
        "shares": [0.25, 0.75],
    }


def test_answers_by_id_are_as_the_official_scripts_read_them(tmp_path: Path) -> None:
    made = Parts(folder=str(tmp_path / "out.parts"))
    made.publish(0, 0, pa.table({"id": ["q1", "q2"]}), pa.table({"answer": ["Zürich", None]}), 1, "float32")
    schema = unified(made.counted().schemas)
    output.write(made.tables(schema), made.final(schema), str(tmp_path / "out.json"), made.folder)
    assert json.loads((tmp_path / "out.json").read_text()) == {"q1": "Zürich", "q2": ""}


def test_answers_by_id_are_those_of_this_model(tmp_path: Path) -> None:
    made = Parts(folder=str(tmp_path / "out.parts"))
    rows = pa.table({"id": ["q1"], "answer": ["true"], "predicted_answer": ["of an earlier model"]})
    made.publish(0, 0, rows, pa.table({"answer": ["new"], "probability": [0.5]}), 0, "float32")
    schema = unified(made.counted().schemas)
    output.write(made.tables(schema), made.final(schema), str(tmp_path / "out.json"), made.folder)
    assert json.loads((tmp_path / "out.json").read_text()) == {"q1": "new"}


@pytest.mark.parametrize(
    ("ids", "words"), [(["7", "8", "7"], "several rows have the id '7'"), (["7", None], "a row has no id")]
)
def test_answers_that_have_no_id_of_their_own_are_kept_in_their_parts(
    ids: list[str | None], words: str, tmp_path: Path
) -> None:
    target, made = str(tmp_path / "out.json"), Parts(folder=str(tmp_path / "out.parts"))
    for part, id in enumerate(ids):
        made.publish(0, part, pa.table({"id": pa.array([id], pa.string())}), pa.table({"answer": ["a"]}), 0, "float32")
    config = Predict(checkpoint="m", input="i.csv", output=target)
    with pytest.raises(DataError) as refused:
        _write(config, 1, made, made.counted(), target, {})
    assert str(refused.value) == (
        f"output ({target}) cannot hold these rows: {words}; the answers are kept as Parquet in {made.folder}; an "
        "--output name that ends in .jsonl can hold them, but computes them again"
    )
    assert len(made.done()) == len(ids) and not Path(target).exists()


def test_an_output_is_not_replaced_unasked_and_its_form_suits_the_answers(tmp_path: Path) -> None:
    (tmp_path / "out.csv").write_text("mine")
    with pytest.raises(ConfigError) as error:
        output.require_free(str(tmp_path / "out.csv"), False)
    assert str(error.value) == f"output {tmp_path}/out.csv exists already: give --replace, or choose another --output"
    output.require_free(str(tmp_path / "out.csv"), True)
    with pytest.raises(
        ConfigError,
        match=r"output \(a.json\): .json is for answers to questions, but the model's answers are tags: end the name "
        r"in "
        r".jsonl, .csv or .parquet",
    ):
        require_form("a.json", "tags")
    require_form("a.json", "spans")


def test_no_answer_takes_the_name_of_an_inputs_column() -> None:
    assert renamed(["input/label", "input/predicted_label", "answer/label", "answer/score"]) == {
        "input/label": "label",
        "input/predicted_label": "predicted_label",
        "answer/label": "predicted_predicted_label",
        "answer/score": "score",
    }


def test_the_widest_type() -> None:
    assert widest([pa.null(), pa.int64(), pa.float64()]) == pa.float64()
    assert widest([pa.int64(), pa.string()]) == pa.string()
    assert widest([pa.null()]) == pa.string()
    assert widest([pa.list_(pa.int64()), pa.list_(pa.int64())]) == pa.list_(pa.int64())


def test_a_job_continues_with_the_parts_with_which_it_began(tmp_path: Path) -> None:
    made = Parts(folder=str(tmp_path / "parts"))
    made.begin({"input": "a"}, 250)
    made.publish(0, 0, pa.table({"text": ["a", "b"]}), ANSWERS, 0, "float32")
    made.begin({"input": "a"}, 100)
    assert made.characters(before=4_000) == 250
    # as earlier versions wrote it
    (tmp_path / "parts" / "about.json").write_text('{"input": "a"}')
    made.begin({"input": "a"}, 100)
    assert made.characters(before=4_000) == 4_000
