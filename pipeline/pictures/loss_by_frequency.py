"""Measure and draw the held-out masked loss by the frequency of the masked token in the training text.

Shapes: M masked positions, V vocabulary entries, G groups of frequency.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from torch.nn import functional as F

from pipeline.batch import Batch
from pipeline.errors import DataError
from pipeline.objectives.table import Pretraining
from pipeline.pictures.style import BLUE, plain, tidy, white_figure
from pipeline.train.pictures import GREY

LOWEST, HIGHEST = 0, 4
"""Lowest group: below 10**LOWEST occurrences per million tokens; highest group: 10**HIGHEST or more."""


@dataclass(frozen=True, kw_only=True)
class LossByFrequency:
    """Mean losses at masked positions, grouped by the masked token's frequency; empty groups are left out."""

    groups: tuple[str, ...]
    """Names of the groups, from rare to frequent."""
    counts: np.ndarray
    """int64 (G,): masked positions."""
    model: np.ndarray
    """float64 (G,): mean loss of the model, in nats."""
    unigram: np.ndarray
    """float64 (G,): mean loss of guessing by frequency alone, in nats."""
    accuracy: np.ndarray
    """float64 (G,): share of positions at which the model's best guess is right."""


def position_losses(module: Pretraining, batches: Sequence[Batch]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the loss float64 (M,), the correctness bool (M,) and the label int64 (M,) of every masked position.

    For replaced tokens (ELECTRA), the losses are the generator's.
    """
    losses, right, labels = [], [], []
    with torch.inference_mode():
        for batch in batches:
            logits = module.predict_masked(batch)
            losses.append(F.cross_entropy(logits, batch.masked_labels_M, reduction="none").cpu().numpy())
            right.append((logits.argmax(-1) == batch.masked_labels_M).cpu().numpy())
            labels.append(batch.masked_labels_M.cpu().numpy())
    if not labels:
        raise DataError("the corpus has no held-out part: prepare it with prepare.heldout_share above 0")
    return np.concatenate(losses).astype(np.float64), np.concatenate(right), np.concatenate(labels)


def loss_by_frequency(losses: np.ndarray, right: np.ndarray, labels: np.ndarray, counts: np.ndarray) -> LossByFrequency:
    """Group the losses of masked positions by the label's occurrences in training text, `counts` int64 (V,).

    A group covers a factor of ten in occurrences per million tokens. The unigram loss adds 1 to every count.
    """
    per_million = counts[labels] * 1e6 / counts.sum()
    edges = 10.0 ** np.arange(LOWEST, HIGHEST + 1)
    group = np.digitize(per_million, edges)
    unigram = -np.log((counts[labels] + 1.0) / (counts.sum() + len(counts)))
    present = np.unique(group)
    names = (f"below {edges[0]:.0f}", *(f"{a:,.0f} to {10 * a:,.0f}" for a in edges[:-1]), f"above {edges[-1]:,.0f}")

    def means(values: np.ndarray) -> np.ndarray:
        return np.array([values[group == number].mean() for number in present])

    return LossByFrequency(
        groups=tuple(names[number] for number in present.tolist()),
        counts=np.array([(group == number).sum() for number in present]),
        model=means(losses),
        unigram=means(unigram),
        accuracy=means(right.astype(np.float64)),
    )


def lines(measured: LossByFrequency) -> list[str]:
    """Return the losses by group as lines of text."""
    every = int(measured.counts.sum())
    mean, guess = (float((values * measured.counts).sum() / every) for values in (measured.model, measured.unigram))
    result = [
        f"held-out masked loss {mean:.3f} nats over {every:,} tokens (by frequency alone {guess:.3f})",
        f"{'per million':>18}{'tokens':>10}{'loss':>9}{'by frequency':>14}{'gain':>8}{'accuracy':>10}",
    ]
    for index, name in enumerate(measured.groups):
        model, unigram = float(measured.model[index]), float(measured.unigram[index])
        result.append(
            f"{name:>18}{measured.counts[index]:>10,}{model:>9.3f}{unigram:>14.3f}{unigram - model:>8.3f}"
            f"{measured.accuracy[index]:>10.1%}"
        )
    return result


def draw(measured: LossByFrequency, title: str) -> Figure:
    """Draw two bars per group: the loss of guessing by frequency, and the model's loss.

    The name below a group includes its share of the masked tokens.
    """
    figure = white_figure(8.5, 4.4)
    axes = figure.subplots()
    numbers = np.arange(len(measured.groups))
    axes.bar(numbers - 0.2, measured.unigram, 0.4, color="#bbbbbb", label="guessing by frequency alone")
    bars = axes.bar(numbers + 0.2, measured.model, 0.4, color=BLUE, label="the model")
    axes.bar_label(
        bars, labels=[f"{share:.0%}" for share in measured.accuracy], padding=2, color=GREY, fontsize="small"
    )
    shares = measured.counts / measured.counts.sum()
    names = [f"{name}\n{share:.0%} of tokens" for name, share in zip(measured.groups, shares, strict=True)]
    axes.set_xticks(numbers, names, fontsize="small")
    tidy(axes)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("occurrences of the masked token per million tokens of training text")
    axes.set_ylabel("loss, nats (label: accuracy)")
    axes.legend(frameon=False)
    figure.suptitle(plain(title), fontsize="medium", fontweight="bold")
    return figure
