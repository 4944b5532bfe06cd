"""Forms of what fine-tuned models read and answer, which rows of the table of kinds choose from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.errors import DataError
from pipeline.fine_tuned.about import TunedModel
from pipeline.fine_tuned.decoding import answers_of, tag_probabilities_of
from pipeline.tables.squad import Question
from pipeline.tables.word_columns import texts_in
from pipeline.tasks import choices, questions, sequences, similarity
from pipeline.tasks.answers import Answer
from pipeline.tasks.choice_tables import with_start
from pipeline.tasks.prepared import Logits, Prepared
from pipeline.tasks.schema import CHOICES, TEXTS
from pipeline.tasks.tagging import Sentence, Utterance, split_cell
from pipeline.tasks.task import Task

Columns = Mapping[str, Sequence[Any]]
"""Name of an input column -> its values."""


@dataclass(frozen=True, kw_only=True)
class AnswerForm:
    """Inputs and answers of the models of one kind of task."""

    columns: tuple[str, ...] = ("text",)
    """Input columns that are required."""
    instead: tuple[str, ...] = ()
    """Input columns that may be given in place of `columns`."""
    optional: tuple[str, ...] = ()
    """Further input columns that may be given."""
    items: Callable[[Task, Columns], Any]
    """Convert columns to items of the task, one per row."""
    fields: Callable[[Task], Mapping[str, pa.DataType]]
    """Return the columns of the answers and their types."""
    rows: Callable[[TunedModel, Prepared, Logits], list[dict[str, Any]]]
    """Return one answer per item."""


def _sentences(task: Task, columns: Columns) -> list[Sentence]:
    """Return the sentences of rows of words. Raises DataError for a list in a text whose members are not all texts.

    Encoding needs tags and intents that the task knows. Answers do not depend on them.
    """
    found = columns["words"] if "words" in columns else map(split_cell, columns["text"])
    words = [texts_in("a row", members) if members else () for members in map(list, found)]
    tagged = [Sentence(words=tuple(sentence), tags=(task.labels[0],) * len(sentence)) for sentence in words]
    return [Utterance(**vars(one), intent=task.intents[0]) for one in tagged] if task.intents else tagged


def _questions(task: Task, columns: Columns) -> list[Question]:
    """Return the questions of rows."""
    pairs = zip(columns["question"], columns["context"], strict=True)
    return [
        Question(id=str(index), question=question, context=context, answers=())
        for index, (question, context) in enumerate(pairs)
    ]


def _texts(task: Task, columns: Columns) -> pa.Table:
    """Return a table of TEXTS. Raises DataError if the task is on pairs and there is no column of second texts."""
    ids, first, second, nothing = _text_columns(task, columns)
    return pa.table([ids, first, second, nothing], schema=TEXTS)


def _choices(task: Task, columns: Columns) -> pa.Table:
    """Return a table of CHOICES. Raises DataError as `_texts` does."""
    ids, first, second, nothing = _text_columns(task, columns)
    rows = zip(second, columns["choices"], strict=True)
    of_rows = [[with_start(start, text) for text in texts] for start, texts in rows]
    return pa.table([ids, first, nothing, nothing, of_rows], schema=CHOICES)


def _text_columns(task: Task, columns: Columns) -> tuple[Sequence[Any], ...]:
    """Return the ids, first and second texts of rows, and a column of nothing."""
    if task.paired and "second" not in columns:
        raise DataError(f"{task.name} was learnt on pairs of texts: name the column of the second text with --pair")
    first = columns["text"]
    nothing = [None] * len(first)
    return [str(index) for index in range(len(first))], first, columns.get("second", nothing), nothing


def _shares(task: Task) -> pa.DataType:
    """Return the type of a probability for each label."""
    return pa.struct([pa.field(label, pa.float64()) for label in task.labels])


def _outputs_and_predicted(tuned: TunedModel, prepared: Prepared, logits: Logits) -> tuple[np.ndarray, np.ndarray]:
    """Return the outputs for texts and what they predict, as `answers` and `predicted_labels` of tasks/sequences.py."""
    task = tuned.about.task
    outputs = sequences.answers(task, prepared, logits, tuned.about.cutting)
    return outputs, sequences.predicted_labels(task, outputs, tuned.about.thresholds)


def _shares_of_labels(task: Task, outputs: np.ndarray) -> list[dict[str, float]]:
    """Return {label: probability} per text."""
    return [dict(zip(task.labels, map(float, row))) for row in sequences.probabilities(task, outputs)]


def _number_rows(tuned: TunedModel, prepared: Prepared, logits: Logits) -> list[dict[str, Any]]:
    """Return one row per text: its value."""
    _, predicted = _outputs_and_predicted(tuned, prepared, logits)
    return [{"score": float(value)} for value in predicted]


def _several_label_rows(tuned: TunedModel, prepared: Prepared, logits: Logits) -> list[dict[str, Any]]:
    """Return one row per text: the labels that apply to it, and each label's probability."""
    task = tuned.about.task
    outputs, predicted = _outputs_and_predicted(tuned, prepared, logits)
    chosen = [[label for label, predicts in zip(task.labels, row) if predicts] for row in predicted]
    shares = _shares_of_labels(task, outputs)
    return [{"labels": labels, "probabilities": of_labels} for labels, of_labels in zip(chosen, shares)]


