"""The softmax over u, v and |u - v|, and its gradients, against sentence-transformers, on one batch of a tiny model."""

from pathlib import Path

import pyarrow as pa
import pytest
import torch

from pipeline.batch import collate_labelled
from pipeline.config.cutting import Truncation
from pipeline.export.tuned_card import tuned_files
from pipeline.fine_tuned.tuned import About, save_tuned
from pipeline.objectives.relations import RelationTask
from pipeline.tasks import similarity
from pipeline.tasks.kinds import saved_task
from pipeline.tasks.schema import TEXTS
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary
from tests.parity.test_matching_task import MODEL, assert_gradients_equal, losses, without_scaling

ROWS = [("kar lost kand", "mir nel", "b"), ("sup", "sup kar lost", "a"), ("nel mir kand lost", "kar", "c")]
TASK = Task(name="mine", kind="relations", labels=("a", "b", "c"), metrics=("accuracy",), paired=True)


def test_loss_and_gradients_equal_theirs(tiny_vocabulary: Vocabulary, tmp_path: Path) -> None:
    cutting, folder = Truncation(maximum_length=32), str(tmp_path / "m")
    table = pa.Table.from_pylist([{"id": "1"} | dict(zip(TEXTS.names[1:], row)) for row in ROWS], schema=TEXTS)
    module = RelationTask(MODEL, tiny_vocabulary.size, 3, torch.Generator().manual_seed(5))
    batch = collate_labelled(similarity.prepare(TASK, table, tiny_vocabulary, cutting).rows.combine_chunks())
    total, count = module(batch)["task"]
    (total / count).backward()
    head, module.relation_head = module.relation_head, None
    assert head is not None
    about = About(task=saved_task(TASK), cutting=cutting, pooling="mean", thresholds={}, lineage={})
    save_tuned(folder, module, about, MODEL, tiny_vocabulary, beside=tuned_files(about, MODEL))
    peer = without_scaling(folder)
    loss = losses.SoftmaxLoss(peer, embedding_dimension=MODEL.width, num_labels=3)
    loss.classifier.load_state_dict(head.state_dict())
    columns = [[first for first, _, _ in ROWS], [second for _, second, _ in ROWS]]
    theirs = loss([peer.preprocess(texts) for texts in columns], torch.tensor([1, 0, 2]))
    theirs.backward()
    assert float(total / count) == pytest.approx(float(theirs), rel=1e-6)
    assert_gradients_equal(module, peer)
    assert head.weight.grad is not None and loss.classifier.weight.grad is not None
    torch.testing.assert_close(head.weight.grad, loss.classifier.weight.grad, rtol=0, atol=1e-6)
