"""Turn the start and end logits of a question's windows into answer spans of its context.

Shapes: L tokens per window, C of them from the context.
"""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline.tables.squad import Question
from pipeline.tasks.metrics.squad import best_of, require_answers
from pipeline.tasks.windows import QuestionWindow

# N_BEST and LONGEST_ANSWER are the defaults of google-research/bert's run_squad.py.
N_BEST = 20
LONGEST_ANSWER = 30
"""Maximum tokens of an answer."""
REPEATS = 4
"""Candidate spans per n-best answer, since several spans can have the same text."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """A span of the context, without white space around it."""

    text: str
    start: int
    """Index of its first character in the context."""
    end: int
    """Index one past its last character."""
    logit: float
    """Sum of the start logit of its first token and the end logit of its last."""
    probability: float = 0.0
    """Softmax over the n-best spans."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The n-best spans of one question and the score of "no answer"."""

    spans: tuple[Span, ...]  # best first, each text once; an empty text means "no answer"
    null: float  # score of "no answer": start plus end logit of [CLS], minimum over the windows

    @property
    def best(self) -> Span | None:
        """The best span with text; None if no span has text."""
        return next((span for span in self.spans if span.text), None)

    @property
    def margin(self) -> float:
        """Score of "no answer" minus the logit of the best span; infinite if no span has text."""
        return self.null - self.best.logit if self.best else float("inf")

    def text(self, threshold: float | None = None) -> str:
        """Return the answer text; empty if the margin is above `threshold` (SQuAD 2.0).

        If `threshold` is None (SQuAD 1.1), return the best span's text, which is empty only if no span has text.
        """
        return self.best.text if self.best and (threshold is None or self.margin <= threshold) else ""


def answer_of_logits(
    context: str,
    windows: Sequence[QuestionWindow],
    starts: Sequence[np.ndarray],
    ends: Sequence[np.ndarray],
    *,
    unanswerable: bool,
    n_best: int = N_BEST,
    longest: int = LONGEST_ANSWER,
) -> Answer:
    """Return the n-best answers to one question from the start and end logits (L,) of each of its windows.

    A span has at most `longest` tokens, all in the context. A span is read from the window with the most context around
    its first token, even if its last token has more context in another window. If `unanswerable` (SQuAD 2.0), "no
    answer" is added to the `n_best` spans.
    """
    null = min(float(start[0]) + float(end[0]) for start, end in zip(starts, ends, strict=True))
    spans = [
        span
        for window, start, end in zip(windows, starts, ends, strict=True)
        for span in _spans(context, window, start, end, n_best * REPEATS, longest)
    ]
    distinct: dict[str, Span] = {}
    for span in sorted(spans, key=lambda span: -span.logit):
        distinct.setdefault(span.text, span)
    none = [Span(text="", start=0, end=0, logit=null)] * unanswerable
    best = [*list(distinct.values())[:n_best], *none]
    return Answer(spans=_with_probabilities(sorted(best, key=lambda span: -span.logit)), null=null)


def _spans(
    context: str, window: QuestionWindow, start: np.ndarray, end: np.ndarray, most: int, longest: int
) -> Iterator[Span]:
    """Yield at most `most` spans of a window, those with the highest logits, unordered."""
    starting = np.where(window.most_context, start[window.context].astype(np.float64), -np.inf)
    # Row s, column k: the span from token s to token s + k; -inf if it would end after the context.
    ending = np.concatenate((end[window.context].astype(np.float64), np.full(longest - 1, -np.inf)))
    logits = (
        (starting[:, None] + np.lib.stride_tricks.sliding_window_view(ending, longest)).ravel()
        if len(starting)
        else starting
    )
    for index in np.argpartition(-logits, most)[:most] if len(logits) > most else range(len(logits)):
        first, last = int(index) // longest, int(index) // longest + int(index) % longest
        if np.isfinite(logits[index]) and (
            span := _trimmed_span(context, int(window.starts[first]), int(window.ends[last]), float(logits[index]))
        ):
            yield span


def _trimmed_span(context: str, start: int, end: int, logit: float) -> Span | None:
    """Return the span from character `start` to `end` without white space around it, or None if nothing is left.

    White space is removed because pieces of some vocabularies begin with a space. The span is extended over combining
    accents because pieces of an uncased vocabulary end before these accents.
    """
    while end < len(context) and unicodedata.combining(context[end]):
        end += 1
    text = context[start:end]
    start += len(text) - len(text.lstrip())
    text = text.strip()
    return Span(text=text, start=start, end=start + len(text), logit=logit) if text else None


def _with_probabilities(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Return the spans with probabilities: the softmax of their logits."""
    if not spans:
        return ()
    weights = np.exp(np.array([span.logit for span in spans]) - max(span.logit for span in spans))
    return tuple(replace(span, probability=float(share)) for span, share in zip(spans, weights / weights.sum()))


def best_threshold(answers: Mapping[str, Answer], questions: Sequence[Question]) -> dict[str, float]:
    """Return the threshold of `Answer.text` that gives the highest F1 on these questions, and this F1 in percent.

    The keys of the result are "threshold_tuned_on_dev" and "f1_tuned_on_dev".

    The F1 is optimistic, because the same questions are used to choose the threshold and to measure the F1. If several
    thresholds have this F1, the lowest is returned, which answers the fewest questions. Raises DataError if there are
    no questions, or a question has no answer and is not marked as impossible.
    """
    require_answers(questions)
    gains = sorted(_f1_gain(answers[question.id], question) for question in questions)
    f1 = sum(question.impossible for question in questions)
    tuned = (f1, min((margin for margin, _ in gains if np.isfinite(margin)), default=1.0) - 1)
    # Questions with the same margin are either all answered or all unanswered. Sorting puts losses of F1 before gains
    # in such a group. So inside a group, `f1` never exceeds the larger of `f1` before and `f1` after the group.
    for margin, change in gains:
        f1 += change
        if f1 > tuned[0] and np.isfinite(margin):
            tuned = (f1, margin)
    return {"threshold_tuned_on_dev": tuned[1], "f1_tuned_on_dev": 100 * tuned[0] / len(questions)}


def _f1_gain(answer: Answer, question: Question) -> tuple[float, float]:
    """Return the margin of an answer, and the question's F1 with this answer minus its F1 with "no answer"."""
    if not answer.best:
        return answer.margin, 0.0
    return answer.margin, best_of(answer.best.text, question, True)[1] - question.impossible
