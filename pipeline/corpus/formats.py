"""Table of input file formats, one row per format."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pipeline.config.data import PAIRS
from pipeline.corpus.builtin import read_docstrings
from pipeline.corpus.given_pairs import read_pairs
from pipeline.corpus.gutenberg import is_gutenberg, read_gutenberg
from pipeline.corpus.parquet import is_parquet, read_parquet, read_parquet_sentences
from pipeline.corpus.plain import is_bookscorpus, is_plain_text, read_bookscorpus, read_sentences, read_text
from pipeline.corpus.warc import is_warc, read_warc
from pipeline.corpus.wikiextractor import is_wikiextractor, read_wikiextractor
from pipeline.files.opening import Opened, bare_name
from pipeline.tables.records import is_jsonl, read_jsonl
from pipeline.text.documents import Dropped, Pair, Record
from pipeline.wikipedia.dump import is_dump, read_dump

HEAD_BYTES = 1 << 16
"""Number of decompressed bytes at the start of a file that are used to recognise its format."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """A file format: `read` yields the records of a file; `recognises` tells whether a file has this format.

    `recognises` gets the file's name without compression suffix and the file's first bytes.
    """

    read: Callable[[Opened], Iterator[Record | Pair | Dropped]]
    recognises: Callable[[str, bytes], bool]
    columns: bool = False
    """Whether the user can choose the text column, or the columns of pairs, with ::column=NAME."""


def _never(name: str, head: bytes) -> bool:
    """Return False: the user must name formats that look like other formats."""
    return False


FORMATS: dict[str, Format] = {
    "wikipedia-dump": Format(
        read=lambda file: read_dump(file.blocks, file.name), recognises=lambda name, head: is_dump(head)
    ),
    "builtin": Format(read=lambda file: read_docstrings(file.blocks, file.name), recognises=_never),
    "sentences": Format(read=read_sentences, recognises=_never),
    PAIRS: Format(read=read_pairs, recognises=_never, columns=True),
    "parquet-sentences": Format(read=read_parquet_sentences, recognises=_never, columns=True),
    "parquet": Format(read=read_parquet, recognises=is_parquet, columns=True),
    "wikiextractor": Format(read=read_wikiextractor, recognises=is_wikiextractor),
    "jsonl": Format(read=read_jsonl, recognises=is_jsonl, columns=True),
    "warc": Format(read=read_warc, recognises=is_warc),
    "bookscorpus": Format(read=read_bookscorpus, recognises=is_bookscorpus),
    "gutenberg": Format(read=read_gutenberg, recognises=is_gutenberg),
    "text": Format(read=read_text, recognises=is_plain_text),
}
"""Input file formats, in the order in which they are tried if the user names no format.

A file that no format recognises is binary.
"""


def recognise(name: str, head: bytes, *, column: str | None = None) -> str | None:
    """Return the name of the first format that recognises a file with the first bytes `head`, or None.

    If the user chose a text column, only formats with columns count.
    """
    bare = bare_name(name)
    return next(
        (format for format, row in FORMATS.items() if (row.columns or column is None) and row.recognises(bare, head)),
        None,
    )
