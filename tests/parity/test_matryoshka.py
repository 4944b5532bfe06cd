"""Losses of truncated vectors against MatryoshkaLoss of sentence-transformers, and the vectors that it truncates."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from pipeline import api
from pipeline.batch import collate_labelled
from pipeline.config.cutting import Truncation
from pipeline.config.similarity import Similarity
from pipeline.export.tuned_card import tuned_files
from pipeline.fine_tuned.tuned import About, save_tuned
from pipeline.objectives.matching import MatchingTask
from pipeline.objectives.similarity import SimilarityTask
from pipeline.tasks import matching, similarity
from pipeline.tasks.metrics.lengths import with_lengths
from pipeline.tasks.schema import MATCHES, TEXTS
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary
from tests.parity.test_matching_task import LOSSES, MODEL, ROWS, assert_gradients_equal, losses, without_scaling

LENGTHS, CUTTING = (8, 16, 32), Truncation(maximum_length=32)
TASK = with_lengths(Task(name="mine", kind="similarity", metrics=("spearman",), paired=True), LENGTHS[:-1])
SCORES = [0.0, 1.0, 0.25, 0.5]
PEERS = LOSSES | {
    "triplet": lambda peer: losses.TripletLoss(peer, triplet_margin=0.5),
    "cosent": losses.CoSENTLoss,
    "cosine": losses.CosineSimilarityLoss,
}


def batch_and_texts(loss: str, vocabulary: Vocabulary) -> tuple:
    """The rows as our batch, and as columns of texts."""
    columns = [[row[0] for row in ROWS], [row[1] for row in ROWS], [row[2][0] for row in ROWS]]
    if loss in LOSSES:
        items = [{"id": "1", "first": a, "second": b, "label": None, "negatives": far} for a, b, far in ROWS]
        task = Task(name="mine", kind="matching", metrics=("match_accuracy",))
        rows = matching.prepare(task, pa.Table.from_pylist(items, schema=MATCHES), vocabulary, CUTTING).rows
        return collate_labelled(rows.combine_chunks()), columns
    scored = [{"id": "1", "first": a, "second": b, "label": str(s)} for (a, b, _), s in zip(ROWS, SCORES)]
    rows = similarity.prepare(TASK, pa.Table.from_pylist(scored, schema=TEXTS), vocabulary, CUTTING).rows
    return collate_labelled(rows.combine_chunks()), columns[:2]


@pytest.mark.parametrize("loss", PEERS)
def test_loss_and_gradients_equal_theirs(loss: str, tiny_vocabulary: Vocabulary, tmp_path: Path) -> None:
    kind, folder = MatchingTask if loss in LOSSES else SimilarityTask, str(tmp_path / "m")
    module = kind(MODEL, tiny_vocabulary.size, torch.Generator().manual_seed(5))
    about = About(task=TASK, cutting=CUTTING, pooling="mean", thresholds={}, lineage={})
    save_tuned(folder, module, about, MODEL, tiny_vocabulary, beside=tuned_files(about, MODEL))
    settings = Similarity(loss=loss, dimensions=LENGTHS, margin=0.5 if loss == "triplet" else Similarity.margin)
    module.learn(settings, *((0.0, 1.0) if kind is SimilarityTask else ()))
    batch, columns = batch_and_texts(loss, tiny_vocabulary)
    total, count = module(batch)["task"]
    (total / count).backward()
    peer = without_scaling(folder)
    weights = [1 / len(LENGTHS)] * len(LENGTHS)
    matryoshka = losses.MatryoshkaLoss(peer, PEERS[loss](peer), list(LENGTHS), matryoshka_weights=weights)
    theirs = matryoshka([peer.preprocess(texts) for texts in columns], torch.tensor(SCORES))
    theirs.backward()
    assert float(total / count) == pytest.approx(float(theirs), rel=1e-6)
    assert_gradients_equal(module, peer)


def test_a_saved_model_has_the_same_truncated_vectors_there(tiny_vocabulary: Vocabulary, tmp_path: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    module, folder = SimilarityTask(MODEL, tiny_vocabulary.size, torch.Generator().manual_seed(5)), str(tmp_path / "m")
    about = About(task=TASK, cutting=CUTTING, pooling="mean", thresholds={}, lineage={})
    save_tuned(folder, module, about, MODEL, tiny_vocabulary, beside=tuned_files(about, MODEL))
    tuned = api.load(folder)
    batch, (first, second) = batch_and_texts("cosent", tiny_vocabulary)
    module.learn(Similarity(dimensions=LENGTHS), 0.0, 1.0)
    with torch.no_grad():
        ours = module.eval().logits(batch).numpy()
    for place, length in ((0, None), (1, 8), (2, 16)):
        peer = sentence_transformers.SentenceTransformer(folder, device="cpu", truncate_dim=length)
        a, b = (peer.encode(texts, normalize_embeddings=True) for texts in (first, second))
        np.testing.assert_allclose((a * b).sum(axis=1), ours[:, place], rtol=0, atol=1e-6)
    said = [row["cosine"] for row in tuned.predict(list(zip(first, second)))]
    np.testing.assert_allclose(said, ours[:, 0], rtol=0, atol=1e-6)
