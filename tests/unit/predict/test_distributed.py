"""Resources that a job requests, and the input columns that its output keeps, without Ray."""

import math
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config.placement import ModelPlacement
from pipeline.config.predict import Predict
from pipeline.errors import ConfigError
from pipeline.files import storage
from pipeline.files.listing import StoredFile
from pipeline.predict import inputs
from pipeline.predict.answering import about, mixed_precisions_line, output_columns
from pipeline.predict.distributed import SMALL_BYTES, ModelResources, fit, most_parts, resources_line, threads
from pipeline.predict.inputs import RowFile, inputs_of, list_inputs, rows_of
from pipeline.predict.output import manifest_of
from pipeline.predict.work import Reader, count
from pipeline.workflows.predict import predict


def config(**settings) -> Predict:
    return Predict(checkpoint="/m", input="/a.csv", output="/b.csv", **settings)


@pytest.mark.parametrize(
    ("settings", "cpus", "gpus", "use"),
    [
        ({}, 2, 0, ModelResources(actors=1, cpus=1.0, gpus=0.0)),
        ({}, 9, 0, ModelResources(actors=8, cpus=1.0, gpus=0.0)),
        ({"cpus": 0.5}, 2, 0, ModelResources(actors=2, cpus=0.5, gpus=0.0)),
        ({}, 9, 2, ModelResources(actors=2, cpus=1.0, gpus=1.0)),
        ({"gpus": 0.25}, 9, 1, ModelResources(actors=4, cpus=1.0, gpus=0.25)),
        ({"gpus": 0.0, "actors": 3}, 9, 1, ModelResources(actors=3, cpus=1.0, gpus=0.0)),
        ({"placement": ModelPlacement(device="cpu")}, 3, 1, ModelResources(actors=2, cpus=1.0, gpus=0.0)),
    ],
)
def test_processes_fit_the_cluster_beside_the_reader(
    settings: dict, cpus: float, gpus: float, use: ModelResources
) -> None:
    assert fit(config(**settings), cpus=cpus, gpus=gpus) == use


