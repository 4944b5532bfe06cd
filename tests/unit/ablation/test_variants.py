"""Which pretrainings an ablation compares, and which settings it refuses."""

import re
from dataclasses import replace

import pytest

from jobs.ablate import main
from pipeline.ablation.command import read_ablate
from pipeline.ablation.variants import Variant, ablation_name, variants_of
from pipeline.config.ablate import number_of_tokens
from pipeline.config.ablations import ABLATIONS
from pipeline.config.flat import flatten
from pipeline.config.jobs import with_usual_slots
from pipeline.presets.table import PRESETS
from pipeline.saved.naming import default_name

TOKENS = ("--tokens", "1M")


def variants(*words: str) -> tuple[Variant, ...]:
    return variants_of(read_ablate([*words, *TOKENS], "about"))


def over(*entries: str) -> list[str]:
    return [word for entry in entries for word in ("--over", entry)]


def changes(first: Variant, other: Variant) -> dict[str, object]:
    before, after = flatten(first.config), flatten(other.config)
    return {name: value for name, value in after.items() if name not in before or before[name] != value}


def test_every_named_ablation_has_variants_whose_settings_fit_together() -> None:
    labels = {name: [variant.label for variant in variants(name)] for name in ABLATIONS}
    assert labels == {name: [row.label for row in each.rows] for name, each in ABLATIONS.items()}


def test_ablations_of_one_base_share_the_run_of_the_first_variant() -> None:
    shared = {name: variants(name)[0].run(1).name for name in ABLATIONS if name not in ("objective", "recipe")}
    assert set(shared.values()) == {default_name("bert-tiny", with_usual_slots(replace(PRESETS["bert-tiny"], seed=1)))}
    assert variants("objective")[0].run(0).name == variants("pairs")[2].run(0).name  # full sentences


def test_a_falling_rate_has_the_length_and_the_rows_of_the_base_run() -> None:
    base, *_, falling = variants("rate", "--sampling.maximum-length", "64", "--batch.rows-per-step", "96")
    assert changes(base, falling) == {
        "sampling.masking.share": 0.3,
        "phases": "TwoPhases",
        "phases.share": 0.5,
        "phases.maximum_length": 64,
        "phases.rows_per_step": 96,
        "phases.rows_per_slot": 32,
        "phases.masking_share": 0.15,
        "phases.theta": None,
    }
    shares = {
        variant.label: [phase.sampling.masking.share for phase in variant.config.all_phases]
        for variant in variants("rate")
    }
    assert shares == {
        "15%": [0.15],
        "30%": [0.3],
        "40%": [0.4],
        "30%, then 15%, then 5%": [0.3, 0.15, 0.05],
        "40%, then 15%": [0.4, 0.15],
        "30%, then 15%": [0.3, 0.15],
    }


def test_muon_has_the_rate_and_the_weight_decay_of_the_base_run() -> None:
    stable, falling, muon, both = variants("recipe", "--preset", "encoder-xs")
    assert {"optimizer": "Muon", "optimizer.momentum": 0.95} == changes(stable, muon) == changes(falling, both)
    assert changes(stable, falling) == {"schedule": "LinearDecay", "schedule.warmup_share": 0.1}
    assert changes(stable, replace(stable, config=PRESETS["encoder-xs"])) == {
        "schedule.warmup_steps": 200,
        "batch.rows_per_slot": "auto",
    }


def test_the_variants_of_parts_change_one_part_each_and_the_last_two_all() -> None:
    bert, *others, whole, deberta = variants("parts")
    changed = {variant.label: changes(bert, variant) for variant in others}
    assert {label: set(settings) for label, settings in changed.items() if label != "rotary"} == {
        "pre-norm": {"model.block"},
        "GeGLU": {"model.inner", "model.feed_forward"},
        "30% masks": {"sampling.masking.share"},
        "no pairs": {"sampling.pairs", "sampling.pairs.across_documents"},
    }
    assert changed["rotary"]["model.positions"] == "RotaryPositions"
    assert changed["GeGLU"]["model.feed_forward"] == 320  # 5/8 of 512
    assert whole.config.model.is_published and whole.config.model.family == "modernbert"
    tiny = PRESETS["deberta-tiny"]
    assert deberta.config.model == tiny.model and deberta.config.objective == tiny.objective
    assert {variant.config.model.family for variant in others} == {"bert"}
    every = (bert, *others, whole, deberta)
    assert {variant.config.optimizer for variant in every} == {PRESETS["bert-tiny"].optimizer}


def test_a_changed_kind_keeps_the_settings_that_both_kinds_have() -> None:
    first, words, spans = variants(
        *over("sampling.masking=token-masking,whole-word-masking,span-masking"), "--sampling.masking.share", "0.3"
    )
    assert words.config.sampling.masking.share == spans.config.sampling.masking.share == 0.3
    assert changes(first, words) == {"sampling.masking": "WholeWordMasking"}
    adam, lamb = variants(*over("optimizer=adam-w,lamb"))
    assert adam.config.optimizer.learning_rate == lamb.config.optimizer.learning_rate == 2e-3


def test_several_settings_are_changed_one_at_a_time() -> None:
    found = variants(*over("batch.rows-per-step=64,128", "sampling.copies=None,10", "vocabulary.lowercase=true,false"))
    assert [variant.label for variant in found] == [
        "base (batch.rows_per_step=64, sampling.copies=None, vocabulary.lowercase=true)",
        "batch.rows_per_step=128",
        "sampling.copies=10",
        "vocabulary.lowercase=false",
    ]
    assert changes(found[0], found[1]) == {"batch.rows_per_step": 128}
    assert changes(found[0], found[2]) == {"sampling.copies": 10}
    assert changes(found[0], found[3]) == {"vocabulary.lowercase": False}


