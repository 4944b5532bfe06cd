"""Table of kinds of tasks: the module that is trained for each kind."""

from collections.abc import Callable

import torch
from torch import Tensor

from pipeline.config.model import Model
from pipeline.objectives.choices import ChoiceTask
from pipeline.objectives.matching import MatchingTask
from pipeline.objectives.ranking import RankingTask
from pipeline.objectives.relations import RelationTask
from pipeline.objectives.sequences import SequenceTask
from pipeline.objectives.similarity import SimilarityTask
from pipeline.objectives.tokens import AnswerTask, TagTask

TaskObjective = SequenceTask | SimilarityTask | MatchingTask | RelationTask | TagTask | AnswerTask | ChoiceTask
Build = Callable[..., TaskObjective]


def _sequence(kind: str) -> Build:
    """Return the function that builds a SequenceTask of this kind."""

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
    """Build a TagTask, which has no `pooling`."""
    return TagTask(model, vocabulary_size, labels, generator, class_weights=weights)


def _similarity(
    model: Model, vocabulary_size: int, labels: int, generator: torch.Generator, pooling: str, weights: Tensor | None
) -> TaskObjective:
    """Build a SimilarityTask, which has no labels or class weights."""
    return SimilarityTask(model, vocabulary_size, generator, pooling=pooling)


def _matching(
    model: Model, vocabulary_size: int, labels: int, generator: torch.Generator, pooling: str, weights: Tensor | None
) -> TaskObjective:
    """Build a MatchingTask, which has no labels or class weights."""
    return MatchingTask(model, vocabulary_size, generator, pooling=pooling)


def _ranking(
    model: Model, vocabulary_size: int, labels: int, generator: torch.Generator, pooling: str, weights: Tensor | None
) -> TaskObjective:
    """Build a RankingTask, which has no labels or class weights."""
    return RankingTask(model, vocabulary_size, generator, pooling=pooling)


def _relations(
    model: Model, vocabulary_size: int, labels: int, generator: torch.Generator, pooling: str, weights: Tensor | None
) -> TaskObjective:
    """Build a RelationTask, which has no class weights."""
    return RelationTask(model, vocabulary_size, labels, generator, pooling=pooling)


def _spans(
    model: Model, vocabulary_size: int, labels: int, generator: torch.Generator, pooling: str, weights: Tensor | None
) -> TaskObjective:
    """Build an AnswerTask, which has no labels, pooling or class weights."""
    return AnswerTask(model, vocabulary_size, generator)


def _choices(
    model: Model, vocabulary_size: int, labels: int, generator: torch.Generator, pooling: str, weights: Tensor | None
) -> TaskObjective:
    """Build a ChoiceTask, which has no labels, pooling or class weights."""
    return ChoiceTask(model, vocabulary_size, generator)


OBJECTIVES: dict[str, Build] = {
    "classification": _sequence("classification"),
    "regression": _sequence("regression"),
    "multilabel": _sequence("multilabel"),
    "ranking": _ranking,
    "similarity": _similarity,
    "tags": tags,
    "spans": _spans,
    "choices": _choices,
}
"""Kind of task -> function of (model, vocabulary size, number of labels, generator, pooling, class weights) that builds
its module.
"""
VECTOR_OBJECTIVES: dict[str, Build] = {"matching": _matching, "relations": _relations}
"""Kind of task whose model is saved as a model of kind similarity -> function as in OBJECTIVES."""
