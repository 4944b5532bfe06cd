"""Third stage of preparation: turn one range of text hashes from all parts into a training and a held-out shard."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.config.data import Preparation
from pipeline.corpus.overlaps import OVERLAP, is_heldout, overlap_name
from pipeline.corpus.part_tables import PART, sort_part
from pipeline.corpus.parts import SAMPLES, Tally
from pipeline.corpus.prepared import COUNTED
from pipeline.corpus.ranges import key_bytes, key_edges, numbers, sorted_range
from pipeline.files import storage
from pipeline.text.documents import Reason, dropped, length
from pipeline.text.schema import DOCUMENT

HELDOUT_OVERLAP = 0.05
"""A held-out text is dropped if other parents own at least this share of its word sequences.

The loss on such a text would measure what a model has memorised from training texts.
"""
LEAST_SHARED = 3
"""A text is dropped only if other parents own at least this number of its sampled word sequences; fewer may be chance.

Exception for held-out texts: this minimum does not apply if, among the text's sampled sequences with hashes below
sketches.COMMON, other parents own at least the share prepare.near_duplicates.
"""
HELDOUT_WINDOWS = 8
"""Factor by which held-out windows are smaller than training windows.

Therefore even a small held-out split has several windows.
"""


def shard_count(characters: int, settings: Preparation) -> int:
    """Return the number of shards for a corpus of this many characters."""
    return max(1, round(characters / (settings.window_characters * settings.windows_per_shard)))


def excluded_file(folder: str, plan: str) -> str:
    """Return the location of the texts that a preparation excludes; `plan` identifies the preparation."""
    return storage.join(folder, "parts", f"{plan}-excluded.parquet")


def write_shard(
    folder: str, parts: Sequence[str], plan: str, number: int, count: int, settings: Preparation
) -> dict[str, Any]:
    """Write shard `number` of `count` from the parts in folder/parts, unless it was already written for this plan.

    Returns the shard's report: {"train": result of write_windows, "heldout": the same, "tallies": {source: fields of
    a Tally}}.
    """
    report_file = storage.join(folder, "parts", f"{plan}-{number:05d}.json")
    if finished := _finished_shard(folder, report_file):
        return finished
    low, high = key_edges(number, count)
    tables = [
        sorted_range(storage.join(folder, "parts", f"{part}.parquet"), PART, "key", low, high) for part in sorted(parts)
    ]
    tallies: dict[str, Tally] = {}
    table = without_repeats(sort_part(pa.concat_tables([PART.empty_table(), *tables])), tallies)
    if settings.near_duplicates is not None:
        names = [storage.join(folder, "parts", overlap_name(plan, index)) for index in range(count)]
        overlaps = pa.concat_tables([sorted_range(name, OVERLAP, "place", low, high) for name in names])
        table = without_near_duplicates(table, overlaps, settings, tallies)
    table = _without_excluded(table, excluded_file(folder, plan), tallies)
    heldout = is_heldout(table["parent_hash"].to_numpy(), settings.heldout_share)
    report: dict[str, Any] = {"tallies": {source: asdict(tally) for source, tally in tallies.items()}}
    for name, rows, characters in (
        ("train", ~heldout, settings.window_characters),
        ("heldout", heldout, settings.window_characters // HELDOUT_WINDOWS),
    ):
        chosen = table.filter(pa.array(rows)).select(DOCUMENT.names).combine_chunks()
        report[name] = write_windows(folder, name, number, chosen, characters)
    storage.write_json(report_file, report)
    return report


def _finished_shard(folder: str, report_file: str) -> dict[str, Any] | None:
    """Return the report of a shard if the report and the shard's files exist, else None."""
    report = storage.read_object(report_file)
    if report is None or "languages" not in report["train"]:  # reports of earlier versions have no languages
        return None
    files = [report[split]["file"] for split in ("train", "heldout") if report[split]["windows"]]
    return report if all(storage.exists(storage.join(folder, file)) for file in files) else None


