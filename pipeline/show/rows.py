"""Examples and sentences as a person reads them: coloured text for a terminal."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from rich.text import Text

from pipeline.text.vocabulary import Vocabulary

SPECIAL, MASKED, REPLACED, KEPT = "dim", "bold red", "bold yellow", "bold blue"
LEGEND = Text.assemble(
    "masked positions: ", ("[was: MASK]", MASKED), " the answer under a mask, ", ("[was: other]", REPLACED), " another piece in its place, ", ("[was]", KEPT), " left as it is"
)


def pieces(vocabulary: Vocabulary, ids: list[int]) -> list[tuple[str, bool]]:
    """(text, whether it continues a word) of each id."""
    if vocabulary.kind == "wordpiece":
        return [(vocabulary.tokens[id].removeprefix("##"), bool(vocabulary.continuation[id])) for id in ids]
    return [(vocabulary.tokens[id].lstrip("Ġ▁"), bool(vocabulary.continuation[id])) for id in ids]


def coloured(row: dict[str, Any], vocabulary: Vocabulary) -> Text:
    """One example: its pieces as text, special tokens dim, and each masked position with its answer."""
    labels = dict(zip(row["masked_positions"], row["masked_labels"]))
    special = {vocabulary.cls_id, vocabulary.sep_id, vocabulary.pad_id}
    shown, answers = pieces(vocabulary, row["ids"]), dict(zip(labels, pieces(vocabulary, list(labels.values()))))
    text = Text()
    for place, (id, (piece, continues)) in enumerate(zip(row["ids"], shown)):
        if place in labels:
            answer, continues = answers[place]
            style = MASKED if id == vocabulary.mask_id else KEPT if id == labels[place] else REPLACED
            piece = f"[{answer}]" if style == KEPT else f"[{answer}: {'MASK' if style == MASKED else piece}]"
            text.append(piece if continues else f" {piece}", style)
        elif id in special:
            text.append(f" {piece}", SPECIAL)
        else:
            text.append(piece if continues else f" {piece}")
    return text


def label(row: dict[str, Any]) -> str:
    """What the pair task asks, in words; empty where there is none."""
    if row["not_next"] is not None:
        return "B is from another document (NotNext)" if row["not_next"] else "B follows A (IsNext)"
    if row["swapped"] is not None:
        return "B stands before A (swapped)" if row["swapped"] else "A stands before B (in order)"
    return ""


def about(row: dict[str, Any], documents: pa.Table) -> Iterator[str]:
    """Titles and sources of an example's documents, and its size."""
    for name in ("a", "b") if row["document_a"] != row["document_b"] else ("a",):
        document = documents.slice(row[f"document_{name}"], 1).to_pylist()[0]
        yield f"document {name.upper() if row['document_a'] != row['document_b'] else ''}: {document['title'] or '(no title)'}, {document['id']}, from {document['source']}".replace(" :", ":")
    yield ", ".join(part for part in (f"{len(row['ids'])} tokens", f"{len(row['masked_positions'])} masked", label(row)) if part)
