"""Anyone's own data: CSV, TSV, JSON lines and Parquet as tables of TEXTS, and the task that their labels make."""

import csv
import io
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import storage
from pipeline.errors import ConfigError, DataError, shown, listed
from pipeline.tasks.content import COMPRESSED, content_of, decoded
from pipeline.tasks.tables import require_columns, tab_separated, texts_table
from pipeline.tasks.task import Kind, Task, finite, list_in, require_trainable, several

MOST_NUMERIC_CLASSES = 20
"""More distinct numbers than this are values and not classes (stars and grades are fewer)."""
MOST_ODD = 0.1
"""Share of labels that are no numbers above which the others are no values either."""
BETWEEN_LABELS = ";"
"""What divides the labels of a multilabel task in one text, as in a cell of CSV."""
MULTILABEL_METRICS = ("micro_f1", "macro_f1", "subset_accuracy")
TRUTHS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}
"""What stands in the columns of 0 and 1, in small letters."""
Values = Iterator[tuple[int, Sequence[Any]]]
"""(line from 1, or number of the row from 1 in Parquet; the wanted columns' values)."""
Reader = Callable[[str, bytes, Sequence[str]], Values]
"""Of a location, its content, and the columns that are wanted."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Names of the columns of a file; None for what it does without."""

    first: str
    second: str | None = None
    label: str | None = None
    """Of a multilabel task a column of lists, or of texts whose labels are divided by semicolons."""
    labels: tuple[str, ...] = ()
    """Of a multilabel task instead: columns of 0 and 1, or false and true, each a label that is named as the column is."""

    def __post_init__(self) -> None:
        if self.label is not None and self.labels:
            raise ConfigError(f"columns.label ({self.label}) and columns.labels ({listed(self.labels)}) are both given: leave one of them out")

    @property
    def names(self) -> list[str]:
        return [name for name in (self.first, self.second, self.label, *self.labels) if name is not None]


def read_file(location: str, columns: Columns, kind: Kind | None = None) -> pa.Table:
    """The rows of a file at a path or URL, schema TEXTS; a row's id is the line that it begins at (in Parquet its number), from 1.

    `kind` None: multilabel where one label is a list or its JSON. Then all are, and texts are divided by semicolons; an empty one is no label.

    The name tells the format: .csv, .tsv, .jsonl, .ndjson, .json or .parquet, each perhaps with .gz. In CSV quotes enclose; in TSV they are characters.
    Raises DataError, with file and line, for another name, a column that is not there, broken quoting or JSON, an empty text, and a label
    that is missing or NaN.
    """
    reader = reader_of(location)
    if columns.labels and kind not in (None, "multilabel"):
        raise ConfigError(f"columns.labels ({listed(columns.labels)}) make a multilabel task, and kind is {kind}: leave one of them out")
    found = [(line, dict(zip(columns.names, values))) for line, values in reader(location, content_of(location), columns.names)]
    lists = kind == "multilabel" or kind is None and any(list_in(values.get(columns.label)) is not None for _, values in found)
    return texts_table(location, (row_of(location, line, columns, values, lists) for line, values in found))


def reader_of(location: str) -> Reader:
    """What reads a file of this name. Raises DataError for one that tells no format."""
    name = location.lower().removesuffix(COMPRESSED)
    reader = next((read for suffix, read in READERS.items() if name.endswith(suffix)), None)
    if reader is None:
        raise DataError(f"{location}: the name of a file tells its format; end it in one of {', '.join(READERS)}")
    return reader


def rows_in(location: str, columns: Sequence[str]) -> Values:
    """The columns of a file's rows, as they stand there."""
    return reader_of(location)(location, content_of(location), columns)


def own_task(location: str, texts: pa.Table, kind: Kind | None = None, labels: tuple[str, ...] = ()) -> Task:
    """The task that a training file's labels make: labels sorted, as numbers where all are. `kind` None: recognised.

    `labels`: those of a multilabel task in their order, where columns name them; else those that its rows have. Raises DataError for labels
    of one kind only, and where a regression or multilabel task is asked for and a label is no number or list.
    """
    require_trainable(texts, location)
    kind = kind or recognised(location, texts)
    name = location.rsplit("/", 1)[-1].split(".")[0]
    if kind == "regression":
        task = Task(name=name, kind=kind, metrics=("pearson", "spearman", "mean_absolute_error"))
        require_labels(task, location, texts)
        return task
    if kind == "multilabel":
        return Task(name=name, kind=kind, labels=labels or sorted_labels(named_labels(location, texts)), metrics=MULTILABEL_METRICS)
    return Task(name=name, kind=kind, labels=sorted_labels(texts["label"].to_pylist()), metrics=("accuracy", "macro_f1"))


