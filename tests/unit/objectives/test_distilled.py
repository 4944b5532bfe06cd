"""Distillation: terms, counts and weights by hand, the student's start, and a teacher that training leaves alone."""

import math
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from pipeline.config.model import Model
from pipeline.config.objective import Distilled, chosen_layers
from pipeline.config.training import AdamW
from pipeline.errors import ConfigError
from pipeline.evaluation.evaluate import baselines, evaluate
from pipeline.model.flops import TokenCounts
from pipeline.objectives.distilled import DistilledTokens, flops_per_token, start_text, taken_from_teacher
from pipeline.objectives.masked import MaskedTokens
from pipeline.objectives.terms import divisors
from pipeline.optim.build import build_optimizer
from pipeline.train.step import StepContext, backward
from tests.unit.objectives.batches import VOCABULARY_SIZE, make_batch

pytestmark = pytest.mark.usefixtures("one_thread")

TEACHER = Model(layers=3, width=16, heads=4, feed_forward=32, maximum_positions=40)
STUDENT = replace(TEACHER, family="distilbert", layers=2, segments=0)
PLAIN = torch.autocast("cpu", enabled=False)
CPU = torch.device("cpu")


def make_teacher(settings: Model = TEACHER) -> MaskedTokens:
    made = MaskedTokens(replace(settings, initializer_deviation=0.2), VOCABULARY_SIZE, pairs=False)
    return made.train()


def make_student(
    objective: Distilled = Distilled(),  # noqa: B008
    settings: Model = STUDENT,
    teacher: Model = TEACHER,
) -> DistilledTokens:
    torch.manual_seed(0)
    student = DistilledTokens(settings, VOCABULARY_SIZE, objective)
    student.learn_from(make_teacher(teacher))
    return student


def test_counts_are_all_tokens_and_masked_positions() -> None:
    student, batch = make_student().eval(), make_batch([6, 9, 12])
    terms = student(batch)
    assert {name: count for name, (_, count) in terms.items()} == {"soft": 27, "mlm": 9, "cosine": 27}
    assert student.counts(batch) == {"soft": 27, "mlm": 9, "cosine": 27} and tuple(terms) == student.terms
    assert all(total.dtype == torch.float32 and total.shape == () for total, _ in terms.values())
    assert make_student(Distilled(soft_targets="masked")).counts(batch) == {"soft": 9, "mlm": 9, "cosine": 27}


def test_losses_are_those_of_the_paper() -> None:
    student, batch = make_student().eval(), make_batch([6, 9, 12])
    teacher = student.teacher
    hidden_T, taught_T = student.encoder(batch), teacher.encoder(batch)
    own = student.masked_token_head(hidden_T, student.words) / 2
    theirs = teacher.masked_token_head(taught_T, teacher.words) / 2
    soft_T = 4 * (theirs.softmax(1) * (theirs.log_softmax(1) - own.log_softmax(1))).sum(1)
    norms = hidden_T.norm(dim=1) * taught_T.norm(dim=1)
    terms = {name: total for name, (total, _) in student(batch).items()}
    torch.testing.assert_close(terms["soft"], soft_T.sum())
    torch.testing.assert_close(terms["cosine"], (1 - (hidden_T * taught_T).sum(1) / norms).sum())
    logits = 2 * own[batch.masked_positions_M]
    torch.testing.assert_close(terms["mlm"], F.cross_entropy(logits, batch.masked_labels_M, reduction="sum"))
    masked = make_student(Distilled(soft_targets="masked")).eval()
    torch.testing.assert_close(masked(batch)["soft"][0], soft_T[batch.masked_positions_M].sum())


def test_weights_are_the_published_ones_and_a_weight_of_zero_leaves_a_term_out() -> None:
    assert make_student().weights == {"soft": 5.0, "mlm": 2.0, "cosine": 1.0}
    assert divisors({"soft": 10, "mlm": 8, "cosine": 3}, make_student().weights) == {"soft": 2, "mlm": 4, "cosine": 3}
    batch = make_batch([6, 9])
    for objective, terms in (
        (Distilled(cosine_weight=0.0), ["soft", "mlm"]),
        (Distilled(masked_weight=0.0), ["soft", "cosine"]),
        (Distilled(soft_weight=0.0, cosine_weight=0.0), ["mlm"]),
    ):
        student = make_student(objective).eval()
        assert list(student(batch)) == list(student.counts(batch)) == terms
        assert set(student.scores(batch)) == set(student.score_names) == {"mlm", "mlm_accuracy", *terms}