def _label_rows(tuned: TunedModel, prepared: Prepared, logits: Logits) -> list[dict[str, Any]]:
    """Return one row per text: its label, and each label's probability."""
    task = tuned.about.task
    outputs, predicted = _outputs_and_predicted(tuned, prepared, logits)
    names = [task.labels[number] for number in predicted]
    return [
        {"label": name, "probability": of_labels[name], "probabilities": of_labels}
        for name, of_labels in zip(names, _shares_of_labels(task, outputs))
    ]


def _choice_rows(tuned: TunedModel, prepared: Prepared, logits: Logits) -> list[dict[str, Any]]:
    """Return one row per context: the number of the best choice, and the probability of each choice."""
    about = tuned.about
    scores = choices.answers(about.task, prepared, logits, about.cutting)
    shares = [choices.probabilities(row).tolist() for row in scores]
    return [
        {"choice": number, "probability": of_choices[number], "probabilities": of_choices}
        for number, of_choices in zip(choices.chosen(scores).tolist(), shares)
    ]


def _cosine_rows(tuned: TunedModel, prepared: Prepared, logits: Logits) -> list[dict[str, Any]]:
    """Return one row per pair of texts: the cosine of their vectors."""
    about = tuned.about
    return [{"cosine": float(row[0])} for row in similarity.answers(about.task, prepared, logits, about.cutting)]


def _tag_rows(tuned: TunedModel, prepared: Prepared, logits: Logits) -> list[dict[str, Any]]:
    """Return one row per sentence: its words, their tags, the tags' probabilities, and its intent if there are intents.

    The probability is None for words without tokens.
    """
    task = tuned.about.task
    predicted = answers_of(tuned.module, task, prepared, logits, tuned.about.cutting)
    shares = tag_probabilities_of(tuned.module, task, prepared, logits, predicted)
    return [
        {"words": list(sentence.words), "tags": list(tagged.tags), "probabilities": of_tags}
        | ({"intent": tagged.intent} if tagged.intent is not None else {})
        for sentence, tagged, of_tags in zip(prepared.items, predicted, shares, strict=True)
    ]


def _span_rows(tuned: TunedModel, prepared: Prepared, logits: Logits) -> list[dict[str, Any]]:
    """Return one row per question: its answer, as in `span_row`."""
    about = tuned.about
    spans = questions.answers(about.task, prepared, logits, about.cutting)
    texts = questions.texts_of(about.task, spans, about.thresholds)
    return [span_row(spans[question.id], texts[question.id]) for question in prepared.items]


def span_row(answer: Answer, text: str) -> dict[str, Any]:
    """Return the row of an answer: its text, offsets and probability.

    Offsets are None if the text is empty; the probability is None if none of the n-best spans has the text.
    """
    span = next((span for span in answer.spans if span.text == text), None)
    offsets = {"start": span.start, "end": span.end} if span and text else {"start": None, "end": None}
    return {"answer": text, **offsets, "probability": span.probability if span else None}


NUMBER_ANSWERS = AnswerForm(
    optional=("second",), items=_texts, fields=lambda task: {"score": pa.float64()}, rows=_number_rows
)
COSINE_ANSWERS = replace(NUMBER_ANSWERS, fields=lambda task: {"cosine": pa.float64()}, rows=_cosine_rows)
LABEL_ANSWERS = replace(
    NUMBER_ANSWERS,
    fields=lambda task: {"label": pa.string(), "probability": pa.float64(), "probabilities": _shares(task)},
    rows=_label_rows,
)
SEVERAL_LABEL_ANSWERS = replace(
    NUMBER_ANSWERS,
    fields=lambda task: {"labels": pa.list_(pa.string()), "probabilities": _shares(task)},
    rows=_several_label_rows,
)
TAG_ANSWERS = AnswerForm(
    instead=("words",),
    items=_sentences,
    fields=lambda task: {
        "words": pa.list_(pa.string()),
        "tags": pa.list_(pa.string()),
        "probabilities": pa.list_(pa.float64()),
        **({"intent": pa.string()} if task.intents else {}),
    },
    rows=_tag_rows,
)
SPAN_ANSWERS = AnswerForm(
    columns=("question", "context"),
    items=_questions,
    fields=lambda task: {
        "answer": pa.string(),
        "start": pa.int64(),
        "end": pa.int64(),
        "probability": pa.float64(),
    },
    rows=_span_rows,
)
CHOICE_ANSWERS = AnswerForm(
    columns=("text", "choices"),
    optional=("second",),
    items=_choices,
    fields=lambda task: {
        "choice": pa.int64(),
        "probability": pa.float64(),
        "probabilities": pa.list_(pa.float64()),
    },
    rows=_choice_rows,
)
