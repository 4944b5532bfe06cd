"""Kind similarity against sentence-transformers: losses on one batch, and vectors of the model that was saved."""

from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline import api
from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Similarity
from pipeline.config.model import Model
from pipeline.export.tuned_card import tuned_files
from pipeline.fine_tuned.model import open_tuned
from pipeline.fine_tuned.tuned import About, save_tuned
from pipeline.objectives.similarity import SimilarityTask, cosent, squared_error
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary

library = pytest.importorskip("sentence_transformers")
losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
MODEL = Model(layers=2, width=32, heads=2, feed_forward=64, maximum_positions=32, initializer_deviation=0.2)
PAIRS = [("kar lost kand", "mir nel"), ("sup", "sup kar lost"), ("nel mir kand lost", "kar")]


class Given(torch.nn.Module):
    """A model of sentence-transformers whose vectors are given."""

    def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"sentence_embedding": features["vectors"]}


def test_losses_equal_theirs() -> None:
    random = torch.Generator().manual_seed(4)
    first, second = (torch.randn(24, 16, generator=random) for _ in range(2))
    scores = torch.randint(0, 6, (24,), generator=random) / 5  # many equal scores
    cosines = torch.nn.functional.cosine_similarity(first, second)
    features = [{"vectors": first}, {"vectors": second}]
    theirs = float(losses.CoSENTLoss(Given())(features, scores))
    assert float(cosent(cosines, scores, Similarity())) == pytest.approx(theirs, rel=1e-6)
    theirs = float(losses.CosineSimilarityLoss(Given())(features, scores))
    assert float(squared_error(cosines, scores, Similarity())) / 24 == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_saved_model_has_the_same_cosines_everywhere(
    pooling: str, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    task = Task(name="mine", kind="similarity", metrics=("spearman",), paired=True)
    about = About(task=task, cutting=Truncation(maximum_length=32), pooling=pooling, thresholds={}, lineage={})
    module = SimilarityTask(MODEL, tiny_vocabulary.size, torch.Generator().manual_seed(5), pooling=pooling)
    folder = str(tmp_path / "m")
    save_tuned(folder, module, about, MODEL, tiny_vocabulary, beside=tuned_files(about, MODEL))
    model = api.load(folder)
    ours = [row["cosine"] for row in model.predict(PAIRS)]
    peer = library.SentenceTransformer(folder, device="cpu")
    first, second = (peer.encode([pair[side] for pair in PAIRS]) for side in (0, 1))
    np.testing.assert_allclose((first * second).sum(axis=1), ours, rtol=0, atol=1e-6)
    np.testing.assert_allclose(model.embed([pair[0] for pair in PAIRS]), first, rtol=0, atol=1e-6)
    assert open_tuned(folder).module.pooling == pooling
