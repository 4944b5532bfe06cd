"""Settings of servers of fine-tuned models."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from pipeline.config.finetune import Truncation
from pipeline.config.model import Model
from pipeline.config.serve import Serve
from pipeline.config.task_kind import Kind
from pipeline.fine_tuned.tuned import About, save_tuned
from pipeline.objectives.tasks import OBJECTIVES
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary

LABELS: dict[str, tuple[str, ...]] = {
    "classification": ("bad", "good"),
    "multilabel": ("red", "green"),
    "tags": ("O", "B-PER", "I-PER"),
}
CUTTING = Truncation(maximum_length=16, stride=4, question_length=4)


@pytest.fixture(scope="module")
def tuned(tiny_vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Serve]:
    """Settings to serve a model of a kind with weights at random."""

    def build(
        kind: Kind,
        paired: bool = False,
        intents: tuple[str, ...] = (),
        passages: bool = False,
        lineage: dict[str, str] | None = None,
    ) -> Serve:
        labels = LABELS.get(kind, ())
        task = Task(name="made-up", kind=kind, labels=labels, intents=intents, metrics=("f1",), paired=paired)
        model = Model(layers=2, width=32, heads=2, feed_forward=64, maximum_positions=32, initializer_deviation=0.5)
        pooling = "mean" if passages else "cls"
        module = OBJECTIVES[kind](
            model, tiny_vocabulary.size, len(labels + intents), torch.Generator().manual_seed(5), pooling, None
        ).eval()
        cutting = replace(CUTTING, passages=passages)
        about = About(task=task, cutting=cutting, pooling=pooling, thresholds={}, lineage=lineage or {})
        folder = tmp_path_factory.mktemp("tuned") / "model"
        save_tuned(str(folder), module, about, model, tiny_vocabulary)
        return Serve(checkpoint=str(folder))

    return build
