"""A fine-tuning that was killed goes on where it was, and comes to what it would have come to."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pipeline.config.finetune import Finetune
from pipeline.config.recipe import Recipe
from pipeline.config.training import Lamb
from pipeline.finetune.trial import TrialResult, run_trial
from pipeline.finetune.trial_state import TrialCheckpoints, delete_checkpoints, resume_step
from pipeline.finetune.trials import RESULT, Trial, load_or_train
from pipeline.objectives.sequences import SequenceTask
from pipeline.tasks.glue import TASKS
from pipeline.text.vocabulary import Vocabulary
from tests.conftest import tiers
from tests.unit.finetune.test_trial import CPU, CUTTING, PLAIN, SETTINGS, config_of, prepared

DROPPING = replace(SETTINGS, hidden_dropout=0.1)


class Killed(Exception):
    """Ends a training, as a killed process would."""


class Mortal(TrialCheckpoints):
    """Keeps the state after every step, and is killed when it has kept it so often."""

    def __init__(self, folder: Path, most: int) -> None:
        super().__init__(str(folder), seconds=0.0, share=1e9)
        self.left = most

    def save(self, *given: object) -> None:
        super().save(*given)
        self.left -= 1
        if not self.left:
            raise Killed


def trained(
    config: Finetune, name: str, glue: Path, vocabulary: Vocabulary, keeper: TrialCheckpoints | None
) -> tuple[TrialResult, dict[str, torch.Tensor], list[int]]:
    """Train, and return the result, the weights, and the epochs that were reported."""
    rows, told, pooling = prepared(name, glue, vocabulary), [], config.recipe.pooling
    outputs = 1 if name == "stsb" else 2
    kind = TASKS[name].kind
    random = torch.Generator().manual_seed(0)
    module = SequenceTask(DROPPING, vocabulary.size, outputs, random, kind=kind, pooling=pooling)
    found = run_trial(
        config, TASKS[name], CUTTING, module, rows["train"], {"dev": rows["dev"]},
        seed=5, device=CPU, autocast=PLAIN, after_epoch=lambda epoch, scores: told.append(epoch), checkpoints=keeper,
    )  # fmt: skip
    return found, module.state_dict(), told


@tiers("kept", first=(4, 6), second=(1, 10))  # at the end of the first epoch, in the second; in the first, in the third
@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("cola", {"pooling": "mean", "training_rows": 57}),
        ("cola", {"pooling": "mean", "rows_per_class": 15, "contrastive_pairs": 1}),
        ("stsb", {"patience": 2, "group_lengths": True}),
    ],
)
def test_a_training_that_was_killed_comes_to_the_same(
    glue: Path,
    tiny_vocabulary: Vocabulary,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    recipe: dict[str, object],
    kept: int,
) -> None:
    monkeypatch.setattr("pipeline.finetune.trial.POINTS", 5)  # each of three steps
    config = config_of(name, **recipe, epochs=4)
    whole, weights, told = trained(config, name, glue, tiny_vocabulary, None)
    with pytest.raises(Killed):
        trained(config, name, glue, tiny_vocabulary, Mortal(tmp_path, kept))
    assert resume_step(str(tmp_path)) == kept and len(list((tmp_path / "checkpoints").iterdir())) == 1
    again, same, said = trained(config, name, glue, tiny_vocabulary, TrialCheckpoints(str(tmp_path)))
    assert vars(again) | {"seconds": 0.0} == vars(whole) | {"seconds": 0.0} and said == told
    assert all(torch.equal(same[key], value) for key, value in weights.items())


def test_a_whole_table_of_words_goes_on_too(glue: Path, tiny_vocabulary: Vocabulary, tmp_path: Path) -> None:
    lamb = Lamb(learning_rate=1e-3)
    config = replace(config_of("cola"), optimizer=lamb)
    whole, weights, _ = trained(config, "cola", glue, tiny_vocabulary, None)
    with pytest.raises(Killed):
        trained(config, "cola", glue, tiny_vocabulary, Mortal(tmp_path, 3))
    again, same, _ = trained(config, "cola", glue, tiny_vocabulary, TrialCheckpoints(str(tmp_path)))
    assert again.curve == whole.curve and all(torch.equal(same[key], value) for key, value in weights.items())


def test_a_damaged_state_does_not_count(glue: Path, tiny_vocabulary: Vocabulary, tmp_path: Path) -> None:
    config = config_of("cola")
    with pytest.raises(Killed):
        trained(config, "cola", glue, tiny_vocabulary, Mortal(tmp_path, 3))
    (weights,) = tmp_path.glob("checkpoints/*/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert resume_step(str(tmp_path)) is None
    assert trained(config, "cola", glue, tiny_vocabulary, TrialCheckpoints(str(tmp_path)))[0].steps == 8
    delete_checkpoints(str(tmp_path))
    delete_checkpoints(str(tmp_path))
    assert not (tmp_path / "checkpoints").exists()


def test_short_trials_write_no_checkpoint_and_slow_disks_get_fewer(tmp_path: Path) -> None:
    assert not TrialCheckpoints(str(tmp_path)).due()
    keeper = TrialCheckpoints(str(tmp_path), seconds=0.0, share=0.05)
    assert keeper.due()
    keeper.took = 60.0  # a twentieth of the time: twenty minutes
    assert not keeper.due()


def test_what_a_trial_kept_goes_when_its_result_is_there(tmp_path: Path) -> None:
    config = Finetune(checkpoint="c", task=("cola",), output=str(tmp_path), recipe=Recipe())
    trial = Trial(problem="cola", config=config, seed=0, name="cola-seed0-x", chosen={}, stage="select")
    left = Path(trial.folder) / "checkpoints" / "step-00000007"
    left.mkdir(parents=True)
    (left.parent.parent / RESULT).write_text('{"scores": {}}')
    assert load_or_train(trial, None, None) == {"scores": {}}  # type: ignore[arg-type]
    assert not left.parent.exists()
