"""The class of a pair from two vectors: the loss by hand, and the head that is left out of the saved model."""

import math

import pytest
import torch

from pipeline.config.similarity import Similarity
from pipeline.objectives.relations import RelationTask
from tests.unit.objectives.test_similarity import SETTINGS, batch_of


def module_of() -> RelationTask:
    return RelationTask(SETTINGS, 50, 2, torch.Generator().manual_seed(1)).eval()


def test_the_loss_by_hand() -> None:
    """With these weights, the logit of class 1 is the first number of u, plus twice that of v, plus 4 |u - v|."""
    module, batch = module_of(), batch_of(labels=torch.tensor([0.0, 1.0, 1.0]))
    assert module.relation_head is not None
    with torch.no_grad():
        module.relation_head.weight.zero_()
        for factor, place in zip((1.0, 2.0, 4.0), (0, 32, 64)):
            module.relation_head.weight[1, place] = factor
        total, count = module(batch)["task"]
        u, v = module.vectors(batch)[:, 0].view(3, 2).T.tolist()
    logits = [a + 2 * b + 4 * abs(a - b) for a, b in zip(u, v)]
    expected = math.log(1 + math.exp(logits[0])) + sum(math.log(1 + math.exp(-logit)) for logit in logits[1:])
    assert float(total) == pytest.approx(expected, rel=1e-5) and count == 3


def test_a_shorter_vector_has_its_own_columns_of_the_head() -> None:
    module, first, second = module_of(), torch.tensor([3.0, 4.0]), torch.tensor([0.0, 1.0])
    assert module.relation_head is not None
    weight = module.relation_head.weight.detach().view(2, 3, 32)[:, :, :2]
    expected = (weight * torch.stack((first, second, (first - second).abs()))).sum((1, 2))
    torch.testing.assert_close(module.scores(torch.stack((first, second))).detach()[0], expected)


def test_the_loss_is_the_mean_over_the_lengths() -> None:
    module, batch = module_of(), batch_of(labels=torch.tensor([0.0, 1.0, 1.0]))
    module.learn(Similarity(loss="softmax", dimensions=(8, 32)))
    with torch.no_grad():
        vectors, logits = module.vectors(batch), module.logits(batch)
        parts = [module.scores(torch.nn.functional.normalize(vectors[:, :length], dim=1)) for length in (8, 32)]
        expected = sum(torch.nn.functional.cross_entropy(part, batch.labels.long(), reduction="sum") for part in parts)
        torch.testing.assert_close(module(batch)["task"][0], expected / 2)
        torch.testing.assert_close(logits, torch.stack(parts[::-1], dim=1))  # whole vectors come first


def test_the_head_can_be_dropped() -> None:
    module = module_of()
    names = set(module.state_dict())
    module.drop_head()
    assert names - set(module.state_dict()) == {"relation_head.weight", "relation_head.bias"}
    assert all(name.startswith("encoder.") for name in module.state_dict())
