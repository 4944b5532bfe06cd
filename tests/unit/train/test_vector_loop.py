"""A distillation of text vectors in the loop: exact resume, metrics, names, and what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.data import NextSentence, NgramMasking, Sampling, Sentences, TwoCrops
from pipeline.config.jobs import Pretrain
from pipeline.config.objective import Contrastive, DistilledVectors, Masked
from pipeline.config.phases import FallingMasks, TwoPhases
from pipeline.config.placement import Placement
from pipeline.config.training import Checkpoints, Evaluation
from pipeline.errors import ConfigError
from pipeline.export.publish import require_kinds
from pipeline.objectives.distilled_vectors import VectorStudent
from pipeline.objectives.table import Pretraining
from pipeline.saved.naming import default_name, identifying_settings
from pipeline.saved.run import settings_of
from pipeline.text.pairs import needed_documents
from pipeline.tracking.curves import learning_curve
from pipeline.train.compiling import compiles
from tests.conftest import CPU, Training
from tests.unit.objectives.test_distilled_vectors import vectors_of


class Taught(Training):
    """The loop with a student whose teacher gives all texts vectors near one another."""

    def module(self, config: Pretrain) -> Pretraining:
        student = super().module(config)
        assert isinstance(student, VectorStudent)
        student.learn_from(lambda texts: 1 + 0.1 * vectors_of(texts))
        return student


@pytest.fixture
def config(tiny_config: Pretrain) -> Pretrain:
    return replace(
        tiny_config,
        objective=DistilledVectors(teacher="teacher", teacher_width=6),
        sampling=Sampling(maximum_length=32, pairs=Sentences(most=3)),
        evaluation=Evaluation(every=6, rows=40),
        steps=12,
    )


def test_a_stopped_run_goes_on_exactly_and_learns(training: Training, config: Pretrain, tmp_path: Path) -> None:
    taught = Taught(corpus=training.corpus, vocabulary=training.vocabulary)
    config = replace(config, checkpoint=Checkpoints(every=5))
    whole: dict[int, dict[str, float]] = {}
    state, module = taught.run(config, tmp_path / "whole", whole)
    with pytest.raises(KeyboardInterrupt):
        taught.run(config, tmp_path / "stopped", {}, stop_at=8)
    continued: dict[int, dict[str, float]] = {}
    again, _ = taught.run(config, tmp_path / "stopped", continued)
    assert again.crc32 == state.crc32 and again.cursor == state.cursor and min(continued) == 6
    for step in range(6, 13):
        assert continued[step]["train/vectors_loss"] == whole[step]["train/vectors_loss"]
        assert continued[step]["train/gradient_norm"] == whole[step]["train/gradient_norm"]
    assert whole[12]["heldout/vectors_loss"] < whole[0]["heldout/vectors_loss"]
    assert state.heldout_loss == whole[12][module.selecting]
    points = {name: {step: metrics[name] for step, metrics in whole.items() if name in metrics} for name in whole[12]}
    assert learning_curve("v", points).axes[0].get_ylabel() == "1 - cosine to the teacher's vector"


def test_objective_and_sentences_go_together(tiny_config: Pretrain, config: Pretrain) -> None:
    with pytest.raises(ConfigError) as told:
        replace(config, sampling=replace(config.sampling, pairs=NextSentence()))
    assert str(told.value) == (
        "objective (distilled-vectors) needs single texts, but sampling.pairs is NextSentence: choose "
        "sampling.pairs:sentences"
    )
    with pytest.raises(
        ConfigError, match="needs single texts, but sampling.pairs is TwoCrops: choose sampling.pairs:s"
    ):
        replace(config, sampling=replace(config.sampling, pairs=TwoCrops()))
    with pytest.raises(ConfigError) as told:
        replace(config, objective=Masked())
    assert str(told.value) == (
        "sampling.pairs (Sentences) makes single texts for objective distilled-vectors, but objective is masked: "
        "choose objective:distilled-vectors, or other sampling.pairs"
    )
    with pytest.raises(ConfigError, match="needs pairs of texts, but sampling.pairs is Sentences"):
        replace(config, objective=Contrastive())
    phases = TwoPhases(maximum_length=32, rows_per_step=16, rows_per_slot=4, masking_share=0.3)
    with pytest.raises(ConfigError, match=r"masking_share \(0\.3\) has no effect with objective distilled-vectors, "):
        replace(config, phases=phases)
    with pytest.raises(
        ConfigError, match=r"^phases \(falling-masks\) has no effect with objective distilled-vectors, "
    ):
        replace(config, phases=FallingMasks(masking_shares=(0.1,)))


def test_what_has_no_masked_token_head_fills_no_blanks(config: Pretrain, tiny_config: Pretrain) -> None:
    message = r"^kinds \(onnx\) need a masked-token head, which a run with objective distilled-vectors does not have: "
    with pytest.raises(ConfigError, match=message):
        require_kinds(("huggingface", "onnx"), config)
    require_kinds(("huggingface", "onnx"), tiny_config)
    with pytest.raises(ConfigError, match="needs a masked-token head, which objective distilled-vectors does not"):
        replace(config, evaluation=Evaluation(blimp="blimp"))


def test_it_is_never_compiled(config: Pretrain) -> None:
    lines: list[str] = []
    assert not compiles(config, 100, CPU, 0, lines.append)
    reason = "objective distilled-vectors calls a teacher in each step, and the teacher cannot be compiled"
    assert lines[0] == f"torch.compile is off ({reason})"
    with pytest.raises(ConfigError, match=f"because {reason}: set"):
        replace(config, placement=Placement(compile="on"))


def test_a_corpus_without_examples_is_told_what_it_needs(config: Pretrain) -> None:
    assert needed_documents(config.sampling) == "sentences of at most sampling.maximum_length (32) - 2 tokens"


def test_the_name_has_the_teacher_and_no_masks(config: Pretrain, tiny_config: Pretrain) -> None:
    masked = replace(config, sampling=replace(config.sampling, masking=NgramMasking()))
    assert default_name("p", masked) == default_name("p", config)
    other = replace(config, objective=replace(config.objective, teacher="other"))
    assert default_name("p", other) != default_name("p", config)
    recorded = identifying_settings(config)
    assert "objective.teacher" not in recorded and "sampling.masking" not in recorded
    assert recorded["objective"] == "DistilledVectors" and recorded["objective.teacher_width"] == 6
    read = settings_of({"identity": recorded, "steps": 12})
    assert read.objective == replace(config.objective, teacher=None) and read.sampling.pairs == config.sampling.pairs
