"""Draw every n-th word of a sequence.

Shapes: N sequences, W words.
"""

import numpy as np

from pipeline.text.words import Words


def draw_strides(words: Words, counts: np.ndarray, every: int, rng: np.random.Generator) -> np.ndarray:
    """Draw every n-th word of each sequence, from a random one of its first words on, at most `counts` (N,) of them.

    Return whether each word is drawn, bool (W,).
    """
    first, sizes = words.bounds[:-1], np.diff(words.bounds)
    starts = rng.integers(0, np.maximum(1, np.minimum(every, sizes)))
    passed = np.arange(len(words.starts)) - np.repeat(first + starts, sizes)
    return (passed >= 0) & (passed % every == 0) & (passed // every < np.repeat(counts, sizes))
