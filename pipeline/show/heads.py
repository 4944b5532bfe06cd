"""Measure and draw the tokens that each attention head attends to, by layer (Clark et al. 2019, sections 3.1 to 3.3).

Shapes: T tokens of a text, L layers, H heads per layer.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, PercentFormatter

from pipeline.errors import DataError
from pipeline.show.style import COLOURS, LIGHT, plain, tidy, white_figure
from pipeline.tracking.curves import GREY

TARGETS = ("previous", "next", "separator", "first", "itself")
"""Tokens that a head may attend to: the previous token, the next token, every [SEP], [CLS], and the token itself."""
FOCUSED = 0.5
"""A head is named after a target that gets more than this share of its mean attention (Clark et al., section 3.1)."""
BROAD = 0.1
"""A head is broad if its most attended token gets at most this share on average (Clark et al., section 3.3)."""
LEAST_TOKENS = 16
"""Minimum number of tokens of a text. In a text of fewer than 10 tokens, no head could be broad."""
CELL = 0.45
"""Height of a head's cell in the grid, as a share of the cell's width."""
MOST_WRITTEN = 16
"""Maximum number of heads per layer for which percentages are written into the grid."""


@dataclass(frozen=True, kw_only=True)
class HeadShares:
    """Attention of every head, averaged over all tokens of all texts."""

    shares: np.ndarray
    """float64 (5, L, H): share of attention that each of TARGETS gets.

    The share of the previous token is averaged only over tokens that have a previous token. The same holds for next.
    """
    entropy: np.ndarray
    """float64 (L, H): entropy of a token's attention, in nats."""
    largest: np.ndarray
    """float64 (L, H): share of attention that the most attended token gets."""
    uniform: float
    """Entropy in nats if attention were spread evenly over each text."""
    texts: int
    tokens: int
    separator: str
    """The vocabulary's entry for [SEP]."""
    first: str
    """The vocabulary's entry for [CLS]."""

    def title(self, kind: str) -> str:
        """Return the name of a kind of head. For `separator` and `first`, this is the vocabulary's entry."""
        return {"separator": self.separator, "first": self.first}.get(kind, kind)

    def kinds(self) -> np.ndarray:
        """Return the kind of every head, text (L, H): one of TARGETS, "broad" or "mixed"."""
        targets = np.array(TARGETS)[self.shares.argmax(axis=0)]
        others = np.where(self.largest <= BROAD, "broad", "mixed")
        return np.where(self.shares.max(axis=0) > FOCUSED, targets, others)


KINDS = (*TARGETS, "broad", "mixed")
KIND_COLOURS = dict(zip(KINDS, (*COLOURS[: len(TARGETS)], COLOURS[5], LIGHT), strict=True))


def head_shares(
    texts: Iterable[tuple[np.ndarray, np.ndarray]], separator_id: int, separator: str, first: str
) -> HeadShares:
    """Measure the attention of every head over texts, each given as (weights (L, H, T, T), ids (T,)).

    Entry [..., i, j] of the weights is the attention of token i to token j. Raises DataError if there is no text.
    """
    sums, followers, tokens, count = np.zeros((7, 1, 1)), 0, 0, 0
    uniform = 0.0
    for weights, ids in texts:
        sums = sums + _sums(weights.astype(np.float64), ids == separator_id)
        tokens, count, followers = tokens + len(ids), count + 1, followers + len(ids) - 1
        uniform += len(ids) * float(np.log(len(ids)))
    if not count:
        raise DataError(f"no text has at least {LEAST_TOKENS} tokens: give longer texts")
    numbers = np.array([followers, followers, *[tokens] * 5])[:, None, None]
    means = sums / numbers
    return HeadShares(
        shares=means[:5], entropy=means[5], largest=means[6], uniform=uniform / tokens, texts=count, tokens=tokens,
        separator=separator, first=first,
    )  # fmt: skip


def _sums(weights: np.ndarray, is_separator: np.ndarray) -> np.ndarray:
    """Return sums over a text's tokens, (7, L, H): attention to the five TARGETS, entropy, largest weight."""
    diagonals = [np.trace(weights, offset, axis1=-2, axis2=-1) for offset in (-1, 1, 0)]
    entropy = -(weights * np.log(np.maximum(weights, 1e-30))).sum((-2, -1))
    separators, first = weights[..., is_separator].sum((-2, -1)), weights[..., 0].sum(-1)
    return np.stack([*diagonals[:2], separators, first, diagonals[2], entropy, weights.max(-1).sum(-1)])


