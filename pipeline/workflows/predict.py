"""Run a model on inputs, part by part, and join the parts into one output."""

import time
from typing import Any

import pyarrow as pa

from pipeline.config.locations import with_absolute_locations
from pipeline.config.predict import Predict
from pipeline.errors import DataError
from pipeline.files import storage
from pipeline.files.locks import locked
from pipeline.predict import model, output
from pipeline.predict.answering import CHARACTERS_PER_PART, about, answer_missing, result_lines
from pipeline.predict.columns import form_of, require_form
from pipeline.predict.inputs import inputs_of
from pipeline.predict.parts import Parts, PartsSummary, unified
from pipeline.reporting import Report


def predict(config: Predict, report: Report) -> None:
    """Run the model on all inputs and write the output.

    Raises PipelineError, with a one-line message, for everything that the user can fix.
    """
    config = with_absolute_locations(config)
    target = config.output
    output.require_free(target, config.replace)
    kind, fingerprint = model.identify(config.checkpoint)
    require_form(target, kind)
    storage.require_writable("output", target.rpartition("/")[0] or "/")
    files = inputs_of(config.input, target, config.format, tags=form_of(kind).words, words=config.words)
    parts, begun = Parts(folder=target + ".parts"), time.monotonic()
    with locked(parts.folder):
        parts.begin(asked := about(config, files, fingerprint), CHARACTERS_PER_PART)
        answer_missing(config, files, parts, report)
        whole = parts.counted()
        _write(config, len(files), parts, whole, target, asked)
    storage.delete_folder(parts.folder)
    for line in result_lines(whole, len(files), time.monotonic() - begun, target):
        report(line)


def _write(config: Predict, files: int, parts: Parts, whole: PartsSummary, target: str, asked: dict[str, Any]) -> None:
    """Join the parts into the output.

    Raises DataError if there are no rows, or if the output's format cannot hold the columns or the ids.
    """
    if not whole.rows:
        raise DataError(
            f"input ({config.input}) has {files} file{'s' * (files > 1)} without any row: give a file with rows"
        )
    schema = unified(whole.schemas)
    try:
        output.write(parts.tables(schema), parts.final(schema), target, parts.folder)
        output.write_manifest(target, asked, whole)
    except (pa.ArrowException, DataError) as error:
        raise DataError(
            f"output ({config.output}) cannot hold these rows: {storage.first_line(error)}; the answers "
            f"are kept as Parquet in {parts.folder}; an --output name that ends in .jsonl can hold them, but computes "
            "them again"
        ) from error
