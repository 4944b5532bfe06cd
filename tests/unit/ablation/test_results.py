"""Medians, ranges, paired differences and Holm's correction of an ablation, by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from pipeline.ablation.outcomes import BITS, LOSS, Outcome
from pipeline.ablation.picture import draw
from pipeline.ablation.results import AblationResult, better, result_of
from pipeline.ablation.table import as_json, difference_text, markdown, spread_text, table_lines
from pipeline.ablation.variants import Variant
from pipeline.config.data import Sampling, SingleSegment, VocabularySettings
from pipeline.config.jobs import Pretrain
from pipeline.config.objective import Replaced
from pipeline.evaluation.paired import holm, over_seeds, p_value
from pipeline.presets.table import PRESETS
from pipeline.tracking.curves import BLUE, GREY, RED

BASE = PRESETS["bert-tiny"]
PLL = "BLiMP PLL"


def variant(label: str, config: Pretrain = BASE) -> Variant:
    return Variant(label=label, config=config, preset="bert-tiny")


def outcomes(*scores: dict[str, float], **changed: object) -> list[Outcome]:
    return [
        Outcome(
            **{
                "run": f"run-{seed}",
                "seed": seed,
                "steps": 10,
                "tokens": 1_000 + seed,
                "seconds": 60.0,
                "tokens_per_second": 16.0,
                "epochs": 2,
                "trained": True,
                "mlflow_run_id": f"id-{seed}",
                "letters": (True, True),
                "scores": values,
            }
            | changed
        )
        for seed, values in enumerate(scores)
    ]


def of(score: str, *values: float) -> list[dict[str, float]]:
    return [{score: value} for value in values]


def two(score: str, first: list[float], second: list[float], config: Pretrain = BASE) -> AblationResult:
    both = [outcomes(*of(score, *first)), outcomes(*of(score, *second))]
    return result_of("over-0", "1M tokens", [variant("a"), variant("b", config)], both)


def test_a_difference_is_paired_by_seed() -> None:
    """Differences 0.1, 0.2, 0.3: mean 0.2, deviation 0.1, half-width 4.3027 * 0.1 / sqrt(3) = 0.2484."""
    cell = two(PLL, [0.5, 0.6, 0.9], [0.6, 0.8, 1.2]).rows[1].cells[PLL]
    assert (cell.median, cell.low, cell.high) == (0.8, 0.6, 1.2)
    assert cell.difference is not None and cell.p_value is not None
    assert [cell.difference.mean, cell.difference.low, cell.difference.high] == pytest.approx(
        [0.2, -0.0484, 0.4484], abs=1e-4
    )
    assert cell.p_value == pytest.approx(stats.ttest_rel([0.6, 0.8, 1.2], [0.5, 0.6, 0.9]).pvalue)
    assert spread_text(PLL, cell) == "80.0 (60.0 to 120.0)" and difference_text(PLL, cell) == "+20.0 [-4.8 to +44.8]"


def test_the_p_value_is_below_a_twentieth_where_the_interval_leaves_out_zero() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        a, b = rng.normal(size=4), rng.normal(0.8, size=4)
        assert (p_value(a.tolist(), b.tolist()) < 0.05) == (over_seeds(a.tolist(), b.tolist()).better != 0)
    assert p_value([1.0], [2.0]) is None and p_value([1.0, 2.0], [2.0, 3.0]) is None


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.6]) == [1.0, 1.0] and holm([]) == []


def test_more_than_five_comparisons_are_corrected() -> None:
    """With differences of p = 0.02, five alone are significant, and six are not (6 * 0.02 = 0.12)."""
    shift, half = [0.0, 0.0, 0.0], [0.08, 0.10, 0.14]
    known = p_value(shift, half)
    assert known is not None and 0.025 < known < 0.05
    for many, corrected in ((5, False), (6, True)):
        runs = [outcomes(*of(PLL, *shift))] + [outcomes(*of(PLL, *half))] * many
        result = result_of("over-0", "1M tokens", [variant("a"), *(variant(f"b{n}") for n in range(many))], runs)
        assert (result.comparisons, result.corrected) == (many, corrected)
        assert {row.cells[PLL].significant for row in result.rows[1:]} == {not corrected}
        text = markdown(result)
        assert ("Holm's correction for 6 comparisons" in text) == corrected and (
            "*<" in text or " * |" in text
        ) != corrected


def test_two_seeds_are_an_anecdote_without_an_interval() -> None:
    result = two(PLL, [0.5, 0.6], [0.6, 0.8])
    cell = result.rows[1].cells[PLL]
    assert cell.difference is not None and cell.difference.mean == pytest.approx(0.15)
    assert cell.p_value is None and not cell.significant and math.isinf(cell.difference.low)
    text = "\n".join(table_lines(result))
    assert "2 seeds per variant prove nothing" in text and "[" not in text and "+15.0" in text
    assert as_json(result)["variants"][1]["scores"][PLL]["interval"] is None
    assert "anecdote" not in markdown(two(PLL, [0.5, 0.6, 0.9], [0.6, 0.8, 1.2]))


@pytest.mark.parametrize(
    ("score", "config", "compared"),
    [
        (LOSS, replace(BASE, optimizer=replace(BASE.optimizer, learning_rate=1e-3)), True),
        (LOSS, replace(BASE, sampling=replace(BASE.sampling, copies=10)), True),
        (LOSS, replace(BASE, sampling=Sampling(pairs=SingleSegment())), False),
        (LOSS, replace(BASE, vocabulary=VocabularySettings(size=4_096)), False),
        (BITS, replace(BASE, sampling=Sampling(pairs=SingleSegment())), True),
        (BITS, replace(BASE, vocabulary=VocabularySettings(size=4_096)), True),
        (BITS, replace(BASE, sampling=Sampling(maximum_length=64)), False),
        (BITS, PRESETS["electra-tiny"], False),
        (PLL, replace(BASE, sampling=Sampling(maximum_length=64, pairs=SingleSegment())), True),
    ],
)
def test_only_scores_that_measure_the_same_are_compared(score: str, config: Pretrain, compared: bool) -> None:
    assert isinstance(PRESETS["electra-tiny"].objective, Replaced)
    result = two(score, [1.0, 2.0, 3.0], [1.1, 2.3, 3.2], config)
    cell = result.rows[1].cells[score]
    assert cell.median == 2.3 and (cell.difference is not None) == compared
    note = "\n".join(table_lines(result)).split("\n\n")[1]
    assert (f"{score}: " in note) == (not compared)


@pytest.mark.parametrize("score", [LOSS, BITS])
@pytest.mark.parametrize(("vocabulary", "compared"), [("v", True), ("w", False), (None, False)])
def test_models_to_start_from_are_compared_if_their_vocabulary_is_the_same(
    score: str, vocabulary: str | None, compared: bool
) -> None:
    variants = [variant(name, replace(BASE, init=name)) for name in ("a", "b")]
    scores = of(score, 1.0, 2.0, 3.0)
    runs = [outcomes(*scores, vocabulary=None if vocabulary is None else "v"), outcomes(*scores, vocabulary=vocabulary)]
    cell = result_of("over-0", "1M tokens", variants, runs).rows[1].cells[score]
    assert (cell.difference is not None) == compared


@pytest.mark.parametrize(
    ("letters", "settings", "compared"),
    [
        ((True, True), {"kind": "byte-bpe", "lowercase": True}, True),
        ((True, False), {"strip_accents": False}, False),
        ((False, False), {"kind": "byte-bpe"}, False),
        ((False, False), {}, False),
        (None, {"kind": "byte-bpe"}, False),
        (None, {}, True),
    ],
)
def test_bits_are_compared_if_both_vocabularies_do_the_same_to_letters(
    letters: tuple[bool, bool] | None, settings: dict, compared: bool
) -> None:
    variants = [variant("a"), variant("b", replace(BASE, vocabulary=replace(BASE.vocabulary, **settings)))]
    scores = of(BITS, 1.0, 2.0, 3.0)
    result = result_of("over-0", "1M tokens", variants, [outcomes(*scores), outcomes(*scores, letters=letters)])
    assert (result.rows[1].cells[BITS].difference is not None) == compared


def test_sizes_are_medians_over_seeds() -> None:
    """Runs of 60 s and 90 s with 10 steps and of 300 s with 400 steps: 6, 9 and 0.75 seconds per step."""
    runs = outcomes(*of(PLL, 0.5, 0.6, 0.9))
    runs[1:] = [replace(runs[1], seconds=90.0), replace(runs[2], seconds=300.0, steps=400)]
    head, _, row = markdown(result_of("over-0", "1M tokens", [variant("a")], [runs])).splitlines()[2:5]
    assert head.startswith("| variant | steps | tokens | minutes | seconds per step | tokens/s | BLiMP PLL")
    assert row.startswith("| a | 10 to 400 | 1,001 | 1.5 | 6.000 | 16 | ")


def test_a_run_that_learnt_only_frequencies_is_marked() -> None:
    runs = [outcomes(*of(PLL, 0.5, 0.6, 0.9)), outcomes(*of(PLL, 0.5, 0.6, 0.9), trained=False)]
    text = "\n".join(table_lines(result_of("over-0", "1M tokens", [variant("a"), variant("b")], runs)))
    assert "b (not trained: 3 of 3)" in text and "a (not trained" not in text


def test_copies_that_no_epoch_repeats_are_told() -> None:
    copied = replace(BASE, sampling=replace(BASE.sampling, copies=2))
    for epochs, told in ((2, True), (3, False)):
        runs = [outcomes(*of(PLL, 0.5)), outcomes(*of(PLL, 0.5), epochs=epochs)]
        result = result_of("over-0", "1M tokens", [variant("a"), variant("b", copied)], runs)
        assert ("b: epochs read: 2. No copy was shown twice" in markdown(result)) == told


def test_the_picture_has_a_dot_and_a_bar_per_variant_and_score() -> None:
    """Lower losses are better, higher accuracies too."""
    a = [{LOSS: 3.0, PLL: 0.5}, {LOSS: 3.1, PLL: 0.6}, {LOSS: 3.2, PLL: 0.7}]
    b = [{LOSS: 2.8, PLL: 0.4}, {LOSS: 2.91, PLL: 0.51}, {LOSS: 3.02, PLL: 0.62}]
    c = [{LOSS: 3.0, PLL: 0.71}, {LOSS: 3.2, PLL: 0.8}, {LOSS: 3.1, PLL: 0.9}]
    other = replace(BASE, sampling=Sampling(pairs=SingleSegment()))
    result = result_of(
        "over-0",
        "1M tokens",
        [variant("a"), variant("b"), variant("c", other)],
        [outcomes(*runs) for runs in (a, b, c)],
    )
    figure = draw(result)
    loss, pll = figure.axes
    assert [label.get_text() for label in loss.get_yticklabels()] == ["a", "b", "c"]
    assert (loss.get_title(), pll.get_title()) == (LOSS, PLL)
    for axes, score, scale in ((loss, LOSS, 1), (pll, PLL, 100)):
        drawn = {tuple(line.get_ydata()): (list(line.get_xdata()), line.get_color()) for line in axes.lines[2:]}
        for number, row in enumerate(result.rows[1:], 1):
            difference = row.cells[score].difference
            if difference is None:
                assert not [ys for ys in drawn if number in ys]
                continue
            colour = {1: BLUE, -1: RED, 0: GREY}[better(score, row.cells[score])]
            assert drawn[(number,)] == ([pytest.approx(scale * difference.mean)], colour)
            assert drawn[(number, number)] == (
                [pytest.approx(scale * difference.low), pytest.approx(scale * difference.high)],
                colour,
            )
    assert better(LOSS, result.rows[1].cells[LOSS]) == 1 and better(PLL, result.rows[1].cells[PLL]) == -1
    assert [text.get_text() for text in loss.texts] == ["not comparable"] and not pll.texts
    assert figure.get_facecolor() == (1.0, 1.0, 1.0, 1.0)
