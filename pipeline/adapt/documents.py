"""Documents of a prepared corpus under the ids of the user's own files."""

import re
from collections.abc import Iterator

import pyarrow as pa

from pipeline.corpus.prepared import Corpus, read_window

OWN_ID = re.compile(r".*?:\d+:(.+)", re.DOTALL)
"""Parent of a document that has an id of its own: FILE:NUMBER:ID (see row_record in tables/records.py)."""


def own_id(parent: str) -> str:
    """Return the id that a document has in the user's file; without one, FILE or FILE:NUMBER."""
    found = OWN_ID.fullmatch(parent)
    return found[1] if found else parent


def documents_of(corpus: Corpus) -> tuple[dict[str, str], dict[str, str]]:
    """Return {parent: text}, with the pieces of a document joined by line feeds, and {id of a piece: its parent}."""
    pieces: list[tuple[str, int, str, str]] = []
    for table in _windows(corpus):
        columns = (table[name].to_pylist() for name in ("id", "parent", "text"))
        pieces += [(parent, _number(id), id, text) for id, parent, text in zip(*columns)]
    texts: dict[str, list[str]] = {}
    for parent, _, _, text in sorted(pieces):
        texts.setdefault(parent, []).append(text)
    joined = {parent: "\n".join(parts) for parent, parts in texts.items()}
    return joined, {id: parent for parent, _, id, _ in pieces}


def _number(id: str) -> int:
    """Return the number of a piece in its document."""
    return int(id.rpartition("#")[2])


def _windows(corpus: Corpus) -> Iterator[pa.Table]:
    return (read_window(corpus, window) for window in (*corpus.heldout, *corpus.train))
