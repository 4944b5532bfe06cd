"""Outcomes of runs: held-out loss, BLiMP and fine-tunings, each computed once and stored."""

import hashlib
import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.config.ablate import Ablate
from pipeline.config.finetune import Finetune, Trials
from pipeline.config.flat import flatten
from pipeline.config.jobs import Pretrain
from pipeline.config.measurements import Selection
from pipeline.config.needs import GENERATOR
from pipeline.config.placement import ModelPlacement, TrialPlacement
from pipeline.config.predict import Score
from pipeline.errors import ConfigError
from pipeline.files import storage
from pipeline.finetune.table import Reported
from pipeline.objectives.masked import HELDOUT_LOSS, UNIGRAM_LOSS
from pipeline.reporting import Report
from pipeline.saved.naming import grows
from pipeline.saved.run import VOCABULARY, read_run, read_summary, run_folder
from pipeline.tasks.units import is_share
from pipeline.text.vocabulary_loading import load_vocabulary

LOSS, BITS = "held-out loss", "bits per byte"
BLIMP = {"pll": "BLiMP PLL", "pll_word_l2r": "BLiMP PLL-word-l2r"}
"""Scorer, as `score` names it -> name in the result table."""
PLATEAU_NATS = 0.3
"""A run counts as untrained if its held-out masked-token loss is less than PLATEAU_NATS below a unigram model's loss.

Such a run has learnt little more than token frequencies.
"""
FOLDER = "ablations"
"""Folder of results, inside the output folder."""
Scoring = Callable[[Score, Report], dict[str, float]]
Tuning = Callable[[Finetune, Report], Sequence[Reported]]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One run of a variant, and its scores."""

    run: str
    seed: int
    steps: int
    tokens: int
    seconds: float
    tokens_per_second: float
    epochs: int
    trained: bool
    """Whether the held-out loss is at least PLATEAU_NATS below a unigram model's loss; True if a loss is missing."""
    mlflow_run_id: str
    vocabulary: str | None = None
    """Fingerprint of the run's vocabulary; None if it is not known."""
    letters: tuple[bool, bool] | None = None
    """Whether the run's vocabulary lower-cases text, and whether it removes accents; None if it is not known."""
    scores: dict[str, float] = field(default_factory=dict)
    """Name of a score -> value; an accuracy is between 0 and 1."""


def require_budget(runs: Iterable[Pretrain]) -> None:
    """Raise ConfigError if a finished run has more steps than asked for now, since such a run has another budget.

    A run that may be extended has no steps in its name, so commands with other budgets name the same run.
    """
    for run in runs:
        summary = None if run.steps_from else read_summary(run_folder(run))
        if summary is not None and summary["steps"] > run.steps:
            raise ConfigError(
                f"output ({run.output}): run {run.name} has {summary['steps']:,} steps there, and this command's has "
                f"{run.steps:,}: give another --output"
            )


def lower_is_better(score: str) -> bool:
    """Return whether a lower value of a score is better."""
    return score in (LOSS, BITS) or not is_share(score)


def outcome_of(
    config: Ablate, run: Pretrain, summary: dict[str, Any], scoring: Scoring, tuning: Tuning, report: Report
) -> Outcome:
    """Return a finished run's outcome. Stored scores of this run are not computed again."""
    after, baseline = summary["heldout_after"], summary["baselines"].get(UNIGRAM_LOSS)
    loss, recorded = after.get(HELDOUT_LOSS), read_run(run_folder(run))
    fills_blanks = GENERATOR not in run.objective.needs  # a generator's scores are not those of the model
    scores = heldout_scores(after) if fills_blanks else {}
    if config.blimp is not None and fills_blanks:
        scores |= blimp_scores(config, config.blimp, config.blimp_pairs, summary, scoring, report)
    for task in config.task:
        scores |= _tuned(config, task, run, summary, tuning, report)
    return Outcome(
        run=str(run.name),
        seed=run.seed,
        steps=summary["steps"],
        tokens=summary["tokens"],
        seconds=summary["training_seconds"],
        tokens_per_second=summary["tokens_per_second"],
        epochs=summary["epochs"],
        trained=baseline is None or loss is None or baseline - loss >= PLATEAU_NATS,
        mlflow_run_id=summary["mlflow_run_id"],
        vocabulary=recorded["identity"].get("vocabulary.fingerprint") if recorded else None,
        letters=_letters_of(storage.join(run_folder(run), VOCABULARY)),
        scores=scores,
    )


