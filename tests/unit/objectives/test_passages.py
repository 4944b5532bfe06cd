"""Passages of a text whose vectors are pooled before the head: values worked out by hand, gradients and the order."""

from dataclasses import replace
from typing import get_args

import pytest
import torch
from torch import Tensor

from pipeline.batch import TaskBatch
from pipeline.config.cutting import PassagePooling
from pipeline.config.model import FamilyName, Model
from pipeline.objectives.sequences import SequenceTask
from tests.conftest import tiny_preset
from tests.unit.objectives.batches import VOCABULARY_SIZE, as_task, make_batch

SETTINGS = Model(
    layers=1, width=4, heads=2, feed_forward=8, maximum_positions=32, hidden_dropout=0.0, attention_dropout=0.0
)
LENGTHS, PASSAGES = [5, 9, 3, 7], torch.tensor([3, 1])
POOLINGS: tuple[PassagePooling, ...] = ("max", "attention")


def module_of(pooling: PassagePooling, settings: Model = SETTINGS, kind: str = "classification") -> SequenceTask:
    generator = torch.Generator().manual_seed(1)
    settings = replace(settings, initializer_deviation=0.5)
    module = SequenceTask(settings, VOCABULARY_SIZE, 1 if kind == "regression" else 3, generator, kind=kind).eval()
    module.pool_passages(pooling, generator)
    return module


def batch_of(passages: Tensor | None, kind: str = "classification") -> TaskBatch:
    """Four sequences, which are two rows of three and one passages, or four rows."""
    batch = replace(make_batch(LENGTHS), segments_T=torch.zeros(sum(LENGTHS), dtype=torch.int64))
    rows = 4 if passages is None else len(passages)
    labels = torch.arange(3 * rows if kind == "multilabel" else rows) % 2.0
    return as_task(batch, labels, torch.arange(rows if kind == "regression" else 3 * rows) / 10, passages)


def head_inputs(module: SequenceTask, batch: TaskBatch) -> Tensor:
    """Return the input of the last layer of the head."""
    seen: list[Tensor] = []
    hook = module.classification_head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    module.logits(batch)
    hook.remove()
    return seen[0]


def test_the_largest_values_are_those_worked_out_by_hand() -> None:
    module = module_of("max")
    vectors = torch.tensor([[1.0, -2, 0, 5], [3, -1, -4, 2], [2, -3, -1, 9], [-7, -8, -9, 0]])
    pooled = module._whole(vectors, PASSAGES)
    assert pooled.tolist() == [[3, -1, 0, 9], [-7, -8, -9, 0]]


def test_the_mean_with_learned_weights_is_that_worked_out_by_hand() -> None:
    module = module_of("attention")
    assert module.passage_attention is not None
    with torch.no_grad():
        module.passage_attention.weight.copy_(torch.tensor([[1.0, 0, 0, 0]]))
        module.passage_attention.bias.fill_(7.0)  # the same for all passages, so without effect
    # Scores 0, ln 2 and ln 5: weights 1/8, 2/8 and 5/8.
    scores = torch.tensor([1.0, 2, 5]).log()
    vectors = torch.tensor([[0.0, 8, 16, 0], [0, 4, 0, 0], [0, 8, 0, 80], [3, 1, 2, 3]])
    vectors[:3, 0] = scores
    first = [float(scores @ torch.tensor([1 / 8, 2 / 8, 5 / 8])), 1 + 1 + 5, 2, 50]
    assert module._whole(vectors, PASSAGES).tolist() == [pytest.approx(first), [3, 1, 2, 3]]


@pytest.mark.parametrize("family", get_args(FamilyName))
def test_every_family_pools_what_the_last_layer_of_its_head_reads(family: str) -> None:
    settings = replace(tiny_preset(family).model, hidden_dropout=0.0, attention_dropout=0.0)
    for pooling in POOLINGS:
        module = module_of(pooling, settings)
        apart, together = head_inputs(module, batch_of(None)), head_inputs(module, batch_of(PASSAGES))
        expected = apart[:3].amax(0)
        if module.passage_attention is not None:
            expected = (module.passage_attention.weight @ apart[:3].T).softmax(1)[0] @ apart[:3]
        torch.testing.assert_close(together[0], expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(together[1], apart[3], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_texts_of_one_passage_are_answered_as_without_passages(kind: str, pooling: PassagePooling) -> None:
    module, plain = module_of(pooling, kind=kind), batch_of(None, kind)
    alone = batch_of(torch.ones(4, dtype=torch.int64), kind)
    module.learn_from_teacher(2.0, 0.5)
    torch.testing.assert_close(module.logits(alone), module.logits(plain), rtol=0, atol=1e-6)
    for term, (loss, count) in module(alone).items():
        other, divisor = module(plain)[term]
        assert loss.item() == pytest.approx(other.item(), rel=1e-5) and count == divisor, term


@pytest.mark.parametrize("pooling", POOLINGS)
def test_losses_count_rows_and_gradients_reach_every_passage(pooling: PassagePooling) -> None:
    module, batch = module_of(pooling), batch_of(PASSAGES)
    # Every passage has words of its own, so a word's gradient is that of its passage.
    batch = replace(batch, ids_T=torch.arange(sum(LENGTHS)))
    module.learn_from_teacher(1.0, 0.5)
    terms = module(batch)
    assert {term: int(count) for term, (_, count) in terms.items()} == {"task": 2, "teacher": 2}
    sum(loss for loss, _ in terms.values()).backward()
    gradients = module.encoder.embeddings.words.weight.grad[: sum(LENGTHS)].norm(dim=1)
    firsts = gradients[[0, 5, 14, 17]]  # of each passage's first token, which the head reads
    assert (firsts > 1e-6).all()
    if module.passage_attention is not None:
        assert module.passage_attention.weight.grad.norm() > 1e-6


@pytest.mark.parametrize("pooling", POOLINGS)
def test_the_order_of_passages_does_not_matter(pooling: PassagePooling) -> None:
    module, batch = module_of(pooling), batch_of(PASSAGES)
    ids, positions = batch.ids_T.split(LENGTHS), batch.positions_T.split(LENGTHS)
    order = [2, 0, 1, 3]
    turned = replace(
        batch,
        ids_T=torch.cat([ids[index] for index in order]),
        positions_T=torch.cat([positions[index] for index in order]),
        offsets=torch.tensor([0, 3, 8, 17, 24], dtype=torch.int32),
    )
    torch.testing.assert_close(module.logits(turned), module.logits(batch), rtol=1e-5, atol=1e-6)
    other = replace(batch, passages=torch.tensor([2, 2]))
    assert (module.logits(other) - module.logits(batch)).abs().max() > 1e-3
