"""A training on the CPU: against a plain loop of transformers, and what a recipe changes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from pipeline.batch import TEACHER, Batch
from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune
from pipeline.config.model import Model
from pipeline.config.recipe import Recipe
from pipeline.finetune.trial import TrialResult, run_trial
from pipeline.finetune.trial_rows import batches, class_weights, label_mean_and_deviation, sample_rows, training_rows
from pipeline.model.families.bert import BERT
from pipeline.model.weights import published_config, to_published
from pipeline.objectives.logits import compute_logits
from pipeline.objectives.sequences import SequenceTask
from pipeline.optim.schedule import rate_share
from pipeline.tasks import sequences
from pipeline.tasks.glue import TASKS
from pipeline.tasks.prepared import Prepared
from pipeline.tasks.schema import ENCODED
from pipeline.tasks.selection import selected_by
from pipeline.tasks.tables import read_split
from pipeline.text.vocabulary import Vocabulary

CPU = torch.device("cpu")
PLAIN = torch.autocast("cpu", enabled=False)
CUTTING = Truncation(maximum_length=32, stride=8)
SETTINGS = Model(
    layers=2,
    width=16,
    heads=2,
    feed_forward=32,
    maximum_positions=32,
    hidden_dropout=0.0,
    attention_dropout=0.0,
    initializer_deviation=0.3,
)


def prepared(name: str, glue: Path, vocabulary: Vocabulary) -> dict[str, Prepared]:
    return {
        split: sequences.prepare(TASKS[name], read_split(TASKS[name], str(glue), split), vocabulary, CUTTING)
        for split in ("train", "dev")
    }


def module_of(name: str, vocabulary: Vocabulary) -> SequenceTask:
    kind = TASKS[name].kind
    return SequenceTask(
        SETTINGS, vocabulary.size, 2 if kind == "classification" else 1, torch.Generator().manual_seed(0), kind=kind
    )


def with_answers(train: Prepared, outputs: int = 1) -> Prepared:
    """The rows with made-up logits of a teacher."""
    logits = np.random.default_rng(3).normal(size=(train.rows.num_rows, outputs)).tolist()
    return replace(train, rows=train.rows.append_column(TEACHER, pa.array(logits, pa.list_(pa.float32()))))


def without_labels(rows: pa.Table) -> pa.Table:
    return rows.set_column(2, "label", pa.array([float("nan")] * rows.num_rows, pa.float32()))


def config_of(name: str, **recipe: object) -> Finetune:
    config = Finetune(
        checkpoint="a",
        data="b",
        task=(name,),
        recipe=Recipe(**{"epochs": 2, "rows_per_step": 16, "group_lengths": False} | recipe),
    )
    return replace(config, optimizer=replace(config.optimizer, learning_rate=1e-3))


def theirs(module: SequenceTask, settings: Model, vocabulary: Vocabulary) -> torch.nn.Module:
    """transformers' BertForSequenceClassification with the same weights."""
    transformers = pytest.importorskip("transformers")
    classes = module.classification_head.out_features
    config = transformers.BertConfig(
        **published_config(settings, vocabulary.size, vocabulary.pad_id),
        num_labels=classes,
        problem_type="regression" if module.kind == "regression" else None,
    )
    model = transformers.BertForSequenceClassification(config)
    model.load_state_dict(to_published(module.state_dict(), BERT))
    return model.train()


def padded(batch: Batch) -> dict[str, torch.Tensor]:
    """A batch as transformers takes it."""
    lengths = batch.offsets.diff().tolist()
    ids, segments = (
        torch.nn.utils.rnn.pad_sequence(list(values.split(lengths)), batch_first=True)
        for values in (batch.ids_T, batch.segments_T)
    )
    return {
        "input_ids": ids,
        "token_type_ids": segments,
        "attention_mask": (torch.arange(ids.shape[1]) < torch.tensor(lengths)[:, None]).long(),
    }


def test_values_far_from_nought_are_learnt_by_their_deviations(glue: Path, tiny_vocabulary: Vocabulary) -> None:
    task, config, rows = (
        replace(TASKS["stsb"], metrics=("mean_absolute_error",)),
        config_of("stsb"),
        prepared("stsb", glue, tiny_vocabulary),
    )
    small, large = module_of("stsb", tiny_vocabulary), module_of("stsb", tiny_vocabulary)
    mean, deviation = label_mean_and_deviation(rows["train"].rows)
    priced = {
        split: replace(
            one,
            rows=one.rows.set_column(
                2, "label", pa.array(250_000 + 1_000 * one.rows["label"].to_numpy(), pa.float32())
            ),
        )
        for split, one in rows.items()
    }
    small.learn_standardised(mean, deviation)
    large.learn_standardised(*label_mean_and_deviation(priced["train"].rows))
    results = [
        run_trial(
            config, task, CUTTING, module, ones["train"], {"dev": ones["dev"]}, seed=5, device=CPU, autocast=PLAIN
        )
        for module, ones in ((small, rows), (large, priced))
    ]
    np.testing.assert_allclose(
        [loss for _, loss in results[1].curve], [loss for _, loss in results[0].curve], rtol=1e-2
    )  # float32 holds 250,000 to 1/64
    assert results[1].scores["dev"]["mean_absolute_error"] == pytest.approx(
        1_000 * results[0].scores["dev"]["mean_absolute_error"], rel=0.02
    )
    assert results[1].scores["dev"]["mean_absolute_error"] < 3_000  # without, 250,000
    assert label_mean_and_deviation(rows["train"].rows.slice(0, 1))[1] == 1.0


