"""Contrastive learning: losses and exclusions by hand, blocks, and both passes against the direct graph."""

import math
from dataclasses import replace

import pyarrow as pa
import pytest
import torch
from torch.nn import functional as F

from pipeline.batch import TextsBatch, collate
from pipeline.config.data import AdjacentParagraphs, Sampling
from pipeline.config.model import Model
from pipeline.config.objective import Contrastive
from pipeline.errors import ConfigError
from pipeline.model.flops import TokenCounts, encoder_flops
from pipeline.objectives import contrastive
from pipeline.objectives.contrastive import (
    CHANCE_ACCURACY,
    CHANCE_LOSS,
    ContrastiveTexts,
    described,
    excluded,
    excluded_negatives,
)
from pipeline.text.schema import EXAMPLE
from pipeline.train import step as training_step
from pipeline.train.step import StepContext, backward, seed_dropout
from tests.unit.objectives.batches import VOCABULARY_SIZE

SETTINGS = Model(layers=2, width=16, heads=2, feed_forward=32, maximum_positions=16, hidden_dropout=0.2)
CPU, PLAIN = torch.device("cpu"), torch.autocast("cpu", enabled=False)
AXES = torch.eye(4)


def make_model(
    objective: Contrastive = Contrastive(),  # noqa: B008
    settings: Model = SETTINGS,
    negatives: int = 0,
) -> ContrastiveTexts:
    """A model with weights far from where they start, so that vectors differ."""
    generator = torch.Generator().manual_seed(3)
    module = ContrastiveTexts(settings, VOCABULARY_SIZE, objective, generator, negatives)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += torch.empty_like(parameter).normal_(std=0.2, generator=generator)
    return module.train()


def make_rows(count: int, seed: int = 0, parent: int | None = None, negatives: int = 0) -> TextsBatch:
    """Rows of two random texts of 3 to 9 tokens, each row of another document unless `parent` is given.

    With at most `negatives` hard negatives of 5 tokens per row, row i has i mod (negatives + 1) of them.
    """
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for number in range(count):
        first, second = (torch.randint(3, 10, (2,), generator=generator)).tolist()
        ids = torch.randint(5, VOCABULARY_SIZE, (first + second - 1,), generator=generator).tolist()
        ids[0], ids[first - 1], ids[-1] = 2, 3, 3
        fixed = {"first_length": first, "masked_positions": [], "masked_labels": [], "document_a": 0, "document_b": 0}
        lengths = [5 * (place < number % (negatives + 1)) for place in range(negatives)]
        for _ in filter(None, lengths):
            ids += [*torch.randint(5, VOCABULARY_SIZE, (3,), generator=generator).tolist(), 3]
        of_row = {"negative_lengths": lengths if negatives else None}
        rows.append(fixed | of_row | {"ids": ids, "parent": 1_000 * seed + number if parent is None else parent})
    return collate(pa.Table.from_pylist(rows, schema=EXAMPLE))


def distinct(rows: int) -> torch.Tensor:
    """Keys of rows that have nothing in common."""
    return torch.arange(3 * rows).view(rows, 3)


def texts(*rows: tuple[int, int]) -> torch.Tensor:
    """Vectors along axes: a text is the number of its axis."""
    return torch.stack([torch.stack([AXES[a], AXES[b]]) for a, b in rows]).requires_grad_()


def test_losses_and_gradients_by_hand() -> None:
    """Three rows at temperature 1: the first text 0 finds 1, 2, 0 among the second texts with similarity 0, 0, 1.

    Row 0 is (0, 1), row 1 is (1, 2), row 2 is (2, 0). Each first text has similarity 1 with one wrong text and 0 with
    the right one, and so has each second text: every loss is ln(e + 2), both ways.
    """
    module = make_model(Contrastive(temperature=1.0))
    losses, gradient = module.losses_and_gradients(texts((0, 1), (1, 2), (2, 0)), distinct(3), 3)
    assert losses.tolist() == pytest.approx([math.log(math.e + 2)] * 3, rel=1e-6)
    # Text 0 as a first text: its softmax is 1 / (e + 2) for the right text 1, e / (e + 2) for 0 and 1 / (e + 2) for 2.
    # d/d text = (sum of p times the texts - the right text) / 3 rows / 2 directions; and as much as a candidate.
    p, q = math.e / (math.e + 2), 1 / (math.e + 2)
    assert gradient[0, 0].tolist() == pytest.approx([2 * p / 6, 2 * (q - 1) / 6, 2 * q / 6, 0.0], abs=1e-7)
    sharper, _ = make_model(Contrastive(temperature=0.5)).losses_and_gradients(
        texts((0, 1), (1, 2), (2, 0)), distinct(3), 3
    )
    assert sharper.tolist() == pytest.approx([math.log(math.e**2 + 2)] * 3, rel=1e-6)


