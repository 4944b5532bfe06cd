"""Losses of matching texts by hand, and the step that its slots add up to."""

import math

import pyarrow as pa
import pytest
import torch

from pipeline.batch import collate_labelled
from pipeline.config.cutting import Truncation
from pipeline.config.model import Model
from pipeline.config.similarity import Similarity
from pipeline.config.training import TaskAdamW
from pipeline.finetune.trial import train_on_slots
from pipeline.objectives.matching import MatchingTask, contrastive, triplet
from pipeline.optim.build import build_optimizer
from pipeline.tasks import matching
from pipeline.tasks.schema import MATCHES
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.step import StepContext

SETTINGS = Model(
    layers=2, width=32, heads=2, feed_forward=64, maximum_positions=16, hidden_dropout=0.0, attention_dropout=0.0
)
WORDS = ("red", "green", "blue", "grey")
VOCABULARY = Vocabulary(tokens=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS), lowercase=True)
ROWS = [("red", "red green", ["blue grey"]), ("blue", "blue blue", []), ("grey", "green", ["red", "blue"])]


def rows() -> pa.Table:
    names = ("first", "second", "negatives")
    items = pa.Table.from_pylist([{"id": "1", "label": None} | dict(zip(names, row)) for row in ROWS], schema=MATCHES)
    task = Task(name="s", kind="matching", metrics=("match_accuracy",))
    return matching.prepare(task, items, VOCABULARY, Truncation(maximum_length=8)).rows


def module_of(settings: Similarity) -> MatchingTask:
    module = MatchingTask(SETTINGS, VOCABULARY.size, torch.Generator().manual_seed(1))
    module.learn(settings)
    return module.train()


def step(module: MatchingTask, parts: list[pa.Table], rate: float = 1e-3) -> tuple[float, float]:
    """The loss and the count of a step with these slots."""
    compute = StepContext(device=torch.device("cpu"), autocast=torch.autocast("cpu", enabled=False), seed=0)
    slots = [(number, collate_labelled(part.combine_chunks())) for number, part in enumerate(parts)]
    optimizer = build_optimizer(TaskAdamW(learning_rate=rate), module)
    loss, count = train_on_slots(slots, module, optimizer, compute, step=0, rate=rate, clip_norm=1.0)
    return float(loss), float(count)


def softplus(value: float) -> float:
    return math.log(1 + math.exp(value))


def test_contrastive_by_hand() -> None:
    """Cosines of first (rows) and second texts (columns): 1, 0.6; 0, 0.8."""
    texts = torch.tensor([[[1.0, 0.0], [3.0, 0.0]], [[0.0, 2.0], [0.6, 0.8]]])
    settings = Similarity(loss="contrastive", temperature=0.5)
    keys = torch.tensor([[1, 2, 0], [3, 4, 1]])
    there = softplus((0.6 - 1) / 0.5) + softplus((0 - 0.8) / 0.5)
    back = softplus((0 - 1) / 0.5) + softplus((0.6 - 0.8) / 0.5)
    assert float(contrastive(texts, keys, settings)) == pytest.approx((there + back) / 2, rel=1e-6)
    # rows with an equal text are not compared
    assert float(contrastive(texts, torch.tensor([[1, 2, 0], [3, 2, 1]]), settings)) == 0


def test_negative_texts_are_candidates_of_first_texts() -> None:
    texts = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]]])
    settings = Similarity(loss="contrastive", temperature=1.0)
    found = contrastive(texts, torch.tensor([[1, 2, 0, 3, 0]]), settings)
    assert float(found) == pytest.approx(softplus(1) / 2, rel=1e-6)  # the second text has no other candidate
    assert float(contrastive(texts, torch.tensor([[1, 2, 0, 2, 0]]), settings)) == 0


def test_triplet_by_hand() -> None:
    """The match is at distance 5, the negative texts at 1 and 10; the third one is missing."""
    texts = torch.tensor([[[0.0, 0.0], [3.0, 4.0], [0.0, 1.0], [6.0, 8.0], [0.0, 0.0]]])
    keys, settings = torch.tensor([[1, 2, 0, 3, 4, 0]]), Similarity(loss="triplet", margin=2.0)
    assert float(triplet(texts, keys, settings)) == pytest.approx(5 - 1 + 2, rel=1e-5)
    wide = Similarity(loss="triplet", margin=7.0)
    assert float(triplet(texts, keys, wide)) == pytest.approx((5 - 1 + 7) + (5 - 10 + 7), rel=1e-5)


def test_slots_of_a_step_add_up_to_the_step_for_triplets() -> None:
    found = []
    for parts in ([rows()], [rows().slice(0, 1), rows().slice(1)]):
        module = module_of(Similarity(loss="triplet"))
        found.append((step(module, parts), module.state_dict()))
    assert found[1][0][0] == pytest.approx(found[0][0][0], rel=1e-5) and found[0][0][1] == found[1][0][1] == 3
    for name, tensor in found[0][1].items():
        torch.testing.assert_close(found[1][1][name], tensor, rtol=1e-3, atol=2e-5, msg=name)


@pytest.mark.parametrize("loss", ["contrastive", "triplet"])
def test_training_brings_matches_together(loss: str) -> None:
    module = module_of(Similarity(loss=loss))
    losses = [step(module, [rows()], rate=5e-3) for _ in range(8)]
    assert losses[-1][0] < 0.7 * losses[0][0]
    assert losses[0][1] == {"contrastive": 3, "triplet": 3}[loss]
