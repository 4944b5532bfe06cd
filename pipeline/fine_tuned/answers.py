"""Turn a fine-tuned model's output for texts, sentences or questions into readable rows, one per item."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from pipeline.errors import DataError, listed
from pipeline.fine_tuned.decoding import answers_of, tag_probabilities_of
from pipeline.fine_tuned.tuned import TunedModel
from pipeline.objectives.logits import compute_logits
from pipeline.tasks import choices, questions, sequences, similarity
from pipeline.tasks.answers import Answer
from pipeline.tasks.choice_tables import with_start
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.prepared import Logits, Prepared
from pipeline.tasks.schema import CHOICES, CUT, TEXTS
from pipeline.tasks.squad import Question
from pipeline.tasks.tagging import Sentence, Utterance
from pipeline.tasks.task import Kind, Task

Columns = Mapping[str, Sequence[Any]]
"""Name of an input column -> its values."""


@dataclass(frozen=True, kw_only=True)
class AnswerForm:
    """What models of one kind of task read and answer."""

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


def required_columns(task: Task, given: Collection[str]) -> tuple[str, ...]:
    """Return the input columns that are required if there are the columns `given`."""
    form = ANSWERS[task.kind]
    return form.instead if form.instead and set(form.instead) <= set(given) else form.columns


def items_of(tuned: TunedModel, columns: Columns) -> Any:
    """Convert columns of equal length to items of a model's task, one per row.

    Tasks on texts read `text`; tasks on pairs also read `second`. None in `second` means that there is no second text.
    Tagging reads lists of words in `words`. Without `words`, it splits `text` at white space. Question answering reads
    `question` and `context`. Multiple choice reads the context in `text` and lists of texts in `choices`; before each
    choice of a row comes its text in `second`, if there is one. Raises DataError for a missing column.
    """
    task = tuned.about.task
    if missing := [name for name in required_columns(task, columns) if name not in columns]:
        raise DataError(
            f"column {missing[0]} is required for {task.name} ({task.kind}), but the columns are "
            f"{listed(list(columns))}"
        )
    return ANSWERS[task.kind].items(task, columns)


def _sentences(task: Task, columns: Columns) -> list[Sentence]:
    """Return the sentences of rows of words.

    Encoding needs tags and intents that the task knows. Answers do not depend on them.
    """
    words = columns["words"] if "words" in columns else [text.split() for text in columns["text"]]
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


def answer_schema(task: Task) -> pa.Schema:
    """Return the schema of the answers to a task's items."""
    return pa.schema(ANSWERS[task.kind].fields(task))


def _shares(task: Task) -> pa.DataType:
    """Return the type of a probability for each label."""
    return pa.struct([pa.field(label, pa.float64()) for label in task.labels])


def answer_items(tuned: TunedModel, items: Any, device: torch.device, autocast: torch.autocast) -> pa.Table:
    """Return a table with schema `answer_schema`: one row per item, in order. A table with rows has metadata CUT.

    Probabilities of labels come from a softmax, and for multilabel tasks from sigmoids; those of tags as in
    `tag_probabilities_of`. An answer to a question is the text of the context from `start` up to `end` (exclusive),
    counted in characters. Its probability is relative to the n-best answers. "No answer" is an empty text without
    offsets. Choices have numbers from 0. Moves the model to the device.
    """
    about = tuned.about
    if not len(items):
        return answer_schema(about.task).empty_table()
    prepared = KINDS[about.task.kind].prepare(about.task, items, tuned.vocabulary, about.cutting)
    logits = compute_logits(tuned.module.to(device), prepared.rows, device, autocast)
    rows = ANSWERS[about.task.kind].rows(tuned, prepared, logits)
    return pa.Table.from_pylist(rows, schema=answer_schema(about.task)).replace_schema_metadata(
        {CUT: str(prepared.cut)}
    )


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


_OF_NUMBERS = AnswerForm(
    optional=("second",), items=_texts, fields=lambda task: {"score": pa.float64()}, rows=_number_rows
)
_OF_COSINES = replace(_OF_NUMBERS, fields=lambda task: {"cosine": pa.float64()}, rows=_cosine_rows)
ANSWERS: dict[Kind, AnswerForm] = {
    "classification": replace(
        _OF_NUMBERS,
        fields=lambda task: {"label": pa.string(), "probability": pa.float64(), "probabilities": _shares(task)},
        rows=_label_rows,
    ),
    "multilabel": replace(
        _OF_NUMBERS,
        fields=lambda task: {"labels": pa.list_(pa.string()), "probabilities": _shares(task)},
        rows=_several_label_rows,
    ),
    "regression": _OF_NUMBERS,
    "ranking": _OF_NUMBERS,
    "similarity": _OF_COSINES,
    "matching": _OF_COSINES,
    "relations": _OF_COSINES,
    "tags": AnswerForm(
        instead=("words",),
        items=_sentences,
        fields=lambda task: {
            "words": pa.list_(pa.string()),
            "tags": pa.list_(pa.string()),
            "probabilities": pa.list_(pa.float64()),
            **({"intent": pa.string()} if task.intents else {}),
        },
        rows=_tag_rows,
    ),
    "spans": AnswerForm(
        columns=("question", "context"),
        items=_questions,
        fields=lambda task: {
            "answer": pa.string(),
            "start": pa.int64(),
            "end": pa.int64(),
            "probability": pa.float64(),
        },
        rows=_span_rows,
    ),
    "choices": AnswerForm(
        columns=("text", "choices"),
        optional=("second",),
        items=_choices,
        fields=lambda task: {
            "choice": pa.int64(),
            "probability": pa.float64(),
            "probabilities": pa.list_(pa.float64()),
        },
        rows=_choice_rows,
    ),
}
"""Kind of task -> what its models read and answer; a kind that is saved as another kind has the other's form."""
