"""Number of steps whose rows have a given number of tokens."""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from pipeline.config.data import Sampling
from pipeline.config.jobs import Pretrain
from pipeline.corpus.order import offset
from pipeline.errors import ConfigError

COUNTED_WINDOWS = 200
"""Maximum number of windows whose tokens are counted; the tokens of further windows are estimated."""


class RowLengths:
    """Number of tokens in each row of a stream, including special tokens. A window is read when it is first needed.

    Windows differ: in one corpus of articles, with sampling.pairs:single-segment, the mean number of tokens per row was
    86 in one window and 122 in another. Therefore, this class counts the tokens of the rows that a run reads. It
    estimates only the tokens after the first COUNTED_WINDOWS windows.
    """

    def __init__(self, lengths_of_window: Callable[[int], np.ndarray], text: str) -> None:
        """`lengths_of_window`: number of a window, counted through all epochs -> number of tokens in each of its rows.
        `text`: the location of the text, for messages.
        """
        self.lengths_of_window, self.text = functools.cache(lengths_of_window), text

    def read(self, window: int, rows: int) -> tuple[float, int]:
        """Return the number of tokens in the first `rows` rows from `window` on, and the number of the next window.

        Raises ConfigError if the first COUNTED_WINDOWS windows have no rows.
        """
        tokens = 0.0
        while rows and window < COUNTED_WINDOWS:
            lengths = self.lengths_of_window(window)[:rows]
            tokens, rows, window = tokens + float(lengths.sum()), rows - len(lengths), window + 1
        if not rows:
            return tokens, window
        counted = [self.lengths_of_window(number) for number in range(COUNTED_WINDOWS)]
        every = np.concatenate(counted)
        if not len(every):
            raise ConfigError(f"the first windows of {self.text} have no rows: give longer documents")
        return tokens + rows * float(every.mean()), window + math.ceil(rows * len(counted) / len(every))


def steps_for_tokens(config: Pretrain, tokens: int, rows: Mapping[Sampling, RowLengths]) -> int:
    """Return the number of steps, at least 1, for which the tokens of a run are nearest to `tokens`.

    `rows`: sampling of a phase -> lengths of the phase's rows. Raises ConfigError if the settings allow only runs with
    more tokens than `tokens`, for instance because of a long warm-up.
    """
    some = offset(1, config.batch)
    # The first guess needs only the rows of one step, so that few windows are read.
    low, high = 0, max(1, round(tokens / rows[config.sampling].read(0, some)[0]))
    while _tokens_of_steps(config, high, rows) < tokens:
        low, high = high, high + 1 + high // 10
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _tokens_of_steps(config, middle, rows) < tokens else (low, middle)
    below, above = (abs(_tokens_of_steps(config, steps, rows) - tokens) for steps in (low, high))
    if low and _tokens_of_steps(config, high, rows) > tokens:
        # All runs with fewer tokens may be invalid. Then this raises the ConfigError that says why.
        replace(config, steps=low)
    return low if low and below < above else high


def _tokens_of_steps(config: Pretrain, steps: int, rows: Mapping[Sampling, RowLengths]) -> float:
    """Return the expected tokens of a run of `steps` steps; 0 if the settings do not allow so few steps."""
    try:
        config = replace(config, steps=steps)
    except ConfigError:
        return 0.0
    return tokens_of(config, rows)


def tokens_of(config: Pretrain, rows: Mapping[Sampling, RowLengths]) -> float:
    """Return the expected tokens of a run; `rows`: sampling of a phase -> lengths of the phase's rows."""
    total, window = 0.0, 0
    for phase in config.all_phases:
        tokens, window = rows[phase.sampling].read(window, offset(phase.end - phase.first, phase.batch))
        total += tokens
    return total
