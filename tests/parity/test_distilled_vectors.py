"""The export of a student with a projection, as sentence-transformers reads and writes it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline import api
from pipeline.batch import Batch, StringBatch
from pipeline.config.data import Sampling, Sentences
from pipeline.config.jobs import Pretrain
from pipeline.config.objective import DistilledVectors
from pipeline.config.training import AdamW
from pipeline.corpus.prepared import Corpus
from pipeline.embed.model import digest_of
from pipeline.errors import DataError
from pipeline.export.card import Lineage
from pipeline.export.huggingface import export
from pipeline.export.inference import encode
from pipeline.objectives.distilled_vectors import VectorStudent
from pipeline.optim.build import build_optimizer
from pipeline.saved.run import record
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.checkpoint import State, save
from pipeline.train.run_identity import identity
from tests.conftest import text_of
from tests.unit.objectives.batches import tokens_of

sentence_transformers = pytest.importorskip("sentence_transformers")

TEXTS = [text_of(number)[:60] for number in range(9)]


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_of_an_export_are_those_of_sentence_transformers(
    tiny_config: Pretrain, tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tmp_path: Path, pooling: str
) -> None:
    objective = DistilledVectors(teacher_width=12, pooling=pooling)
    config = replace(tiny_config, objective=objective, sampling=Sampling(maximum_length=32, pairs=Sentences()))
    generator = torch.Generator().manual_seed(6)
    student = VectorStudent(config.model, tiny_vocabulary.size, objective, generator)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter += torch.empty_like(parameter).normal_(std=0.1, generator=generator)
    saved = save(str(tmp_path / "run"), State(step=7), student, build_optimizer(AdamW(), student), tiny_vocabulary)
    recorded = record(identity(config, tiny_corpus, tiny_vocabulary, {"teacher": "f" * 64}), 7, "0" * 32, "/gone")
    summary = {"teacher": "hf://owner/name", "steps": 8}
    lineage = Lineage(name="vectors", recorded=recorded, summary=summary, corpus=DataError("/gone is gone"))
    folder = str(tmp_path / "export")
    assert export(saved, folder, lineage) == "checked: hidden states equal transformers' within 1e-05 of the largest"
    theirs, ours = sentence_transformers.SentenceTransformer(folder, device="cpu"), api.load(folder)
    vectors = theirs.encode(TEXTS)
    assert vectors.shape == (9, 12) and ours.dimension == 12
    np.testing.assert_allclose(ours.embed(TEXTS), vectors, rtol=0, atol=1e-5)
    batch = encode(TEXTS, ours.embedding_tokenizer, tiny_vocabulary.mask_id)
    assert losses(student.eval(), batch, torch.from_numpy(vectors)) == pytest.approx(0, abs=1e-5)
    theirs.save_pretrained(str(tmp_path / "theirs"))
    read = api.load(str(tmp_path / "theirs"))
    np.testing.assert_allclose(read.embed(TEXTS), vectors, rtol=0, atol=1e-5)
    assert read.recipe.projection is not None
    with torch.no_grad():
        before = digest_of(read)
        read.recipe.projection.bias += 1
    assert digest_of(read) != before
    card = (tmp_path / "export" / "README.md").read_text()
    assert "pipeline_tag: sentence-similarity" in card and "(the teacher is hf://owner/name)" in card
    assert "It learnt to imitate its teacher's vectors" in card and ", projected, scaled to length 1" in card


def losses(student: VectorStudent, batch: Batch, teacher: torch.Tensor) -> float:
    """The loss of a batch whose teacher's vectors are given."""
    student.learn_from(lambda texts: teacher)
    return student(StringBatch(**tokens_of(batch), texts=tuple(TEXTS)))["vectors"][0].item()
