"""Losses of matching texts and their gradients against sentence-transformers, on one batch of a tiny model."""

from pathlib import Path

import pyarrow as pa
import pytest
import torch

from pipeline.batch import collate_labelled
from pipeline.config.cutting import Truncation
from pipeline.config.model import Model
from pipeline.config.similarity import Similarity
from pipeline.export.tuned_card import tuned_files
from pipeline.fine_tuned.tuned import About, save_tuned
from pipeline.model.families.table import family_of
from pipeline.model.weights import to_published
from pipeline.objectives.matching import MatchingTask
from pipeline.tasks import matching
from pipeline.tasks.kinds import saved_task
from pipeline.tasks.matches import matching_task
from pipeline.tasks.schema import MATCHES
from pipeline.text.vocabulary import Vocabulary

library = pytest.importorskip("sentence_transformers")
losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
MODEL = Model(
    layers=2, width=32, heads=2, feed_forward=64, maximum_positions=32, initializer_deviation=0.2,
    hidden_dropout=0.0, attention_dropout=0.0,
)  # fmt: skip
ROWS = [
    ("kar lost kand", "mir nel", ["sup kand"]),
    ("sup", "sup kar lost", ["mir kar"]),
    ("nel mir kand lost", "kar nel", ["lost"]),
    ("mir", "kand kand", ["nel kar sup"]),
]
LOSSES = {
    "contrastive": lambda peer: losses.MultipleNegativesRankingLoss(
        peer, scale=20.0, directions=("query_to_doc", "doc_to_query"), partition_mode="per_direction"
    ),
    "triplet": losses.TripletLoss,
}


def without_scaling(folder: str) -> torch.nn.Module:
    """The model without its last step, which scales vectors to length 1: TripletLoss compares vectors as they are."""
    transformer, pooling, _ = library.SentenceTransformer(folder, device="cpu")
    return library.SentenceTransformer(modules=[transformer, pooling], device="cpu").train()


@pytest.mark.parametrize("loss", LOSSES)
def test_loss_and_gradients_equal_theirs(loss: str, tiny_vocabulary: Vocabulary, tmp_path: Path) -> None:
    items = [{"id": "1", "first": a, "second": b, "label": None, "negatives": far} for a, b, far in ROWS]
    table, cutting = pa.Table.from_pylist(items, schema=MATCHES), Truncation(maximum_length=32)
    task, folder = matching_task("mine", table), str(tmp_path / "m")
    module = MatchingTask(MODEL, tiny_vocabulary.size, torch.Generator().manual_seed(5))
    about = About(task=saved_task(task), cutting=cutting, pooling="mean", thresholds={}, lineage={})
    save_tuned(folder, module, about, MODEL, tiny_vocabulary, beside=tuned_files(about, MODEL))
    module.learn(Similarity(loss=loss))
    batch = collate_labelled(matching.prepare(task, table, tiny_vocabulary, cutting).rows.combine_chunks())
    total, count = module(batch)["task"]
    (total / count).backward()
    peer = without_scaling(folder)
    columns = [[a for a, _, _ in ROWS], [b for _, b, _ in ROWS], [far[0] for _, _, far in ROWS]]
    theirs = LOSSES[loss](peer)([peer.preprocess(texts) for texts in columns], torch.zeros(len(ROWS)))
    theirs.backward()
    assert float(total / count) == pytest.approx(float(theirs), rel=1e-6)
    assert_gradients_equal(module, peer)


def assert_gradients_equal(module: torch.nn.Module, peer: torch.nn.Module) -> None:
    """Assert that the encoders of a module and of a model of sentence-transformers have the same gradients."""
    given = {name: parameter.grad for name, parameter in module.named_parameters() if parameter.grad is not None}
    ours = to_published(given, family_of(MODEL))
    found = {f"bert.{name}": p.grad for name, p in peer[0].auto_model.named_parameters() if "pooler" not in name}
    assert found.keys() == ours.keys()
    largest = max(gradient.abs().max().item() for gradient in found.values())
    for name, gradient in found.items():
        torch.testing.assert_close(ours[name], gradient, rtol=0, atol=1e-6 * max(largest, 1), msg=name)
