"""Draw one attention head on one sentence: lines between its tokens (Clark et al. 2019, figure 1)."""

from collections.abc import Sequence

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from pipeline.errors import ConfigError
from pipeline.show.style import BLUE, plain, white_figure

LEAST_DRAWN = 0.02
"""Smallest attention that is drawn as a line."""
TOKEN_HEIGHT = 0.24
"""Inches per token."""
MOST_TOKENS = 60
"""Maximum number of tokens that fit on a page."""


def head_weights(attentions: np.ndarray, layer: int, head: int) -> np.ndarray:
    """Return the weights (T, T) of one head from the weights of all heads (L, H, T, T).

    `layer` and `head` count from 1.

    Raises ConfigError if there is no such layer or head, or if there are too many tokens for a picture.
    """
    layers, heads, tokens, _ = attentions.shape
    for name, value, count in (("layer", layer, layers), ("head", head, heads)):
        if not 1 <= value <= count:
            raise ConfigError(f"{name} ({value}) must be from 1 to {count}: the model has {count} {name}s")
    if tokens > MOST_TOKENS:
        raise ConfigError(f"sentence has {tokens} tokens, and a picture shows at most {MOST_TOKENS}: shorten it")
    return attentions[layer - 1, head - 1]


def lines(weights: np.ndarray, tokens: Sequence[str]) -> list[str]:
    """Return, as a line of text per token, the token that it attends to most."""
    best = weights.argmax(-1)
    width = max(map(len, tokens))
    return [
        f"{token:>{width}} → {tokens[to]:{width}} {weights[index, to]:4.0%}"
        for index, (token, to) in enumerate(zip(tokens, best.tolist(), strict=True))
    ]


def draw(weights: np.ndarray, tokens: Sequence[str], name: str) -> Figure:
    """Draw a line from each token (left) to each token that it attends to (right). More attention is darker."""
    figure = white_figure(5.2, 0.9 + TOKEN_HEIGHT * len(tokens))
    axes = figure.subplots()
    pairs = np.argwhere(weights >= LEAST_DRAWN)
    ends = [[(0, start), (1, end)] for start, end in pairs.tolist()]
    shares = weights[tuple(pairs.T)]
    axes.add_collection(LineCollection(ends, colors=BLUE, alpha=np.clip(shares, 0.0, 1.0), linewidths=0.6 + 2 * shares))
    for index, token in enumerate(tokens):
        axes.text(-0.03, index, plain(token), ha="right", va="center", fontsize=9)
        axes.text(1.03, index, plain(token), ha="left", va="center", fontsize=9)
    axes.set(xlim=(-0.75, 1.75), ylim=(len(tokens) - 0.4, -0.6))
    axes.set_axis_off()
    figure.suptitle(plain(name), fontsize="medium", fontweight="bold")
    return figure
