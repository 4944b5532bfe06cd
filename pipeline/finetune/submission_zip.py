"""Write predictions on GLUE's test splits as the zip of eleven files for gluebenchmark.com."""

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.errors import DataError
from pipeline.files import storage
from pipeline.tasks.glue import TASKS
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.task import Task

SIMILARITY = (0.0, 5.0)
"""Range of STS-B's labels; predictions are clipped to this range."""
EPOCH = (1980, 1, 1, 0, 0, 0)
"""Date of the zip's files, fixed so that equal predictions give equal bytes."""


@dataclass(frozen=True, kw_only=True)
class SubmissionFile:
    """One file of the submission and the split that it answers."""

    task: str
    split: str
    rows: int
    """Number of rows of the official split; gluebenchmark.com accepts no other number."""


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """A model's predictions on a test split."""

    ids: Sequence[str]
    """Ids of the rows, as in the split's table of TEXTS."""
    values: np.ndarray
    """(N,): class numbers, or values of a regression."""


FILES: dict[str, SubmissionFile] = {
    "CoLA": SubmissionFile(task="cola", split="test", rows=1_063),
    "SST-2": SubmissionFile(task="sst2", split="test", rows=1_821),
    "MRPC": SubmissionFile(task="mrpc", split="test", rows=1_725),
    "STS-B": SubmissionFile(task="stsb", split="test", rows=1_379),
    "QQP": SubmissionFile(task="qqp", split="test", rows=390_965),
    "MNLI-m": SubmissionFile(task="mnli", split="test", rows=9_796),
    "MNLI-mm": SubmissionFile(task="mnli", split="test-mismatched", rows=9_847),
    "QNLI": SubmissionFile(task="qnli", split="test", rows=5_463),
    "RTE": SubmissionFile(task="rte", split="test", rows=3_000),
    "WNLI": SubmissionFile(task="wnli", split="test", rows=146),
    "AX": SubmissionFile(task="ax", split="test", rows=1_104),
}
"""File name without .tsv -> its split."""


def write_submission(location: str, predictions: Mapping[str, Predictions]) -> None:
    """Write the zip to a path or URL; `predictions` is keyed by the names in FILES.

    Raises DataError, and writes nothing, if a file is missing or has another number of rows than the official split.
    """
    missing = [name for name in FILES if name not in predictions]
    if missing:
        raise DataError(
            f"{location} is not written: predictions of {', '.join(missing)} are missing, and a GLUE submission has "
            f"all of {', '.join(FILES)}"
        )
    for name, file in FILES.items():
        if len(predictions[name].values) != file.rows:
            raise DataError(
                f"{location} is not written: {name} has {len(predictions[name].values)} predictions, the official "
                f"test split has {file.rows} rows"
            )
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in FILES.items():
            archive.writestr(
                zipfile.ZipInfo(f"{name}.tsv", EPOCH),
                submission_table(TASKS[file.task], predictions[name]),
                zipfile.ZIP_DEFLATED,
            )
    storage.write_bytes(location, content.getvalue())


def submission_table(task: Task, predictions: Predictions) -> str:
    """Return one file's content: a line per row, with id and prediction (a label, or a number with three decimals)."""
    if KINDS[task.kind].numbers:
        answers = [f"{value:.3f}" for value in np.clip(predictions.values, *SIMILARITY)]
    else:
        answers = [task.labels[int(number)] for number in predictions.values]
    return "".join(
        f"{id}\t{answer}\n" for id, answer in [("index", "prediction"), *zip(predictions.ids, answers, strict=True)]
    )
