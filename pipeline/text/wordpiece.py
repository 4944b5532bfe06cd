"""Encode sentences to exactly the ids of `tokenizers`, looked up chunk by chunk.

Text is cut where the tokenizer certainly ends a word: at spaces, and around punctuation and Chinese characters. Each
distinct chunk goes to the tokenizer once and its ids are cached in a table, so that encoding costs a dictionary
encoding in Arrow and a gather in NumPy. The windows of a corpus share most chunks: the table is kept between tasks of a
process.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import AddedToken, Tokenizer

from pipeline.text.vocabulary import Vocabulary

TABLE_CHUNKS = 1_000_000
"""Distinct chunks that a table keeps, about 200 bytes each."""
LONGEST_KEPT = 100
"""Bytes; longer chunks rarely recur."""
SPACE, NEW_LINE = 0x20, 0x0A
ENDS, STARTS = 1, 2
MARK = "\n \n"
"""Separator of chunks encoded together (half the work of one by one); chunks have white space at the end only."""


def _byte_classes() -> np.ndarray:
    """Return for each byte whether a chunk ends after it and whether one starts at it, uint8 (256,).

    ASCII punctuation does both.
    """
    classes = np.zeros(256, np.uint8)
    classes[[code for code in range(33, 127) if not chr(code).isalnum()]] = ENDS | STARTS
    classes[[SPACE, NEW_LINE]] = ENDS
    return classes


CLASSES = _byte_classes()


def chunk_ends(text: np.ndarray, chinese_characters: bool) -> np.ndarray:
    """Return one past the last byte of each chunk of UTF-8 text, increasing int64; an unfinished chunk has none."""
    classes = CLASSES[text]
    ends = (classes & ENDS).view(bool)
    ends[:-1] |= classes[1:] >= STARTS
    if len(text) and text.max() >= 0x80:
        first = np.flatnonzero(_starts_of_single_characters(text, chinese_characters))
        ends[first[first > 0] - 1] = True
        ends[first + 2] = True
    return np.flatnonzero(ends) + 1


def _starts_of_single_characters(text: np.ndarray, chinese_characters: bool) -> np.ndarray:
    """Return where a three-byte character starts that is a word by itself, bool.

    These are dashes, quotes and ellipses (U+2010 to U+2027), and U+4E00 to U+9FFF if `chinese_characters`.
    """
    starts = np.zeros(len(text), bool)
    first, second, third = text[:-2], text[1:-1], text[2:]
    starts[:-2] = (first == 0xE2) & (second == 0x80) & (third >= 0x90) & (third <= 0xA7)
    if chinese_characters:
        starts[:-2] |= (first >= 0xE5) & (first <= 0xE9) | (first == 0xE4) & (second >= 0xB8)
    return starts


class ChunkTable:
    """Cache of the ids of distinct chunks; cleared when it has too many."""

    def __init__(self, tokenizer: Tokenizer, most: int) -> None:
        tokenizer.add_special_tokens([AddedToken(MARK, normalized=False)])
        self.tokenizer = tokenizer
        self.mark_id = tokenizer.token_to_id(MARK)
        self.most = most
        self.forget()

    def forget(self) -> None:
        self.entries: dict[str, int] = {}
        self.ids = np.zeros(0, np.int32)
        self.offsets = np.zeros(1, np.int64)

    def lookup(self, chunks: list[str]) -> np.ndarray:
        """Return the index of each of these distinct chunks in the table, int64; new chunks are encoded now."""
        if len(self.entries) > self.most or len(self.offsets) > 2 * self.most:
            self.forget()
        get = self.entries.get
        found = np.fromiter((get(chunk, -1) for chunk in chunks), np.int64, count=len(chunks))
        new = np.flatnonzero(found < 0)
        if len(new):
            found[new] = np.arange(len(new)) + len(self.offsets) - 1
            self.add([chunks[index] for index in new])
        return found

    def add(self, chunks: list[str]) -> None:
        """Encode new chunks and append their ids."""
        first = len(self.offsets) - 1
        ids = np.array(self.tokenizer.encode_batch_fast([MARK.join(chunks)], add_special_tokens=False)[0].ids, np.int32)
        marks = np.flatnonzero(ids == self.mark_id)
        assert len(marks) == len(chunks) - 1, "no chunk contains the separator"
        self.offsets = np.concatenate(
            (self.offsets, self.offsets[-1] + np.append(marks - np.arange(len(marks)), len(ids) - len(marks)))
        )
        self.ids = np.concatenate((self.ids, np.delete(ids, marks)))
        self.entries.update((chunk, first + index) for index, chunk in enumerate(chunks) if len(chunk) <= LONGEST_KEPT)


def encode_directly(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Encode texts by the tokenizer alone: concatenated ids, int32 (T,), and offsets, int64 (len + 1,)."""
    encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    lists = [encoding.ids for encoding in encodings]
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(ids) for ids in lists], out=offsets[1:])
    return np.fromiter(chain.from_iterable(lists), np.int32, count=offsets[-1]), offsets


