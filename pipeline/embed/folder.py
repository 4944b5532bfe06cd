"""The folder of vectors: parts are written as they are computed, and a manifest is written last.

VECTORS/
    parts/FFFFFF-PPPPPP.parquet   part P of input file F: one row per chunk (`part_table`); counts in the metadata
    parts/about.json              while parts are missing: input, model and settings
    parts/FFFFFF.json             while parts are missing: number of parts of file F
    replacing.json                while older vectors are deleted
    manifest.json                 written last: model, settings, counts, and rows and bytes of each part
    index/                        written by the first search with an index
"""

import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.config.embed import VectorFormat
from pipeline.embed.description import Description
from pipeline.embed.formats import VECTOR, to_columns
from pipeline.embed.ids import require_unique
from pipeline.embed.texts import CHARACTERS_PER_PART
from pipeline.errors import ConfigError, DataError
from pipeline.files import storage
from pipeline.predict.parts import ABOUT, Parts

TEXTS, EMPTY, CUT, PRECISION = b"texts", b"empty", b"cut", b"precision"
"""Metadata of a part: numbers of texts, empty texts and truncated texts, and the number format of matrix products."""
NUMBERS = f"{VECTOR}.list.element"
"""Parquet column with the numbers of the vectors."""
KIND = "vectors"
PARTS, INDEX = "parts", "index"
"""Subfolders: the parts (only Parquet files once all parts are complete) and the index."""
REPLACING = "replacing.json"


@dataclass(frozen=True, kw_only=True)
class StoredChunks:
    """Chunks of the texts of a part, in order: a text's id and title, and the chunk's number, span and text."""

    ids: Sequence[str]
    titles: Sequence[str | None] | None
    numbers: Sequence[int]
    """Number of the chunk in its text, from 0."""
    spans: Sequence[tuple[int, int]]
    texts: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class PartTotals:
    """Totals over parts."""

    texts: int
    empty: int
    """Empty texts; they have no vector."""
    cut: int
    """Texts that were truncated."""
    vectors: int
    precisions: dict[str, int]
    """Number format of matrix products -> number of vectors."""


def part_table(chunks: StoredChunks, vectors: np.ndarray, format: VectorFormat, keep_text: bool) -> pa.Table:
    """Return the table of a part."""
    starts, ends = zip(*chunks.spans) if chunks.spans else ((), ())
    columns: dict[str, pa.Array] = {
        "id": pa.array(chunks.ids, pa.string()),
        "chunk": pa.array(chunks.numbers, pa.int32()),
        "start": pa.array(starts, pa.int64()),
        "end": pa.array(ends, pa.int64()),
    }
    if chunks.titles is not None:
        columns["title"] = pa.array(chunks.titles, pa.string())
    if keep_text:
        columns["text"] = pa.array(chunks.texts, pa.string())
    return pa.table(columns | to_columns(vectors, format))


def publish_part(parts: Parts, file: int, part: int, table: pa.Table, metadata: dict[bytes, str]) -> None:
    """Write a part. Its file becomes visible only when it is complete."""
    buffer = io.BytesIO()
    bytes_each = pa.types.is_integer(table[VECTOR].type.value_type)
    pq.write_table(
        table.replace_schema_metadata(metadata),
        buffer,
        compression=dict.fromkeys(table.column_names, "zstd") | {NUMBERS: "zstd" if bytes_each else "none"},
        # Parquet stores a small integer in 4 bytes; with a dictionary of 256 entries, it needs 1 byte.
        use_dictionary=["id", "title", *[NUMBERS] * bytes_each],
        write_page_checksum=True,
    )
    storage.write_bytes(parts.place(file, part), buffer.getvalue())


def parts_in(folder: str) -> Parts:
    """Return the parts of a folder of vectors."""
    return Parts(folder=storage.join(folder, PARTS), contents="vectors")


