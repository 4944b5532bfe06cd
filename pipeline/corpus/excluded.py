"""Texts that a corpus must not contain, such as test sets: documents in which one of them is found are left out."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.files import storage
from pipeline.reporting import Report
from pipeline.tables.texts import texts_of
from pipeline.text.ngrams import LEAST_WORDS, TextFinder, WordSpans, parts_of


def texts_to_exclude(files: Sequence[str], report: Report) -> list[str]:
    """Return the texts of the files; report their number. Raises DataError for a file that cannot be read."""
    texts = list(dict.fromkeys(text for file in files for text in texts_of(file)))
    short = int((WordSpans.of(texts).lengths < LEAST_WORDS).sum())
    report(f"exclude: {len(texts):,} texts; {short:,} with fewer than {LEAST_WORDS} words exclude nothing")
    return texts


def write_excluded(location: str, texts: Sequence[str]) -> None:
    """Write the texts to a Parquet file, column text, for the tasks that write shards."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": pa.array(texts, pa.large_string())}), sink, compression="zstd")
    storage.write_bytes(location, sink.getvalue())


def holds_excluded(texts: pa.ChunkedArray, location: str) -> np.ndarray:
    """Return which of the texts contain a text of the file that write_excluded has written, bool (texts,)."""
    finder, found = _finder(location), np.zeros(len(texts), bool)
    for start, part in parts_of(texts.to_pylist()):
        searched = WordSpans.of(part)
        found[start + searched.texts[finder.find(searched).at]] = True
    return found


@lru_cache(maxsize=1)
def _finder(location: str) -> TextFinder:
    """Return the finder of the texts in a file; it is kept, because a process writes many shards."""
    table = pq.read_table(pa.BufferReader(storage.read_bytes(location)))
    return TextFinder(WordSpans.of(table["text"].to_pylist()))
