"""Layouts of published files of texts and pairs: how their lines become named columns."""

import io
from collections.abc import Callable, Iterator, Sequence

from pipeline.tasks.columns import BrokenLine, tab_separated
from pipeline.tasks.content import decoded
from pipeline.tasks.readers import csv_rows
from pipeline.tasks.task import Layout, Split

Lines = Iterator[tuple[int, Sequence[str] | BrokenLine]]
"""Yields (line number from 1, fields of the row), or the reason why the row cannot be used or is not scored."""
Reading = tuple[Sequence[str], Lines]
"""Names of the columns, and the rows."""
AG_NEWS_TOPICS = ("World", "Sports", "Business", "Sci/Tech")
"""Classes 1 to 4 of AG News, as classes.txt of its archive names them."""


def _read_tab_separated(location: str, content: bytes, split: Split) -> Reading:
    """Read GLUE's layout: quotes are plain characters, and each line is one row."""
    lines = tab_separated(location, content)
    return split.headings or next(lines, (1, ("",)))[1], lines


def _read_ag_news(location: str, content: bytes, split: Split) -> Reading:
    r"""Read AG News (Zhang et al. 2015): CSV without a header, with class 1 to 4, title and description.

    The columns are `text` (title, space, description) and `label` (the topic's name). A file has "\" for a line end and
    remains of HTML entities such as "#36;"; both are left as they are.
    """
    return ("text", "label"), _ag_news_rows(location, content)


def _ag_news_rows(location: str, content: bytes) -> Lines:
    """Yield the rows of a file of AG News. A class other than 1 to 4 stays as it is."""
    numbers = {str(number): topic for number, topic in enumerate(AG_NEWS_TOPICS, 1)}
    for line, fields in csv_rows(location, io.StringIO(decoded(location, content), newline=""), ","):
        if len(fields) != 3:
            yield line, BrokenLine(f"{len(fields)} columns instead of 3")
        else:
            topic, *texts = (field.strip() for field in fields)
            yield line, (" ".join(text for text in texts if text), numbers.get(topic, topic))


LAYOUTS: dict[Layout, Callable[[str, bytes, Split], Reading]] = {
    "tab-separated": _read_tab_separated,
    "ag-news": _read_ag_news,
}
"""Layout -> function from (location, content, split) to names of columns and rows."""
