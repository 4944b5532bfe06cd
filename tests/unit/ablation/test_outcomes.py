"""Scores of runs, computed once and stored."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.ablation.command import read_ablate, read_speedrun
from pipeline.ablation.outcomes import BITS, LOSS, Outcome, outcome_of, require_budget
from pipeline.ablation.variants import variants_of
from pipeline.config.ablate import Ablate
from pipeline.config.finetune import Finetune
from pipeline.config.jobs import Pretrain, with_words_rate
from pipeline.config.predict import Score
from pipeline.errors import ConfigError
from pipeline.files import storage
from pipeline.finetune.table import Reported
from pipeline.reporting import no_op
from pipeline.saved.naming import with_name
from pipeline.saved.run import SUMMARY as SUMMARY_FILE
from pipeline.saved.run import run_folder, write_run
from pipeline.text.training import train_vocabulary
from pipeline.train.run_identity import save_run_vocabulary
from pipeline.workflows.ablate import _run_all
from pipeline.workflows.speedrun import speedrun
from tests.conftest import text_of

SUMMARY: dict[str, Any] = {
    "name": "run-a",
    "steps": 10,
    "tokens": 1_000,
    "training_seconds": 60.0,
    "tokens_per_second": 16.0,
    "epochs": 1,
    "mlflow_run_id": "0a1b",
    "export": "/runs/run-a/export",
    "checkpoint": "/runs/run-a/checkpoints/step-00000010",
    "baselines": {"baseline/unigram_mlm_loss": 7.0},
    "heldout_after": {"heldout/mlm_loss": 6.7, "heldout/bits_per_byte": 3.0, "heldout/mlm_accuracy": 0.1},
}


class Scorers:
    """Records what it is asked for; each answer differs from the one before."""

    def __init__(self, chosen: str = "") -> None:
        """`chosen`: end of the names of a task's scores."""
        self.asked: list[Score | Finetune] = []
        self.chosen = chosen

    def score(self, wanted: Score, report: object) -> dict[str, float]:
        self.asked.append(wanted)
        return {"pll": 0.5 + len(self.asked) / 100, "pll_word_l2r": 0.6}

    def tune(self, wanted: Finetune, report: object) -> list[Reported]:
        self.asked.append(wanted)
        rows = [("dev accuracy", (0.8, 0.9)), ("dev f1", (0.1, 0.2))]
        return [
            Reported(task="sst2", name=f"{name}{self.chosen}", values=values, baseline=None, collapsed=0, setting="")
            for name, values in rows
        ]


def config(tmp_path: Path, *words: str, name: str = "dropout") -> Ablate:
    return read_ablate([name, "--tokens", "1M", "--output", str(tmp_path), *words], "about")


def outcome(scorers: Scorers, config: Ablate, number: int = 0, **changed: Any) -> Outcome:
    run = variants_of(config)[number].run(3)
    return outcome_of(config, run, SUMMARY | changed, scorers.score, scorers.tune, lambda line: None)


def test_scores_of_a_run(tmp_path: Path) -> None:
    scorers = Scorers()
    asked = config(
        tmp_path, "--blimp", "b", "--task", "sst2", "--data", "d", "--tuning-seeds", "2", "--recipe.epochs", "1"
    )
    found = outcome(scorers, asked)
    assert found.scores == {
        LOSS: 6.7,
        BITS: 3.0,
        "BLiMP PLL": 0.51,
        "BLiMP PLL-word-l2r": 0.6,
        "sst2 dev accuracy": pytest.approx(0.85),
    }
    assert (found.seed, found.steps, found.tokens, found.mlflow_run_id) == (3, 10, 1_000, "0a1b")
    assert found.vocabulary is None
    write_run(run_folder(variants_of(asked)[0].run(3)), {"vocabulary.fingerprint": "v"}, 10, "0a1b", "c")
    assert outcome(scorers, asked).vocabulary == "v"
    score, tuning = scorers.asked
    assert isinstance(score, Score) and (score.checkpoint, score.pairs) == (SUMMARY["export"], "even")
    assert isinstance(tuning, Finetune) and (tuning.checkpoint, tuning.seeds, tuning.recipe.epochs) == (
        SUMMARY["export"],
        2,
        1,
    )


