"""Encode sentences to the same ids as `tokenizers`, but faster: the ids of chunks are cached.

Text is cut into chunks only where the tokenizer is certain to end a word (cuts.py). Each distinct chunk is tokenized
once, and its ids are kept in a table. Text whose chunks are in the table costs only a dictionary encoding in Arrow and
a gather in NumPy. The windows of a corpus share most chunks, so a process keeps its table between tasks.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import AddedToken, Tokenizer
from tokenizers.pre_tokenizers import ByteLevel

from pipeline.text.added_token_finder import AddedTokenFinder
from pipeline.text.cuts import Cut, cut_of
from pipeline.text.vocabulary import Vocabulary

TABLE_CHUNKS = 1_000_000
"""A table with more distinct chunks than this is cleared; a chunk takes about 200 bytes."""
LONGEST_KEPT = 100
"""Maximum characters of a chunk that later lookups can find; longer chunks rarely recur and are encoded every time."""
MARK = "\ufdd0\ufdd1"
"""Separator between chunks. One call for all chunks is half the work of one call per chunk.

Both characters are Unicode noncharacters, which no text should contain.
"""


class ChunkTable:
    """Cache of the ids of distinct chunks; cleared when it holds more than `most` chunks."""

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
        """Return the index of each chunk in the table, int64 (len(chunks),); encode and add new chunks first.

        The chunks must be distinct.
        """
        # `offsets` also counts the chunks that are too long for `entries`.
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
        """Return the chunks' concatenated ids, int32 (T,), and the end of each chunk's ids, int64 (len(chunks),)."""
        joined = MARK.join(chunks)
        if joined.count(MARK) != len(chunks) - 1:  # a chunk contains the separator
            ids, offsets = encode_directly(self.unmarked, chunks)
            return ids, offsets[1:]
        ids = np.array(self.tokenizer.encode_batch_fast([joined], add_special_tokens=False)[0].ids, np.int32)
        marks = np.flatnonzero(ids == self.mark_id)
        return np.delete(ids, marks), np.append(marks - np.arange(len(marks)), len(ids) - len(marks))


def encode_directly(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Encode texts with the tokenizer, without a cache.

    Return the concatenated ids, int32 (T,), and the offsets of the texts, int64 (len(texts) + 1,).
    """
    encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    lists = [encoding.ids for encoding in encodings]
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(ids) for ids in lists], out=offsets[1:])
    return np.fromiter(chain.from_iterable(lists), np.int32, count=offsets[-1]), offsets


_tables: dict[tuple[str, bool, int], ChunkTable] = {}
"""Tables of this process, kept between tasks, by the vocabulary's fingerprint and the settings of CachedTokenizer."""