def without_repeats(table: pa.Table, tallies: dict[str, Tally]) -> pa.Table:
    """Return only the first row of each text; count the other rows in `tallies`. The table must be sorted by key."""
    keys = key_bytes(table["key"])
    repeats = np.zeros(len(keys), bool)
    repeats[1:] = (keys[1:] == keys[:-1]).all(axis=1)
    return _drop_rows(table, repeats, "duplicate", tallies)


def without_near_duplicates(
    table: pa.Table, overlaps: pa.Table, settings: Preparation, tallies: dict[str, Tally]
) -> pa.Table:
    """Return the table without near-duplicates; count the near-duplicates in `tallies`.

    A row is a near-duplicate if other parents own too large a share of its word sequences, as estimated by sketches.
    The limit is settings.near_duplicates for a training row, and HELDOUT_OVERLAP for a held-out row. `overlaps` has
    schema OVERLAP.
    """
    sums = overlaps.group_by(["place", "parent_hash"]).aggregate([("shared", "sum"), ("common", "sum")])
    counts_of = {
        (text_number, parent): counts
        for text_number, parent, *counts in zip(*(sums[name].to_pylist() for name in sums.column_names))
    }
    parents = table["parent_hash"].to_numpy()
    keys = zip(numbers(table["key"]).tolist(), parents.tolist())
    shared, common = np.array([counts_of.get(key, (0, 0)) for key in keys], np.int64).reshape(-1, 2).T
    # The sketch of a long text keeps a smaller share of the text's hashes, so `share` is right only if both texts have
    # the same sampling rate. All sketches keep the hashes below sketches.COMMON. `common_share` uses only these hashes,
    # so it also finds a short text within a long text.
    share = shared / np.maximum(1, table["hashes"].to_numpy())
    common_share = common / np.maximum(1, table["common"].to_numpy())
    heldout = is_heldout(parents, settings.heldout_share)
    assert settings.near_duplicates is not None
    limit = np.where(heldout, HELDOUT_OVERLAP, settings.near_duplicates)
    repeated = (share >= limit) & (shared >= LEAST_SHARED) | (common_share >= limit) & (common >= LEAST_SHARED)
    contained = heldout & (common_share >= settings.near_duplicates) & (common > 0)
    return _drop_rows(table, repeated | contained, "near-duplicate", tallies)


def _without_excluded(table: pa.Table, texts: str, tallies: dict[str, Tally]) -> pa.Table:
    """Return the table without rows that contain one of the texts in a file; count these rows in `tallies`.

    Without such a file, all rows are returned.
    """
    if not storage.exists(texts):
        return table
    from pipeline.corpus.excluded import holds_excluded

    return _drop_rows(table, holds_excluded(table["text"], texts), "excluded", tallies)


def _drop_rows(table: pa.Table, dropped_rows: np.ndarray, reason: Reason, tallies: dict[str, Tally]) -> pa.Table:
    """Return a table without its dropped rows; count the dropped rows in `tallies`, by source, under `reason`.

    `dropped_rows`: mask, bool (rows,).
    """
    gone = table.filter(pa.array(dropped_rows))
    for source in pc.unique(gone["source"]).to_pylist():
        rows = gone.filter(pc.equal(gone["source"], source))
        tally = tallies.setdefault(source, Tally())
        for row in rows.slice(0, SAMPLES).to_pylist():
            tally.drop(dropped(row["id"], reason, row["text"]))
        if rows.num_rows > SAMPLES:
            tally.add(Tally(dropped={reason: rows.num_rows - SAMPLES}))
    return table.filter(pa.array(~dropped_rows))


