"""How rows of each kind of task are read from tables and from Python, and what their answers can be used for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.tasks.task import Kind

FromPython = Callable[[Any], Mapping[str, Any] | None]
"""Function from a row that is no dictionary to {input column: value}; None: the row has none of the forms."""


def _text_or_pair(row: Any) -> Mapping[str, Any] | None:
    """Read a text, or a tuple of two texts."""
    if isinstance(row, str):
        return {"text": row}
    return dict(zip(("text", "second"), row, strict=True)) if _types(row) == (str, str) else None


def _question(row: Any) -> Mapping[str, Any] | None:
    """Read a tuple of a question and its context."""
    return dict(zip(("question", "context"), row, strict=True)) if _types(row) == (str, str) else None


def _text_with_choices(row: Any) -> Mapping[str, Any] | None:
    """Read a tuple of a text and the list of its choices."""
    return dict(zip(("text", "choices"), row, strict=True)) if _types(row) == (str, list) else None


def _types(row: Any) -> tuple[type, ...]:
    """Return the types of the parts of a tuple; empty for anything else."""
    return tuple(map(type, row)) if isinstance(row, tuple) else ()


@dataclass(frozen=True, kw_only=True)
class RowForm:
    """How rows of one kind of task are read, and what their answers can be used for."""

    inputs: tuple[str, str] = ("text", "second")
    """Input columns of the model that --text and --pair fill."""
    text: str = "text"
    """Default column of the text."""
    otherwise: str | None = None
    """Default column of the text in tables that lack `text`."""
    pair: str | None = None
    """Default column of the second text; None: rows need not have a second text."""
    words: bool = False
    """Whether the text is words, which may be a list, and files may have CoNLL's columns."""
    choices: bool = False
    """Whether rows have several texts to choose from."""
    from_python: FromPython = _text_or_pair
    from_python_words: str = "a text, a pair of texts or a dictionary"
    """Forms of a row in Python, for people."""
    answers_by_id: bool = False
    """Whether answers are texts by id, the JSON that SQuAD's official scripts read."""
    most_scored_labels: int | None = None
    """Most labels of a model whose output scores a pair of texts, 0 for a number; None: its outputs score no pairs."""


TEXTS = RowForm()
"""Form of rows of texts, also for models without a task."""
FORMS: dict[Kind, RowForm] = {
    "classification": RowForm(most_scored_labels=2),
    "multilabel": TEXTS,
    "regression": RowForm(most_scored_labels=0),
    "ranking": RowForm(most_scored_labels=0),
    "similarity": TEXTS,
    "matching": TEXTS,
    "relations": TEXTS,
    "tags": RowForm(text="words", otherwise="text", words=True),
    "spans": RowForm(
        inputs=("context", "question"),
        text="context",
        pair="question",
        from_python=_question,
        from_python_words="a dictionary or (question, context)",
        answers_by_id=True,
    ),
    "choices": RowForm(
        choices=True,
        from_python=_text_with_choices,
        from_python_words="a dictionary or (text, list of choices)",
    ),
}


def form_of(kind: str) -> RowForm:
    """Return the form of rows of a kind of task, or of a model without a task."""
    return FORMS.get(kind, TEXTS)
