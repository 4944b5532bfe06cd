"""Read input files as streams of Arrow tables. A file holds a table, questions, sentences or lines of text."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import unquote

import pyarrow as pa

from pipeline.corpus.prepared import current_shards, is_prepared
from pipeline.errors import ConfigError, DataError
from pipeline.files import opening, storage
from pipeline.files.listing import files_at
from pipeline.files.locations import is_url
from pipeline.predict.output import manifest_of
from pipeline.tables import parquet
from pipeline.tables.bad_rows import BadRows
from pipeline.tables.columns import require_once
from pipeline.tables.content import SURROGATE, bare_name, text_lines
from pipeline.tables.readers import BLANK, open_table
from pipeline.tables.recognise import SAMPLE_BYTES, TABLES, TAGGED, infer_file_kind
from pipeline.tables.squad import read_questions
from pipeline.tables.word_columns import read_words

GIVE_FORMAT = ", or give --format table, squad, words or text"
"""End of the message for a file of unknown form, in commands that have the setting `format`."""
Form = Literal["table", "squad", "words", "text"]
"""Form of a file: a table, SQuAD's JSON, CoNLL's columns, or one text per line."""


@dataclass(frozen=True, kw_only=True)
class RowFile:
    """An input file and its form; `bytes` is the size of the file, -1 if unknown."""

    location: str
    form: Form
    bytes: int
    stamp: str
    """Modification time in nanoseconds, or a web server's tag or date. The stamp changes when the file changes."""
    words: int | None = None
    """For the form words, the number of the column of words; None: recognised."""


def digest_of(files: Sequence[RowFile]) -> str:
    """Return a digest that changes when a file changes. The column of words is a setting, not part of the files."""
    facts = [{name: value for name, value in vars(file).items() if name != "words"} for file in files]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]


def list_inputs(
    given: str,
    format: str,
    tags: bool,
    setting: str = "input",
    remedy: str = GIVE_FORMAT,
    without: Sequence[str] = (),
) -> list[RowFile]:
    """Return the files at a location, which is a file, folder, glob or URL, sorted by name.

    For the folder of a prepared corpus, return the shards of its training documents. Shards of a previous preparation
    are left out. `format`: a Form or "auto".
    `tags`: whether the model tags words. `setting`: name of the setting in messages. `remedy`: end of the
    message for a file of unknown form. `without`: the job's output, files and folders that may lie among the inputs and
    are left out. Raises ConfigError if no file is left, DataError for a file of unknown form.
    """
    location = storage.join(given, "train") if is_prepared(given) else given
    try:
        stored = files_at(location, f"{setting} {given}", "a path, a pattern or a URL")
    except ConfigError:
        raise ConfigError(
            f"{setting} ({given}) does not exist, is an empty folder, or matches no file; give a file, a folder, or a "
            "pattern in quotes"
        ) from None
    ours = tuple(f"{_unquoted(place)}/" for place in without)
    stored = [file for file in stored if not f"{_unquoted(file.location)}/".startswith(ours)]
    if not stored:
        raise ConfigError(f"{setting} ({given}) has no file except the output: give another folder")
    current = set(current_shards(file.location for file in stored))
    if not current:
        corpus = stored[0].location.rsplit("/", 2)[0]
        raise ConfigError(
            f"{setting} ({given}) holds only shards of a previous preparation of {corpus}: give the folder of the "
            "corpus"
        )
    return [
        RowFile(
            location=file.location,
            form=form_of(file.location, format, tags, setting, remedy),
            bytes=file.bytes,
            stamp=file.stamp,
        )
        for file in stored
        if file.location in current
    ]


