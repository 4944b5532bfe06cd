"""Settings of truncating and splitting long texts."""

from dataclasses import dataclass
from typing import Literal

from pipeline.config.checks import require, require_at_least

PassagePooling = Literal["logits", "max", "attention"]
Continuation = Literal["inside", "own"]
MOST_PASSAGES = 32
"""Default of cutting.maximum_passages."""


@dataclass(frozen=True, kw_only=True)
class Truncation:
    """Truncation and splitting of long texts."""

    maximum_length: int | None = None
    """Maximum tokens per row or passage, including special tokens; default: 128, or 384 for questions, and at most the
    checkpoint's positions.
    """
    stride: int | None = None
    """Number of tokens that two consecutive parts of a split text share; default: 128 for questions and 32 otherwise,
    and at most a third of the maximum length.
    """
    question_length: int = 64
    """Maximum tokens of a question; longer questions are truncated."""
    longest_answer: int = 30
    """Maximum tokens of an answer."""
    passages: bool = False
    """Split a long text into passages instead of truncating it. cutting.passage_pooling says how the passages of a text
    give one answer.
    """
    passage_pooling: PassagePooling = "logits"
    """Pooling of a text's passages, for classification, multilabel and regression. logits: in training, each passage is
    a row with the label of its text; in prediction, the logits of a text are the mean of its passages' logits. max and
    attention: a row is a whole text, and its passages are trained together. The head reads the largest value of each
    number of the passages' vectors, or their mean with learned weights (Sun et al. 2019, section 5.3.1).
    """
    maximum_passages: int = MOST_PASSAGES
    """Maximum passages per text with passage_pooling max or attention, which bounds the memory of a row; the rest of a
    text is left out.
    """
    label_all_pieces: bool = False
    """Train on every piece of a word; otherwise only the first piece has a tag (Devlin et al. 2019, section 5.3).
    Predictions and scores always read the first piece.
    """
    continuation: Continuation = "inside"
    """Tag of a word's later pieces with label_all_pieces. inside: the word's tag, with I- instead of B-; own: a tag of
    its own, the same for all words.
    """

    def __post_init__(self) -> None:
        require(
            self.maximum_length is None or self.maximum_length >= 8,
            f"cutting.maximum_length ({self.maximum_length}) must be at least 8",
        )
        require(self.stride is None or self.stride >= 0, f"cutting.stride ({self.stride}) must be at least 0")
        require_at_least("cutting.question_length", self.question_length, 1)
        require_at_least("cutting.longest_answer", self.longest_answer, 1)
        require_at_least("cutting.maximum_passages", self.maximum_passages, 1)
        require(
            self.passages or not self.pools_passages,
            f"cutting.passage_pooling ({self.passage_pooling}) pools the passages of long texts, but cutting.passages "
            f"is {self.passages}: add --cutting.passages, or leave passage_pooling out",
        )
        require(
            self.pools_passages or self.maximum_passages == MOST_PASSAGES,
            f"cutting.maximum_passages ({self.maximum_passages}) is for cutting.passage_pooling max and attention, but "
            f"passage_pooling is {self.passage_pooling}: leave maximum_passages out, or choose one of these",
        )

        require(
            self.label_all_pieces or self.continuation == "inside",
            f"cutting.continuation ({self.continuation}) is the tag of later pieces, but cutting.label_all_pieces is "
            f"{self.label_all_pieces}: add --cutting.label-all-pieces, or leave continuation out",
        )

    @property
    def pools_passages(self) -> bool:
        """Whether the passages of a text are trained together, as one row."""
        return self.passage_pooling != "logits"
