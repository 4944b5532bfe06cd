"""Read texts without labels, and drop those that the development and test splits also have."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from pipeline.config.finetune import Finetune
from pipeline.errors import ConfigError, DataError, shown
from pipeline.finetune.contents import Text, texts_of
from pipeline.finetune.problems import Problem, data_of
from pipeline.predict.inputs import RowFile, list_inputs, parts_of
from pipeline.reporting import Report
from pipeline.tables.columns import MissingColumn
from pipeline.tasks import known
from pipeline.tasks.files import read_file
from pipeline.tasks.own import bad_rows, columns_of
from pipeline.tasks.tables import Row, read_split, texts_table

ROWS_AT_ONCE = 8_192
SETTING = "unlabelled"


def read_unlabelled(config: Finetune, report: Report) -> pa.Table:
    """Return the texts of all files of config.unlabelled as a table of schema TEXTS with null labels.

    Reports the number of rows. Rows with an empty text are left out and counted. Raises ConfigError for a file that
    does not exist. Raises DataError for a file that lacks a column or cannot be read, and if no row is left.
    """
    files = [file for given in config.unlabelled for file in list_inputs(given, "auto", False, SETTING)]
    rows, empty = [], 0
    for file in files:
        for texts in _texts_in(file, config.text, config.pair):
            if all(text is not None and text.strip() for text in texts):
                rows.append((str(len(rows)), texts[0], texts[1] if len(texts) > 1 else None, None))
            else:
                empty += 1
    without = f", {empty:,} left out because a text is empty" if empty else ""
    report(f"{SETTING}: {len(rows):,} rows in {len(files):,} file{'s' * (len(files) != 1)}{without}")
    return _table_of(config, rows)


def _table_of(config: Finetune, rows: Sequence[Row]) -> pa.Table:
    """Return rows as a table of schema TEXTS. Raises DataError if there are no rows."""
    return texts_table(f"{SETTING} ({', '.join(config.unlabelled)})", rows)


def _texts_in(file: RowFile, first: str, second: str | None) -> Iterator[tuple[str | None, ...]]:
    """Yield the texts of each row: one text, or two texts if `second` names a column. A missing text is None.

    A text file has one text per line and no columns. Raises DataError for a file of another form, for a missing column,
    and for a value that is not a text.
    """
    if file.form not in ("table", "text") or (file.form == "text" and second is not None):
        wanted = "a table, or one text per line (.txt)" if second is None else "a table, because the texts are pairs"
        raise DataError(f"{SETTING} {file.location} has the form {file.form}: give {wanted}")
    columns = ["text"] if file.form == "text" else [name for name in (first, second) if name is not None]
    for table in parts_of(file, ROWS_AT_ONCE):
        if missing := [name for name in columns if name not in table.column_names]:
            remedy = "name the right ones with --text and --pair"
            raise MissingColumn(f"{SETTING} {file.location}", missing[0], table.column_names, remedy)
        for texts in zip(*(table[name].to_pylist() for name in columns), strict=True):
            if odd := [text for text in texts if not isinstance(text, str | None)]:
                raise DataError(f"{SETTING} {file.location}: {shown(str(odd[0]))} is not a text")
            yield texts


def for_problem(config: Finetune, problem: Problem, texts: pa.Table, report: Report) -> pa.Table:
    """Return the rows of `texts` whose text is in no development or test split; report the number of other rows.

    Raises ConfigError if the problem has text pairs but `texts` has single texts, or if the problem has single texts
    but `texts` has pairs. Raises DataError if no row is left.
    """
    task = problem.task
    if task.paired and config.pair is None:
        raise ConfigError(
            f"{SETTING} ({', '.join(config.unlabelled)}) has single texts, but {task.name} is on pairs: name the "
            "column of the second text with --pair"
        )
    if not task.paired and config.pair is not None:
        raise ConfigError(
            f"pair ({config.pair}) names a second text for {SETTING} ({', '.join(config.unlabelled)}), and {task.name} "
            "is on single texts: leave --pair out"
        )
    held_out = _held_out_texts(config, problem)
    kept = [text not in held_out for text in texts_of(texts)]
    if dropped := kept.count(False):
        report(
            f"{task.name} {SETTING}: {dropped:,} of {len(kept):,} rows left out, because dev or test has the same text"
        )
    if not any(kept):
        raise DataError(
            f"{SETTING} ({', '.join(config.unlabelled)}): dev or test of {task.name} has the texts of all "
            f"{len(kept):,} rows: give other texts"
        )
    return texts.filter(pa.array(kept))


def _held_out_texts(config: Finetune, problem: Problem) -> set[Text]:
    """Return the texts of a problem's scored splits, of config.test, and of the task's test splits that have files."""
    tables = [split.items for split in problem.splits.values()]
    if config.test is not None:
        tables.append(read_file(config.test, columns_of(config), problem.task.kind, bad_rows(config)))
    for split in problem.task.splits:
        if split.name.startswith("test") and known.split_location(data_of(config), split):
            tables.append(read_split(problem.task, data_of(config), split.name, skip=True))
    return {text for table in tables for text in texts_of(table)}
