"""The settings, the presets, and the command line made of them."""

import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs import pretrain
from pipeline.config.ablate import Ablate
from pipeline.config.adapt import Adapt
from pipeline.config.data import (
    FullSentences,
    NextSentence,
    NgramMasking,
    Preparation,
    Sampling,
    SentenceOrder,
    SingleSegment,
    SpanMasking,
    TokenMasking,
    VocabularySettings,
    WholeWordMasking,
)
from pipeline.config.embed import Search
from pipeline.config.finetune import Finetune, Trials
from pipeline.config.flat import flatten
from pipeline.config.jobs import Pretrain, with_words_rate
from pipeline.config.model import Model
from pipeline.config.model_parts import (
    BlockSparseAttention,
    BucketedAttention,
    DisentangledAttention,
    FullAttention,
    GlobalLocalAttention,
    LocalAttention,
    RotaryPositions,
)
from pipeline.config.objective import Masked, Replaced
from pipeline.config.phases import FallingMasks, OnePhase, TwoPhases
from pipeline.config.pictures import Attention, Ranks
from pipeline.config.placement import ModelPlacement, Placement, TrialPlacement
from pipeline.config.predict import Predict
from pipeline.config.training import (
    AdamW,
    Batch,
    Checkpoints,
    ConstantRate,
    CosineDecay,
    Evaluation,
    Lamb,
    LinearDecay,
    Muon,
    PolynomialDecay,
    StableAdamW,
    Tracking,
    WarmupStableDecay,
)
from pipeline.corpus.order import offset
from pipeline.errors import JOBS, ConfigError
from pipeline.model.flops import PEAKS
from pipeline.presets.table import PRESETS, split_preset, starting_point, unnamed_note
from tests.refusals import refusal

ROOT = Path(__file__).parents[2]
PRESET_NAMES = (
    "encoder-xs, encoder-s, encoder-b, bert-tiny, bert-mini, bert-small, bert-medium, bert-base, bert-large, "
    "roberta-tiny, roberta-mini, roberta-base, roberta-large, mbert-tiny, mbert-base, xlm-roberta-tiny, "
    "xlm-roberta-base, "
    "electra-tiny, electra-mini, electra-small, electra-base, "
    "distilbert-tiny, distilbert-mini, distilbert-base, "
    "albert-tiny, albert-mini, albert-base, albert-large, albert-xlarge, albert-xxlarge, continue, "
    "continue-small, bert-tiny-fast, bert-mini-fast, bert-small-fast, bert-medium-fast, bert-base-fast, "
    "bert-large-fast, roberta-tiny-fast, roberta-mini-fast, roberta-base-fast, roberta-large-fast, "
    "mbert-tiny-fast, mbert-base-fast, xlm-roberta-tiny-fast, xlm-roberta-base-fast, "
    "electra-tiny-fast, electra-mini-fast, electra-small-fast, electra-base-fast, "
    "distilbert-tiny-fast, distilbert-mini-fast, distilbert-base-fast, albert-tiny-fast, "
    "albert-mini-fast, albert-base-fast, albert-large-fast, albert-xlarge-fast, albert-xxlarge-fast, continue-fast, "
    "continue-small-fast, modernbert-tiny, modernbert-mini, modernbert-small, modernbert-medium, modernbert-base, "
    "modernbert-large, deberta-tiny, deberta-base, deberta-v3-tiny, deberta-v3-xsmall, deberta-v3-small, "
    "deberta-v3-base, longformer-tiny, longformer-base, bigbird-tiny, bigbird-base, quickstart"
)
WRONG_NAME = "may hold letters, digits, '-', '_' and '.' only and must not start with '.'"

REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: Model(width=770, heads=12), "model.width (770) must be a multiple of model.heads (12)"),
    (lambda: Model(layers=0), "model.layers (0) must be at least 1"),
    (lambda: Model(heads=0), "model.heads (0) must be at least 1"),
    (lambda: Model(hidden_dropout=1.5), "model.hidden_dropout (1.5) must lie between 0 and 1"),
    (lambda: Model(attention_dropout=-0.1), "model.attention_dropout (-0.1) must lie between 0 and 1"),
    (lambda: Model(layer_norm_epsilon=0.0), "model.layer_norm_epsilon (0.0) must be above 0"),
    (lambda: Model(initializer_deviation=float("nan")), "model.initializer_deviation (nan) must be above 0"),
    (
        lambda: Batch(rows_per_step=100, rows_per_slot=32),
        "batch.rows_per_step (100) must be a multiple of batch.rows_per_slot (32)",
    ),
    (
        lambda: Search(vectors="v", queries="caf\udce9"),
        "queries ('caf\\udce9') is not UTF-8: give a text in UTF-8",
    ),
    (
        lambda: Adapt(corpus=("a",), init="m", queries="caf\udce9"),
        "queries ('caf\\udce9') is not UTF-8: give a text in UTF-8",
    ),
    (
        lambda: Ranks(before="a", after="b", query="caf\udce9"),
        "query ('caf\\udce9') is not UTF-8: give a text in UTF-8",
    ),
    (
        lambda: Attention(checkpoint="m", sentence="caf\udce9"),
        "sentence ('caf\\udce9') is not UTF-8: give a text in UTF-8",
    ),
    (lambda: BucketedAttention(buckets=3), "model.attention.buckets (3) must be at least 4"),
    (
        lambda: BucketedAttention(buckets=8, maximum_distance=5),
        "model.attention.maximum_distance (5) must be above model.attention.buckets (8) / 2 + 1: lower the buckets",
    ),
    (lambda: DisentangledAttention(maximum_distance=0), "model.attention.maximum_distance (0) must be at least 1"),
    (lambda: Batch(rows_per_slot=0), "batch.rows_per_slot (0) must be at least 1"),
    (lambda: Batch(rows_per_step=0), "batch.rows_per_step (0) must be at least 1"),
    (lambda: Batch(warmup_steps=-1), "batch.warmup_steps (-1) must be at least 0"),
    (
        lambda: Batch(warmup_steps=9),
        "batch.warmup_steps (9) and batch.warmup_rows (None) go together: set both or neither",
    ),
    (
        lambda: Batch(warmup_rows=32),
        "batch.warmup_steps (0) and batch.warmup_rows (32) go together: set both or neither",
    ),
    (
        lambda: Batch(rows_per_slot=32, warmup_steps=9, warmup_rows=33),
        "batch.warmup_rows (33) must be a multiple of batch.rows_per_slot (32) and at most batch.rows_per_step (256)",
    ),
    (
        lambda: Batch(warmup_steps=9, warmup_rows=512),
        "batch.warmup_rows (512) must be a multiple of batch.rows_per_slot (32) and at most batch.rows_per_step (256)",
    ),
    (
        lambda: Pretrain(steps=8, batch=Batch(warmup_steps=9, warmup_rows=32)),
        "batch.warmup_steps (9) must be at most the steps (8)",
    ),
    (
        lambda: Pretrain(steps=20, batch=Batch(warmup_steps=19, warmup_rows=32), phases=TwoPhases()),
        "batch.warmup_steps (19) must be at most the steps of the first phase (18)",
    ),
    (
        lambda: Pretrain(workers=3, batch=Batch(rows_per_slot=32, warmup_steps=9, warmup_rows=64)),
        "workers (3) must be at most the slots of a step (2 = batch.warmup_rows 64 / batch.rows_per_slot 32): use "
        "fewer workers or --batch.rows-per-slot 16 (or auto)",
    ),
    (
        lambda: Pretrain(workers=3, phases=TwoPhases(rows_per_step=64, rows_per_slot=32)),
        "workers (3) must be at most the slots of a step (2 = phases.rows_per_step 64 / phases.rows_per_slot 32): use "
        "fewer workers or --phases.rows-per-slot 16 (or auto)",
    ),
    (
        lambda: Batch(rows_per_step=262),
        "batch.rows_per_step (262) divides steps into slots of 2 (batch.rows_per_slot auto): use a multiple of 32, or "
        "set batch.rows_per_slot",
    ),
    (
        lambda: Batch(warmup_steps=9, warmup_rows=33),
        "batch.warmup_rows (33) divides steps into slots of 1 (batch.rows_per_slot auto): use a multiple of 32, or "
        "set batch.rows_per_slot",
    ),
    (
        lambda: TwoPhases(rows_per_step=262),
        "phases.rows_per_step (262) divides steps into slots of 2 (phases.rows_per_slot auto): use a multiple of 32, "
        "or set phases.rows_per_slot",
    ),
    (lambda: TwoPhases(share=0.0), "phases.share (0.0) must lie between 0 and 1"),
    (lambda: TwoPhases(share=1.0), "phases.share (1.0) must lie between 0 and 1"),
    (lambda: TwoPhases(maximum_length=7), "phases.maximum_length (7) must be at least 8"),
    (lambda: TwoPhases(rows_per_slot=0), "phases.rows_per_slot (0) must be at least 1"),
    (lambda: TwoPhases(rows_per_step=0), "phases.rows_per_step (0) must be at least 1"),
    (
        lambda: TwoPhases(rows_per_step=100, rows_per_slot=8),
        "phases.rows_per_step (100) must be a multiple of phases.rows_per_slot (8)",
    ),
    (
        lambda: Pretrain(steps=4, phases=TwoPhases()),
        "phases.share (0.1) of steps (4) gives the second phase 0 of the steps, but each phase needs at least one: "
        "set more steps, or choose phases:one-phase",
    ),
    (
        lambda: Pretrain(model=Model(maximum_positions=128), phases=TwoPhases()),
        "phases.maximum_length (512) must be at most model.maximum_positions (128)",
    ),
    (lambda: FallingMasks(masking_shares=(1.5,)), "phases.masking_shares (1.5) must lie between 0 and 1"),
    (
        lambda: FallingMasks(parts=(0.5, 0.5)),
        "phases.parts (0.5, 0.5) must have a value for each of the 3 phases: the first phase and one for each of "
        "phases.masking_shares (a half, a sixth)",
    ),
    (
        lambda: FallingMasks(parts=(0.5, 0.3, 0.3)),
        "phases.parts (0.5, 0.3, 0.3) must be above 0 and add up to 1, but they add up to 1.1",
    ),
    (
        lambda: FallingMasks(parts=(1.0, 0.5, -0.5)),
        "phases.parts (1, 0.5, -0.5) must be above 0 and add up to 1, but they add up to 1",
    ),
    (
        lambda: Pretrain(phases=FallingMasks(masking_shares=(0.15, 0.05))),
        "phases.masking_shares (0.15, 0.05) must fall, from sampling.masking.share (0.15) on: raise "
        "sampling.masking.share, or lower the shares",
    ),
    (
        lambda: Pretrain(steps=2, sampling=Sampling(masking=TokenMasking(share=0.3)), phases=FallingMasks()),
        "phases.parts (0.333333, 0.333333, 0.333333) of steps (2) leaves a phase without steps: set more steps, or "
        "choose phases:one-phase",
    ),
    (lambda: TwoPhases(theta=0.0), "phases.theta (0.0) must be above 0"),
    (
        lambda: Pretrain(phases=TwoPhases(theta=160_000.0)),
        "phases.theta (160000.0) needs model.positions:rotary-positions, but model.positions is LearnedPositions: "
        "leave phases.theta out",
    ),
    (lambda: Muon(momentum=1.0), "optimizer.momentum (1.0) must be at least 0 and below 1"),
    (lambda: AdamW(learning_rate=1.0), "optimizer.learning_rate (1.0) must lie between 0 and 1"),
    (lambda: AdamW(learning_rate=float("nan")), "optimizer.learning_rate (nan) must lie between 0 and 1"),
    (lambda: AdamW(beta1=1.0), "optimizer.beta1 (1.0) must be at least 0 and below 1"),
    (lambda: AdamW(beta2=-0.5), "optimizer.beta2 (-0.5) must be at least 0 and below 1"),
    (lambda: AdamW(epsilon=0.0), "optimizer.epsilon (0.0) must be above 0"),
    (lambda: AdamW(weight_decay=-0.01), "optimizer.weight_decay (-0.01) must be at least 0"),
    (lambda: AdamW(clip_norm=0.0), "optimizer.clip_norm (0.0) must be above 0"),
    (lambda: AdamW(layer_decay=1.1), "optimizer.layer_decay (1.1) must be above 0 and at most 1"),
    (lambda: Lamb(layer_decay=0.0), "optimizer.layer_decay (0.0) must be above 0 and at most 1"),
    (lambda: LinearDecay(warmup_share=1.01), "schedule.warmup_share (1.01) must lie between 0 and 1"),
    (lambda: ConstantRate(warmup_steps=-1), "schedule.warmup_steps (-1) must be at least 0"),
    (lambda: CosineDecay(warmup_share=-0.1), "schedule.warmup_share (-0.1) must lie between 0 and 1"),
    (lambda: PolynomialDecay(warmup_share=2.0), "schedule.warmup_share (2.0) must lie between 0 and 1"),
    (lambda: PolynomialDecay(power=0.0), "schedule.power (0.0) must be above 0"),
    (lambda: WarmupStableDecay(warmup_steps=-1), "schedule.warmup_steps (-1) must be at least 0"),
    (lambda: WarmupStableDecay(decay_share=1.5), "schedule.decay_share (1.5) must lie between 0 and 1"),
    (
        lambda: Pretrain(steps=100, schedule=WarmupStableDecay(warmup_steps=91)),
        "schedule.warmup_steps (91) must be at most 90, the step at which the decay begins with steps (100) and "
        "schedule.decay_share (0.1)",
    ),
    (lambda: TokenMasking(share=1.15), "sampling.masking.share (1.15) must lie between 0 and 1"),
    (lambda: TokenMasking(mask_share=-0.8), "sampling.masking.mask_share (-0.8) must lie between 0 and 1"),
    (
        lambda: WholeWordMasking(mask_share=0.8, random_share=0.3),
        "sampling.masking.mask_share (0.8) and sampling.masking.random_share (0.3) must add up to at most 1",
    ),
    (lambda: NextSentence(short_probability=2.0), "sampling.pairs.short_probability (2.0) must lie between 0 and 1"),
    (lambda: SentenceOrder(short_probability=-0.5), "sampling.pairs.short_probability (-0.5) must lie between 0 and 1"),
    (lambda: SingleSegment(short_probability=1.5), "sampling.pairs.short_probability (1.5) must lie between 0 and 1"),
    (
        lambda: SpanMasking(stop_probability=0.0),
        "sampling.masking.stop_probability (0.0) must be above 0 and at most 1",
    ),
    (lambda: SpanMasking(longest=0), "sampling.masking.longest (0) must be at least 1"),
    (lambda: SpanMasking(share=1.5), "sampling.masking.share (1.5) must lie between 0 and 1"),
    (lambda: NgramMasking(longest=0), "sampling.masking.longest (0) must be at least 1"),
    (lambda: NgramMasking(random_share=1.5), "sampling.masking.random_share (1.5) must lie between 0 and 1"),
    (lambda: Sampling(maximum_length=7), "sampling.maximum_length (7) must be at least 8"),
    (
        lambda: Preparation(heldout_share=1.0),
        "prepare.heldout_share (1.0) must be below 1: otherwise no text is left for training",
    ),
    (lambda: Preparation(heldout_share=-0.01), "prepare.heldout_share (-0.01) must lie between 0 and 1"),
    (lambda: Preparation(error_limit=5.0), "prepare.error_limit (5.0) must lie between 0 and 1"),
    (lambda: Preparation(window_characters=999), "prepare.window_characters (999) must be at least 1000"),
    (lambda: Preparation(windows_per_shard=0), "prepare.windows_per_shard (0) must be at least 1"),
    (lambda: Preparation(minimum_characters=0), "prepare.minimum_characters (0) must be at least 1"),
    (
        lambda: Preparation(minimum_characters=401, piece_characters=400),
        "prepare.minimum_characters (401) must be at most prepare.piece_characters (400)",
    ),
    (
        lambda: Preparation(piece_characters=501, window_characters=1_000),
        "prepare.piece_characters (501) must be at most half of prepare.window_characters (1000): a window needs "
        "several documents",
    ),
    (lambda: VocabularySettings(size=99), "vocabulary.size (99) must be at least 100"),
    (lambda: VocabularySettings(training_characters=10), "vocabulary.training_characters (10) must be at least 1000"),
    (lambda: Evaluation(every=0), "evaluation.every (0) must be at least 1"),
    (lambda: Evaluation(rows=0), "evaluation.rows (0) must be at least 1"),
    (lambda: Checkpoints(every=0), "checkpoint.every (0) must be at least 1"),
    (lambda: Checkpoints(keep=0), "checkpoint.keep (0) must be at least 1"),
    (lambda: Tracking(every=0), "tracking.every (0) must be at least 1"),
    (lambda: Placement(threads=0), "placement.threads (0) must be at least 1"),
    (lambda: Placement(data_cpus=0.0), "placement.data_cpus (0.0) must be above 0"),
    (lambda: Ablate(ablation="pairs", tokens="1M", at_once=0), "at_once (0) must be at least 1"),
    (lambda: Placement(restarts=-1), "placement.restarts (-1) must be at least 0"),
    (
        lambda: Finetune(checkpoint="c", task=("sst2",), vocabulary=VocabularySettings(extend=100)),
        "vocabulary.extend (100) is for pretraining, which trains the added words: leave the option out",
    ),
    (lambda: ModelPlacement(threads=0), "placement.threads (0) must be at least 1"),
    (
        lambda: TrialPlacement(autoscaled=True),
        "placement.autoscaled needs placement.device cuda or cpu: auto cannot count the GPUs of nodes that have not "
        "started",
    ),
    (
        lambda: Finetune(checkpoint="c", task=("sst2",), placement=TrialPlacement(autoscaled=True, device="cpu")),
        "placement.autoscaled needs trials.at_once, the number of trials that ask for nodes at the same time",
    ),
    (
        lambda: Finetune(
            checkpoint="c", task=("sst2",), placement=TrialPlacement(device="cuda"), trials=Trials(gpus=0)
        ),
        "placement.device cuda needs a GPU, but trials.gpus is 0: leave placement.device or trials.gpus out",
    ),
    (
        lambda: Predict(
            checkpoint="c", input="a.csv", output="b.csv", placement=ModelPlacement(autoscaled=True, device="cpu")
        ),
        "placement.autoscaled needs actors, the number of processes that ask for nodes",
    ),
    (
        lambda: Predict(checkpoint="c", input="a.csv", output="b.csv", placement=ModelPlacement(device="cuda"), gpus=0),
        "placement.device cuda needs a GPU, but gpus is 0: leave placement.device or gpus out",
    ),
    (lambda: Pretrain(steps=0), "steps (0) must be at least 1"),
    (
        lambda: Pretrain(workers=0),
        "workers (0) must be a whole number of at least 1, or a range such as 2..8",
    ),
    (
        lambda: Pretrain(workers="3..2"),
        "workers (3..2) must be a whole number of at least 1, or a range such as 2..8",
    ),
    (
        lambda: Pretrain(workers="2..."),
        "workers (2...) must be a whole number of at least 1, or a range such as 2..8",
    ),
    (
        lambda: Pretrain(workers="many"),
        "workers (many) must be a whole number of at least 1, or a range such as 2..8",
    ),
    (
        lambda: Pretrain(workers="2..9", batch=Batch(rows_per_step=256, rows_per_slot=32)),
        "workers (9) must be at most the slots of a step (8 = batch.rows_per_step 256 / batch.rows_per_slot 32): use "
        "fewer workers or --batch.rows-per-slot 16 (or auto)",
    ),
    (lambda: Pretrain(seed=-1), "seed (-1) must be a whole number from 0 to 2^63 - 1"),
    (lambda: Pretrain(seed=2**63), "seed (9223372036854775808) must be a whole number from 0 to 2^63 - 1"),
    (
        lambda: Pretrain(workers=5, batch=Batch(rows_per_step=64, rows_per_slot=16)),
        "workers (5) must be at most the slots of a step (4 = batch.rows_per_step 64 / batch.rows_per_slot 16): use "
        "fewer workers or --batch.rows-per-slot 8 (or auto)",
    ),
    (
        lambda: Pretrain(sampling=Sampling(maximum_length=513)),
        "sampling.maximum_length (513) must be at most model.maximum_positions (512)",
    ),
    (lambda: VocabularySettings(extend=-1), "vocabulary.extend (-1) must be at least 0"),
    (lambda: AdamW(word_embeddings_rate=0.0), "optimizer.word_embeddings_rate (0.0) must be above 0 and at most 1"),
    (
        lambda: Pretrain(init="a", word_embeddings="cooccurrence"),
        "word_embeddings (cooccurrence) cannot be set together with init (a), which has word embeddings of its own: "
        "leave word_embeddings or init out",
    ),
    (
        lambda: Pretrain(vocabulary=VocabularySettings(extend=200)),
        "vocabulary.extend (200) needs init, the published model whose vocabulary is extended: a vocabulary trained on "
        "the corpus has the corpus' words already",
    ),
    (lambda: Pretrain(name="a/b"), f"name ('a/b') {WRONG_NAME}"),
    (lambda: Pretrain(name=""), f"name ('') {WRONG_NAME}"),
    (lambda: Pretrain(name=".."), f"name ('..') {WRONG_NAME}"),
    (
        lambda: Pretrain(name="n" * 300),
        "name (nnnnnnnnnnnnnnnnnnnn…) has 300 bytes: a run's name may have at most 200",
    ),
    (
        lambda: Pretrain(name="é" * 101),
        "name (éééééééééééééééééééé…) has 202 bytes: a run's name may have at most 200",
    ),
]


