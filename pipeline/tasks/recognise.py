"""What a file of examples is: a table, questions in SQuAD's JSON, or tagged words as CoNLL's files hold them."""

import json
from typing import Literal

from pipeline.errors import DataError
from pipeline.tasks.content import COMPRESSED, content_of
from pipeline.tasks.tagging import BLANK, DOCUMENT_START

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
TAGGED = (".conll", ".iob", ".bio", ".iob2", ".bio2")
SAMPLE_LINES = 1_000
"""So that a long file is not split twice."""


def kind_of(location: str) -> Literal["table", "squad", "conll"]:
    """What a file at a path or URL is, by its name, and by its content where that leaves it open (.json, .txt and others).

    Raises DataError for a file that is not there and for one that is none of these.
    """
    name = location.lower().removesuffix(COMPRESSED)
    if name.endswith(TABLES):
        return "table"
    if name.endswith(TAGGED):
        return "conll"
    content = content_of(location)
    if name.endswith(".json") and has_articles(content):
        return "squad"
    if name.endswith(".json") and begins_with_object(content):
        return "table"
    if not name.endswith(".json") and has_tagged_words(content):
        return "conll"
    raise DataError(
        f"{location}: neither its name nor its content tells what it is; known are tables ({', '.join(TABLES)}, or .json with one object a line), "
        f'SQuAD (.json, one object with a list "data") and CoNLL ({", ".join(TAGGED)}, or a word and its tags on each line and blank lines between sentences)'
    )


def has_articles(content: bytes) -> bool:
    """Whether a file is one JSON object with a list of articles."""
    try:
        whole = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(whole, dict) and isinstance(whole.get("data"), list)


def begins_with_object(content: bytes) -> bool:
    """Whether the first line that is not blank is a JSON object."""
    try:
        return isinstance(json.loads(content.strip().split(b"\n", 1)[0].decode("utf-8-sig")), dict)
    except (ValueError, RecursionError):
        return False


def has_tagged_words(content: bytes) -> bool:
    """Whether lines of as many columns, two at least, stand in blocks with blank lines between or after them."""
    lines = content.decode("utf-8-sig", "replace").split("\n", SAMPLE_LINES)[:SAMPLE_LINES]
    rows = [BLANK.split(line.strip(" \t\r")) for line in lines]
    columns = {len(cells) for cells in rows if cells[0] not in ("", DOCUMENT_START)}
    # what follows the last line end is no blank line
    return len(columns) == 1 and min(columns) > 1 and [""] in rows[:-1]
