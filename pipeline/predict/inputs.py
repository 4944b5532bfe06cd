"""Files of what is to be answered, read as streams of tables: a table's own columns, questions, sentences or lines of text."""

import csv
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import storage
from pipeline.corpus import inputs as corpus_inputs
from pipeline.corpus import opening
from pipeline.corpus.prepare import is_prepared
from pipeline.corpus.sources import Source
from pipeline.errors import ConfigError, DataError, shown
from pipeline.tasks.files import csv_rows
from pipeline.tasks.recognise import TABLES, TAGGED, has_articles, has_tagged_words
from pipeline.tasks.squad import read_questions
from pipeline.tasks.tables import require_once
from pipeline.tasks.tagging import read_words

Form = Literal["table", "squad", "words", "text"]
SURROGATE = re.compile("[\ud800-\udfff]")  # JSON can write half a pair, which no table takes


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """One file and what it is."""

    location: str
    form: Form
    bytes: int
    stamp: str
    """Time of its last change."""


def list_inputs(given: str, format: str, tags: bool) -> list[InputFile]:
    """The files of a file, folder, glob or URL, sorted by name; of a prepared corpus its training documents. `tags`: whether words are what is answered.

    Raises ConfigError where there are none, DataError for a file of no known form.
    """
    location = storage.absolute(given)
    if is_prepared(location):
        location = storage.join(location, "train")
    try:
        found = corpus_inputs.list_files(Source(spec=given, location=location))
    except ConfigError:
        raise ConfigError(f"input ({given}): there is no such file, nothing in this folder, or nothing that matches; give a file, a folder or a pattern in quotes") from None
    except DataError as error:
        raise DataError(str(error).replace("corpus ", "input ", 1)) from error
    return [InputFile(location=one.location, form=form_of(one.location, format, tags), bytes=one.bytes, stamp=one.stamp) for one in found]


def form_of(location: str, format: str, tags: bool) -> Form:
    """What a file is: as the setting says, else by its name, and where that leaves it open by its first bytes."""
    if format in ("table", "squad", "words", "text"):
        return format  # type: ignore[return-value]
    name = bare(location)
    if name.endswith(TABLES):
        return "table"
    if name.endswith(TAGGED):
        return "words"
    if name.endswith(".json"):
        return "squad" if has_articles(b"".join(opening.blocks(location))) else "table"
    if name.endswith(".txt"):
        return "words" if tags and has_tagged_words(next(opening.blocks(location), b"")) else "text"
    raise DataError(f"input {location}: its name tells no form; end it in {', '.join((*TABLES, '.json', *TAGGED, '.txt'))}, or give --format table, squad, words or text")


def bare(location: str) -> str:
    """The name in small letters, without a compression's ending."""
    name = location.split("?")[0].lower()
    return name.removesuffix(opening.compression(name) or "")


def parts_of(file: InputFile, rows: int) -> Iterator[pa.Table]:
    """The file's rows in tables of so many, the last one of what is left. Raises DataError, with file and line, for what cannot be read."""
    if file.form == "table" and bare(file.location).endswith(".parquet"):
        yield from recut(read_parquet(file.location), rows)
        return
    read: Callable[[str], Iterator[dict[str, Any]]] = FORMS[file.form]
    held: list[dict[str, Any]] = []
    for row in read(file.location):
        held.append(row)
        if len(held) == rows:
            yield as_table(held)
            held = []
    if held:
        yield as_table(held)


