"""Read files with a word and its tags on each line, as CoNLL's: find comments, and the columns of words and tags."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pipeline.errors import BadRow, DataError, shown
from pipeline.tables.content import SURROGATE, bare_name, lines
from pipeline.tables.readers import rows_in
from pipeline.tables.roles import WORDS

DOCUMENT_START = "-DOCSTART-"
BLANK = re.compile("[ \t]+")  # no other white space: a no-break space, for example, may be part of a word
COMMENT = re.compile(r"#([ \t]|$|(begin|end) document\b)")
"""Lines that may be comments; "#" may also be a word."""
INSERTED = re.compile(r"\d+[-.]\d+")
"""Number of a line of CoNLL-U that stands for several words (3-4), or for a word that is not in the text (8.1)."""
UNIVERSAL_COLUMNS, FORM, UPOS = 10, 1, 3
"""Columns of CoNLL-U (universaldependencies.org/format): their number, and those of words and parts of speech."""
COUNTED = 0.9
"""The first column counts the words if at least this share of its numbers follow each other; some rows may be lost."""

WITH_LISTS = (".jsonl", ".ndjson", ".json", ".parquet")
"""File formats whose columns can hold lists."""

Line = tuple[int, list[str]]
"""Line number from 1, and cells."""


@dataclass(frozen=True, kw_only=True)
class WordLines:
    """The lines of each sentence, without comments, and the facts that tell which columns hold words and tags."""

    sentences: list[list[Line]]
    columns: int
    """Number of columns of the first line; 0 without lines."""
    counted: bool
    """Whether column 0 counts the words of each sentence."""
    universal: bool
    """Whether the file has the ten columns of CoNLL-U."""
    comments: int
    inserted: int
    """Number of lines left out because their number is like INSERTED."""

    @property
    def words(self) -> int:
        """Column of the words."""
        return FORM if self.counted else 0

    @property
    def tags(self) -> int:
        """Column of the tags, if none is named."""
        return UPOS if self.universal else -1

    def notes(self, words: int, tags: int) -> tuple[str, ...]:
        """Return lines that say what was recognised, if anything was; `words` and `tags` are the columns that are read.

        Nothing is said about a file with the words in column 0 and without comments.
        """
        without = " and ".join(
            f"{count:,} {what}"
            for count, what in ((self.comments, "comments"), (self.inserted, "lines of word ranges or empty nodes"))
            if count
        )
        form = "CoNLL-U" if self.universal else "column 0 counts the words"
        found = [f"{form}: words from column {words}, tags from column {tags % self.columns}"] if self.counted else []
        return (*found, *([f"without {without}"] if without else ()))


def word_lines(lines: Sequence[str]) -> WordLines:
    """Return the sentences of a file, which are divided by blank lines and by lines that begin with DOCUMENT_START.

    A comment is a line before the first word of a sentence that is like COMMENT and does not look like a word with its
    tags: it has another number of columns, or no cell that any other line has in the same column. A file of such lines
    alone has no comments. If column 0 counts the words, each line that begins with "#" is a comment, and lines numbered
    like INSERTED are left out.
    """
    universal = _is_universal(lines)
    blocks = list(_blocks(lines, universal))
    counted = universal or _counts([line for line in block if not line[1][0].startswith("#")] for block in blocks)
    comments = {number for block in blocks for number, _ in (_marked(block) if counted else _candidates(block))}
    words = [cells for block in blocks for number, cells in block if number not in comments]
    columns = len(next(iter(words), [])) or next((len(cells) for block in blocks for _, cells in block), 0)
    if not words:
        comments = set()
    if comments and not counted:
        values = [{cells[index] for cells in words if len(cells) == columns} for index in range(columns)]
        comments -= {
            number for block in blocks for number, cells in block if number in comments and _is_word(cells, values)
        }
    kept = [[line for line in block if line[0] not in comments] for block in blocks]
    sentences = [[line for line in block if not (counted and INSERTED.fullmatch(line[1][0]))] for block in kept]
    return WordLines(
        sentences=[sentence for sentence in sentences if sentence],
        columns=columns,
        counted=counted,
        universal=universal,
        comments=len(comments),
        inserted=sum(map(len, kept)) - sum(map(len, sentences)),
    )


def _is_universal(lines: Sequence[str]) -> bool:
    """Return whether all lines but comments are numbered and have the columns of CoNLL-U, divided by tabs."""
    rows = [line.split("\t") for line in lines if line.strip(" \t") and not line.startswith("#")]
    return bool(rows) and all(
        len(cells) == UNIVERSAL_COLUMNS and (cells[0].isdecimal() or INSERTED.fullmatch(cells[0])) for cells in rows
    )


def _blocks(lines: Sequence[str], universal: bool) -> Iterator[list[Line]]:
    """Yield the lines of each sentence, comments included. In CoNLL-U, a cell may contain spaces."""
    block: list[Line] = []
    for number, line in enumerate([*lines, ""], 1):
        text = line.strip(" \t")
        cells = text.split("\t") if universal and not text.startswith("#") else BLANK.split(text)
        if cells[0] not in ("", DOCUMENT_START):
            block.append((number, cells))
        elif block:
            yield block
            block = []


def _counts(blocks: Iterator[list[Line]]) -> bool:
    """Return whether column 0 counts the words of each sentence from 0 or 1, or those of the whole file."""
    rows = following = longer = 0
    last = -1
    for block in blocks:
        numbers = [cells[0] for _, cells in block if len(cells) > 1 and not INSERTED.fullmatch(cells[0])]
        for index, text in enumerate(numbers):
            number = int(text) if text.isdecimal() else -1
            starts = index == 0 and number in (0, 1)
            following += number >= 0 and (starts or number == last + 1)
            longer += number > 0 and number == last + 1
            rows, last = rows + 1, number
    return longer > 0 and following >= COUNTED * rows


def _marked(block: Sequence[Line]) -> list[Line]:
    """Return the lines of a sentence that begin with "#"."""
    return [line for line in block if line[1][0].startswith("#")]


def _candidates(block: Sequence[Line]) -> list[Line]:
    """Return the first lines of a sentence as long as they are like COMMENT."""
    first = next((index for index, (_, cells) in enumerate(block) if not COMMENT.match(" ".join(cells))), len(block))
    return list(block[:first])


def _is_word(cells: Sequence[str], values: Sequence[set[str]]) -> bool:
    """Return whether a line that begins with "#" is the word "#" with its tags; `values`: cells of other lines by
    column.
    """
    return len(cells) == len(values) and (
        len(cells) == 1 or any(cell in known for cell, known in zip(cells[1:], values[1:], strict=True))
    )


def require_column(where: str, cells: Sequence[str], columns: int) -> None:
    """Raise BadRow unless a line's cells are as many as the columns of the first line."""
    if len(cells) != columns:
        raise BadRow(
            f"{where} ({shown(' '.join(cells))}) has {len(cells)} columns, and the file's first word has {columns}: "
            "give each word the same number of columns",
            "number-of-columns",
        )


