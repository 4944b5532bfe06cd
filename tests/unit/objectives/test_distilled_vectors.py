"""Distillation of text vectors: losses, gradients and baselines by hand, the projection, and checkpoints."""

import re
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from pipeline.batch import StringBatch
from pipeline.config.data import Sampling, Sentences
from pipeline.config.model import Model
from pipeline.config.objective import DistilledVectors
from pipeline.config.training import AdamW
from pipeline.errors import CheckpointError, ConfigError
from pipeline.evaluation.evaluate import baselines, evaluate
from pipeline.export.trained import load_trained
from pipeline.files import storage
from pipeline.model.flops import TokenCounts, encoder_flops
from pipeline.objectives.distilled_vectors import MEAN_LOSS, VectorStudent, described, vector_rows
from pipeline.objectives.table import flops_per_token
from pipeline.optim.build import build_optimizer
from pipeline.text.vocabulary import Vocabulary
from pipeline.train import checkpoint
from tests.unit.objectives.batches import VOCABULARY_SIZE, make_batch, tokens_of

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS = Model(layers=2, width=16, heads=2, feed_forward=32, maximum_positions=40, hidden_dropout=0.1)
CPU, PLAIN = torch.device("cpu"), torch.autocast("cpu", enabled=False)


def vectors_of(texts: Sequence[str], width: int = 6) -> Tensor:
    """Vectors that depend on the text alone."""
    seeds = [int.from_bytes(blake2b(text.encode(), digest_size=4).digest(), "little") for text in texts]
    return torch.stack([torch.randn(width, generator=torch.Generator().manual_seed(seed)) for seed in seeds])


def make_student(width: int | None = 6, settings: Model = SETTINGS, pooling: str = "mean") -> VectorStudent:
    """A student with weights far from where they start, and its teacher."""
    generator = torch.Generator().manual_seed(3)
    objective = DistilledVectors(teacher="t", teacher_width=width, pooling=pooling)
    student = VectorStudent(settings, VOCABULARY_SIZE, objective, generator)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter += torch.empty_like(parameter).normal_(std=0.2, generator=generator)
    student.learn_from(lambda texts: vectors_of(texts, width or settings.width))
    return student


def texts_of(lengths: list[int], seed: int = 0) -> StringBatch:
    texts = tuple(f"text {seed} {number}" for number in range(len(lengths)))
    return StringBatch(**tokens_of(make_batch(lengths, seed)), texts=texts)


def test_losses_and_gradients_by_hand() -> None:
    """The student says (3, 4), which is (0.6, 0.8), for each text; the teacher says (1, 0) and (0, 2)."""
    student, batch = make_student(2).eval(), texts_of([4, 5])
    assert student.dense is not None
    with torch.no_grad():
        student.dense.weight.zero_()
        student.dense.bias.copy_(torch.tensor([3.0, 4.0]))
    student.learn_from(lambda texts: torch.tensor([[1.0, 0.0], [0.0, 2.0]])[: len(texts)])
    (total, count) = student(batch)["vectors"]
    assert (total.item(), count) == (pytest.approx(0.4 + 0.2), 2) and total.dtype == torch.float32
    total.backward()
    # -d cos / d bias = (cos x (0.6, 0.8) - teacher) / 5: (0.36 - 1, 0.48) / 5 and (0.48, 0.64 - 1) / 5
    assert student.dense.bias.grad.tolist() == pytest.approx([(-0.64 + 0.48) / 5, (0.48 - 0.36) / 5])
    found = evaluate(student, [batch], world=1, device=CPU, autocast=PLAIN)
    assert found == {"heldout/vectors_loss": pytest.approx(0.3)}
    # the mean of (1, 0) and (0, 1) has length sqrt(1/2)
    assert baselines(student, [batch], torch.zeros(0).numpy(), 1) == {MEAN_LOSS: pytest.approx(1 - 0.5**0.5)}
    assert baselines(student, [], torch.zeros(0).numpy(), 1) == {}


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_the_vector_is_the_pooled_state_if_widths_agree(pooling: str) -> None:
    student, batch = make_student(None, pooling=pooling).eval(), texts_of([4, 7])
    assert student.dense is None and student.text_layers() == () and student.width == SETTINGS.width
    hidden = student.encoder(batch)
    pooled = [hidden[0], hidden[4]] if pooling == "cls" else [hidden[:4].mean(0), hidden[4:].mean(0)]
    cosines = torch.cosine_similarity(torch.stack(pooled), vectors_of(batch.texts, SETTINGS.width))
    assert student(batch)["vectors"][0].item() == pytest.approx((1 - cosines).sum().item(), rel=1e-6)


