"""The teacher of a run: what is read of it, what is refused and in what words, resuming, and the run's identity."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pipeline.config.data import FullSentences, VocabularySettings
from pipeline.config.jobs import Pretrain
from pipeline.config.objective import Distilled, Masked, Replaced
from pipeline.config.training import AdamW, Checkpoints
from pipeline.corpus.prepared import Corpus
from pipeline.errors import CheckpointError, ConfigError
from pipeline.objectives.table import Pretraining, build_objective
from pipeline.optim.build import build_optimizer
from pipeline.saved.naming import default_name, identifying_settings
from pipeline.saved.run import settings_of
from pipeline.text.extension import extend_vocabulary
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary
from pipeline.train.checkpoint import State, save
from pipeline.train.run_identity import identity
from pipeline.train.teacher import with_teacher
from tests.conftest import Training

CPU = torch.device("cpu")


def save_model(config: Pretrain, vocabulary: Vocabulary, folder: Path) -> str:
    """A checkpoint of a new model."""
    module = build_objective(
        config.objective, config.sampling, config.model, vocabulary.size, torch.Generator().manual_seed(1)
    )
    return save(str(folder), State(), module, build_optimizer(AdamW(), module), vocabulary)


@pytest.fixture(scope="module")
def unpaired(tiny_config: Pretrain) -> Pretrain:
    return replace(tiny_config, sampling=replace(tiny_config.sampling, pairs=FullSentences()))


@pytest.fixture(scope="module")
def teacher(unpaired: Pretrain, tiny_vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_model(unpaired, tiny_vocabulary, tmp_path_factory.mktemp("teacher"))


@pytest.fixture
def config(unpaired: Pretrain, teacher: str, tmp_path: Path) -> Pretrain:
    """A DistilBERT of one layer that learns from it."""
    model = replace(unpaired.model, family="distilbert", layers=1, segments=0)
    return replace(unpaired, model=model, objective=Distilled(teacher=teacher), output=str(tmp_path / "out"))


def refusal(config: Pretrain, kind: type[Exception] = ConfigError) -> str:
    with pytest.raises(kind) as refused:
        with_teacher(config, None, print)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_settings_are_completed_from_the_teacher(
    config: Pretrain, teacher: str, unpaired: Pretrain, tiny_vocabulary: Vocabulary
) -> None:
    lines: list[str] = []
    found, read = with_teacher(config, None, lines.append)
    assert read.initial.vocabulary == tiny_vocabulary and read.initial.model == unpaired.model
    assert found.vocabulary.path == teacher and found.objective == Distilled(teacher=teacher, cosine_weight=1.0)
    assert lines == [f"objective.teacher: weights of {teacher}, {tiny_vocabulary.size} word embeddings"]
    loaded = read.load(CPU)
    assert not loaded.training and not any(parameter.requires_grad for parameter in loaded.parameters())


def test_a_teacher_that_is_missing_is_refused(config: Pretrain, tmp_path: Path) -> None:
    assert refusal(replace(config, objective=Distilled())) == (
        "objective.teacher is not set: give the model to learn from, such as a run's export or "
        "hf://google-bert/bert-base-uncased"
    )
    nowhere = replace(config, objective=Distilled(teacher=str(tmp_path / "nowhere")))
    assert refusal(nowhere, CheckpointError).startswith(f"objective.teacher {tmp_path}/nowhere has no config.json")


def test_a_teacher_with_another_vocabulary_is_refused_with_both(
    config: Pretrain, teacher: str, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    save_vocabulary(extend_vocabulary(tiny_vocabulary, ["kakaka"]), tmp_path, 32)
    size = tiny_vocabulary.size
    assert re.fullmatch(
        rf"objective\.teacher {teacher} has a vocabulary of {size} entries \(wordpiece, uncased, [0-9a-f]{{8}}\), and "
        rf"{tmp_path} has a vocabulary of {size + 1} entries \(wordpiece, uncased, [0-9a-f]{{8}}\): teacher and "
        r"student need the same vocabulary; leave vocabulary\.path and init out to use the teacher's",
        refusal(replace(config, vocabulary=VocabularySettings(path=str(tmp_path)))),
    )
    (tmp_path / "same").mkdir()
    save_vocabulary(tiny_vocabulary, tmp_path / "same", 32)
    same = replace(config, vocabulary=VocabularySettings(path=str(tmp_path / "same")))
    assert with_teacher(same, None, print)[0].vocabulary == same.vocabulary


def test_a_teacher_without_a_head_is_refused(
    config: Pretrain, unpaired: Pretrain, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    model = replace(unpaired.model, family="electra")
    electra = save_model(replace(unpaired, model=model, objective=Replaced()), tiny_vocabulary, tmp_path)
    said = refusal(replace(config, objective=Distilled(teacher=electra)), CheckpointError)
    assert said == (
        f"objective.teacher {electra} has no masked-token head (generator_lm_head.bias is missing), so it predicts no "
        f"tokens: {electra}/generator has one"
    )
    generator = replace(config, objective=Distilled(teacher=f"{electra}/generator"))
    found, read = with_teacher(generator, None, print)
    assert read.initial.model.family == "electra" and found.objective.cosine_weight == 0.0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda config: replace(config, objective=replace(config.objective, cosine_weight=1.0),
                                   model=replace(config.model, width=64)),
            "objective.cosine_weight (1.0) compares hidden states of one width, but model.width is 64 and the "
            "teacher's width is 32: leave objective.cosine_weight out, or set it to 0",
        ),
        (
            lambda config: replace(config, model=replace(config.model, layers=3)),
            "model.layers (3) is more than the 2 layers of the teacher, from which the student starts: lower "
            "model.layers, or set objective.start to random",
        ),
        (
            lambda config: replace(config, model=replace(config.model, maximum_positions=64),
                                   sampling=replace(config.sampling, maximum_length=48)),
            "sampling.maximum_length (48) must be at most the 32 positions of objective.teacher TEACHER",
        ),
    ],
)  # fmt: skip
def test_a_teacher_that_does_not_fit_is_refused(
    config: Pretrain, teacher: str, change: Callable[[Pretrain], Pretrain], said: str
) -> None:
    assert refusal(change(config)).replace(teacher, "TEACHER") == said


def test_settings_without_effect_are_refused(config: Pretrain, tiny_config: Pretrain) -> None:
    with pytest.raises(ConfigError, match=r"^word_embeddings \(cooccurrence\) cannot be set together with objective "):
        replace(config, word_embeddings="cooccurrence")
    with pytest.raises(ConfigError, match=r"^vocabulary.extend \(5\) cannot be set together with objective distilled"):
        replace(config, init="x", vocabulary=VocabularySettings(extend=5))
    with pytest.raises(
        ConfigError, match=r"^sampling.pairs \(NextSentence\) makes pairs for a head that objective distilled does not"
    ):
        replace(tiny_config, objective=Distilled(teacher="x"))


def test_the_fingerprint_of_the_teacher_identifies_a_run(
    config: Pretrain, tiny_corpus: Corpus, tiny_vocabulary: Vocabulary
) -> None:
    moved = replace(config, objective=replace(config.objective, teacher="/elsewhere"))
    assert identifying_settings(config) == identifying_settings(moved)
    assert default_name("a", config) != default_name("a", moved)
    one, other = (identity(config, tiny_corpus, tiny_vocabulary, {"teacher": digest}) for digest in ("0a", "0b"))
    assert {key for key in one if one[key] != other[key]} == {"teacher.fingerprint"}
    again = settings_of({"identity": one, "steps": config.steps})
    assert again.objective == replace(config.objective, teacher=None) and again.model == config.model
    plain = replace(config, objective=Masked())
    assert "objective.temperature" not in identifying_settings(plain)


class Taught(Training):
    """The loop of a run with a teacher, which starts the student."""

    def module(self, config: Pretrain) -> Pretraining:
        _, teacher = with_teacher(config, None, lambda line: None)
        module = super().module(config)
        module.learn_from(teacher.load(CPU))
        module.start_from_teacher()
        return module


def test_a_stopped_run_goes_on_exactly_as_if_never_stopped(
    config: Pretrain, training: Training, tmp_path: Path
) -> None:
    config = replace(config, steps=6, checkpoint=Checkpoints(every=2))
    taught = Taught(corpus=training.corpus, vocabulary=training.vocabulary)
    whole: dict[int, dict[str, float]] = {}
    _, module = taught.run(config, tmp_path / "whole", whole)
    with pytest.raises(KeyboardInterrupt):
        taught.run(config, tmp_path / "stopped", {}, stop_at=5)
    again: dict[int, dict[str, float]] = {}
    _, resumed = taught.run(config, tmp_path / "stopped", again)
    names = ("train/soft_loss", "train/mlm_loss", "train/cosine_loss", "train/loss", "train/gradient_norm")
    assert sorted(again) == [5, 6]
    for step in again:
        assert [again[step][name] for name in names] == [whole[step][name] for name in names]
    loss = 5 * whole[1]["train/soft_loss"] + 2 * whole[1]["train/mlm_loss"] + whole[1]["train/cosine_loss"]
    assert whole[1]["train/loss"] == pytest.approx(loss)
    for (name, one), other in zip(module.state_dict().items(), resumed.state_dict().values(), strict=True):
        assert torch.equal(one, other), name