_tables: dict[tuple[str, int], ChunkTable] = {}
"""By vocabulary fingerprint; kept by a process between tasks."""


class WordPiece:
    """Encoder with exactly the ids of `tokenizers`; special tokens in the text are ordinary text.

    `table_chunks` bounds the table: with more distinct chunks it is cleared. Pickling leaves the table behind.
    """

    def __init__(self, vocabulary: Vocabulary, table_chunks: int = TABLE_CHUNKS) -> None:
        self.vocabulary = vocabulary
        self.table_chunks = table_chunks

    def __getstate__(self) -> dict[str, Any]:
        return {"vocabulary": self.vocabulary, "table_chunks": self.table_chunks}

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return self.vocabulary.tokenizer()

    @property
    def table(self) -> ChunkTable:
        """Return this process' table for the vocabulary."""
        key = (self.vocabulary.fingerprint, self.table_chunks)
        if key not in _tables:
            _tables[key] = ChunkTable(self.vocabulary.tokenizer(), self.table_chunks)
        return _tables[key]

    def encode(self, sentences: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the concatenated ids of all sentences, int32 (T,), and their offsets, int64 (len + 1,).

        No special tokens are added. A sentence may have no ids (only control characters).
        """
        if self.vocabulary.kind != "wordpiece":  # other kinds' words begin with the space before them
            return encode_directly(self.tokenizer, sentences)
        content = _one_a_line(sentences).encode()
        text = np.frombuffer(content, np.uint8)
        ends = chunk_ends(text, self.vocabulary.chinese_characters)
        chunks = pa.StringArray.from_buffers(
            len(ends), pa.py_buffer(np.append(0, ends).astype(np.int32)), pa.py_buffer(content)
        ).dictionary_encode()
        table = self.table
        indices = table.lookup(chunks.dictionary.to_pylist())[chunks.indices.to_numpy()]
        ids, offsets = concatenate_runs(table.ids, table.offsets, indices)
        return ids, offsets[_sentence_bounds(text, ends)]


def concatenate_runs(ids: np.ndarray, offsets: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Concatenate the runs of `ids` at these indices; return them and their offsets, int64 (len(indices) + 1,)."""
    starts = offsets[indices]
    lengths = offsets[indices + 1] - starts
    bounds = np.zeros(len(indices) + 1, np.int64)
    np.cumsum(lengths, out=bounds[1:])
    return ids[np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], lengths)], bounds


def _one_a_line(sentences: list[str]) -> str:
    """Join sentences with a line feed after each; one within a sentence becomes a space, which also ends a word."""
    text = "\n".join([*sentences, ""])
    return (
        text
        if text.count("\n") == len(sentences)
        else "\n".join([*(sentence.replace("\n", " ") for sentence in sentences), ""])
    )


def _sentence_bounds(text: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the offset of each line in the chunks, int64 (lines + 1,)."""
    lines = np.flatnonzero(text == NEW_LINE) + 1
    return np.append(0, np.searchsorted(ends, lines) + 1)
