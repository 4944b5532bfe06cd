"""Contents of a task's splits: class counts, lengths, labels, and duplicated texts."""

from collections import Counter
from collections.abc import Hashable
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.errors import listed
from pipeline.tasks.intents import INTENT_PREFIX, intents_of
from pipeline.tasks.prepared import Prepared
from pipeline.tasks.task import Task, several

Text = Hashable
"""Texts of an item. Two items with equal texts count as duplicates.

The texts depend on the kind of task: (first, second), with an empty second for a single text, and then the choices if
there are any; (question, context); or the words of a sentence. White space is collapsed, except in the words of a
sentence.
"""


def class_counts(task: Task, prepared: Prepared) -> str:
    """Return the counts of a split's classes, most frequent first."""
    return _counted("labels", Counter(prepared.items["label"].to_pylist()))


def label_counts(task: Task, prepared: Prepared) -> str:
    """Return the counts of labels, of which a row may have several or none, most frequent first."""
    rows = [several(label) for label in prepared.items["label"].to_pylist()]
    unlabelled = sum(not row for row in rows)
    counts = _counted("labels", Counter(label for row in rows for label in row))
    return counts + (f", {unlabelled:,} rows without a label" if unlabelled else "")


def value_range(task: Task, prepared: Prepared) -> str:
    """Return the range and mean of labels that are numbers."""
    values = [task.number(label) for label in prepared.items["label"].to_pylist()]
    return f"values from {min(values):g} to {max(values):g}, mean {np.mean(values):g}"


def tag_counts(task: Task, prepared: Prepared) -> str:
    """Return the counts of the words' tags and, if there are any, of the sentences' intents."""
    tags = _counted("tags", Counter(tag for item in prepared.items for tag in item.tags))
    if not task.intents:
        return tags
    return f"{tags}; {_counted('intents', Counter(item.intent for item in prepared.items))}"


def negative_counts(task: Task, prepared: Prepared) -> str:
    """Return the range of the numbers of negative texts; "" if there are none."""
    counts = [len(texts) for texts in prepared.items["negatives"].to_pylist()]
    return f"negative texts per row: {min(counts):,} to {max(counts):,}" if any(counts) else ""


def unanswered_questions(task: Task, prepared: Prepared) -> str:
    """Return the number of questions without an answer; "" if the task requires an answer to each question."""
    without = sum(item.impossible or not item.answers for item in prepared.items)
    return f"{without:,} questions without an answer" if task.unanswerable else ""


def _counted(noun: str, counts: Counter[str]) -> str:
    """Return the noun and each name with its count, most frequent first."""
    return f"{noun} {listed(f'{name} {times:,}' for name, times in counts.most_common())}"


def lengths_in_words(rows: pa.Table) -> str:
    """Return the median, 95th percentile and maximum length of rows in tokens, after truncation."""
    lengths = rows["ids"].combine_chunks().value_lengths().to_numpy()
    middle, most, longest = np.percentile(lengths, (50, 95, 100), method="lower")
    return f"tokens per row: median {middle:,}, 95% at most {most:,}, longest {longest:,}"


def shared_in_words(task: Task, train: Any, items: Any) -> str:
    """Return a warning if texts of the items also occur in `train`; "" if no text is shared.

    The warning has the number of such items, and the number of those that have another answer in `train`.
    """
    answers = _answers_by_text(train)
    shared = [(text, answer) for text, answer in zip(texts_of(items), _answers_of(items)) if text in answers]
    if not shared:
        return ""
    other = sum(answer not in answers[text] for text, answer in shared)
    warning = f"{len(shared):,} of {len(items):,} have a text that is also in train, so the scores are too high"
    return warning + (f"; {other:,} of them have another label in train" if other else "")


def contradictions_in_words(task: Task, items: Any) -> str:
    """Return a line with the number of items whose texts also occur with another answer; "" if there are none."""
    answers = _answers_by_text(items)
    rows = sum(len(answers[text]) > 1 for text in texts_of(items))
    return f"{rows:,} of {len(items):,} have a text that also occurs with another label" if rows else ""


def _answers_by_text(items: Any) -> dict[Text, set[Hashable]]:
    """Return text -> all answers (as in `_answers_of`) of the items with this text."""
    answers: dict[Text, set[Hashable]] = {}
    for text, answer in zip(texts_of(items), _answers_of(items)):
        answers.setdefault(text, set()).add(answer)
    return answers


def texts_of(items: Any) -> list[Text]:
    """Return the texts of each item: of a table with schema TEXTS or CHOICES, or of a list of Sentence or Question."""
    if isinstance(items, pa.Table):
        names = items.schema.names
        choices = items["choices"].to_pylist() if "choices" in names else [[]] * items.num_rows
        texts = zip(items["first"].to_pylist(), items["second"].to_pylist(), choices)
        return [(_plain(first), _plain(second or ""), *map(_plain, more)) for first, second, more in texts]
    return [item.words if hasattr(item, "words") else (_plain(item.question), _plain(item.context)) for item in items]


def contexts_of(items: Any) -> list[Text]:
    """Return the context of each question."""
    return [item.context for item in items]


def queries_of(items: Any) -> list[Text]:
    """Return the query of each candidate."""
    return items["first"].to_pylist()


def class_sets(items: Any) -> list[set[str]]:
    """Return each row's class, in a set."""
    return [{label} for label in items["label"].to_pylist()]


def label_sets(items: Any) -> list[set[str]]:
    """Return each row's labels."""
    return [set(several(label)) for label in items["label"].to_pylist()]


def tag_sets(items: Any) -> list[set[str]]:
    """Return the tags of each sentence, and its intent if it has one, marked with INTENT_PREFIX."""
    return [{*item.tags, *(INTENT_PREFIX + intent for intent in intents_of([item]))} for item in items]


def no_sets(items: Any) -> list[set[str]]:
    """Return an empty set for each item, whose labels are no names that a model must have seen."""
    return [set()] * len(items)


def text_columns(items: Any) -> dict[str, list[Any]]:
    """Return the columns of texts, or pairs of texts, that a served model takes."""
    second = items["second"].to_pylist()
    return {"text": items["first"].to_pylist()} | ({"second": second} if any(second) else {})


def sentence_columns(items: Any) -> dict[str, list[Any]]:
    """Return the column of sentences that a served model takes."""
    return {"text": [" ".join(item.words) for item in items]}


def question_columns(items: Any) -> dict[str, list[Any]]:
    """Return the columns of questions that a served model takes."""
    return {"question": [item.question for item in items], "context": [item.context for item in items]}


def _answers_of(items: Any) -> list[Hashable]:
    """Return each item's label, tags with the intent, or answer texts."""
    if isinstance(items, pa.Table):
        return items["label"].to_pylist()
    return [
        (item.tags, getattr(item, "intent", None)) if hasattr(item, "tags") else tuple(text for text, _ in item.answers)
        for item in items
    ]


def _plain(text: str) -> str:
    """Collapse white space to single spaces."""
    return " ".join(text.split())