def test_settings_that_cannot_work_are_refused_in_these_words() -> None:
    assert [(message, said) for build, message in REFUSED if (said := refusal(build)) != message] == []


def test_values_at_the_edge_work() -> None:
    assert Pretrain(workers=4, batch=Batch(rows_per_step=64, rows_per_slot=16)).batch.slots_per_step == 4
    assert Pretrain(sampling=Sampling(maximum_length=512)).sampling.maximum_length == 512
    Pretrain(name="Run_1.b-é", seed=2**63 - 1)
    TokenMasking(mask_share=0.9, random_share=0.1)
    TokenMasking(mask_share=0.7, random_share=0.3)  # their float sum is above 1 by the last bit at most
    Preparation(
        heldout_share=0.0, error_limit=1.0, piece_characters=500, window_characters=1_000, minimum_characters=500
    )
    Model(hidden_dropout=0.0, attention_dropout=1.0)
    AdamW(beta1=0.0, weight_decay=0.0)
    ConstantRate(warmup_steps=0)
    SpanMasking(stop_probability=1.0, longest=1)
    NgramMasking(longest=1)


def test_settings_have_dotted_names_and_choices_name_their_kind() -> None:
    flat = flatten(
        Pretrain(
            corpus=("a", "b"),
            sampling=Sampling(masking=WholeWordMasking(share=0.2)),
            schedule=ConstantRate(warmup_steps=7),
        )
    )
    assert flat["corpus"] == ["a", "b"] and flat["name"] is None and flat["model.width"] == 128
    assert flat["sampling.masking"] == "WholeWordMasking" and flat["sampling.masking.share"] == 0.2
    assert (
        flat["schedule"] == "ConstantRate"
        and flat["schedule.warmup_steps"] == 7
        and "schedule.warmup_share" not in flat
    )
    assert flat["sampling.pairs"] == "NextSentence"
    assert flat["optimizer"] == "AdamW"
    assert not {"model", "batch", "sampling"} & set(flat)  # where there is no choice, there is no kind
    assert flatten(Tracking(), "tracking.") == {
        "tracking.uri": None,
        "tracking.experiment": "pretrain",
        "tracking.every": 10,
    }


