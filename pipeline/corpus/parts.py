"""First stage of preparation: a batch of input files -> Parquet parts, sorted by a hash of the text."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import storage
from pipeline.corpus.formats import FORMATS, HEAD_BYTES, recognise
from pipeline.corpus.inputs import InputFile
from pipeline.corpus.opening import CutOff, Damaged, blocks
from pipeline.text.documents import Document, Dropped, Reason, Record, documents
from pipeline.text.schema import DOCUMENT

KEY_BYTES = 16
PART = pa.schema([pa.field("key", pa.binary(KEY_BYTES), nullable=False), *DOCUMENT])
VERSION = 1
"""Goes up when the same input gives other parts, so that an unfinished preparation is not continued with old ones."""
PART_CHARACTERS = 48_000_000
TABLE_CHARACTERS = 4_000_000
"""Text held as Python strings before it becomes Arrow memory."""
GROUP_BYTES = 250_000
"""Size of a part's row groups, so that a shard reads little more of a part than its share."""
BATCH_BYTES = 8_000_000
BATCH_FILES = 500
MOST_BATCHES = 2_000
SAMPLES = 3


@dataclass(kw_only=True)
class Tally:
    """What became of some input: counts, and for each reason a few of what was dropped as [id, beginning of the text]."""

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
    """Deal files to tasks: about 8 MB and at most 500 files each, a larger file alone; a function of the files only."""
    total = sum(max(file.bytes, 0) for file in files)
    most_bytes, most_files = max(BATCH_BYTES, total // MOST_BATCHES), max(BATCH_FILES, len(files) // MOST_BATCHES)
    dealt: list[list[InputFile]] = []
    size = 0
    for file in sorted(files, key=lambda file: file.name):
        if not dealt or size + max(file.bytes, 0) > most_bytes or len(dealt[-1]) >= most_files:
            dealt.append([])
            size = 0
        dealt[-1].append(file)
        size += max(file.bytes, 0)
    return dealt


def digest(files: Sequence[InputFile], piece_characters: int, minimum_characters: int) -> str:
    """Name of the parts of a batch: 16 hexadecimal digits of its files and of the settings that the parts depend on."""
    about = [VERSION, piece_characters, minimum_characters, [astuple(file) for file in files]]
    return hashlib.blake2b(json.dumps(about).encode(), digest_size=8).hexdigest()


def write_parts(files: Sequence[InputFile], folder: str, piece_characters: int, minimum_characters: int) -> dict[str, Any]:
    """Write the parts of a batch into a folder, unless they are there, and return {"parts": names, "tally": the fields of a Tally}.

    Memory is bounded by one part, whatever the size of the files. Raises DataError where a file cannot be read.
    """
    name = digest(files, piece_characters, minimum_characters)
    done = storage.join(folder, f"{name}.json")
    try:
        return storage.read_json(done)
    except FileNotFoundError:
        pass
    tally = Tally()
    rows = chain.from_iterable(file_rows(file, tally, piece_characters, minimum_characters) for file in files)
    parts = []
    for number, table in enumerate(part_tables(rows)):
        parts.append(f"{name}-{number:05d}.parquet")
        storage.write_bytes(storage.join(folder, parts[-1]), part_bytes(table))
    report = {"parts": parts, "tally": asdict(tally)}
    storage.write_json(done, report)
    return report


def file_rows(file: InputFile, tally: Tally, piece_characters: int, minimum_characters: int) -> Iterator[dict[str, Any]]:
    """The rows of one file, counted in the tally."""
    for item in file_documents(file, piece_characters, minimum_characters):
        if isinstance(item, Dropped):
            tally.drop(item)
        else:
            tally.pieces += 1
            tally.characters += len(item.text)
            yield row(item, file.source)
    tally.files += 1


def file_documents(file: InputFile, piece_characters: int, minimum_characters: int) -> Iterator[Document | Dropped]:
    """The documents of one file and what is dropped of it."""
    for record in file_records(file):
        if isinstance(record, Dropped):
            yield record
        else:
            yield from documents(record, piece_characters, minimum_characters)


def file_records(file: InputFile) -> Iterator[Record | Dropped]:
    """The records of one file, in its own format or the one that its name and first bytes show; what comes before damage is kept."""
    damage: list[Reason] = []
    stream = until_damage(file.location, damage)
    head = b""
    while len(head) < HEAD_BYTES and (block := next(stream, None)):
        head += block
    format = file.format or recognise(file.name, head[:HEAD_BYTES])
    if format is None:
        yield Dropped(id=file.name, reason="binary")
        return
    if head or not damage:
        yield from FORMATS[format].read(chain([head], stream), file.name)
    yield from (Dropped(id=file.name, reason=reason) for reason in damage)


def until_damage(location: str, damage: list[Reason]) -> Iterator[bytes]:
    """The blocks of a file up to where its compressed data breaks, and then the reason as the one entry of `damage`."""
    try:
        yield from blocks(location)
    except CutOff:
        damage.append("truncated file")
    except Damaged:
        damage.append("damaged file")


def row(document: Document, source: str) -> dict[str, Any]:
    """A document as a row of PART."""
    key = hashlib.blake2b(document.text.encode(), digest_size=KEY_BYTES).digest()
    return {"key": key, "source": source, **vars(document)}


def part_tables(rows: Iterable[dict[str, Any]]) -> Iterator[pa.Table]:
    """Gather rows to sorted tables of about 48 million characters."""
    tables: list[pa.Table] = []
    held: list[dict[str, Any]] = []
    size = gathered = 0
    for item in rows:
        held.append(item)
        size += len(item["text"])
        if size >= TABLE_CHARACTERS:
            tables.append(pa.Table.from_pylist(held, schema=PART))
            gathered += size
            held, size = [], 0
        if gathered >= PART_CHARACTERS:
            yield in_order(pa.concat_tables(tables))
            tables, gathered = [], 0
    if tables or held:
        yield in_order(pa.concat_tables([*tables, pa.Table.from_pylist(held, schema=PART)]))


def in_order(table: pa.Table) -> pa.Table:
    """Rows by the hash of their text, and those of the same text by id."""
    return table.sort_by([("key", "ascending"), ("id", "ascending")])


def part_bytes(table: pa.Table) -> pa.Buffer:
    """A part as a Parquet file of small row groups."""
    rows = max(1, table.num_rows * GROUP_BYTES // max(1, table.nbytes))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=rows, compression="zstd", compression_level=1, write_statistics=["key"])
    return sink.getvalue()
