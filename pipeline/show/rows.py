"""Render examples as coloured text for a terminal."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa
from rich.text import Text

from pipeline.text.splitting import CONTINUATION, META_SPACE, decoder_of
from pipeline.text.vocabulary import Vocabulary

SPECIAL, MASKED, REPLACED, KEPT = "dim", "bold red", "bold yellow", "bold blue"
NAMES = {"A": "bold cyan", "B": "bold magenta"}
BLANK = "␣"
LEGEND = Text.assemble(
    "masked positions: ",
    ("[was: MASK]", MASKED),
    " replaced by a mask, ",
    ("[was: other]", REPLACED),
    " replaced by another piece, ",
    ("[was]", KEPT),
    " left as it was",
)
"""Explanation of the marks on masked positions."""


def text_of(vocabulary: Vocabulary, ids: list[int]) -> str:
    """Return the text of pieces, with a space before each piece that begins a word. Incomplete UTF-8 becomes �."""
    tokens = [vocabulary.tokens[id] for id in ids]
    if vocabulary.kind == "byte-bpe":
        return decoder_of("byte-bpe").decode(tokens)
    if vocabulary.kind == "unigram":
        return "".join(tokens).replace(META_SPACE, " ")
    return "".join(
        token.removeprefix(CONTINUATION) if vocabulary.continuation[id] else f" {token}"
        for id, token in zip(ids, tokens)
    )


def _masked_text(vocabulary: Vocabulary, id: int, label: int) -> tuple[str, str]:
    """Return the text of a masked position, which includes the answer (`label`), and the text's style."""
    whole = text_of(vocabulary, [label])
    answer = whole.strip() or BLANK
    before = " " if whole.startswith(" ") else ""
    if id == vocabulary.mask_id:
        return f"{before}[{answer}: MASK]", MASKED
    if id == label:
        return f"{before}[{answer}]", KEPT
    return f"{before}[{answer}: {text_of(vocabulary, [id]).strip() or BLANK}]", REPLACED


def segments(row: dict[str, Any], vocabulary: Vocabulary) -> list[Text]:
    """Render an example as texts, each up to a [SEP]; special tokens are dim, masked positions show answers."""
    ids, labels = row["ids"], dict(zip(row["masked_positions"], row["masked_labels"]))
    special = {vocabulary.cls_id, vocabulary.sep_id, vocabulary.pad_id}
    texts, after_special = [Text()], False
    # Each masked position and each special token is a group of its own, keyed by its position. The key of all other
    # tokens is None.
    for position, run in groupby(
        range(len(ids)), key=lambda index: index if index in labels or ids[index] in special else None
    ):
        part, style = text_of(vocabulary, [ids[index] for index in run]), ""
        if position in labels:
            part, style = _masked_text(vocabulary, ids[position], labels[position])
        elif position is not None:
            part, style = vocabulary.tokens[ids[position]], SPECIAL
        if after_special or style == SPECIAL:
            part = f" {part.lstrip()}"
        texts[-1].append(part if texts[-1] else part.lstrip(), style)
        after_special = style == SPECIAL
        if position is not None and ids[position] == vocabulary.sep_id != ids[min(position + 1, len(ids) - 1)]:
            texts.append(Text())
    return texts


def label(row: dict[str, Any]) -> str:
    """Return the pair label in words, or a note that the row holds two texts. Other rows give an empty string."""
    if row.get("parent") is not None:
        negatives = sum(length > 0 for length in row.get("negative_lengths") or ())
        more = f" and {negatives} hard negative{'s' * (negatives > 1)}" * (negatives > 0)
        return f"two texts{more}, read separately"
    if row["not_next"] is not None:
        return "B is from another document (NotNext)" if row["not_next"] else "B follows A (IsNext)"
    if row["swapped"] is not None:
        return "B precedes A in the document (swapped)" if row["swapped"] else "A precedes B in the document (in order)"
    return ""


def example_summary(row: dict[str, Any]) -> str:
    """Return the pair label and the numbers of tokens and of masked positions. A row of two texts has no masks, and
    neither has a row with its text."""
    masked = f"{len(row['masked_positions'])} masked" if row.get("parent") is None and row.get("text") is None else ""
    return ", ".join(part for part in (label(row), f"{len(row['ids'])} tokens", masked) if part)


def _origin(document: dict[str, Any]) -> Text:
    """Return the title, id and source of a document."""
    return Text(f"{document['title'] or '(no title)'}, {document['id']}, from {document['source']}", "dim")


def example_lines(row: dict[str, Any], documents: pa.Table, vocabulary: Vocabulary) -> Iterator[tuple[Text, Text]]:
    """Yield the lines of an example as (margin, text): its documents, and its segments.

    The segments of a pair are marked A and B in the margin, and hard negatives N. If A and B come from two documents,
    the marks are not next to the segments: the line before each segment has the mark and the segment's document.
    """
    first, last = (_origin(documents.slice(row[name], 1).to_pylist()[0]) for name in ("document_a", "document_b"))
    texts, paired, same_document = segments(row, vocabulary), bool(label(row)), row["document_a"] == row["document_b"]
    unmarked, a, b, negative = (Text.assemble((f"  {name:3}", NAMES.get(name, ""))) for name in ("", "A", "B", "N"))
    if paired and not same_document:
        yield from ((a, first), (unmarked, texts[0]), (b, last), (unmarked, texts[1]))
        return
    yield unmarked, first if same_document else Text.assemble("begins in ", first)
    if not same_document:
        yield unmarked, Text.assemble("ends in ", last)
    yield from zip((a, b, *(negative,) * (len(texts) - 2)) if paired else (unmarked,) * len(texts), texts)