def test_attention_pools_with_the_softmax_of_learned_scores() -> None:
    batch, module = make_rows(4), make_model(Contrastive(pooling="attention")).eval()
    assert module.attention is not None and module.attention.weight.abs().min() > 0
    texts = list(zip(batch.offsets.tolist(), batch.offsets.tolist()[1:]))
    hidden_T = module.encoder(batch)
    shares = [(hidden_T[start:end] @ module.attention.weight[0]).softmax(0) for start, end in texts]
    means = torch.stack([share @ hidden_T[start:end] for share, (start, end) in zip(shares, texts)])
    torch.testing.assert_close(module(batch).view(8, -1), F.normalize(means, dim=1))
    module(batch).sum().backward()
    assert module.attention.weight.grad is not None and module.attention.weight.grad.norm() > 1e-4
    with torch.no_grad():
        module.attention.weight.zero_()  # equal scores are the mean
        means = torch.stack([hidden_T[start:end].mean(0) for start, end in texts])
        torch.testing.assert_close(module(batch).view(8, -1), F.normalize(means, dim=1))
    words = described(Contrastive(pooling="attention"), Sampling(pairs=AdjacentParagraphs()))
    assert words == "contrastive learning on adjacent paragraphs (attention pooling, temperature 0.05)"


def test_equal_texts_and_texts_of_one_document_are_not_compared_by_hand() -> None:
    """Rows (10, 11), (12, 10), (13, 11), (14, 15) and (16, 17) of the documents 1, 2, 3, 3 and 4."""
    keys = torch.tensor([[10, 11, 1], [12, 10, 2], [13, 11, 3], [14, 15, 3], [16, 17, 4]])
    wrong = [[0, 1, 1, 0, 0], [1, 0, 0, 0, 0], [1, 0, 0, 1, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]]
    assert excluded(keys, slice(0, 5)).int().tolist() == wrong
    assert excluded(keys, slice(2, 4)).int().tolist() == wrong[2:4]
    # Row 0 chooses among 3 texts at similarity 0: ln 3. Row 4 chooses among 5.
    module, apart = make_model(Contrastive(temperature=1.0)), torch.zeros(5, 2, 4)
    losses, _ = module.losses_and_gradients(apart, keys, 5)
    assert losses.tolist() == pytest.approx([math.log(n) for n in (3, 4, 3, 4, 5)], rel=1e-6)
    chance = module.baselines(keys)
    assert chance[CHANCE_LOSS] == pytest.approx(losses.mean().item(), rel=1e-6)
    assert chance[CHANCE_ACCURACY] == pytest.approx((2 / 3 + 2 / 4 + 1 / 5) / 5)
    assert module.baselines(keys[:0]) == {}


