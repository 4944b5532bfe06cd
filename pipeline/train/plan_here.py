"""The part of a plan on this machine and this text: the time of a run here, and its passes over the corpus."""

import math
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from pipeline.config.data import GivenPairs, Sampling
from pipeline.config.jobs import Pretrain
from pipeline.config.locations import with_absolute_locations
from pipeline.corpus.given_vocabulary import given_vocabulary
from pipeline.corpus.prepared import Corpus, read_window
from pipeline.corpus.vocabulary import sized_for
from pipeline.errors import ConfigError
from pipeline.model.flops import GIGABYTES, PEAKS, known_chip
from pipeline.reporting import Report, estimate
from pipeline.saved.run import read_run, recorded_steps, run_folder
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.automatic import FreeMemory, Where, choice_text, free_memory, with_choices
from pipeline.train.counted_steps import RowLengths, length_text, with_counted_steps, with_steps
from pipeline.train.few_steps import FewSteps, few_steps
from pipeline.train.hardware import device_of
from pipeline.train.plan import imbalance, loads, plan_text, read_prices, slots_of, tokens_per_sequence
from pipeline.train.run_data import counted_on, known_characters, known_stream

WINDOW_ROWS = 64
"""Rows in a window of text that is not prepared, where these are as long as in the phase with the longest."""
MOST_PASSES = 40
"""Passes over the text above which a warning is given: those of BERT's pretraining (Devlin et al. 2019, A.2)."""
CHARACTERS_PER_TOKEN = 4
"""Characters per token of text that is not encoded yet. Measured: 4.3 in English books with BERT's vocabulary, and 3.6
in the built-in corpus with a vocabulary of 8,192.
"""
SAMPLE = 64
"""Documents of the corpus that are encoded to count the characters per token."""


def here(config: Pretrain) -> tuple[str, FewSteps | None]:
    """Return what a plan says of the run's time on this machine, and the times of the steps that were measured.

    They are None if the run cannot be measured here.
    """
    length = max(2, round(tokens_per_sequence(config.all_phases[0].sampling)))
    try:
        measured = few_steps(config, length)
    except ConfigError as error:
        return f"not measured: {error}", None
    seconds = seconds_here(config, measured)
    tokens = sum(load.tokens for load in loads(config))
    kind = (
        measured.device
        if measured.on_gpu
        else f"CPU with {measured.processors} thread{'s' * (measured.processors > 1)}"
    )
    rows = f"{measured.rows} row{'s' * (measured.rows > 1)} of {length} tokens"
    most = "at most " * (measured.rows < config.all_phases[0].batch.slot_rows)  # a row of a larger slot takes less
    return (
        f"{kind}: {most}{estimate(seconds)}, {tokens / seconds:,.0f} tokens/s (steps of {rows} were timed, without "
        "torch.compile)"
    ), measured


def facts_here(config: Pretrain, report: Report) -> tuple[list[tuple[str, str]], str | None, bool]:
    """Return the facts of a plan about this machine and the text, a warning, and whether the steps ran on a GPU.

    It takes up to half a minute, which is reported.
    """
    passes = planned_passes(with_absolute_locations(config))
    report("timing a few steps on this machine, for at most half a minute")
    text, measured = here(config)
    facts = [("this machine", text)]
    if passes is not None:
        facts.append(
            (
                "passes",
                f"about {_passes_text(passes)} over the text"
                + f", if a token has about {CHARACTERS_PER_TOKEN} characters" * (config.epochs is None),
            )
        )
    return facts, passes_warning(config, passes), measured is not None and measured.on_gpu


def whole_plan(config: Pretrain, gpu: str | None, report: Report) -> str:
    """Return the plan of a run as text. With `gpu`, the name of a GPU, each worker has this GPU.

    Raises ConfigError for an unknown GPU.
    """
    machines, facts, where = read_prices(), list[tuple[str, str]](), _here(config)
    if gpu is not None:
        chip = known_chip(gpu)
        free = FreeMemory(gpu=chip, bytes=round(GIGABYTES[chip] * 1e9), has_kernel="tf32" in PEAKS[chip])
        where = Where(on_gpus=True, memory=free)
        machines = [machine for machine in machines if machine.chip == chip]
    if where.on_gpus:
        begun = _begun(config)
        facts = [] if begun else [("slots", choice_text(config, where))]
        config, _ = with_choices(config, begun and begun["identity"], where)
    config, known = with_known_text(config, report)
    facts += known
    here, warning, gpus_here = facts_here(config, report)
    text = plan_text(config, machines, [*facts, *here], gpus_here=gpus_here or gpu is not None)
    return text if warning is None else f"{text}\n\n{warning}"


def _begun(config: Pretrain) -> dict[str, Any] | None:
    """Return the record of the run, if it was begun and has a name."""
    return read_run(run_folder(with_absolute_locations(config))) if config.name else None


def with_known_text(config: Pretrain, report: Report) -> tuple[Pretrain, list[tuple[str, str]]]:
    """Return the settings with the steps and the size of the vocabulary that follow from the text, and facts on these.

    Raises ConfigError for epochs over a text whose size is not known.
    """
    placed, facts = with_absolute_locations(config), list[tuple[str, str]]()
    characters = known_characters(placed) if config.steps_from or config.vocabulary.size == "auto" else None
    if config.steps_from:
        config, why = _with_steps(config, placed, characters, report)
        facts.append(("steps from", f"{length_text(config)}, {why}"))
    if config.vocabulary.size == "auto":
        config, text = _with_vocabulary(config, placed, characters)
        facts.append(("vocabulary", text))
    return config, facts


