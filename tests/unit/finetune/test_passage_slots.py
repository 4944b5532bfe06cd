"""Trainings on whole texts have the same losses however their rows are split into slots, workers and batches."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from pipeline.batch import PASSAGE_LENGTHS, TEACHER, collate_labelled
from pipeline.config.cutting import PassagePooling, Truncation
from pipeline.config.finetune import Finetune, Trials
from pipeline.config.model import Model
from pipeline.finetune.trial import TrialResult, assist_trial, run_trial
from pipeline.finetune.trial_rows import batches
from pipeline.objectives.logits import compute_logits
from pipeline.objectives.sequences import SequenceTask
from pipeline.tasks import sequences
from pipeline.tasks.prepared import Prepared
from pipeline.tasks.schema import TEXTS
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.step import StepContext
from tests.ranks import Ranks
from tests.unit.finetune.test_trial import CPU, PLAIN, SETTINGS, config_of

WORDS = ("kar", "lost", "kand", "mir", "nel", "sup")
DROPS = replace(SETTINGS, hidden_dropout=0.1)
TASK = Task(name="own", kind="classification", labels=("no", "yes"), metrics=("accuracy",))
STEP = {"rows_per_step": 13, "epochs": 2, "group_lengths": True}
"""40 rows: one step of an epoch has a single row."""
POOLINGS: tuple[PassagePooling, ...] = ("max", "attention")


def cutting_of(pooling: PassagePooling) -> Truncation:
    return Truncation(maximum_length=12, stride=3, passages=True, passage_pooling=pooling, maximum_passages=6)


def texts_of_many_lengths() -> pa.Table:
    """40 texts of 1 to 60 words; the label says whether a rare word is among them."""
    draw = np.random.default_rng(1)
    lengths = draw.integers(1, 60, 40)
    rows = [[str(word) for word in draw.choice(WORDS[:5], length)] for length in lengths]
    for row in rows[::2]:
        row[draw.integers(len(row))] = WORDS[5]
    return pa.Table.from_pylist(
        [
            {"id": str(n), "first": " ".join(row), "second": None, "label": ("yes", "no")[n % 2]}
            for n, row in enumerate(rows)
        ],
        schema=TEXTS,
    )


def rows_of(pooling: PassagePooling, vocabulary: Vocabulary) -> Prepared:
    """Rows with made-up logits of a teacher."""
    prepared = sequences.prepare(TASK, texts_of_many_lengths(), vocabulary, cutting_of(pooling))
    logits = np.random.default_rng(3).normal(size=(prepared.rows.num_rows, 2)).tolist()
    return replace(prepared, rows=prepared.rows.append_column(TEACHER, pa.array(logits, pa.list_(pa.float32()))))


def module_of(pooling: PassagePooling, vocabulary: Vocabulary, model: Model = SETTINGS) -> SequenceTask:
    generator = torch.Generator().manual_seed(0)
    module = SequenceTask(model, vocabulary.size, 2, generator)
    module.pool_passages(pooling, generator)
    module.learn_from_teacher(2.0, 0.5)
    return module


def trained(
    config: Finetune, pooling: PassagePooling, module: SequenceTask, rows: Prepared, world: int = 1
) -> TrialResult:
    return run_trial(
        config, TASK, cutting_of(pooling), module, rows, {"dev": rows}, seed=5, device=CPU, autocast=PLAIN, world=world
    )


@pytest.mark.parametrize("pooling", POOLINGS)
def test_slots_have_the_losses_of_the_whole_step(pooling: PassagePooling, tiny_vocabulary: Vocabulary) -> None:
    rows = rows_of(pooling, tiny_vocabulary)
    modules = [module_of(pooling, tiny_vocabulary) for _ in range(2)]
    configs = [config_of("cola", **STEP), config_of("cola", **STEP, rows_per_slot=4)]
    results = [trained(config, pooling, module, rows) for config, module in zip(configs, modules)]
    curves = [[loss for _, loss in result.curve] for result in results]
    assert len(curves[0]) == 8 and curves[1] == pytest.approx(curves[0], rel=1e-5)
    assert results[0].rows == 40 and results[0].scores == results[1].scores
    # A bias adds the same to all scores of a text: its gradient is 0 but for rounding, which Adam makes large.
    weights = {name: tensor for name, tensor in modules[0].state_dict().items() if name != "passage_attention.bias"}
    for name, tensor in weights.items():
        torch.testing.assert_close(modules[1].state_dict()[name], tensor, rtol=1e-3, atol=1e-5, msg=name)


def test_a_text_stays_in_one_slot_and_counts_with_all_its_tokens(tiny_vocabulary: Vocabulary) -> None:
    rows = rows_of("max", tiny_vocabulary).rows
    recipe = config_of("cola", **STEP, rows_per_slot=4).recipe
    counts = {row: len(lengths) for row, lengths in zip(rows["row"].to_pylist(), rows[PASSAGE_LENGTHS].to_pylist())}
    assert set(counts.values()) == {1, 2, 3, 4, 5, 6}
    steps = [[batch for _, batch in slots] for slots in batches(rows, recipe, 5, 0)]
    assert sum(len(batch.passages) for slots in steps for batch in slots) == 40
    for batch in (batch for slots in steps for batch in slots):
        assert int(batch.passages.sum()) == batch.sequences and len(batch.label_N) == len(batch.passages) <= 4
    # Rows of similar length are in one step, by the tokens of all passages.
    tokens = sorted(sum(batch.tokens for batch in slots) / sum(len(b.passages) for b in slots) for slots in steps)
    assert tokens[0] < 0.5 * tokens[-1]
    lengths = np.sort(rows["ids"].combine_chunks().value_lengths().to_numpy())
    assert lengths[0] < 12 < lengths[-1] == 6 * 12


@pytest.mark.parametrize("pooling", POOLINGS)
def test_evaluation_in_small_batches_gives_the_logits_of_one(
    pooling: PassagePooling, tiny_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, module = rows_of(pooling, tiny_vocabulary).rows, module_of(pooling, tiny_vocabulary).eval()
    with torch.inference_mode():
        whole = module.logits(collate_labelled(rows)).numpy()
    for most in (1, 7, 64):
        monkeypatch.setattr("pipeline.objectives.logits.ROWS_AT_ONCE", most)
        sizes: list[int] = []
        found = compute_logits(module, rows, CPU, PLAIN, sizes.append)
        np.testing.assert_allclose(np.stack(list(found)), whole, rtol=1e-5, atol=1e-6)
        assert sum(sizes) == 40 and max(sizes) <= most
    assert len(sizes) == 3, "64 passages at a time, not 64 rows"


def worker(rank: int, config: Finetune, vocabulary: Vocabulary, rows: Prepared) -> list[tuple[int, float]]:
    """Train as one of two; rank 0 returns the curve."""
    module = module_of("attention", vocabulary, DROPS)
    if rank == 0:
        return trained(config, "attention", module, rows, world=2).curve
    assist_trial(config, TASK, module, rows, StepContext(device=CPU, autocast=PLAIN, seed=5, rank=1, world=2))
    return []


def test_two_workers_have_the_losses_of_one(tiny_vocabulary: Vocabulary, ranks: Callable[[int], Ranks]) -> None:
    rows, alone = rows_of("attention", tiny_vocabulary), config_of("cola", **STEP, rows_per_slot=7)
    config = replace(alone, trials=Trials(workers=2)).for_workers()
    found, _ = ranks(2).run(worker, config, tiny_vocabulary, rows)
    wanted = trained(alone, "attention", module_of("attention", tiny_vocabulary, DROPS), rows).curve
    assert [step for step, _ in found] == [step for step, _ in wanted]
    assert [loss for _, loss in found] == pytest.approx([loss for _, loss in wanted], rel=1e-5)
