"""Answer the parts of input files with a model, and say what was answered"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import torch

from pipeline.config.predict import Predict
from pipeline.errors import PipelineError, class_of
from pipeline.on_ray.answering import AnswerProgress
from pipeline.predict import model
from pipeline.predict.inputs import RowFile, digest_of
from pipeline.predict.parts import Parts, PartsSummary
from pipeline.predict.running import run_work
from pipeline.predict.work import Note, PartsWork, Reader, input_in, part_row
from pipeline.reporting import Report

CHARACTERS_PER_PART = 250_000
"""Maximum characters of a part, about 60,000 tokens. Progress is reported, and rows are saved, after each part."""


def about(config: Predict, files: Sequence[RowFile], fingerprint: str) -> dict[str, Any]:
    """Return everything that determines the content of the parts. The keys are words for error messages."""
    size = sum(file.bytes for file in files)
    settings: dict[str, Any] = {"text": config.text, "pair": config.pair, "top": config.top}
    settings |= {"rows_per_part": config.rows_per_part} | ({"choices": config.choices} if config.choices else {})
    settings |= {"words": config.words} if config.words is not None else {}
    return {
        "input": f"{config.input} ({len(files)} files, {size:,} bytes, {digest_of(files)})",
        "model": f"{config.checkpoint} ({fingerprint})",
        "settings": ", ".join(f"{name} {value}" for name, value in settings.items()),
        "precision": config.placement.precision,
    }


def answer_missing(config: Predict, files: Sequence[RowFile], parts: Parts, report: Report) -> None:
    """Answer and publish every part that is not answered yet."""
    if before := len(parts.done()):
        report(f"{before:,} parts are answered already")
    if parts.missing(len(files)):
        reader = Reader(list(files), parts.done(), config.rows_per_part, parts.characters(before=sys.maxsize))
        work = PartsWork(config=config, reader=reader, parts=parts, make_worker=Answering)
        run_work(work, AnswerProgress(report, None, before=parts.counted().rows if before else 0), report)


class Answering:
    """Load the model in a process, then answer and publish parts."""

    def __init__(self, work: PartsWork, *, threads: int, note: Note) -> None:
        assert isinstance(work.config, Predict)
        torch.set_num_threads(threads)
        self.config, self.files, self.parts = work.config, work.files, work.parts
        self.model = model.load(work.config)

    def __call__(self, row: pa.Table) -> pa.Table:
        given = input_in(row)
        if given is None:
            return row
        file, table = given.file, given.table
        try:
            asked = (self.config.text, self.config.pair, self.config.choices)
            answers, empty = model.answer_table(self.model, table, *asked)
        except PipelineError as error:
            rows = f"rows {given.first} to {given.first + table.num_rows - 1}"
            return part_row(file, error=class_of(error)(f"{self.files[file].location}, {rows}: {error}"))
        self.parts.publish(
            file, given.part, output_columns(table, self.files[file]), answers, empty, self.model.precision
        )
        return part_row(file, part=given.part, rows=table.num_rows)


def output_columns(table: pa.Table, file: RowFile) -> pa.Table:
    """Return the input columns that the output keeps.

    SQuAD's contexts are left out because they are long. The words of CoNLL's files are left out because the answers
    contain the words.
    """
    dropped = {"squad": ["context"], "words": ["words"]}.get(file.form, [])
    return table.drop_columns(dropped)


def result_lines(whole: PartsSummary, files: int, seconds: float, target: str) -> list[str]:
    """Return the last lines of a prediction: number of answers, number format, time, and location of the output."""
    without = f", {whole.empty:,} of them empty and without an answer" if whole.empty else ""
    without += f", {whole.cut:,} truncated, because they are longer than the model reads" if whole.cut else ""
    of_files = f" of {files:,} files" if files > 1 else ""
    computed = f"computed in {' and '.join(whole.precisions)}, in {seconds:.0f} s"
    mixed = [mixed_precisions_line(whole.precisions)] if len(whole.precisions) > 1 else []
    return [*mixed, f"{whole.rows:,} rows{of_files}{without}, {computed}: {target}"]


def mixed_precisions_line(precisions: Mapping[str, int]) -> str:
    """Return a warning that answers were computed in several number formats; `precisions`: format -> number of rows."""
    each = " and ".join(f"{rows:,} rows in {precision}" for precision, rows in precisions.items())
    remedy = "--placement.precision float32 --replace answers all rows in one format"
    return f"placement.precision auto: {each}, because the machines differ; {remedy}"
