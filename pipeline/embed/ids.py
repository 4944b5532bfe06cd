"""Find duplicate ids of texts, with 8 bytes of memory per text."""

import hashlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from pipeline.embed.texts import InputColumns, text_tables
from pipeline.errors import DataError
from pipeline.files.locations import is_url
from pipeline.predict.inputs import RowFile, column_names
from pipeline.tables.roles import ID

CHECKED_BYTES = 2 << 30
"""Maximum total bytes of inputs whose ids are checked before embedding. Ids of larger inputs are checked afterwards."""
ROWS_AT_ONCE = 4_096


def require_unique_inputs(files: Sequence[RowFile], columns: InputColumns) -> None:
    """Raise DataError if two texts of the files have the same id. URLs and large inputs are not checked here."""
    if sum(file.bytes for file in files) > CHECKED_BYTES or any(is_url(file.location) for file in files):
        return
    with_ids = [file for file in files if (columns.id or ID) in column_names(file)]

    def batches() -> Iterator[list[str]]:
        for file in with_ids:
            for table in text_tables(file, "", columns, ROWS_AT_ONCE):
                yield table[ID].to_pylist()

    require_unique(batches, "")


def require_unique(batches: Callable[[], Iterator[Sequence[str]]], remedy: str) -> None:
    """Raise DataError if an id occurs twice in the batches. `remedy` ends the message.

    `batches` is called a second time only if two ids have the same hash.
    """
    hashes = np.sort(np.concatenate([np.zeros(0, np.uint64), *map(_hashes, batches())]))
    repeated = set(hashes[1:][hashes[1:] == hashes[:-1]].tolist())
    if not repeated:
        return
    seen: set[str] = set()
    for ids in batches():
        for id, digest in zip(ids, _hashes(ids).tolist()):
            if digest in repeated and id in seen:
                raise DataError(
                    f"input has two texts with the id {id!r}: give each text an id of its own, or name another column "
                    f"with --id{remedy}"
                )
            if digest in repeated:
                seen.add(id)


def _hashes(ids: Sequence[str]) -> np.ndarray:
    """Return a 64-bit hash of each id, uint64."""
    digests = b"".join(hashlib.blake2b(id.encode(), digest_size=8).digest() for id in ids)
    return np.frombuffer(digests, np.uint64)
