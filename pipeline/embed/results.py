"""Report what was embedded, and show the results of a search as a table or as JSON lines."""

import json
from collections.abc import Sequence
from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.config.embed import Search
from pipeline.embed.description import Description
from pipeline.embed.folder import PartTotals
from pipeline.embed.query_files import Query
from pipeline.embed.search import Found
from pipeline.embed.vectors import Vectors
from pipeline.files import storage
from pipeline.predict.output import require_free
from pipeline.reporting import Report

LONGEST_TEXT = 300
"""Maximum characters of a text in a table."""
WIDTH = 120


def embedded_lines(
    counts: PartTotals, model: Description, output: str, seconds: float, texts: str = "texts"
) -> list[str]:
    """Return the last lines of an embedding job: counts, kind of vectors, time and location.

    `texts` names the texts.
    """
    empty = f", {counts.empty:,} of them empty and without a vector" if counts.empty else ""
    cut = f", {counts.cut:,} of them truncated at {model.maximum_length} tokens" if counts.cut else ""
    computed = f"computed in {' and '.join(counts.precisions)}, in {seconds:.0f} s"
    kind = f"{counts.vectors:,} vectors of {model.dimension} numbers"
    return [f"{counts.texts:,} {texts}{empty}{cut}: {kind}, {computed}: {output}"]


def result_table(query: Query, found: Sequence[Found], width: int = WIDTH) -> str:
    """Return a query and the table of its results."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    reranked = any(one.rerank_score is not None for one in found)
    for head in ("rank", *["rerank"] * reranked, "score", "id", "text"):
        table.add_column(head, justify="left" if head in ("id", "text") else "right", overflow="fold")
    for rank, one in enumerate(found, 1):
        where = f"{one.id}#{one.chunk}" if one.chunk else one.id
        scores = [f"{score:.4f}" for score in (one.rerank_score, one.score) if score is not None]
        table.add_row(str(rank), *scores, Text(where), Text(shown_text(one)))
    lines = StringIO()
    console = Console(file=lines, width=width, color_system=None)
    console.print(table)
    return f"{query.text}\n" + "\n".join(line.rstrip() for line in lines.getvalue().splitlines())


def shown_text(found: Found, longest: int = LONGEST_TEXT) -> str:
    """Return the title and the beginning of a text on one line, at most `longest` characters and an ellipsis."""
    title, text = " ".join((found.title or "").split()), " ".join((found.text or "").split())
    joined = " — ".join(part for part in (title, text) if part) if not text.startswith(title) else text
    return joined if len(joined) <= longest else f"{joined[:longest]}…"


def report_results(
    config: Search, vectors: Vectors, queries: Sequence[Query], found: Sequence[Sequence[Found]], report: Report
) -> None:
    """Write the results to the output of the settings, or report them as tables."""
    if config.output:
        write_results(config.output, queries, found)
        report(f"{len(queries):,} queries in {vectors.count:,} vectors: {config.output}")
        return
    for query, of_query in zip(queries, found, strict=True):
        report(result_table(query, of_query))


def require_output(output: str | None, replace: bool) -> None:
    """Raise ConfigError if `output` cannot be written, or if it exists and `replace` is false."""
    if output:
        require_free(output, replace)
        storage.require_writable("output", output.rpartition("/")[0] or "/")


def write_results(output: str, queries: Sequence[Query], found: Sequence[Sequence[Found]]) -> None:
    """Write one JSON line per query: its id, its text and its results, best first."""
    lines = [
        {"id": query.id, "text": query.text, "results": [one.as_dict() for one in of_query]}
        for query, of_query in zip(queries, found, strict=True)
    ]
    storage.write_bytes(output, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())
