"""Find the columns of a table that a model reads."""

import pyarrow as pa

from pipeline.errors import ConfigError
from pipeline.fine_tuned.record import TextColumns
from pipeline.tables.columns import MissingColumn
from pipeline.tasks.choice_tables import ChoiceColumns
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.rows import OF_TEXTS, RowForm

FILL = "fill"
"""Kind of a pretrained model, which fills [MASK]s."""


def form_of(kind: str) -> RowForm:
    """Return the form of rows of a kind of task, or of a model without a task."""
    handlers = KINDS.get(kind)
    return OF_TEXTS if handlers is None else handlers.rows


def require_form(output: str, kind: str) -> None:
    """Raise ConfigError if the format of `output` cannot hold answers of this kind."""
    if output.endswith(".json") and not form_of(kind).answers_by_id:
        raise ConfigError(
            f"output ({output}): .json is for answers to questions, but the model's answers are {kind}: end the name "
            "in .jsonl, .csv or .parquet"
        )


def match_columns(
    table: pa.Table,
    kind: str,
    text: str | None,
    pair: str | None,
    trained: TextColumns = TextColumns(),  # noqa: B008
) -> dict[str, str]:
    """Return {input column of the model: column of the table}.

    `text` and `pair` name columns of the table. If they are None, the columns are those of the table that the model was
    trained on, `trained`, if this table has them, else the default for this kind of task. Second texts have no default,
    except for questions. If the table lacks a column, raises DataError that lists the table's columns.
    """
    names, form = table.column_names, form_of(kind)
    first = text or (trained.text if trained.text in names else None) or form.text
    second = pair or trained.pair
    if form.pair is not None and pair is None and second not in names:
        second = form.pair
    if form.otherwise is not None and text is None and first not in names:
        first = form.otherwise
    learnt = f" or {trained.text}, which the model was trained on" if trained.text and not text else ""
    for flag, name, others in (("text", first, learnt), ("pair", second, "")):
        if name is not None and name not in names:
            raise MissingColumn("input", f"{name}{others}", names, f"name the right one with --{flag}")
    lists = form.words and pa.types.is_nested(table[first].type)
    return {"words" if lists else form.inputs[0]: first} | ({form.inputs[1]: second} if second else {})


def choice_names(table: pa.Table, choices: tuple[str, ...], trained: TextColumns) -> tuple[str, ...]:
    """Return the columns of choices: `choices` if given, else those of the training, else the default.

    The default comes before those of the training if the table has only the former.
    """
    names, default = set(table.column_names), ChoiceColumns.choices
    usual = set(default) <= names and not set(trained.choices) <= names
    return choices or (default if usual else trained.choices) or default