def inputs_of(given: str, target: str, format: str, *, tags: bool, words: int | None = None) -> list[RowFile]:
    """Return the input files. The output, its manifest and its parts may be in the same folder: they are left out.

    `words` is the number of the column of words in CoNLL's files, or None.
    """
    ours = (target, manifest_of(target), f"{target}.parts")
    files = [replace(file, words=words) for file in list_inputs(given, format, tags, without=ours)]
    if words is not None and (named := next((file for file in files if file.form != "words"), None)):
        raise ConfigError(
            f"words ({words}) is the number of a column in CoNLL's files, but {named.location} has the form "
            f"{named.form}: name the column of the words with --text, or give --format words"
        )
    return files


def _unquoted(location: str) -> str:
    """Return a location without the quoting of URLs, since listed URLs are quoted and given ones may not be."""
    return unquote(location) if is_url(location) else location


def form_of(location: str, format: str, tags: bool, setting: str = "input", remedy: str = GIVE_FORMAT) -> Form:
    """Return the form of a file: `format`, or the form that the file's name shows if `format` is "auto".

    If the name does not show the form, the content decides; an empty .json file is a table without rows. `tags`:
    whether the model tags words, so that a .txt file may have CoNLL's columns. Raises DataError if neither name nor
    content shows the form.
    """
    if format in ("table", "squad", "words", "text"):
        return format
    if bare_name(location).endswith(".txt") and not tags:
        return "text"
    kind = infer_file_kind(location, lambda: _sample(location))
    if kind is not None:
        return "words" if kind == "conll" else kind
    if bare_name(location).endswith(".txt"):
        return "text"
    if bare_name(location).endswith(".json"):
        if not _sample(location).strip(BLANK.encode()):
            return "table"
        raise DataError(
            f"{setting} {location} holds neither SQuAD's questions nor objects, one per line or in a list: write one "
            f"object per line{remedy}"
        )
    raise DataError(
        f"{setting} {location}: its form is not clear from its name; end the name in "
        f"{', '.join((*TABLES, '.json', *TAGGED, '.txt'))}{remedy}"
    )


def _sample(location: str) -> bytes:
    """Return the beginning of a file: at least SAMPLE_BYTES, or all of a smaller file.

    A .json file is returned whole, because its form may show only at its end.
    """
    stored_blocks, held = opening.blocks(location), bytearray()
    try:
        for block in stored_blocks:
            held += block
            if len(held) > SAMPLE_BYTES and not bare_name(location).endswith(".json"):
                break
    except (opening.CutOff, opening.Damaged, opening.ExpandsTooFar):
        pass  # enough to recognise the form; the damage is reported when the whole file is read
    return bytes(held)


def parts_of(file: RowFile, rows: int) -> Iterator[pa.Table]:
    """Yield the file's rows in tables of `rows` rows; the last one may be shorter.

    Raises DataError with file and line if a line cannot be read.
    """
    if file.form == "table" and bare_name(file.location).endswith(".parquet"):
        yield from rechunked(_parquet_tables(file.location), rows)
        return
    held: list[dict[str, Any]] = []
    for row in FORMS[file.form](file):
        held.append(row)
        if len(held) == rows:
            yield _as_table(held)
            held = []
    if held:
        yield _as_table(held)


def cut_by_characters(tables: Iterator[pa.Table], most: int) -> Iterator[pa.Table]:
    """Cut tables between rows, so that each piece has at most `most` characters in all columns, or a single row."""
    for table in tables:
        # Python lacks some of Arrow's values, such as times after the year 9999, so only columns of texts are converted
        texts = table.select([index for index, field in enumerate(table.schema) if _may_hold_text(field.type)])
        start = characters = 0
        for row, size in enumerate(map(_characters, texts.to_pylist())):
            if row > start and characters + size > most:
                yield table.slice(start, row - start)
                start, characters = row, 0
            characters += size
        yield table.slice(start)


