"""A retrieval collection: documents, queries, and judgements of which documents answer which query."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pipeline.errors import BadRow, DataError, shown
from pipeline.tables.bad_rows import BadRows

Texts = Iterable[tuple[str, str, str]]
"""Yields (file and line for messages, id, text)."""
Judgements = Iterable[tuple[str, str, str, int]]
"""Yields (file and line for messages, query id, document id, grade)."""


@dataclass(frozen=True, kw_only=True)
class Collection:
    """Documents with a text, the queries that can be scored, and the grades of judged documents."""

    name: str
    documents: dict[str, str]
    """Id -> text."""
    queries: dict[str, str]
    """Id -> text. Each query has at least one relevant document."""
    grades: dict[str, dict[str, int]]
    """Query id -> document id -> grade: 0 or below is not relevant, a higher grade is more relevant."""
    own: Mapping[str, str] = field(default_factory=dict)
    """Query id -> id of the document that is the query itself, and is left out of its results."""
    notes: tuple[str, ...] = ()
    """Descriptions of what was left out, with counts."""

    def own_indices(self) -> list[int | None]:
        """Return for each query the index of the document that is the query itself, or None."""
        index = {id: number for number, id in enumerate(self.documents)}
        return [index[self.own[query]] if query in self.own else None for query in self.queries]

    @property
    def relevant(self) -> int:
        """Number of relevant judgements."""
        return sum(grade > 0 for judged in self.grades.values() for grade in judged.values())


def build_collection(name: str, documents: Texts, queries: Texts, judgements: Judgements, bad: BadRows) -> Collection:
    """Check ids and texts, and return the collection.

    Documents and queries with an empty text are left out and counted. An empty document that is judged relevant still
    counts as relevant, although no ranking can find this document. Queries without a relevant document are left out and
    counted.

    An id that is given twice is a bad row, and so is a judgement of an unknown query or document. `bad` skips bad rows,
    or raises DataError. Also raises DataError if no query is left.
    """
    by_document, by_query = _by_id(documents, "document", bad), _by_id(queries, "query", bad)
    grades, repeated = _grades(judgements, by_document, by_query, bad)
    relevant = {query for query, judged in grades.items() if max(judged.values()) > 0}
    found = {id: text for id, text in by_query.items() if text and id in relevant}
    counts = {
        "documents have no text": sum(not text for text in by_document.values()),
        "queries have no text": sum(not text for text in by_query.values()),
        "queries have no relevant document": sum(bool(text) and id not in relevant for id, text in by_query.items()),
        "judgements are given twice; the highest grade counts": repeated,
    }
    notes = tuple(f"{count:,} {what}" for what, count in counts.items() if count)
    if not found:
        raise DataError(f"{name}: no query has a text and a relevant document: {'; '.join((*notes, *bad.words()))}")
    return Collection(
        name=name,
        documents={id: text for id, text in by_document.items() if text},
        queries=found,
        grades={id: grades[id] for id in found},
        notes=(*notes, *bad.words()),
    )


def _by_id(texts: Texts, what: str, bad: BadRows) -> dict[str, str]:
    """Return id -> text without white space around it. An id that is given twice is a bad row."""
    by_id: dict[str, str] = {}
    for where, id, text in texts:
        if id in by_id:
            bad.take(BadRow(f"{where}: {what} {shown(id)} is given twice; give each id once", f"{what}-twice"))
        else:
            by_id[id] = text.strip()
    return by_id


def _grades(
    judgements: Judgements, documents: dict[str, str], queries: dict[str, str], bad: BadRows
) -> tuple[dict[str, dict[str, int]], int]:
    """Return the grades, and the number of judgements that repeat the query and document of an earlier judgement."""
    grades: dict[str, dict[str, int]] = {}
    times: Counter[tuple[str, str]] = Counter()
    for where, query, document, grade in judgements:
        unknown = "query" if query not in queries else "document" if document not in documents else None
        if unknown:
            id = query if unknown == "query" else document
            bad.take(BadRow(f"{where}: no {unknown} has the id {shown(id)}; correct the id", f"unknown-{unknown}"))
            continue
        judged = grades.setdefault(query, {})
        judged[document] = max(grade, judged.get(document, grade))
        times[query, document] += 1
    return grades, times.total() - len(times)
