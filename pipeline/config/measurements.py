"""Measurements of the job score: what `Score` asks for once its options are checked, one class for each."""

from dataclasses import dataclass
from typing import Literal

from pipeline.config.finetune import OnBadRows
from pipeline.config.placement import ModelPlacement

Selection = Literal["all", "odd", "even", "fifth"]
"""Pairs of BLiMP, by the last digits of their numbers."""


@dataclass(frozen=True, kw_only=True)
class LabelledFile:
    """File of labelled examples, with the names of its columns; None and () stand for the defaults of its format."""

    input: str
    text: str = "text"
    pair: str | None = None
    choices: tuple[str, ...] = ()
    label: tuple[str, ...] = ()
    words: int | None = None
    intent: str | None = None
    on_bad_rows: OnBadRows = "refuse"


@dataclass(frozen=True, kw_only=True)
class KnownSplit:
    """Split of a known task."""

    task: str
    data: str
    """Folder of the task's files."""
    split: str
    on_bad_rows: OnBadRows


Examples = LabelledFile | KnownSplit


@dataclass(frozen=True, kw_only=True)
class ExampleScore:
    """Score of a fine-tuned model on labelled examples."""

    checkpoint: str
    examples: Examples
    placement: ModelPlacement


@dataclass(frozen=True, kw_only=True)
class AnswerScore:
    """Score of a file of answers to questions."""

    predictions: str
    questions: Examples


@dataclass(frozen=True, kw_only=True)
class BlimpScore:
    """Accuracy of a model that predicts masked tokens on minimal pairs."""

    checkpoint: str
    blimp: str
    pairs: Selection
    corpus: str | None
    """Corpus of the baselines; None: the run's, if the model is of a run."""
    placement: ModelPlacement


@dataclass(frozen=True, kw_only=True)
class ForgettingScore:
    """Loss on a pretraining run's held-out text before and after fine-tuning."""

    checkpoint: str
    heldout: str
    """Folder of the run."""
    corpus: str | None
    """Corpus with the held-out rows; None: the run's."""
    placement: ModelPlacement


@dataclass(frozen=True, kw_only=True)
class VectorScore:
    """Scores of the vectors of an encoder, and of those of a second encoder; the subclasses say on what."""

    checkpoint: str
    against: str | None
    """The second encoder."""
    placement: ModelPlacement
    on_bad_rows: OnBadRows


@dataclass(frozen=True, kw_only=True)
class SimilarityScore(VectorScore):
    """Correlation of cosines with the scores of pairs of texts."""

    similarity: str
    """File of the pairs."""
    text: str | None
    """Column of the first text; None: the format's. So are `pair` and `label`."""
    pair: str | None
    label: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TripletScore(VectorScore):
    """Share of anchors that are nearer to a positive text than to a negative text."""

    triplets: str
    """File of the triplets."""
    columns: tuple[str, str, str]
    """Columns of the anchor, of the positive and of the negative text."""


@dataclass(frozen=True, kw_only=True)
class Reranker:
    """Cross-encoder that scores the best documents of each query."""

    checkpoint: str
    top: int
    """Documents of each query."""
    label: str | None
    """Label whose logit is the score; None: the second of two labels."""


@dataclass(frozen=True, kw_only=True)
class RetrievalScore(VectorScore):
    """Measures of the ranking of a collection's documents."""

    retrieval: str
    """Folder of the collection."""
    split: str | None
    """Split of the judgements; None: test."""
    reranker: Reranker | None


Measurement = (
    ExampleScore | AnswerScore | BlimpScore | ForgettingScore | SimilarityScore | TripletScore | RetrievalScore
)