def recut(tables: Iterator[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Tables of one schema as others of so many rows."""
    held: list[pa.Table] = []
    for table in tables:
        held.append(table)
        if sum(one.num_rows for one in held) >= rows:
            whole = pa.concat_tables(held)
            full = whole.num_rows // rows * rows
            yield from (whole.slice(start, rows) for start in range(0, full, rows))
            held = [whole.slice(full)] if full < whole.num_rows else []
    if held and (whole := pa.concat_tables(held)).num_rows:
        yield whole


def read_parquet(location: str) -> Iterator[pa.Table]:
    """The row groups' rows, in order."""
    system, path = storage.filesystem(location)
    try:
        with pq.ParquetFile(system.open_input_file(path)) as file:
            require_once(location, file.schema_arrow.names)
            for batch in file.iter_batches(batch_size=8_192):
                yield pa.Table.from_batches([batch])
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{location} cannot be read as Parquet: {storage.first_line(error)}") from error


def text_lines(location: str) -> Iterator[str]:
    """The lines of a UTF-8 file with their ends, which may be in quoted fields. Raises DataError with the line of the first byte that is none."""
    rest, number = b"", 0
    try:
        for block in opening.blocks(location):
            *whole, rest = (rest + block).split(b"\n")
            for line in whole:
                number += 1
                yield utf8(location, number, line + b"\n")
    except (opening.CutOff, opening.Damaged, opening.ExpandsTooFar) as error:
        raise DataError(f"{location} cannot be decompressed after line {number}: give a plain or gzip file that can") from error
    if rest:
        yield utf8(location, number + 1, rest)


def utf8(location: str, number: int, line: bytes) -> str:
    """A line as text, without a byte order mark. Raises DataError."""
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{location}:{number}: byte 0x{line[error.start]:02x} is not UTF-8; save the file as UTF-8") from None


def read_table(location: str) -> Iterator[dict[str, Any]]:
    """The rows of CSV, TSV or JSON lines by their columns."""
    name = bare(location)
    if name.endswith(".csv"):
        csv.field_size_limit(sys.maxsize)
        yield from named(location, csv_rows(location, csv.reader(text_lines(location), strict=True)))
    elif name.endswith(".tsv"):
        lines = ((number, line.rstrip("\r\n")) for number, line in enumerate(text_lines(location), 1))
        yield from named(location, ((number, line.split("\t")) for number, line in lines if line))
    else:
        for number, line in enumerate(text_lines(location), 1):
            if line.strip():
                yield json_object(location, number, line)


def named(location: str, rows: Iterator[tuple[int, Sequence[str]]]) -> Iterator[dict[str, Any]]:
    """Rows whose first one names the columns. Raises DataError for a name that stands there twice, and a row with more or fewer columns."""
    _, names = next(rows, (1, ()))
    require_once(location, names)
    for line, fields in rows:
        if len(fields) != len(names):
            raise DataError(f"{location}:{line}: {len(fields)} columns where the first line names {len(names)}; enclose a text that holds a separator in quotes (CSV)")
        yield dict(zip(names, fields))


def json_object(location: str, number: int, line: str) -> dict[str, Any]:
    """A line's object. Raises DataError."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{location}:{number}: not JSON ({storage.first_line(error)}); one object a line is read") from None
    if not isinstance(value, dict):
        raise DataError(f"{location}:{number}: {shown(value)} is no object; one object a line is read")
    return whole(value) if "\\ud" in line.lower() else value


def whole(value: Any) -> Any:
    """A value of JSON with U+FFFD for each half of a surrogate pair in it."""
    if isinstance(value, dict):
        return {whole(name): whole(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [whole(inner) for inner in value]
    return SURROGATE.sub("\ufffd", value) if isinstance(value, str) else value


def read_squad(location: str) -> Iterator[dict[str, Any]]:
    """Questions with their ids and contexts."""
    for one in read_questions(location):
        yield {"id": one.id, "question": one.question, "context": one.context}


def read_sentences(location: str) -> Iterator[dict[str, Any]]:
    """Sentences as lists of words."""
    for words in read_words(location):
        yield {"words": list(words)}


def read_text(location: str) -> Iterator[dict[str, Any]]:
    """A text a line."""
    for line in text_lines(location):
        yield {"text": line.rstrip("\r\n")}


FORMS: dict[Form, Callable[[str], Iterator[dict[str, Any]]]] = {"table": read_table, "squad": read_squad, "words": read_sentences, "text": read_text}


def as_table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Rows of the same or different columns as a table; values of a column that no one type holds are written as JSON."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: as_column([row.get(name) for row in rows]) for name in names})


def as_column(values: Sequence[Any]) -> pa.Array:
    """The values as one type, or each as JSON where there is none."""
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return pa.array([value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values], pa.string())
