"""Training on pairs of few labelled rows: the pairs, the loss of a pair by hand, and the head against scikit-learn."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from pipeline.batch import collate_labelled
from pipeline.config.finetune import Finetune, Trials
from pipeline.config.recipe import Recipe
from pipeline.errors import ConfigError, DataError
from pipeline.finetune import few_labels
from pipeline.finetune.few_labels import FewLabels, linear_head, pairs_of
from pipeline.finetune.trial import run_trial
from pipeline.finetune.trial_rows import rows_per_class, sample_rows, training_rows
from pipeline.objectives.logits import compute_logits
from pipeline.objectives.sequences import SequenceTask
from pipeline.tasks.glue import TASKS
from pipeline.tasks.prepared import Prepared
from pipeline.text.vocabulary import Vocabulary
from tests.unit.finetune.test_trial import CPU, CUTTING, PLAIN, SETTINGS, config_of, prepared


def task_of(vocabulary: Vocabulary) -> SequenceTask:
    random = torch.Generator().manual_seed(0)
    return SequenceTask(SETTINGS, vocabulary.size, 2, random, kind="classification", pooling="mean")


@pytest.fixture
def rows(glue: Path, tiny_vocabulary: Vocabulary) -> pa.Table:
    return prepared("cola", glue, tiny_vocabulary)["train"].rows


def sequences(pairs: pa.Table) -> list[tuple[list[int], list[int]]]:
    """The ids of both rows of each pair."""
    return [
        (ids[:length], ids[length:]) for ids, length in zip(pairs["ids"].to_pylist(), pairs["first_length"].to_pylist())
    ]


def test_each_row_is_paired_with_rows_of_its_class_and_of_others(rows: pa.Table) -> None:
    ids, labels = rows["ids"].to_pylist(), rows["label"].to_numpy()
    pairs = pairs_of(rows, 3, seed=1)
    assert pairs.num_rows == 6 * rows.num_rows
    assert pairs["label"].to_pylist() == [1, 1, 1, 0, 0, 0] * rows.num_rows
    for number, ((first, second), same) in enumerate(zip(sequences(pairs), pairs["label"].to_pylist())):
        assert first == ids[number // 6]
        candidates = [other for other, one in enumerate(ids) if one == second and other != number // 6]
        assert any((labels[other] == labels[number // 6]) == same for other in candidates)
    assert pairs_of(rows, 3, seed=1) == pairs and pairs_of(rows, 3, seed=2) != pairs


def test_the_only_row_of_a_class_has_no_pair_with_its_class(rows: pa.Table) -> None:
    labels = pa.array([1.0] + [0.0] * 4, pa.float32())
    pairs = pairs_of(rows.slice(0, 5).set_column(2, "label", labels), 2, seed=0)
    assert pairs["label"].to_pylist() == [0, 0, *[1, 1, 0, 0] * 4]


def test_rows_of_one_class_are_refused(rows: pa.Table) -> None:
    alike = rows.slice(0, 5).set_column(2, "label", pa.array([1.0] * 5, pa.float32()))
    with pytest.raises(DataError, match="all 5 training rows have the same class, so no pair has two classes"):
        pairs_of(alike, 2, seed=0)


def test_many_rows_are_refused(rows: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_labels, "MOST_PAIRS", 6 * rows.num_rows - 1)
    with pytest.raises(DataError, match=r"contrastive_pairs \(3\) would make 360 pairs of 60 rows, more than 359"):
        pairs_of(rows, 3, seed=0)


def test_a_sample_per_class_has_that_many_rows_of_each(rows: pa.Table) -> None:
    sample = rows_per_class(rows, 7, seed=3)
    assert np.bincount(sample["label"].to_numpy().astype(int)).tolist() == [7, 7]
    assert sample["row"].to_pylist() == sorted(sample["row"].to_pylist())
    assert rows_per_class(rows, 7, seed=4) != sample and rows_per_class(rows, 1_000, seed=3) == rows


def test_samples_have_whole_texts(rows: pa.Table) -> None:
    """Texts of three passages each: those that are drawn if each text is one row."""
    passages = rows.take(np.repeat(np.arange(rows.num_rows), 3))
    for few, sample in (
        (rows_per_class(rows, 7, seed=3), rows_per_class(passages, 7, seed=3)),
        (sample_rows(rows, 9, 3), training_rows(Prepared(items=[], rows=passages), None, Recipe(training_rows=29), 3)),
    ):
        assert sample["row"].to_pylist() == np.repeat(few["row"].to_numpy(), 3).tolist()


def test_the_loss_is_the_squared_error_of_the_cosine(rows: pa.Table, tiny_vocabulary: Vocabulary) -> None:
    few = FewLabels(task_of(tiny_vocabulary), rows, 1, seed=0)
    assert few.encoder_task.encoder is few.task.encoder
    pairs = few.pairs.slice(0, 6)
    with torch.no_grad():
        total, count = few.encoder_task.eval()(collate_labelled(pairs.combine_chunks()))["task"]
    expected = 0.0
    for (first, second), same in zip(sequences(pairs), pairs["label"].to_pylist()):
        vectors = [few.task.encoder(alone(rows, ids)).detach().mean(dim=0) for ids in (first, second)]
        expected += (torch.nn.functional.cosine_similarity(*vectors, dim=0) - same) ** 2
    assert count == 6 and float(total) == pytest.approx(float(expected), rel=1e-5)


def alone(rows: pa.Table, ids: list[int]):
    """A batch with a single sequence."""
    values = {"ids": [ids], "first_length": [len(ids)], "label": [0.0], "labels": [[]], "row": [0]}
    return collate_labelled(pa.table(values, schema=rows.schema))


@pytest.mark.parametrize("classes", [2, 3])
def test_the_head_gives_the_probabilities_of_scikit_learn(classes: int) -> None:
    random = np.random.default_rng(0)
    labels = np.arange(60) % classes
    vectors = random.normal(size=(60, 5)) + labels[:, None]
    weight, bias = linear_head(vectors, labels, classes)
    ours = torch.softmax(torch.from_numpy(vectors).float() @ weight.T + bias, dim=1)
    theirs = LogisticRegression(max_iter=1_000).fit(vectors, labels).predict_proba(vectors)
    np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-5)


def test_a_class_without_rows_is_never_predicted() -> None:
    random = np.random.default_rng(0)
    labels = np.repeat([0, 3], 20)
    vectors = random.normal(size=(40, 5)) + labels[:, None]
    weight, bias = linear_head(vectors, labels, 5)
    logits = torch.from_numpy(vectors).float() @ weight.T + bias
    assert set(logits.argmax(dim=1).tolist()) == {0, 3} and weight[[1, 2, 4]].abs().sum() == 0


def test_a_trial_trains_the_encoder_and_then_fits_the_head(glue: Path, tiny_vocabulary: Vocabulary) -> None:
    splits, module = prepared("cola", glue, tiny_vocabulary), task_of(tiny_vocabulary)
    before = module.encoder.layers[0].attention.output.weight.clone()
    result = run_trial(
        config_of("cola", pooling="mean", contrastive_pairs=4, rows_per_class=20, epochs=3), TASKS["cola"], CUTTING,
        module, splits["train"], {"dev": splits["dev"], "train": splits["train"]}, seed=5, device=CPU, autocast=PLAIN,
    )  # fmt: skip
    assert result.rows == 2 * 4 * 40 and result.steps == 3 * 20 and len(result.epochs) == 3
    losses = [loss for _, loss in result.curve]
    assert np.mean(losses[-10:]) < 0.8 * np.mean(losses[:10])
    assert not torch.equal(module.encoder.layers[0].attention.output.weight, before)
    few = FewLabels(module, rows_per_class(splits["train"].rows, 20, seed=5), 4, seed=5)
    wanted = linear_head(few.vectors(few.rows, CPU, PLAIN), few.rows["label"].to_numpy().astype(int), 2)
    torch.testing.assert_close(module.classification_head.weight, wanted[0])
    logits = np.stack(list(compute_logits(module, few.rows, CPU, PLAIN)))
    assert (logits.argmax(axis=1) == few.rows["label"].to_numpy()).mean() > 0.7


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"contrastive_pairs": 0, "pooling": "mean"}, r"contrastive_pairs \(0\) must be at least 1"),
        ({"contrastive_pairs": 5}, r"contrastive_pairs \(5\) needs recipe.pooling mean, but recipe.pooling is cls"),
        ({"rows_per_class": 0}, r"rows_per_class \(0\) must be at least 1"),
        ({"rows_per_class": 8, "balance_classes": True}, r"rows_per_class \(8\) takes as many rows of each class"),
        (
            {"contrastive_pairs": 5, "pooling": "mean", "balance_classes": True},
            "so recipe.balance_classes has no effect",
        ),
    ],
)
def test_recipes_that_contradict_each_other(settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Recipe(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"minutes": 5.0},
            r"contrastive_pairs \(5\) fixes the number of rows, so minutes \(5.0\) has nothing to reduce",
        ),
        ({"teacher": "t"}, r"learns from labels alone, but teacher \(t\) is given: leave one of them out"),
        ({"trials": Trials(workers=2)}, "trains on one worker, but trials.workers is 2: leave trials.workers out"),
    ],
)
def test_settings_that_few_labels_do_not_work_with(settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Finetune(checkpoint="c", train="t", recipe=Recipe(contrastive_pairs=5, pooling="mean"), **settings)