def window_edges(lengths: Sequence[int], limit: int) -> list[tuple[int, int]]:
    """Divide documents into windows of about `limit` characters; return (first row, row after the last) of each window.

    `lengths` are the characters of each document. A remainder of less than half a window is added to the last window.
    """
    edges: list[tuple[int, int]] = []
    start = size = 0
    for stop, characters in enumerate(lengths, start=1):
        size += characters
        if size >= limit:
            edges.append((start, stop))
            start, size = stop, 0
    if start == len(lengths):
        return edges
    if edges and size * 2 < limit:
        return [*edges[:-1], (edges[-1][0], len(lengths))]
    return [*edges, (start, len(lengths))]


def write_windows(folder: str, split: str, number: int, table: pa.Table, limit: int) -> dict[str, Any]:
    """Write documents as one Parquet file with one row group per window. If there are no documents, write no file.

    The file's name contains a digest of its contents, so that the shards of an older corpus are not overwritten.
    Returns {"file", "windows": [[documents, characters], ...], "sources": {source: counts}, "digest", "members":
    {source: digest of document ids}, "languages": {source: {language: length of text}}}.
    """
    lengths = pc.utf8_length(table["text"]).to_pylist()
    edges = window_edges(lengths, limit)
    digest = _content_digest(table, edges)
    file = f"{split}/{number:05d}-{digest[:12]}.parquet"
    if edges:
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, DOCUMENT, compression="zstd") as writer:
            for start, stop in edges:
                writer.write_table(table.slice(start, stop - start), row_group_size=stop - start)
        storage.write_bytes(storage.join(folder, file), sink.getvalue())
    windows = [[stop - start, sum(lengths[start:stop])] for start, stop in edges]
    return {
        "file": file,
        "windows": windows,
        "sources": counts_by_source(table),
        "digest": digest,
        "members": _members(table),
        "languages": text_by_language(table),
    }


def text_by_language(table: pa.Table) -> dict[str, dict[str, int]]:
    """Return {source: {language: length of text}}. `documents.length` measures the lengths."""
    lengths: dict[str, Counter[str]] = {}
    columns = (table[name].to_pylist() for name in ("source", "language", "text"))
    for source, language, text in zip(*columns, strict=True):
        lengths.setdefault(source, Counter())[language] += length(text)
    return {source: dict(sorted(languages.items())) for source, languages in sorted(lengths.items())}


def counts_by_source(table: pa.Table) -> dict[str, dict[str, int]]:
    """Return {source: {"documents", "pieces", "characters"}} of a table.

    A document is counted only in the table that has the document's first piece.
    """
    firsts = pc.ends_with(table["id"], "#0").cast(pa.int64())
    about = pa.table(
        {
            "source": table["source"],
            "documents": firsts,
            "pieces": pa.repeat(1, table.num_rows),
            "characters": pc.utf8_length(table["text"]),
        }
    )
    sums = about.group_by("source").aggregate([(name, "sum") for name in COUNTED]).to_pylist()
    return {row["source"]: {name: row[f"{name}_sum"] for name in COUNTED} for row in sums}


def _members(table: pa.Table) -> dict[str, str]:
    """Return {source: digest of the ids of the source's documents in a table}.

    A digest does not depend on the source's location.
    """
    digests = {source: hashlib.sha256() for source in pc.unique(table["source"]).to_pylist()}
    for source, id in zip(table["source"].to_pylist(), table["id"].to_pylist()):
        digests[source].update(id.encode() + b"\n")
    return {source: digest.hexdigest() for source, digest in digests.items()}


def _content_digest(table: pa.Table, edges: list[tuple[int, int]]) -> str:
    """Return the SHA-256 of everything in a shard that changes the examples.

    This is the windows, and for each document its id, parent, text, language and whether its lines are sentences.
    """
    digest = hashlib.sha256()
    columns = ["id", "parent", "text", "language", "lines_are_sentences"]
    for start, stop in edges:
        digest.update(b"window %d\n" % (stop - start))
        for row in zip(*(column.to_pylist() for column in table.select(columns).slice(start, stop - start).columns)):
            for value in map(str, row):
                content = value.encode()
                digest.update(b"%d:" % len(content) + content)
    return digest.hexdigest()
