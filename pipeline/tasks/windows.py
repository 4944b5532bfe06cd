"""Encode a question and its context as windows, each [CLS] question [SEP] part of the context [SEP].

RoBERTa has two [SEP] after the question. Shapes: L tokens per window, C of them from the context.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.errors import ConfigError
from pipeline.tables.squad import Question
from pipeline.tasks.parts import most_context, parts
from pipeline.tasks.pieces import Pieces, Tokenization
from pipeline.text.template import ONE_SEPARATOR, Template
from pipeline.text.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class Windowing:
    """Lengths of questions and windows, in tokens. Defaults: Devlin et al. 2019, with `stride` as in transformers."""

    maximum_length: int = 384
    stride: int = 128
    """Overlap of consecutive windows."""
    question_length: int = 64
    """Longer questions are truncated."""
    template: Template = ONE_SEPARATOR

    def __post_init__(self) -> None:
        if self.question_length < 1 or self.stride < 0:
            raise ConfigError(
                f"cutting.question_length ({self.question_length}) must be at least 1, cutting.stride ({self.stride}) "
                "at least 0"
            )
        special_tokens = self.template.specials_of_pair
        room = self.maximum_length - self.question_length - special_tokens
        if room <= self.stride:
            raise ConfigError(
                f"cutting.stride ({self.stride}) must be less than {room}, the pieces of context that fit in "
                f"cutting.maximum_length ({self.maximum_length}) "
                f"with cutting.question_length ({self.question_length}) and {special_tokens} special tokens: "
                "lower the stride or raise the length"
            )


@dataclass(frozen=True, kw_only=True)
class QuestionWindow:
    """One model input of a question, with the position of the answer."""

    ids: np.ndarray  # int32 (L,)
    first_length: int  # length of [CLS], the question and its [SEP]: index at which the context begins
    starts: np.ndarray  # int32 (C,), index of each token's first character in the whole context
    ends: np.ndarray  # int32 (C,), one past the index of each token's last character
    most_context: np.ndarray  # bool (C,), whether a token has more context here than in the question's other windows
    start: int
    """Index of the answer's first token in the window; 0, which is [CLS], if the window lacks part of the answer."""
    end: int
    """Index of the answer's last token in the window; 0 if the window lacks part of the answer."""
    question_cut: bool
    """Whether the question was truncated."""

    @property
    def context(self) -> slice:
        """Slice that selects the context's tokens from the window's L tokens."""
        return slice(self.first_length, len(self.ids) - 1)


def windows(
    tokenization: Tokenization, questions: Sequence[Question], windowing: Windowing = Windowing()
) -> list[list[QuestionWindow]]:
    """Return the windows of each question. A context that several questions share is encoded only once."""
    contexts = list(dict.fromkeys(question.context for question in questions))
    encoded = dict(zip(contexts, tokenization.of_texts(contexts)))
    asked = tokenization.of_texts([question.question for question in questions])
    return [
        list(
            _windows_of(tokenization.vocabulary, pieces.ids, encoded[question.context], _answer_of(question), windowing)
        )
        for question, pieces in zip(questions, asked)
    ]


def _answer_of(question: Question) -> tuple[int, int]:
    """Return the first answer's start and end in the context, in characters; (0, 0) without an answer."""
    if question.impossible or not question.answers:
        return 0, 0
    text, start = question.answers[0]
    return start, start + len(text)


def _windows_of(
    vocabulary: Vocabulary, question_ids: np.ndarray, context: Pieces, answer: tuple[int, int], windowing: Windowing
) -> Iterator[QuestionWindow]:
    """Yield the windows of one question.

    `answer` is the answer's start and end in the context, in characters.
    """
    kept = question_ids[: windowing.question_length]
    separators = [vocabulary.sep_id] * windowing.template.pair_separators
    first = np.concatenate(([vocabulary.cls_id], kept, separators)).astype(np.int32)
    room = windowing.maximum_length - len(kept) - windowing.template.specials_of_pair
    bounds = parts(len(context.ids), room, windowing.stride)
    covering = np.flatnonzero((context.ends > answer[0]) & (context.starts < answer[1]))
    for (start, end), most in zip(bounds, most_context(bounds)):
        whole = len(covering) > 0 and start <= covering[0] and covering[-1] < end
        shift = len(first) - start
        yield QuestionWindow(
            ids=np.concatenate((first, context.ids[start:end], [vocabulary.sep_id])).astype(np.int32),
            first_length=len(first),
            starts=context.starts[start:end],
            ends=context.ends[start:end],
            most_context=most,
            start=int(covering[0]) + shift if whole else 0,
            end=int(covering[-1]) + shift if whole else 0,
            question_cut=len(kept) < len(question_ids),
        )
