"""Turn a module's logits into answers: one per text, sentence or question."""

from collections.abc import Sequence
from typing import Any

from pipeline.config.cutting import Truncation
from pipeline.model.chain import LinearChain
from pipeline.objectives.tasks import TASK_MODULES, TaskObjective
from pipeline.tasks import tags
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.prepared import Logits, Prepared
from pipeline.tasks.tagging import PredictedTags
from pipeline.tasks.task import Task


def answers_of(module: TaskObjective, task: Task, prepared: Prepared, logits: Logits, cutting: Truncation) -> Any:
    """Return one answer per item, as `answers` of TaskHandlers; with a chain, the best tags of each whole sentence."""
    chain = _chain_of(module, task)
    if chain is not None:
        return tags.chain_answers(task, prepared, logits, chain.best_paths)
    return KINDS[task.kind].answers(task, prepared, logits, cutting)


def tag_probabilities_of(
    module: TaskObjective, task: Task, prepared: Prepared, logits: Logits, predicted: Sequence[PredictedTags]
) -> list[list[float | None]]:
    """Return the probability of each word's predicted tag, per sentence; None for a word without a token.

    With a chain, it is the summed probability of all tag sequences that have this tag at this word; else the softmax
    over the tags.
    """
    chain = _chain_of(module, task)
    return tags.tag_probabilities(task, prepared, logits, predicted, chain.probabilities if chain else None)


def _chain_of(module: TaskObjective, task: Task) -> LinearChain | None:
    """Return the chain of a module; None if it has none."""
    find = TASK_MODULES[task.kind].chain
    return find(module) if find else None
