"""Layouts of published files of texts and pairs: how their lines become named columns."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from pipeline.errors import BadRow, DataError, shown
from pipeline.tables.columns import BrokenLine, NotScored, require_columns
from pipeline.tables.content import existing_file, text_lines
from pipeline.tables.readers import json_rows
from pipeline.tables.separated import csv_rows, tab_separated
from pipeline.tasks.task import Layout, Split

Lines = Iterator[tuple[int, Sequence[str] | BrokenLine]]
"""Yields (line number from 1, fields of the row), or the reason why the row cannot be used or is not scored."""
Reading = tuple[Sequence[str], Lines]
"""Names of the columns, and the rows."""
AG_NEWS_TOPICS = ("World", "Sports", "Business", "Sci/Tech")
"""Classes 1 to 4 of AG News, as classes.txt of its archive names them."""

SNLI_COLUMNS = ("pairID", "sentence1", "sentence2", "gold_label")
NO_GOLD = "-"
"""SNLI's class of pairs on which the annotators did not agree; they are left out (Bowman et al. 2015, section 2.2)."""
TOXICITY_LABELS = ("toxic", "severe_toxic", "obscene", "threat", "insult", "identity_hate")
UNSCORED = "-1"
"""Value of all labels of a test comment that the challenge did not score."""
QUESTION_START = re.compile(r"<QApairs id='(.*)'>")


def _read_tab_separated(location: str, lines: Iterator[str], split: Split) -> Reading:
    """Read GLUE's layout: quotes are plain characters, and each line is one row."""
    rows = tab_separated(lines)
    return split.headings or next(rows, (1, ("",)))[1], rows


def _read_ag_news(location: str, lines: Iterator[str], split: Split) -> Reading:
    r"""Read AG News (Zhang et al. 2015): CSV without a header, with class 1 to 4, title and description.

    The columns are `text` (title, space, description) and `label` (the topic's name). A file has "\" for a line end and
    remains of HTML entities such as "#36;"; both are left as they are.
    """
    return ("text", "label"), _ag_news_rows(location, lines)


def _ag_news_rows(location: str, lines: Iterator[str]) -> Lines:
    """Yield the rows of a file of AG News. A class other than 1 to 4 stays as it is."""
    numbers = {str(number): topic for number, topic in enumerate(AG_NEWS_TOPICS, 1)}
    for line, fields in csv_rows(location, lines, ","):
        if len(fields) != 3:
            yield line, BrokenLine(f"{len(fields)} columns instead of 3")
        else:
            topic, *texts = (field.strip() for field in fields)
            yield line, (" ".join(text for text in texts if text), numbers.get(topic, topic))


def _read_snli(location: str, lines: Iterator[str], split: Split) -> Reading:
    """Read SNLI: an object per line. Pairs without a gold label are not scored, and are left out of training too."""
    return SNLI_COLUMNS, _snli_rows(location, lines)


def _snli_rows(location: str, lines: Iterator[str]) -> Lines:
    """Yield SNLI_COLUMNS of each line."""
    for line, row in json_rows(location, lines):
        if isinstance(row, BadRow):
            yield line, BrokenLine(str(row).removeprefix(f"{location}:{line}: "))
            continue
        if wrong := [name for name in SNLI_COLUMNS if not isinstance(row.get(name), str)]:
            yield line, BrokenLine(f"column {wrong[0]} is missing or not a text")
        elif row["gold_label"] == NO_GOLD:
            yield line, NotScored("the annotators did not agree on a label")
        else:
            yield line, [row[name] for name in SNLI_COLUMNS]


def _read_toxicity(location: str, lines: Iterator[str], split: Split) -> Reading:
    """Read the Toxic Comment Classification Challenge: CSV with a column of 0 and 1 per label.

    If the file lacks these columns, they are in a second file: test.csv has its labels in test_labels.csv. There, -1
    marks comments that are not scored. The column `label` is a JSON list.

    Raises DataError for a missing column or file.
    """
    rows = csv_rows(location, lines, ",")
    names = next(rows, (1, []))[1]
    if set(TOXICITY_LABELS) & set(names):
        require_columns(location, names, ("id", "comment_text", *TOXICITY_LABELS))
        labels = None
    else:
        require_columns(location, names, ("id", "comment_text"))
        labels = _labels_by_id(location.removesuffix(".csv") + "_labels.csv")
    return ("id", "comment_text", "label"), _toxicity_rows(rows, names, labels)


def _labels_by_id(location: str) -> dict[str, dict[str, str]]:
    """Return id -> the columns of a row, for a file of test labels. Raises DataError if it is missing."""
    path = existing_file(location)
    if path is None:
        raise DataError(f"{location} does not exist: it has the labels of the test comments")
    rows = csv_rows(path, text_lines(path), ",")
    names = next(rows, (1, []))[1]
    require_columns(path, names, ("id", *TOXICITY_LABELS))
    cells = (dict(zip(names, fields)) for _, fields in rows)
    return {row["id"]: row for row in cells}


def _toxicity_rows(
    rows: Iterator[tuple[int, list[str]]], names: Sequence[str], labels: Mapping[str, Mapping[str, str]] | None
) -> Lines:
    """Yield (id, text, JSON list of labels). `labels` are those of a second file; None: the rows have their labels."""
    for line, fields in rows:
        row = dict(zip(names, fields))
        if len(fields) != len(names):
            yield line, BrokenLine(f"{len(fields)} columns instead of {len(names)}")
            continue
        marks = row if labels is None else labels.get(row["id"], {})
        values = {name: marks.get(name, "") for name in TOXICITY_LABELS}
        if set(values.values()) == {UNSCORED}:
            yield line, NotScored("not scored (all labels are -1)")
        elif wrong := [name for name, value in values.items() if value not in ("0", "1")]:
            yield line, BrokenLine(f"label {wrong[0]} of id {row['id']} is {shown(values[wrong[0]])}, not 0 or 1")
        else:
            named = json.dumps([name for name, value in values.items() if value == "1"])
            yield line, (row["id"], row["comment_text"], named)


def _read_trec_qa(location: str, lines: Iterator[str], split: Split) -> Reading:
    """Read TREC QA (Wang et al. 2007) in the XML-like layout of Yao et al. 2013.

    A question has the element QApairs with an id. In it, each of the elements question, positive and negative begins
    with a line of words divided by tabs; the lines of tags and parses after it are not read.
    """
    return ("question_id", "question", "sentence", "label"), _trec_rows(lines)


def _trec_rows(lines: Iterator[str]) -> Lines:
    """Yield (id of the question, question, sentence, "1" for positive or "0" for negative)."""
    id = question = before = ""
    for line, text in enumerate(lines, 1):
        text = text.strip()
        words = " ".join(text.split("\t"))
        if match := QUESTION_START.fullmatch(text):
            id, question = match[1], ""
        elif before == "<question>":
            question = words
        elif before in ("<positive>", "<negative>"):
            yield line, (id, question, words, str(int(before == "<positive>")))
        before = text


LAYOUTS: dict[Layout, Callable[[str, Iterator[str], Split], Reading]] = {
    "tab-separated": _read_tab_separated,
    "ag-news": _read_ag_news,
    "snli": _read_snli,
    "toxicity": _read_toxicity,
    "trec-qa": _read_trec_qa,
}
"""Layout -> function from (location, lines, split) to names of columns and rows."""
