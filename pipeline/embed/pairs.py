"""Read pairs of a query and a matching text as a stream, and remember which texts match which query."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import pyarrow as pa

from pipeline.config.mine import Mine
from pipeline.errors import DataError, shown
from pipeline.predict.inputs import RowFile, column_names, list_inputs, parts_of
from pipeline.tables.columns import MissingColumn
from pipeline.tables.roles import MATCHING, OWN

ROWS_AT_ONCE = 1_024
"""Rows whose queries are searched together, which limits memory."""


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Files of pairs, and their columns of the query and of the matching text."""

    files: tuple[RowFile, ...]
    query: str
    match: str

    def blocks(self) -> Iterator[tuple[list[str], list[str]]]:
        """Yield queries and matching texts of at most ROWS_AT_ONCE consecutive rows.

        Raises DataError for a file that cannot be read, a missing column, and a value that is not a text or is blank.
        """
        for file in self.files:
            first = 1
            for table in parts_of(file, ROWS_AT_ONCE):
                queries, matches = (self._texts(table, file, column, first) for column in (self.query, self.match))
                yield queries, matches
                first += table.num_rows

    def _texts(self, table: pa.Table, file: RowFile, column: str, first: int) -> list[str]:
        """Return the texts of a column; `first` is the number of the table's first row, from 1."""
        if column not in table.column_names:
            raise MissingColumn(file.location, column, table.column_names)
        texts = table[column].to_pylist()
        for row, text in enumerate(texts, first):
            if not (isinstance(text, str) and text.strip()):
                raise DataError(
                    f"{file.location}, row {row}: column {column} is {shown(text)}; it must be a text, or the row must "
                    "be left out"
                )
        return texts


def open_pairs(config: Mine) -> Pairs:
    """Return the files and columns of config.pairs. The output may lie in the same folder: it is left out.

    If neither text nor pair is named, the columns are the first of MATCHING that the first file has. Raises ConfigError
    if there is no file, and DataError for a file of unknown form, without rows or without the columns.
    """
    files = tuple(list_inputs(config.pairs, "auto", tags=False, setting="pairs", remedy="", without=[config.output]))
    if not (names := column_names(files[0])):
        raise DataError(f"{files[0].location} has no rows: give a file of pairs")
    usual = next((layout for layout in MATCHING if set(layout) <= set(names)), OWN[:2])
    default = usual if config.text is None and config.pair is None else OWN[:2]
    pairs = Pairs(files=files, query=config.text or default[0], match=config.pair or default[1])
    for setting, column in (("text", pairs.query), ("pair", pairs.match)):
        if column not in names:
            raise MissingColumn(files[0].location, column, names, f"name the right one with --{setting}")
    return pairs


@dataclass(frozen=True, kw_only=True)
class Matches:
    """Digests of all pairs, sorted by query: 16 bytes per pair."""

    queries: np.ndarray
    """uint64 (pairs,), increasing."""
    texts: np.ndarray
    """uint64 (pairs,)."""

    @classmethod
    def of(cls, blocks: Iterator[tuple[Sequence[str], Sequence[str]]]) -> "Matches":
        """Read all pairs."""
        queries, texts = array("Q"), array("Q")
        for of_block, matching in blocks:
            queries.extend(map(digest, of_block))
            texts.extend(map(digest, matching))
        as_queries, as_texts = (np.frombuffer(digests, np.uint64) for digests in (queries, texts))
        order = np.argsort(as_queries, kind="stable")
        return cls(queries=as_queries[order], texts=as_texts[order])

    def __len__(self) -> int:
        return len(self.queries)

    def of_query(self, query: str) -> set[int]:
        """Return the digests of all texts that match a query, and of the query itself."""
        wanted = digest(query)
        low, high = (np.searchsorted(self.queries, np.uint64(wanted), side) for side in ("left", "right"))
        return {wanted, *self.texts[low:high].tolist()}


def digest(text: str) -> int:
    """Return a number of 64 bits for a text. Texts that differ only in case and white space have the same number."""
    return int.from_bytes(blake2b(" ".join(text.lower().split()).encode(), digest_size=8).digest(), "big")
