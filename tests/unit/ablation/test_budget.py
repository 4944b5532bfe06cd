"""Steps for equal tokens."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.ablation import budget
from pipeline.ablation.budget import mean_tokens, steps_for_tokens, tokens_of, with_time_budget, with_token_budget
from pipeline.ablation.command import read_ablate
from pipeline.ablation.variants import Variant
from pipeline.config.data import Sampling, SingleSegment
from pipeline.config.jobs import Pretrain
from pipeline.config.phases import TwoPhases
from pipeline.config.training import Batch
from pipeline.corpus.prepared import Corpus
from pipeline.corpus.stream import StreamSettings, window_rows
from pipeline.errors import ConfigError
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.vocabulary import Vocabulary


def config(**changed: object) -> Pretrain:
    return Pretrain(steps=1, batch=Batch(rows_per_step=8, rows_per_slot=4), **changed)


def test_steps_read_the_nearest_number_of_tokens() -> None:
    """8 rows of 50 tokens are 400 tokens per step."""
    per_row = {Sampling(): 50.0}
    found = {tokens: steps_for_tokens(config(), tokens, per_row) for tokens in (1, 400, 599, 601, 4_000, 10**9)}
    assert found == {1: 1, 400: 1, 599: 1, 601: 2, 4_000: 10, 10**9: 2_500_000}


def test_a_batch_that_warms_up_and_a_second_phase_count_their_own_rows() -> None:
    """Steps of 4, 4 and then 8 rows; with a second phase, a quarter of the steps has 2 rows of 200 tokens."""
    warm = Pretrain(steps=9, batch=Batch(rows_per_step=8, rows_per_slot=4, warmup_steps=2, warmup_rows=4))
    assert tokens_of(replace(warm, steps=3), {Sampling(): 50.0}) == 50 * (4 + 4 + 8)
    assert steps_for_tokens(warm, 50 * 40, {Sampling(): 50.0}) == 6
    phases = TwoPhases(share=0.25, maximum_length=512, rows_per_step=2, rows_per_slot=2)
    phased = replace(warm, batch=Batch(rows_per_step=8, rows_per_slot=4), phases=phases)
    per_row = {Sampling(): 50.0, Sampling(maximum_length=512): 200.0}
    assert steps_for_tokens(phased, 6 * 400 + 2 * 400, per_row) == 8


@pytest.fixture
def stream(tiny_corpus: Corpus, tiny_vocabulary: Vocabulary) -> StreamSettings:
    return StreamSettings(
        corpus=tiny_corpus, vocabulary=tiny_vocabulary, sampling=Sampling(maximum_length=32), batch=Batch(), seed=0
    )


def test_pairs_and_single_segments_get_the_same_tokens(stream: StreamSettings, tmp_path: Path) -> None:
    tokens = 100_000
    samplings = (
        Sampling(maximum_length=32),
        Sampling(maximum_length=32, pairs=SingleSegment()),
        Sampling(maximum_length=16),
    )
    variants = [Variant(label=str(n), config=config(sampling=each), preset="p") for n, each in enumerate(samplings)]
    streams = [replace(stream, sampling=each) for each in samplings]
    sized = with_token_budget(variants, tokens, streams, str(tmp_path), lambda line: None)
    for variant, each in zip(sized, streams, strict=True):
        rows = variant.config.steps * variant.config.batch.rows_per_step
        assert rows * mean_tokens(each) == pytest.approx(tokens, rel=0.01)
    assert len({variant.config.steps for variant in sized}) == 3


def test_tokens_per_row_are_those_of_the_first_windows_and_counted_once(
    stream: StreamSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = CachedTokenizer(stream.vocabulary)
    tables = [window_rows(stream, tokenizer, stream.corpus.train, 0, position) for position in range(4)]
    lengths = [len(row) for table in tables for row in table["ids"].to_pylist()]
    assert mean_tokens(stream) == pytest.approx(sum(lengths) / len(lengths))
    variant = Variant(label="a", config=config(sampling=stream.sampling), preset="p")
    first = with_token_budget([variant], 9_999, [stream], str(tmp_path), lambda line: None)
    monkeypatch.setattr(budget, "mean_tokens", lambda stream: pytest.fail("counted again"))
    assert with_token_budget([variant], 9_999, [stream], str(tmp_path), lambda line: None) == first
    with pytest.raises(pytest.fail.Exception, match="counted again"):
        with_token_budget([variant], 9_999, [replace(stream, seed=1)], str(tmp_path), lambda line: None)


def test_minutes_become_steps_by_a_short_run_of_each_variant() -> None:
    asked: list[Pretrain] = []

    def train(short: Pretrain, report: object) -> dict[str, object]:
        asked.append(short)
        return {"training_seconds": 6.0 * len(asked), "steps": short.steps}

    base = read_ablate(["dropout", "--minutes", "2", "--seed", "5"], "about")
    variants = [Variant(label=label, config=config(), preset="p") for label in "ab"]
    sized = with_time_budget(variants, base, train, lambda line: None)
    assert [variant.config.steps for variant in sized] == [1_200, 600]  # 120 s at 0.1 s and 0.2 s per step
    assert {short.steps for short in asked} == {60} and {short.seed for short in asked} == {5}
    assert all(str(short.name).startswith("timing-p-") for short in asked)


def test_a_budget_that_a_variant_cannot_have_is_refused_with_its_label(stream: StreamSettings, tmp_path: Path) -> None:
    slow = Pretrain(steps=500, batch=Batch(rows_per_step=8, rows_per_slot=4, warmup_steps=400, warmup_rows=4))
    slow = replace(slow, sampling=stream.sampling)
    variant = Variant(label="slow", config=slow, preset="p")
    with pytest.raises(ConfigError, match=r"^variant 'slow' of 399 steps: batch.warmup_steps \(400\) must be at most"):
        with_token_budget([variant], 100, [stream], str(tmp_path), lambda line: None)