@pytest.mark.parametrize(
    ("settings", "letters"),
    [
        ({"lowercase": True}, (True, True)),
        ({"lowercase": False}, (False, False)),
        ({"lowercase": True, "strip_accents": False}, (True, False)),
        ({"kind": "byte-bpe", "lowercase": False}, (False, False)),
        ({"kind": "unigram", "lowercase": True}, (True, True)),
    ],
)
def test_an_outcome_says_what_the_vocabulary_of_the_run_does_to_letters(
    settings: dict[str, Any], letters: tuple[bool, bool], tmp_path: Path
) -> None:
    asked = config(tmp_path)
    vocabulary = train_vocabulary(map(text_of, range(30)), size=300, **settings)
    save_run_vocabulary(run_folder(variants_of(asked)[0].run(3)), vocabulary, 32)
    assert [outcome(Scorers(), asked, number).letters for number in (0, 1)] == [letters, None]


def test_stored_scores_are_of_this_run_and_these_settings(tmp_path: Path) -> None:
    scorers = Scorers()
    words = ("--blimp", "b", "--task", "sst2", "--data", "d")
    first = outcome(scorers, config(tmp_path, *words))
    assert outcome(scorers, config(tmp_path, *words)) == first and len(scorers.asked) == 2
    outcome(scorers, config(tmp_path, *words, "--blimp-pairs", "odd"))
    assert len(scorers.asked) == 3
    outcome(scorers, config(tmp_path, *words, "--recipe.epochs", "9"))
    assert len(scorers.asked) == 4
    outcome(scorers, config(tmp_path, "--blimp", "other pairs", *words[2:]))
    assert len(scorers.asked) == 5
    outcome(scorers, config(tmp_path, *words), mlflow_run_id="another run of the same name")
    assert len(scorers.asked) == 7


@pytest.mark.parametrize(("schedule", "times"), [("linear-decay", 1), ("constant-rate", 2)])
def test_a_run_that_was_extended_is_fine_tuned_again(schedule: str, times: int, tmp_path: Path) -> None:
    """Only runs of some schedules can be extended."""
    scorers, asked = Scorers(), config(tmp_path, f"schedule:{schedule}", "--task", "sst2", "--data", "d")
    for steps in (10, 20, 10):
        outcome(scorers, asked, steps=steps)
    assert len(scorers.asked) == times


def test_a_score_has_the_same_name_where_a_seed_stopped_early(tmp_path: Path) -> None:
    asked, stopped = config(tmp_path, "--task", "sst2", "--data", "d"), Scorers(" (best epoch on dev)")
    for _ in range(2):  # the second time, the score is read
        assert list(outcome(stopped, asked).scores) == [LOSS, BITS, "sst2 dev accuracy"]
    assert len(stopped.asked) == 1


def with_summary(run: Pretrain, steps: int) -> None:
    storage.write_json(storage.join(run_folder(run), SUMMARY_FILE), {"steps": steps})


def test_a_finished_run_of_a_larger_budget_is_refused(tmp_path: Path) -> None:
    """A run that may be extended has the same name for every budget."""
    asked = config(tmp_path, "--preset", "encoder-xs")
    variants = [replace(each, steps=dict.fromkeys(asked.all_seeds, 2_000)) for each in variants_of(asked)]
    run = variants[1].run(1)
    for steps in (1_000, 2_000):
        with_summary(run, steps)
        require_budget([run])
    with_summary(run, 3_000)
    with pytest.raises(
        ConfigError,
        match=rf"^output \({tmp_path}\): run {run.name} has 3,000 steps there, and this command's has 2,000: give "
        "another --output$",
    ):
        _run_all(asked, variants, "", no_op)


def test_a_speedrun_refuses_a_larger_budget_too_where_the_name_lacks_it(tmp_path: Path) -> None:
    words = ["encoder-xs", "--text", "t", "--output", str(tmp_path)]
    for budget, message in (
        (["--steps", "2000"], "has 3,000 steps there"),
        (["--epochs", "2"], r"text \(.*t\) does not"),
    ):
        asked = read_speedrun([*words, *budget], "")
        with_summary(with_name(with_words_rate(asked.runs[2]), asked.preset), 3_000)
        with pytest.raises(ConfigError, match=message):
            speedrun(asked, no_op)


def test_a_run_near_the_unigrams_is_not_trained(tmp_path: Path) -> None:
    losses = {6.69: True, 6.71: False, 7.2: False}
    found = {
        loss: outcome(Scorers(), config(tmp_path), heldout_after={"heldout/mlm_loss": loss}).trained for loss in losses
    }
    assert found == losses
    assert outcome(Scorers(), config(tmp_path), baselines={}).trained


def test_electra_s_discriminator_has_scores_of_tasks_only(tmp_path: Path) -> None:
    scorers = Scorers()
    asked = config(tmp_path, "--blimp", "b", "--task", "sst2", "--data", "d", name="objective")
    assert list(outcome(scorers, asked, number=1).scores) == ["sst2 dev accuracy"]
