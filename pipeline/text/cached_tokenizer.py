"""Encode sentences to exactly the ids of `tokenizers`, looked up chunk by chunk.

Text is cut where the tokenizer certainly ends a word (cuts.py). Each distinct chunk goes to the tokenizer once and its
ids are cached in a table, so that encoding costs a dictionary encoding in Arrow and a gather in NumPy. The windows of a
corpus share most chunks: the table is kept between tasks of a process.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import AddedToken, Tokenizer
from tokenizers.pre_tokenizers import ByteLevel

from pipeline.text.cuts import Cut, cut_of
from pipeline.text.vocabulary import Vocabulary

TABLE_CHUNKS = 1_000_000
"""Distinct chunks that a table keeps, about 200 bytes each."""
LONGEST_KEPT = 100
"""Bytes; longer chunks rarely recur."""
MARK = "\ufdd0\ufdd1"
"""Separator of chunks encoded together (half the work of one by one), of two characters that no text should have."""


class ChunkTable:
    """Cache of the ids of distinct chunks; cleared when it has too many."""

    def __init__(self, tokenizer: Tokenizer, most: int) -> None:
        self.unmarked = Tokenizer.from_str(tokenizer.to_str())
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
        entries = np.fromiter((get(chunk, -1) for chunk in chunks), np.int64, count=len(chunks))
        new = np.flatnonzero(entries < 0)
        if len(new):
            entries[new] = np.arange(len(new)) + len(self.offsets) - 1
            self.add([chunks[index] for index in new])
        return entries

    def add(self, chunks: list[str]) -> None:
        """Encode new chunks and append their ids."""
        first = len(self.offsets) - 1
        ids, ends = self._encode(chunks)
        self.offsets = np.concatenate((self.offsets, self.offsets[-1] + ends))
        self.ids = np.concatenate((self.ids, ids))
        self.entries.update((chunk, first + index) for index, chunk in enumerate(chunks) if len(chunk) <= LONGEST_KEPT)

    def _encode(self, chunks: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the concatenated ids of chunks, int32, and where each one's end, int64 (len(chunks),)."""
        joined = MARK.join(chunks)
        if joined.count(MARK) != len(chunks) - 1:  # a text has the separator
            ids, offsets = encode_directly(self.unmarked, chunks)
            return ids, offsets[1:]
        ids = np.array(self.tokenizer.encode_batch_fast([joined], add_special_tokens=False)[0].ids, np.int32)
        marks = np.flatnonzero(ids == self.mark_id)
        return np.delete(ids, marks), np.append(marks - np.arange(len(marks)), len(ids) - len(marks))


def encode_directly(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Encode texts by the tokenizer alone: concatenated ids, int32 (T,), and offsets, int64 (len + 1,)."""
    encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    lists = [encoding.ids for encoding in encodings]
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(ids) for ids in lists], out=offsets[1:])
    return np.fromiter(chain.from_iterable(lists), np.int32, count=offsets[-1]), offsets


_tables: dict[tuple[str, int], ChunkTable] = {}
"""By vocabulary fingerprint; kept by a process between tasks."""


class CachedTokenizer:
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

    @cached_property
    def cut(self) -> Cut | None:
        """Return the function that says where text may be cut; None: nowhere, as far as is known."""
        return cut_of(self.vocabulary)

    @property
    def table(self) -> ChunkTable:
        """Return this process' table for the vocabulary."""
        key = (self.vocabulary.fingerprint, self.table_chunks)
        if key not in _tables:
            tokenizer = self.vocabulary.tokenizer()
            if isinstance(tokenizer.pre_tokenizer, ByteLevel):
                tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)  # most chunks do not begin a text
            _tables[key] = ChunkTable(tokenizer, self.table_chunks)
        return _tables[key]

    def encode(self, sentences: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the concatenated ids of all sentences, int32 (T,), and their offsets, int64 (len + 1,).

        No special tokens are added. A sentence may have no ids (only control characters).
        """
        if self.cut is None:
            return encode_directly(self.tokenizer, sentences)
        if self.vocabulary.keeps_spaces:
            sentences = _with_first_spaces(sentences, self.tokenizer)
        content = "".join(sentences).encode()
        text = np.frombuffer(content, np.uint8)
        bounds = _byte_offsets(sentences, text)
        cuts = np.append(self.cut(text, bounds), True)
        cuts[bounds] = True
        edges = np.flatnonzero(cuts)
        chunks = pa.StringArray.from_buffers(
            len(edges) - 1, pa.py_buffer(edges.astype(np.int32)), pa.py_buffer(content)
        ).dictionary_encode()
        table = self.table
        indices = table.lookup(chunks.dictionary.to_pylist())[chunks.indices.to_numpy()]
        ids, offsets = concatenate_runs(table.ids, table.offsets, indices)
        return ids, offsets[np.searchsorted(edges, bounds)]


def concatenate_runs(ids: np.ndarray, offsets: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Concatenate the runs of `ids` at these indices; return them and their offsets, int64 (len(indices) + 1,)."""
    starts = offsets[indices]
    lengths = offsets[indices + 1] - starts
    bounds = np.zeros(len(indices) + 1, np.int64)
    np.cumsum(lengths, out=bounds[1:])
    return ids[np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], lengths)], bounds


def _with_first_spaces(sentences: list[str], tokenizer: Tokenizer) -> list[str]:
    """Return the sentences with the space that a tokenizer of byte-level BPE may put before each."""
    splitter, normalizer = tokenizer.pre_tokenizer, tokenizer.normalizer
    if not isinstance(splitter, ByteLevel) or not splitter.add_prefix_space:
        return sentences
    normalized = [normalizer.normalize_str(sentence) for sentence in sentences] if normalizer else sentences
    return [
        sentence if begins == "" or begins.startswith(" ") else f" {sentence}"
        for sentence, begins in zip(sentences, normalized, strict=True)
    ]


def _byte_offsets(sentences: list[str], text: np.ndarray) -> np.ndarray:
    """Return the offsets of sentences in their UTF-8 text, int64 (len + 1,)."""
    characters = np.zeros(len(sentences) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, sentences), np.int64, count=len(sentences)), out=characters[1:])
    if characters[-1] == len(text):  # ASCII
        return characters
    return np.append(np.flatnonzero((text & 0xC0) != 0x80), len(text))[characters]
