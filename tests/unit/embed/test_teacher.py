"""The teacher of text vectors: another vocabulary, what is completed and reported, and what is refused in one line."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from pipeline import api
from pipeline.batch import collate
from pipeline.config.data import Sentences
from pipeline.config.embed import Embed
from pipeline.config.jobs import Pretrain
from pipeline.config.objective import DistilledVectors
from pipeline.corpus.prepared import Corpus, read_window
from pipeline.embed.model import describe_on_cpu, load_described
from pipeline.embed.teacher import with_vector_teacher
from pipeline.errors import CheckpointError, ConfigError
from pipeline.export.sentence_files import sentence_files
from pipeline.objectives.distilled_vectors import VectorStudent
from pipeline.saved.checkpoints import folder_of
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.examples import make_examples
from pipeline.text.training import train_vocabulary
from tests.conftest import CPU, text_of


@pytest.fixture
def config(tiny_config: Pretrain, tiny_run: Path) -> Pretrain:
    sampling = replace(tiny_config.sampling, pairs=Sentences(most=2))
    return replace(tiny_config, objective=DistilledVectors(teacher=str(tiny_run)), sampling=sampling)


def refusal(config: Pretrain, kind: type[Exception]) -> str:
    with pytest.raises(kind) as refused:
        with_vector_teacher(config, print)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_student_of_another_vocabulary_learns_the_vectors_that_embed_computes(
    config: Pretrain, tiny_run: Path, tiny_corpus: Corpus
) -> None:
    lines: list[str] = []
    found, teacher = with_vector_teacher(config, lines.append)
    assert teacher is not None and isinstance(found.objective, DistilledVectors)
    assert found.objective.teacher_width == 32 and found == replace(config, objective=found.objective)
    assert lines == [
        f"objective.teacher: vectors of {tiny_run}, 32 numbers, mean pooling, reads at most 32 tokens of a text"
    ]
    vocabulary = train_vocabulary(map(text_of, range(30)), size=90, lowercase=True)
    documents = pa.table(read_window(tiny_corpus, tiny_corpus.train[0]))
    examples = make_examples(documents, CachedTokenizer(vocabulary), config.sampling, seed=0, epoch=0, window=0)
    batch = collate(examples.slice(0, 9))
    embed = Embed(checkpoint=str(tiny_run), input="i", output="o")
    wanted = load_described(describe_on_cpu(embed), embed).vectors(batch.texts)
    np.testing.assert_allclose(teacher.load(CPU)(batch.texts).numpy(), wanted, rtol=0, atol=1e-6)
    student = VectorStudent(config.model, vocabulary.size, found.objective, torch.Generator().manual_seed(0)).eval()
    student.learn_from(teacher.load(CPU))
    hidden, bounds = student.encoder(batch), batch.offsets.tolist()
    pooled = torch.stack([hidden[start:end].mean(0) for start, end in zip(bounds, bounds[1:])])
    cosines = torch.cosine_similarity(pooled, torch.from_numpy(wanted))
    assert student(batch)["vectors"][0].item() == pytest.approx((1 - cosines).sum().item(), rel=1e-5)


def test_prompts_and_widths_are_reported_and_are_part_of_the_identity(config: Pretrain) -> None:
    lines: list[str] = []
    prompted = replace(config, objective=replace(config.objective, teacher_prompt="query: "))
    wider = replace(prompted, model=replace(config.model, width=16))
    found, teacher = with_vector_teacher(wider, lines.append)
    assert lines[0].endswith(", prompt 'query: '; a linear layer maps the student's 16 numbers to these")
    plain = with_vector_teacher(config, print)[1]
    assert teacher is not None and plain is not None and teacher.fingerprint != plain.fingerprint
    assert plain.fingerprint == with_vector_teacher(config, print)[1].fingerprint  # ty: ignore[unresolved-attribute]
    both = teacher.load(CPU)(["abc"]), plain.load(CPU)(["query: abc"])
    assert torch.equal(*both)


def test_a_teacher_that_is_missing_or_no_embedding_model_is_refused(
    config: Pretrain, tiny_run: Path, tmp_path: Path
) -> None:
    assert refusal(replace(config, objective=DistilledVectors()), ConfigError) == (
        "objective.teacher is not set: give the embedding model to learn from, such as "
        "hf://sentence-transformers/all-MiniLM-L6-v2"
    )
    nowhere = replace(config, objective=DistilledVectors(teacher=str(tmp_path / "nowhere")))
    assert refusal(nowhere, ConfigError).startswith(f"objective.teacher {tmp_path}/nowhere does not exist: give")
    (tmp_path / "empty").mkdir()
    empty = replace(config, objective=DistilledVectors(teacher=str(tmp_path / "empty")))
    assert refusal(empty, CheckpointError).startswith(f"objective.teacher {tmp_path}/empty has no config.json")
    shutil.copytree(folder_of(str(tiny_run), 3), tmp_path / "plain")
    plain = replace(config, objective=DistilledVectors(teacher=str(tmp_path / "plain")))
    assert refusal(plain, CheckpointError) == (
        f"objective.teacher {tmp_path}/plain has no modules.json, so it does not say how a text becomes a vector: give "
        "an embedding model in the format of sentence-transformers"
    )


def test_another_width_than_the_teachers_is_refused(config: Pretrain, tiny_run: Path) -> None:
    wrong = replace(config, objective=replace(config.objective, teacher_width=24))
    assert refusal(wrong, ConfigError) == (
        f"objective.teacher_width (24) must be the dimension of the vectors of objective.teacher {tiny_run} (32): "
        "leave objective.teacher_width out"
    )


def test_a_teacher_that_changed_is_refused_by_the_workers(config: Pretrain, tiny_run: Path) -> None:
    _, teacher = with_vector_teacher(config, print)
    assert teacher is not None
    older = replace(teacher.description, checkpoint=folder_of(str(tiny_run), 2))
    words = rf"^objective\.teacher {older.checkpoint} has changed since the run began: its digest is \w{{16}}, and was "
    with pytest.raises(CheckpointError, match=words):
        replace(teacher, description=older).load(CPU)
    assert api.load(str(tiny_run)).dimension == 32


def test_a_worker_whose_teacher_has_another_recipe_or_lacks_it_stops(
    config: Pretrain, tiny_run: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "teacher"
    shutil.copytree(folder_of(str(tiny_run), 3), folder)
    for name, content in sentence_files(32, 24).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    _, teacher = with_vector_teacher(replace(config, objective=DistilledVectors(teacher=str(folder))), print)
    assert teacher is not None and teacher.load(CPU)(["kar"]).shape == (1, 32)
    for files, words in (
        (sentence_files(32, 24, "cls"), "its pooling is cls, and was mean; restore its files, or start under another"),
        (sentence_files(32, 16), "its maximum length is 16, and was 24; restore its files"),
    ):
        for name, content in files.items():
            (folder / name).write_text(content)
        with pytest.raises(CheckpointError) as told:
            teacher.load(CPU)
        assert str(told.value).startswith(f"objective.teacher {folder} has changed since the run began: {words}")
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError) as told:
        teacher.load(CPU)
    assert str(told.value).startswith(f"objective.teacher {folder} does not exist: ")
    assert str(told.value).endswith("; every worker must be able to read objective.teacher")


def test_a_prompt_that_the_teacher_cannot_use_is_refused(config: Pretrain) -> None:
    named = replace(config, objective=replace(config.objective, teacher_prompt="query"))
    assert refusal(named, ConfigError).startswith(
        "objective.teacher_prompt: prompt (query) is not the name of a prompt of the model ("
    )
    long = replace(config, objective=replace(config.objective, teacher_prompt="kar " * 40))
    assert refusal(long, ConfigError).startswith("objective.teacher_prompt: prompt ('kar kar")
