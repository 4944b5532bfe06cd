"""Put the tokens of prompts, such as "query: ", before the texts of rows of two texts.

Shapes: R ranges, one per text.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pipeline.errors import ConfigError
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.sequences import Sequences
from pipeline.text.template import SPECIALS_OF_ONE

LEAST_ROOM = 6
"""Minimum tokens that prompts must leave for a text; equal to what the smallest sampling.maximum_length leaves."""


def prompt_tokens(prompts: Sequence[str], tokenizer: CachedTokenizer) -> list[np.ndarray]:
    """Return the tokens of each prompt, int32; empty for an empty prompt.

    The space at the end of a prompt belongs to the first word of the text after it. Other white space there is a part
    of the prompt in byte-level BPE only.
    """
    if not any(prompts):
        return [np.zeros(0, np.int32) for _ in prompts]
    spaced = tokenizer.vocabulary.keeps_spaces
    ids, offsets = tokenizer.for_prompts.encode(
        [prompt.removesuffix(" ") if spaced else prompt.rstrip() for prompt in prompts]
    )
    return [ids[start:end] for start, end in zip(offsets[:-1], offsets[1:])]


def lines_after_prompts(lines: list[str], prompts: Sequence[str], tokenizer: CachedTokenizer) -> list[str]:
    """Return the lines with the space that stands between a prompt and a text.

    Only byte-level BPE reads it as a part of the next word; for other vocabularies, return the lines. If only one of
    the prompts ends in a space, `without_first_spaces` removes it from the texts of the other.
    """
    spaced = tokenizer.vocabulary.keeps_spaces and any(prompt.endswith(" ") for prompt in prompts)
    return [f" {line}" if line else line for line in lines] if spaced else lines


def without_first_spaces(
    tokens: np.ndarray,
    sequences: Sequences,
    lines: list[str],
    line_offsets: np.ndarray,
    prompts: Sequence[str],
    room: int,
    tokenizer: CachedTokenizer,
) -> tuple[np.ndarray, Sequences]:
    """Return flat tokens and ranges of texts whose first space is removed where their prompt does not end in a space.

    `lines` are those of `lines_after_prompts`, `line_offsets` their offsets in `tokens`. `room`: maximum tokens of a
    sequence without its prompt, as in `room_after_prompts`. A no-op unless exactly one of the prompts ends in a space.
    """
    after_space = [prompt.endswith(" ") for prompt in prompts]
    if not tokenizer.vocabulary.keeps_spaces or len(set(after_space)) == 1:
        return tokens, sequences
    starts, ends = sequences.starts, sequences.ends
    line = np.searchsorted(line_offsets, starts, side="right") - 1
    unspaced = ~np.where(_is_first(sequences), *after_space) & (line_offsets[line] == starts)
    changed = np.flatnonzero(unspaced)
    ids, offsets = tokenizer.encode([lines[number].removeprefix(" ") for number in line[changed].tolist()])
    texts = [tokens[start:end] for start, end in zip(starts.tolist(), ends.tolist())]
    for index, number, first, last in zip(changed.tolist(), line[changed].tolist(), offsets[:-1], offsets[1:]):
        end_of_line = line_offsets[number + 1]
        begin = ids[first : max(first + 1, last - max(0, end_of_line - ends[index]))]
        texts[index] = np.concatenate((begin, tokens[end_of_line : ends[index]]))[: room - SPECIALS_OF_ONE]
    bounds = np.cumsum([0, *map(len, texts)])
    return np.concatenate([tokens[:0], *texts]), replace(sequences, starts=bounds[:-1], ends=bounds[1:])


def _is_first(sequences: Sequences) -> np.ndarray:
    """Return whether each range is the first of its example, bool (R,)."""
    first = np.zeros(len(sequences.starts), bool)
    first[sequences.offsets[:-1]] = True
    return first


def room_after_prompts(maximum_length: int, prompts: Sequence[np.ndarray]) -> int:
    """Return the maximum tokens of a sequence without its prompt, special tokens included.

    Raises ConfigError if it is too small for texts.
    """
    longest = max(map(len, prompts))
    room = maximum_length - longest
    if longest and room - SPECIALS_OF_ONE < LEAST_ROOM:
        raise ConfigError(
            f"sampling.maximum_length ({maximum_length}) leaves {max(0, room - SPECIALS_OF_ONE)} tokens for a text "
            f"after a prompt of {longest} tokens (sampling.query_prompt, sampling.document_prompt): set it to at least "
            f"{longest + SPECIALS_OF_ONE + LEAST_ROOM}, or choose shorter prompts"
        )
    return room


def put_before_texts(
    tokens: np.ndarray, sequences: Sequences, query: np.ndarray, document: np.ndarray
) -> tuple[np.ndarray, Sequences]:
    """Return flat tokens in which each text stands after its prompt, int32, and the sequences as ranges of them.

    The first range of each example gets `query`, and its other ranges get `document`.
    """
    lengths = sequences.ends - sequences.starts
    bounds = np.concatenate(([0], np.cumsum(lengths)))
    texts = tokens[np.arange(bounds[-1]) + np.repeat(sequences.starts - bounds[:-1], lengths)]
    first = _is_first(sequences)
    before = np.where(first, len(query), len(document))
    added = np.concatenate([query if is_first else document for is_first in first.tolist()] or [query[:0]])
    ends = np.cumsum(lengths + before)
    whole = np.insert(texts, np.repeat(bounds[:-1], before), added)
    return whole, replace(sequences, starts=ends - lengths - before, ends=ends)
