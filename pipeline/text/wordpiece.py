"""Sentences to token ids: the ids of `tokenizers`, looked up chunk by chunk.

Text is cut where the tokenizer surely ends a word: at spaces, and around punctuation and Chinese characters. Each distinct chunk goes to
the tokenizer once and its ids stay in a table, so that text costs a dictionary encoding in Arrow and a gather in NumPy.
A corpus' windows share most of their chunks: the table outlives the tasks that a process runs.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import AddedToken, Tokenizer

from pipeline.config.training import Placement
from pipeline.text.vocabulary import Vocabulary

TABLE_CHUNKS = Placement.table_chunks
LONGEST_KEPT = 100
"""Bytes; longer chunks seldom come again."""
SPACE, NEW_LINE = 0x20, 0x0A
ENDS, STARTS = 1, 2
MARK = "\n \n"
"""Stands between chunks that are encoded together, half the work of one by one; a chunk has white space at its end only."""


def byte_classes() -> np.ndarray:
    """Of each byte, uint8 (256,): whether a chunk ends after it, and whether one starts at it. ASCII punctuation does both."""
    classes = np.zeros(256, np.uint8)
    classes[[code for code in range(33, 127) if not chr(code).isalnum()]] = ENDS | STARTS
    classes[[SPACE, NEW_LINE]] = ENDS
    return classes


CLASSES = byte_classes()


def chunk_ends(text: np.ndarray, chinese_characters: bool) -> np.ndarray:
    """One past the last byte of each chunk of UTF-8 text, rising, int64. Text that does not end a chunk at its end has none there."""
    classes = CLASSES[text]
    ends = (classes & ENDS).view(bool)
    ends[:-1] |= classes[1:] >= STARTS
    if len(text) and text.max() >= 0x80:
        first = np.flatnonzero(starts_of_single_characters(text, chinese_characters))
        ends[first[first > 0] - 1] = True
        ends[first + 2] = True
    return np.flatnonzero(ends) + 1


def starts_of_single_characters(text: np.ndarray, chinese_characters: bool) -> np.ndarray:
    """Where a character of three bytes starts that is a word of its own, bool: a dash, quote or ellipsis (U+2010 to U+2027), or U+4E00 to U+9FFF."""
    found = np.zeros(len(text), bool)
    first, second, third = text[:-2], text[1:-1], text[2:]
    found[:-2] = (first == 0xE2) & (second == 0x80) & (third >= 0x90) & (third <= 0xA7)
    if chinese_characters:
        found[:-2] |= (first >= 0xE5) & (first <= 0xE9) | (first == 0xE4) & (second >= 0xB8)
    return found


class ChunkTable:
    """The ids of the distinct chunks seen, which are forgotten when there are too many of them."""

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

    def places(self, chunks: list[str]) -> np.ndarray:
        """Where each of these distinct chunks stands in the table, int64; those that are new are encoded now."""
        if len(self.entries) > self.most or len(self.offsets) > 2 * self.most:
            self.forget()
        get = self.entries.get
        found = np.fromiter((get(chunk, -1) for chunk in chunks), np.int64, count=len(chunks))
        new = np.flatnonzero(found < 0)
        if len(new):
            found[new] = np.arange(len(new)) + len(self.offsets) - 1
            self.add([chunks[place] for place in new])
        return found

    def add(self, chunks: list[str]) -> None:
        """Encode new chunks and put their ids behind the others'."""
        first = len(self.offsets) - 1
        ids = np.array(self.tokenizer.encode_batch_fast([MARK.join(chunks)], add_special_tokens=False)[0].ids, np.int32)
        marks = np.flatnonzero(ids == self.mark_id)
        assert len(marks) == len(chunks) - 1, "no chunk holds a mark"
        self.offsets = np.concatenate(
            (self.offsets, self.offsets[-1] + np.append(marks - np.arange(len(marks)), len(ids) - len(marks)))
        )
        self.ids = np.concatenate((self.ids, np.delete(ids, marks)))
        self.entries.update((chunk, first + place) for place, chunk in enumerate(chunks) if len(chunk) <= LONGEST_KEPT)


def encode_directly(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Ids of all texts in one run, int32 (T,), and where each begins and the last ends, int64 (len + 1,), by the tokenizer alone."""
    encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    lists = [encoding.ids for encoding in encodings]
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(ids) for ids in lists], out=offsets[1:])
    return np.fromiter(chain.from_iterable(lists), np.int32, count=offsets[-1]), offsets


_tables: dict[tuple[str, int], ChunkTable] = {}
"""By the vocabulary's fingerprint: what a process keeps from one task to the next."""


class WordPiece:
    """The ids that `tokenizers` gives for a vocabulary, special tokens in the text being text.

    `table_chunks` bounds the table: when it holds more distinct chunks it starts anew. It can be pickled; the table stays where it is.
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
        """This process' table for the vocabulary."""
        key = (self.vocabulary.fingerprint, self.table_chunks)
        if key not in _tables:
            _tables[key] = ChunkTable(self.vocabulary.tokenizer(), self.table_chunks)
        return _tables[key]

    def encode(self, sentences: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids of all sentences in one run, int32 (T,), and where each begins and the last ends, int64 (len + 1,).

        No special tokens are added. A sentence may have no ids (nothing but control characters).
        """
        if self.vocabulary.kind != "wordpiece":  # their words begin with the space before them
            return encode_directly(self.tokenizer, sentences)
        content = one_a_line(sentences).encode()
        text = np.frombuffer(content, np.uint8)
        ends = chunk_ends(text, self.vocabulary.chinese_characters)
        chunks = pa.StringArray.from_buffers(
            len(ends), pa.py_buffer(np.append(0, ends).astype(np.int32)), pa.py_buffer(content)
        ).dictionary_encode()
        table = self.table
        places = table.places(chunks.dictionary.to_pylist())[chunks.indices.to_numpy()]
        ids, offsets = concatenate_runs(table.ids, table.offsets, places)
        return ids, offsets[sentence_bounds(text, ends)]


def concatenate_runs(ids: np.ndarray, offsets: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The runs of `ids` at these places one after the other, and their bounds, int64 (len(places) + 1,)."""
    starts = offsets[places]
    lengths = offsets[places + 1] - starts
    bounds = np.zeros(len(places) + 1, np.int64)
    np.cumsum(lengths, out=bounds[1:])
    return ids[np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], lengths)], bounds


def one_a_line(sentences: list[str]) -> str:
    """Every sentence with a line feed after it; one within a sentence is a space, which ends a word as well."""
    text = "\n".join([*sentences, ""])
    return (
        text
        if text.count("\n") == len(sentences)
        else "\n".join([*(sentence.replace("\n", " ") for sentence in sentences), ""])
    )


def sentence_bounds(text: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Places in the chunks where each line begins and the last ends, int64 (lines + 1,)."""
    lines = np.flatnonzero(text == NEW_LINE) + 1
    return np.append(0, np.searchsorted(ends, lines) + 1)
