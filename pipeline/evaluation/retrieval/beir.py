"""Read BEIR's layout (Thakur et al. 2021, github.com/beir-cellar/beir).

corpus.jsonl       {"_id", "title", "text"} per line; title may be left out
queries.jsonl      {"_id", "text"} per line
qrels/SPLIT.tsv    a header line, then query id, document id and grade
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pipeline.errors import BadRow, DataError, listed, shown
from pipeline.evaluation.retrieval.collection import Collection, build_collection
from pipeline.files import storage
from pipeline.tables.bad_rows import BadRows
from pipeline.tables.content import SURROGATE, existing_file, text_lines
from pipeline.tables.readers import json_rows
from pipeline.tables.roles import BEIR_ID
from pipeline.tables.separated import tab_separated
from pipeline.tasks.task import plain_number

DOCUMENTS, QUERIES, JUDGEMENTS = "corpus.jsonl", "queries.jsonl", "qrels/{split}.tsv"
HEADER = ("query-id", "corpus-id", "score")


def read(folder: str, split: str, bad: BadRows) -> Collection:
    """Read the collection of a folder; a document's text is its title, a space and its text, as in BEIR.

    A document with a query's id is that query itself (in ArguAna), and not among its results, as in BEIR.
    """
    qrels = storage.join(folder, JUDGEMENTS.format(split=split))
    if existing_file(qrels) is None:
        available = listed(storage.children(storage.join(folder, "qrels")))
        raise DataError(f"{qrels} does not exist; its folder has {available}: name one of them with --split")
    documents, queries = storage.join(folder, DOCUMENTS), storage.join(folder, QUERIES)
    collection = build_collection(
        folder, _texts(documents, bad), _texts(queries, bad), read_judgements(qrels, bad), bad
    )
    own = {id: id for id in collection.queries if id in collection.documents}
    note = f"{len(own):,} queries are documents, which are not among their own results"
    return replace(collection, own=own, notes=(*collection.notes, note)) if own else collection


def _texts(location: str, bad: BadRows) -> Iterator[tuple[str, str, str]]:
    """Yield (file and line, id, title and text) of each JSON line."""
    for line, row in bad.usable(json_rows(location, text_lines(existing_file(location) or location))):
        where = f"{location}:{line}"
        try:
            title, text = _field(where, row, "title"), _field(where, row, "text")
            yield where, _field(where, row, BEIR_ID, required=True), f"{title} {text}"
        except BadRow as error:
            bad.take(error)


def _field(where: str, row: dict[str, Any], name: str, *, required: bool = False) -> str:
    """Return a field's text; a missing field gives "", or raises BadRow if `required`. An id may also be a number.

    Half of a surrogate pair becomes U+FFFD in a text, and raises BadRow in an id.
    """
    value = row.get(name)
    if value is None and not required:
        return ""
    if name == BEIR_ID and isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        raise BadRow(f"{where}: {name} is not a text but {shown(value)}", "no-text")
    if name == BEIR_ID and SURROGATE.search(value):
        raise BadRow(f"{where}: _id {shown(value)} holds half of a surrogate pair, which is not a character", "no-text")
    return SURROGATE.sub("\ufffd", value)


def read_judgements(location: str, bad: BadRows) -> Iterator[tuple[str, str, str, int]]:
    """Yield (file and line, query id, document id, grade). Raises DataError unless the header line is HEADER."""
    rows = tab_separated(text_lines(existing_file(location) or location))
    _, names = next(rows, (1, ()))
    if tuple(names) != HEADER:
        raise DataError(f"{location}: the first line is {listed(names)}, but must be {', '.join(HEADER)}, with tabs")
    for line, fields in rows:
        where = f"{location}:{line}"
        try:
            query, document, grade = fields
            yield where, query, document, int(plain_number(grade))
        except ValueError:
            bad.take(BadRow(f"{where}: {shown(fields)} is not two ids and a whole number, with tabs", "no-judgement"))