@pytest.mark.parametrize("name", ["cola", "stsb"])
def test_a_whole_training_equals_a_plain_loop_of_transformers(
    glue: Path, tiny_vocabulary: Vocabulary, name: str
) -> None:
    task, config, rows, module = (
        TASKS[name],
        config_of(name),
        prepared(name, glue, tiny_vocabulary),
        module_of(name, tiny_vocabulary),
    )
    peer = theirs(module, SETTINGS, tiny_vocabulary)
    result = run_trial(
        config, task, CUTTING, module, rows["train"], {"dev": rows["dev"]}, seed=5, device=CPU, autocast=PLAIN
    )
    matrices = [weight for weight in peer.parameters() if weight.ndim > 1]
    groups = [
        {"params": matrices, "weight_decay": 0.01},
        {"params": [weight for weight in peer.parameters() if weight.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer, losses = torch.optim.AdamW(groups, lr=1e-3, eps=1e-6), []
    for epoch in range(2):
        for ((_, batch),) in batches(rows["train"].rows, config.recipe, 5, epoch):
            labels = batch.labels if task.kind == "regression" else batch.labels.long()
            loss = peer(**padded(batch), labels=labels).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(peer.parameters(), 1.0)
            for group in optimizer.param_groups:
                group["lr"] = 1e-3 * rate_share(config.schedule, len(losses), 8)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    assert result.steps == len(losses) == 8
    # Eight steps are fewer than a curve's points: each step is one.
    assert [step for step, _ in result.curve] == list(range(1, 9)) and [
        loss for _, loss in result.curve
    ] == pytest.approx(losses, rel=1e-5)
    ours, whole = module.encoder.embeddings.words.weight, peer.bert.embeddings.word_embeddings.weight
    assert len(set(rows["train"].rows["ids"].combine_chunks().flatten().to_pylist())) < len(ours), (
        "some words have nothing but decay"
    )
    torch.testing.assert_close(ours, whole, rtol=1e-4, atol=1e-5)
    peer.eval()
    ((_, whole),) = next(batches(rows["dev"].rows, replace(config.recipe, rows_per_step=99), 0, 0))
    order = np.random.Generator(
        np.random.Philox(key=np.random.SeedSequence((0, 0)).generate_state(2, np.uint64))
    ).permutation(20)
    with torch.no_grad():
        logits = peer(**padded(whole)).logits
    np.testing.assert_allclose(
        np.array(compute_logits(module, rows["dev"].rows, CPU, PLAIN))[order], logits.numpy(), rtol=1e-4, atol=1e-4
    )
    answers = logits.argmax(-1) if task.kind == "classification" else logits[:, 0]
    if task.kind == "classification":
        assert not result.collapsed or len(set(answers.tolist())) == 1
    assert (
        result.scores["dev"] == sequences.score(task, rows["dev"], logits.numpy()[np.argsort(order)], {})
        or task.kind == "regression"
    )


def test_every_row_comes_once_an_epoch_in_another_order(glue: Path, tiny_vocabulary: Vocabulary) -> None:
    rows = prepared("stsb", glue, tiny_vocabulary)["train"].rows
    for recipe in (Recipe(rows_per_step=16, group_lengths=False), Recipe(rows_per_step=16)):
        orders = [
            torch.cat([batch.labels for ((_, batch),) in batches(rows, recipe, 3, epoch)]).tolist()
            for epoch in (0, 1, 0)
        ]
        assert orders[0] == orders[2] != orders[1] and sorted(orders[0]) == sorted(orders[1]) == sorted(
            rows["label"].to_pylist()
        )
        assert sorted(batch.sequences for ((_, batch),) in batches(rows, recipe, 3, 0)) == [12, 16, 16, 16]


def test_a_step_s_rows_are_dealt_to_slots(glue: Path, tiny_vocabulary: Vocabulary) -> None:
    rows = prepared("stsb", glue, tiny_vocabulary)["train"].rows
    whole = [batch for ((_, batch),) in batches(rows, Recipe(rows_per_step=16), 3, 0)]
    for slots, step in zip(batches(rows, Recipe(rows_per_step=16, rows_per_slot=6), 3, 0), whole, strict=True):
        assert [slot for slot, _ in slots] == list(range(len(slots)))
        assert [batch.sequences for _, batch in slots] == ([6, 6, 4] if step.sequences == 16 else [6, 6])
        assert torch.equal(torch.cat([batch.ids_T for _, batch in slots]), step.ids_T)


def test_rows_of_a_step_are_of_similar_length_where_asked(glue: Path, tiny_vocabulary: Vocabulary) -> None:
    rows = prepared("stsb", glue, tiny_vocabulary)["train"].rows
    spread = [
        sum(
            int(batch.offsets.diff().max() - batch.offsets.diff().min())
            for ((_, batch),) in batches(rows, Recipe(rows_per_step=16, group_lengths=grouped), 3, 0)
        )
        for grouped in (False, True)
    ]
    assert spread[1] < spread[0] / 2
    longest = [
        int(batch.offsets.diff().max())
        for seed in range(3)
        for ((_, batch),) in batches(rows, Recipe(rows_per_step=16), seed, 0)
    ]
    assert any(longest[place : place + 4] != sorted(longest[place : place + 4]) for place in (0, 4, 8)), (
        "short rows do not come first"
    )


def test_early_stopping_keeps_the_best_weights(glue: Path, tiny_vocabulary: Vocabulary) -> None:
    rows, module = prepared("stsb", glue, tiny_vocabulary), module_of("stsb", tiny_vocabulary)
    config = config_of("stsb", epochs=12, patience=2)
    result = run_trial(
        config, TASKS["stsb"], CUTTING, module, rows["train"], {"dev": rows["dev"]}, seed=5, device=CPU, autocast=PLAIN
    )
    values = [scores["dev"]["pearson"] for scores in result.epochs]
    assert result.best_epoch == 1 + values.index(max(values)) and (
        len(values) == result.best_epoch + 2 or len(values) == 12
    )
    kept = sequences.score(
        TASKS["stsb"], rows["dev"], np.array(compute_logits(module, rows["dev"].rows, CPU, PLAIN)), {}
    )
    assert kept == result.scores["dev"] == result.epochs[result.best_epoch - 1]["dev"]


def test_training_that_selects_by_an_error_keeps_the_weights_of_the_lowest(
    glue: Path, tiny_vocabulary: Vocabulary
) -> None:
    rows, module = prepared("stsb", glue, tiny_vocabulary), module_of("stsb", tiny_vocabulary)
    task = selected_by(TASKS["stsb"], "mae")
    result = run_trial(
        config_of("stsb", epochs=4, patience=4),
        task,
        CUTTING,
        module,
        rows["train"],
        {"dev": rows["dev"]},
        seed=5,
        device=CPU,
        autocast=PLAIN,
    )
    values = [scores["dev"]["mean_absolute_error"] for scores in result.epochs]
    assert len(set(values)) == 4 and result.best_epoch == 1 + values.index(min(values))


def test_fewer_rows_are_drawn_by_the_seed(glue: Path, tiny_vocabulary: Vocabulary) -> None:
    rows = prepared("stsb", glue, tiny_vocabulary)["train"].rows
    first, again, other = (sample_rows(rows, 20, seed)["row"].to_pylist() for seed in (1, 1, 2))
    assert first == again != other and len(set(first)) == 20 and first == sorted(first)
    assert sample_rows(rows, None, 1).num_rows == sample_rows(rows, 60, 1).num_rows == 60


def test_class_weights_are_inverse_to_counts(glue: Path, tiny_vocabulary: Vocabulary) -> None:
    rows = prepared("cola", glue, tiny_vocabulary)["train"].rows
    counts = np.bincount(rows["label"].to_numpy().astype(int))
    np.testing.assert_allclose(class_weights(TASKS["cola"], rows, 2).numpy() * counts, [30.0, 30.0])


def trained(
    name: str,
    vocabulary: Vocabulary,
    rows: dict[str, Prepared],
    weight: float | None,
    unlabelled: pa.Table | None = None,
) -> tuple[TrialResult, dict[str, torch.Tensor]]:
    """A training and its weights; `weight` of the teacher, None: no teacher."""
    module = module_of(name, vocabulary)
    if weight is not None:
        module.learn_from_teacher(2.0, weight)
    result = run_trial(
        config_of(name, rows_per_slot=5), TASKS[name], CUTTING, module, rows["train"], {"dev": rows["dev"]},
        seed=5, device=CPU, autocast=PLAIN, unlabelled=unlabelled,
    )  # fmt: skip
    return result, module.state_dict()


def test_a_teacher_of_weight_0_changes_no_bit(glue: Path, tiny_vocabulary: Vocabulary) -> None:
    rows = prepared("cola", glue, tiny_vocabulary)
    taught = rows | {"train": with_answers(rows["train"], 2)}
    plain, weights = trained("cola", tiny_vocabulary, rows, None)
    without, same = trained("cola", tiny_vocabulary, taught, 0.0)
    assert without.curve == plain.curve and all(torch.equal(same[name], weights[name]) for name in weights)
    assert trained("cola", tiny_vocabulary, taught, 0.5)[0].curve != plain.curve


def test_a_step_of_unlabelled_rows_alone_trains(glue: Path, tiny_vocabulary: Vocabulary) -> None:
    rows = prepared("cola", glue, tiny_vocabulary)
    few = replace(rows["train"], rows=with_answers(rows["train"], 2).rows)
    many = without_labels(pa.concat_tables([few.rows] * 3))
    one = rows | {"train": replace(few, rows=few.rows.slice(0, 1))}
    result, weights = trained("cola", tiny_vocabulary, one, 0.5, many)
    assert result.rows == 1 + 180 and result.steps == 2 * 12
    assert np.isfinite([loss for _, loss in result.curve]).all()
    assert all(weight.isfinite().all() for weight in weights.values())


def test_a_curve_has_the_weighted_sum_of_the_means_of_both_terms(glue: Path, tiny_vocabulary: Vocabulary) -> None:
    rows = prepared("cola", glue, tiny_vocabulary)
    train = with_answers(rows["train"], 2)
    unlabelled = without_labels(train.rows.slice(0, 20))
    found, _ = trained("cola", tiny_vocabulary, rows | {"train": train}, 0.25, unlabelled)
    module = module_of("cola", tiny_vocabulary).train()
    module.learn_from_teacher(2.0, 0.25)
    epoch = training_rows(train, unlabelled, Recipe(), 5)
    ((_, batch),) = next(batches(epoch, config_of("cola").recipe, 5, 0))  # both terms of the first step, in one slot
    (task, labelled), (teacher, both) = (module(batch)[term] for term in ("task", "teacher"))
    assert 0 < int(labelled) < both == 16
    assert found.curve[0] == (1, pytest.approx(float(0.75 * task / labelled + 0.25 * teacher / both), rel=1e-5))


def test_a_limit_of_rows_is_one_of_labelled_rows(glue: Path, tiny_vocabulary: Vocabulary) -> None:
    train = prepared("cola", glue, tiny_vocabulary)["train"]
    unlabelled = without_labels(train.rows.slice(0, 7))
    rows = training_rows(train, unlabelled, Recipe(training_rows=10), seed=1)
    assert np.isnan(rows["label"].to_numpy()).tolist() == [False] * 10 + [True] * 7
    assert rows.slice(0, 10) == sample_rows(train.rows, 10, 1) and training_rows(train, None, Recipe(), 1) is train.rows


def rows_of_lengths(lengths: list[int]) -> pa.Table:
    """Rows of random ids without labels, shuffled."""
    random = np.random.default_rng(0)
    listed = [
        {"ids": random.integers(5, 50, length), "first_length": length, "label": float("nan"), "row": row}
        for row, length in enumerate(random.permutation(lengths).tolist())
    ]
    return pa.Table.from_pylist(listed, schema=ENCODED)


class Noughts(torch.nn.Module):
    """A task whose logits cost nothing."""

    per_token = False

    def logits(self, batch: Batch) -> torch.Tensor:
        return torch.zeros(batch.sequences, 1)


@pytest.mark.parametrize(
    ("lengths", "sizes"),
    [
        ([512] * 130, [64, 64, 2]),
        ([7] * 100 + [512] * 28, [64, 64]),
        ([513] * 65, [63, 2]),
        ([4_096] * 20, [8, 8, 4]),
        ([128] * 64 + [4_096] * 9, [64, 8, 1]),
        ([40_000] * 2, [1, 1]),
    ],
)
def test_evaluation_takes_fewer_long_rows_at_once(lengths: list[int], sizes: list[int]) -> None:
    found: list[int] = []
    compute_logits(Noughts(), rows_of_lengths(lengths), CPU, PLAIN, found.append)
    assert found == sizes


def test_logits_do_not_depend_on_the_tokens_taken_at_once(
    tiny_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, module = rows_of_lengths([3] * 9 + [20] * 5 + [32] * 4), module_of("cola", tiny_vocabulary)
    whole = np.stack(list(compute_logits(module, rows, CPU, PLAIN)))
    monkeypatch.setattr("pipeline.objectives.logits.ROW_TOKENS", 1)
    sizes: list[int] = []
    found = np.stack(list(compute_logits(module, rows, CPU, PLAIN, sizes.append)))
    assert sizes == [10, 3, 2, 2, 1]
    np.testing.assert_allclose(found, whole, rtol=1e-5, atol=1e-6)
