"""Read queries, given as one text or as a file with one query per row."""

import re
from collections import Counter
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyarrow import fs

from pipeline.config.embed import Search
from pipeline.embed.texts import InputColumns, text_tables
from pipeline.errors import ConfigError, DataError
from pipeline.files import storage
from pipeline.files.locations import absolute
from pipeline.files.retries import with_retries
from pipeline.predict.inputs import list_inputs

FILE_NAME = re.compile(r"\S+\.(csv|tsv|jsonl|ndjson|json|parquet|txt)(\.\w+)?")
"""A word that looks like a file name; such a word is never used as the text of a query."""
ROWS_AT_ONCE = 4_096


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query with its id; a query that was given as text has the id "1"."""

    id: str
    text: str


def read_queries(config: Search) -> list[Query]:
    """Return the queries of a search.

    Raises ConfigError if the file does not exist. Raises DataError if the file has no queries, an empty query, or two
    queries with the same id.
    """
    given = config.queries
    if not is_file(given):
        return [Query(id="1", text=given)]
    columns, queries = InputColumns(text=config.text, id=config.id, title=None), []
    for file in list_inputs(absolute(given), "auto", tags=False, setting="queries", remedy=""):
        for table in text_tables(file, "", columns, ROWS_AT_ONCE):
            queries += _rows(table, given)
    if not queries:
        raise DataError(f"queries ({given}) has no rows: give a file with queries")
    if twice := [name for name, count in Counter(query.id for query in queries).items() if count > 1]:
        raise DataError(f"queries ({given}) has two queries with the id {twice[0]}: give each query an id of its own")
    return queries


def _rows(table: pa.Table, given: str) -> list[Query]:
    """Return the queries of a table. Raises DataError for an empty query."""
    rows = [Query(id=row["id"], text=row["text"] or "") for row in table.to_pylist()]
    if empty := next((row for row in rows if not row.text.strip()), None):
        raise DataError(f"queries ({given}): the query with the id {empty.id} is empty; leave it out")
    return rows


def is_file(given: str) -> bool:
    """Return whether `queries` names a file. Raises ConfigError for a folder, and for the name of a missing file."""
    looks_like_file, kind = FILE_NAME.fullmatch(given) is not None, fs.FileType.NotFound
    if "\n" not in given and (looks_like_file or len(given) < 1_000):
        try:
            system, path = storage.filesystem(absolute(given))
            kind = with_retries(partial(system.get_file_info, path)).type
        except (ConfigError, OSError, RuntimeError):  # RuntimeError: ~NAME of an unknown user
            if looks_like_file:
                raise
    if kind == fs.FileType.Directory:
        raise ConfigError(
            f"queries ({given}) is a folder: give a file of queries, or add a space at the end to search for this text"
        )
    if looks_like_file and kind == fs.FileType.NotFound:
        raise ConfigError(f"queries ({given}) does not exist: give a file of queries, or the text of one query")
    return kind != fs.FileType.NotFound
