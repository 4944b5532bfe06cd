"""The words of rows as they were before masking, and which of them were masked."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from pipeline.show.rows import text_of
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.ngrams import WHITE_SPACE, WordSpans, ragged
from pipeline.text.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class TokenTexts:
    """Each entry of a vocabulary as normalised text, with a space before it if it begins a word."""

    cls_id: int
    data: np.ndarray
    """uint8: the texts, one after the other."""
    offsets: np.ndarray
    """int64 (size + 1,): offsets of the texts."""

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> Self:
        """Decode each entry. A special token is a space, also [UNK], which may stand for a word or a sign.

        In byte-level BPE, the first word of a paragraph has no space before it, so a capital begins a word there.
        """
        special = vocabulary.specials[:5]
        texts = [" " if token in special else text_of(vocabulary, [id]) for id, token in enumerate(vocabulary.tokens)]
        if vocabulary.keeps_spaces:
            texts = [f" {text}" if text[:1].isupper() else text for text in texts]
        encoded = [WHITE_SPACE.sub(" ", text).lower().encode(errors="replace") for text in texts]
        data = np.frombuffer(b"".join(encoded), np.uint8)
        return cls(cls_id=vocabulary.cls_id, data=data, offsets=np.cumsum([0, *map(len, encoded)]))

    def decode(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the text of ids as bytes, uint8, and the offset of each id's text in it, int64 (ids + 1,)."""
        sizes = self.offsets[ids + 1] - self.offsets[ids]
        return self.data[ragged(self.offsets[ids], sizes)], np.append(0, np.cumsum(sizes))


def words_as_read(texts: list[str], tokenizer: CachedTokenizer, tokens: TokenTexts) -> WordSpans:
    """Return the words of texts as rows have them: without what the vocabulary removes, such as accents."""
    ids, offsets = tokenizer.encode([" ".join(text.split()) for text in texts])
    data, edges = tokens.decode(np.insert(ids, offsets[:-1], tokens.cls_id))
    return WordSpans.of_bytes(data, edges[offsets + np.arange(len(offsets))])


def words_of_rows(rows: pa.Table, tokens: TokenTexts) -> tuple[WordSpans, np.ndarray]:
    """Return the words of rows (schema EXAMPLE) before masking, and whether each was masked, bool (words,)."""
    ids, offsets = _flat(rows, "ids")
    masks, mask_offsets = _flat(rows, "masked_positions")
    masks = masks + np.repeat(offsets[:-1], np.diff(mask_offsets))
    ids = ids.copy()
    ids[masks] = _flat(rows, "masked_labels")[0]
    data, edges = tokens.decode(ids)
    words = WordSpans.of_bytes(data, edges[offsets])
    is_masked = np.zeros(len(data) + 1, np.int64)
    is_masked[1 + ragged(edges[masks], edges[masks + 1] - edges[masks])] = 1
    before = np.cumsum(is_masked)
    return words, before[words.stops] > before[words.starts]


def _flat(rows: pa.Table, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of a column of lists, and the offsets of its rows."""
    column = rows[name].combine_chunks()
    return column.flatten().to_numpy(), np.append(0, np.cumsum(column.value_lengths().to_numpy()))
