"""Split a long text into overlapping parts, and find for each token the part with the most context.

Shapes: P parts of a text with T tokens.
"""

import numpy as np


def parts(tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Return the start and end (exclusive) of each part of a text with `tokens` tokens.

    A part has at most `room` tokens; its last `stride` tokens are also the first of the next part. So `stride` is the
    overlap, as in `tokenizers`. In google-research/bert, the stride is instead the distance between the starts of two
    consecutive parts. An empty text has one empty part.
    """
    assert 0 <= stride < room
    starts = range(0, max(tokens - stride, 1), room - stride)
    return [(start, min(start + room, tokens)) for start in starts]


def most_context(bounds: list[tuple[int, int]]) -> list[np.ndarray]:
    """Return for each part a bool array over its tokens: whether the token has its most context in this part.

    If a token has the same context in several parts, the earliest counts. Context is the number of tokens to the left
    or to the right, whichever is smaller, plus a hundredth of the part's length (google-research/bert, run_squad.py).
    """
    tokens = np.arange(bounds[-1][1])
    starts, ends = np.array(bounds).T[:, :, None]
    scores = np.minimum(tokens - starts, ends - 1 - tokens) + 0.01 * (ends - starts)  # (P, T)
    scores[(tokens < starts) | (tokens >= ends)] = -np.inf
    best = scores.argmax(axis=0) if len(tokens) else tokens
    return [best[start:end] == part for part, (start, end) in enumerate(bounds)]
