"""Named ablations: each has its variants and the published claim that it examines."""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class OfBase:
    """A value computed from the base run: the base run's value of `setting`, multiplied by `times`."""

    setting: str
    times: float = 1


Value = str | OfBase
"""A value as written on the command line, or a value that is computed from the base run."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One variant of an ablation."""

    label: str
    settings: dict[str, Value] = field(default_factory=dict)
    """Dotted name -> value of the settings that differ from the base run."""


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """Variants to compare. Each variant is compared with the first one."""

    examines: str
    """The claim or question, with its source."""
    rows: tuple[Row, ...]


def _rows(rows: dict[str, dict[str, Value]]) -> tuple[Row, ...]:
    """Return rows from label -> settings."""
    return tuple(Row(label=label, settings=settings) for label, settings in rows.items())


def _length(length: int, times: float) -> dict[str, Value]:
    """Return the settings of a maximum length, with the base run's rows per step multiplied by `times`.

    If `times` is below 1, the rows per slot are multiplied too.
    """
    slots: dict[str, Value] = {"batch.rows_per_slot": OfBase(setting="batch.rows_per_slot", times=times)}
    rows: dict[str, Value] = {"batch.rows_per_step": OfBase(setting="batch.rows_per_step", times=times)}
    return {"sampling.maximum_length": str(length)} | rows | (slots if times < 1 else {})


def _then_15(share: float) -> dict[str, Value]:
    """Return the settings of masking this share of the tokens in the first half of the steps, and 15% in the second."""
    return {
        "sampling.masking.share": str(share),
        "phases": "two-phases",
        "phases.share": "0.5",
        "phases.masking_share": "0.15",
        "phases.maximum_length": OfBase(setting="sampling.maximum_length"),
        "phases.rows_per_step": OfBase(setting="batch.rows_per_step"),
        "phases.rows_per_slot": OfBase(setting="batch.rows_per_slot"),
    }