# Layers, width, heads, feed-forward: Devlin et al. 2019, Turc et al. 2019, Liu et al. 2019, Clark et al. 2020.
PUBLISHED_SIZES = {
    "bert-tiny": (2, 128, 2, 512),
    "bert-mini": (4, 256, 4, 1024),
    "bert-small": (4, 512, 8, 2048),
    "bert-medium": (8, 512, 8, 2048),
    "bert-base": (12, 768, 12, 3072),
    "bert-large": (24, 1024, 16, 4096),
    "roberta-tiny": (2, 128, 2, 512),
    "roberta-mini": (4, 256, 4, 1024),
    "roberta-base": (12, 768, 12, 3072),
    "roberta-large": (24, 1024, 16, 4096),
    "mbert-tiny": (2, 128, 2, 512),
    "mbert-base": (12, 768, 12, 3072),
    "xlm-roberta-tiny": (2, 128, 2, 512),
    "xlm-roberta-base": (12, 768, 12, 3072),
    "electra-tiny": (2, 128, 2, 512),
    "electra-mini": (4, 256, 4, 1024),
    "electra-small": (12, 256, 4, 1024),
    "electra-base": (12, 768, 12, 3072),
    "distilbert-tiny": (1, 128, 2, 512),
    "distilbert-mini": (2, 256, 4, 1024),
    "distilbert-base": (6, 768, 12, 3072),
    "albert-tiny": (2, 128, 2, 512),
    "albert-mini": (4, 256, 4, 1024),
    "albert-base": (12, 768, 12, 3072),
    "albert-large": (24, 1024, 16, 4096),
    "albert-xlarge": (24, 2048, 16, 8192),
    "albert-xxlarge": (12, 4096, 64, 16384),
}
# He et al. 2021 and 2023. Their attention uses no kernel that attention dropout would prevent, so none is "fast".
SIZES_OF_DEBERTA = {
    "deberta-tiny": (2, 128, 2, 512),
    "deberta-base": (12, 768, 12, 3072),
    "deberta-v3-tiny": (2, 128, 2, 512),
    "deberta-v3-xsmall": (12, 384, 6, 1536),
    "deberta-v3-small": (6, 768, 12, 3072),
    "deberta-v3-base": (12, 768, 12, 3072),
}
MODERNBERT_SIZES = {
    "modernbert-tiny": (4, 128, 2, 192),
    "modernbert-mini": (4, 256, 4, 384),
    "modernbert-small": (7, 256, 4, 384),  # Ettin 17M
    "modernbert-medium": (10, 384, 6, 576),  # Ettin 32M
    "modernbert-base": (22, 768, 12, 1_152),
    "modernbert-large": (28, 1_024, 16, 2_624),
}
ENCODER_SIZES = {
    "encoder-xs": (12, 192, 3, 512),
    "encoder-s": (12, 384, 6, 1_024),
    "encoder-b": (22, 768, 12, 1_152),  # ModernBERT-base
}
LONGFORMER_SIZES = {"longformer-tiny": (2, 128, 2, 512), "longformer-base": (12, 768, 12, 3_072)}
SIZES_OF_BIGBIRD = {"bigbird-tiny": (2, 128, 2, 512), "bigbird-base": (12, 768, 12, 3_072)}
SEGMENTS = {"bert": 2, "mbert": 2, "roberta": 1, "xlm": 1, "electra": 2, "distilbert": 0, "albert": 2}
WITHOUT_DROPOUT = ("albert-large", "albert-xlarge", "albert-xxlarge")


