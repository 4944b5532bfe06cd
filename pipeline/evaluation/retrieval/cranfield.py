"""Read the Cranfield collection (Cleverdon 1967) in the format of the SMART system.

cran.all.1400    documents: .I number, .T title, .A authors, .B source, .W abstract
cran.qry         queries: .I number, .W text; the judgements count the queries from 1 and ignore these numbers
cranqrel         judgements: query, document, code from 1 (a complete answer) to 4 (of minimum interest)
"""

from collections.abc import Iterator

from pipeline.errors import BadRow, shown
from pipeline.evaluation.retrieval.collection import Collection, build_collection
from pipeline.files import storage
from pipeline.tables.bad_rows import BadRows
from pipeline.tables.content import existing_file, lines

DOCUMENTS, QUERIES, JUDGEMENTS = FILES = ("cran.all.1400", "cran.qry", "cranqrel")
LEAST_RELEVANT = 4
"""Code of documents of minimum interest. Codes outside of 1 to 4 mean that a document is not relevant."""


def read(folder: str, bad: BadRows) -> Collection:
    """Read the collection of a folder, which has no splits. Grades are 4 for code 1, down to 1 for code 4.

    A document's text is its abstract, which begins with the title.
    """
    documents, queries, judgements = (storage.join(folder, name) for name in FILES)
    return build_collection(
        folder,
        _records(documents),
        ((where, str(number), text) for number, (where, _, text) in enumerate(_records(queries), 1)),
        _judgements(judgements, bad),
        bad,
    )


def _records(location: str) -> Iterator[tuple[str, str, str]]:
    """Yield (file and line, number, text of .W) of each record."""
    where, number, text, field = "", "", [], ""
    for line, content in enumerate(_lines(location), 1):
        if content.startswith(".I"):
            if number:
                yield where, number, " ".join(text)
            where, number, text, field = f"{location}:{line}", content[2:].strip(), [], ""
        elif len(content.rstrip()) == 2 and content[0] == ".":
            field = content[1]
        elif field == "W":
            text.append(content)
    if number:
        yield where, number, " ".join(text)


def _judgements(location: str, bad: BadRows) -> Iterator[tuple[str, str, str, int]]:
    """Yield (file and line, query number, document number, grade) of each judgement."""
    for line, content in enumerate(_lines(location), 1):
        where = f"{location}:{line}"
        if not content.strip():
            continue
        try:
            query, document, code = content.split()
            grade = LEAST_RELEVANT + 1 - int(code)
            yield where, query, document, grade if 1 <= grade <= LEAST_RELEVANT else 0
        except ValueError:
            bad.take(BadRow(f"{where}: {shown(content)} is not three numbers", "no-judgement"))


def _lines(location: str) -> list[str]:
    """Return the lines of a file, plain or compressed."""
    return lines(existing_file(location) or location)
