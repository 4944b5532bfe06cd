"""The only source of randomness for examples, order, folds and draws: counter-based generators."""

import hashlib

import numpy as np


def generator(seed: int, epoch: int, window: int, purpose: str) -> np.random.Generator:
    """Return NumPy's counter-based Philox generator, keyed by these arguments and nothing else.

    Seed, epoch and window must lie between 0 and 2^64 - 1. Each purpose has its own stream, so that one part that
    draws more or fewer numbers does not affect the others.
    """
    number = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8], "little")
    key, counter = np.array([seed, number], np.uint64), np.array([0, 0, window, epoch], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def numbered_generator(seed: int, stream: int) -> np.random.Generator:
    """Return a Philox generator keyed by two numbers: the orders, folds and draws of a fine-tuning.

    Keyed otherwise than `generator`; its numbers are part of every fine-tuning's results.
    """
    return np.random.Generator(
        np.random.Philox(key=np.random.SeedSequence((seed, stream)).generate_state(2, np.uint64))
    )