def test_losses_with_hard_negatives_by_hand() -> None:
    """Rows (0, 0) with negative 1, and (2, 2) without, at temperature 1; the negative is a candidate of both rows.

    First text 0 has similarity 1 with its own second text, 0 with the other and 0 with the negative: ln(e + 2) - 1.
    First text 2 has the same. Second texts choose among two first texts: ln(e + 1) - 1.
    """
    module = make_model(Contrastive(temperature=1.0), negatives=1)
    vectors = torch.stack([torch.stack([AXES[0], AXES[0], AXES[1]]), torch.stack([AXES[2], AXES[2], 0 * AXES[3]])])
    keys = torch.tensor([[1, 2, 9, 3], [4, 5, 8, 0]])
    losses, gradient = module.losses_and_gradients(vectors, keys, 2)
    loss = (math.log(math.e + 2) + math.log(math.e + 1)) / 2 - 1
    assert losses.tolist() == pytest.approx([loss] * 2, rel=1e-6)
    # the negative: its softmax is 1 / (e + 2) for each first text, over 2 rows and 2 directions
    share = 1 / (math.e + 2) / 4
    assert gradient[0, 2].tolist() == pytest.approx([share, 0, share, 0], abs=1e-7)
    assert gradient[1, 2].tolist() == [0] * 4
    near = torch.stack([torch.stack([AXES[0], AXES[1], AXES[0]]), vectors[1]])
    assert module.scores(near, keys)["contrastive_accuracy"] == (0.5 + 1, 2)
    assert module.baselines(keys)[CHANCE_LOSS] == pytest.approx((math.log(3) + math.log(2)) / 2, rel=1e-6)


def test_known_answers_are_no_hard_negatives_by_hand() -> None:
    """Rows (10, 11), (12, 13) and (10, 14), and (15, 16) of the parent of (12, 13); rows 0 and 2 share a text.

    Of the negatives 14 and 13 of row 1, 14 is a second text of row 2, which has the first text of row 0. 13 is the
    second text of row 1 itself, whose parent is that of row 3. Row 0 has the negative 17, and row 3 has 10.
    """
    keys = torch.tensor([[10, 11, 1, 17, 0], [12, 13, 2, 14, 13], [10, 14, 3, 0, 0], [15, 16, 2, 10, 0]])
    wrong = [
        [0, 1, 1, 0, 1, 1, 1, 1],
        [0, 1, 0, 1, 1, 1, 0, 1],
        [0, 1, 1, 0, 1, 1, 1, 1],
        [0, 1, 0, 1, 1, 1, 0, 1],
    ]
    assert excluded_negatives(keys, slice(0, 4)).int().tolist() == wrong
    assert excluded_negatives(keys, slice(1, 3)).int().tolist() == wrong[1:3]


def test_keys_of_a_batch_exclude_what_is_equal() -> None:
    batch = make_rows(3)
    twice = collate_twice(batch)
    assert excluded(twice.keys, slice(0, 6)).sum() == 6  # each row and its copy
    assert excluded(make_rows(3, parent=7).keys, slice(0, 3)).sum() == 6  # all but each row itself


def collate_twice(batch: TextsBatch) -> TextsBatch:
    """Keys of the same rows twice, from other documents."""
    copy = batch.keys + torch.tensor([0, 0, 10**6])
    return replace(batch, keys=torch.cat((batch.keys, copy)))


