"""Complete configurations by name. Sizes are those of the published models; comments say which settings are ours."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.command_line.options import did_you_mean, nearest
from pipeline.command_line.toml import read_config, settings_of, to_toml, toml_value
from pipeline.config.data import (
    FullSentences,
    NgramMasking,
    Sampling,
    SentenceOrder,
    TokenMasking,
    VocabularySettings,
)
from pipeline.config.jobs import Pretrain
from pipeline.config.model import LearnedPositions, Model
from pipeline.config.model_parts import BucketedAttention, DisentangledAttention, NoPositions
from pipeline.config.objective import Masked, Replaced
from pipeline.config.phases import TwoPhases
from pipeline.config.training import AdamW, Batch, Lamb, LinearDecay
from pipeline.errors import ConfigError
from pipeline.presets.bigbird import BIGBIRD_PRESETS
from pipeline.presets.longformer import LONGFORMER_PRESETS
from pipeline.presets.modernbert import MODERNBERT_PRESETS

# Devlin et al. 2019, section A.2: 256 rows per step, learning rate 1e-4, warm-up in 10,000 of 1,000,000 steps. Small
# models and short runs need a higher rate and a longer warm-up, so the rates and warm-ups of `bert-tiny` to
# `bert-medium` are ours. These presets have one phase of length 128; the published recipe has length 512 in the last
# tenth of the steps.
PUBLISHED = Pretrain(steps=1_000_000)


def bert(layers: int, width: int, heads: int, base: Pretrain = PUBLISHED) -> Pretrain:
    """Return `base` with a BERT of the given size and feed-forward width 4 * width (Devlin et al. 2019, section 3)."""
    return replace(base, model=Model(layers=layers, width=width, heads=heads, feed_forward=4 * width))


def small_model(steps: int, rate: float) -> Pretrain:
    """Return settings for a model that a laptop or one GPU trains in minutes to hours; `rate` is the learning rate."""
    return replace(PUBLISHED, steps=steps, optimizer=AdamW(learning_rate=rate), schedule=LinearDecay(warmup_share=0.1))


def _fast(preset: Pretrain) -> Pretrain:
    """Return the preset without attention dropout, which takes time on a CPU and on GPUs that pad rows."""
    return replace(preset, model=replace(preset.model, attention_dropout=0.0))


# The sizes of tiny to medium are those of Turc et al. 2019 (google-research/bert, "24 smaller models").
PRESETS: dict[str, Pretrain] = {
    "bert-tiny": bert(
        2,
        128,
        2,
        replace(
            small_model(600, 2e-3),
            vocabulary=VocabularySettings(size=8_192),
            batch=Batch(rows_per_step=64, rows_per_slot=32),
        ),
    ),
    "bert-mini": bert(4, 256, 4, small_model(20_000, 1e-3)),
    "bert-small": bert(4, 512, 8, small_model(100_000, 5e-4)),
    "bert-medium": bert(8, 512, 8, small_model(100_000, 5e-4)),
    "bert-base": bert(12, 768, 12, replace(PUBLISHED, phases=TwoPhases())),  # Devlin et al. 2019
    "bert-large": bert(24, 1024, 16, replace(PUBLISHED, phases=TwoPhases())),  # Devlin et al. 2019
}
# Liu et al. 2019, table 9: 8,192 rows of full sentences, byte-level BPE, no pairs. Gradient clipping is ours; Liu et
# al. do not clip.
ROBERTA = replace(
    PUBLISHED,
    steps=500_000,
    vocabulary=VocabularySettings(kind="byte-bpe", size=50_265),
    sampling=Sampling(maximum_length=512, pairs=FullSentences()),
    batch=Batch(rows_per_step=8_192, rows_per_slot=32),
    optimizer=AdamW(learning_rate=6e-4, beta2=0.98, epsilon=1e-6),
    schedule=LinearDecay(warmup_share=0.048),
)


def roberta(preset: Pretrain, base: Pretrain = ROBERTA) -> Pretrain:
    """Return `base` with a RoBERTa of the size of a BERT preset.

    A RoBERTa has one segment. Its position indices start at 2, because index 1 belongs to the padding entry.
    """
    model = replace(
        preset.model,
        family="roberta",
        segments=1,
        positions=LearnedPositions(first=2),
        layer_norm_epsilon=1e-5,
    )
    return replace(base, model=model)


def _small_roberta(preset: Pretrain) -> Pretrain:
    """Return a RoBERTa with the size, steps, learning rate and batch of a small BERT preset; these choices are ours."""
    vocabulary = replace(preset.vocabulary, kind="byte-bpe")
    sampling = replace(preset.sampling, pairs=FullSentences())
    return roberta(preset, replace(preset, vocabulary=vocabulary, sampling=sampling))


PRESETS |= {
    "roberta-tiny": _small_roberta(PRESETS["bert-tiny"]),
    "roberta-mini": _small_roberta(PRESETS["bert-mini"]),
    "roberta-base": roberta(PRESETS["bert-base"]),
    "roberta-large": roberta(
        PRESETS["bert-large"],
        replace(
            ROBERTA, optimizer=replace(ROBERTA.optimizer, learning_rate=4e-4), schedule=LinearDecay(warmup_share=0.06)
        ),
    ),
}

# google-research/bert, multilingual.md: one cased vocabulary for 104 languages; the languages' shares are smoothed with
# exponent 0.7. The size of the vocabulary is that of bert-base-multilingual-cased. Two choices are ours: the size of
# the alphabet, and that each sequence has only one language.
MBERT_VOCABULARY = VocabularySettings(size=119_547, lowercase=False, characters=10_000)


def multilingual(preset: Pretrain, exponent: float, vocabulary: VocabularySettings) -> Pretrain:
    """Return the preset with a vocabulary for many languages; each sequence has one language."""
    sampling = replace(preset.sampling, language_exponent=exponent, mix_languages=False)
    return replace(preset, sampling=sampling, vocabulary=vocabulary)


def xlm_roberta(preset: Pretrain, size: int) -> Pretrain:
    """Return a RoBERTa preset as an XLM-R with a unigram vocabulary of `size` entries."""
    vocabulary = VocabularySettings(kind="unigram", size=size, special_tokens="roberta")
    model = replace(preset.model, family="xlm-roberta")
    return multilingual(replace(preset, model=model), 0.3, vocabulary)


# Conneau et al. 2020, sections 3 and 4.1: RoBERTa's masks without pairs, 250,002 unigram entries, exponent 0.3,
# 1,500,000 steps of 8,192 rows. The paper does not state the other settings: these are RoBERTa's. In the tiny presets,
# all settings except the family and the exponent are ours.
PRESETS |= {
    "mbert-tiny": multilingual(PRESETS["bert-tiny"], 0.7, replace(MBERT_VOCABULARY, size=8_192)),
    "mbert-base": multilingual(PRESETS["bert-base"], 0.7, MBERT_VOCABULARY),
    "xlm-roberta-tiny": xlm_roberta(PRESETS["roberta-tiny"], 8_192),
    "xlm-roberta-base": xlm_roberta(replace(PRESETS["roberta-base"], steps=1_500_000), 250_002),
}

# Clark et al. 2020, table 6; google-research/electra masks 85% of the drawn positions and leaves the rest unchanged.
# Rows with one segment are ours; Clark et al. split contiguous text into two segments.
ELECTRA_SAMPLING = Sampling(
    maximum_length=128, pairs=FullSentences(), masking=TokenMasking(mask_share=0.85, random_share=0.0)
)


def electra(preset: Pretrain, **parts: Any) -> Pretrain:
    """Return an ELECTRA of the size of a BERT preset, with the model settings `parts` replaced.

    Batch, steps, optimizer and schedule are those of the preset.
    """
    model = replace(preset.model, family="electra", **parts)
    sampling = replace(ELECTRA_SAMPLING, maximum_length=preset.sampling.maximum_length)
    return replace(preset, model=model, sampling=sampling, objective=Replaced())


PRESETS |= {
    # Sizes, steps and batches are those of the small BERTs. The generator has a quarter of the discriminator's width,
    # as in the paper.
    "electra-tiny": electra(PRESETS["bert-tiny"]),
    "electra-mini": electra(PRESETS["bert-mini"]),
    # The generator has a quarter of the discriminator's width, as in the paper; in the released electra-small, both
    # have the same width.
    "electra-small": electra(
        replace(
            bert(12, 256, 4),
            batch=Batch(rows_per_step=128, rows_per_slot=32),
            optimizer=AdamW(learning_rate=5e-4, epsilon=1e-6),
            schedule=LinearDecay(warmup_share=0.01),
        ),
        embedding_width=128,
    ),
    "electra-base": replace(
        electra(
            replace(
                bert(12, 768, 12),
                steps=766_000,
                sampling=Sampling(maximum_length=512),
                optimizer=AdamW(learning_rate=2e-4, epsilon=1e-6),
                schedule=LinearDecay(warmup_share=0.013),
            )
        ),
        objective=Replaced(generator_share=1 / 3),
    ),
}
# Sanh et al. 2019, sections 2 and 3: half the layers of a BERT, no segments, no pooler, no sentence pairs, 4,096 rows
# per step. Learning rate, warm-up, epsilon, weight decay and clipping are the defaults of the authors' code
# (huggingface/transformers, examples/research_projects/distillation). Steps are ours: three epochs (the authors'
# default) over the 4.3 billion tokens of Wikipedia and BooksCorpus. The authors mask rare entries more often; we mask
# all entries alike.
DISTILBERT = replace(
    PUBLISHED,
    steps=7_000,
    sampling=Sampling(maximum_length=512, pairs=FullSentences()),
    batch=Batch(rows_per_step=4_096, rows_per_slot=32),
    optimizer=AdamW(learning_rate=5e-4, weight_decay=0.0, epsilon=1e-6, clip_norm=5.0),
    schedule=LinearDecay(warmup_share=0.05),
)


def distilbert(preset: Pretrain, base: Pretrain) -> Pretrain:
    """Return `base` with a DistilBERT that has half the layers of a BERT preset, and otherwise the preset's sizes."""
    model = replace(preset.model, family="distilbert", layers=preset.model.layers // 2, segments=0)
    return replace(base, model=model)


def _small_distilbert(preset: Pretrain) -> Pretrain:
    """Return a DistilBERT with half the layers of a small BERT preset.

    Steps, learning rate and batch are those of the BERT preset. These choices are ours.
    """
    return distilbert(preset, replace(preset, sampling=replace(preset.sampling, pairs=FullSentences())))


PRESETS |= {
    "distilbert-tiny": _small_distilbert(PRESETS["bert-tiny"]),
    "distilbert-mini": _small_distilbert(PRESETS["bert-mini"]),
    "distilbert-base": distilbert(PRESETS["bert-base"], DISTILBERT),
}

# Lan et al. 2020, section 4.1: LAMB, 4,096 rows of at most 512 tokens, 125,000 steps, a vocabulary of 30,000 unigram
# pieces. Warm-up: 3,125 steps (google-research/albert).
ALBERT = replace(
    PUBLISHED,
    steps=125_000,
    sampling=Sampling(maximum_length=512),
    batch=Batch(rows_per_step=4_096, rows_per_slot=32),
    optimizer=Lamb(learning_rate=1.76e-3),
    schedule=LinearDecay(warmup_share=0.025),
)


def albert(preset: Pretrain, *, size: int = 30_000, **parts: Any) -> Pretrain:
    """Return an ALBERT of the size of a BERT preset, with the model settings `parts` replaced.

    The vocabulary has `size` unigram pieces. Batch, steps, optimizer and schedule are those of the preset.
    """
    model = replace(preset.model, **{"family": "albert", "embedding_width": 128, "activation": "gelu_new"} | parts)
    sampling = replace(preset.sampling, pairs=SentenceOrder(), masking=NgramMasking())
    vocabulary = replace(preset.vocabulary, kind="unigram", size=size, lowercase=True)
    return replace(preset, model=model, sampling=sampling, vocabulary=vocabulary)


# Presets above base size have no dropout. Lan et al. 2020, section 4.8, remove dropout from xxlarge, and the released
# models of version 2 were trained without dropout (google-research/albert).
UNDROPPED: dict[str, Any] = {"hidden_dropout": 0.0, "attention_dropout": 0.0}
PRESETS |= {
    # Steps, batches and optimizer of the tiny and mini presets are those of the small BERTs. The embeddings of
    # albert-tiny have half of the model's width; the usual 128 would be the whole width.
    "albert-tiny": albert(PRESETS["bert-tiny"], size=8_192, embedding_width=64),
    "albert-mini": albert(PRESETS["bert-mini"]),
    "albert-base": albert(bert(12, 768, 12, ALBERT)),
    "albert-large": albert(bert(24, 1024, 16, ALBERT), **UNDROPPED),
    # 16 heads, as in the released model. The paper's rule, one head per 64 dimensions, would give 32 heads.
    "albert-xlarge": albert(bert(24, 2048, 16, ALBERT), **UNDROPPED),
    "albert-xxlarge": albert(bert(12, 4096, 64, ALBERT), **UNDROPPED),
}
# He et al. 2021, hyper-parameters of pre-training at base size: 2,048 rows of at most 512 tokens, 1,000,000 steps, rate
# 2e-4, warm-up in 10,000 steps. The paper also masks spans of up to three. The default of microsoft/DeBERTa, max_ngram
# 1, masks single tokens. Ours: runs of one to three whole words, drawn as in ALBERT. The enhanced mask decoder predicts
# them. The published vocabulary has as many entries and BERT's special tokens; one that is trained here has RoBERTa's.
DEBERTA = replace(
    PUBLISHED,
    vocabulary=VocabularySettings(kind="byte-bpe", size=50_265),
    sampling=Sampling(maximum_length=512, pairs=FullSentences()),
    batch=Batch(rows_per_step=2_048, rows_per_slot=32),
    optimizer=AdamW(learning_rate=2e-4),
)
# microsoft/DeBERTa, experiments/language_model/rtd.sh and rtd_*.json: 256 rows of at most 512 tokens, 1,000,000 steps,
# rate 1e-4, warm-up in 10,000 steps; xsmall has 64 rows and rate 3e-4. The generator has the width of the model and
# half of its layers, embeddings are shared without gradient (He et al. 2023), and all masked positions have [MASK]. The
# paper trains with 8,192 rows. Ours: `small` is trained as `base`, and the generator has the plain masked-token head.
DEBERTA_V3 = replace(
    PUBLISHED,
    vocabulary=VocabularySettings(kind="unigram", size=128_100, lowercase=False),
    sampling=Sampling(maximum_length=512),
)
DEBERTA_V3_XSMALL = replace(
    DEBERTA_V3, batch=Batch(rows_per_step=64, rows_per_slot=32), optimizer=AdamW(learning_rate=3e-4)
)
DISENTANGLED: dict[str, Any] = {"segments": 0, "layer_norm_epsilon": 1e-7, "positions": NoPositions()}


def _deberta(preset: Pretrain) -> Pretrain:
    """Return a DeBERTa of the size of a BERT preset, with its batch, steps, optimizer and schedule."""
    model = replace(preset.model, family="deberta", attention=DisentangledAttention(), **DISENTANGLED)
    sampling = replace(preset.sampling, pairs=FullSentences(), masking=NgramMasking())
    vocabulary = replace(preset.vocabulary, kind="byte-bpe")
    objective = Masked(decoder="enhanced")
    return replace(preset, model=model, sampling=sampling, vocabulary=vocabulary, objective=objective)


def _deberta_v3(preset: Pretrain) -> Pretrain:
    """Return a DeBERTa v3 of the size of a BERT preset, with its batch, steps, optimizer and schedule."""
    model = replace(preset.model, family="deberta-v2", attention=BucketedAttention(), **DISENTANGLED)
    masking = TokenMasking(mask_share=1.0, random_share=0.0)
    sampling = replace(preset.sampling, pairs=FullSentences(), masking=masking)
    vocabulary = replace(preset.vocabulary, kind="unigram", lowercase=False)
    objective = Replaced(generator_share=1.0, generator_depth=0.5, embedding_sharing="gradient-disentangled")
    return replace(preset, model=model, sampling=sampling, vocabulary=vocabulary, objective=objective)


OF_DEBERTA = {
    # Steps, batches and optimizer of the tiny presets are those of bert-tiny.
    "deberta-tiny": _deberta(PRESETS["bert-tiny"]),
    "deberta-base": _deberta(bert(12, 768, 12, DEBERTA)),
    "deberta-v3-tiny": _deberta_v3(PRESETS["bert-tiny"]),
    "deberta-v3-xsmall": _deberta_v3(bert(12, 384, 6, DEBERTA_V3_XSMALL)),
    "deberta-v3-small": _deberta_v3(bert(6, 768, 12, DEBERTA_V3)),
    "deberta-v3-base": _deberta_v3(bert(12, 768, 12, DEBERTA_V3)),
}
# Training continues from a published model (--init), which determines the sizes and the vocabulary. For additional
# steps, google-research/bert's README advises learning rate 2e-5, a fifth of the original 1e-4; `continue-small` has a
# fifth of bert-mini's rate. Steps and warm-up are ours.
CONTINUED = replace(
    PUBLISHED, steps=10_000, optimizer=AdamW(learning_rate=2e-5), schedule=LinearDecay(warmup_share=0.1)
)
PRESETS |= {
    "continue": CONTINUED,
    "continue-small": replace(
        CONTINUED, steps=2_000, optimizer=AdamW(learning_rate=2e-4), batch=Batch(rows_per_step=64, rows_per_slot=32)
    ),
}
PRESETS |= {f"{name}-fast": _fast(preset) for name, preset in PRESETS.items()}
PRESETS |= MODERNBERT_PRESETS  # they have no dropout, so they are fast already
# No "fast" ones: scores with distances are computed on padded rows, with or without attention dropout.
PRESETS |= OF_DEBERTA
PRESETS |= LONGFORMER_PRESETS
PRESETS |= BIGBIRD_PRESETS
# `make pretrain` trains this preset. The recipe is ours: a bert-tiny that learns much in a few minutes. Its word
# embeddings start from co-occurrence counts, its rows are short, and it has no dropout and no pair task.
QUICKSTART = replace(
    PRESETS["bert-tiny-fast"],
    steps=1_500,
    word_embeddings="cooccurrence",
    sampling=Sampling(maximum_length=64, pairs=FullSentences()),
    optimizer=AdamW(learning_rate=3e-3),
)
PRESETS["quickstart"] = replace(QUICKSTART, model=replace(QUICKSTART.model, hidden_dropout=0.0))


DEFAULT_PRESET = "bert-tiny"


def split_preset(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the preset that the first argument names, and the other arguments.

    The preset is None if there are no arguments, or if the first is an option (--NAME) or a kind (SETTING:KIND).
    Raises ConfigError, with the nearest name, for an unknown preset.
    """
    if not arguments or arguments[0].startswith("-") or ":" in arguments[0]:
        return None, list(arguments)
    if arguments[0] not in PRESETS:
        text = f"; if it is text to train on, write --corpus {arguments[0]}" if Path(arguments[0]).exists() else ""
        raise ConfigError(f"preset {_unknown_preset(arguments[0])}{text}")
    return arguments[0], list(arguments[1:])


def require_preset(name: str) -> None:
    """Raise ConfigError, with the nearest name, for an unknown preset."""
    if name not in PRESETS:
        raise ConfigError(f"preset {_unknown_preset(name)}")


def _unknown_preset(name: Any) -> str:
    """Return the message for an unknown preset, without the word "preset" at its start."""
    near = did_you_mean(nearest(str(name), PRESETS))
    return f"({name}) does not exist{near or f'; jobs/pretrain.py --help lists all {len(PRESETS)}'}"


def starting_point(preset: str | None, config: str | None) -> tuple[str, Pretrain]:
    """Return the name of a preset, and the preset's settings with those of the config file.

    `preset` and `config` are the preset and the file that the command line names, or None. The file may name a preset
    too. The file's values are not checked yet, because command-line options may replace them. Raises ConfigError for an
    unknown preset, and if the file and the command line name different presets.
    """
    if config is None:
        return preset or DEFAULT_PRESET, PRESETS[preset or DEFAULT_PRESET]
    file = read_config(config, Pretrain)
    named = file.values.pop("preset", preset or DEFAULT_PRESET)
    if not isinstance(named, str) or named not in PRESETS:
        raise file.error("preset", _unknown_preset(named))
    if preset not in (None, named):
        problem = f"({named}) is not the preset of the command ({preset}): leave one of the two presets out"
        raise file.error("preset", problem)
    return named, settings_of(file, PRESETS[named])


def as_toml(config: Pretrain, preset: str) -> str:
    """Return the settings as the text of a file for --config."""
    return f"preset = {toml_value(preset)}\n{to_toml(config, PRESETS[preset])}"


def require_init(preset: str, config: Pretrain) -> None:
    """Raise ConfigError if a preset continues from a published model, but the settings name no model."""
    if preset.startswith("continue") and config.init is None:
        raise ConfigError(
            f"preset ({preset}) continues from a published model: name it with --init FOLDER, URL or hf://OWNER/NAME"
        )
