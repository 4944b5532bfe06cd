"""Set each variant's steps so that all variants train on the same number of tokens or for the same time."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pipeline.ablation.variants import Variant
from pipeline.config.ablate import Ablate
from pipeline.config.jobs import Pretrain
from pipeline.config.locations import with_absolute_locations
from pipeline.config.objective import OF_WORDS
from pipeline.config.placement import Placement
from pipeline.config.training import ConstantRate
from pipeline.corpus.stream import StreamSettings
from pipeline.errors import ConfigError
from pipeline.files import storage
from pipeline.objectives.table import trained_parts
from pipeline.reporting import Report
from pipeline.saved.naming import identifying_settings
from pipeline.train.counted_steps import steps_for_tokens, tokens_of
from pipeline.train.initial import pads_vocabulary, read_initial
from pipeline.train.prompts import with_prompts
from pipeline.train.run_data import find_corpus, row_lengths, stream_settings
from pipeline.train.teacher import with_teacher

Train = Callable[[Pretrain, Report], dict[str, Any]]
"""Function that pretrains a run and returns the run's summary."""
TIMED_STEPS = 60
"""Steps of the short run that times a variant."""
TIMING = "ablation timing"
"""MLflow experiment of the short runs."""
COMPUTED = ("precision", "residual", "compile", "graphs", "flash_attention", "recompute", "recompute_products")
"""Settings of placement that change how a step is computed."""


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
    """Return the variants with as many steps as fit into config.minutes; a short run measures the time per step.

    If workers, device, threads or settings in COMPUTED are set, they are in the short run's name, because a step takes
    another time with others.
    """
    assert config.minutes is not None
    device, threads, workers = config.placement.device, config.placement.threads, config.workers
    on = f"-{device}" * (device != "auto") + f"-{threads}-threads" * (threads is not None)
    on += f"-{workers}-workers" * (workers != 1)
    for name in COMPUTED:
        value = getattr(config.placement, name)
        on += f"-{name}-{value}" * (value != getattr(Placement, name))
    sized = []
    for variant in variants:
        timed = _short(variant.config)
        timed = replace(timed, tracking=replace(timed.tracking, experiment=TIMING))
        timed = Variant(label=variant.label, config=timed, preset=f"timing{on}-{variant.preset}").run(config.seed)
        summary = train(timed, lambda line: None)
        seconds = summary["training_seconds"] / summary["steps"]
        steps = max(1, round(60 * config.minutes / seconds))
        sized.append(replace(variant, steps=dict.fromkeys(config.all_seeds, steps)))
        report(f"{variant.label}: {steps:,} steps, because a step of a short run took {1_000 * seconds:.1f} ms")
    return sized


def _short(config: Pretrain) -> Pretrain:
    """Return the settings with TIMED_STEPS steps, without warm-ups if they are too long for so few steps."""
    try:
        return replace(config, steps=TIMED_STEPS)
    except ConfigError:
        batch = replace(config.batch, warmup_steps=0, warmup_rows=None)
        return replace(config, steps=TIMED_STEPS, batch=batch, schedule=ConstantRate(warmup_steps=0))


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
    query, document = stream.sampling.query_prompt, stream.sampling.document_prompt  # may be those of config.init
    prompted = {each: replace(each, query_prompt=query, document_prompt=document) for each in samplings}
    rows = {each: row_lengths(replace(stream, sampling=prompted[each], seed=seed)) for each in samplings}
    try:
        steps = steps_for_tokens(config, tokens, rows)
        expected = round(tokens_of(replace(config, steps=steps), rows))
    except ConfigError as error:
        raise ConfigError(f"variant {variant.label!r}: {error}") from error
    storage.write_json(location, {"key": key, "steps": steps, "expected": expected})
    return steps, expected


def streams_of(variants: Sequence[Variant], report: Report) -> list[StreamSettings]:
    """Return the stream settings of each variant. Prepare the corpus and train vocabularies first if they are missing.

    Needs Ray. Raises PipelineError for text or a vocabulary that cannot be used.
    """
    streams = []
    for variant in variants:
        config = with_absolute_locations(variant.config)
        found, initial = find_corpus(config, report), None
        if config.init:
            initial = read_initial(
                config.init,
                config.vocabulary,
                config.output,
                report,
                used=trained_parts(config.objective, config.sampling),
                shares_embeddings=config.objective.shares_embeddings,
                keeps_padding=pads_vocabulary(config.objective),
            )
        config = with_prompts(config, report)
        if config.objective.teacher_gives == OF_WORDS:  # completes the settings, such as the vocabulary
            config, _ = with_teacher(config, initial, report)
        streams.append(stream_settings(config, found, initial, report))
    return streams
