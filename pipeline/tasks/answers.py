"""Start and end logits of a question's windows to answers that stand in its context.

L tokens of a window, C of them context.
"""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline.tasks.squad import Question
from pipeline.tasks.squad_metrics import best_of, require_answers
from pipeline.tasks.windows import Window

N_BEST = 20  # this and the next: google-research/bert, run_squad.py
LONGEST_ANSWER = 30
"""Tokens."""
REPEATS = 4
"""Spans looked at for each of the n-best, which differ in their text."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """Characters of the context, without white space around them, and the sum of their start and end logits."""

    text: str
    start: int
    end: int
    logit: float
    probability: float = 0.0
    """Over the n-best."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the logits say of a question."""

    spans: tuple[Span, ...]  # best first, no text twice; one with the empty text is "no answer"
    null: float  # minimum over the windows of [CLS]'s start and end logit

    @property
    def best(self) -> Span | None:
        """The best span with a text; None where there is none."""
        return next((span for span in self.spans if span.text), None)

    @property
    def margin(self) -> float:
        """How far no answer is above the best span; infinite where there is none."""
        return self.null - self.best.logit if self.best else float("inf")

    def text(self, threshold: float | None = None) -> str:
        """The answer; empty where the margin is above the threshold (2.0). None: always the best span, where there is one (1.1)."""
        return self.best.text if self.best and (threshold is None or self.margin <= threshold) else ""


def answer_of_logits(
    context: str,
    windows: Sequence[Window],
    starts: Sequence[np.ndarray],
    ends: Sequence[np.ndarray],
    *,
    unanswerable: bool,
    n_best: int = N_BEST,
    longest: int = LONGEST_ANSWER,
) -> Answer:
    """The n-best answers to one question from the start and end logits (L,) of each of its windows.

    A span lies in the context, has at most `longest` tokens, and starts at a token with the most context in its window (its end may have
    more in the next). `unanswerable`, 2.0's: no answer is one more of the n-best.
    """
    null = min(float(start[0]) + float(end[0]) for start, end in zip(starts, ends, strict=True))
    found = [
        span
        for window, start, end in zip(windows, starts, ends, strict=True)
        for span in spans(context, window, start, end, n_best * REPEATS, longest)
    ]
    distinct: dict[str, Span] = {}
    for span in sorted(found, key=lambda span: -span.logit):
        distinct.setdefault(span.text, span)
    none = [Span(text="", start=0, end=0, logit=null)] * unanswerable
    best = [*list(distinct.values())[:n_best], *none]
    return Answer(spans=with_probabilities(sorted(best, key=lambda span: -span.logit)), null=null)


def spans(context: str, window: Window, start: np.ndarray, end: np.ndarray, most: int, longest: int) -> Iterator[Span]:
    """The `most` spans of a window with the greatest logits, in no order."""
    starting = np.where(window.most_context, start[window.context].astype(np.float64), -np.inf)
    # Row s, column k: from token s to token s + k; what would end after the context is -inf.
    ending = np.concatenate((end[window.context].astype(np.float64), np.full(longest - 1, -np.inf)))
    logits = (
        (starting[:, None] + np.lib.stride_tricks.sliding_window_view(ending, longest)).ravel()
        if len(starting)
        else starting
    )
    for place in np.argpartition(-logits, most)[:most] if len(logits) > most else range(len(logits)):
        first, last = int(place) // longest, int(place) // longest + int(place) % longest
        if np.isfinite(logits[place]) and (
            span := trimmed_span(context, int(window.starts[first]), int(window.ends[last]), float(logits[place]))
        ):
            yield span


def trimmed_span(context: str, start: int, end: int, logit: float) -> Span | None:
    """The span of these characters without white space around it: pieces of some vocabularies begin with their space. None where nothing is left.

    Accents that are characters of their own go with their letter: an uncased vocabulary's pieces end before them.
    """
    while end < len(context) and unicodedata.combining(context[end]):
        end += 1
    text = context[start:end]
    start += len(text) - len(text.lstrip())
    text = text.strip()
    return Span(text=text, start=start, end=start + len(text), logit=logit) if text else None


def with_probabilities(spans: Sequence[Span]) -> tuple[Span, ...]:
    """The spans with the softmax of their logits."""
    if not spans:
        return ()
    weights = np.exp(np.array([span.logit for span in spans]) - max(span.logit for span in spans))
    return tuple(replace(span, probability=float(share)) for span, share in zip(spans, weights / weights.sum()))


def best_threshold(answers: Mapping[str, Answer], questions: Sequence[Question]) -> dict[str, float]:
    """The threshold of `Answer.text` that gives these questions the highest F1, and that F1 in percent: both tuned on dev, and named so.

    Of thresholds that are equally good the lowest: it answers the fewest. Questions of the same margin are answered together.
    Raises DataError where there is nothing to score.
    """
    require_answers(questions)
    gains = sorted(f1_gain(answers[question.id], question) for question in questions)
    f1 = sum(not question.answers for question in questions)
    tuned = (f1, min((margin for margin, _ in gains if np.isfinite(margin)), default=1.0) - 1)
    for margin, change in gains:  # of one margin the losses come first: what is best amid them is best at their end
        f1 += change
        if f1 > tuned[0] and np.isfinite(margin):
            tuned = (f1, margin)
    return {"threshold_tuned_on_dev": tuned[1], "f1_tuned_on_dev": 100 * tuned[0] / len(questions)}


def f1_gain(answer: Answer, question: Question) -> tuple[float, float]:
    """The margin at which a question is answered, and by how much that changes its F1."""
    if not answer.best:
        return answer.margin, 0.0
    return answer.margin, best_of(answer.best.text, question, True)[1] - (not question.answers)
