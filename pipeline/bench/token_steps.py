"""The file of tokens that a command names, the lengths of its rows, and the steps that tokens or epochs are on it."""

from collections.abc import Sequence

import numpy as np
import pyarrow.compute as pc

from pipeline.command_line.arguments import Argument, Extra, extras
from pipeline.config.data import Sampling
from pipeline.config.jobs import Pretrain
from pipeline.config.length import number_of_tokens
from pipeline.corpus.token_file import TokenFile, rows_of_window
from pipeline.errors import ConfigError
from pipeline.train.counted_steps import RowLengths, with_counted_steps

TOKEN_FILE = Extra(
    name="token-file", metavar="FILE", text="File of tokens, which `python jobs/bench.py tokens` writes. Required."
)


def token_file_of(words: Sequence[Argument]) -> str:
    """Return the value of --token-file. Raises ConfigError if it is missing; --tokens named the file before."""
    given = {word.option.path: word.values[-1] for word in words if word.option is not None and word.values}
    if "tokens" in given:
        try:
            number_of_tokens(given["tokens"])
        except ConfigError as error:
            raise ConfigError(
                f"tokens ({given['tokens']}) must be a number of tokens to train on, such as 100M: a file of tokens is "
                f"named with --{TOKEN_FILE.name}"
            ) from error
    location = extras(words).get(TOKEN_FILE.name)
    if location is None:
        raise ConfigError(f"--{TOKEN_FILE.name} is missing: {TOKEN_FILE.text}")
    return location


def row_lengths(tokens: TokenFile, location: str, sampling: Sampling, seed: int) -> RowLengths:
    """Return the lengths of the rows of a file of tokens."""

    def of_window(number: int) -> np.ndarray:
        lengths = pc.list_value_length(rows_of_window(tokens, sampling, seed, number)["ids"])
        return np.from_dlpack(lengths.combine_chunks())

    return RowLengths(of_window, location)


def with_steps_on(config: Pretrain, tokens: TokenFile, location: str) -> Pretrain:
    """Return the settings with the steps that tokens or epochs are on a file of tokens; others as they are."""
    return with_counted_steps(
        config, lambda sampling: row_lengths(tokens, location, sampling, config.seed), len(tokens.train)
    )
