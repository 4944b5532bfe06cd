"""Table of kinds of tasks: the module that is trained for each kind, and what it learns from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune
from pipeline.config.model import Model
from pipeline.config.similarity import Similarity
from pipeline.config.task_kind import Kind
from pipeline.model.chain import LinearChain
from pipeline.objectives.chain import add_chain, add_intents
from pipeline.objectives.choices import ChoiceTask
from pipeline.objectives.matching import MatchingTask
from pipeline.objectives.ranking import RankingTask
from pipeline.objectives.relations import RelationTask
from pipeline.objectives.sequences import SequenceTask
from pipeline.objectives.similarity import SimilarityTask
from pipeline.objectives.tokens import AnswerTask, TagTask
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.task import Task

TaskObjective = SequenceTask | SimilarityTask | MatchingTask | RelationTask | TagTask | AnswerTask | ChoiceTask
Build = Callable[..., TaskObjective]


def _nothing(*given: Any) -> None:
    """Leave a module as it is."""


@dataclass(frozen=True, kw_only=True)
class TaskModule:
    """The module of a kind of task: how it is built, prepared for training, and finished before it is saved."""

    build: Build
    """Function of (model, vocabulary size, number of outputs, generator, pooling, class weights)."""
    add_parts: Callable[[Any, Task, Truncation, bool, torch.Generator | None], None] = _nothing
    """Function of (module, task, truncation, crf, generator): add the parts that the task and settings need, both
    before a training and to load a saved model.
    """
    learn: Callable[[Any, Finetune, pa.Table, bool], None] = _nothing
    """Function of (module, settings, encoded training rows, whether there is a teacher): choose the losses."""
    standardises: bool = False
    """Whether the labels of the user's own file, which may have any scale, are standardised in training."""
    reads_pooler: Callable[[str], bool] = lambda pooling: False
    """Return whether the module reads the encoder's pooler, if recipe.pooling is `pooling`."""
    finish: Callable[[Any], None] = _nothing
    """Merge or drop what only the training needs."""
    chain: Callable[[Any], LinearChain | None] | None = None
    """Return a module's chain, which answers for whole sentences; None: modules of this kind have none."""


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
    """Build a ChoiceTask, which has no labels or class weights."""
    return ChoiceTask(model, vocabulary_size, generator, pooling)


def _add_passages(
    module: SequenceTask, task: Task, cutting: Truncation, crf: bool, generator: torch.Generator | None
) -> None:
    """Let the module pool the passages of long texts, if the settings say so."""
    if cutting.pools_passages:
        module.pool_passages(cutting.passage_pooling, generator)


def _add_intents_and_chain(
    module: TagTask, task: Task, cutting: Truncation, crf: bool, generator: torch.Generator | None
) -> None:
    """Add the outputs of the task's intents and, with recipe.crf, the chain of its tags."""
    add_intents(module, task)
    if crf:
        add_chain(module, task)


def _tag_chain(module: TagTask) -> LinearChain | None:
    """Return the chain that tags whole sentences; None without recipe.crf."""
    return module.tag_chain


def _add_lengths(
    module: SimilarityTask, task: Task, cutting: Truncation, crf: bool, generator: torch.Generator | None
) -> None:
    """Let the module also score truncated vectors, if the task does."""
    module.settings = Similarity(dimensions=task.dimensions)


def _learn_labels(module: SequenceTask, config: Finetune, rows: pa.Table, taught: bool) -> None:
    """Learn from labels and, if there is a teacher, from its logits."""
    if taught:
        module.learn_from_teacher(config.recipe.temperature, config.recipe.teacher_weight)


def _learn_ranking(module: RankingTask, config: Finetune, rows: pa.Table, taught: bool) -> None:
    """Learn by the loss ranking.loss; that of a teacher is one of these losses."""
    module.learn(config.ranking)


def _learn_scores(module: SimilarityTask, config: Finetune, rows: pa.Table, taught: bool) -> None:
    """Learn from scores, which are scaled by the lowest and the highest one of the rows."""
    scores = rows["label"].to_numpy()
    module.learn(config.similarity, float(scores.min()), float(scores.max()))


def _learn_matches(module: MatchingTask, config: Finetune, rows: pa.Table, taught: bool) -> None:
    """Learn from texts and their matches, in one pass or in the two that a split step needs."""
    module.learn(config.similarity, split=config.splits_steps)


def _learn_relations(module: RelationTask, config: Finetune, rows: pa.Table, taught: bool) -> None:
    """Learn from the classes of pairs."""
    module.learn(config.similarity)


def _of_whole_texts(kind: str, standardises: bool = False) -> TaskModule:
    """Return the row of a kind that gives each text labels or a number."""
    return TaskModule(
        build=_sequence(kind),
        add_parts=_add_passages,
        learn=_learn_labels,
        standardises=standardises,
        reads_pooler=lambda pooling: pooling == "cls",
        finish=SequenceTask.fold_standardisation,
    )


TASK_MODULES: dict[Kind, TaskModule] = {
    "classification": _of_whole_texts("classification"),
    "regression": _of_whole_texts("regression", standardises=True),
    "multilabel": _of_whole_texts("multilabel"),
    "ranking": TaskModule(build=_ranking, learn=_learn_ranking, reads_pooler=lambda pooling: pooling == "cls"),
    "similarity": TaskModule(build=_similarity, add_parts=_add_lengths, learn=_learn_scores),
    "matching": TaskModule(build=_matching, learn=_learn_matches),
    "relations": TaskModule(build=_relations, learn=_learn_relations, finish=RelationTask.drop_head),
    "tags": TaskModule(build=tags, add_parts=_add_intents_and_chain, chain=_tag_chain),
    "spans": TaskModule(build=_spans),
    "choices": TaskModule(build=_choices, reads_pooler=lambda pooling: True),
}
OBJECTIVES: dict[str, Build] = {
    kind: module.build for kind, module in TASK_MODULES.items() if KINDS[kind].saved_as is None
}
"""Kind of task that a saved model can have -> function that builds its module, as `TaskModule.build`."""