def _letters_of(location: str) -> tuple[bool, bool] | None:
    """Return what a run's vocabulary does to the letters of a text, as in Outcome; None if its files are not whole."""
    if storage.damage(location) is not None:
        return None
    vocabulary = load_vocabulary(location, None)
    strips = vocabulary.lowercase if vocabulary.strip_accents is None else vocabulary.strip_accents
    return vocabulary.lowercase, strips


def heldout_scores(after: dict[str, float]) -> dict[str, float]:
    """Return the held-out scores of a summary: nats per masked token, and bits per byte of masked words."""
    names = {HELDOUT_LOSS: LOSS, "heldout/bits_per_byte": BITS}
    return {name: after[metric] for metric, name in names.items() if metric in after}


def blimp_scores(
    run: Pretrain, blimp: str, pairs: Selection, summary: dict[str, Any], scoring: Scoring, report: Report
) -> dict[str, float]:
    """Return a finished run's accuracies on `pairs` of BLiMP, by the names of BLIMP; `run` says where to compute.

    Stored accuracies of this run are not computed again.
    """
    wanted = Score(
        checkpoint=summary["export"],
        blimp=blimp,
        pairs=pairs,
        placement=ModelPlacement(
            device=run.placement.device, threads=run.placement.threads, address=run.placement.address
        ),
    )

    def compute() -> dict[str, float]:
        report(f"BLiMP of {summary['name']}")
        return scoring(wanted, lambda line: None)

    # The folder too: it may hold other minimal pairs than BLiMP's.
    key = {"pairs": pairs, "checkpoint": summary["checkpoint"], "folder": blimp}
    accuracies = _stored(run.output, summary, f"blimp-{pairs}", key, compute)
    return {name: accuracies[scorer] for scorer, name in BLIMP.items() if scorer in accuracies}


def _tuned(
    config: Ablate, task: str, run: Pretrain, summary: dict[str, Any], tuning: Tuning, report: Report
) -> dict[str, float]:
    """Return the mean score of the run's fine-tunings on a task, by the task's first metric."""
    # Set here, so that scores of an earlier version without dropout are not compared with scores with dropout.
    recipe = config.recipe.for_dropout(run.model)
    wanted = Finetune(
        checkpoint=summary["export"],
        task=(task,),
        data=config.data,
        seeds=config.tuning_seeds,
        recipe=recipe,
        output=config.output,
        mlflow_uri=config.tracking.uri,
        trials=Trials(),
        placement=TrialPlacement(
            device=config.placement.device, threads=config.placement.threads, address=config.placement.address
        ),
    )

    def compute() -> dict[str, float]:
        report(f"fine-tuning {summary['name']} on {task}, {config.tuning_seeds} seeds")
        first = tuning(wanted, lambda line: None)[0]
        return {f"{task} {first.name}": statistics.fmean(first.values)}

    key = {"seeds": config.tuning_seeds, "recipe": flatten(recipe), "task": task, "data": config.data}
    key |= {"steps": summary["steps"]} if grows(run) else {}
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:8]
    scores = _stored(config.output, summary, f"{task}-{digest}", key, compute)
    # Without " (best epoch on dev)", which may be true of some seeds only: all seeds have the same names of scores.
    return {name.partition(" (")[0]: value for name, value in scores.items()}


def _stored(
    output: str, summary: dict[str, Any], name: str, key: dict[str, Any], compute: Callable[[], dict[str, float]]
) -> dict[str, float]:
    """Return a run's scores: the stored scores if their key is `key`; otherwise compute and store the scores."""
    location = storage.join(output, FOLDER, "scores", summary["name"], f"{name}.json")
    key = key | {"mlflow_run_id": summary["mlflow_run_id"]}
    stored = storage.read_object(location)
    known = (stored or {}).get("key")
    if stored is not None and known and key | known == key:  # keys of earlier versions lack the folder of the pairs
        return stored["scores"]
    scores = compute()
    storage.write_json(location, {"key": key, "scores": scores})
    return scores
