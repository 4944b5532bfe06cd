"""Second stage of preparation: a range of keys of all parts -> one training and one held-out shard."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline import storage
from pipeline.config import Preparation
from pipeline.corpus.parts import KEY_BYTES, PART, SAMPLES, Tally, in_order
from pipeline.text.documents import dropped
from pipeline.text.schema import DOCUMENT

HELDOUT_WINDOWS = 8
"""Held-out windows are this many times smaller, so that a small held-out share still has several."""


def shard_count(characters: int, settings: Preparation) -> int:
    """How many shards so much text makes."""
    return max(1, round(characters / (settings.window_characters * settings.windows_per_shard)))


def write_shard(folder: str, parts: Sequence[str], plan: str, number: int, count: int, settings: Preparation) -> dict[str, Any]:
    """Write shard `number` of `count` from the parts below folder/parts, unless it is there under this plan's name.

    Returns {"train", "heldout": {"windows": [[documents, characters], ...], "firsts": documents that start here, "digest"}, "tally"}.
    """
    done = storage.join(folder, "parts", f"{plan}-{number:05d}.json")
    try:
        return storage.read_json(done)
    except FileNotFoundError:
        pass
    tally = Tally()
    table = without_duplicates(key_range(folder, parts, number, count), tally)
    aside = is_heldout(table["parent"], settings.heldout_share)
    report: dict[str, Any] = {"tally": asdict(tally)}
    for name, rows, characters in (("train", ~aside, settings.window_characters), ("heldout", aside, settings.window_characters // HELDOUT_WINDOWS)):
        chosen = table.filter(pa.array(rows)).select(DOCUMENT.names).combine_chunks()
        report[name] = write_windows(storage.join(folder, name, f"{number:05d}.parquet"), chosen, characters)
    storage.write_json(done, report)
    return report


def key_range(folder: str, parts: Sequence[str], number: int, count: int) -> pa.Table:
    """The rows of all parts whose keys lie in range `number` of `count` equal ranges, in the order of (key, id)."""
    low, high = (-(-(edge << 64) // count) for edge in (number, number + 1))
    found = [table for part in sorted(parts) for table in part_range(storage.join(folder, "parts", part), low, high)]
    return in_order(pa.concat_tables([PART.empty_table(), *found]))


def part_range(location: str, low: int, high: int) -> Iterator[pa.Table]:
    """The rows of a part whose keys' first 8 bytes are at least `low` and below `high`; only the row groups that hold some are read."""
    system, path = storage.filesystem(location)
    with pq.ParquetFile(path, filesystem=system) as file:
        for group in range(file.num_row_groups):
            edges = file.metadata.row_group(group).column(0).statistics
            if leading(edges.max) >= low and leading(edges.min) < high:
                table = file.read_row_group(group).cast(PART)
                keys = key_bytes(table)[:, :8].copy().view(">u8").reshape(-1)
                first, last = (int(np.searchsorted(keys, np.uint64(edge))) if edge < 1 << 64 else len(keys) for edge in (low, high))
                yield table.slice(first, last - first)


def leading(key: bytes) -> int:
    """The first 8 bytes of a key as a number."""
    return int.from_bytes(key[:8], "big")


def key_bytes(table: pa.Table) -> np.ndarray:
    """The keys of a table as bytes, (rows, 16) of uint8."""
    keys = table["key"].combine_chunks()
    every = np.frombuffer(keys.buffers()[1] or b"", np.uint8).reshape(-1, KEY_BYTES)
    return every[keys.offset : keys.offset + len(keys)]


def without_duplicates(table: pa.Table, tally: Tally) -> pa.Table:
    """Keep the first row of each text; the table is in the order of (key, id). The others are counted."""
    keys = key_bytes(table)
    repeats = np.zeros(len(keys), bool)
    repeats[1:] = (keys[1:] == keys[:-1]).all(axis=1)
    again = table.filter(pa.array(repeats))
    for row in again.slice(0, SAMPLES).to_pylist():
        tally.drop(dropped(row["id"], "duplicate", row["text"]))
    if again.num_rows > SAMPLES:
        tally.add(Tally(dropped={"duplicate": again.num_rows - SAMPLES}))
    return table.filter(pa.array(~repeats))


def is_heldout(parents: pa.ChunkedArray, share: float) -> np.ndarray:
    """Which rows are held out, as bool: those whose parent's hash falls into the share, so that a book or article is never divided."""
    encoded = parents.combine_chunks().dictionary_encode()
    hashes = (hashlib.blake2b(parent.encode(), digest_size=8).digest() for parent in encoded.dictionary.to_pylist())
    chosen = np.array([leading(value) < share * 2.0**64 for value in hashes], bool)
    return chosen[encoded.indices.to_numpy()]


def window_edges(lengths: Sequence[int], limit: int) -> list[tuple[int, int]]:
    """(start, stop) rows of windows of about `limit` characters; a rest of less than half a window joins the one before it."""
    edges: list[tuple[int, int]] = []
    start = size = 0
    for stop, length in enumerate(lengths, start=1):
        size += length
        if size >= limit:
            edges.append((start, stop))
            start, size = stop, 0
    if start == len(lengths):
        return edges
    if edges and size * 2 < limit:
        return [*edges[:-1], (edges[-1][0], len(lengths))]
    return [*edges, (start, len(lengths))]


def write_windows(location: str, table: pa.Table, limit: int) -> dict[str, Any]:
    """Write documents as one Parquet file with a row group for each window; without documents, no file."""
    lengths = pc.utf8_length(table["text"]).to_pylist()
    edges = window_edges(lengths, limit)
    if edges:
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, DOCUMENT, compression="zstd") as writer:
            for start, stop in edges:
                writer.write_table(table.slice(start, stop - start), row_group_size=stop - start)
        storage.write_bytes(location, sink.getvalue())
    return {
        "windows": [[stop - start, sum(lengths[start:stop])] for start, stop in edges],
        "firsts": sum(id.endswith("#0") for id in table["id"].to_pylist()),
        "digest": content_digest(table, edges),
    }


def content_digest(table: pa.Table, edges: list[tuple[int, int]]) -> str:
    """SHA-256 of all that examples are made from: the windows, and each document's id, parent, text and whether its lines are sentences."""
    digest = hashlib.sha256()
    columns = ["id", "parent", "text", "lines_are_sentences"]
    for start, stop in edges:
        digest.update(b"window %d\n" % (stop - start))
        for row in zip(*(column.to_pylist() for column in table.select(columns).slice(start, stop - start).columns)):
            for value in map(str, row):
                content = value.encode()
                digest.update(b"%d:" % len(content) + content)
    return digest.hexdigest()