def _may_hold_text(kind: pa.DataType) -> bool:
    """Return whether values of a type may be texts or hold texts."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_nested(kind)


def _characters(value: Any) -> int:
    """Return the number of characters in a value: a text, or the texts in a list or an object."""
    if isinstance(value, str):
        return len(value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(map(_characters, inner))


def rows_of(file: RowFile) -> int:
    """Return the number of rows of a file. A file that is not Parquet is read to its end.

    Raises DataError as `parts_of` does.
    """
    if file.form == "table" and bare_name(file.location).endswith(".parquet"):
        return parquet.count_rows(file.location)
    return sum(1 for _ in FORMS[file.form](file))


def column_names(file: RowFile) -> list[str]:
    """Return the columns of a file. A JSON file is read to its end, because each of its rows may have other columns.

    Raises DataError as `parts_of` does.
    """
    return names_until(file, None)


def names_until(file: RowFile, wanted: Sequence[str] | None) -> list[str]:
    """Return the columns of a file, or of a JSON file's first rows that together have all columns of `wanted`.

    `wanted` None: read a JSON file to its end. Raises DataError as `parts_of` does.
    """
    if file.form != "table" or bare_name(file.location).endswith((".csv", ".tsv", ".parquet")):
        first = next(parts_of(file, 1), None)
        return [] if first is None else first.column_names
    names: dict[str, None] = {}
    for row in _read_table(file):
        names |= dict.fromkeys(row)
        if wanted is not None and names.keys() >= set(wanted):
            break
    return list(names)


def rechunked(tables: Iterator[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Regroup tables of the same schema into tables of `rows` rows; the last one may be shorter."""
    held: list[pa.Table] = []
    for table in tables:
        held.append(table)
        if sum(batch.num_rows for batch in held) >= rows:
            whole = pa.concat_tables(held)
            full = whole.num_rows // rows * rows
            yield from (whole.slice(start, rows) for start in range(0, full, rows))
            held = [whole.slice(full)] if full < whole.num_rows else []
    if held and (whole := pa.concat_tables(held)).num_rows:
        yield whole


def _parquet_tables(location: str) -> Iterator[pa.Table]:
    """Return the rows of a Parquet file in small tables. Raises DataError for a duplicated column name."""
    require_once(location, parquet.column_names(location))
    return parquet.tables_in(location)


def _read_table(file: RowFile) -> Iterator[dict[str, Any]]:
    """Yield the rows of CSV, TSV, JSON lines or a JSON list, each as {column: value}.

    A name that shows no format is read as JSON. Raises DataError for a duplicated column name and for a bad row.
    """
    table = open_table(file.location, ".jsonl")
    require_once(file.location, table.names or ())
    for _, row in BadRows().usable(table.rows):
        yield dict(zip(table.names, row)) if table.names else _without_surrogates(row)


def _without_surrogates(value: Any) -> Any:
    """Replace each half of a surrogate pair in a JSON value by U+FFFD."""
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_without_surrogates(inner) for inner in value]
    return SURROGATE.sub("\ufffd", value) if isinstance(value, str) else value


def _read_squad(file: RowFile) -> Iterator[dict[str, Any]]:
    """Yield questions with their ids and contexts."""
    for question in read_questions(file.location):
        yield {"id": question.id, "question": question.question, "context": question.context}


def _read_sentences(file: RowFile) -> Iterator[dict[str, Any]]:
    """Yield sentences as lists of words."""
    for words in read_words(file.location, words=file.words):
        yield {"words": list(words)}


def _read_text(file: RowFile) -> Iterator[dict[str, Any]]:
    """Yield one text per line."""
    for line in text_lines(file.location):
        yield {"text": line.rstrip("\r\n")}


FORMS: dict[Form, Callable[[RowFile], Iterator[dict[str, Any]]]] = {
    "table": _read_table,
    "squad": _read_squad,
    "words": _read_sentences,
    "text": _read_text,
}


def _as_table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Convert rows to a table. The rows may have different columns; `as_column` converts each column."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: as_column([row.get(name) for row in rows]) for name in names})


def as_column(values: Sequence[Any]) -> pa.Array:
    """Convert values to an array of one type.

    If the values have no common type, convert them to JSON texts. Strings and None then stay unchanged.
    """
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return pa.array(
            [
                value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                for value in values
            ],
            pa.string(),
        )
