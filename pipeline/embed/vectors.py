"""Read a folder of vectors: its manifest, its vectors in blocks, and single rows of its parts."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.config.embed import VectorFormat
from pipeline.embed.description import Description
from pipeline.embed.folder import KIND, PARTS
from pipeline.embed.formats import SCALE, VECTOR, to_vectors
from pipeline.errors import DataError
from pipeline.files import storage
from pipeline.files.locations import is_url
from pipeline.predict.parts import ABOUT


@dataclass(frozen=True, kw_only=True)
class VectorBlock:
    """Vectors of consecutive rows."""

    first: int
    """Number of the first row, over all parts."""
    vectors: np.ndarray
    """float32 (rows, D)."""
    chunks: np.ndarray
    """Number of each row's chunk in its text, int32 (rows,). The chunks of a text are consecutive rows of one block."""


@dataclass(frozen=True, kw_only=True)
class Vectors:
    """A folder of vectors. Rows are numbered from 0 over all parts, in the order of the input."""

    folder: str
    model: Description
    format: VectorFormat
    fingerprint: str
    names: tuple[str, ...]
    rows: tuple[int, ...]
    """Number of rows of each part."""
    texts: int
    """Texts that have a vector."""

    @property
    def count(self) -> int:
        return sum(self.rows)

    @cached_property
    def starts(self) -> np.ndarray:
        """Number of the first row of each part, int64."""
        return np.concatenate([[0], np.cumsum(self.rows)[:-1]]).astype(np.int64)

    def blocks(self) -> Iterator[VectorBlock]:
        """Yield all vectors, one part at a time. Raises DataError for a missing or damaged part."""
        for number, rows in enumerate(self.rows):
            if rows:
                table = self.read(number, [*self._stored, "chunk"])
                chunks = table["chunk"].to_numpy()
                yield VectorBlock(first=int(self.starts[number]), vectors=to_vectors(table, self.format), chunks=chunks)

    def rows_of(self, wanted: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Return row number -> columns of the row without the vector."""
        found: dict[int, dict[str, Any]] = {}
        for part, numbers in self._by_part(wanted):
            table = self.read(part, self._shown(part)).take(pa.array(numbers - self.starts[part]))
            found |= zip(numbers.tolist(), table.to_pylist())
        return found

    def vectors_of(self, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the vectors of increasing row numbers (N,), float32 (N, D), and their chunks, int32 (N,)."""
        vectors, chunks = [np.zeros((0, self.model.dimension), np.float32)], [np.zeros(0, np.int32)]
        for part, numbers in self._by_part(wanted):
            table = self.read(part, [*self._stored, "chunk"]).take(pa.array(numbers - self.starts[part]))
            vectors.append(to_vectors(table, self.format))
            chunks.append(table["chunk"].to_numpy())
        return np.concatenate(vectors), np.concatenate(chunks)

    def _by_part(self, wanted: Sequence[int] | np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the number of each part that has rows of `wanted`, and these rows' numbers, increasing, each once."""
        unique = np.unique(np.asarray(wanted, np.int64))
        parts = np.searchsorted(self.starts, unique, side="right") - 1
        for part in np.unique(parts).tolist():
            yield part, unique[parts == part]

    @property
    def keeps_texts(self) -> bool:
        """Whether the texts are stored beside the vectors."""
        return "text" in self._shown(next(number for number, rows in enumerate(self.rows) if rows))

    def require_texts(self) -> None:
        """Raise DataError if the texts are not stored beside the vectors."""
        if not self.keeps_texts:
            raise DataError(f"vectors ({self.folder}) has no texts: embed them again without --no-keep-text")

    @property
    def _stored(self) -> list[str]:
        return [VECTOR, SCALE] if self.format == "int8" else [VECTOR]

    def _shown(self, number: int) -> list[str]:
        """Return the names of a part's columns without the vector."""
        with self._opened(number) as file:
            return [name for name in file.schema_arrow.names if name not in (VECTOR, SCALE)]

    def read(self, number: int, columns: list[str] | None) -> pa.Table:
        """Read columns of a part. Raises DataError if the part is missing or damaged, or has a wrong number of rows."""
        with self._opened(number) as file:
            table = file.read(columns=columns)
        if table.num_rows != self.rows[number]:
            raise DataError(
                f"{self._location(number)} has {table.num_rows:,} rows, and the manifest says {self.rows[number]:,}: "
                "embed again with --replace"
            )
        return table

    def _location(self, number: int) -> str:
        return storage.join(self.folder, PARTS, self.names[number])

    @contextmanager
    def _opened(self, number: int) -> Generator[pq.ParquetFile]:
        """Open a part; a local one is mapped into memory. Raises DataError if it is missing or damaged."""
        location = self._location(number)
        system, path = storage.filesystem(location)
        try:
            source = system.open_input_file(path) if is_url(location) else path
            with pq.ParquetFile(source, memory_map=True, page_checksum_verification=True) as file:
                yield file
        except (pa.ArrowException, OSError) as error:
            raise DataError(
                f"{location} cannot be read ({storage.first_line(error)}): embed again with --replace"
            ) from error


def open_vectors(folder: str) -> Vectors:
    """Open a folder of vectors. Raises DataError if its manifest is missing or is not a manifest of vectors."""
    path = storage.join(folder, storage.MANIFEST)
    manifest = storage.read_object(path)
    if manifest is None or manifest.get("kind") != KIND:
        unfinished = storage.exists(storage.join(folder, PARTS, ABOUT))
        raise DataError(
            f"vectors ({folder}) {'are not complete' if unfinished else 'is not a folder of vectors'}: "
            f"{'run the same jobs/embed.py again' if unfinished else 'give the --output of jobs/embed.py'}"
        )
    try:
        files = sorted(manifest["files"].items())
        return Vectors(
            folder=folder,
            model=Description(**manifest["model"]),
            format=manifest["format"],
            fingerprint=manifest["fingerprint"],
            names=tuple(name for name, _ in files),
            rows=tuple(int(about["rows"]) for _, about in files),
            texts=int(manifest["counts"]["texts"]) - int(manifest["counts"]["empty"]),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({storage.first_line(error)}): embed again with --replace") from error