def lines(measured: HeadShares) -> list[str]:
    """Return the kinds of heads, and their shares of attention by layer, as lines of text."""
    kinds = measured.kinds()
    layers, heads = kinds.shape
    result = [
        f"{layers} layers of {heads} heads, on {measured.texts:,} texts with {measured.tokens:,} tokens",
        f"a head is named after the token that gets more than {FOCUSED:.0%} of its attention; it is broad if no token "
        f"gets more than {BROAD:.0%} on average (Clark et al. 2019), else mixed",
        "",
    ]
    for kind in KINDS:
        found = [f"{layer + 1}.{head + 1}" for layer, head in np.argwhere(kinds == kind)]
        if found:
            names = "" if kind == "mixed" else f": {', '.join(found)}"
            result.append(f"{measured.title(kind):10}{len(found):4} of {kinds.size}{names}")
    names = "".join(f"{measured.title(target):>10}" for target in TARGETS)
    result += ["", f"layer{names}   entropy (evenly spread: {measured.uniform:.2f} nats)"]
    means = measured.shares.mean(-1)
    for layer in range(layers):
        shares = "".join(f"{share:>10.1%}" for share in means[:, layer])
        result.append(f"{layer + 1:5}{shares}   {measured.entropy[layer].mean():.2f} nats")
    return result


def draw(measured: HeadShares, name: str) -> Figure:
    """Draw shares by layer, entropies by layer, and a grid with the kind of every head."""
    layers, heads = measured.entropy.shape
    figure = white_figure(max(8.5, 0.62 * heads + 2), 4.4 + max(1.0, 0.42 * layers))
    panels = figure.subplot_mosaic(
        [["shares", "entropies"], ["grid", "grid"]], height_ratios=[3.4, max(1.1, 0.42 * layers + 0.4)]
    )
    _shares(panels["shares"], measured)
    _entropies(panels["entropies"], measured)
    _grid(panels["grid"], measured)
    figure.suptitle(plain(name), fontsize="medium", fontweight="bold")
    return figure


def _by_layer(axes: Axes, values: np.ndarray, colour: str, label: str) -> None:
    """Draw a point per head, and the mean of each layer as a line."""
    layers, heads = values.shape
    numbers = np.arange(1, layers + 1)
    axes.plot(numbers, values.mean(-1), color=colour, linewidth=1.6, label=label)
    axes.scatter(np.repeat(numbers, heads), values.ravel(), s=12, color=colour, alpha=0.35, linewidths=0)


def _shares(axes: Axes, measured: HeadShares) -> None:
    for target, values in zip(TARGETS, measured.shares, strict=True):
        _by_layer(axes, values, KIND_COLOURS[target], plain(measured.title(target)))
    axes.axhline(FOCUSED, color=GREY, linestyle=":", linewidth=1.0)
    axes.set(
        title="Share of attention, by target",
        xlabel="layer",
        ylim=(0, max(1.1 * FOCUSED, 1.05 * measured.shares.max())),
    )
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    _layer_axis(axes, len(measured.entropy))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=5, frameon=False, fontsize="small",
                columnspacing=1.0, handlelength=1.2)  # fmt: skip


def _entropies(axes: Axes, measured: HeadShares) -> None:
    _by_layer(axes, measured.entropy, COLOURS[0], "mean of the layer's heads")
    label = f"evenly spread: {measured.uniform:.2f}"
    axes.axhline(measured.uniform, color=GREY, linestyle="--", linewidth=1.2, label=label)
    axes.set(title="Entropy of attention, nats", xlabel="layer", ylim=(0, 1.08 * measured.uniform))
    _layer_axis(axes, len(measured.entropy))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2, frameon=False, fontsize="small")


def _layer_axis(axes: Axes, layers: int) -> None:
    tidy(axes)
    axes.set_xlim(0.7, layers + 0.3)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _grid(axes: Axes, measured: HeadShares) -> None:
    """Draw a cell per head, coloured by its kind and with its largest share. Layers go from top to bottom."""
    kinds, largest = measured.kinds(), measured.shares.max(axis=0)
    layers, heads = kinds.shape
    shown = [kind for kind in KINDS if (kinds == kind).any()]
    for layer, head in np.ndindex(layers, heads):
        kind = str(kinds[layer, head])
        axes.add_patch(_cell(head + 1, layer + 1, kind))
        if heads <= MOST_WRITTEN and kind in TARGETS:
            dark = "white" if kind not in ("next", "first") else "black"
            text = f"{largest[layer, head]:.0%}"
            axes.text(head + 1, layer + 1, text, ha="center", va="center", fontsize=7, color=dark)
    axes.set(xlim=(0.4, heads + 0.6), ylim=(layers + 0.6, 0.4), xlabel="head", ylabel="layer")
    axes.set_title("Kind of each head", fontsize="medium")
    axes.set_xticks(range(1, heads + 1))
    axes.set_yticks(range(1, layers + 1))
    axes.set_aspect(CELL)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    handles = [_cell(0, 0, kind) for kind in shown]
    names = [plain(measured.title(kind)) for kind in shown]
    axes.legend(handles, names, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")


def _cell(column: int, row: int, kind: str) -> Rectangle:
    return Rectangle((column - 0.46, row - 0.46), 0.92, 0.92, color=KIND_COLOURS[kind])
