"""Write answers in the format that the file ending names. The file is first written under a temporary name."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from pipeline.errors import ConfigError, DataError, shown
from pipeline.files import storage
from pipeline.files.local_files import scratch_folder
from pipeline.files.locations import is_url
from pipeline.predict.parts import PREFIX, PartsSummary, as_text

JOINED = "joined"
"""Temporary name of an incomplete output, in the folder of its parts, or for a URL in a local scratch folder."""


def require_free(output: str, replace: bool) -> None:
    """Raise ConfigError if `output` exists and may not be replaced."""
    if storage.exists(output) and not replace:
        raise ConfigError(f"output {output} exists already: give --replace, or choose another --output")


def write(tables: Iterator[pa.Table], schema: pa.Schema, output: str, folder: str) -> None:
    """Write tables into one output file, which appears only when it is complete. `folder` holds the parts."""
    form = next(write for ending, write in FORMS.items() if output.endswith(ending))
    # Closing a stream into an object store completes the object, also after an error: only a whole file is sent there.
    with scratch_folder("output") if is_url(output) else nullcontext(folder) as place:
        temporary = storage.join(str(place), JOINED)
        with open(temporary, "wb") as stream:
            form(tables, schema, stream)
            stream.flush()
            os.fsync(stream.fileno())
        if is_url(output):
            storage.copy_file(temporary, output)
        else:
            os.replace(temporary, output)


def write_stream(tables: Iterator[pa.Table], schema: pa.Schema, output: str) -> None:
    """Write tables that need no folder of parts into one output file, which appears only when it is complete."""
    beside = None if is_url(output) else Path(output).parent
    with scratch_folder("output", beside) as folder:
        write(tables, schema, output, str(folder))


def manifest_of(output: str) -> str:
    """Return the location of an output's manifest."""
    return f"{output}.{storage.MANIFEST}"


def write_manifest(output: str, asked: Mapping[str, Any], counted: PartsSummary) -> None:
    """Write the manifest: inputs, model and settings (`asked`), and counts of rows.

    Counted are all rows, empty rows, truncated rows, and the rows per number format.
    """
    figures = {"rows": counted.rows, "empty": counted.empty, "cut": counted.cut}
    storage.write_json(manifest_of(output), {**asked, "precision": counted.precisions, **figures})


def _write_parquet(tables: Iterator[pa.Table], schema: pa.Schema, stream: BinaryIO) -> None:
    """Write Parquet, one row group per part."""
    with pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table)


def _write_csv(tables: Iterator[pa.Table], schema: pa.Schema, stream: BinaryIO) -> None:
    """Write CSV; values of types that CSV lacks, such as lists and structs, are written as JSON."""
    as_json = {field.name for field in schema if not any(has_form(field.type) for has_form in CSV_FORMS)}
    flat = pa.schema([pa.field(field.name, pa.string() if field.name in as_json else field.type) for field in schema])
    with pc.CSVWriter(stream, flat) as writer:
        for table in tables:
            columns = [
                pa.array(map(as_text, table[name].to_pylist()), pa.string()) if name in as_json else table[name]
                for name in flat.names
            ]
            writer.write_table(pa.table(columns, schema=flat))


def _write_json_lines(tables: Iterator[pa.Table], schema: pa.Schema, stream: BinaryIO) -> None:
    """Write one object per line."""
    for table in tables:
        for row in table.to_pylist():
            stream.write((json.dumps(row, ensure_ascii=False, default=str) + "\n").encode())


def _write_answers(tables: Iterator[pa.Table], schema: pa.Schema, stream: BinaryIO) -> None:
    """Write {id: answer}, the format that SQuAD's official scripts read.

    "No answer" is an empty text. Without a column `id`, ids are row numbers from 0. Raises DataError for a row without
    an id, and for an id that occurs twice.
    """
    texts: dict[str, Any] = {}
    answer = [name for name in schema.names if re.fullmatch(f"({PREFIX})*answer", name)][-1]  # inputs come first
    for table in tables:
        ids = table["id"].to_pylist() if "id" in schema.names else range(len(texts), len(texts) + table.num_rows)
        for id, text in zip(ids, table[answer].to_pylist()):
            if id is None or str(id) in texts:
                raise DataError("a row has no id" if id is None else f"several rows have the id {shown(id)}")
            texts[str(id)] = text or ""
    stream.write((json.dumps(texts, ensure_ascii=False, indent=0) + "\n").encode())


CSV_FORMS = (
    pa.types.is_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_temporal,
    pa.types.is_null,
)
"""Predicates of the types that CSV can hold; `as_text` converts values of other types."""
FORMS: dict[str, Callable[[Iterator[pa.Table], pa.Schema, BinaryIO], None]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".jsonl": _write_json_lines,
    ".ndjson": _write_json_lines,
    ".json": _write_answers,
}
