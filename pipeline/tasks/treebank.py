"""Words and part-of-speech tags from the bracketed trees of the Penn Treebank (Marcus et al. 1993)."""

import re
from collections.abc import Iterator, Sequence

from pipeline.errors import DataError, listed
from pipeline.files import storage
from pipeline.tables.content import bare_name, text_lines
from pipeline.tasks.tagging import Sentence

ENDING = ".mrg"
"""File name ending of the treebank's files with merged tags and trees."""
NO_WORD = "-NONE-"
"""Tag of traces and other empty elements, which stand for no word of the text."""
NODE = re.compile(r"\(\s*([^\s()]+)\s+([^\s()]+)\s*\)|\(|\)|[^\s()]+")
"""A leaf "(TAG word)", a bracket, or the label of a constituent."""


def read_treebank(location: str, sections: Sequence[str]) -> list[Sentence]:
    """Return the sentences of sections, which are subfolders of `location` with bracketed files, optionally compressed.

    Words and tags are kept as published, for example "-LRB-" for a bracket; empty elements are left out. Raises
    DataError for a section without files, and, with file and line, for brackets that do not match.
    """
    return [sentence for section in sections for file in _files(location, section) for sentence in _sentences_in(file)]


def _files(location: str, section: str) -> list[str]:
    """Return the files of a section, sorted by name. Raises DataError if there are none."""
    folder = storage.join(location, section)
    files = [name for name in storage.children(folder) if bare_name(name).endswith(ENDING)]
    if not files:
        raise DataError(
            f"{folder} has no files that end in {ENDING}: {location} has {listed(storage.children(location))}; "
            "give the unpacked treebank, with a folder of files for each section"
        )
    return [storage.join(folder, name) for name in files]


def _sentences_in(file: str) -> Iterator[Sentence]:
    """Yield the sentences of one file: one for each outermost bracket that holds words."""
    text, depth, before, leaves = "".join(text_lines(file)), 0, "", []
    for node in NODE.finditer(text):
        tag, word = node.groups()
        if tag is not None:
            leaves += [(word, tag)] if tag != NO_WORD else []
        depth += {"(": 1, ")": -1}.get(node[0], 0)
        if depth < 0 or depth == 0 and node[0] != ")" or node[0] not in "()" and tag is None and before != "(":
            raise _unmatched(file, text, node.start())
        before = node[0]
        if depth == 0 and leaves:
            yield Sentence(words=tuple(word for word, _ in leaves), tags=tuple(tag for _, tag in leaves))
            leaves = []
    if depth:
        raise _unmatched(file, text, len(text.rstrip()))


def _unmatched(file: str, text: str, position: int) -> DataError:
    """Return the error for a position at which brackets do not match."""
    return DataError(
        f"{file}:{text.count(chr(10), 0, position) + 1}: the brackets do not match here; give files of trees such as "
        "( (S (NP (NN rain)) (VP (VBZ falls))))"
    )