def test_the_teacher_gets_no_gradient_and_stays_in_evaluation_mode() -> None:
    student, batch = make_student(), make_batch([6, 9])
    student.train()
    teacher = student.teacher
    assert not any(part.training for part in teacher.modules()) and student.encoder.training
    before = {name: tensor.clone() for name, tensor in teacher.state_dict().items()}
    assert not any("teacher" in name for name in student.state_dict())
    names = {name for name, _ in student.named_parameters()}
    assert names == {name for name, _ in MaskedTokens(STUDENT, VOCABULARY_SIZE, pairs=False).named_parameters()}
    optimizer = build_optimizer(AdamW(), student)
    compute = StepContext(device=CPU, autocast=PLAIN, seed=0)
    backward(student, [(0, batch)], divisors(student.counts(batch), student.weights), compute, step=0)
    optimizer.step()
    assert all(parameter.grad is not None for parameter in student.parameters())
    assert all(parameter.grad is None for parameter in teacher.parameters())
    assert all(torch.equal(before[name], tensor) for name, tensor in teacher.state_dict().items())


def test_dropout_of_the_student_does_not_depend_on_the_teacher() -> None:
    batch, student = make_batch([6, 9, 12]), make_student().train()

    def masked_loss(teacher: Model) -> float:
        student.learn_from(make_teacher(teacher))
        torch.manual_seed(3)
        return student(batch)["mlm"][0].item()

    assert masked_loss(TEACHER) == masked_loss(replace(TEACHER, layers=1)) != student.eval()(batch)["mlm"][0].item()


# Two ranks of two slots each, one rank of four, and one slot: the sums divided by the counts of the whole step.
@pytest.mark.parametrize("dealt", [[[0, 1, 2, 3]], [[0, 2], [1, 3]], [[0], [1, 2, 3]]])
def test_losses_and_gradients_do_not_depend_on_workers_and_accumulation(dealt: list[list[int]]) -> None:
    batches = [make_batch(lengths, seed) for seed, lengths in enumerate(([6, 9], [12], [3, 3, 20], [7]))]
    whole = make_batch([6, 9, 12, 3, 3, 20, 7])
    student = make_student()
    counts = {term: sum(student.counts(batch)[term] for batch in batches) for term in student.terms}
    assert counts == {"soft": whole.tokens, "mlm": sum(batch.masked for batch in batches), "cosine": whole.tokens}
    compute = StepContext(device=CPU, autocast=PLAIN, seed=0)
    sums: dict[str, float] = dict.fromkeys(student.terms, 0.0)
    for slots in dealt:  # the gradients of the ranks add up, as in an all-reduce
        found = backward(
            student, [(slot, batches[slot]) for slot in slots], divisors(counts, student.weights), compute, step=4
        )
        sums = {term: sums[term] + found[term].item() for term in sums}
    plain = make_student()
    alone = backward(plain, list(enumerate(batches)), divisors(counts, plain.weights), compute, step=4)
    assert sums == pytest.approx({term: total.item() for term, total in alone.items()}, rel=1e-6)
    for (name, one), other in zip(student.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-6, rtol=1e-5, msg=name)


def test_a_student_trains_under_distributed_data_parallel(tmp_path) -> None:
    student, batch = make_student().eval(), make_batch([6, 9])
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        wrapped = DistributedDataParallel(student)
        for _ in range(2):  # the second forward fails where a parameter had no gradient
            sum(total for total, _ in wrapped(batch).values()).backward()
        del wrapped  # before the group, as in test_masked
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.second
def test_a_compiled_student_has_the_same_losses_and_gradients() -> None:
    student, batch = make_student().eval(), make_batch([6, 9, 12])
    compiled = torch.compile(student, dynamic=True, fullgraph=True, backend="aot_eager_decomp_partition")
    found: list[list[torch.Tensor]] = []
    for run in (student, compiled):
        student.zero_grad()
        losses = [total for total, _ in run(batch).values()]
        sum(losses).backward()
        found.append([*losses, *(parameter.grad for parameter in student.parameters())])
    torch.testing.assert_close(found[1], found[0], atol=1e-5, rtol=1e-4)


def test_held_out_scores_have_the_teachers_beside_them() -> None:
    student = make_student()
    batches = [make_batch([40, 30], seed) for seed in range(2)]
    metrics = evaluate(student, batches, world=1, device=CPU, autocast=PLAIN)
    names = {"mlm_loss", "mlm_accuracy", "soft_loss", "cosine_loss"}
    assert set(metrics) == {f"heldout/{name}" for name in names} and student.training
    counts = torch.ones(VOCABULARY_SIZE).numpy()
    found = baselines(student, batches, counts, 1)
    assert found["baseline/unigram_mlm_loss"] == pytest.approx(math.log(VOCABULARY_SIZE))
    theirs = evaluate(student.teacher, batches, world=1, device=CPU, autocast=PLAIN)
    assert found["baseline/teacher_mlm_loss"] == pytest.approx(theirs["heldout/mlm_loss"])
    assert found["baseline/teacher_mlm_accuracy"] == theirs["heldout/mlm_accuracy"]
    same = make_student(settings=TEACHER)  # a student that is its teacher
    same.load_state_dict(same.teacher.state_dict())
    metrics = evaluate(same, batches, world=1, device=CPU, autocast=PLAIN)
    assert metrics["heldout/soft_loss"] == pytest.approx(0, abs=1e-5)
    assert metrics["heldout/cosine_loss"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("student", "teacher", "layers"),
    [
        (6, 12, (0, 2, 4, 7, 9, 11)),  # Sanh et al. 2019: scripts/extract.py of the authors' code
        (3, 6, (0, 2, 5)),
        (1, 2, (0,)),
        (2, 2, (0, 1)),
        (4, 12, (0, 4, 7, 11)),
    ],
)
def test_chosen_layers(student: int, teacher: int, layers: tuple[int, ...]) -> None:
    assert chosen_layers(student, teacher) == layers