def sizes(name: str) -> tuple[int, ...]:
    """Return layers, width, heads and feed-forward width of a preset."""
    model = PRESETS[name].model
    return model.layers, model.width, model.heads, model.feed_forward


def test_presets_have_their_published_sizes() -> None:
    published = (
        PUBLISHED_SIZES | ENCODER_SIZES | SIZES_OF_DEBERTA | MODERNBERT_SIZES | LONGFORMER_SIZES | SIZES_OF_BIGBIRD
    )
    assert {name: sizes(name) for name in published} == published


def test_there_is_no_preset_without_a_published_size() -> None:
    assert ", ".join(PRESETS) == PRESET_NAMES
    named = {*PUBLISHED_SIZES, "continue", "continue-small"}
    assert set(PRESETS) == named | {f"{name}-fast" for name in named} | {
        "quickstart",
        *ENCODER_SIZES,
        *SIZES_OF_DEBERTA,
        *MODERNBERT_SIZES,
        *LONGFORMER_SIZES,
        *SIZES_OF_BIGBIRD,
    }


def test_presets_of_longformer_have_their_published_windows() -> None:
    for name, window, positions in (("longformer-tiny", 64, 1_024), ("longformer-base", 512, 4_096)):
        model = PRESETS[name].model
        assert (model.maximum_positions, model.position_rows) == (positions, positions + 2), name
        assert model.attention == GlobalLocalAttention(window=window)
        assert [model.reach(0), model.reach(1)] == 2 * [window // 2]
        assert PRESETS[name].sampling.maximum_length == positions


def test_presets_of_deberta_have_their_published_parts() -> None:
    for name in SIZES_OF_DEBERTA:
        model, objective = PRESETS[name].model, PRESETS[name].objective
        assert (model.maximum_positions, model.segments, model.layer_norm_epsilon) == (512, 0, 1e-7), name
        assert (model.hidden_dropout, model.attention_dropout) == (0.1, 0.1), name
        if name.startswith("deberta-v3"):
            assert model.attention == BucketedAttention(buckets=256) and isinstance(objective, Replaced), name
            generator = objective.generator_of(model)
            assert (generator.layers, generator.width) == (model.layers // 2, model.width), name
        else:
            assert model.attention == DisentangledAttention() and objective == Masked(decoder="enhanced"), name


def test_presets_of_bigbird_have_their_published_parts() -> None:
    for name, positions, block in (("bigbird-tiny", 1_024, 16), ("bigbird-base", 4_096, 64)):
        model = PRESETS[name].model
        assert (model.maximum_positions, model.segments, model.activation) == (positions, 2, "gelu_new"), name
        assert (model.hidden_dropout, model.attention_dropout) == (0.1, 0.1), name
        assert model.attention == BlockSparseAttention(block_size=block, random_blocks=3), name
        assert PRESETS[name].sampling.maximum_length == positions > model.attention.longest_full, name


def test_compiled_code_cannot_have_block_sparse_attention() -> None:
    with pytest.raises(ConfigError) as refused:
        replace(PRESETS["bigbird-tiny"], placement=Placement(compile="on"))
    assert str(refused.value) == (
        "placement.compile (on) cannot be used, because model.attention block-sparse-attention groups sequences by "
        "their lengths: set placement.compile to auto or off"
    )


def test_quickstart_is_a_modernbert_tiny_that_is_shorter_narrower_and_starts_from_counts() -> None:
    tiny, quick = flatten(PRESETS["modernbert-tiny"]), flatten(PRESETS["quickstart"])
    assert {key for key, value in quick.items() if key.startswith("model.") and value != tiny.get(key)} == {
        *("model.layers", "model.feed_forward", "model.attention.global_every"),
    }
    assert (quick["vocabulary.kind"], quick["sampling.maximum_length"]) == ("wordpiece", 64)
    assert (quick["word_embeddings"], quick["optimizer"], quick["sampling.masking.share"]) == (
        *("cooccurrence", "Muon", 0.3),
    )


def test_a_fast_preset_differs_in_the_dropout_of_attention_alone() -> None:
    for name in PUBLISHED_SIZES:
        usual = 0.0 if name in WITHOUT_DROPOUT else 0.1
        for preset, attention_dropout in ((PRESETS[name], usual), (PRESETS[f"{name}-fast"], 0.0)):
            model = preset.model
            assert (model.maximum_positions, model.segments) == (512, SEGMENTS[name.split("-")[0]]), name
            assert (model.hidden_dropout, model.attention_dropout) == (usual, attention_dropout), name
            different = {key for key, value in flatten(preset).items() if value != flatten(PRESETS[name])[key]}
            assert different == ({"model.attention_dropout"} if attention_dropout < usual else set()), name


def test_encoders_are_modernberts_without_dropout_that_read_full_rows() -> None:
    steps, rates = {}, {}
    for name in ENCODER_SIZES:
        preset, model, optimizer = PRESETS[name], PRESETS[name].model, PRESETS[name].optimizer
        steps[name], rates[name] = preset.steps, optimizer.learning_rate
        assert (model.family, model.inner, model.block, model.bias) == ("modernbert", "geglu", "pre-norm", False), name
        assert isinstance(model.positions, RotaryPositions) and (model.hidden_dropout, model.attention_dropout) == (
            0,
            0,
        )
        assert preset.sampling == Sampling(pairs=FullSentences(), masking=TokenMasking(share=0.3)), name
        assert preset.vocabulary == VocabularySettings(kind="byte-bpe", size="auto"), name
        assert preset.batch.rows_per_step * preset.sampling.maximum_length == 32_768, name
        assert optimizer == StableAdamW(
            learning_rate=rates[name], beta2=0.98, epsilon=1e-6, weight_decay=0.1, clip_norm=1.0
        )
        assert preset.schedule == WarmupStableDecay(warmup_steps=200, decay_share=0.2), name
    assert steps == {"encoder-xs": 3_000, "encoder-s": 10_000, "encoder-b": 100_000}
    assert rates == {"encoder-xs": 2e-3, "encoder-s": 2e-3, "encoder-b": 8e-4}


def test_a_larger_text_gets_a_larger_vocabulary() -> None:
    """20 million words are the most for 8,192 entries, and 200 million for 16,384."""
    automatic = VocabularySettings(kind="byte-bpe", size="auto")
    words = (1, 20_000_000, 20_000_001, 200_000_000, 200_000_001)
    assert [automatic.sized(count).size for count in words] == [8_192, 8_192, 16_384, 16_384, 50_368]
    assert VocabularySettings(size=9_000).sized(10**9).size == 9_000
    assert (automatic.most_entries, VocabularySettings(size=9_000).most_entries) == (50_368, 9_000)
    with pytest.raises(
        ConfigError, match=r"^vocabulary.size \(8192\) minus vocabulary.unused \(8000\) must be at least"
    ):
        replace(automatic, unused=8_000).sized(1)


def test_modernberts_have_their_published_parts() -> None:
    for name in MODERNBERT_SIZES:
        preset, model = PRESETS[name], PRESETS[name].model
        found = (model.segments, model.hidden_dropout, model.attention_dropout, model.maximum_positions)
        assert found == (0, 0, 0, 8_192), name
        assert model.attention == LocalAttention(window=128, global_every=3), name
        assert preset.sampling.masking.share == 0.3 and isinstance(preset.sampling.pairs, FullSentences), name
        assert isinstance(preset.optimizer, StableAdamW) and isinstance(preset.schedule, WarmupStableDecay), name


@pytest.mark.parametrize(
    ("name", "rows", "first_rows"), [("modernbert-base", 4_608, 768), ("modernbert-large", 4_928, 448)]
)
def test_published_modernberts_go_on_with_longer_sequences_and_slower_angles(
    name: str, rows: int, first_rows: int
) -> None:
    first, second = PRESETS[name].all_phases
    assert (first.batch.rows_per_step, first.batch.warmup_rows, first.sampling.maximum_length) == (
        rows,
        first_rows,
        1_024,
    )
    assert (second.batch.rows_per_step, second.sampling.maximum_length) == (rows // 8, 8_192)
    assert second.sampling.masking.share == 0.3
    thetas = [phase.model(PRESETS[name].model).positions for phase in (first, second)]
    assert thetas == [
        RotaryPositions(theta=10_000.0, local_theta=10_000.0),
        RotaryPositions(theta=160_000.0, local_theta=10_000.0),
    ]


def test_layers_with_local_attention_keep_their_angles_in_the_second_phase() -> None:
    model = Model(positions=RotaryPositions(), attention=LocalAttention())
    phase = replace(PRESETS["modernbert-base"].all_phases[1], theta=160_000.0)
    assert phase.model(model).positions == RotaryPositions(theta=160_000.0, local_theta=10_000.0)
    everywhere = replace(model, attention=FullAttention())
    assert phase.model(everywhere).positions == RotaryPositions(theta=160_000.0, local_theta=None)


@pytest.mark.parametrize(("name", "rate", "batch"), [("modernbert-base", 3, 50), ("modernbert-large", 2, 10)])
def test_rate_and_batch_of_published_modernberts_grow_over_the_published_billions_of_tokens(
    name: str, rate: int, batch: int
) -> None:
    preset = PRESETS[name]
    assert isinstance(preset.schedule, WarmupStableDecay)
    assert offset(preset.schedule.warmup_steps, preset.batch) * 1_024 == pytest.approx(rate * 1e9, rel=0.005)
    assert offset(preset.batch.warmup_steps, preset.batch) * 1_024 == pytest.approx(batch * 1e9, rel=0.02)


@pytest.mark.parametrize("name", ["bert-base", "bert-large-fast"])
def test_the_last_tenth_of_the_published_steps_has_length_512(name: str) -> None:
    first, second = PRESETS[name].all_phases
    assert (first.first, first.end, first.sampling.maximum_length, first.batch) == (
        0,
        900_000,
        128,
        Batch(rows_per_step=256, rows_per_slot=32),
    )
    assert (second.first, second.end, second.sampling.maximum_length, second.batch) == (
        900_000,
        1_000_000,
        512,
        Batch(rows_per_step=256, rows_per_slot=8),
    )
    assert second.sampling.masking == first.sampling.masking and PRESETS["bert-medium"].phases == OnePhase()


def test_a_step_belongs_to_one_phase() -> None:
    config = Pretrain(steps=10, phases=TwoPhases(share=0.25))  # 2.5 steps, rounded to the even 2
    assert [config.phase_at(step).first for step in range(12)] == [0] * 8 + [8] * 4
    assert Pretrain(steps=10).all_phases == (Pretrain(steps=10).phase_at(99),)


def test_base_is_trained_as_published() -> None:
    base = PRESETS["bert-base"]
    assert (base.steps, base.batch.rows_per_step, base.vocabulary.size) == (1_000_000, 256, 30_522)
    assert (base.optimizer.learning_rate, base.optimizer.beta1, base.optimizer.beta2, base.optimizer.weight_decay) == (
        1e-4,
        0.9,
        0.999,
        0.01,
    )
    assert base.schedule == LinearDecay(warmup_share=0.01) and base.sampling.masking == TokenMasking(
        share=0.15, mask_share=0.8, random_share=0.1
    )


def test_continued_pretraining_goes_at_a_lower_rate() -> None:
    assert (PRESETS["continue"].optimizer.learning_rate, PRESETS["bert-base"].optimizer.learning_rate) == (2e-5, 1e-4)
    assert (PRESETS["continue-small"].optimizer.learning_rate, PRESETS["bert-mini"].optimizer.learning_rate) == (
        2e-4,
        1e-3,
    )
    assert all(
        PRESETS[name].model == Model() for name in ("continue", "continue-small")
    )  # what a published model may replace


def test_the_first_word_is_the_preset() -> None:
    assert split_preset([]) == (None, [])
    assert split_preset(["--steps", "3"]) == (None, ["--steps", "3"])
    assert split_preset(["optimizer:lamb"]) == (None, ["optimizer:lamb"])
    assert starting_point(None, None) == ("encoder-xs", PRESETS["encoder-xs"])
    assert split_preset(("bert-base", "--steps", "3")) == ("bert-base", ["--steps", "3"])
    with pytest.raises(ConfigError) as refused:
        split_preset(["bert-huge", "--steps", "3"])
    assert str(refused.value) == "preset (bert-huge) does not exist; did you mean bert-large?"


def test_a_command_without_a_preset_is_told_its_own_and_that_for_a_gpu(tmp_path: Path) -> None:
    said = "preset encoder-xs, because the command names none; name encoder-s for a GPU"
    assert [unnamed_note(None, None), unnamed_note("bert-tiny", None)] == [said, None]
    file = tmp_path / "run.toml"
    for text, note in (("seed = 1", said), ("preset = 'bert-tiny'", None)):
        file.write_text(text)
        assert unnamed_note(None, str(file)) == note


def show(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return what the job prints with --show."""
    assert pretrain.main([*words, "--show"]) == 0
    return capsys.readouterr().out


PRINTED = """
import runpy, sys
before = set(sys.modules)
sys.path.insert(0, "jobs")
for words in map(str.split, sys.argv[1:]):
    sys.argv = [f"jobs/{words[0]}.py", *words[1:]]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as ended:
        assert not ended.code, words
    print(*{name.partition(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names, file=sys.stderr)
"""


def test_what_only_prints_loads_little() -> None:
    """Scripts run one after the other in one process: what the last has not loaded, none has."""
    asked = ["pretrain --help", "pretrain --show", *(f"{job} --help" for job in JOBS)]
    done = subprocess.run([sys.executable, "-c", PRINTED, *asked], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = [set(line.split()) for line in done.stderr.splitlines()]
    assert loaded[:2] == [{"pipeline"}, {"pipeline"}] and not loaded[-1] & {"torch", "ray", "mlflow", "transformers"}
    assert len(loaded) == len(asked) and done.stdout.count("usage: jobs/") == len(JOBS) + 1


def test_show_prints_every_setting_with_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    text = show(capsys, "bert-mini", "--steps", "7", "--corpus", "a", "--corpus", "b", "--name", "mine")
    assert text.startswith('# run mine\npreset = "bert-mini"\n')
    shown = flatten_tables(tomllib.loads(text))
    kinds = {
        "phases": "one-phase",
        "objective": "masked",
        "optimizer": "adam-w",
        "schedule": "linear-decay",
        "sampling.pairs": "next-sentence",
        "sampling.masking": "token-masking",
        "model.positions": "learned-positions",
        "model.attention": "full-attention",
    }
    expected = flatten(PRESETS["bert-mini"]) | {"steps": 7, "corpus": ["a", "b"], "name": "mine", "preset": "bert-mini"}
    expected |= {f"{path}.kind": kind for path, kind in kinds.items()}
    assert shown == {name: value for name, value in expected.items() if value is not None and name not in kinds}


def flatten_tables(tables: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted name -> value."""
    flat: dict[str, Any] = {}
    for name, value in tables.items():
        flat |= flatten_tables(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


def test_kinds_are_chosen_last(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = (
        "sampling.masking:whole-word-masking",
        "optimizer:lamb",
        "--optimizer.layer-decay",
        "0.9",
        "schedule:constant-rate",
        "--schedule.warmup-steps",
        "5",
    )
    shown = tomllib.loads(show(capsys, "--steps", "7", *kinds))
    assert (
        shown["schedule"] == {"kind": "constant-rate", "warmup_steps": 5}
        and shown["sampling"]["masking"]["kind"] == "whole-word-masking"
    )
    assert (shown["optimizer"]["kind"], shown["optimizer"]["learning_rate"], shown["optimizer"]["layer_decay"]) == (
        "lamb",
        0.000625,
        0.9,
    )


WRONG_COMMANDS = {
    "gpt": f"preset (gpt) does not exist; jobs/pretrain.py --help lists all {len(PRESETS)}",
    "bert-base --model.heads 7": "model.width (768) must be a multiple of model.heads (7)",
    "bert-tiny --workers 9 --batch.rows-per-slot 32": (
        "workers (9) must be at most the slots of a step (2 = batch.rows_per_step 64 / batch.rows_per_slot 32): use "
        "fewer workers or --batch.rows-per-slot 4 (or auto)"
    ),
    "bert-tiny --workers 65": (
        "workers (65) must be at most the slots of a step (64 = batch.rows_per_step 64 / batch.rows_per_slot 1): use "
        "fewer workers or more batch.rows_per_step"
    ),
    "bert-tiny --gpu H1000": f"gpu (H1000) must be one of {', '.join(PEAKS)}",
    "optimizer:lamb --optimizer.learning-rate 3": "optimizer.learning_rate (3.0) must lie between 0 and 1",
    "--name a/b": f"name ('a/b') {WRONG_NAME}",
    "continue": (
        "preset (continue) continues from a published model: name it with --init FOLDER, URL or hf://OWNER/NAME"
    ),
    "--steps 0 --show": "steps (0) must be at least 1",
    "--steps 3 --epochs 2": (
        "steps (3) and epochs (2) cannot be set together, because each says how long the run is: give one of them"
    ),
    "--epochs 0": "epochs (0.0) must be above 0",
    "--tokens tokens.arrow": "tokens (tokens.arrow) must be a whole number above 0, such as 250k, 10M or 2_000_000",
    "encoder-xs --epochs 3 --corpus https://127.0.0.1:1/a.txt": (
        "epochs (3) of this text are not known in steps before it is prepared: prepare it (jobs/prepare.py), or plan "
        "with --steps or --tokens"
    ),
}


def test_wrong_values_are_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in WRONG_COMMANDS.items():
        assert pretrain.main([*words.split(), "--plan"]) == 2, words  # what is not refused must not start a run
        assert capsys.readouterr() == ("", f"error: {message}\n")


def test_word_embeddings_that_start_from_counts_learn_slowly_unless_set() -> None:
    counted = Pretrain(word_embeddings="cooccurrence")
    assert with_words_rate(Pretrain()) == Pretrain()
    assert with_words_rate(counted).optimizer == AdamW(word_embeddings_rate=0.1)
    faster = replace(counted, optimizer=AdamW(word_embeddings_rate=1.0))
    assert with_words_rate(faster) == faster


def test_evaluations_are_a_tenth_of_the_steps_apart_and_a_thousand_at_most() -> None:
    apart = {steps: Pretrain(steps=steps).evaluation_every for steps in (1, 9, 10, 19, 600, 9_999, 10_000, 1_000_000)}
    assert apart == {1: 1, 9: 1, 10: 1, 19: 1, 600: 60, 9_999: 999, 10_000: 1_000, 1_000_000: 1_000}
    assert Pretrain(steps=600, evaluation=Evaluation(every=7)).evaluation_every == 7
