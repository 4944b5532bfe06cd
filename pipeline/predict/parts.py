"""Store answers in parts of a limited number of rows, and read the parts with the column names of the output.

OUTPUT.parts/
    about.json              written first: input, model, settings and precision of the parts
    FFFFFF-PPPPPP.parquet   part P of file F: input columns as input/NAME, answer columns as answer/NAME;
                            metadata: numbers of empty and of truncated rows, and the precision
    FFFFFF.json             number of parts of file F, written when the file was read to its end
"""

import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.errors import ConfigError
from pipeline.files import storage
from pipeline.text.schema import CUT

ABOUT = "about.json"
INPUT, ANSWER = "input/", "answer/"
"""Prefixes of column names in a part."""
EMPTY, WIDE, PRECISION = b"empty", b"wide", b"precision"
"""Metadata keys. In a part, EMPTY holds the number of empty rows and PRECISION the precision. WIDE marks a wide column
(see `_is_wide`).
"""
EXACT = 2**53
"""float64 represents every whole number up to this one."""
LIMIT = "characters_per_part"
"""Key of about.json: maximum characters of a part. Records of earlier versions lack it."""
PREFIX = "predicted_"
"""Prefix that an answer column gets if an input column has the same name."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The folder of answered parts next to an output."""

    folder: str
    contents: str = "answers"
    """Word for the contents in messages."""

    def place(self, file: int, part: int) -> str:
        """Return the location of a part."""
        return storage.join(self.folder, f"{file:06d}-{part:06d}.parquet")

    def done(self) -> set[tuple[int, int]]:
        """Return (file, part) of the answered parts."""
        names = [name.removesuffix(".parquet") for name in storage.children(self.folder) if name.endswith(".parquet")]
        return {(int(name[:6]), int(name[7:])) for name in names}

    def counts(self) -> dict[int, int]:
        """Return {file: number of its parts} for the files whose number of parts is recorded."""
        found = ((int(name[:6]), storage.join(self.folder, name)) for name in self._records())
        records = {file: storage.read_object(location) or {} for file, location in found}
        # Damaged records are left out, so that the parts of their files are counted again.
        return {file: record["parts"] for file, record in records.items() if "parts" in record}

    def _records(self) -> list[str]:
        """Return the names of the files with numbers of parts."""
        return [name for name in storage.children(self.folder) if name.endswith(".json") and name != ABOUT]

    def begin(self, about: dict[str, Any], characters: int) -> None:
        """Record `about`: the input, model, settings and precision of the parts; and the maximum characters of a part.

        Records of an earlier job without parts are replaced. Raises ConfigError if the folder has parts with a record
        of other values, or with a damaged record.
        """
        path = storage.join(self.folder, ABOUT)
        if not (done := self.done()):
            for name in self._records():
                storage.delete_file(storage.join(self.folder, name))
        if not done or not storage.exists(path):
            storage.write_json(path, about | {LIMIT: characters})
            return
        before = storage.read_object(path)
        if before is None:
            raise ConfigError(
                f"{path} is damaged: delete {self.folder} to compute all {self.contents} again, or choose another "
                "--output"
            )
        for name in about:
            if before.get(name) != about[name]:
                raise ConfigError(
                    f"{self.folder} holds {self.contents} for {name} {before.get(name)}, not for {name} {about[name]}: "
                    f"give the same {name} again, delete the folder, or choose another --output"
                )

    def characters(self, before: int) -> int:
        """Return the maximum characters of a part, so that a job continues with the parts with which it began.

        `before`: the maximum of earlier versions, which did not record it.
        """
        about = storage.read_object(storage.join(self.folder, ABOUT)) or {}
        return int(about.get(LIMIT, before))

    def publish(self, file: int, part: int, rows: pa.Table, answers: pa.Table, empty: int, precision: str) -> None:
        """Write a part; its file appears only when it is complete. `empty`: number of rows with an empty text."""
        kept = {INPUT + name: _storable(rows[name]) for name in rows.column_names}
        columns = kept | {ANSWER + name: answers[name] for name in answers.column_names}
        schema = pa.schema(
            [
                pa.field(name, column.type, metadata={WIDE: b""} if _is_wide(column) else None)
                for name, column in columns.items()
            ]
        )
        buffer = io.BytesIO()
        metadata = {EMPTY: str(empty), CUT: (answers.schema.metadata or {}).get(CUT, b"0"), PRECISION: precision}
        pq.write_table(pa.table(columns, schema=schema).replace_schema_metadata(metadata), buffer, compression="zstd")
        storage.write_bytes(self.place(file, part), buffer.getvalue())

    def close(self, file: int, parts: int) -> None:
        """Record the number of a file's parts."""
        storage.write_json(storage.join(self.folder, f"{file:06d}.json"), {"parts": parts})

    def missing(self, files: int) -> bool:
        """Return whether any part is not answered yet; `files`: number of input files."""
        done, counts = self.done(), self.counts()
        return not all(
            file in counts and all((file, part) in done for part in range(counts[file])) for file in range(files)
        )

    def read(self, path: str) -> pa.Table:
        """Read one part."""
        return pq.read_table(io.BytesIO(storage.read_bytes(path)))

    def counted(self) -> "PartsSummary":
        """Return a summary of all parts, without reading their rows."""
        schemas, rows, empty, cut = [], 0, 0, 0
        precisions: Counter[str] = Counter()
        for file, part in sorted(self.done()):
            system, path = storage.filesystem(self.place(file, part))
            about = pq.read_metadata(system.open_input_file(path))
            schema = about.schema.to_arrow_schema()
            schemas.append(schema)
            rows, empty, cut = rows + about.num_rows, empty + int(about.metadata[EMPTY]), cut + int(about.metadata[CUT])
            precisions[about.metadata[PRECISION].decode()] += about.num_rows
        return PartsSummary(
            schemas=schemas, rows=rows, empty=empty, cut=cut, precisions=dict(sorted(precisions.items()))
        )

    def final(self, schema: pa.Schema) -> pa.Schema:
        """Return `schema`, a result of `unified`, with the column names of the output."""
        names = renamed(schema.names)
        return pa.schema([pa.field(names[field.name], field.type) for field in schema])

    def tables(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the parts in order, converted to `schema` (from `unified`), with the column names of the output."""
        final = self.final(schema)
        for file, part in sorted(self.done()):
            table = self.read(self.place(file, part))
            columns = [
                _as_type(table[name], schema.field(name).type)
                if name in table.column_names
                else pa.nulls(table.num_rows, schema.field(name).type)
                for name in schema.names
            ]
            yield pa.table(columns, schema=final)


@dataclass(frozen=True, kw_only=True)
class PartsSummary:
    """Totals over all parts."""

    schemas: list[pa.Schema]
    """Schema of each part, in order."""
    rows: int
    empty: int
    """Rows with an empty text, which have no answer."""
    cut: int
    """Rows whose text was truncated."""
    precisions: dict[str, int]
    """Number format -> number of rows answered in it."""


def _storable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in a form that Parquet can hold: a type with an empty struct becomes JSON texts."""
    return _as_type(column, pa.string()) if _has_empty_struct(column.type) else column


def _has_empty_struct(kind: pa.DataType) -> bool:
    """Return whether a type contains a struct without fields."""
    inner = [kind.field(index).type for index in range(kind.num_fields)]
    return pa.types.is_struct(kind) and not inner or any(map(_has_empty_struct, inner))


def _is_wide(column: pa.ChunkedArray) -> bool:
    """Return whether a column has whole numbers beyond EXACT, which floats may not represent."""
    if not pa.types.is_integer(column.type) or column.null_count == len(column):
        return False
    ends = pc.min_max(column).as_py()
    return max(abs(ends["min"]), abs(ends["max"])) > EXACT


def renamed(names: Sequence[str]) -> dict[str, str]:
    """Return {column of a part: column of the output}, without the prefixes INPUT and ANSWER.

    If another column already has the name of an answer column, the answer column gets PREFIX, repeated as needed.
    """
    taken = {name.removeprefix(INPUT) for name in names if name.startswith(INPUT)}
    new_names = {name: name.removeprefix(INPUT) for name in names if name.startswith(INPUT)}
    for name in [name for name in names if name.startswith(ANSWER)]:
        wanted = name.removeprefix(ANSWER)
        while wanted in taken:
            wanted = PREFIX + wanted
        taken.add(wanted)
        new_names[name] = wanted
    return new_names


def unified(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Return a schema with all columns of the parts, input columns first.

    A column becomes text if no other type can hold the values of all parts. It also becomes text if some parts have
    floats and others have whole numbers beyond EXACT, which floats cannot represent.
    """
    types: dict[str, list[pa.DataType]] = {}
    wide: set[str] = set()
    for schema in schemas:
        for field in schema:
            types.setdefault(field.name, []).append(field.type)
            if WIDE in (field.metadata or {}):
                wide.add(field.name)
    kinds = {name: widest(column_types) for name, column_types in types.items()}
    kinds |= {name: pa.string() for name in wide if pa.types.is_floating(kinds[name])}
    names = [name for name in types if name.startswith(INPUT)] + [name for name in types if name.startswith(ANSWER)]
    return pa.schema([pa.field(name, kinds[name]) for name in names])


def widest(types: Sequence[pa.DataType]) -> pa.DataType:
    """Return a type that holds the values of all these types; text if no other type does."""
    try:
        fields = [pa.schema([pa.field("column", column_type)]) for column_type in dict.fromkeys(types)]
        common = pa.unify_schemas(fields, promote_options="permissive").field("column").type
    except pa.ArrowException:
        return pa.string()
    return pa.string() if pa.types.is_null(common) else common


def _as_type(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Convert a column to the type `wanted`. If `wanted` is text, the values become JSON (see `as_text`)."""
    if column.type == wanted or not pa.types.is_string(wanted) or pa.types.is_null(column.type):
        return column.cast(wanted)
    return pa.chunked_array([pa.array([as_text(value) for value in column.to_pylist()], pa.string())])


def as_text(value: Any) -> str | None:
    """Return a value as JSON. Texts and None are returned unchanged."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
