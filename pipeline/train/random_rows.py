"""Batches of random ids in the form in which a run's stream delivers its rows."""

from dataclasses import fields

import numpy as np
import torch

from pipeline.batch import AnyBatch, Batch, TextsBatch, masked_batch
from pipeline.config.data import NextSentence, Sampling, SentenceOrder


def random_batch(sampling: Sampling, rows: int, length: int, vocabulary: int, random: np.random.Generator) -> AnyBatch:
    """Return a batch of rows with random ids, in the form in which the run's stream delivers them."""
    sequences, masked = rows * sampling.sequences, max(1, round(sampling.masking.share * length)) * sampling.masks
    labels = {
        name: random.integers(0, 2, rows).astype(bool)
        for name, pairing in (("not_next", NextSentence), ("swapped", SentenceOrder))
        if isinstance(sampling.pairs, pairing)
    }
    places = [np.sort(random.choice(length, masked, replace=False)) for _ in range(sequences)]
    batch = masked_batch(
        ids=random.integers(1, vocabulary, sequences * length),
        lengths=np.full(sequences, length),
        first_lengths=np.full(sequences, length // 2 if labels else length),
        masked_positions=np.concatenate(places),
        masked_labels=random.integers(1, vocabulary, sequences * masked),
        masked_counts=np.full(sequences, masked),
        **labels,
    )
    if not sampling.two_texts:
        return batch
    keys = torch.from_numpy(random.integers(1, 2**62, (rows, 1 + sampling.sequences)))
    tokens = {field.name: getattr(batch, field.name) for field in fields(Batch)}
    return TextsBatch(**tokens, keys=keys, places=torch.arange(sequences) if sampling.negatives else None)