@pytest.mark.parametrize(
    ("settings", "cpus", "gpus", "message"),
    [
        (
            {"gpus": 0.5},
            4,
            0,
            "gpus (0.5) must be at most 0, the number of GPUs in the cluster: lower gpus, or leave it out",
        ),
        (
            {"placement": ModelPlacement(device="cuda")},
            4,
            0,
            "placement.device cuda needs GPUs, and the cluster has none",
        ),
        (
            {"actors": 4},
            4,
            0,
            "actors (4) of 1 CPUs do not fit: the cluster has 4 CPUs, and reading needs 1; at most 3 fit: lower "
            "--actors or --cpus",
        ),
        (
            {},
            1,
            0,
            "actors (1) of 1 CPUs do not fit: the cluster has 1 CPUs, and reading needs 1; give Ray 2 CPUs (ray start "
            "--head --num-cpus 2)",
        ),
        (
            {"cpus": 4.0},
            4,
            0,
            "actors (1) of 4 CPUs do not fit: the cluster has 4 CPUs, and reading needs 1; lower --cpus",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_both_values(settings: dict, cpus: float, gpus: float, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        fit(config(**settings), cpus=cpus, gpus=gpus)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("settings", "use"),
    [
        (
            {"placement": ModelPlacement(autoscaled=True, device="cuda"), "actors": 4},
            ModelResources(actors=4, cpus=1.0, gpus=1.0),
        ),
        (
            {"placement": ModelPlacement(autoscaled=True, device="cuda"), "actors": 4, "gpus": 0.5},
            ModelResources(actors=4, cpus=1.0, gpus=0.5),
        ),
        (
            {"placement": ModelPlacement(autoscaled=True, device="cpu"), "actors": 3, "cpus": 2.0},
            ModelResources(actors=3, cpus=2.0, gpus=0.0),
        ),
    ],
)
def test_a_cluster_that_scales_itself_is_taken_as_it_will_be(settings: dict, use: ModelResources) -> None:
    assert fit(config(**settings), cpus=0, gpus=0) == use


def test_a_small_input_asks_for_no_more_processes_than_it_has_parts(tmp_path: Path) -> None:
    def file(name: str, text: str) -> RowFile:
        (tmp_path / name).write_text(text)
        return RowFile(location=str(tmp_path / name), bytes=len(text), stamp="", form="table")

    seven, one, empty = (file(f"{rows}.jsonl", '{"text": "a"}\n' * rows) for rows in (7, 1, 0))
    assert [most_parts([seven], rows) for rows in (7, 6, 3)] == [1, 2, 3]
    assert most_parts([seven, one], 4) == 3 and most_parts([empty], 4) == 1
    assert most_parts([replace(seven, bytes=SMALL_BYTES + 1)], 4) == math.inf
    assert most_parts([seven, file("broken.jsonl", "{")], 4) == math.inf


def test_an_output_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "manifest.json").write_text("{}")
    with pytest.raises(
        ConfigError, match=rf"^output \({tmp_path}/file\) cannot be written: .*; choose another folder or URL$"
    ):
        predict(Predict(checkpoint=f"{tmp_path}/model", input="/a.csv", output=f"{tmp_path}/file/b.csv"), print)


def test_threads_are_those_asked_for() -> None:
    assert threads(config(placement=ModelPlacement(threads=3)), ModelResources(actors=2, cpus=1.0, gpus=0.0)) == 3
    assert threads(config(), ModelResources(actors=1, cpus=2.0, gpus=1.0)) == 2


def test_questions_leave_their_contexts_behind_and_tables_nothing() -> None:
    table = pa.table({"id": ["a"], "question": ["b"], "context": ["c"], "words": [["d"]]})
    forms = {
        form: output_columns(table, RowFile(location="a", form=form, bytes=1, stamp="")).column_names
        for form in ("table", "squad", "words")
    }
    assert forms == {
        "table": ["id", "question", "context", "words"],
        "squad": ["id", "question", "words"],
        "words": ["id", "question", "context"],
    }


def test_what_parts_are_of_changes_with_the_input_the_model_and_the_settings() -> None:
    file = RowFile(location="/a.csv", form="table", bytes=1_234, stamp="1")
    first = about(config(), [file], "abc")
    assert first["input"].startswith("/a.csv (1 files, 1,234 bytes, ") and first["model"] == "/m (abc)"
    assert first["settings"] == "text None, pair None, top 5, rows_per_part 2000"
    assert (
        about(config(), [RowFile(location="/a.csv", form="table", bytes=1_234, stamp="2")], "abc")["input"]
        != first["input"]
    )
    assert about(config(placement=ModelPlacement(threads=2), actors=2), [file], "abc") == first
    assert first["precision"] == "auto"
    assert about(config(placement=ModelPlacement(precision="float32")), [file], "abc") != first


def test_several_precisions_are_told_with_their_rows() -> None:
    assert mixed_precisions_line({"bfloat16": 2_000, "float32": 6}) == (
        "placement.precision auto: 2,000 rows in bfloat16 and 6 rows in float32, because the machines differ; "
        "--placement.precision float32 --replace answers all rows in one format"
    )


def test_a_reader_gives_what_is_not_done_and_then_the_number_of_parts(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\nb\nc\n")
    (tmp_path / "b.txt").write_bytes(b"a\n\xff\n")
    files = [RowFile(location=f"{tmp_path}/{name}.txt", form="text", bytes=1, stamp="") for name in "ab"]
    found = pa.concat_tables(Reader(files, {(0, 0)}, 1, 9)(pa.table({"file": [0]}))).to_pylist()
    assert [(row["file"], row["part"], row["rows"], row["parts"]) for row in found] == [
        (0, 1, 1, 0),
        (0, 2, 1, 0),
        (0, -1, 0, 4),
    ]
    assert pa.ipc.open_stream(found[0]["table"]).read_all().to_pylist() == [{"text": "b"}]
    assert [row["first"] for row in found] == [2, 3, 0]
    broken = pa.concat_tables(Reader(files, set(), 5, 9)(pa.table({"file": [1]}))).to_pylist()
    assert [(row["error"], row["message"]) for row in broken] == [
        ("DataError", f"{tmp_path}/b.txt:2: byte 0xff is not UTF-8; save the file as UTF-8")
    ]


def test_rows_are_counted_in_every_form_and_not_where_a_file_is_broken(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text\n"one\nline"\ntwo\n')
    (tmp_path / "b.txt").write_text("x\ny\nz\n")
    pq.write_table(pa.table({"text": ["p"] * 5}), tmp_path / "c.parquet")
    files = list_inputs(str(tmp_path), "auto", tags=False)
    assert [rows_of(file) for file in files] == [2, 3, 5] and count(files) == 10
    (tmp_path / "c.parquet").write_bytes(b"no")
    assert count(files) is None


def test_one_process_is_said_in_the_singular() -> None:
    assert resources_line(3, ModelResources(actors=1, cpus=1.0, gpus=0.0)) == "3 files, 1 process with the model, 1 CPU"
    assert (
        resources_line(1, ModelResources(actors=2, cpus=0.5, gpus=0.25))
        == "1 file, 2 processes with the model, each 0.5 CPUs and 0.25 GPU"
    )


def test_an_output_in_the_input_s_folder_is_no_input(tmp_path: Path) -> None:
    target = str(tmp_path / "answers.jsonl")
    for name in ("a.jsonl", "answers.jsonl", "answers.jsonl.parts/000000-000000.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"text": "a"}\n')
    storage.write_json(f"{target}.parts/about.json", {"input": "a", "model": "b"})
    storage.write_json(manifest_of(target), {"input": "a", "model": "b"})
    (found,) = inputs_of(str(tmp_path), target, "auto", tags=False)
    assert found.location == str(tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(ConfigError, match=r"^input \(.+\) has no file except the output: give another folder$"):
        inputs_of(str(tmp_path), target, "auto", tags=False)


def test_an_output_at_a_url_is_no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("a.csv", "my%20answers.csv", "my%20answers.csv.manifest.json", "my%20answers.csv.parts/about.json")
    stored = [StoredFile(location=f"s3://b/{name}", name=name, bytes=1, stamp="1") for name in names]
    monkeypatch.setattr(inputs, "files_at", lambda *_: stored)
    monkeypatch.setattr(inputs, "is_prepared", lambda _: False)
    (found,) = inputs_of("s3://b", "s3://b/my answers.csv", "auto", tags=False)
    assert found.location == "s3://b/a.csv"
