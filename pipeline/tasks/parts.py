"""Split a text that is too long for one window into overlapping parts, and choose for each token the part with the most
context.

P parts of a text of T tokens.
"""

import numpy as np


def parts(tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Return the start and end of each part: at most `room` tokens, of which the last `stride` are also the next part's
    first.

    An empty text makes one empty part. Splits as `tokenizers` does: `stride` is the overlap (in google-research/bert it
    is the shift).
    """
    assert 0 <= stride < room
    starts = range(0, max(tokens - stride, 1), room - stride)
    return [(start, min(start + room, tokens)) for start in starts]


def most_context(bounds: list[tuple[int, int]]) -> list[np.ndarray]:
    """Return for each part, bool (tokens of the part,), whether a token has its most context there; ties go to the
    earlier part.

    Context is the smaller number of tokens to the left or right, plus a hundredth of the part's length
    (google-research/bert, run_squad.py).
    """
    tokens = np.arange(bounds[-1][1])
    starts, ends = np.array(bounds).T[:, :, None]
    scores = np.minimum(tokens - starts, ends - 1 - tokens) + 0.01 * (ends - starts)  # (P, T)
    scores[(tokens < starts) | (tokens >= ends)] = -np.inf
    best = scores.argmax(axis=0) if len(tokens) else tokens
    return [best[start:end] == part for part, (start, end) in enumerate(bounds)]