def test_the_length_of_vectors_is_not_learnt() -> None:
    student, batch = make_student().eval(), texts_of([4, 7])
    loss = student(batch)["vectors"][0].item()
    student.learn_from(lambda texts: 7 * vectors_of(texts))
    assert student(batch)["vectors"][0].item() == pytest.approx(loss, rel=1e-6)


def test_every_parameter_of_the_student_learns_and_none_of_the_teacher() -> None:
    teacher = torch.nn.Linear(3, 6)
    student, batch = make_student(), texts_of([4, 7])
    student.learn_from(lambda texts: teacher(torch.ones(len(texts), 3)))
    student(batch)["vectors"][0].backward()
    assert all(parameter.grad is not None for parameter in student.parameters()) and teacher.weight.grad is None
    student.learn_from(teacher)
    assert not any(parameter is teacher.weight for parameter in student.parameters())
    assert student.counts(batch) == {"vectors": 2} and student.encoder.pooler is None


def test_a_checkpoint_has_the_projection_as_sentence_transformers_stores_it(tmp_path: Path) -> None:
    vocabulary = Vocabulary(tokens=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(96))), lowercase=True)
    student, other = make_student(), make_student()
    saved = checkpoint.save(
        str(tmp_path), checkpoint.State(step=1), student, build_optimizer(AdamW(), student), vocabulary
    )
    dense = load_file(f"{saved}/2_Dense/model.safetensors")
    assert {name: list(tensor.shape) for name, tensor in dense.items()} == {
        "linear.weight": [6, 16],
        "linear.bias": [6],
    }
    assert storage.read_json(f"{saved}/2_Dense/config.json") == {
        "in_features": 16,
        "out_features": 6,
        "bias": True,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    checkpoint.load(saved, other, None)
    for (name, mine), (_, loaded) in zip(student.named_parameters(), other.named_parameters(), strict=True):
        assert torch.equal(mine, loaded), name
    assert load_trained(saved).module.encoder.settings == SETTINGS
    save_file({"linear.weight": dense["linear.weight"]}, f"{saved}/2_Dense/model.safetensors")
    words = r"2_Dense/model\.safetensors has the tensors {'linear\.weight': \[6, 16\]}, but the model has {"
    with pytest.raises(CheckpointError, match=words):
        checkpoint.load(saved, other, None)


def test_words_of_cards_and_summaries() -> None:
    objective, sampling = DistilledVectors(pooling="cls"), Sampling(pairs=Sentences())
    assert described(objective, sampling) == "distillation of a teacher's text vectors ([CLS] pooling, 1 - cosine)"
    summary = {
        "heldout_before": {"heldout/vectors_loss": 0.95},
        "heldout_after": {"heldout/vectors_loss": 0.25},
        "baselines": {MEAN_LOSS: 0.75},
    }
    assert vector_rows(summary, "") == [
        (
            "held-out vector loss",
            "0.2500 (1 - cosine to the teacher's vector; before training 0.9500, one vector for all texts 0.7500)",
        )
    ]
    assert vector_rows(summary | {"heldout_after": {}}, "") == []
    counted = TokenCounts(tokens=100, squares=1_000, masked=0)
    assert flops_per_token(objective, SETTINGS, 101, counted) == encoder_flops(SETTINGS, counted)


def test_a_width_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=re.escape("objective.teacher_width (0) must be at least 1")):
        DistilledVectors(teacher_width=0)
