"""The published format of each kind of task: names in config.json, and what a module needs when it is read or written.

Published names are those of transformers.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pipeline.config.cutting import Truncation
from pipeline.config.similarity import Similarity
from pipeline.model.chain import LinearChain
from pipeline.objectives.chain import add_intents
from pipeline.objectives.sequences import SequenceTask
from pipeline.objectives.similarity import SimilarityTask
from pipeline.objectives.tokens import TagTask
from pipeline.tasks.intents import INTENT_PREFIX
from pipeline.tasks.prepared import outputs_of
from pipeline.tasks.tagging import CONTINUED
from pipeline.tasks.task import Kind, Task

QUESTION_LENGTH = 384
"""Maximum tokens of a question with its context, as in transformers' scripts; other tasks use all positions."""


def _own_labels(task: Task, cutting: Truncation) -> tuple[str, ...]:
    """Return the task's labels."""
    return task.labels


def _number_labels(task: Task, cutting: Truncation) -> tuple[str, ...]:
    """Return the label of the one output of a model that predicts a number."""
    return task.labels or ("score",)


def _tag_labels(task: Task, cutting: Truncation) -> tuple[str, ...]:
    """Return the tags, then the tag of later pieces if they have their own, then the intents."""
    own = outputs_of(task, cutting) > len(task.labels) + len(task.intents)
    return (*task.labels, *([CONTINUED] * own), *(f"{INTENT_PREFIX}{intent}" for intent in task.intents))


def _nothing_to_restore(module: Any, task: Task, cutting: Truncation) -> None:
    """Leave a module as it was built."""


def _pool_passages(module: SequenceTask, task: Task, cutting: Truncation) -> None:
    """Let a module that learnt to pool the passages of a text do so again."""
    if cutting.pools_passages:
        module.pool_passages(cutting.passage_pooling)


def _score_lengths(module: SimilarityTask, task: Task, cutting: Truncation) -> None:
    """Let a module also score truncated vectors, if its task does."""
    module.settings = Similarity(dimensions=task.dimensions)


def _name_intents(module: TagTask, task: Task, cutting: Truncation) -> None:
    """Tell a tagger how many of its outputs are intents."""
    add_intents(module, task)


def _nothing_to_fold(module: Any) -> None:
    """Leave a module as it was trained."""


def _fold_scale(module: SequenceTask) -> None:
    """Merge the scaling of regression labels into the weights of the head."""
    module.fold_standardisation()


def _tag_chain(module: TagTask) -> LinearChain | None:
    """Return the chain that tags whole sentences."""
    return module.tag_chain


@dataclass(frozen=True, kw_only=True)
class Published:
    """The published format of one kind of task."""

    use: str
    """Key of Family.architectures: the class of the model."""
    head: str = ""
    """Our module whose weight computes the outputs; empty for an encoder without a head."""
    metrics: tuple[str, ...] = ()
    """Metrics that score models that others published; empty: only models of this package have this kind."""
    problem_type: str | None = None
    """problem_type in config.json."""
    outputs: int | None = None
    """Number of outputs; None: one per label."""
    most_tokens: int | None = None
    """Most tokens of a row for models that others published; None: all positions."""
    labels: Callable[[Task, Truncation], tuple[str, ...]] = _own_labels
    """Names of the outputs in config.json."""
    pools: bool = False
    """Whether the head reads one pooled state of a whole text."""
    restore: Callable[[Any, Task, Truncation], None] = _nothing_to_restore
    """Set what a module that was just built lacks before its weights are loaded."""
    fold: Callable[[Any], None] = _nothing_to_fold
    """Merge what was learnt outside the weights into the weights, before they are written."""
    chain: Callable[[Any], LinearChain | None] | None = None
    """Return a module's chain, which answers for whole sentences; None: modules of this kind have none."""


_SEQUENCES = Published(
    use="classification", head="classification_head", pools=True, restore=_pool_passages, fold=_fold_scale
)
_NUMBERS = replace(_SEQUENCES, use="regression", problem_type="regression", outputs=1, labels=_number_labels)
_VECTORS = Published(use="similarity", restore=_score_lengths)
PUBLISHED: dict[Kind, Published] = {
    "classification": replace(_SEQUENCES, problem_type="single_label_classification", metrics=("accuracy", "macro_f1")),
    "multilabel": replace(
        _SEQUENCES,
        use="multilabel",
        problem_type="multi_label_classification",
        metrics=("micro_f1", "macro_f1", "subset_accuracy"),
    ),
    "regression": replace(_NUMBERS, metrics=("pearson", "spearman", "mean_absolute_error")),
    "ranking": _NUMBERS,
    "similarity": _VECTORS,
    "matching": _VECTORS,
    "relations": _VECTORS,
    "tags": Published(
        use="tags",
        head="tag_head",
        metrics=("f1", "precision", "recall", "accuracy"),
        labels=_tag_labels,
        restore=_name_intents,
        chain=_tag_chain,
    ),
    "spans": Published(
        use="spans", head="answer_head", metrics=("f1", "exact"), outputs=2, most_tokens=QUESTION_LENGTH
    ),
    "choices": Published(use="choices", head="choice_head", metrics=("accuracy",), outputs=1),
}
"""Kind of task -> its published format; a kind that is saved as another kind has the other's."""