class CachedTokenizer:
    """Encoder that gives the same ids as `tokenizers`; the name of a special token in a text is ordinary text.

    Added tokens match. With `special_added`, those that the vocabulary's file marks as special match, too: they are
    markers in the rows of a task, but a corpus may spell them out by chance. The five special tokens never match.

    A table with more than `table_chunks` distinct chunks is cleared. Pickling does not include the table.
    """

    def __init__(
        self, vocabulary: Vocabulary, table_chunks: int = TABLE_CHUNKS, *, special_added: bool = False
    ) -> None:
        self.vocabulary = vocabulary
        self.table_chunks = table_chunks
        self.special_added = special_added

    def __getstate__(self) -> dict[str, Any]:
        return {
            "vocabulary": self.vocabulary,
            "table_chunks": self.table_chunks,
            "special_added": self.special_added,
        }

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return self.vocabulary.tokenizer(self.vocabulary.matching(special=self.special_added))

    @cached_property
    def finder(self) -> AddedTokenFinder | None:
        """Return the finder of texts with added tokens; None if the vocabulary has none that match."""
        tokens = self.vocabulary.matching(special=self.special_added)
        return AddedTokenFinder(tokens, self.tokenizer) if tokens else None

    @cached_property
    def for_prompts(self) -> "CachedTokenizer":
        """Return the encoder in which special added tokens match: a prompt spells them out on purpose."""
        if self.special_added or not self.vocabulary.added:
            return self
        return CachedTokenizer(self.vocabulary, self.table_chunks, special_added=True)

    @cached_property
    def cut(self) -> Cut | None:
        """Return the function that marks where text may be cut; None if no cut is known to be safe."""
        return cut_of(self.vocabulary)

    @property
    def table(self) -> ChunkTable:
        """Return this process's table for the vocabulary."""
        key = (self.vocabulary.fingerprint, self.special_added, self.table_chunks)
        if key not in _tables:
            tokenizer = self.vocabulary.model_tokenizer(self.vocabulary.matching(special=self.special_added))
            if isinstance(tokenizer.pre_tokenizer, ByteLevel):
                # CachedTokenizer.encode puts a space before a sentence; ByteLevel must not put it before each chunk.
                tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
            _tables[key] = ChunkTable(tokenizer, self.table_chunks)
        return _tables[key]

    def encode(self, sentences: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the concatenated ids of all sentences, int32 (T,), and their offsets, int64 (len(sentences) + 1,).

        No special tokens are added. A sentence may have no ids, for example if it has only control characters.
        """
        if self.cut is None:
            return encode_directly(self.tokenizer, sentences)
        found = self.finder.find(sentences) if self.finder else ()
        if len(found):
            return self._encode_some_directly(sentences, found, self.cut)
        return self._encode_cut(sentences, self.cut)

    def _encode_some_directly(self, sentences: list[str], found: np.ndarray, cut: Cut) -> tuple[np.ndarray, np.ndarray]:
        """Encode the sentences with the indices `found`, which may have added tokens, without the table."""
        direct = np.zeros(len(sentences), bool)
        direct[found] = True
        others = np.flatnonzero(~direct)
        ids, offsets = encode_directly(self.tokenizer, [sentences[index] for index in found])
        cut_ids, cut_offsets = self._encode_cut([sentences[index] for index in others], cut)
        order = np.argsort(np.concatenate((found, others)))
        offsets = np.append(offsets, offsets[-1] + cut_offsets[1:])
        return concatenate_runs(np.concatenate((ids, cut_ids)), offsets, order)

    def _encode_cut(self, sentences: list[str], cut: Cut) -> tuple[np.ndarray, np.ndarray]:
        """Encode sentences without added tokens by the table of chunks."""
        if self.vocabulary.keeps_spaces:
            sentences = _with_first_spaces(sentences, self.tokenizer)
        content = "".join(sentences).encode()
        text = np.frombuffer(content, np.uint8)
        bounds = _byte_offsets(sentences, text)
        cuts = np.append(cut(text, bounds), True)
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
    """Concatenate the runs of ids with these indices; run i is ids[offsets[i] : offsets[i + 1]].

    Return the concatenation and the offsets of its runs, int64 (len(indices) + 1,).
    """
    starts = offsets[indices]
    lengths = offsets[indices + 1] - starts
    bounds = np.zeros(len(indices) + 1, np.int64)
    np.cumsum(lengths, out=bounds[1:])
    return ids[np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], lengths)], bounds


def _with_first_spaces(sentences: list[str], tokenizer: Tokenizer) -> list[str]:
    """Put a space before each sentence for which the tokenizer (byte-level BPE) would put one."""
    splitter, normalizer = tokenizer.pre_tokenizer, tokenizer.normalizer
    if not isinstance(splitter, ByteLevel) or not splitter.add_prefix_space:
        return sentences
    normalized = [normalizer.normalize_str(sentence) for sentence in sentences] if normalizer else sentences
    return [
        sentence if text == "" or text.startswith(" ") else f" {sentence}"
        for sentence, text in zip(sentences, normalized, strict=True)
    ]


def _byte_offsets(sentences: list[str], text: np.ndarray) -> np.ndarray:
    """Return the byte offsets of the sentences in `text`, int64 (len(sentences) + 1,).

    `text` is the concatenation of the sentences as UTF-8, uint8.
    """
    characters = np.zeros(len(sentences) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, sentences), np.int64, count=len(sentences)), out=characters[1:])
    if characters[-1] == len(text):  # all characters are ASCII, one byte each
        return characters
    return np.append(np.flatnonzero((text & 0xC0) != 0x80), len(text))[characters]
