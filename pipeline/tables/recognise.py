"""Detect the format of a file of examples: a table, questions in SQuAD's JSON, or tagged words in CoNLL columns."""

import json
import re
from collections.abc import Callable
from typing import Literal

from pipeline.errors import DataError
from pipeline.files.opening import BOM
from pipeline.tables.content import EmptyTable, bare_name, content_of
from pipeline.tables.readers import is_one_list
from pipeline.tables.roles import LAYOUTS
from pipeline.tables.word_columns import WordLines, word_lines

ExampleKind = Literal["table", "squad", "conll"]
TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
TAGGED = (".conll", ".conllu", ".iob", ".bio", ".iob2", ".bio2")
CHUNK_TAG = re.compile(r"O|[BIESLU](-.+)?")
"""Tags of chunks; BioBERT's have no type."""
SAMPLE_LINES, SAMPLE_BYTES = 1_000, 1 << 18
"""Maximum lines and bytes that are examined for tagged words, so that long files are examined quickly."""


def kind_of(location: str) -> ExampleKind:
    """Return the format of a file or URL, by its name, or by its content if the name is ambiguous (.json, .txt and
    others).

    Raises DataError if the content is needed and cannot be read, or has none of these formats.
    """
    kind = infer_file_kind(location, lambda: content_of(location))
    if kind is None and not content_of(location).strip(f"{BOM} \t\r\n".encode()):
        raise EmptyTable(location)
    if kind is None:
        raise DataError(
            f"the format of {location} cannot be recognised by its name or its content. Give one of these: a table "
            f"({', '.join(TABLES)}, or .json with one object per line or a list of objects); "
            f'SQuAD (.json, one object with a list "data"); or CoNLL ({", ".join(TAGGED)}, or any other file with a '
            "word and its tags on each line and blank lines between sentences)"
        )
    return kind


def infer_file_kind(location: str, content: Callable[[], bytes]) -> ExampleKind | None:
    """Return the format of a file by its name, else by its content; None if neither shows the format.

    `content` must return the whole content of a .json file. For other files, it may return a beginning of more than
    SAMPLE_BYTES bytes.
    """
    name = bare_name(location)
    if name.endswith(".tsv"):  # files with this ending may have words and tags, as those of GermEval 2014 and BioBERT
        return "conll" if _tagged_from_its_first_line(content()) else "table"
    if name.endswith(TABLES):
        return "table"
    if name.endswith(TAGGED):
        return "conll"
    if not name.endswith(".json"):
        sample = content()
        return "conll" if _tagged_words(sample) else "table" if _has_scored_pairs(name, sample) else None
    json_content = content()
    return (
        "squad"
        if _has_articles(json_content)
        else "table"
        if _begins_with_object(json_content) or _has_list_of_objects(json_content)
        else None
    )


def _has_scored_pairs(name: str, content: bytes) -> bool:
    """Return whether a .txt file begins with a published header of scored pairs, as SICK's files do."""
    header = content[:SAMPLE_BYTES].decode("utf-8-sig", "replace").partition("\n")[0].removesuffix("\r").split("\t")
    return name.endswith(".txt") and any(set(columns) <= set(header) for columns in LAYOUTS["similarity"])


def _has_articles(content: bytes) -> bool:
    """Return whether a file is one JSON object with a list of articles."""
    try:
        whole = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(whole, dict) and isinstance(whole.get("data"), list)


def _begins_with_object(content: bytes) -> bool:
    """Return whether the first non-blank line is a JSON object."""
    try:
        return isinstance(json.loads(content.strip().split(b"\n", 1)[0].decode("utf-8-sig")), dict)
    except (ValueError, RecursionError):
        return False


def _has_list_of_objects(content: bytes) -> bool:
    """Return whether a file starts like a JSON list of objects."""
    return is_one_list(content[:SAMPLE_BYTES].decode("utf-8-sig", "replace"))


def _tagged_from_its_first_line(content: bytes) -> bool:
    """Return whether a file has words in columns of which the first counts them, or the last has tags like CHUNK_TAG
    alone; a table has a header instead.
    """
    found = _tagged_words(content)
    if found is None:
        return False
    if found.counted:
        return found.sentences[0][0][1][0].isdecimal()
    return all(CHUNK_TAG.fullmatch(cells[-1]) for sentence in found.sentences for _, cells in sentence)


def _tagged_words(content: bytes) -> WordLines | None:
    """Return the sentences of a file's beginning; None unless it has blank lines, and lines with equal numbers of
    columns (at least two).
    """
    lines = content[:SAMPLE_BYTES].decode("utf-8-sig", "replace").split("\n", SAMPLE_LINES)[:SAMPLE_LINES]
    complete = lines[:-1] if len(content) > SAMPLE_BYTES else lines  # the last line of a sample may be truncated
    plain = [line.strip(f"{BOM} \t\r") for line in complete]
    found = word_lines(plain)
    columns = {len(cells) for sentence in found.sentences for _, cells in sentence}
    # The empty text after the last line end does not count as a blank line.
    return found if len(columns) == 1 and min(columns) > 1 and "" in plain[:-1] else None