def _size(layers: int, width: int) -> dict[str, Value]:
    """Return the settings of an encoder with heads of width 64 and feed-forward width 4 * width."""
    return {
        "model.layers": str(layers),
        "model.width": str(width),
        "model.heads": str(width // 64),
        "model.feed_forward": str(4 * width),
    }


NEXT_SENTENCE: dict[str, Value] = {"sampling.pairs": "next-sentence", "sampling.masking.share": "0.15"}
"""Pairs and masks of BERT."""
GEGLU: dict[str, Value] = {
    "model.inner": "geglu",
    "model.feed_forward": OfBase(setting="model.feed_forward", times=0.625),
}
LAST_FIFTH: dict[str, Value] = {
    "schedule": "warmup-stable-decay",
    "schedule.warmup_steps": "100",
    "schedule.decay_share": "0.2",
}
ALL_STEPS: dict[str, Value] = {"schedule": "linear-decay", "schedule.warmup_share": "0.1"}
MUON: dict[str, Value] = {"optimizer": "muon"}
ABLATIONS: dict[str, Ablation] = {
    "pairs": Ablation(
        examines="Next-sentence prediction helps (Devlin et al. 2019, section 5.1), or does not help (Liu et al. 2019, "
        "section 4.2); sentence order is the better pair task (Lan et al. 2020, section 4.6)",
        rows=_rows(
            {
                "next sentence": {"sampling.pairs": "next-sentence"},
                "sentence order": {"sampling.pairs": "sentence-order"},
                "full sentences": {"sampling.pairs": "full-sentences"},
                "single segment": {"sampling.pairs": "single-segment"},
            }
        ),
    ),
    "masking": Ablation(
        examines="New masks in every epoch are at least as good as fixed masks (Liu et al. 2019, section 4.1); whole "
        "words (google-research/bert, May 2019) and spans (Joshi et al. 2020) are better targets than tokens",
        rows=_rows(
            {
                "dynamic tokens": {"sampling.masking": "token-masking"},
                "10 static copies": {"sampling.masking": "token-masking", "sampling.copies": "10"},
                "1 static copy": {"sampling.masking": "token-masking", "sampling.copies": "1"},
                "whole words": {"sampling.masking": "whole-word-masking"},
                "spans": {"sampling.masking": "span-masking"},
            }
        ),
    ),
    "rate": Ablation(
        examines="Masking 40% of the tokens is better than masking 15% (Wettig et al. 2023); a share that falls during "
        "training is better too (GPT-BERT, Charpentier and Samuel 2024; mmBERT, Marone et al. 2025)",
        rows=_rows(
            {
                "15%": {"sampling.masking.share": "0.15"},
                "30%": {"sampling.masking.share": "0.3"},
                "40%": {"sampling.masking.share": "0.4"},
                "30%, then 15%, then 5%": {"sampling.masking.share": "0.3", "phases": "falling-masks"},
                "40%, then 15%": _then_15(0.4),
                "30%, then 15%": _then_15(0.3),
            }
        ),
    ),
    "length": Ablation(
        examines="Training on short sequences first and on long sequences at the end is as good as training only on "
        "long sequences (Devlin et al. 2019, appendix A.2); all steps have the same number of tokens",
        rows=_rows(
            {
                "128": _length(128, 1),
                "64": _length(64, 2),
                "256": _length(256, 0.5),
                "128, then 512": _length(128, 1)
                | {
                    "phases": "two-phases",
                    "phases.maximum_length": "512",
                    "phases.rows_per_step": OfBase(setting="batch.rows_per_step", times=0.25),
                    "phases.rows_per_slot": OfBase(setting="batch.rows_per_slot", times=0.25),
                },
            }
        ),
    ),
    "objective": Ablation(
        examines="A model learns more per token from detecting replaced tokens than from predicting masked tokens "
        "(Clark et al. 2020, section 3.4). The replaced variant also has ELECTRA's family and masks; its generator "
        "makes a step slower",
        rows=_rows(
            {
                "masked": {"sampling.pairs": "full-sentences", "objective": "masked"},
                "replaced": {
                    "sampling.pairs": "full-sentences",
                    "sampling.masking.mask_share": "0.85",
                    "sampling.masking.random_share": "0",
                    "model.family": "electra",
                    "objective": "replaced",
                },
            }
        ),
    ),
    "optimizer": Ablation(
        examines="LAMB trains as well as AdamW (You et al. 2020, for batches of thousands of rows); each optimiser has "
        "a best rate of its own, so there are two variants with LAMB",
        rows=_rows(
            {
                "AdamW": {"optimizer": "adam-w"},
                "LAMB, same rate": {"optimizer": "lamb"},
                "LAMB, 4 × the rate": {
                    "optimizer": "lamb",
                    "optimizer.learning_rate": OfBase(setting="optimizer.learning_rate", times=4),
                },
            }
        ),
    ),
    "recipe": Ablation(
        examines="A model learns more per token if the rate falls to zero over all steps instead of the last ones "
        "(Bergsma et al. 2025), and from Muon more than from AdamW (Jordan et al. 2024); Muon has the base run's rate, "
        "weight decay and beta2",
        rows=_rows(
            {
                "falls over the last fifth": LAST_FIFTH,
                "falls over all steps": ALL_STEPS,
                "Muon": LAST_FIFTH | MUON,
                "Muon, falls over all steps": ALL_STEPS | MUON,
            }
        ),
    ),
    "parts": Ablation(
        examines="Does each part of ModernBERT (Warner et al. 2024) help alone, and do ModernBERT and DeBERTa (He et "
        "al. 2021) as a whole? GeGLU has 5/8 of the base run's inner width, so that it has about as many weights; all "
        "variants have the base run's optimiser",
        rows=_rows(
            {
                "BERT": NEXT_SENTENCE,
                "pre-norm": NEXT_SENTENCE | {"model.block": "pre-norm"},
                "rotary": NEXT_SENTENCE | {"model.positions": "rotary-positions"},
                "GeGLU": NEXT_SENTENCE | GEGLU,
                "30% masks": NEXT_SENTENCE | {"sampling.masking.share": "0.3"},
                "no pairs": {"sampling.pairs": "full-sentences", "sampling.masking.share": "0.15"},
                "ModernBERT": {
                    "sampling.pairs": "full-sentences",
                    "sampling.masking.share": "0.3",
                    "model.family": "modernbert",
                    "model.block": "pre-norm",
                    "model.positions": "rotary-positions",
                    "model.attention": "local-attention",
                    "model.bias": "false",
                    "model.segments": "0",
                    "model.layer_norm_epsilon": "1e-5",
                }
                | GEGLU,
                "DeBERTa": {
                    "sampling.pairs": "full-sentences",
                    "sampling.masking.share": "0.15",
                    "model.family": "deberta",
                    "model.positions": "no-positions",
                    "model.attention": "disentangled-attention",
                    "model.segments": "0",
                    "model.layer_norm_epsilon": "1e-7",
                    "objective.decoder": "enhanced",
                },
            }
        ),
    ),
    "size": Ablation(
        examines="Larger encoders learn more per token, and deep encoders learn more than wide encoders (Turc et al. "
        "2019, section 5; Clark et al. 2020, figure 3)",
        rows=_rows(
            {
                "2 × 128": _size(2, 128),
                "4 × 128": _size(4, 128),
                "2 × 256": _size(2, 256),
                "4 × 256": _size(4, 256),
            }
        ),
    ),
    "dropout": Ablation(
        examines="Dropout hurts pretraining that reads each text only once (Lan et al. 2020, section 4.8; Izsak et "
        "al. 2021)",
        rows=_rows(
            {
                "0.1": {"model.hidden_dropout": "0.1", "model.attention_dropout": "0.1"},
                "0": {"model.hidden_dropout": "0", "model.attention_dropout": "0"},
            }
        ),
    ),
}
