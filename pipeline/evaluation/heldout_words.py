"""Held-out loss per word and per byte of text, for comparing models with different vocabularies.

The loss per masked token is not comparable across vocabularies: if pieces are longer, there are fewer of them, and each
is harder to guess. So whole words (split at white space) are masked, and the losses of a word's pieces are summed. The
masked words are the same for every vocabulary.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import functional as F

from pipeline.batch import MaskedBatch, masked_batch
from pipeline.evaluation.evaluate import SEED
from pipeline.objectives.table import Pretraining
from pipeline.text.encoded_words import EncodedWords
from pipeline.text.randomness import generator
from pipeline.text.vocabulary import Vocabulary

MASKED_SHARE = 0.15
LEAST_WORDS = 8  # minimum words of a sentence: shorter sentences give too little context
# More than the usual mean of tokens per word, so that most sentences of maximum_length // 3 words fit.
TOKENS_A_WORD = 3
BITS_A_BYTE = 8  # extra cost of a masked word that contains an [UNK], because [UNK] does not say which text it replaced


@dataclass(frozen=True, kw_only=True)
class HeldoutWords:
    """This rank's share of the held-out sentences with masked words."""

    batches: Sequence[MaskedBatch]
    words: int
    """Number of masked words."""
    bytes: int
    """UTF-8 bytes of the masked words in the text."""
    unknown_bytes: int
    """Bytes of masked words that contain an [UNK]."""


def sample_words(lengths: Sequence[int], window: int, sentences: int) -> Iterator[tuple[int, list[int]]]:
    """Yield (number of a sentence, ascending indices of its words to mask) for `sentences` sentences of a window.

    `lengths` are the numbers of words of the window's sentences. In each sampled sentence, 15% of the words are masked.
    The sample and the masks depend on the text, not on the vocabulary.
    """
    long_enough = [number for number, length in enumerate(lengths) if length >= LEAST_WORDS]
    random = generator(SEED, 0, window, "held-out words")
    for chosen in random.permutation(len(long_enough))[:sentences]:
        number = long_enough[chosen]
        count = max(1, round(MASKED_SHARE * lengths[number]))
        yield number, sorted(random.choice(lengths[number], count, replace=False).tolist())


def masked_words(
    sampled: Iterable[tuple[EncodedWords, list[int]]],
    vocabulary: Vocabulary,
    *,
    maximum_length: int,
    rows_per_batch: int,
) -> HeldoutWords:
    """Mask words of sentences, and return the sentences in batches of at most `rows_per_batch`.

    `sampled` are single sentences, each with the indices of its words to mask. Sentences that do not fit in
    `maximum_length` tokens are skipped.
    """
    rows, words, all_bytes, unknown_bytes = [], 0, 0, 0
    for sentence, masked in sampled:
        if len(sentence.tokens) + 2 > maximum_length:
            continue
        rows.append(masked_row(sentence, masked, vocabulary))
        sizes = sentence.sizes[masked].tolist()
        pieces = np.split(sentence.tokens, sentence.word_offsets[1:-1])
        words += len(masked)
        all_bytes += sum(sizes)
        unknown_bytes += sum(size for size, word in zip(sizes, masked) if vocabulary.unk_id in pieces[word])
    batches = [_batch_of(rows[start : start + rows_per_batch]) for start in range(0, len(rows), rows_per_batch)]
    return HeldoutWords(batches=batches, words=words, bytes=all_bytes, unknown_bytes=unknown_bytes)


def masked_row(
    sentence: EncodedWords, masked: list[int], vocabulary: Vocabulary
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the ids of [CLS] sentence [SEP], the masked positions in them, and the original ids at these positions.

    [MASK] replaces every piece of the words `masked`.
    """
    ids, offsets = sentence.tokens, sentence.word_offsets
    indices = np.concatenate([np.arange(offsets[word], offsets[word + 1]) for word in masked])
    hidden = ids.copy()
    hidden[indices] = vocabulary.mask_id
    return np.concatenate(([vocabulary.cls_id], hidden, [vocabulary.sep_id])), indices + 1, ids[indices]


def _batch_of(rows: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> MaskedBatch:
    """Return rows of `masked_row` as one batch, without labels of pairs."""
    ids, positions, labels = zip(*rows)
    lengths, counts = (np.array(list(map(len, arrays))) for arrays in (ids, positions))
    return masked_batch(
        ids=np.concatenate(ids),
        lengths=lengths,
        first_lengths=lengths,
        masked_positions=np.concatenate(positions),
        masked_labels=np.concatenate(labels),
        masked_counts=counts,
    )


def word_metrics(
    module: Pretraining, held: HeldoutWords, *, world: int, device: torch.device, autocast: torch.autocast
) -> dict[str, float]:
    """Return the loss in nats per masked word and in bits per byte of masked text, over all ranks.

    A masked word with an [UNK] adds 8 bits per byte to the loss. Nothing is added for the information that is lost by
    lower-casing or by stripping accents. Every rank must call this. The result is empty if there are no sentences.
    """
    was_training = module.training
    module.eval()
    loss = torch.full((), held.unknown_bytes * BITS_A_BYTE * math.log(2), dtype=torch.float64, device=device)
    with torch.inference_mode(), autocast:
        for batch in held.batches:
            on_device = batch.to(device)
            loss = loss + F.cross_entropy(module.predict_masked(on_device), on_device.masked_labels_M, reduction="sum")
    module.train(was_training)
    sums = torch.tensor([loss.item(), held.words, held.bytes], dtype=torch.float64)
    if world > 1:
        dist.all_reduce(sums)
    total, words, size = sums.tolist()
    return (
        {"heldout/nats_per_word": total / words, "heldout/bits_per_byte": total / math.log(2) / size} if words else {}
    )