def require_columns(where: str, words: int, tags: int | None, columns: int) -> None:
    """Raise DataError unless the columns of words and tags exist and differ; `tags` is None for words alone."""
    if not -columns <= words < columns:
        raise DataError(
            f"{where} has {columns} columns, and the words should be in column {words}: choose one of 0 to "
            f"{columns - 1} with --words"
        )
    if tags is None or -columns <= tags < columns and tags % columns != words % columns:
        return
    others = [column for column in range(columns) if column != words % columns]
    consecutive = len(others) > 1 and others[-1] - others[0] == len(others) - 1
    listed = f"{others[0]} to {others[-1]}" if consecutive else ", ".join(map(str, others))
    choice = f"choose one of {listed}, column {words % columns} has the words" if others else "give each word a tag"
    raise DataError(f"{where} has {columns} columns, and the tags should be in column {tags}: {choice}")


def read_words(location: str, words_column: str | None = None, words: int | None = None) -> list[tuple[str, ...]]:
    """Return the words of each sentence in a file that a model will tag.

    In JSON and Parquet, the column `words_column` (None: "words") holds lists of words. Other files are read as by
    `read_sentences`, but need no tags, and lines may have different numbers of columns. Raises DataError for a file
    without sentences or without the column, and for values that are not lists of texts (the message then has file and
    line).
    """
    if bare_name(location).endswith(WITH_LISTS):
        column = words_column or WORDS
        sentences = [
            texts_in(f"{location}:{line}: column {column}", value) for line, (value,) in rows_in(location, (column,))
        ]
    else:
        found = word_lines(lines(location))
        words = found.words if words is None else words
        for number, cells in chain.from_iterable(found.sentences):
            require_columns(f"{location}, line {number}", words, None, len(cells))
        sentences = [tuple(cells[words] for _, cells in sentence) for sentence in found.sentences]
    if not sentences:
        raise DataError(
            f"{location} has 0 sentences: give a file with a word on each line and blank lines between sentences, or "
            "JSON lines with lists of words"
        )
    return sentences


def texts_in(where: str, value: Any) -> tuple[str, ...]:
    """Return the texts of a list. Raises BadRow for an empty list and for other values.

    `where` is file, line and column, for messages.
    """
    if not isinstance(value, list) or not value:
        raise BadRow(
            f"{where} is {'empty' if value is None or value == [] else f'not a list but {shown(value)}'}; expected a "
            "list of texts, one per word",
            "no-words",
        )
    for text in value:
        if not isinstance(text, str):
            raise BadRow(
                f"{where} holds {shown(text)}, which is not text; expected words, or tag names such as B-PER",
                "no-words",
            )
        if SURROGATE.search(text):
            raise BadRow(
                f"{where} holds {shown(text)}, half of a surrogate pair, which is not a character", "half-a-character"
            )
    return tuple(value)
