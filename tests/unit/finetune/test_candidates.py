"""Rows of several candidates of a query: who is in which row, and the losses of the rows by hand."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.nn import functional as F

from pipeline.batch import TEACHER, Batch, collate_labelled
from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune
from pipeline.config.ranking import Loss, Ranking
from pipeline.config.recipe import Recipe
from pipeline.config.training import AdamW
from pipeline.errors import ConfigError, DataError
from pipeline.finetune.candidates import grouped
from pipeline.finetune.trial import train_on_slots
from pipeline.finetune.trial_rows import batches, sample_groups
from pipeline.objectives.logits import compute_logits
from pipeline.objectives.ranking import RankingTask
from pipeline.optim.build import build_optimizer
from pipeline.tasks import ranking
from pipeline.tasks.schema import TEXTS
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.step import StepContext
from tests.unit.finetune.test_trial import CPU, PLAIN, SETTINGS

TASK = Task(name="own", kind="ranking", metrics=("map", "mrr", "ndcg@10"))
LABELS = {"a": [1, 0, 0, 0, 0, 0], "b": [1, 2, 0], "only right": [1, 1], "only wrong": [0, 0, 0], "c": [0, 1]}
"""Query -> labels of its candidates."""


@pytest.fixture
def rows(tiny_vocabulary: Vocabulary) -> pa.Table:
    words = sorted(word for word in tiny_vocabulary.tokens if word.isalpha() and len(word) > 2)
    random, items = np.random.default_rng(0), []
    for query, labels in LABELS.items():
        for number, label in enumerate(labels):
            text = " ".join(random.choice(words, random.integers(2, 9)))
            items.append({"id": str(number), "first": query, "second": text, "label": str(label)})
    table = pa.Table.from_pylist(items, schema=TEXTS)
    prepared = ranking.prepare(TASK, table, tiny_vocabulary, Truncation(maximum_length=24, stride=4)).rows
    outputs = pa.array(random.normal(size=(prepared.num_rows, 1)).tolist(), pa.list_(pa.float32()))
    return prepared.append_column(TEACHER, outputs)


def candidates(row: dict) -> list[tuple[int, ...]]:
    """The ids of each candidate of a row."""
    return list(map(tuple, np.split(row["ids"], np.cumsum(row["passage_lengths"])[:-1])))


def test_every_candidate_is_in_a_row_behind_a_relevant_one(rows: pa.Table) -> None:
    label_of = {tuple(row["ids"]): row["label"] for row in rows.to_pylist()}
    first_of = {tuple(row["ids"]): row["first_length"] for row in rows.to_pylist()}
    found = grouped(rows, 3, seed=0).to_pylist()
    # a: 5 wrong in rows of 2; b: 2 right; c: 1 row. Queries with only right or only wrong candidates have no row.
    assert len(found) == 3 + 2 + 1
    seen = Counter(ids for row in found for ids in candidates(row))
    for row in found:
        assert [label_of[ids] > 0 for ids in candidates(row)] == [True] + [False] * (len(row["passage_lengths"]) - 1)
        assert row["first_lengths"] == [first_of[ids] for ids in candidates(row)]
    assert len(seen) == 6 + 3 + 2
    assert sorted(seen[tuple(row["ids"])] for row in rows.to_pylist()[:6]) == [1, 1, 1, 1, 2, 3]
    assert grouped(rows, 3, seed=0) == grouped(rows, 3, seed=0) != grouped(rows, 3, seed=1)
    assert {len(row["passage_lengths"]) for row in grouped(rows, 8, seed=0).to_pylist()} == {6, 2}


def test_a_sample_has_whole_queries(rows: pa.Table) -> None:
    sample = sample_groups(rows, "query", 10, seed=1)
    counts = Counter(sample["query"].to_pylist())
    assert 0 < sample.num_rows <= 10 and counts == {
        query: Counter(rows["query"].to_pylist())[query] for query in counts
    }
    assert sample_groups(rows, "query", 1, seed=0).num_rows > 0 and sample_groups(rows, "query", 99, seed=0) is rows


def test_a_sample_without_anything_to_rank_is_one_line(rows: pa.Table) -> None:
    wrong = rows.filter(pa.array(np.array(rows["label"].to_pylist()) == 0))
    with pytest.raises(DataError, match="no query of the sampled training rows has both a relevant candidate and"):
        grouped(wrong, 3, seed=0)


def made(vocabulary: Vocabulary, loss: Loss) -> RankingTask:
    module = RankingTask(SETTINGS, vocabulary.size, torch.Generator().manual_seed(0))
    module.learn(Ranking(loss=loss))
    return module.eval()


def alone(module: RankingTask, rows: pa.Table) -> dict[tuple[int, ...], float]:
    """The score of each pair, computed alone."""
    pairs = [rows.slice(row, 1) for row in range(rows.num_rows)]
    with torch.no_grad():
        return {tuple(pair["ids"][0].as_py()): float(module.logits(batch_of(pair))[0, 0]) for pair in pairs}


def batch_of(rows: pa.Table) -> Batch:
    return collate_labelled(rows.combine_chunks())


@pytest.mark.parametrize("loss", ["softmax", "margin"])
def test_the_losses_of_grouped_rows_by_hand(loss: Loss, rows: pa.Table, tiny_vocabulary: Vocabulary) -> None:
    module = made(tiny_vocabulary, loss)
    scores, groups = alone(module, rows), grouped(rows, 4, seed=2)
    teacher = {tuple(row["ids"]): row[TEACHER][0] for row in rows.to_pylist()}
    wanted, margins = 0.0, 0
    for row in groups.to_pylist():
        right, *wrong = candidates(row)
        margins += len(wrong)
        if loss == "softmax":
            wanted += float(-F.log_softmax(torch.tensor([scores[ids] for ids in (right, *wrong)]), dim=0)[0])
        else:
            wanted += sum((scores[right] - scores[ids] - (teacher[right] - teacher[ids])) ** 2 for ids in wrong)
    with torch.no_grad():
        total, count = module(batch_of(groups))["task"]
    assert float(total) == pytest.approx(wanted, rel=1e-4)
    assert count == (groups.num_rows if loss == "softmax" else margins)


def test_the_binary_loss_by_hand(rows: pa.Table, tiny_vocabulary: Vocabulary) -> None:
    module = made(tiny_vocabulary, "binary")
    scores, relevant = list(alone(module, rows).values()), rows["label"].to_numpy() > 0
    with torch.no_grad():
        total, count = module(batch_of(rows))["task"]
    wanted = F.binary_cross_entropy_with_logits(torch.tensor(scores), torch.tensor(relevant).float(), reduction="sum")
    assert float(total) == pytest.approx(float(wanted), rel=1e-4) and count == rows.num_rows


@pytest.mark.parametrize("loss", ["softmax", "margin"])
def test_slots_add_up_to_the_step(loss: Loss, rows: pa.Table, tiny_vocabulary: Vocabulary) -> None:
    groups, found = grouped(rows, 3, seed=0), []
    for slot in (6, 2):
        module, recipe = made(tiny_vocabulary, loss), Recipe(rows_per_step=6, rows_per_slot=slot)
        optimizer = build_optimizer(AdamW(), module)
        compute = StepContext(device=CPU, autocast=PLAIN, seed=0)
        (slots,) = batches(groups, recipe, 0, 0)
        total, count = train_on_slots(slots, module, optimizer, compute, step=0, rate=1e-3, clip_norm=1e9)
        found.append((float(total) / float(count), module.classification_head.weight.detach().clone()))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-4, atol=1e-5)


def test_training_ranks_the_right_candidates_first(rows: pa.Table, tiny_vocabulary: Vocabulary) -> None:
    module = made(tiny_vocabulary, "softmax").train()
    optimizer, compute = build_optimizer(AdamW(), module), StepContext(device=CPU, autocast=PLAIN, seed=0)
    for epoch in range(30):
        for slots in batches(grouped(rows, 8, seed=0), Recipe(rows_per_step=2), 0, epoch):
            train_on_slots(slots, module, optimizer, compute, step=epoch, rate=1e-3, clip_norm=1.0)
    outputs = np.stack(list(compute_logits(module, rows, CPU, PLAIN)))
    prepared = ranking.Prepared(items=pa.table({"first": []}), rows=rows)
    task = replace(TASK, metrics=("map", "mrr"))  # training does not tell label 2 from 1
    assert ranking.score(task, prepared, outputs, {}) == {"map": 1.0, "mrr": 1.0}


def test_what_has_nothing_to_rank_is_refused(tiny_vocabulary: Vocabulary, rows: pa.Table) -> None:
    cutting = Truncation(maximum_length=24, stride=4)
    single = pa.table([["1"], ["kar"], pa.nulls(1, pa.string()), ["1"]], schema=TEXTS)
    with pytest.raises(DataError, match="own ranks texts for queries: name the column of the text with --pair"):
        ranking.prepare(TASK, single, tiny_vocabulary, cutting)
    pairs = pa.table([["1", "2"], ["kar", "lost"], ["nel", "nel"], ["1", "0"]], schema=TEXTS)
    with pytest.raises(ConfigError, match="would give a candidate several scores"):
        ranking.prepare(TASK, pairs, tiny_vocabulary, replace(cutting, passages=True))
    with pytest.raises(DataError, match="own dev: none of 2 queries has both a relevant candidate"):
        ranking.require_ranked(TASK, "dev", ranking.prepare(TASK, pairs, tiny_vocabulary, cutting))


def test_settings_that_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match=r"ranking.candidates \(4\) is for ranking.loss softmax and margin, but"):
        Ranking(candidates=4)
    with pytest.raises(ConfigError, match=r"ranking.candidates \(1\) must be at least 2"):
        Ranking(loss="softmax", candidates=1)
    with pytest.raises(ConfigError, match="ranking.loss margin needs a teacher, whose scores are learnt"):
        Finetune(checkpoint="c", train="t", kind="ranking", ranking=Ranking(loss="margin"))
