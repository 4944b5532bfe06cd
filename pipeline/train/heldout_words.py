"""Held-out loss per word and per byte of text, for comparing models with different vocabularies.

The loss per masked token is not comparable across vocabularies: if pieces are longer, there are fewer of them, and each
is harder to guess. So whole words (split at white space) are masked, and the losses of a word's pieces are summed. The
masked words are the same for every vocabulary.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
import torch.distributed as dist
from torch.nn import functional as F

from pipeline.batch import Batch, collate
from pipeline.config.jobs import Pretrain
from pipeline.corpus.prepared import Corpus, read_window
from pipeline.objectives.table import Pretraining
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.examples import window_sentences
from pipeline.text.randomness import generator
from pipeline.text.schema import EXAMPLE
from pipeline.train.evaluate import HELDOUT_WINDOWS, SEED

MASKED_SHARE = 0.15
LEAST_WORDS = 8  # minimum words of a sentence: shorter sentences give too little context
# More than the usual mean of tokens per word, so that most sentences of maximum_length // 3 words fit.
TOKENS_A_WORD = 3
BITS_A_BYTE = 8  # extra cost of a masked word that contains an [UNK], because [UNK] does not say which text it replaced


@dataclass(frozen=True, kw_only=True)
class HeldoutWords:
    """This rank's share of the held-out sentences with masked words."""

    batches: Sequence[Batch]
    words: int
    """Number of masked words."""
    bytes: int
    """UTF-8 bytes of the masked words in the text."""
    unknown_bytes: int
    """Bytes of masked words that contain an [UNK]."""


def heldout_words_of(
    config: Pretrain, corpus: Corpus, tokenizer: CachedTokenizer, rank: int, world: int
) -> HeldoutWords:
    """Return the rank's share of the held-out sentences on which a run is evaluated."""
    return heldout_words(
        corpus,
        tokenizer,
        maximum_length=config.sampling.maximum_length,
        sentences=config.evaluation.rows,
        rows_per_batch=config.batch.rows_per_slot,
        rank=rank,
        world=world,
    )


def heldout_words(
    corpus: Corpus,
    tokenizer: CachedTokenizer,
    *,
    maximum_length: int,
    sentences: int,
    rows_per_batch: int,
    rank: int,
    world: int,
) -> HeldoutWords:
    """Return this rank's share of about `sentences` held-out sentences, in batches of at most `rows_per_batch`.

    The rank reads the held-out windows rank::world. In each sentence, 15% of the words are masked. Sentences that do
    not fit in `maximum_length` tokens are skipped.
    """
    rows, words, all_bytes, unknown_bytes = [], 0, 0, 0
    for sentence, masked in sample_words(corpus, maximum_length // TOKENS_A_WORD, sentences, rank, world):
        spaced = [*sentence[:1], *(f" {word}" for word in sentence[1:])]
        ids, offsets = tokenizer.encode(spaced if tokenizer.vocabulary.keeps_spaces else sentence)
        if len(ids) + 2 > maximum_length:
            continue
        rows.append(masked_row(ids, offsets, masked, tokenizer))
        sizes = [len(sentence[index].encode()) for index in masked]
        unknown = [tokenizer.vocabulary.unk_id in ids[offsets[index] : offsets[index + 1]] for index in masked]
        words += len(masked)
        all_bytes += sum(sizes)
        unknown_bytes += sum(size for size, is_unknown in zip(sizes, unknown) if is_unknown)
    batches = [
        collate(pa.Table.from_pylist(rows[start : start + rows_per_batch], schema=EXAMPLE))
        for start in range(0, len(rows), rows_per_batch)
    ]
    return HeldoutWords(batches=batches, words=words, bytes=all_bytes, unknown_bytes=unknown_bytes)


def sample_words(
    corpus: Corpus, longest: int, sentences: int, rank: int, world: int
) -> Iterator[tuple[list[str], list[int]]]:
    """Yield (words, ascending indices of the words to mask) for sampled sentences of this rank's windows.

    Only the first `longest` words of a sentence are used. The sample and the masks depend on the text, not on the
    vocabulary.
    """
    windows = corpus.heldout[: min(sentences, HELDOUT_WINDOWS)]
    for index in range(rank, len(windows), world):
        split_sentences = [
            sentence.split()[:longest] for sentence in window_sentences(read_window(corpus, windows[index]))[0]
        ]
        long_enough = [sentence for sentence in split_sentences if len(sentence) >= LEAST_WORDS]
        random = generator(SEED, 0, index, "held-out words")
        for chosen in random.permutation(len(long_enough))[: -(-sentences // len(windows))]:
            sentence = long_enough[chosen]
            count = max(1, round(MASKED_SHARE * len(sentence)))
            yield sentence, sorted(random.choice(len(sentence), count, replace=False).tolist())


def masked_row(
    ids: np.ndarray, offsets: np.ndarray, masked: list[int], tokenizer: CachedTokenizer
) -> dict[str, object]:
    """Return the row [CLS] sentence [SEP], without a pair label; [MASK] replaces every piece of the masked words.

    Word i of the sentence has the pieces ids[offsets[i] : offsets[i + 1]]; `masked` has indices of words.
    """
    vocabulary = tokenizer.vocabulary
    indices = [piece for word in masked for piece in range(offsets[word], offsets[word + 1])]
    hidden = ids.copy()
    hidden[indices] = vocabulary.mask_id
    return {
        "ids": [vocabulary.cls_id, *hidden.tolist(), vocabulary.sep_id],
        "first_length": len(ids) + 2,
        "masked_positions": [index + 1 for index in indices],
        "masked_labels": ids[indices].tolist(),
        "document_a": 0,
        "document_b": 0,
    }


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
