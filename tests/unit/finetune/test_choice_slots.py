"""Trainings on multiple choice have the same losses however their rows are split into slots and batches."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from pipeline.batch import collate_labelled
from pipeline.config.cutting import Truncation
from pipeline.finetune.trial import batches, run_trial
from pipeline.objectives.choices import ChoiceTask
from pipeline.objectives.logits import compute_logits
from pipeline.tasks import choices
from pipeline.tasks.choice_tables import choice_task
from pipeline.tasks.prepared import Prepared
from pipeline.tasks.schema import CHOICES
from pipeline.text.vocabulary import Vocabulary
from tests.unit.finetune.test_trial import CPU, PLAIN, SETTINGS, config_of

WORDS = ("kar", "lost", "kand", "mir", "nel")
TASK, CUTTING = choice_task("own"), Truncation(maximum_length=16, stride=4)
STEP = {"rows_per_step": 13, "epochs": 4, "group_lengths": True}
"""40 rows: one step of an epoch has a single row."""


def rows_of(vocabulary: Vocabulary) -> Prepared:
    """40 contexts with two to five choices each; the right one begins with the last word of the context."""
    draw = np.random.default_rng(1)
    rows = []
    for number in range(40):
        words = [str(word) for word in draw.permutation(WORDS)[: 2 + number % 4]]
        right = int(draw.integers(len(words)))
        context = [*draw.choice(WORDS, draw.integers(8)), words[right]]
        row = {"id": str(number), "first": " ".join(context), "second": None, "label": str(right)}
        rows.append(row | {"choices": [" ".join([word] * int(draw.integers(1, 4))) for word in words]})
    return choices.prepare(TASK, pa.Table.from_pylist(rows, schema=CHOICES), vocabulary, CUTTING)


def module_of(vocabulary: Vocabulary) -> ChoiceTask:
    return ChoiceTask(SETTINGS, vocabulary.size, torch.Generator().manual_seed(0))


def test_slots_have_the_losses_of_the_whole_step(tiny_vocabulary: Vocabulary) -> None:
    rows, modules = rows_of(tiny_vocabulary), [module_of(tiny_vocabulary) for _ in range(2)]
    results = [
        run_trial(
            config_of("cola", **STEP, **slot), TASK, CUTTING, module, rows, {"dev": rows}, seed=5, device=CPU,
            autocast=PLAIN,
        )
        for slot, module in zip(({}, {"rows_per_slot": 4}), modules)
    ]  # fmt: skip
    curves = [[loss for _, loss in result.curve] for result in results]
    assert len(curves[0]) == 16 and curves[1] == pytest.approx(curves[0], rel=1e-4)
    assert results[0].scores == results[1].scores
    # The head's bias adds the same to all choices of a row: its gradient is 0 but for rounding, which Adam makes large.
    weights = {name: tensor for name, tensor in modules[0].state_dict().items() if name != "choice_head.bias"}
    for name, tensor in weights.items():
        torch.testing.assert_close(modules[1].state_dict()[name], tensor, rtol=1e-3, atol=1e-4, msg=name)


def test_all_choices_of_a_row_are_in_one_slot(tiny_vocabulary: Vocabulary) -> None:
    rows = rows_of(tiny_vocabulary).rows
    slots = [
        batch for step in batches(rows, config_of("cola", **STEP, rows_per_slot=4).recipe, 5, 0) for _, batch in step
    ]
    assert sum(len(batch.passages) for batch in slots) == 40 and max(len(batch.passages) for batch in slots) == 4
    assert all(int(batch.passages.sum()) == batch.sequences for batch in slots)
    assert sum(batch.sequences for batch in slots) == 140


def test_the_loss_is_that_of_each_row_alone(tiny_vocabulary: Vocabulary) -> None:
    rows, module = rows_of(tiny_vocabulary).rows, module_of(tiny_vocabulary).eval()
    with torch.inference_mode():
        total, count = module(collate_labelled(rows))["task"]
        alone = [module(collate_labelled(rows.slice(row, 1)))["task"] for row in range(40)]
    assert count == 40 and all(one == 1 for _, one in alone)
    assert float(total) == pytest.approx(sum(float(loss) for loss, _ in alone), rel=1e-5)


def test_scores_do_not_depend_on_the_batch(tiny_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared, module = rows_of(tiny_vocabulary), module_of(tiny_vocabulary).eval()
    found = []
    for most in (1, 7, 64):
        monkeypatch.setattr("pipeline.objectives.logits.ROWS_AT_ONCE", most)
        logits = compute_logits(module, prepared.rows, CPU, PLAIN)
        found.append(choices.answers(TASK, prepared, logits, CUTTING))
    for scores in found[:2]:
        for row, expected, texts in zip(scores, found[2], prepared.items["choices"].to_pylist(), strict=True):
            np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-6)
            assert len(row) == len(texts) and np.isfinite(row).all()
