"""Result of an ablation: for each variant and score the median, range, and paired difference to the first variant."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipeline.ablation.outcomes import BITS, LOSS, Outcome, lower_is_better
from pipeline.ablation.variants import Variant
from pipeline.config.ablate import INTERVAL_SEEDS
from pipeline.config.needs import GENERATOR
from pipeline.evaluation.paired import CONFIDENCE, Difference, holm, over_seeds, p_value

UNCORRECTED = 5
"""Maximum number of comparisons without Holm's correction."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One score of one variant, over the pretraining seeds."""

    median: float
    low: float
    high: float
    difference: Difference | None = None
    """Variant minus first variant; None for the first variant, and if the scores cannot be compared."""
    p_value: float | None = None
    """p-value of the paired t-test, after Holm's correction if Result.corrected is True. None if there is no difference
    to test, if there are too few seeds, or if all seeds have the same difference.
    """

    @property
    def significant(self) -> bool:
        """Whether the variant differs from the first at the 5% level."""
        return self.p_value is not None and self.p_value < 1 - CONFIDENCE


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """One variant in the result table."""

    variant: Variant
    outcomes: tuple[Outcome, ...]
    """In the order of the seeds."""
    cells: dict[str, Cell]
    """Score -> its cell. Scores that the variant does not have are left out."""

    @property
    def untrained(self) -> int:
        """Number of runs that learnt little but token frequencies (`Outcome.trained` is False)."""
        return sum(not outcome.trained for outcome in self.outcomes)


@dataclass(frozen=True, kw_only=True)
class AblationResult:
    """The result table of an ablation."""

    name: str
    budget: str
    rows: tuple[ResultRow, ...]
    scores: tuple[str, ...]
    """In the order of the columns."""
    comparisons: int
    """Number of p-values."""

    @property
    def seeds(self) -> int:
        return len(self.rows[0].outcomes)

    @property
    def anecdote(self) -> bool:
        """Whether there are too few seeds for intervals."""
        return self.seeds < INTERVAL_SEEDS

    @property
    def corrected(self) -> bool:
        return self.comparisons > UNCORRECTED


def result_of(
    name: str, budget: str, variants: Sequence[Variant], outcomes: Sequence[Sequence[Outcome]]
) -> AblationResult:
    """Return the result of the variants.

    `outcomes` has, for each variant, one outcome per seed; all variants have the same order of seeds.
    """
    scores = dict.fromkeys(score for runs in outcomes for outcome in runs for score in outcome.scores)
    rows = [
        ResultRow(variant=variant, outcomes=tuple(runs), cells=_cells(variants[0], outcomes[0], variant, runs))
        for variant, runs in zip(variants, outcomes, strict=True)
    ]
    keys = [
        (number, score)
        for number, row in enumerate(rows)
        for score, cell in row.cells.items()
        if cell.p_value is not None
    ]
    values = [value for number, score in keys if (value := rows[number].cells[score].p_value) is not None]
    for (number, score), value in zip(keys, holm(values) if len(values) > UNCORRECTED else values, strict=True):
        rows[number].cells[score] = replace(rows[number].cells[score], p_value=value)
    return AblationResult(name=name, budget=budget, rows=tuple(rows), scores=tuple(scores), comparisons=len(values))


def _cells(first: Variant, first_runs: Sequence[Outcome], variant: Variant, runs: Sequence[Outcome]) -> dict[str, Cell]:
    """Return the cells of a variant. A score is left out if one of the variant's runs does not have the score."""
    cells = {}
    for score in runs[0].scores:
        values, others = ([outcome.scores.get(score) for outcome in each] for each in (runs, first_runs))
        known, paired = (
            [value for value in values if value is not None],
            [value for value in others if value is not None],
        )
        if len(known) < len(values):
            continue
        cell = Cell(median=statistics.median(known), low=min(known), high=max(known))
        comparison = variant is not first and len(paired) == len(known)
        if comparison and comparable(score, first, variant, first_runs[0], runs[0]):
            enough = len(known) >= INTERVAL_SEEDS
            cell = replace(
                cell,
                difference=over_seeds(paired, known) if enough else _without_interval(paired, known),
                p_value=p_value(paired, known) if enough else None,
            )
        cells[score] = cell
    return cells


def _without_interval(a: Sequence[float], b: Sequence[float]) -> Difference:
    """Return the mean of B - A with an infinite interval, because the spread cannot be estimated from so few seeds."""
    return Difference(mean=statistics.fmean(b) - statistics.fmean(a), low=-float("inf"), high=float("inf"))


def comparable(score: str, first: Variant, other: Variant, run: Outcome, other_run: Outcome) -> bool:
    """Return whether a score measures the same thing for both variants; the outcomes are those of a run of each.

    A run with `init` has the vocabulary of that model. So if the variants have different ones, the losses and bits are
    comparable only if the runs are known to have the same vocabulary.

    Held-out loss: each variant masks the held-out text with the sampling settings of its last phase. So these settings
    and the vocabulary must be the same in both variants. Only `copies` may differ, because held-out rows always come
    from epoch 0.

    Bits per byte: the same words are masked if the maximum lengths are equal. Both vocabularies must also treat case
    and accents alike; settings alone do not tell, because their defaults depend on the kind, the file and the corpus.
    The sentences may still differ a little, because a variant skips a sentence if its vocabulary splits the sentence
    into more tokens than the maximum length.
    """
    a, b = first.config, other.config
    same_vocabulary = run.vocabulary is not None and run.vocabulary == other_run.vocabulary
    if score in (LOSS, BITS) and a.init != b.init and not same_vocabulary:
        return False
    if score == LOSS:
        same = [replace(config.all_phases[-1].sampling, copies=None) for config in (a, b)]
        return same[0] == same[1] and a.vocabulary == b.vocabulary and _predicts_masked(first, other)
    if score == BITS:
        known = run.letters is not None and other_run.letters is not None
        letters = run.letters == other_run.letters if known else a.vocabulary == b.vocabulary
        return letters and a.sampling.maximum_length == b.sampling.maximum_length and _predicts_masked(first, other)
    return True


def _predicts_masked(*variants: Variant) -> bool:
    """Return whether the models of all variants predict masked tokens; ELECTRA's discriminator does not."""
    return not any(GENERATOR in variant.config.objective.needs for variant in variants)


def better(score: str, cell: Cell) -> int:
    """Return 1 if the variant is significantly better than the first, -1 if significantly worse, else 0."""
    if not cell.significant or cell.difference is None:
        return 0
    higher = 1 if cell.difference.mean > 0 else -1
    return -higher if lower_is_better(score) else higher
