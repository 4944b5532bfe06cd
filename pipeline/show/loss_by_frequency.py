"""Draw the held-out masked loss by the frequency of the masked token in the training text."""

import numpy as np
from matplotlib.figure import Figure

from pipeline.evaluation.token_frequency import LossByFrequency
from pipeline.show.style import BLUE, plain, tidy, white_figure
from pipeline.tracking.curves import GREY


def lines(measured: LossByFrequency) -> list[str]:
    """Return the losses by group of token frequency, as lines of text."""
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
