"""First stage of preparation: turn a batch of input files into Parquet parts, sorted by text hash, and text sketches.

parts/NAME-00000.parquet         schema PART, sorted by text hash
parts/NAME-00000.sketch.parquet  schema SKETCH, sorted by hash
parts/NAME.json                  written last: input files, parts, smallest parent hashes, tallies by source
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from pipeline.config.data import Preparation
from pipeline.corpus.formats import FORMATS, HEAD_BYTES, Format, recognise
from pipeline.corpus.inputs import InputFile
from pipeline.corpus.part_tables import KEY_BYTES, SketchedRow, parquet, part_tables
from pipeline.corpus.unsupported import UNSUPPORTED, unsupported_reason
from pipeline.errors import BadRow, DataError
from pipeline.files import storage
from pipeline.files.opening import (
    EXPANSION_LIMIT,
    CutOff,
    Damaged,
    ExpandsTooFar,
    Opened,
    as_utf8,
    bare_name,
    blocks,
    is_utf16,
)
from pipeline.tables.records import NoTextColumn
from pipeline.text.documents import ENGLISH, Document, Dropped, Pair, Record, documents, dropped, pair_document
from pipeline.text.sketches import COMMON, casing, sample_hashes, shingle_hashes, size_class
from pipeline.wikipedia.dump_ranges import RangeInput, range_text, stored_pieces

VERSION = 11
"""Version of the parts' contents.

Increase the version when the same input produces different parts. An unfinished preparation then makes its parts again.
"""
MUCH_LOST = 0.1
"""Maximum share of a file's characters that are in paragraphs that are not UTF-8.

Above this share, a drop with the reason "file not UTF-8" is counted; the file's other paragraphs are kept.
"""
BATCH_BYTES = 8_000_000
BATCH_FILES = 500
MOST_BATCHES = 2_000
SAMPLES = 5
WHOLE_FILE = RangeInput()
MOST_PARENTS = 40
"""Number of smallest parent hashes to keep.

