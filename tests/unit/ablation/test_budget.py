"""Steps for equal tokens."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.ablation import budget
from pipeline.ablation.budget import streams_of, with_time_budget, with_token_budget
from pipeline.ablation.command import read_ablate
from pipeline.ablation.variants import Variant
from pipeline.config.ablate import Ablate
from pipeline.config.data import Sampling, SingleSegment, TwoCrops
from pipeline.config.jobs import Pretrain
from pipeline.config.objective import Contrastive, Replaced
from pipeline.config.phases import TwoPhases
from pipeline.config.training import AdamW, Batch
from pipeline.corpus.prepared import Corpus
from pipeline.corpus.stream import StreamSettings, window_rows
from pipeline.errors import ConfigError
from pipeline.optim.build import build_optimizer
from pipeline.presets.table import PRESETS
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.vocabulary import Vocabulary
from pipeline.train import counted_steps as counting
from pipeline.train.checkpoint import State, save
from pipeline.train.counted_steps import RowLengths, steps_for_tokens, tokens_of


def config(**changed: Any) -> Pretrain:
    return Pretrain(steps=8, batch=Batch(rows_per_step=8, rows_per_slot=4), **changed)


class Even:
    """Rows of one length, 100 per window."""

    def __init__(self, length: float) -> None:
        self.length, self.begun = length, []

    def read(self, window: int, rows: int) -> tuple[float, int]:
        self.begun.append(window)
        return rows * self.length, window + -(-rows // 100)


def test_steps_read_the_nearest_number_of_tokens() -> None:
    """8 rows of 50 tokens are 400 tokens per step."""
    rows = {Sampling(): Even(50.0)}
    found = {tokens: steps_for_tokens(config(), tokens, rows) for tokens in (1, 400, 599, 601, 4_000, 10**9)}
    assert found == {1: 1, 400: 1, 599: 1, 601: 2, 4_000: 10, 10**9: 2_500_000}


def test_a_batch_that_warms_up_and_a_second_phase_count_their_own_rows() -> None:
    """Steps of 4, 4 and then 8 rows; with a second phase, a quarter of the steps has 2 rows of 200 tokens."""
    warm = Pretrain(steps=9, batch=Batch(rows_per_step=8, rows_per_slot=4, warmup_steps=2, warmup_rows=4))
    assert tokens_of(replace(warm, steps=3), {Sampling(): Even(50.0)}) == 50 * (4 + 4 + 8)
    assert steps_for_tokens(warm, 50 * 40, {Sampling(): Even(50.0)}) == 6
    phased = config(phases=TwoPhases(share=0.25, maximum_length=512, rows_per_step=2, rows_per_slot=2))
    rows = {Sampling(): Even(50.0), Sampling(maximum_length=512): Even(200.0)}
    assert steps_for_tokens(phased, 60 * 400 + 20 * 400, rows) == 80
    assert max(rows[Sampling(maximum_length=512)].begun) == 5  # 480 rows of the first phase read windows 0 to 4


@pytest.fixture
def stream(tiny_corpus: Corpus, tiny_vocabulary: Vocabulary) -> StreamSettings:
    return StreamSettings(
        corpus=tiny_corpus, vocabulary=tiny_vocabulary, sampling=Sampling(maximum_length=32), batch=Batch(), seed=0
    )


def asked(tokens: int, *words: str) -> Ablate:
    return read_ablate(["dropout", "--tokens", str(tokens), *words], "about")


def test_pairs_and_single_segments_get_the_same_tokens_with_every_seed(stream: StreamSettings, tmp_path: Path) -> None:
    """Within half a step of the rows that each run reads."""
    tokens, lines = 3_000, []
    samplings = (stream.sampling, replace(stream.sampling, pairs=SingleSegment()), Sampling(maximum_length=16))
    variants = [Variant(label=str(n), config=config(sampling=each), preset="p") for n, each in enumerate(samplings)]
    streams = [replace(stream, sampling=each) for each in samplings]
    sized = with_token_budget(asked(tokens, "--seeds", "2"), variants, streams, str(tmp_path), lines.append)
    tokenizer, windows = CachedTokenizer(stream.vocabulary), stream.corpus.train
    for variant, each in zip(sized, streams, strict=True):
        assert list(variant.steps) == [0, 1] and [variant.run(seed).steps for seed in (0, 1)] == list(
            variant.steps.values()
        )
        for seed, steps in variant.steps.items():
            tables = [
                window_rows(replace(each, seed=seed), tokenizer, windows, *divmod(number, len(windows)))
                for number in range(20)
            ]
            lengths = [len(ids) for table in tables for ids in table["ids"].to_pylist()]
            read, step = sum(lengths[: 8 * steps]), sum(lengths[8 * steps : 8 * steps + 8])
            assert abs(read - tokens) <= step / 2 + 16 and f"{read:,} tokens" in lines[int(variant.label)]
    assert len({variant.steps[0] for variant in sized}) == 3


def test_runs_of_very_many_windows_are_estimated(stream: StreamSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, windows = CachedTokenizer(stream.vocabulary), stream.corpus.train

    def lengths(number: int) -> np.ndarray:
        table = window_rows(stream, tokenizer, windows, *divmod(number, len(windows)))
        return np.array([len(ids) for ids in table["ids"].to_pylist()])

    known, after = RowLengths(lengths, "text").read(0, 600)
    monkeypatch.setattr(counting, "COUNTED_WINDOWS", 6)
    estimated, about = RowLengths(lengths, "text").read(0, 600)
    assert after > 20 and estimated != known
    assert estimated == pytest.approx(known, rel=0.05) and about == pytest.approx(after, abs=3)


def test_steps_are_counted_once_for_each_seed_and_budget(
    stream: StreamSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = Variant(label="a", config=config(sampling=stream.sampling), preset="p")

    def counted(*words: str, tokens: int = 999, cache: str = str(tmp_path)) -> list[Variant]:
        return with_token_budget(asked(tokens, *words), [variant], [stream], cache, lambda line: None)

    first = counted("--seeds", "1")
    monkeypatch.setattr(budget, "row_lengths", lambda *_: pytest.fail("counted again"))
    assert counted("--seeds", "1") == first
    for change in (("--seeds", "2"), ("--seed", "5")):
        with pytest.raises(pytest.fail.Exception, match="counted again"):
            counted(*change)
    with pytest.raises(pytest.fail.Exception, match="counted again"):
        counted("--seeds", "1", tokens=998)


def test_minutes_become_steps_by_a_short_run_of_each_variant() -> None:
    asked: list[Pretrain] = []

    def train(short: Pretrain, report: object) -> dict[str, object]:
        asked.append(short)
        return {"training_seconds": 6.0 * len(asked), "steps": short.steps}

    base = read_ablate(["dropout", "--minutes", "2", "--seed", "5"], "about")
    variants = [Variant(label=label, config=config(), preset="p") for label in "ab"]
    sized = with_time_budget(variants, base, train, lambda line: None)
    assert [variant.run(6).steps for variant in sized] == [1_200, 600]  # 120 s at 0.1 s and 0.2 s per step
    assert {short.steps for short in asked} == {60} and {short.seed for short in asked} == {5}
    assert all(str(short.name).startswith("timing-p-") for short in asked)
    for words, named in (
        ("--placement.threads 2 --placement.device cpu", "cpu-2-threads"),
        ("--placement.precision float32 --workers 2", "2-workers-precision-float32"),
        ("--placement.graphs off --placement.compile off --workers 1..2", "1..2-workers-compile-off-graphs-off"),
    ):
        base = read_ablate(["dropout", "--minutes", "2", *words.split()], "")
        with_time_budget(variants[:1], base, train, lambda line: None)
        assert str(asked[-1].name).startswith(f"timing-{named}-p-")


@pytest.mark.parametrize("preset", ["encoder-xs", "modernbert-base"])
def test_a_variant_with_longer_warm_ups_than_the_short_run_is_timed_without_them(preset: str) -> None:
    timed: list[Pretrain] = []

    def train(short: Pretrain, report: object) -> dict[str, object]:
        timed.append(short)
        return {"training_seconds": 6.0, "steps": short.steps}

    variant = Variant(label="a", config=PRESETS[preset], preset=preset)
    base = read_ablate(["dropout", "--minutes", "60"], "about")
    (sized,) = with_time_budget([variant], base, train, lambda line: None)
    (short,) = timed
    assert sized.steps[0] == 36_000 and short.steps == 60
    assert short.batch.warmup_steps == 0 and short.batch.rows_per_step == PRESETS[preset].batch.rows_per_step


def test_a_budget_that_a_variant_cannot_have_is_refused_with_its_label(stream: StreamSettings, tmp_path: Path) -> None:
    slow = Pretrain(steps=500, batch=Batch(rows_per_step=8, rows_per_slot=4, warmup_steps=400, warmup_rows=4))
    slow = replace(slow, sampling=stream.sampling)
    variant = Variant(label="slow", config=slow, preset="p")
    with pytest.raises(ConfigError, match=r"^variant 'slow': batch.warmup_steps \(400\) must be at most"):
        with_token_budget(asked(100, "--seeds", "1"), [variant], [stream], str(tmp_path), lambda line: None)


@pytest.fixture
def published(
    training, tiny_config: Pretrain, tiny_vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Pretrain], Pretrain]:
    """Return the settings with a new model of these settings as config.init; streams are of the tiny corpus."""
    monkeypatch.setattr(budget, "find_corpus", lambda *_: training.corpus)

    def publish(config: Pretrain) -> Pretrain:
        module = training.module(config)
        folder = save(str(tmp_path), State(step=1), module, build_optimizer(AdamW(), module), tiny_vocabulary)
        return replace(config, init=folder, output=str(tmp_path / "out"))

    return publish


@pytest.mark.parametrize("family_config", ["electra"], indirect=True)
def test_variants_start_from_a_model_whose_generator_has_embeddings_of_its_own(
    family_config: Pretrain, published: Callable[[Pretrain], Pretrain], tiny_vocabulary: Vocabulary
) -> None:
    own = published(replace(family_config, objective=Replaced(embedding_sharing="gradient-disentangled")))
    (stream,) = streams_of([Variant(label="a", config=own, preset="p")], lambda line: None)
    assert stream.vocabulary == tiny_vocabulary


def test_tokens_of_the_prompts_of_init_are_counted(
    tiny_config: Pretrain, published: Callable[[Pretrain], Pretrain], tmp_path: Path
) -> None:
    sampling = replace(tiny_config.sampling, pairs=TwoCrops())
    given = published(replace(tiny_config, objective=Contrastive(), sampling=sampling))
    prompts = {"prompts": {"query": "kar lond mip: ", "passage": "nest sul tam: "}}
    Path(str(given.init), "config_sentence_transformers.json").write_text(json.dumps(prompts))
    bare = replace(given, sampling=replace(sampling, query_prompt="", document_prompt=""))
    variants = [Variant(label=label, config=each, preset="p") for label, each in (("given", given), ("bare", bare))]
    streams = streams_of(variants, lambda line: None)
    assert [stream.sampling.prompts for stream in streams] == [("kar lond mip: ", "nest sul tam: "), ("", "")]
    sized = with_token_budget(asked(9_999, "--seeds", "1"), variants, streams, str(tmp_path), lambda line: None)
    assert sized[0].steps[0] < sized[1].steps[0]
