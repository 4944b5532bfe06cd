"""One trial on two workers against the same on one, without a teacher and with one."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import torch

from pipeline.config.finetune import Finetune, Trials
from pipeline.errors import ConfigError
from pipeline.finetune.trial import assist_trial, run_trial
from pipeline.objectives.sequences import SequenceTask
from pipeline.tasks.glue import TASKS
from pipeline.tasks.prepared import Prepared
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.step import StepContext
from tests.ranks import Ranks
from tests.unit.finetune.test_trial import (
    CPU,
    CUTTING,
    PLAIN,
    config_of,
    module_of,
    prepared,
    with_answers,
    without_labels,
)

TASK = "stsb"
RECIPE = {"rows_per_step": 19, "rows_per_slot": 10, "dropout": None, "patience": 1, "epochs": 4}
"""60 rows: the last step of an epoch has 3 of them, one slot, so that the second worker has none."""
CASES = ("alone", "taught")


def of_case(case: str, vocabulary: Vocabulary, train: Prepared) -> tuple[SequenceTask, Prepared, pa.Table | None]:
    """Return module, training rows and rows without labels, without a teacher ("alone") or with one ("taught")."""
    module = module_of(TASK, vocabulary)
    if case == "alone":
        return module, train, None
    module.learn_from_teacher(2.0, 0.5)
    taught = with_answers(train)
    return module, taught, without_labels(taught.rows.slice(0, 17))


def worker(rank: int, folder: str, config: Finetune, vocabulary: Vocabulary, rows: dict[str, Prepared]) -> None:
    """Train each case as one of two and write down what rank 0 came to."""
    for case in CASES:
        module, train, unlabelled = of_case(case, vocabulary, rows["train"])
        if rank == 0:
            result = run_trial(
                config, TASKS[TASK], CUTTING, module, train, {"dev": rows["dev"]}, seed=5, device=CPU, autocast=PLAIN,
                world=2, unlabelled=unlabelled,
            )  # fmt: skip
            written = {"curve": result.curve, "epochs": result.epochs, "tokens": result.tokens}
            Path(folder, f"{case}.json").write_text(json.dumps(written))
            torch.save(module.state_dict(), Path(folder, case))
        else:
            compute = StepContext(device=CPU, autocast=PLAIN, seed=5, rank=1, world=2)
            assist_trial(config, TASKS[TASK], module, train, compute, unlabelled=unlabelled)


def test_two_workers_have_the_losses_of_one(
    glue: Path, tiny_vocabulary: Vocabulary, tmp_path: Path, ranks: Callable[[int], Ranks]
) -> None:
    rows, config = prepared(TASK, glue, tiny_vocabulary), config_of(TASK, **RECIPE)
    ranks(2).run(worker, str(tmp_path), config, tiny_vocabulary, rows)
    for case in CASES:
        module, train, unlabelled = of_case(case, tiny_vocabulary, rows["train"])
        alone = run_trial(
            config, TASKS[TASK], CUTTING, module, train, {"dev": rows["dev"]}, seed=5, device=CPU, autocast=PLAIN,
            unlabelled=unlabelled,
        )  # fmt: skip
        found = json.loads((tmp_path / f"{case}.json").read_text())
        assert [step for step, _ in found["curve"]] == [step for step, _ in alone.curve]
        assert [loss for _, loss in found["curve"]] == pytest.approx([loss for _, loss in alone.curve], rel=1e-4)
        assert found["tokens"] == alone.tokens and len(found["epochs"]) == len(alone.epochs)
        for name, tensor in torch.load(tmp_path / case).items():
            torch.testing.assert_close(tensor, module.state_dict()[name], rtol=1e-3, atol=1e-4, msg=name)


def test_a_worker_without_rows_is_refused() -> None:
    config = config_of(TASK, rows_per_step=16)
    shared = replace(config, trials=Trials(workers=3))
    assert shared.for_workers().recipe.rows_per_slot == 6 and config.for_workers() is config
    for workers, rows, slot in ((9, 32, 3), (2, 32, 16), (32, 32, 1)):
        fitting = replace(config_of(TASK, rows_per_step=rows), trials=Trials(workers=workers)).for_workers()
        assert fitting.recipe.rows_per_slot == slot and -(-rows // slot) >= workers, "a slot for each"
    with pytest.raises(ConfigError, match=r"^trials.workers \(17\) must be at most recipe.rows_per_step \(16\): "):
        replace(config, trials=Trials(workers=17)).for_workers()
    with pytest.raises(ConfigError) as refused:
        replace(shared, recipe=config_of(TASK, rows_per_step=16, rows_per_slot=8).recipe).for_workers()
    assert str(refused.value) == (
        "recipe.rows_per_slot (8) must be at most 6 with trials.workers (3) and recipe.rows_per_step (16): "
        "otherwise a worker gets no rows"
    )