If prepare.heldout_share is above 0, at least a tenth of these parents are held out: four of forty.
"""


@dataclass(kw_only=True)
class Tally:
    """Counts from reading input files, and for each drop reason a few samples: [id, beginning of the text].

    `pieces` are rows of parts: a document, or one piece of a long document.
    """

    files: int = 0
    pieces: int = 0
    characters: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    samples: dict[str, list[list[str]]] = field(default_factory=dict)

    def drop(self, item: Dropped) -> None:
        self.add(Tally(dropped={item.reason: 1}, samples={item.reason: [[item.id, item.sample]]}))

    def add(self, other: "Tally") -> None:
        for name in ("files", "pieces", "characters"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for reason, count in other.dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count
        for reason, samples in other.samples.items():
            self.samples[reason] = sorted(self.samples.get(reason, []) + samples)[:SAMPLES]


def batches(files: Sequence[InputFile]) -> list[list[InputFile]]:
    """Group files into batches, one per task.

    A batch has at most 8 MB and 500 files. For large inputs, both limits grow, so that there are at most about 2,000
    batches. A file above the size limit gets its own batch. The result depends only on the files.
    """
    total = sum(max(file.bytes, 0) for file in files)
    most_bytes, most_files = max(BATCH_BYTES, total // MOST_BATCHES), max(BATCH_FILES, len(files) // MOST_BATCHES)
    dealt: list[list[InputFile]] = []
    size = 0
    for file in sorted(files, key=lambda file: (file.name, file.start or 0)):
        if not dealt or size + max(file.bytes, 0) > most_bytes or len(dealt[-1]) >= most_files:
            dealt.append([])
            size = 0
        dealt[-1].append(file)
        size += max(file.bytes, 0)
    return dealt


def batch_digest(files: Sequence[InputFile], settings: dict[str, Any]) -> str:
    """Return the name of a batch's parts, 16 hexadecimal digits: a hash of the batch's files and of part settings."""
    about = [settings, [astuple(file) for file in files]]
    return hashlib.blake2b(json.dumps(about).encode(), digest_size=8).hexdigest()


def part_settings(settings: Preparation) -> dict[str, Any]:
    """Return the settings that change the contents of parts, and VERSION."""
    names = ("piece_characters", "minimum_characters", "minimum_letters", "expansion_limit")
    return {"version": VERSION} | {name: getattr(settings, name) for name in names}


def write_parts(
    files: Sequence[InputFile],
    folder: str,
    settings: Preparation,
    heads: Mapping[str, bytes],
    fetched: Sequence[bytes] | None = None,
) -> dict[str, Any]:
    """Write the parts of a batch into a folder and return the batch's record, which is also written there.

    The record is {"files", "settings", "parts": names, "parents": smallest parent hashes, "tallies": {source: fields
    of a Tally}}.

    `heads` maps a dump's location to the bytes before the dump's first page. `fetched` has the stored bytes of each
    file's range; if `fetched` is None, the files are read. Memory is bounded by the size of one part, whatever the size
    of the files. Raises DataError if a file cannot be read.
    """
    about = part_settings(settings)
    name = batch_digest(files, about)
    tallies: dict[str, Tally] = {}
    range_inputs = [
        RangeInput(head=heads.get(file.location, b""), fetched=stored)
        for file, stored in zip(files, fetched or [None] * len(files), strict=True)
    ]
    rows = chain.from_iterable(
        _file_rows(file, tallies.setdefault(file.source, Tally()), settings, range_input)
        for file, range_input in zip(files, range_inputs, strict=True)
    )
    parts = []
    parents = np.zeros(0, np.uint64)
    for number, (table, sketches) in enumerate(part_tables(rows)):
        parents = least_parents(parents, table["parent_hash"].to_numpy())
        parts.append(f"{name}-{number:05d}")
        storage.write_bytes(storage.join(folder, f"{parts[-1]}.sketch.parquet"), parquet(sketches, "hash"))
        storage.write_bytes(storage.join(folder, f"{parts[-1]}.parquet"), parquet(table, "key"))
    record = {
        "files": [asdict(file) for file in files],
        "settings": about,
        "parts": parts,
        "parents": parents.tolist(),
        "tallies": {source: asdict(tally) for source, tally in tallies.items()},
    }
    storage.write_json(storage.join(folder, f"{name}.json"), record)
    return record


def least_parents(*hashes: np.ndarray) -> np.ndarray:
    """Return the 40 smallest distinct parent hashes, sorted, uint64. Parents with small hashes are held out first."""
    return np.unique(np.concatenate([np.zeros(0, np.uint64), *hashes]))[:MOST_PARENTS]


def records(folder: str, settings: Preparation) -> dict[str, dict[str, Any]]:
    """Return {file name: record} of the finished batches in a folder that were written with these settings.

    A batch is left out if one of its parts is missing.
    """
    present = set(storage.children(folder))
    names = [name for name in sorted(present) if name.endswith(".json") and "-" not in name]
    loaded = {
        name: storage.read_object(storage.join(folder, name)) or {} for name in names
    }  # a damaged record counts as missing: its batch is processed again
    about = part_settings(settings)

    def whole(record: dict[str, Any]) -> bool:
        return all(
            f"{part}{suffix}" in present for part in record["parts"] for suffix in (".parquet", ".sketch.parquet")
        )

    return {name: record for name, record in loaded.items() if record.get("settings") == about and whole(record)}


def _file_rows(file: InputFile, tally: Tally, settings: Preparation, given: RangeInput) -> Iterator[SketchedRow]:
    """Yield the rows of one file with the sketches of their texts; add the file, its rows and its drops to `tally`."""
    for item in file_documents(file, settings, given):
        if isinstance(item, Dropped):
            tally.drop(item)
        else:
            tally.pieces += 1
            tally.characters += len(item.text)
            yield sketch_document(item, file.source)
    tally.files += file.start in (None, 0)  # a file that is read in ranges counts once


def file_documents(
    file: InputFile, settings: Preparation, given: RangeInput = WHOLE_FILE
) -> Iterator[Document | Dropped]:
    """Yield the documents and drops of one file, and at the end a drop if over a tenth of its text is not UTF-8."""
    kept = lost = 0
    for item in _unchecked_documents(file, settings, given):
        kept += len(item.text) if isinstance(item, Document) else 0
        lost += item.characters if isinstance(item, Dropped) else 0
        yield item
    if lost > MUCH_LOST * (kept + lost):
        sample = (
            f"{lost:,} of {kept + lost:,} characters are in paragraphs that are not UTF-8: "
            "save the file as UTF-8, for example with iconv -f ENCODING -t UTF-8"
        )
        yield Dropped(id=file.name, reason="file not UTF-8", sample=sample)


def _unchecked_documents(file: InputFile, settings: Preparation, given: RangeInput) -> Iterator[Document | Dropped]:
    """Yield the documents of one file and the drops of its records."""
    for record in file_records(file, settings.expansion_limit, given):
        if isinstance(record, Dropped):
            yield record
        elif isinstance(record, Pair):
            yield pair_document(record, settings.piece_characters, file.language or ENGLISH)
        else:
            yield from documents(
                record,
                piece_characters=settings.piece_characters,
                minimum_characters=settings.minimum_characters,
                minimum_letters=settings.minimum_letters,
                language=file.language or ENGLISH,
            )


def file_records(
    file: InputFile, expansion_limit: int = EXPANSION_LIMIT, given: RangeInput = WHOLE_FILE
) -> Iterator[Record | Pair | Dropped]:
    """Yield the records of one file, read in the format that the user named, else in the recognised format.

    If a file is damaged, the records before the damage are kept.

    Without a named format, an unsupported file is dropped; if the user named exactly this file, DataError is raised
    instead. JSON lines and Parquet without a text column are dropped; if the user named exactly this file, its format
    or its column, DataError is raised instead.
    """
    damage: list[Dropped] = []
    stream = _blocks_until_damage(file, expansion_limit, given, damage)
    head = b""
    while len(head) < HEAD_BYTES and (block := next(stream, None)):
        head += block
    contents = chain([head], stream)
    if is_utf16(head):
        contents, head = as_utf8(contents), b"".join(as_utf8(iter([head[: HEAD_BYTES // 2 * 2]])))
    format = file.format or recognise(file.name, head[:HEAD_BYTES], column=file.column)
    if unfit := None if file.format else _drop_unsupported(file, format, head[:HEAD_BYTES]):
        yield unfit
        return
    if head or not damage:
        opened = Opened(
            location=file.location, name=file.name, blocks=contents, column=file.column, language=file.language
        )
        for record in _read(file, FORMATS[str(format)], opened, damage):
            if not (
                damage and isinstance(record, Dropped) and record.reason == "truncated file"
            ):  # `damage` already reports the truncation
                yield record
    yield from damage


def _read(file: InputFile, format: Format, opened: Opened, damage: list[Dropped]) -> Iterator[Record | Pair | Dropped]:
    """Yield the records of an opened file; drop a table that has no text column.

    Raises DataError for such a table if the user named exactly this file, its format or its column, and for a row with
    an open quote, unless the file ended there because of `damage`.
    """
    try:
        yield from format.read(opened)
    except NoTextColumn as error:
        if file.format or file.column or _is_named(file):
            raise DataError(str(error)) from error
        yield dropped(file.name, "no text column", str(error))
    except BadRow:
        if not damage:
            raise


def _drop_unsupported(file: InputFile, format: str | None, head: bytes) -> Dropped | None:
    """Return a drop if a file is unsupported, else None. Raises DataError if the user named exactly this file."""
    reason = unsupported_reason(bare_name(file.name), head)
    advice = UNSUPPORTED[reason].advice if reason else ""
    if reason is None and format is None and file.column is not None:
        reason, advice = (
            "no text column",
            f"::column={file.column} is for JSON lines and Parquet, and this file is neither: leave the option out",
        )
    if reason and _is_named(file):
        raise DataError(f"{file.location}: {advice}")
    if reason or format is None:
        return dropped(file.name, reason or "binary", advice)
    return None


def _is_named(file: InputFile) -> bool:
    """Whether the user named exactly this file, not a folder or a pattern."""
    return file.location == file.source


def _blocks_until_damage(
    file: InputFile, expansion_limit: int, given: RangeInput, damage: list[Dropped]
) -> Iterator[bytes]:
    """Yield the blocks of a file up to the first damage; then append a drop with the reason to `damage`.

    For a byte range of a dump, intact blocks after the damage are yielded too.
    """
    try:
        if file.start is None or file.stop is None:
            yield from blocks(file.location, expansion_limit)
        else:
            stored = stored_pieces(file.location, file.start, file.stop, file.stamp, given.fetched)
            yield from range_text(stored, file.start, file.stop, given.head, expansion_limit)
    except CutOff:
        damage.append(Dropped(id=file.name, reason="truncated file"))
    except Damaged as error:
        damage.append(Dropped(id=file.name, reason="damaged file", sample=str(error)))
    except ExpandsTooFar as error:
        damage.append(Dropped(id=file.name, reason="expands too far", sample=str(error)))


def sketch_document(document: Document, source: str) -> SketchedRow:
    """Return a document as a row of PART, with the sketch of its text."""
    all_hashes = shingle_hashes(document.text)
    sketch = sample_hashes(all_hashes)
    about = {
        "parent_hash": parent_hash(document.parent),
        "hashes": len(sketch),
        "common": int((sketch < np.uint64(COMMON)).sum()),
    }
    key = hashlib.blake2b(document.text.encode(), digest_size=KEY_BYTES).digest()
    return SketchedRow(
        row={"key": key, "source": source} | about | vars(document),
        sketch=sketch,
        size=size_class(all_hashes),
        casing=casing(document.text),
    )


def parent_hash(parent: str) -> int:
    """Return the 64-bit hash of a parent's name."""
    return int.from_bytes(hashlib.blake2b(parent.encode(), digest_size=8).digest(), "big")
