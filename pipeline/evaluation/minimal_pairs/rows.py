"""Make masked copies of sentences. The pseudo-log-likelihood of a sentence is a sum over its masked copies.

Shapes: S sentences with U pieces in all, R rows. A row is a whole sentence with some pieces masked. The model predicts
only the first masked piece, which is called the asked piece.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pipeline.batch import MaskedBatch
from pipeline.errors import DataError, shown
from pipeline.text.vocabulary import Vocabulary

SPECIALS = 2  # [CLS] sentence [SEP]


@dataclass(frozen=True, kw_only=True)
class SentenceRows:
    """Encoded sentences, concatenated, without special tokens."""

    ids: np.ndarray
    """int64 (U,): vocabulary entries."""
    word_ends: np.ndarray
    """int64 (U,): for each piece, the index in its sentence just after the last piece of its word."""
    offsets: np.ndarray
    """int64 (S + 1,): sentence s has the pieces from offsets[s] to offsets[s + 1] (exclusive)."""

    def take(self, chosen: np.ndarray) -> "SentenceRows":
        """Return the sentences with the indices `chosen`, in that order."""
        lengths = np.diff(self.offsets)[chosen]
        offsets = np.append(0, np.cumsum(lengths))
        source = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], lengths)
        return SentenceRows(ids=self.ids[source], word_ends=self.word_ends[source], offsets=offsets)


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Masked copies of sentences, ordered by the length of the sentence.

    Two scorings use the copies: PLL and PLL-word-l2r. A row that both scorings need is stored once.
    """

    sentence: np.ndarray
    """int64 (R,): index of the sentence."""
    asked: np.ndarray
    """int64 (R,): index of the asked piece in the sentence."""
    end: np.ndarray
    """int64 (R,): end of the masked pieces, which is the index in the sentence after the last masked piece."""
    in_pll: np.ndarray
    """bool (R,): whether the row counts in PLL, which masks only the asked piece (Salazar et al. 2020)."""
    in_word_l2r: np.ndarray
    """bool (R,): whether the row counts in PLL-word-l2r, which also masks the rest of the word after the asked piece
    (Kauf and Ivanova 2023).
    """


def encode(texts: Sequence[str], vocabulary: Vocabulary, maximum_positions: int, remedy: str) -> SentenceRows:
    """Encode sentences without special tokens, and find the ends of their words.

    Raises DataError for a sentence that has no pieces, or more pieces than the model has positions for. The message
    ends with `remedy`.
    """
    encodings = vocabulary.tokenizer(vocabulary.added).encode_batch(list(texts), add_special_tokens=False)
    most = maximum_positions - SPECIALS
    for text, encoding in zip(texts, encodings, strict=True):
        if not 0 < len(encoding.ids) <= most:
            raise DataError(
                f"the sentence {shown(text)} has {len(encoding.ids)} pieces, but the model takes 1 to {most}: {remedy}"
            )
    lengths = np.array([len(encoding.ids) for encoding in encodings], np.int64)
    return SentenceRows(
        ids=np.concatenate([np.asarray(encoding.ids, np.int64) for encoding in encodings]),
        word_ends=np.concatenate([_word_ends(encoding.word_ids) for encoding in encodings]),
        offsets=np.append(0, np.cumsum(lengths)),
    )


def _word_ends(word_ids: Sequence[int | None]) -> np.ndarray:
    """Return, for each piece of a sentence, the end of its word, int64: the index after the word's last piece."""
    words = np.asarray(word_ids, np.int64)
    ends = np.append(np.flatnonzero(np.diff(words)) + 1, len(words))
    return ends[np.searchsorted(ends, np.arange(len(words)), side="right")]


def make_rows(sentences: SentenceRows) -> Rows:
    """Return one row per piece for PLL, and a second row for PLL-word-l2r if the piece is not the last of its word.

    For the last piece of a word, both scorings mask only this piece, so they share one row.
    """
    lengths = np.diff(sentences.offsets)
    sentence = np.repeat(np.arange(len(lengths)), lengths)
    asked = np.arange(len(sentences.ids)) - np.repeat(sentences.offsets[:-1], lengths)
    last = asked + 1 == sentences.word_ends
    rows = Rows(
        sentence=np.concatenate((sentence, sentence[~last])),
        asked=np.concatenate((asked, asked[~last])),
        end=np.concatenate((asked + 1, sentences.word_ends[~last])),
        in_pll=np.arange(len(asked) + (~last).sum()) < len(asked),
        in_word_l2r=np.concatenate((last, np.ones((~last).sum(), bool))),
    )
    order = np.argsort(lengths[rows.sentence], kind="stable")
    return Rows(**{name: values[order] for name, values in vars(rows).items()})


def split(sentences: SentenceRows, rows: Rows, tokens: int) -> list[slice]:
    """Return consecutive slices of the rows with at most `tokens` tokens each; a longer row is a slice of its own."""
    lengths = np.diff(sentences.offsets)[rows.sentence] + SPECIALS
    ends = np.cumsum(lengths)
    slices, first = [], 0
    while first < len(lengths):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + tokens, side="right")))
        slices.append(slice(first, last))
        first = last
    return slices


def make_batch(sentences: SentenceRows, rows: Rows, part: slice, vocabulary: Vocabulary) -> MaskedBatch:
    """Return the flat batch of a slice of the rows; only the asked piece of each row has a label."""
    sentence, asked, end = rows.sentence[part], rows.asked[part], rows.end[part]
    inner = np.diff(sentences.offsets)[sentence]
    offsets = np.append(0, np.cumsum(inner + SPECIALS))
    starts = np.repeat(offsets[:-1], inner + SPECIALS)
    positions = np.arange(offsets[-1]) - starts
    # For each sentence, one piece before it and one after it are copied too. The special tokens overwrite these two.
    source = positions - 1 + np.repeat(sentences.offsets[sentence], inner + SPECIALS)
    ids = np.take(sentences.ids, source, mode="clip")
    ids[offsets[:-1]], ids[offsets[1:] - 1] = vocabulary.cls_id, vocabulary.sep_id
    labels = sentences.ids[sentences.offsets[sentence] + asked]
    first_masked, past_masked = (np.repeat(bound + 1, inner + SPECIALS) for bound in (asked, end))
    ids[(positions >= first_masked) & (positions < past_masked)] = vocabulary.mask_id
    return MaskedBatch(
        ids_T=torch.from_numpy(ids),
        segments_T=torch.zeros(len(ids), dtype=torch.int64),
        positions_T=torch.from_numpy(positions),
        offsets=torch.from_numpy(offsets.astype(np.int32)),
        maximum_length=int(inner.max()) + SPECIALS,
        masked_positions_M=torch.from_numpy(offsets[:-1] + asked + 1),
        masked_labels_M=torch.from_numpy(labels),
    )