def recognised(location: str, texts: pa.Table) -> Kind:
    """Regression where all labels are numbers, and some have a fraction or more than MOST_NUMERIC_CLASSES differ; multilabel where all are lists; else classification.

    Raises DataError where nearly all would make a regression: a slip would make each value a class.
    """
    labels = texts["label"].to_pylist()
    if all(list_in(label) is not None for label in set(labels)):
        return "multilabel"
    found = {label: numbers([label]) for label in set(labels)}
    odd = [place for place, label in enumerate(labels) if found[label] is None]
    values = {number for one in found.values() if one is not None for number in one}
    if len(odd) > MOST_ODD * len(labels) or not (len(values) > MOST_NUMERIC_CLASSES or any(value != int(value) for value in values)):
        return "classification"
    if odd:
        line, label = texts["id"][odd[0]].as_py(), labels[odd[0]]
        raise DataError(f"{location}:{line}: label {shown(label)} is no number, and {len(labels) - len(odd):,} others are; mend it, or say --kind classification if each of them is a class")
    return "regression"


def named_labels(location: str, texts: pa.Table) -> list[str]:
    """All labels that the rows of a multilabel task have. Raises DataError at the first row whose label is no list."""
    return list(chain.from_iterable(checked(location, line, several, label) for line, label in zip(texts["id"].to_pylist(), texts["label"].to_pylist())))


def sorted_labels(labels: Sequence[str]) -> tuple[str, ...]:
    """The distinct labels: by value where all are numbers, else by letters."""
    labels = sorted(set(labels))
    values = numbers(labels)
    return tuple(labels if values is None else (label for _, label in sorted(zip(values, labels))))


def numbers(labels: Sequence[str] | set[str]) -> list[float] | None:
    """The values of labels that are all numbers; None where one is not."""
    try:
        return [finite(label) for label in labels]
    except ValueError:
        return None


def require_labels(task: Task, location: str, texts: pa.Table) -> None:
    """Raise DataError at the first label of a file that read_file gave and the task does not know."""
    for line, label in zip(texts["id"].to_pylist(), texts["label"].to_pylist()):
        checked(location, line, task.indicators if task.kind == "multilabel" else task.number, label)


def checked(location: str, line: str, understand: Callable[[str], Any], label: str) -> Any:
    """What a label means. Raises DataError, with file and line, where `understand` raises ValueError."""
    try:
        return understand(label)
    except ValueError as error:
        raise DataError(f"{location}:{line}: {error}") from None


def row_of(location: str, line: int, columns: Columns, by_name: dict[str, Any], lists: bool) -> tuple[str, str, str | None, str | None]:
    """The wanted columns' values as a row of TEXTS; `lists`: as one of a multilabel task. Raises DataError."""
    for name in (columns.first, columns.second):
        if name is None:
            continue
        text = by_name[name]
        if text is not None and not isinstance(text, str):
            raise DataError(f"{location}:{line}: column {name} is no text but {shown(text)}")
        if not text or not text.strip():
            raise DataError(f"{location}:{line}: column {name} is empty")
    return str(line), by_name[columns.first], by_name.get(columns.second or ""), row_label(location, line, columns, by_name, lists)


def row_label(location: str, line: int, columns: Columns, by_name: dict[str, Any], lists: bool) -> str | None:
    """A row's label as it stands in TEXTS; None where the file has none. Raises DataError."""
    if columns.labels:
        return labels_text(name for name in columns.labels if truth(location, line, name, by_name[name]))
    if columns.label is None:
        return None
    value = by_name[columns.label]
    if not lists:
        return label_text(location, line, columns.label, value)
    several = list_in(value)
    if several is None and isinstance(value, str):
        several = [label for label in value.split(BETWEEN_LABELS) if label.strip()]
    return labels_text(label_text(location, line, columns.label, label) for label in ([value] if several is None else several))