def test_scores_by_hand() -> None:
    """Rows (0, 0) and (1, 1) find each other; rows (2, 3) and (3, 2) find the other row."""
    module = make_model(Contrastive(temperature=1.0))
    sums = module.scores(texts((0, 0), (1, 1), (2, 3), (3, 2)).detach(), distinct(4))
    assert sums["contrastive_accuracy"] == (2.0, 4)
    right, wrong = math.log(math.e + 3) - 1, math.log(math.e + 3)
    assert sums["contrastive"] == (pytest.approx(2 * right + 2 * wrong, rel=1e-6), 4)
    assert module.heldout(sums)["contrastive_accuracy"] == 0.5


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    module, generator = make_model(), torch.Generator().manual_seed(0)
    vectors = F.normalize(torch.randn(11, 2, 8, generator=generator), dim=2)
    keys = distinct(11)
    keys[7, 1] = keys[2, 0]
    whole = module.losses_and_gradients(vectors, keys, 11), module.baselines(keys)
    monkeypatch.setattr(contrastive, "BLOCK_ROWS", 4)
    parts = module.losses_and_gradients(vectors, keys, 11), module.baselines(keys)
    torch.testing.assert_close(parts[0], whole[0], atol=1e-6, rtol=1e-6)
    assert parts[1] == pytest.approx(whole[1])


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_are_the_pooled_states(pooling: str) -> None:
    module, batch = make_model(Contrastive(pooling=pooling)).eval(), make_rows(2)
    hidden_T, bounds = module.encoder(batch), batch.offsets.tolist()
    found = module(batch)
    assert found.shape == (2, 2, 16) and found.dtype == torch.float32
    for number, (start, end) in enumerate(zip(bounds[:-1], bounds[1:], strict=True)):
        state = hidden_T[start] if pooling == "cls" else hidden_T[start:end].mean(0)
        torch.testing.assert_close(found.view(4, 16)[number], state / state.norm(), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("negatives", [0, 2])
def test_two_passes_have_the_gradient_of_the_direct_graph_with_dropout(negatives: int) -> None:
    """Three slots of 4, 1 and 3 rows, with the dropout of each slot; with negatives, row i has i mod 3 of them."""
    slots = [(n, make_rows(rows, n + 1, negatives=negatives)) for n, rows in enumerate((4, 1, 3))]
    module, compute = make_model(negatives=negatives), StepContext(device=CPU, autocast=PLAIN, seed=5)
    sums = backward(module, slots, {"contrastive": 8}, compute, step=9)
    found = {name: parameter.grad for name, parameter in module.named_parameters()}
    module.zero_grad()
    vectors = []
    for slot, batch in slots:
        seed_dropout(5, 9, slot)
        vectors.append(module(batch))
    texts, given = torch.cat(vectors), torch.cat([batch.keys[:, 3:] != 0 for _, batch in slots])
    a, b, wrong = texts[:, 0], texts[:, 1], texts[:, 2:][given]
    assert len(wrong) == (6 if negatives else 0)  # 0 + 1 + 2 + 0 of the first slot, 0, and 0 + 1 + 2
    right, similarity = torch.arange(8), a @ torch.cat((b, wrong)).T / 0.05
    loss = (F.cross_entropy(similarity, right) + F.cross_entropy(similarity[:, :8].T, right)) / 2
    loss.backward()
    assert sums["contrastive"].item() / 8 == pytest.approx(loss.item(), rel=1e-6)
    direct = torch.cat([parameter.grad.flatten() for parameter in module.parameters()])
    assert (torch.cat([grad.flatten() for grad in found.values()]) - direct).norm() / direct.norm() < 1e-6
    other = backward(make_model(negatives=negatives), slots, {"contrastive": 8}, compute, step=10)
    assert other["contrastive"] != sums["contrastive"]


def test_other_dropout_in_the_second_pass_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_step, "seed_dropout", lambda *_: None)  # each pass draws its own dropout
    slots, compute = [(0, make_rows(4))], StepContext(device=CPU, autocast=PLAIN, seed=5)
    with pytest.raises(ConfigError, match=r"^the two passes .* different dropout on this device: set model"):
        backward(make_model(), slots, {"contrastive": 4}, compute, step=0)
    backward(make_model(), slots, {"contrastive": 4}, compute, step=1)  # only the first step is checked


def test_the_plan_counts_vectors_and_similarities_by_hand() -> None:
    """4 x 4 bytes x 2 x 2,048 rows x width 64, and 4 x 4 bytes x 1,024 x 2,048 similarities: 4.2 and 33.6 MB."""
    assert contrastive.vectors_text(2_048, 64) == (
        "38 MB per GPU besides a slot (estimated): the vectors of 2,048 rows and their gradients, and the similarities "
        "of 1,024 rows at a time"
    )


def test_counts_operations_and_words() -> None:
    counted = TokenCounts(tokens=100, squares=1_000, masked=0)
    ours, once = contrastive.flops_per_token(Contrastive(), SETTINGS, 50, counted), encoder_flops(SETTINGS, counted)
    assert ours == pytest.approx(once * 4 / 3)  # two forward passes and a backward of two, against one and two
    assert make_model().counts(make_rows(3)) == {"contrastive": 3}
    said = described(Contrastive(pooling="cls"), Sampling(pairs=AdjacentParagraphs()))
    assert said == "contrastive learning on adjacent paragraphs ([CLS] pooling, temperature 0.05)"
    with pytest.raises(ConfigError, match=r"objective.temperature \(0.0\) must be above 0"):
        Contrastive(temperature=0.0)
