"""The zip that GLUE's server takes."""

import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import DataError
from pipeline.finetune.submission_zip import FILES, Predictions, submission_table, write_submission
from pipeline.tasks.glue import TASKS

ALL = {
    name: Predictions(ids=list(map(str, range(file.rows))), values=np.arange(file.rows) % 2)
    for name, file in FILES.items()
}


def test_there_are_eleven_files_of_splits_without_labels():
    assert list(FILES) == ["CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE", "WNLI", "AX"]
    assert all(TASKS[file.task].split(file.split).label is None for file in FILES.values())


def test_classes_are_written_by_name_and_values_clipped():
    answers = Predictions(ids=["0", "7", "8"], values=np.array([2.0, 0.0, 1.0]))
    assert submission_table(TASKS["ax"], answers) == "index\tprediction\n0\tcontradiction\n7\tentailment\n8\tneutral\n"
    assert (
        submission_table(TASKS["stsb"], replace(answers, values=np.array([-0.2, 5.4, 3.14159])))
        == "index\tprediction\n0\t0.000\n7\t5.000\n8\t3.142\n"
    )
    assert (
        submission_table(TASKS["cola"], replace(answers, values=np.array([1, 0, 1])))
        == "index\tprediction\n0\t1\n7\t0\n8\t1\n"
    )


def test_the_zip_holds_all_files_and_is_the_same_each_time(tmp_path: Path):
    for name in ("one.zip", "two.zip"):
        write_submission(str(tmp_path / name), ALL)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.zip") as archive:
        assert archive.namelist() == [f"{name}.tsv" for name in FILES]
        assert {file.date_time for file in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert archive.read("QNLI.tsv").decode().splitlines()[:3] == [
            "index\tprediction",
            "0\tentailment",
            "1\tnot_entailment",
        ]
        assert len(archive.read("AX.tsv").splitlines()) == 1_105


def test_without_a_task_there_is_no_zip(tmp_path: Path):
    some = {name: answers for name, answers in ALL.items() if name not in ("QQP", "AX")}
    with pytest.raises(
        DataError,
        match=r"glue.zip is not written: predictions of QQP, AX are missing, "
        r"and a GLUE submission has all of CoLA, .*, "
        r"AX$",
    ):
        write_submission(str(tmp_path / "glue.zip"), some)
    with pytest.raises(
        DataError, match=r"glue.zip is not written: WNLI has 2 predictions, the official test split has 146 rows$"
    ):
        write_submission(str(tmp_path / "glue.zip"), ALL | {"WNLI": Predictions(ids=["0", "1"], values=np.zeros(2))})
    assert list(tmp_path.iterdir()) == []
