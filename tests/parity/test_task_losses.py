"""Losses of every kind of task: class weights, poolings, and the slots of a step; test_families holds them against
transformers.
"""

from dataclasses import replace

import pytest
import torch

from pipeline.batch import PassagesBatch, TaskBatch
from pipeline.config.training import TaskAdamW
from pipeline.finetune.trial import train_on_slots
from pipeline.objectives.tasks import OBJECTIVES, TaskObjective
from pipeline.optim.build import build_optimizer
from pipeline.train.step import StepContext
from tests.parity.families import CLASSES, ROWS, SMALL, task_batch

SETTINGS = replace(SMALL, initializer_deviation=0.2)
SIZE = 60


def batch_of(kind: str, lengths: tuple[int, ...]) -> TaskBatch:
    """Random ids in two segments, and labels of the kind."""
    return task_batch(ROWS["bert"], SIZE, kind, lengths)


def module_of(kind: str) -> TaskObjective:
    return OBJECTIVES[kind](
        SETTINGS, SIZE, 0 if kind in ("regression", "spans") else CLASSES, torch.Generator().manual_seed(1), "cls", None
    ).train()


def test_the_softmax_of_an_answer_sees_its_own_window_alone() -> None:
    module, alone = module_of("spans"), batch_of("spans", (6,))
    beside = batch_of("spans", (6, 20))
    with torch.no_grad():
        first = module(alone)["task"][0]
        both = module(beside)["task"][0]
        rest = TaskBatch(**vars(beside) | {
            "ids_T": beside.ids_T[6:], "segments_T": beside.segments_T[6:], "positions_T": beside.positions_T[6:],
            "offsets": torch.tensor([0, 20], dtype=torch.int32), "labels": beside.labels[2:],
        })  # fmt: skip
        mine = TaskBatch(**vars(beside) | {
            "ids_T": beside.ids_T[:6], "segments_T": beside.segments_T[:6], "positions_T": beside.positions_T[:6],
            "offsets": torch.tensor([0, 6], dtype=torch.int32), "labels": beside.labels[:2], "maximum_length": 6,
        })  # fmt: skip
        torch.testing.assert_close(both, module(mine)["task"][0] + module(rest)["task"][0], rtol=1e-5, atol=1e-6)
    assert first > 0


@pytest.mark.parametrize("kind", ["classification", "tags"])
def test_class_weights_scale_losses_as_torch_means_them(kind: str) -> None:
    weights = torch.tensor([1.0, 0.25, 4.0])
    batch, module = (
        batch_of(kind, (9, 5, 12, 7)),
        OBJECTIVES[kind](SETTINGS, SIZE, CLASSES, torch.Generator().manual_seed(1), "cls", weights),
    )
    with torch.no_grad():
        total, count = module(batch)["task"]
        labels = batch.labels.long()
        torch.testing.assert_close(
            total / count,
            torch.nn.functional.cross_entropy(module.logits(batch), labels, weight=weights),
            rtol=1e-5,
            atol=1e-6,
        )
    assert [name for name in module.state_dict() if "weights" in name] == []


def test_poolings_are_means_over_a_sequence_s_own_tokens() -> None:
    batch = batch_of("classification", (9, 5, 12, 7))
    for pooling in ("mean", "attention"):
        module = OBJECTIVES["classification"](
            SETTINGS, SIZE, CLASSES, torch.Generator().manual_seed(1), pooling, None
        ).eval()
        with torch.no_grad():
            hidden = module.encoder(batch).split(batch.offsets.diff().tolist())
            if pooling == "mean":
                pooled = torch.stack([states.mean(0) for states in hidden])
            else:
                scores = [
                    torch.nn.functional.linear(
                        states, module.attention_pooling.weight, module.attention_pooling.bias
                    ).softmax(0)
                    for states in hidden
                ]
                pooled = torch.stack([(states * score).sum(0) for states, score in zip(hidden, scores)])
            torch.testing.assert_close(module.logits(batch), module.classification_head(pooled), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [kind for kind in OBJECTIVES if kind not in ("similarity", "ranking")])
@pytest.mark.parametrize("weighted", [False, True])
def test_slots_of_a_step_add_up_to_the_step(kind: str, weighted: bool) -> None:
    if weighted and kind not in ("classification", "tags"):
        pytest.skip("needs classes or tags, for their weights")
    weights = torch.tensor([1.0, 0.25, 4.0]) if weighted else None
    settings = replace(SETTINGS, hidden_dropout=0.0, attention_dropout=0.0)
    whole, lengths = batch_of(kind, (9, 5, 12, 7)), (9, 5, 12, 7)
    found = []
    for sizes in ((4,), (2, 2) if kind == "choices" else (1, 3)):  # rows of two choices stay whole
        outputs = 0 if kind in ("regression", "spans", "choices") else CLASSES
        module = OBJECTIVES[kind](settings, SIZE, outputs, torch.Generator().manual_seed(1), "cls", weights).train()
        optimizer = build_optimizer(TaskAdamW(learning_rate=1e-3), module)
        compute = StepContext(device=torch.device("cpu"), autocast=torch.autocast("cpu", enabled=False), seed=0)
        slots = list(enumerate(parts(kind, whole, lengths, sizes)))
        loss, count = train_on_slots(slots, module, optimizer, compute, step=0, rate=1e-3, clip_norm=1.0)
        found.append((float(loss), float(count), module.state_dict()))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-5) and found[1][1] == found[0][1]
    for name, tensor in found[0][2].items():
        torch.testing.assert_close(found[1][2][name], tensor, rtol=1e-3, atol=2e-5, msg=name)


def parts(kind: str, batch: TaskBatch, lengths: tuple[int, ...], sizes: tuple[int, ...]) -> list[TaskBatch]:
    """The batch's sequences as several batches."""
    found, first = [], 0
    for size in sizes:
        tokens = slice(sum(lengths[:first]), sum(lengths[: first + size]))
        rows = slice(first // 2, (first + size) // 2) if kind == "choices" else slice(first, first + size)
        per = {
            "tags": tokens,
            "spans": slice(2 * first, 2 * (first + size)),
            "multilabel": slice(CLASSES * first, CLASSES * (first + size)),
        }
        found.append(
            replace(
                batch,
                ids_T=batch.ids_T[tokens],
                segments_T=batch.segments_T[tokens],
                positions_T=batch.positions_T[tokens],
                offsets=torch.tensor([0, *torch.tensor(lengths[first : first + size]).cumsum(0)], dtype=torch.int32),
                maximum_length=max(lengths[first : first + size]),
                labels=batch.labels[per.get(kind, rows)],
                **({"passages": batch.passages[rows]} if isinstance(batch, PassagesBatch) else {}),
            )
        )
        first += size
    return found
