"""Contrastive fine-tuning compares the texts of a whole step, however the step is split into slots and workers."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from pipeline.config.finetune import Finetune, Trials
from pipeline.config.model import Model
from pipeline.config.similarity import Similarity
from pipeline.finetune.trial import TrialResult, assist_trial, run_trial
from pipeline.objectives.matching import MatchingTask
from pipeline.tasks import matching
from pipeline.tasks.matches import matching_task
from pipeline.tasks.prepared import Prepared
from pipeline.tasks.schema import MATCHES
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.step import StepContext
from tests.ranks import Ranks
from tests.unit.finetune.test_trial import CPU, CUTTING, PLAIN, SETTINGS, config_of

WORDS = ("kar", "lost", "kand", "mir", "nel", "sup")
DROPS = replace(SETTINGS, hidden_dropout=0.1)
STEP = {"rows_per_step": 19, "epochs": 2}
"""60 rows: the last step of an epoch has 3 of them."""


def matches() -> pa.Table:
    """60 rows of a text and its match, with 0 to 2 negative texts."""
    draw = np.random.default_rng(1)
    texts = [" ".join(draw.choice(WORDS, draw.integers(2, 9))) for _ in range(240)]
    rows = [
        {"id": str(row), "first": texts[row], "second": texts[60 + row], "label": None,
         "negatives": texts[120 + 2 * row : 120 + 2 * row + row % 3]}
        for row in range(60)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=MATCHES)


TASK = matching_task("own", matches())


def module_of(config: Finetune, vocabulary: Vocabulary, model: Model) -> MatchingTask:
    module = MatchingTask(model, vocabulary.size, torch.Generator().manual_seed(0))
    module.learn(config.similarity, split=config.splits_steps)
    return module


def settings(dimensions: tuple[int, ...] = (), **recipe: int) -> Finetune:
    similarity = Similarity(loss="contrastive", dimensions=dimensions)
    return replace(config_of("stsb", **STEP, **recipe), similarity=similarity)


def trained(config: Finetune, module: MatchingTask, rows: Prepared, world: int = 1) -> TrialResult:
    return run_trial(
        config, TASK, CUTTING, module, rows, {"dev": rows}, seed=5, device=CPU, autocast=PLAIN, world=world
    )


@pytest.mark.parametrize("dimensions", [(), (4, 16)])
def test_slots_have_the_losses_of_the_whole_step(dimensions: tuple[int, ...], tiny_vocabulary: Vocabulary) -> None:
    rows = matching.prepare(TASK, matches(), tiny_vocabulary, CUTTING)
    whole, split = settings(dimensions), settings(dimensions, rows_per_slot=4)
    modules = [module_of(config, tiny_vocabulary, SETTINGS) for config in (whole, split)]
    assert [module.two_passes for module in modules] == [False, True]
    results = [trained(config, module, rows) for config, module in zip((whole, split), modules)]
    curves = [[loss for _, loss in result.curve] for result in results]
    assert len(curves[0]) == 8 and curves[0][0] > curves[0][-1] and curves[1] == pytest.approx(curves[0], rel=1e-5)
    for name, tensor in modules[0].state_dict().items():
        torch.testing.assert_close(modules[1].state_dict()[name], tensor, rtol=1e-3, atol=1e-5, msg=name)


def worker(rank: int, config: Finetune, vocabulary: Vocabulary, rows: Prepared) -> list[tuple[int, float]]:
    """Train as one of two; rank 0 returns the curve."""
    module = module_of(config, vocabulary, DROPS)
    if rank == 0:
        return trained(config, module, rows, world=2).curve
    assist_trial(config, TASK, module, rows, StepContext(device=CPU, autocast=PLAIN, seed=5, rank=1, world=2))
    return []


def test_two_workers_have_the_losses_of_one(tiny_vocabulary: Vocabulary, ranks: Callable[[int], Ranks]) -> None:
    rows, alone = matching.prepare(TASK, matches(), tiny_vocabulary, CUTTING), settings(rows_per_slot=10)
    config = replace(alone, trials=Trials(workers=2)).for_workers()
    found, _ = ranks(2).run(worker, config, tiny_vocabulary, rows)
    wanted = trained(alone, module_of(alone, tiny_vocabulary, DROPS), rows).curve
    assert [step for step, _ in found] == [step for step, _ in wanted]
    assert [loss for _, loss in found] == pytest.approx([loss for _, loss in wanted], rel=1e-5)