def _with_vocabulary(config: Pretrain, placed: Pretrain, characters: int | None) -> tuple[Pretrain, str]:
    """Return the settings with a number in place of vocabulary.size auto, if it is known, and how it is known.

    The arguments are those of `_with_steps`.
    """
    sized = config.vocabulary
    if given := given_vocabulary(placed.vocabulary):
        with suppress(ConfigError):  # one that is too small to be trained keeps `auto`
            sized = replace(sized, size=given.size)
        return replace(config, vocabulary=sized), f"{given.size:,} entries of {sized.path}"
    if characters is not None or not config.corpus:
        sized = sized_for(sized, characters or 0)  # the built-in corpus is small
    most = "at most, for text of unknown size: " * (sized.size == "auto")
    return replace(config, vocabulary=sized), f"auto: {most}{sized.most_entries:,} entries"


def _with_steps(config: Pretrain, placed: Pretrain, characters: int | None, report: Report) -> tuple[Pretrain, str]:
    """Return the settings with the steps of tokens or epochs, and how these are known.

    `placed`: the same settings with absolute locations. `characters`: those of the text, None if not known.
    """
    if (steps := recorded_steps(config, _begun(config))) is not None:
        return with_steps(config, steps), "as counted when the run began"
    if (stream := known_stream(placed)) is not None:
        return replace(config, steps=counted_on(placed, stream, report).steps), "counted in the rows of the corpus"
    if characters is None and config.epochs is not None:
        raise ConfigError(
            f"{length_text(config)} of this text are not known in steps before it is prepared: prepare it "
            "(jobs/prepare.py), or plan with --steps or --tokens"
        )
    return (
        _with_estimated_steps(config, (characters or 0) / CHARACTERS_PER_TOKEN),
        f"estimated with rows of {_row_tokens(config.sampling):,.0f} tokens, until the corpus is prepared and has a "
        "vocabulary",
    )


def _row_tokens(sampling: Sampling) -> float:
    """Return the assumed tokens of a row."""
    return tokens_per_sequence(sampling) * sampling.sequences


def _with_estimated_steps(config: Pretrain, tokens: float) -> Pretrain:
    """Return the settings with the steps on a text of `tokens` tokens, whose rows in a phase are all equally long.

    A window has the same text in every phase, so it has fewer rows where these are longer.
    """
    longest = max(_row_tokens(phase.sampling) for phase in config.all_phases)
    windows = max(1, int(tokens / (WINDOW_ROWS * longest)))

    def lengths(sampling: Sampling) -> RowLengths:
        row = _row_tokens(sampling)
        rows = np.full(max(1, round(tokens / windows / row)), row)
        return RowLengths(lambda window: rows, "the text", windows=1)

    return with_counted_steps(config, lengths, windows)


def _here(config: Pretrain) -> Where:
    """Return where the run would train on this machine."""
    device = device_of(config.placement)
    if device.type != "cuda":
        return Where(on_gpus=False)
    return Where(on_gpus=True, memory=free_memory(device), gpus=torch.cuda.device_count())


def seconds_here(config: Pretrain, measured: FewSteps) -> float:
    """Return the seconds of a run on this machine, whose GPUs, or all of whose threads, compute.

    The time of a slot grows with its operations. The waits for gradients and for data are not counted.
    """
    work = list(loads(config))
    flops = work[0].flops / work[0].rows * measured.rows
    seconds = config.steps * measured.update_seconds
    for load in work:
        slots = slots_of(load.phase)
        world = min(config.worker_range.most, measured.processors, slots) if measured.on_gpu else 1
        seconds += load.flops / flops * measured.slot_seconds / world * (1 + imbalance(slots, world))
    return seconds


def planned_passes(config: Pretrain) -> float | None:
    """Return about how often a run reads its corpus; None if its size is not known without reading or fetching text."""
    characters = known_characters(config)
    return None if characters is None else _passes(config, characters / CHARACTERS_PER_TOKEN)


def passes_over(config: Pretrain, corpus: Corpus, vocabulary: Vocabulary) -> float | None:
    """Return about how often a run reads a prepared corpus, whose first documents are encoded for this."""
    if not corpus.train:
        return None
    texts = read_window(corpus, corpus.train[0])["text"][:SAMPLE].to_pylist()
    encodings = vocabulary.tokenizer().encode_batch(texts, add_special_tokens=False)
    tokens = sum(len(encoding.ids) for encoding in encodings)
    return _passes(config, tokens / sum(map(len, texts)) * corpus.train_characters)


def passes_warning(config: Pretrain, passes: float | None) -> str | None:
    """Return a warning for a run that reads its text very often; None for other runs."""
    if passes is None or passes <= MOST_PASSES:
        return None
    fewer = max(1, math.floor(config.steps * MOST_PASSES / passes))
    instead = f"--epochs {MOST_PASSES}" if config.steps_from else f"--steps {fewer}"
    return (
        f"warning: {config.steps:,} steps are about {passes:,.0f} passes over this text, and BERT's pretraining had "
        f"{MOST_PASSES}: give more text, or {instead}"
    )


def _passes_text(passes: float) -> str:
    """Return a number of passes, with two digits if it is below 1."""
    return f"{passes:,.0f}" if passes >= 10 else f"{passes:.2g}"


def _passes(config: Pretrain, tokens: float) -> float | None:
    """Return the tokens of a run by those of its text. None for given pairs, whose lengths a plan does not know."""
    if config.epochs is not None:
        return config.epochs
    if isinstance(config.sampling.pairs, GivenPairs) or tokens <= 0:
        return None
    return sum(load.tokens for load in loads(config)) / tokens