def test_a_student_starts_with_what_fits() -> None:
    student = make_student()
    taken = taken_from_teacher(student, student.teacher)
    theirs = student.teacher.state_dict()
    assert taken.keys() == student.state_dict().keys()
    for name, tensor in taken.items():
        assert torch.equal(tensor, theirs[name.replace("layers.1.", "layers.2.")]), name
    assert start_text(student, student.teacher, taken) == (
        "the student starts with these parts of its teacher: layers 0, 2 of 3, masked-token head, norm of the "
        "embeddings, positions of the embeddings, words of the embeddings"
    )
    shorter = make_student(settings=replace(STUDENT, feed_forward=8, maximum_positions=20))
    taken = taken_from_teacher(shorter, shorter.teacher)
    assert {name.split(".layers")[0] for name in taken} == {
        *(f"encoder.embeddings.{name}" for name in ("words.weight", "norm.weight", "norm.bias")),
        *(f"masked_token_head.{name}" for name in ("bias", "dense.weight", "dense.bias", "norm.weight", "norm.bias")),
    }
    assert start_text(shorter, shorter.teacher, taken).endswith(
        "; at random: layers, positions of the embeddings, because sizes or activations differ"
    )


def test_the_layer_of_a_teacher_with_shared_layers_starts_every_layer_of_the_student() -> None:
    albert = replace(TEACHER, family="albert", layers=12, embedding_width=8)
    student = make_student(settings=replace(STUDENT, layers=6), teacher=albert)
    taken, theirs = taken_from_teacher(student, student.teacher), student.teacher.state_dict()
    layers = {name: tensor for name, tensor in taken.items() if ".layers." in name}
    assert layers.keys() == {name for name in student.state_dict() if ".layers." in name}
    for name, tensor in layers.items():
        assert torch.equal(tensor, theirs[re.sub(r"layers\.\d", "layers.0", name)]), name
    assert "layers 0 of 1, " in start_text(student, student.teacher, taken)
    other = make_student(settings=replace(STUDENT, layers=6), teacher=replace(albert, activation="gelu_new"))
    assert not any(".layers." in name for name in taken_from_teacher(other, other.teacher))


def test_operations_of_soft_targets() -> None:
    counted = TokenCounts(tokens=100, squares=1_000, masked=15)
    head = 6 * (16 * 16 + 50 * 16)  # per token with logits
    every, few = (flops_per_token(Distilled(soft_targets=chosen), STUDENT, 50, counted) for chosen in ("all", "masked"))
    assert every - few == pytest.approx(0.85 * head)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: Distilled(temperature=0.0), "objective.temperature (0.0) must be above 0"),
        (lambda: Distilled(soft_weight=-1.0), "objective.soft_weight (-1.0) must be at least 0"),
        (lambda: Distilled(cosine_weight=-1.0), "objective.cosine_weight (-1.0) must be at least 0"),
        (
            lambda: Distilled(soft_weight=0.0, masked_weight=0.0),
            "objective.soft_weight (0) and objective.masked_weight (0) would leave the masked-token head untrained: "
            "set one of them above 0",
        ),
        (
            lambda: Distilled(cosine_weight=1.0).for_widths(64, 128),
            "objective.cosine_weight (1.0) compares hidden states of one width, but model.width is 64 and the "
            "teacher's width is 128: leave objective.cosine_weight out, or set it to 0",
        ),
        (
            lambda: chosen_layers(4, 2),
            "model.layers (4) is more than the 2 layers of the teacher, from which the student starts: lower "
            "model.layers, or set objective.start to random",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: Callable[[], object], said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(said)}$"):
        wrong()


def test_the_cosine_weight_is_one_where_widths_agree() -> None:
    assert Distilled().for_widths(8, 8).cosine_weight == 1.0
    assert Distilled().for_widths(8, 16).cosine_weight == 0.0
    assert Distilled(cosine_weight=0.0).for_widths(8, 16).cosine_weight == 0.0
    assert Distilled(cosine_weight=3.0).for_widths(8, 8).cosine_weight == 3.0
