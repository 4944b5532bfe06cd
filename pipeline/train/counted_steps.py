"""Number of steps whose rows have a given number of tokens, or are a given number of epochs."""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from pipeline.config.data import Sampling, TokenMasking
from pipeline.config.jobs import Pretrain
from pipeline.config.length import number_of_tokens
from pipeline.corpus.order import offset
from pipeline.errors import ConfigError

COUNTED_WINDOWS = 320
"""Maximum number of windows whose tokens are counted; the tokens of further windows are estimated.

Counting so many takes a minute. A speedrun reads some 300 of them: ten million words, ten times.
"""


class RowLengths:
    """Number of tokens in each row of a stream, including special tokens. A window is read when it is first needed.

    Windows differ: in one corpus of articles, with sampling.pairs:single-segment, the mean number of tokens per row was
    86 in one window and 122 in another. Therefore, this class counts the tokens of the rows that a run reads. It
    estimates only the tokens after the first COUNTED_WINDOWS windows.
    """

    def __init__(self, lengths_of_window: Callable[[int], np.ndarray], text: str, windows: int | None = None) -> None:
        """`lengths_of_window`: number of a window, counted through all epochs -> number of tokens in each of its rows.
        `text`: the location of the text, for messages. `windows`: the most windows to count.
        """
        self.lengths_of_window, self.text = functools.cache(lengths_of_window), text
        self.counted = min(COUNTED_WINDOWS, windows or COUNTED_WINDOWS)

    def read(self, window: int, rows: int) -> tuple[float, float]:
        """Return the number of tokens in the first `rows` rows from `window` on, and the position after these rows.

        The position counts windows: 3.25 is after a quarter of the rows of window 3. Raises ConfigError if the counted
        windows have no rows.
        """
        tokens, position = 0.0, float(window)
        while rows and window < self.counted:
            lengths = self.lengths_of_window(window)
            taken = lengths[:rows]
            tokens, rows = tokens + float(taken.sum()), rows - len(taken)
            position = window + (len(taken) / len(lengths) if len(lengths) else 1)  # windows may have no rows
            window += 1
        if not rows:
            return tokens, position
        every = np.concatenate([self.lengths_of_window(number) for number in range(self.counted)])
        if not len(every):
            raise ConfigError(f"the first windows of {self.text} have no rows: give longer documents")
        return tokens + rows * float(every.mean()), window + rows * self.counted / len(every)


def with_counted_steps(config: Pretrain, lengths: Callable[[Sampling], RowLengths], windows: int) -> Pretrain:
    """Return the settings with the steps that tokens or epochs are on a text; other settings as they are.

    `lengths`: sampling of a phase -> lengths of its rows. `windows`: training windows of the text. Raises ConfigError
    for less than a step, and if the settings do not allow so few steps.
    """
    if not config.steps_from:
        return config
    samplings = dict.fromkeys(phase.sampling for phase in config.all_phases)
    of_text = functools.cache(lengths)  # lengths of rows do not depend on masks
    rows = {sampling: of_text(replace(sampling, masking=TokenMasking())) for sampling in samplings}
    if config.tokens is None:
        return with_steps(config, _steps_for_epochs(config, rows, windows))
    tokens, batch = number_of_tokens(config.tokens), config.batch
    first, _ = rows[config.sampling].read(0, offset(1, batch))
    if tokens < first / 2:
        raise ConfigError(
            f"{length_text(config)} are less than a step, which has about {first:,.0f} in {offset(1, batch):,} rows: "
            "give more tokens, or a smaller batch.rows_per_step"
        )
    return with_steps(config, steps_for_tokens(config, tokens, rows))


def with_steps(config: Pretrain, steps: int) -> Pretrain:
    """Return settings of tokens or epochs with the steps that these are. Raises ConfigError if they are too few."""
    try:
        replace(config, steps=steps, tokens=None, epochs=None)
    except ConfigError as error:
        raise ConfigError(f"{length_text(config)} are {steps:,} steps on this text: {error}") from error
    return replace(config, steps=steps)


def length_text(config: Pretrain) -> str:
    """Return the setting from which steps are counted, such as `epochs (10)`."""
    return f"tokens ({config.tokens})" if config.epochs is None else f"epochs ({config.epochs:g})"


def steps_for_tokens(config: Pretrain, tokens: int, rows: Mapping[Sampling, RowLengths]) -> int:
    """Return the number of steps, at least 1, for which the tokens of a run are nearest to `tokens`.

    `rows`: sampling of a phase -> lengths of the phase's rows. Raises ConfigError if the settings allow only runs with
    more tokens than `tokens`, for instance because of a long warm-up.
    """
    # The first guess needs only the rows of one step, so that few windows are read.
    guess = tokens / rows[config.sampling].read(0, offset(1, config.batch))[0]
    low, high = _between(lambda steps: _read_by(config, steps, rows)[0] < tokens, guess)
    below, above = (abs(_read_by(config, steps, rows)[0] - tokens) for steps in (low, high))
    if low and _read_by(config, high, rows)[0] > tokens:
        # All runs with fewer tokens may be invalid. Then this raises the ConfigError that says why.
        replace(config, steps=low)
    return low if low and below < above else high


def _steps_for_epochs(config: Pretrain, rows: Mapping[Sampling, RowLengths], windows: int) -> int:
    """Return the most steps whose rows are in the first config.epochs * windows windows. Raises ConfigError for none.

    The rows of a window that are left over at the end of a phase count as read.
    """
    assert config.epochs is not None
    most, batch = config.epochs * windows * (1 + 1e-9), config.batch
    guess = most / rows[config.sampling].read(0, offset(1, batch))[1]
    steps, _ = _between(lambda steps: _read_by(config, steps, rows)[1] <= most, guess)
    if not steps:
        raise ConfigError(
            f"{length_text(config)} are less than a step of {offset(1, batch):,} rows on this text: give more text or "
            "epochs, or a smaller batch.rows_per_step"
        )
    return steps


def _between(is_less: Callable[[int], bool], guess: float) -> tuple[int, int]:
    """Return the largest number of steps that is less, or 0, and the next number, which is not; `guess` is near."""
    low, high = 0, max(1, round(guess))
    while is_less(high):
        low, high = high, high + 1 + high // 10
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_less(middle) else (low, middle)
    return low, high


def _read_by(config: Pretrain, steps: int, rows: Mapping[Sampling, RowLengths]) -> tuple[float, float]:
    """Return the expected tokens of a run of `steps` steps, and the position after them; zeros if it is invalid."""
    if not steps:
        return 0.0, 0.0
    try:
        config = replace(config, steps=steps)
    except ConfigError:
        return 0.0, 0.0
    total, position = 0.0, 0.0
    for phase in config.all_phases:
        tokens, position = rows[phase.sampling].read(math.ceil(position), offset(phase.end - phase.first, phase.batch))
        total += tokens
    return total, position


def tokens_of(config: Pretrain, rows: Mapping[Sampling, RowLengths]) -> float:
    """Return the expected tokens of a run; `rows`: sampling of a phase -> lengths of the phase's rows."""
    return _read_by(config, config.steps, rows)[0]
