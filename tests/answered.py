"""Models and inputs of jobs that work on parts, and the choice where the work is done"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.config.cutting import Truncation
from pipeline.config.model import Model
from pipeline.fine_tuned.tuned import About, save_tuned
from pipeline.objectives.tasks import OBJECTIVES
from pipeline.on_ray.answering import AnswerProgress
from pipeline.predict.parts import Parts
from pipeline.predict.work import close_part
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary

FILES, ROWS = 2, 200


def write_classifier(folder: Path, vocabulary: Vocabulary) -> str:
    """Write a classifier whose weights are drawn at random, and return its folder."""
    task = Task(name="moods", kind="classification", labels=("sad", "glad"), metrics=("accuracy",))
    model = Model(layers=1, width=32, heads=2, feed_forward=64, maximum_positions=32)
    module = OBJECTIVES[task.kind](model, vocabulary.size, 2, torch.Generator().manual_seed(3), "cls", None)
    cutting = Truncation(maximum_length=16, stride=4)
    about = About(task=task, cutting=cutting, pooling="cls", thresholds={}, lineage={})
    save_tuned(str(folder), module, about, model, vocabulary)
    return str(folder)


def write_reviews(folder: Path) -> Path:
    """Write two tables in which the text of every twentieth row is empty, and return their folder."""
    folder.mkdir()
    for file in range(FILES):
        lines = [
            {
                "number": 1_000 * file + row,
                "label": "mine",
                "text": f"kar lost kand {'mir ' * (row % 9)}" if row % 20 else " ",
            }
            for row in range(ROWS)
        ]
        (folder / f"{file}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def write_texts(folder: Path) -> Path:
    """Write two files of texts, of which some are empty and some are longer than the model reads."""
    folder.mkdir()
    for file in range(FILES):
        rows = [
            {"id": f"{file}-{row}", "text": f"kar lost kand. {'mir nest ' * (row % 40)}" if row % 20 else " "}
            | ({"title": "T"} if file else {})
            for row in range(ROWS)
        ]
        (folder / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def part_bytes(folder: Path) -> dict[str, bytes]:
    """Bytes of each part."""
    return {path.name: path.read_bytes() for path in folder.glob("*-*.parquet")}


def change_times(folder: Path) -> dict[str, int]:
    """Time of the last change of each part."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*-*.parquet")}


def without_ray(patch: pytest.MonkeyPatch) -> None:
    """Let jobs work in this process, although it has joined Ray."""
    patch.setattr("pipeline.predict.running.reason_for_ray", lambda *_: None)


def stop_after(patch: pytest.MonkeyPatch, parts: int) -> None:
    """Let jobs in this process be interrupted, as by Ctrl-C, when so many parts are done."""

    def close_and_stop(row: dict[str, Any], folder: Parts, progress: AnswerProgress) -> None:
        close_part(row, folder, progress)
        if len(folder.done()) == parts:
            raise KeyboardInterrupt

    patch.setattr("pipeline.predict.running.close_part", close_and_stop)
