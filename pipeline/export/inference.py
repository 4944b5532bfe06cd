"""Run an exported model on texts: predict mask tokens, or compute one vector per text.

Shapes: N texts, T tokens in all, M mask tokens in all, V vocabulary entries.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.batch import Batch, MaskedBatch, masked_batch
from pipeline.model.heads import AttentionPooling
from pipeline.model.pooling import pool
from pipeline.saved.pretrained import Pretrained
from pipeline.text.splitting import decoder_of
from pipeline.text.vocabulary import Vocabulary

TEXTS_AT_ONCE = 32
TEXTS_SORTED, TOKENS_AT_ONCE = 1_024, 4_096
"""Maximum texts that are sorted by length together, and maximum tokens of one batch, including padding."""


def read_tokenizer(folder: str, maximum_length: int) -> Tokenizer:
    """Load a folder's tokenizer.json, which then truncates texts to `maximum_length` tokens.

    A mask token in a text, such as "[MASK]", is encoded as one id.
    """
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    tokenizer.enable_truncation(maximum_length)
    return tokenizer


def encode(texts: Sequence[str], tokenizer: Tokenizer, mask_id: int) -> MaskedBatch:
    """Encode each text as [CLS] text [SEP]. Masked positions are the positions of mask tokens; labels are dummies."""
    return batch_of(tokenizer.encode_batch(list(texts)), mask_id)


def batch_of(encodings: Sequence[Encoding], mask_id: int) -> MaskedBatch:
    """Build a batch from encodings. Masked positions are the positions of mask tokens; labels are dummies."""
    ids = [np.array(encoding.ids, np.int64) for encoding in encodings]
    masked = [np.flatnonzero(row == mask_id) for row in ids]
    counts = np.array([len(row) for row in masked])
    return masked_batch(
        ids=np.concatenate(ids),
        lengths=np.array([len(row) for row in ids]),
        first_lengths=np.array([encoding.type_ids.count(0) for encoding in encodings]),
        masked_positions=np.concatenate(masked),
        masked_labels=np.full(counts.sum(), mask_id),
        masked_counts=counts,
    )


def batches_by_length(
    texts: Sequence[str | tuple[str, str]], tokenizer: Tokenizer, mask_id: int
) -> Iterator[tuple[list[int], MaskedBatch]]:
    """Yield batches of texts of similar lengths, each with the indexes of its texts.

    The batches depend only on the texts and the tokenizer.
    """
    for first in range(0, len(texts), TEXTS_SORTED):
        encodings = tokenizer.encode_batch(list(texts[first : first + TEXTS_SORTED]))
        lengths = [len(encoding.ids) for encoding in encodings]
        for rows in _rows_by_length(lengths):
            yield [first + row for row in rows], batch_of([encodings[row] for row in rows], mask_id)


def _rows_by_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield lists of row indexes, longest rows first. The rows of a list have at most TOKENS_AT_ONCE padded tokens."""
    held: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if held and lengths[held[0]] * (len(held) + 1) > TOKENS_AT_ONCE:
            yield held
            held = []
        held.append(row)
    if held:
        yield held


def pooled_by(
    pooling: str | AttentionPooling, normalized: bool, projection: nn.Linear | None = None
) -> Callable[[Tensor, Batch], Tensor]:
    """Return a function from the last hidden states (T, width) of a batch to float32 vectors (N, width).

    With a projection, the vectors have its output width. Layers must be on the device of the states.
    """

    def vectors_of(hidden_T: Tensor, batch: Batch) -> Tensor:
        vectors = pool(hidden_T, batch, pooling)
        if projection is not None:
            vectors = projection(vectors).float()
        return F.normalize(vectors, dim=1) if normalized else vectors

    return vectors_of


@torch.inference_mode()
def fill_masks(
    trained: Pretrained, batch: MaskedBatch, vocabulary: Vocabulary, top: int
) -> list[list[list[dict[str, str | float]]]]:
    """Return the `top` most likely entries for each mask token of each text, the best first.

    Each is a dictionary of the entry ("token"), the text that it stands for ("word"), and its probability.
    """
    best = trained.module.predict_masked(batch).softmax(-1).topk(min(top, trained.vocabulary_size))
    guesses: list[list[list[dict[str, str | float]]]] = [[] for _ in range(batch.sequences)]
    rows_M = torch.searchsorted(batch.offsets.long(), batch.masked_positions_M, right=True) - 1
    for row, shares, entries in zip(rows_M.tolist(), best.values.tolist(), best.indices.tolist(), strict=True):
        guesses[row].append(
            [
                {
                    "token": vocabulary.tokens[entry],
                    "word": word_of(vocabulary.tokens[entry], vocabulary.kind),
                    "probability": share,
                }
                for share, entry in zip(shares, entries, strict=True)
            ]
        )
    return guesses


def word_of(token: str, kind: str) -> str:
    """Return the text of an entry without the space before it; a continuation of WordPiece keeps its ##."""
    if kind == "wordpiece":
        return token
    return decoder_of(kind).decode([token]).strip() or token


@torch.inference_mode()
def embeddings(trained: Pretrained, batch: Batch) -> Tensor:
    """Return the mean of each sequence's last hidden states, [CLS] and [SEP] included: float32 (N, width).

    Source: Reimers & Gurevych 2019, pooling strategy MEAN.
    """
    return torch.segment_reduce(  # ty: ignore[missing-attribute]  (torch's stubs lack it)
        trained.module.encoder(batch), "mean", lengths=batch.offsets.diff().long()
    )
