"""Similarity of two texts: losses by hand, and vectors that depend on a text alone."""

import math

import pytest
import torch
from torch import Tensor

from pipeline.batch import TaskBatch
from pipeline.config.finetune import Similarity
from pipeline.config.model import Model
from pipeline.config.training import TaskAdamW
from pipeline.finetune.trial import train_on_slots
from pipeline.objectives.similarity import SimilarityTask, cosent, cosines, squared_error
from pipeline.objectives.vectors import mean_over_lengths
from pipeline.optim.build import build_optimizer
from pipeline.train.step import StepContext

SETTINGS = Model(
    layers=2, width=32, heads=2, feed_forward=64, maximum_positions=16, hidden_dropout=0.0, attention_dropout=0.0
)
LENGTHS = (5, 3, 4, 4, 6, 2)


def batch_of(lengths: tuple[int, ...] = LENGTHS, first: int = 0, labels: Tensor | None = None) -> TaskBatch:
    """Random ids; the sequences are those of LENGTHS from `first` on."""
    ids = torch.randint(5, 50, (sum(LENGTHS),), generator=torch.Generator().manual_seed(3))
    start = sum(LENGTHS[:first])
    return TaskBatch(
        ids_T=ids[start : start + sum(lengths)],
        segments_T=torch.zeros(sum(lengths), dtype=torch.int64),
        positions_T=torch.cat([torch.arange(length) for length in lengths]),
        offsets=torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32),
        maximum_length=max(lengths),
        labels=torch.zeros(0) if labels is None else labels,
        teacher=torch.zeros(0),
    )


def module_of(pooling: str = "mean", settings: Similarity = Similarity()) -> SimilarityTask:  # noqa: B008 (it is frozen)
    module = SimilarityTask(SETTINGS, 50, torch.Generator().manual_seed(1), pooling=pooling)
    module.learn(settings, 0.0, 5.0)
    return module


def test_cosent_by_hand() -> None:
    settings = Similarity(temperature=0.5)
    cosines, scores = torch.tensor([0.9, 0.1, 0.4]), torch.tensor([0.0, 1.0, 1.0])
    # two pairs of pairs have different scores: (second, first) and (third, first)
    expected = math.log(1 + math.exp((0.9 - 0.1) / 0.5) + math.exp((0.9 - 0.4) / 0.5))
    assert float(cosent(cosines, scores, settings)) == pytest.approx(expected, rel=1e-6)
    assert float(cosent(cosines, torch.ones(3), settings)) == 0


def test_squared_error_by_hand() -> None:
    loss = squared_error(torch.tensor([0.5, 1.0]), torch.tensor([0.0, 0.8]), Similarity(loss="cosine"))
    assert float(loss) == pytest.approx(0.25 + 0.04)


def test_labels_are_scaled_to_shares_of_their_range() -> None:
    module = module_of(settings=Similarity(loss="cosine"))
    module.learn(Similarity(loss="cosine"), 1.0, 5.0)
    batch = batch_of(labels=torch.tensor([1.0, 3.0, 5.0]))
    with torch.no_grad():
        total, count = module(batch)["task"]
        expected = (module.logits(batch)[:, 0] - torch.tensor([0.0, 0.5, 1.0])).square().sum()
    torch.testing.assert_close(total, expected)
    assert count == 3 and module_of().counts(batch) == {"task": 1}


def test_the_loss_of_truncated_vectors_by_hand() -> None:
    """Two numbers of each vector: cosines 1 and 0. The first number alone: cosines 1 and -1."""
    vectors = torch.tensor([[1.0, 0.0], [2.0, 0.0], [1.0, 1.0], [-1.0, 1.0]])
    settings, scores = Similarity(loss="cosine", dimensions=(1, 2)), torch.tensor([1.0, 0.5])
    loss = mean_over_lengths(vectors, (1, 2), lambda part: squared_error(cosines(part), scores, settings))
    assert float(loss) == pytest.approx((1.5**2 + 0.5**2) / 2)
    assert float(mean_over_lengths(vectors, (), lambda part: squared_error(cosines(part), scores, settings))) == 0.25


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_vector_depends_on_its_own_text_alone(pooling: str) -> None:
    module = module_of(pooling).eval()
    with torch.no_grad():
        found = module.logits(batch_of())
        assert found.shape == (3, 1)
        for pair in range(3):
            first, second = (module.encoder(batch_of((LENGTHS[n],), n)) for n in (2 * pair, 2 * pair + 1))
            vectors = [hidden.mean(0) if pooling == "mean" else hidden[0] for hidden in (first, second)]
            expected = torch.nn.functional.cosine_similarity(*vectors, dim=0)
            torch.testing.assert_close(found[pair, 0], expected, rtol=1e-5, atol=1e-6)


def test_slots_of_a_step_add_up_to_the_step_for_the_squared_error() -> None:
    labels, found = torch.tensor([0.0, 5.0, 2.0]), []
    whole = [batch_of(labels=labels)]
    for parts in (whole, [batch_of(LENGTHS[:2], 0, labels[:1]), batch_of(LENGTHS[2:], 2, labels[1:])]):
        module = module_of(settings=Similarity(loss="cosine")).train()
        optimizer = build_optimizer(TaskAdamW(learning_rate=1e-3), module)
        compute = StepContext(device=torch.device("cpu"), autocast=torch.autocast("cpu", enabled=False), seed=0)
        loss, count = train_on_slots(
            list(enumerate(parts)), module, optimizer, compute, step=0, rate=1e-3, clip_norm=1.0
        )
        found.append((float(loss), float(count), module.state_dict()))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-5) and found[0][1] == found[1][1] == 3
    for name, tensor in found[0][2].items():
        torch.testing.assert_close(found[1][2][name], tensor, rtol=1e-3, atol=2e-5, msg=name)


def test_training_brings_cosines_into_the_order_of_the_scores() -> None:
    module, batch = module_of(), batch_of(labels=torch.tensor([0.0, 5.0, 2.0]))
    optimizer = build_optimizer(TaskAdamW(learning_rate=1e-2), module.train())
    compute = StepContext(device=torch.device("cpu"), autocast=torch.autocast("cpu", enabled=False), seed=0)
    for step in range(10):
        train_on_slots([(0, batch)], module, optimizer, compute, step=step, rate=1e-2, clip_norm=1.0)
    with torch.no_grad():
        assert module.eval().logits(batch)[:, 0].argsort().tolist() == [0, 2, 1]
