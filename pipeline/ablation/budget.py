"""Steps of each variant, so that all variants train on as many tokens or for as many minutes."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pipeline import storage
from pipeline.ablation.variants import Variant
from pipeline.config.ablate import Ablate
from pipeline.config.data import Sampling
from pipeline.config.flat import flatten
from pipeline.config.jobs import Pretrain
from pipeline.config.locations import with_absolute_locations
from pipeline.corpus.order import offset
from pipeline.corpus.stream import StreamSettings, window_rows
from pipeline.errors import ConfigError
from pipeline.objectives.table import trained_parts
from pipeline.reporting import Report
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.train.initial import read_initial
from pipeline.train.run_data import find_corpus, stream_settings

Train = Callable[[Pretrain, Report], dict[str, Any]]
"""Pretrains, and returns the run's summary."""
SAMPLED_WINDOWS = 4
"""Windows in which the tokens per row are counted, the first that a run reads."""
TIMED_STEPS = 60
"""Steps of the short run that times a variant."""
TIMING = "ablation timing"
"""MLflow experiment of the short runs."""


def with_token_budget(
    variants: Sequence[Variant], tokens: int, streams: Sequence[StreamSettings], cache: str, report: Report
) -> list[Variant]:
    """Return the variants with the number of steps that is nearest to `tokens` tokens.

    `streams`: stream settings of each variant. `cache`: folder of counts that are made once. Raises ConfigError, with
    the variant's label, if its settings do not allow that number.
    """
    sized = []
    for variant, stream in zip(variants, streams, strict=True):
        per_row = {
            sampling: _mean_tokens(replace(stream, sampling=sampling), cache)
            for sampling in dict.fromkeys(phase.sampling for phase in variant.config.all_phases)
        }
        steps = steps_for_tokens(variant.config, tokens, per_row)
        if steps > 1 and _tokens_of_steps(variant.config, steps, per_row) > tokens:
            _with_steps(variant, steps - 1)  # refused if the settings, such as a warm-up, need more tokens than that
        sized.append(_with_steps(variant, steps))
        report(
            f"{variant.label}: {steps:,} steps, about {tokens_of(sized[-1].config, per_row):,.0f} tokens of "
            f"{' and '.join(f'{mean:.1f}' for mean in per_row.values())} per row"
        )
    return sized


def with_time_budget(variants: Sequence[Variant], config: Ablate, train: Train, report: Report) -> list[Variant]:
    """Return the variants with as many steps as fit into config.minutes, by a short run of each."""
    assert config.minutes is not None
    sized = []
    for variant in variants:
        timed = replace(variant.config, steps=TIMED_STEPS, tracking=replace(variant.config.tracking, experiment=TIMING))
        timed = Variant(label=variant.label, config=timed, preset=f"timing-{variant.preset}").run(config.seed)
        summary = train(timed, lambda line: None)
        seconds = summary["training_seconds"] / summary["steps"]
        steps = max(1, round(60 * config.minutes / seconds))
        sized.append(_with_steps(variant, steps))
        report(f"{variant.label}: {steps:,} steps, by {1_000 * seconds:.1f} ms per step in a short run")
    return sized


def _with_steps(variant: Variant, steps: int) -> Variant:
    """Return the variant with this number of steps. Raises ConfigError, with its label, if its settings refuse it."""
    try:
        return replace(variant, config=replace(variant.config, steps=steps))
    except ConfigError as error:
        raise ConfigError(f"variant {variant.label!r} of {steps:,} steps: {error}") from error


def steps_for_tokens(config: Pretrain, tokens: int, per_row: Mapping[Sampling, float]) -> int:
    """Return the number of steps with which a run reads the number of tokens nearest to `tokens`, at least 1.

    `per_row`: sampling of a phase -> mean tokens per row.
    """
    low, high = 0, 1
    while _tokens_of_steps(config, high, per_row) < tokens:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _tokens_of_steps(config, middle, per_row) < tokens else (low, middle)
    below, above = (abs(_tokens_of_steps(config, steps, per_row) - tokens) for steps in (low, high))
    return low if low and below < above else high


def _tokens_of_steps(config: Pretrain, steps: int, per_row: Mapping[Sampling, float]) -> float:
    """Return the expected tokens of a run of `steps` steps; 0 if the settings do not allow so few steps."""
    try:
        return tokens_of(replace(config, steps=steps), per_row) if steps else 0.0
    except ConfigError:
        return 0.0


def tokens_of(config: Pretrain, per_row: Mapping[Sampling, float]) -> float:
    """Return the expected tokens of a run."""
    return sum(offset(phase.end - phase.first, phase.batch) * per_row[phase.sampling] for phase in config.all_phases)


def _mean_tokens(stream: StreamSettings, cache: str) -> float:
    """Return the mean tokens per row in the first windows of a run, special tokens included; stored after counting."""
    key = {
        "corpus": stream.corpus.fingerprint,
        "vocabulary": stream.vocabulary.fingerprint,
        "seed": stream.seed,
        "windows": SAMPLED_WINDOWS,
        "sampling": flatten(stream.sampling),
    }
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]
    location = storage.join(cache, f"{digest}.json")
    if (stored := storage.read_object(location)) and stored.get("key") == key:
        return stored["tokens_per_row"]
    mean = mean_tokens(stream)
    storage.write_json(location, {"key": key, "tokens_per_row": mean})
    return mean


def mean_tokens(stream: StreamSettings) -> float:
    """Return the mean tokens per row in the first windows that a run reads. Raises ConfigError if they have no rows."""
    tokenizer, windows = CachedTokenizer(stream.vocabulary, stream.table_chunks), stream.corpus.train
    lengths = [
        window_rows(stream, tokenizer, windows, 0, position)["ids"].combine_chunks().value_lengths().to_numpy()
        for position in range(min(SAMPLED_WINDOWS, len(windows)))
    ]
    every = np.concatenate(lengths)
    if not len(every):
        raise ConfigError(f"the first windows of {stream.corpus.folder} have no rows: give longer documents")
    return float(every.mean())


def streams_of(variants: Sequence[Variant], report: Report) -> list[StreamSettings]:
    """Return the stream settings of each variant; the corpus is prepared and vocabularies are trained if they do not
    exist.

    Needs Ray. Raises PipelineError for text or a vocabulary that cannot be used.
    """
    streams = []
    for variant in variants:
        config = with_absolute_locations(variant.config)
        found, initial = find_corpus(config, report), None
        if config.init:
            used = trained_parts(config.objective, config.sampling)
            initial = read_initial(config.init, config.vocabulary, config.output, report, used=used)
        streams.append(stream_settings(config, found, initial, report))
    return streams