def labels_text(labels: Iterable[str]) -> str:
    """Labels as a JSON list of texts: sorted and each once, so that the same labels are the same text."""
    return json.dumps(sorted(set(labels)), ensure_ascii=False)


def truth(location: str, line: int, column: str, value: Any) -> bool:
    """Whether a row has the label of a column of 0 and 1. Raises DataError for all else."""
    found = TRUTHS.get(str(value).strip().lower())
    if found is None:
        raise DataError(f"{location}:{line}: column {column} is {shown('' if value is None else value)}; a column of a label holds 0 or 1, or false or true")
    return found


def label_text(location: str, line: int, column: str, value: Any) -> str:
    """A label as it is written: numbers and truth values as JSON writes them. Raises DataError for one that is missing or NaN."""
    if value is None or (isinstance(value, float) and math.isnan(value)) or (isinstance(value, str) and value.strip().lower() in ("", "nan")):
        raise DataError(f"{location}:{line}: column {column} has no label ({shown('' if value is None else value)}); leave the row out or give it one")
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, str):
        return value.strip()
    raise DataError(f"{location}:{line}: column {column} is no label but {shown(value)}; a label is one text, number or truth value, or of kind multilabel a list of them")


def read_csv(location: str, content: bytes, wanted: Sequence[str]) -> Values:
    """RFC 4180: commas, double quotes around what holds one, line ends within quotes."""
    csv.field_size_limit(sys.maxsize)  # its 131,072 characters are fewer than a long text has
    rows = csv.reader(io.StringIO(decoded(location, content), newline=""), strict=True)
    return picked(location, csv_rows(location, rows), wanted)


def csv_rows(location: str, rows: Any) -> Iterator[tuple[int, list[str]]]:
    """(line that the row begins at, its fields) of the rows of a csv.reader that are not blank."""
    while True:
        line = rows.line_num + 1
        try:
            fields = next(rows, None)
        except csv.Error as error:
            raise DataError(f"{location}:{line}: quotes are broken in the row that begins here ({error}); double the quotes within a text and enclose it in quotes") from None
        if fields is None:
            return
        if fields:
            yield line, fields


def read_tsv(location: str, content: bytes, wanted: Sequence[str]) -> Values:
    """Tabs between fields, quotes as characters."""
    return picked(location, tab_separated(location, content), wanted)


def picked(location: str, rows: Iterator[tuple[int, Sequence[str]]], wanted: Sequence[str]) -> Values:
    """The wanted columns of rows whose first one names them. Raises DataError where a row has more or fewer columns."""
    _, names = next(rows, (1, ()))
    require_columns(location, names, wanted)
    places = [names.index(name) for name in wanted]
    for line, fields in rows:
        if len(fields) != len(names):
            raise DataError(f"{location}:{line}: {len(fields)} columns where the first line names {len(names)}; enclose a text that holds a separator in quotes (CSV)")
        yield line, [fields[place] for place in places]


def read_json_lines(location: str, content: bytes, wanted: Sequence[str]) -> Values:
    """One object a line."""
    for line, text in enumerate(decoded(location, content).split("\n"), 1):
        if not text.strip():
            continue
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{location}:{line}: not JSON ({storage.first_line(error)}); one object a line is read") from None
        if not isinstance(value, dict):
            raise DataError(f"{location}:{line}: {shown(value)} is no object; one object a line is read")
        require_columns(f"{location}:{line}", list(value), wanted)
        yield line, [value[name] for name in wanted]


def read_parquet(location: str, content: bytes, wanted: Sequence[str]) -> Values:
    """The columns of a Parquet file."""
    try:
        file = pq.ParquetFile(io.BytesIO(content))
        require_columns(location, file.schema_arrow.names, wanted)
        table = file.read(columns=list(wanted))
        columns = [table[name].to_pylist() for name in wanted]
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{location} cannot be read as Parquet: {storage.first_line(error)}") from error
    yield from enumerate(zip(*columns), 1)


READERS: dict[str, Reader] = {
    ".csv": read_csv,
    ".tsv": read_tsv,
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".json": read_json_lines,
    ".parquet": read_parquet,
}
