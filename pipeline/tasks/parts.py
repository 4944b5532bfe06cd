"""A text that is too long for one window: its overlapping parts, and in which of them each token has the most context.

P parts of a text of T tokens.
"""

import numpy as np


def parts(tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Where each part begins and ends: at most `room` tokens, of which the last `stride` are the next part's first.

    No tokens make one empty part. As `tokenizers` cuts, where a stride is what parts share; google-research/bert's is what a part moves on.
    """
    assert 0 <= stride < room
    starts = range(0, max(tokens - stride, 1), room - stride)
    return [(start, min(start + room, tokens)) for start in starts]


def most_context(bounds: list[tuple[int, int]]) -> list[np.ndarray]:
    """Of each part, bool (tokens of the part,): whether a token has more context there than in any other part, and none earlier has as much.

    Context is the lesser of the tokens on its left and on its right, and a hundredth of the part's length (google-research/bert, run_squad.py).
    """
    tokens = np.arange(bounds[-1][1])
    starts, ends = np.array(bounds).T[:, :, None]
    scores = np.minimum(tokens - starts, ends - 1 - tokens) + 0.01 * (ends - starts)  # (P, T)
    scores[(tokens < starts) | (tokens >= ends)] = -np.inf
    best = scores.argmax(axis=0) if len(tokens) else tokens
    return [best[start:end] == part for part, (start, end) in enumerate(bounds)]
