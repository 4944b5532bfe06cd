"""Extractive question answering as a kind of task: the input is windows, the answers are spans of the context."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pipeline.config.cutting import Truncation
from pipeline.errors import DataError
from pipeline.tables.squad import MISALIGNED, Question, rejection_reason, trainable
from pipeline.tasks.answers import Answer, answer_of_logits, best_threshold
from pipeline.tasks.metrics.squad import Normalise, normalised
from pipeline.tasks.metrics.squad import score as squad_score
from pipeline.tasks.natural import best_natural_threshold, natural_scores
from pipeline.tasks.pieces import Tokenization
from pipeline.tasks.prepared import Logits, Prepared, Thresholds
from pipeline.tasks.schema import ENCODED
from pipeline.tasks.task import Task
from pipeline.tasks.trivia import normalised_as_trivia
from pipeline.tasks.windows import Windowing, windows
from pipeline.text.vocabulary import Vocabulary

EXAMINED = ("exact", "f1", "HasAns_exact", "HasAns_f1", "NoAns_exact", "NoAns_f1")
"""Names of the official scores that are percentages."""
NO_MARGIN = 0.0
"""Threshold for SQuAD 2.0 if none was tuned: the answer is empty if "no answer" scores higher than the best span."""


def normaliser(task: Task) -> Normalise:
    """Return the normalisation of answers in a task's official script."""
    return normalised_as_trivia if task.script == "triviaqa" else normalised


def trainable_questions(items: Sequence[Question], location: str) -> tuple[list[Question], tuple[str, ...]]:
    """Return the questions that can be trained on, and a line per reason with the number of questions left out.

    Raises DataError if no question can be trained on.
    """
    kept, lost = trainable(items)
    if not kept:
        raise DataError(
            f"{location} has no question to train on: "
            f"{', '.join(f'{times} {reason}' for reason, times in lost.items())}"
        )
    return kept, tuple(f"{times:,} questions left out ({reason})" for reason, times in lost.items())


def misplaced_answers(items: Sequence[Question]) -> tuple[str, ...]:
    """Return a line with the number of questions whose first answer is not at its offset; empty if there are none.

    Training leaves these questions out. Scores keep them, because the official scripts compare texts only.
    """
    count = sum(rejection_reason(question) == MISALIGNED for question in items)
    return (f"{count:,} questions scored by the text of an answer that is not at its offset",) if count else ()


def prepare(task: Task, items: Sequence[Question], vocabulary: Vocabulary, cutting: Truncation) -> Prepared:
    """Encode each question's windows, in order.

    The labels are the indices of the answer's first and last token. If the window lacks part of the answer, both are 0,
    the index of [CLS].
    """
    assert cutting.maximum_length is not None and cutting.stride is not None
    windowing = Windowing(
        maximum_length=cutting.maximum_length,
        stride=cutting.stride,
        question_length=cutting.question_length,
        template=vocabulary.template,
    )
    by_question = windows(Tokenization(vocabulary), items, windowing)
    flat = [(index, window) for index, group in enumerate(by_question) for window in group]
    columns = {
        "ids": pa.array([window.ids for _, window in flat], ENCODED.field("ids").type),
        "first_length": pa.array([window.first_length for _, window in flat], pa.int32()),
        "label": pa.nulls(len(flat), pa.float32()),
        "labels": pa.array([(window.start, window.end) for _, window in flat], ENCODED.field("labels").type),
        "row": pa.array([index for index, _ in flat], pa.int64()),
    }
    longer = sum(len(group) > 1 for group in by_question)
    cut = sum(group[0].question_cut for group in by_question)
    notes = (
        [f"{longer:,} contexts in several windows of {cutting.maximum_length} tokens, {len(flat):,} windows in all"]
        if longer
        else []
    )
    notes += [f"{cut:,} questions cut at {cutting.question_length} tokens (--cutting.question-length)"] if cut else []
    return Prepared(
        items=items, rows=pa.table(columns, schema=ENCODED), windows=by_question, cut=cut, notes=tuple(notes)
    )


def answers(task: Task, prepared: Prepared, logits: Logits, cutting: Truncation) -> dict[str, Answer]:
    """Return {question id: n-best answers}; `logits` has start and end logits, one array (L, 2) per window."""
    by_id, start = {}, 0
    for question, own_windows in zip(prepared.items, prepared.windows, strict=True):
        own_logits = logits[start : start + len(own_windows)]
        start += len(own_windows)
        by_id[question.id] = answer_of_logits(
            question.context,
            own_windows,
            [pair[:, 0] for pair in own_logits],
            [pair[:, 1] for pair in own_logits],
            unanswerable=task.unanswerable,
            longest=cutting.longest_answer,
        )
    return by_id


def texts_of(task: Task, answers: dict[str, Answer], thresholds: Thresholds) -> dict[str, str]:
    """Return {question id: answer}, where an empty text means "no answer".

    Only a task with unanswerable questions uses a threshold.
    """
    threshold = thresholds.get("null_threshold", NO_MARGIN) if task.unanswerable else None
    return {id: answer.text(threshold) for id, answer in answers.items()}


def tune(task: Task, prepared: Prepared, answers: dict[str, Answer]) -> Thresholds:
    """Return the no-answer threshold with the highest F1 on these questions, and that F1 as a share of 1.

    The result is empty for a task without unanswerable questions.
    """
    if not task.unanswerable:
        return {}
    if task.script == "natural-questions":
        return best_natural_threshold(answers, prepared.items)
    best = best_threshold(answers, prepared.items)
    return {"null_threshold": best["threshold_tuned_on_dev"], "f1_tuned_on_dev": best["f1_tuned_on_dev"] / 100}


def score(task: Task, prepared: Prepared, answers: dict[str, Answer], thresholds: Thresholds) -> dict[str, float]:
    """Return the official scores, as shares of 1."""
    if task.script == "natural-questions":
        return natural_scores(answers, prepared.items, thresholds.get("null_threshold", NO_MARGIN))
    scores = squad_score(texts_of(task, answers, thresholds), prepared.items, normaliser(task))
    return {name: scores[name] / 100 for name in EXAMINED if name in scores}


def baseline(task: Task, train: Prepared, prepared: Prepared) -> dict[str, float]:
    """Return the scores of always answering "no answer", the only constant answer that suits all questions."""
    if task.script == "natural-questions":
        return dict.fromkeys(("f1", "precision", "recall"), 0.0)
    scores = squad_score({question.id: "" for question in prepared.items}, prepared.items, normaliser(task))
    return {name: scores[name] / 100 for name in EXAMINED if name in scores}


def collapsed(task: Task, prepared: Prepared, answers: dict[str, Answer]) -> bool:
    """Return whether all questions have the same answer."""
    return len(set(texts_of(task, answers, {}).values())) < 2


def details(task: Task, prepared: Prepared, answers: dict[str, Answer], thresholds: Thresholds) -> dict[str, Any]:
    """Return an empty dict, because `score` already has all results."""
    return {}