def test_the_name_stands_for_variants_and_budget_but_not_for_seeds_and_scores() -> None:
    def name(*words: str) -> str:
        config = read_ablate(["dropout", *words], "about")
        return ablation_name(config, variants_of(config))

    # The name before languages, activations and special tokens were settings: such an ablation is continued.
    default = read_ablate(["pairs", "--tokens", "10M"], "about")
    assert ablation_name(default, variants_of(default)) == "pairs-6b6fb8d7"
    known = name(*TOKENS)
    assert re.fullmatch(r"dropout-[0-9a-f]{8}", known)
    assert name(*TOKENS, "--seeds", "5", "--blimp", "b", "--seed", "3") == known
    assert len({known, name("--tokens", "2M"), name("--minutes", "1"), name(*TOKENS, "--corpus", "c")}) == 4


def test_tokens_may_have_a_unit() -> None:
    texts = {"250k": 250_000, "1.5M": 1_500_000, "20_000_000": 20_000_000, "7": 7, "2B": 2_000_000_000}
    assert {text: number_of_tokens(text) for text in texts} == texts


REFUSED = [
    (["pairz", *TOKENS], r"ablation \(pairz\) must be one of pairs, .*; did you mean pairs\?"),
    (TOKENS, r"ablation \(None\) or over \(none\): give exactly one"),
    (["pairs", *over("seed=1,2"), *TOKENS], r"ablation \(pairs\) or over \(seed=1,2\): give exactly one"),
    (["pairs"], r"tokens \(None\) or minutes \(None\): give exactly one"),
    (["pairs", *TOKENS, "--minutes", "3"], r"tokens \(1M\) or minutes \(3.0\): give exactly one"),
    (["pairs", "--minutes", "0"], r"minutes \(0.0\) must be above 0"),
    (["pairs", "--tokens", "1.5"], r"tokens \(1.5\) must be a whole number above 0, such as 250k"),
    (["pairs", "--tokens", "manyM"], r"tokens \(manyM\) must be a whole number"),
    (["pairs", "--tokens", "nan"], r"tokens \(nan\) must be a whole number"),
    (["pairs", *TOKENS, "--name", "x"], r"name \(x\) is for one run: leave name out"),
    (["pairs", *TOKENS, "--steps", "9"], "steps cannot be set: all variants get the same tokens or minutes, .*; leave steps out"),
    (["--ablation", "pairs", *TOKENS], "ablation is the first word of the command"),
    (["pairs", *TOKENS, "--preset", "bert-tny"], r"preset \(bert-tny\) does not exist; did you mean bert-tiny\?"),
    (["pairs", *TOKENS, "--task", "sst2"], r"task \(sst2\) and data \(None\).* belong together: give both"),
    (["pairs", *TOKENS, "--task", "sst2", "--task", "glue", "--data", "d"], r"task \(glue\) is several tasks, .*: name each, such as"),
    (["pairs", *TOKENS, "--seeds", "0"], r"seeds \(0\) must be at least 1"),
    ([*over("foo"), *TOKENS], r"over \(foo\) must be NAME=VALUE,VALUE"),
    ([*over("sampling.copies=1,,2"), *TOKENS], r"over \(sampling.copies=1,,2\) must be NAME=VALUE,VALUE"),
    ([*over("seed=1,2", "seed=3,4"), *TOKENS], r"over \(seed\) is given twice: give all values in one --over seed="),
    ([*over("sampling.maskng.share=0,1"), *TOKENS], r"over \(sampling.maskng.share\): no setting of pretraining has this name; did you mean sampling.masking.share"),
    ([*over("sampling.masking.share=0.1,abc"), *TOKENS], r"variant 'sampling.masking.share=abc': sampling.masking.share \('abc'\) must be a number"),
    ([*over("sampling.masking.share=0.1,7"), *TOKENS], r"variant 'sampling.masking.share=7': sampling.masking.share \(7.0\) must lie between 0 and 1"),
    ([*over("sampling.pairs=next-sentence,full"), *TOKENS], r"variant 'sampling.pairs=full': sampling.pairs \(full\) must be one of next-sentence"),
    ([*over("objective.weight=1,2"), *TOKENS], "weight is not a setting of masked: choose a kind that has weight as well"),
    ([*over("sampling.copies=10"), *TOKENS], r"over \(sampling.copies=10\) gives one variant, but a comparison needs at least two"),
    ([*over("optimizer.learning_rate=1e-3,0.001"), *TOKENS], "variants 'optimizer.learning_rate=1e-3' and 'optimizer.learning_rate=0.001' have the same settings"),
    ([*over("steps=1,2"), *TOKENS], r"over \(steps\) cannot be set: all variants get the same tokens or minutes"),
    (["length", *TOKENS, "--batch.rows-per-step", "2", "--batch.rows-per-slot", "2"], r"phases.rows_per_step would be 0.25 × batch.rows_per_step \(2\), which is not a whole number"),
    *(
        ([*over(f"{name}=1,2"), *TOKENS], rf"over \({name}\): all variants must have the same {name}; set it for all of them with --")
        for name in ("corpus", "prepare.heldout_share", "output", "name", "placement.threads", "workers", "seed", "evaluation.rows", "tracking.every")
    ),
]  # fmt: skip


def test_what_cannot_be_compared_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "pipeline.on_ray.cluster.connect", lambda address: pytest.fail("Ray is not needed to refuse this")
    )
    wrong = []
    for words, message in REFUSED:
        assert main(list(words)) == 2, words
        said = capsys.readouterr().err
        if said.count("\n") != 1 or not re.match(f"error: .*{message}", said):
            wrong.append((words, said))
    assert wrong == []
