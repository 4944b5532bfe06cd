"""Run an exported model on texts: predict their blanks, or compute one vector per text.

Shapes: N texts, T tokens in all, M mask tokens in all, V vocabulary entries.
"""

from collections.abc import Sequence

import pyarrow as pa
import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor

from pipeline.batch import Batch, collate
from pipeline.export.trained import Trained
from pipeline.text.schema import EXAMPLE
from pipeline.text.vocabulary import Vocabulary

TEXTS_AT_ONCE = 32


def read_tokenizer(folder: str, maximum_length: int) -> Tokenizer:
    """Load a folder's tokenizer.json, and let it truncate texts to `maximum_length` tokens.

    If a text contains the mask token, such as "[MASK]", this token is encoded as one id.
    """
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    tokenizer.enable_truncation(maximum_length)
    return tokenizer


def encode(texts: Sequence[str], tokenizer: Tokenizer, mask_id: int) -> Batch:
    """Encode each text as [CLS] text [SEP]. Masked positions are those of the mask token; their labels are dummies."""
    return batch_of(tokenizer.encode_batch(list(texts)), mask_id)


def batch_of(encodings: Sequence[Encoding], mask_id: int) -> Batch:
    """Build a batch from encodings. Masked positions are those of the mask token; their labels are dummies."""
    rows = []
    for encoding in encodings:
        blanks = [position for position, id in enumerate(encoding.ids) if id == mask_id]
        row = {
            "ids": encoding.ids,
            "first_length": encoding.type_ids.count(0),
            "masked_positions": blanks,
            "masked_labels": [mask_id] * len(blanks),
        }
        rows.append(row | {"not_next": False, "document_a": 0, "document_b": 0})
    return collate(pa.Table.from_pylist(rows, schema=EXAMPLE))


@torch.inference_mode()
def fill_masks(
    trained: Trained, batch: Batch, vocabulary: Vocabulary, top: int
) -> list[list[list[dict[str, str | float]]]]:
    """Return the `top` most likely entries, with probabilities, for each mask token of each text.

    The most likely entry is first.
    """
    best = trained.module.predict_masked(batch).softmax(-1).topk(min(top, trained.vocabulary_size))
    guesses: list[list[list[dict[str, str | float]]]] = [[] for _ in range(batch.sequences)]
    rows_M = torch.searchsorted(batch.offsets.long(), batch.masked_positions_M, right=True) - 1
    for row, shares, entries in zip(rows_M.tolist(), best.values.tolist(), best.indices.tolist(), strict=True):
        guesses[row].append(
            [
                {"token": vocabulary.tokens[entry], "probability": share}
                for share, entry in zip(shares, entries, strict=True)
            ]
        )
    return guesses


@torch.inference_mode()
def embeddings(trained: Trained, batch: Batch) -> Tensor:
    """Return the mean of each sequence's last hidden states, [CLS] and [SEP] included: float32 (N, width).

    Source: Reimers & Gurevych 2019, pooling strategy MEAN.
    """
    return torch.segment_reduce(  # ty: ignore[missing-attribute]  (torch's stubs lack it)
        trained.module.encoder(batch), "mean", lengths=batch.offsets.diff().long()
    )
