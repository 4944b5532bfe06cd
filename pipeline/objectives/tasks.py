"""Objective of each kind of task."""

from collections.abc import Callable

import torch
from torch import Tensor

from pipeline.config.model import Model
from pipeline.objectives.sequences import SequenceTask
from pipeline.objectives.tokens import AnswerTask, TagTask

TaskObjective = SequenceTask | TagTask | AnswerTask
Build = Callable[..., TaskObjective]


def _sequence(kind: str) -> Build:
    """Return a SequenceTask of this kind."""

    def build(
        model: Model,
        vocabulary_size: int,
        labels: int,
        generator: torch.Generator,
        pooling: str,
        weights: Tensor | None,
    ) -> TaskObjective:
        return SequenceTask(
            model, vocabulary_size, labels or 1, generator, kind=kind, pooling=pooling, class_weights=weights
        )

    return build


def tags(
    model: Model, vocabulary_size: int, labels: int, generator: torch.Generator, pooling: str, weights: Tensor | None
) -> TaskObjective:
    """Return a TagTask."""
    return TagTask(model, vocabulary_size, labels, generator, class_weights=weights)


def _spans(
    model: Model, vocabulary_size: int, labels: int, generator: torch.Generator, pooling: str, weights: Tensor | None
) -> TaskObjective:
    """Return an AnswerTask."""
    return AnswerTask(model, vocabulary_size, generator)


OBJECTIVES: dict[str, Build] = {
    "classification": _sequence("classification"),
    "regression": _sequence("regression"),
    "multilabel": _sequence("multilabel"),
    "tags": tags,
    "spans": _spans,
}
"""Kind of task -> its module from (model, vocabulary size, number of labels, generator, pooling, class weights)."""