def begin(folder: str, asked: dict[str, Any], replace: bool) -> bool:
    """Prepare the folder for the requested vectors, and return whether it already has all of them.

    `asked` describes the requested vectors. With `replace`, a finished set of vectors is deleted, and so is an
    unfinished set that does not match `asked`. An unfinished set that matches is kept and continued. Raises ConfigError
    if the folder has vectors that do not match `asked`, or other files.
    """
    manifest = storage.read_object(storage.join(folder, storage.MANIFEST))
    begun = storage.read_object(storage.join(folder, PARTS, ABOUT))
    names = [name for name in storage.children(folder) if not name.startswith(".")]
    half_deleted = REPLACING in names
    ours = half_deleted or storage.exists(storage.join(folder, PARTS, ABOUT)) or (manifest or {}).get("kind") == KIND
    if names and not ours:
        raise ConfigError(f"output ({folder}) has other files, such as {names[0]}: choose a new folder")
    if half_deleted and not replace:
        raise ConfigError(f"output ({folder}) has vectors that are partly deleted: give --replace to delete the rest")
    fits = begun is not None and all(begun.get(name) == value for name, value in asked.items())
    if replace and names and (half_deleted or manifest is not None or not fits):
        _delete_vectors(folder)
        manifest = None
    if manifest is None:
        parts_in(folder).begin(asked, CHARACTERS_PER_PART)
        return False
    for name, value in asked.items():
        if manifest["asked"].get(name) != value:
            raise ConfigError(
                f"output ({folder}) holds vectors for {name} {manifest['asked'].get(name)}, not for {name} {value}: "
                "give --replace, or choose another --output"
            )
    _delete_records(folder)
    return True


def _delete_vectors(folder: str) -> None:
    """Delete the vectors in a folder. If this is interrupted, the file REPLACING shows that vectors are missing."""
    storage.write_json(storage.join(folder, REPLACING), {})
    storage.delete_file(storage.join(folder, storage.MANIFEST))
    for name in (PARTS, INDEX):
        storage.delete_folder(storage.join(folder, name))
    storage.delete_file(storage.join(folder, REPLACING))


def _delete_records(folder: str) -> None:
    """Delete the files that are needed only while parts are missing."""
    names = storage.children(storage.join(folder, PARTS))
    records = [name for name in names if name.endswith((".json", ".tmp"))]  # .tmp: files of a killed job
    for name in records:
        storage.delete_file(storage.join(folder, PARTS, name))


def publish(folder: str, asked: dict[str, Any], model: Description, format: VectorFormat) -> PartTotals:
    """Check that all ids differ, write the manifest, and delete the files that were needed only for missing parts.

    Raises DataError if two texts have the same id, or if all texts are empty.
    """

    parts = parts_in(folder)

    def ids() -> Iterator[list[str]]:
        return (_first_ids(parts, key) for key in sorted(parts.done()))

    require_unique(ids, f", and delete {folder}")
    counts, files = count(parts)
    if not counts.vectors:
        raise DataError(f"input has {counts.texts:,} texts, and all are empty: give a file with texts")
    about = {"asked": asked, "model": model.as_dict(), "format": format}
    manifest = {"kind": KIND, **about, "files": files, "counts": vars(counts)}
    manifest["fingerprint"] = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()[:16]
    storage.write_json(storage.join(folder, storage.MANIFEST), manifest)
    _delete_records(folder)
    return counts


def count(parts: Parts) -> tuple[PartTotals, dict[str, dict[str, int]]]:
    """Return the totals over all parts, and the rows and bytes of each part's file."""
    texts, empty, cut, precisions, files = 0, 0, 0, {}, {}
    for file, part in sorted(parts.done()):
        location = parts.place(file, part)
        system, path = storage.filesystem(location)
        with system.open_input_file(path) as stream:
            about = pq.read_metadata(stream)
            files[location.rpartition("/")[2]] = {"rows": about.num_rows, "bytes": stream.size()}
        texts, empty = texts + int(about.metadata[TEXTS]), empty + int(about.metadata[EMPTY])
        cut, precision = cut + int(about.metadata[CUT]), about.metadata[PRECISION].decode()
        precisions[precision] = precisions.get(precision, 0) + about.num_rows
    vectors = sum(file["rows"] for file in files.values())
    return PartTotals(
        texts=texts, empty=empty, cut=cut, vectors=vectors, precisions=dict(sorted(precisions.items()))
    ), files


def _first_ids(parts: Parts, key: tuple[int, int]) -> list[str]:
    """Return the ids of a part's texts."""
    system, path = storage.filesystem(parts.place(*key))
    table = pq.read_table(path, columns=["id", "chunk"], filesystem=system)
    return table.filter(pc.equal(table["chunk"], 0))["id"].to_pylist()
