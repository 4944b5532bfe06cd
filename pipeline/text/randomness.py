"""Counter-based random generators, the only source of randomness for examples and for orders, folds and draws."""

import hashlib

import numpy as np


def generator(seed: int, epoch: int, window: int, purpose: str) -> np.random.Generator:
    """Return NumPy's counter-based Philox generator, keyed by these arguments and nothing else.

    Seed, epoch and window must lie between 0 and 2^64 - 1. Each purpose has its own stream: if one purpose draws more
    numbers, the numbers of the other purposes stay the same.
    """
    number = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8], "little")
    key, counter = np.array([seed, number], np.uint64), np.array([0, 0, window, epoch], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def numbered_generator(seed: int, stream: int) -> np.random.Generator:
    """Return a Philox generator keyed by two numbers, for the orders, folds and draws of fine-tuning.

    `generator` derives its key differently. The derivation here must not change, because the results of fine-tuning
    depend on the key.
    """
    return np.random.Generator(
        np.random.Philox(key=np.random.SeedSequence((seed, stream)).generate_state(2, np.uint64))
    )
