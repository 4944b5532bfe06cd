"""Set each variant's steps so that all variants train on the same number of tokens or for the same time."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pipeline import storage
from pipeline.ablation.variants import Variant
from pipeline.config.ablate import Ablate
from pipeline.config.data import Sampling
from pipeline.config.jobs import Pretrain
from pipeline.config.locations import with_absolute_locations
from pipeline.corpus.order import offset
from pipeline.corpus.stream import StreamSettings, window_rows
from pipeline.errors import ConfigError
from pipeline.objectives.table import trained_parts
from pipeline.reporting import Report
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.train.initial import read_initial
from pipeline.train.naming import identifying_settings
from pipeline.train.run_data import find_corpus, stream_settings
from pipeline.train.teacher import with_teacher

Train = Callable[[Pretrain, Report], dict[str, Any]]
"""Function that pretrains a run and returns the run's summary."""
COUNTED_WINDOWS = 200
"""Maximum number of windows whose tokens are counted; the tokens of further windows are estimated."""
TIMED_STEPS = 60
"""Steps of the short run that times a variant."""
TIMING = "ablation timing"
"""MLflow experiment of the short runs."""


def with_token_budget(
    config: Ablate, variants: Sequence[Variant], streams: Sequence[StreamSettings], cache: str, report: Report
) -> list[Variant]:
    """Return the variants with a number of steps per seed, chosen so that a run's tokens are nearest to config.tokens.

    `streams`: stream settings of each variant. `cache`: folder that stores the counts. Raises ConfigError, with the
    variant's label, if the variant's settings allow only runs with more tokens.
    """
    assert config.token_count is not None
    sized = []
    for variant, stream in zip(variants, streams, strict=True):
        counted = {seed: _counted(variant, stream, seed, config.token_count, cache) for seed in config.all_seeds}
        sized.append(replace(variant, steps={seed: steps for seed, (steps, _) in counted.items()}))
        counts = "; ".join(
            f"seed {seed}: {steps:,} steps, {tokens:,} tokens" for seed, (steps, tokens) in counted.items()
        )
        report(f"{variant.label}: {counts}")
    return sized


def with_time_budget(variants: Sequence[Variant], config: Ablate, train: Train, report: Report) -> list[Variant]:
    """Return the variants with as many steps as fit into config.minutes; a short run measures the time per step."""
    assert config.minutes is not None
    sized = []
    for variant in variants:
        timed = replace(variant.config, steps=TIMED_STEPS, tracking=replace(variant.config.tracking, experiment=TIMING))
        timed = Variant(label=variant.label, config=timed, preset=f"timing-{variant.preset}").run(config.seed)
        summary = train(timed, lambda line: None)
        seconds = summary["training_seconds"] / summary["steps"]
        steps = max(1, round(60 * config.minutes / seconds))
        sized.append(replace(variant, steps=dict.fromkeys(config.all_seeds, steps)))
        report(f"{variant.label}: {steps:,} steps, because a step of a short run took {1_000 * seconds:.1f} ms")
    return sized


def _counted(variant: Variant, stream: StreamSettings, seed: int, tokens: int, cache: str) -> tuple[int, int]:
    """Return the steps and expected tokens of a variant's run with this seed; count them unless they are stored."""
    config = replace(variant.config, seed=seed)
    key = {name: value for name, value in identifying_settings(config).items() if name != "steps"} | {
        "corpus": stream.corpus.fingerprint,
        "vocabulary": stream.vocabulary.fingerprint,
        "tokens": tokens,
    }
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]
    location = storage.join(cache, f"{digest}.json")
    if (stored := storage.read_object(location)) and stored.get("key") == key:
        return stored["steps"], stored["expected"]
    samplings = dict.fromkeys(phase.sampling for phase in config.all_phases)
    rows = {sampling: RowLengths(replace(stream, sampling=sampling, seed=seed)) for sampling in samplings}
    try:
        steps = steps_for_tokens(config, tokens, rows)
        expected = round(tokens_of(replace(config, steps=steps), rows))
    except ConfigError as error:
        raise ConfigError(f"variant {variant.label!r}: {error}") from error
    storage.write_json(location, {"key": key, "steps": steps, "expected": expected})
    return steps, expected


class RowLengths:
    """Number of tokens in each row of a stream, including special tokens. A window is read when it is first needed.

    Windows differ: in one corpus of articles, with sampling.pairs:single-segment, the mean number of tokens per row was
    86 in one window and 122 in another. Therefore, this class counts the tokens of the rows that a run reads. It
    estimates only the tokens after the first COUNTED_WINDOWS windows.
    """

    def __init__(self, stream: StreamSettings) -> None:
        self.stream, self.tokenizer = stream, CachedTokenizer(stream.vocabulary, stream.table_chunks)
        self.windows: dict[int, np.ndarray] = {}
        """Number of a window, counted through all epochs -> number of tokens in each row of the window."""

    def read(self, window: int, rows: int) -> tuple[float, int]:
        """Return the number of tokens in the first `rows` rows from `window` on, and the number of the next window.

        Raises ConfigError if the first COUNTED_WINDOWS windows have no rows.
        """
        tokens = 0.0
        while rows and window < COUNTED_WINDOWS:
            lengths = self._of_window(window)[:rows]
            tokens, rows, window = tokens + float(lengths.sum()), rows - len(lengths), window + 1
        if not rows:
            return tokens, window
        counted = [self._of_window(number) for number in range(COUNTED_WINDOWS)]
        every = np.concatenate(counted)
        if not len(every):
            raise ConfigError(f"the first windows of {self.stream.corpus.folder} have no rows: give longer documents")
        return tokens + rows * float(every.mean()), window + math.ceil(rows * len(counted) / len(every))

    def _of_window(self, number: int) -> np.ndarray:
        if number not in self.windows:
            train = self.stream.corpus.train
            rows = window_rows(self.stream, self.tokenizer, train, *divmod(number, len(train)))
            self.windows[number] = rows["ids"].combine_chunks().value_lengths().to_numpy()
        return self.windows[number]


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


def streams_of(variants: Sequence[Variant], report: Report) -> list[StreamSettings]:
    """Return the stream settings of each variant. Prepare the corpus and train vocabularies first if they are missing.

    Needs Ray. Raises PipelineError for text or a vocabulary that cannot be used.
    """
    streams = []
    for variant in variants:
        config = with_absolute_locations(variant.config)
        found, initial = find_corpus(config, report), None
        if config.init:
            used = trained_parts(config.objective, config.sampling)
            initial = read_initial(config.init, config.vocabulary, config.output, report, used=used)
        config, _ = with_teacher(config, initial, report)
        streams.append(stream_settings(config, found, initial, report))
    return streams
