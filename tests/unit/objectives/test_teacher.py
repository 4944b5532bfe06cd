"""A teacher's loss term: values and gradients worked out by hand, and sequences without labels."""

import math

import pytest
import torch

from pipeline.batch import TaskBatch
from pipeline.config.model import Model
from pipeline.objectives.sequences import SequenceTask
from pipeline.objectives.terms import divisors
from tests.unit.objectives.batches import VOCABULARY_SIZE, as_task, make_batch

SETTINGS = Model(layers=1, width=16, heads=2, feed_forward=32, maximum_positions=32)
NAN = float("nan")
LN2, LN3 = math.log(2), math.log(3)


def module_with(logits: list[float], kind: str = "classification", weights: list[float] | None = None) -> SequenceTask:
    """A module that gives every sequence these logits."""
    class_weights = None if weights is None else torch.tensor(weights)
    module = SequenceTask(SETTINGS, VOCABULARY_SIZE, len(logits), kind=kind, class_weights=class_weights).eval()
    with torch.no_grad():
        module.classification_head.weight.zero_()
        module.classification_head.bias.copy_(torch.tensor(logits))
    return module


def batch_of(kind: str, labels: list[float] | list[list[float]], teacher: list[list[float]] | None) -> TaskBatch:
    values = torch.tensor(labels)
    logits = None if teacher is None else torch.tensor(teacher).flatten()
    return as_task(make_batch([5] * len(labels)), values.flatten() if kind == "multilabel" else values, logits)


def loss_of(module: SequenceTask, batch: TaskBatch) -> torch.Tensor:
    """The loss of a step of one slot, as the training step divides it."""
    shares = divisors(module.counts(batch), module.weights)
    return sum((total / shares[term] for term, (total, _) in module(batch).items()), torch.zeros(()))


def test_the_loss_and_its_gradient_are_those_worked_out_by_hand() -> None:
    # Student logits (0, 2 ln 3): shares 1/4 and 3/4 at temperature 2, and 1/10 and 9/10 at 1. The teacher's
    # shares at temperature 2 are 3/4 and 1/4: KL = 3/4 ln 3 + 1/4 ln 1/3 = ln 3 / 2, times 2^2.
    module, batch = module_with([0.0, 2 * LN3]), batch_of("classification", [0.0], [[2 * LN3, 0.0]])
    module.learn_from_teacher(temperature=2.0, weight=0.25)
    loss = loss_of(module, batch)
    assert loss.item() == pytest.approx(0.75 * math.log(10) + 0.25 * 2 * LN3)
    loss.backward()
    # 0.75 x (1/10 - 1, 9/10) + 0.25 x 2 x (1/4 - 3/4, 3/4 - 1/4)
    assert module.classification_head.bias.grad.tolist() == pytest.approx([-0.925, 0.925])


def test_temperature_1_and_weight_1_is_the_divergence() -> None:
    module, batch = module_with([0.0, LN3]), batch_of("classification", [1.0], [[0.0, 0.0]])
    module.learn_from_teacher(temperature=1.0, weight=1.0)
    assert list(module(batch)) == ["teacher"]
    assert loss_of(module, batch).item() == pytest.approx(0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75))


def test_each_label_of_several_is_a_choice_of_two() -> None:
    module, batch = module_with([0.0, 0.0], "multilabel"), batch_of("multilabel", [[1.0, 0.0]], [[2 * LN3, 0.0]])
    module.learn_from_teacher(temperature=2.0, weight=0.5)
    terms = module(batch)
    # The teacher gives the first label 3/4, the student 1/2: 3/4 ln 3/2 + 1/4 ln 1/2, times 2^2. The other agrees.
    assert terms["teacher"][0].item() == pytest.approx(4 * (0.75 * math.log(1.5) - 0.25 * LN2))
    assert terms["task"][0].item() == pytest.approx(2 * LN2)
    assert terms["teacher"][1] == 2 and int(terms["task"][1]) == 2


def test_a_value_is_learnt_by_its_squared_error_in_standardised_units() -> None:
    module, batch = module_with([1.0], "regression"), batch_of("regression", [4.0, NAN], [[6.0], [8.0]])
    module.learn_standardised(2.0, 2.0)
    module.learn_from_teacher(temperature=7.0, weight=0.5)
    terms = module(batch)
    # Label 4 is 1 in standardised units, as the student says; the teacher's 6 and 8 are 2 and 3.
    assert (terms["task"][0].item(), int(terms["task"][1])) == (0.0, 1)
    assert (terms["teacher"][0].item(), terms["teacher"][1]) == (1.0 + 4.0, 2)


LABELLED: dict[str, tuple[list, list]] = {
    "classification": ([1.0], [NAN]),
    "multilabel": ([[1.0, 0.0]], [[NAN, NAN]]),
    "regression": ([3.0], [NAN]),
}


@pytest.mark.parametrize("kind", LABELLED)
def test_sequences_without_a_label_have_the_teacher_s_term_alone(kind: str) -> None:
    labelled, unlabelled = LABELLED[kind]
    outputs = [0.5] if kind == "regression" else [0.5, -0.5]
    module = module_with(outputs, kind)
    module.learn_from_teacher(temperature=2.0, weight=0.5)
    alone = module(batch_of(kind, labelled, [outputs]))
    both = module(batch_of(kind, labelled + unlabelled, [outputs, outputs]))
    assert torch.equal(both["task"][0], alone["task"][0]) and int(both["task"][1]) == int(alone["task"][1])
    assert both["teacher"][1] == 2 * alone["teacher"][1]
    nothing = module(batch_of(kind, unlabelled, [[value + 1 for value in outputs]]))
    assert (nothing["task"][0].item(), int(nothing["task"][1])) == (0.0, 0)
    nothing["task"][0].backward()
    assert not module.classification_head.bias.grad.any()


def test_class_weights_count_labelled_sequences_only() -> None:
    module = module_with([0.0, 0.0], weights=[3.0, 0.5])
    module.learn_from_teacher(temperature=1.0, weight=0.5)
    total, count = module(batch_of("classification", [0.0, 1.0, NAN], [[0.0, 0.0]] * 3))["task"]
    assert total.item() == pytest.approx(3.5 * LN2) and float(count) == 3.5


@pytest.mark.parametrize("kind", LABELLED)
def test_weight_0_is_training_without_a_teacher(kind: str) -> None:
    outputs = [0.5] if kind == "regression" else [0.5, -0.5]
    plain, taught = module_with(outputs, kind), module_with(outputs, kind)
    taught.load_state_dict(plain.state_dict())
    taught.learn_from_teacher(temperature=2.0, weight=0.0)
    labels = LABELLED[kind][0] * 2
    expected, found = plain(batch_of(kind, labels, None)), taught(batch_of(kind, labels, [outputs, outputs]))
    assert list(found) == ["task"] and torch.equal(found["task"][0], expected["task"][0])
    assert found["task"][1] == expected["task"][1] and isinstance(found["task"][1], int)
