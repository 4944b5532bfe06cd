"""Choose negative texts for pairs of a query and a matching text: similar to the query, but not matching.

Texts that match the query in any row are never chosen. As in Moreira et al. 2024 (arXiv:2407.15831, "TopK-PercPos"), a
negative text must also be less similar to the query than a share of the matching text's similarity.
Shapes: R rows, Q different queries, K texts found per query.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.config.mine import Mine
from pipeline.embed.formats import as_stored
from pipeline.embed.index import index_hits
from pipeline.embed.memory import return_free_memory
from pipeline.embed.model import VectorModel
from pipeline.embed.pairs import Matches, Pairs, digest
from pipeline.embed.search import Hits, comparable, exact_hits
from pipeline.embed.vectors import Vectors
from pipeline.reporting import Report

REASON = "the texts found match or are too similar (see --among, --margin and the model's prompts)"
SPARE = 4
"""For each negative text that is wanted, the texts of this number of candidates are read first, because some may be
equal, and as many as the query has matches. Where these are not enough, all candidates are read.
"""
NEGATIVES = "negatives"
REPORT_ROWS = 10_240
"""Rows after which progress is reported."""


@dataclass(kw_only=True)
class MiningCounts:
    """Counts of rows and of their negative texts."""

    rows: int = 0
    negatives: int = 0
    without: int = 0
    """Rows without a negative text."""

    def line(self, output: str) -> str:
        """Return the closing line of the job."""
        lacking = f"; {self.without:,} rows have none, as {REASON}" if self.without else ""
        return f"{self.rows:,} rows with {self.negatives:,} negative texts{lacking}: {output}"


@dataclass(kw_only=True)
class Miner:
    """Searches the queries of pairs and chooses their negative texts."""

    config: Mine
    vectors: Vectors
    model: VectorModel
    """The model that made the vectors, with the prompt of queries."""
    matches: Matches
    with_index: bool
    report: Report
    counts: MiningCounts = field(default_factory=MiningCounts)

    def tables(self, pairs: Pairs) -> Iterator[pa.Table]:
        """Yield the rows of all pairs in their order, schema `schema_of(pairs)`."""
        for queries, matches in pairs.blocks():
            negatives = self.negatives(queries, matches)
            before = self.counts.rows
            self.counts.rows += len(negatives)
            self.counts.negatives += sum(map(len, negatives))
            self.counts.without += negatives.count([])
            if self.counts.rows // REPORT_ROWS > before // REPORT_ROWS:
                self.report(f"{self.counts.rows:,} of {len(self.matches):,} pairs")
            yield pa.table([queries, matches, negatives], schema=schema_of(pairs))
            return_free_memory()

    def negatives(self, queries: Sequence[str], matches: Sequence[str]) -> list[list[str]]:
        """Return the negative texts of each row, the most similar first."""
        unique, number = np.unique(np.array(queries, object), return_inverse=True)
        embedded = self.model.vectors(unique.tolist())
        hits = self._hits(embedded)
        limits = self._limits(embedded[number], matches)
        refused = [self.matches.of_query(query) for query in queries]
        below = [
            hits.rows[query][(hits.rows[query] >= 0) & (hits.scores[query] < limit)]
            for query, limit in zip(number.tolist(), limits)
        ]
        few = [rows[: SPARE * self.config.negatives + len(matching)] for rows, matching in zip(below, refused)]
        chosen = self._chosen_of(few, refused)
        lacking = [
            row
            for row, texts in enumerate(chosen)
            if len(texts) < self.config.negatives and len(few[row]) < len(below[row])
        ]
        more = self._chosen_of([below[row] for row in lacking], [refused[row] for row in lacking])
        for row, texts in zip(lacking, more, strict=True):
            chosen[row] = texts
        return chosen

    def _hits(self, embedded: np.ndarray) -> Hits:
        """Search the vectors of queries (Q, D)."""
        if self.with_index:
            return index_hits(self.vectors, embedded, self.config.among, self.report)
        return exact_hits(self.vectors, embedded, self.config.among)

    def _limits(self, embedded: np.ndarray, matches: Sequence[str]) -> np.ndarray:
        """Return the highest similarity of a negative text for each row, float32 (R,).

        `embedded` (R, D) are the vectors of the rows' queries. A matching text is embedded like the texts of the
        vectors, in their number format, but not in chunks.
        """
        described = self.vectors.model
        of_matches = as_stored(replace(self.model, prompt=described.prompt).vectors(matches), self.vectors.format)
        both = (comparable(vectors, described.similarity) for vectors in (embedded, of_matches))
        similar = np.einsum("rd,rd->r", *both)
        return similar - self.config.margin * np.abs(similar)

    def _chosen_of(self, candidates: Sequence[np.ndarray], refused: Sequence[set[int]]) -> list[list[str]]:
        """Return the negative texts among the candidates of each query, int64 rows of the vectors, as `_chosen`."""
        found = self.vectors.rows_of(np.concatenate([np.zeros(0, np.int64), *candidates]).tolist())
        return [
            self._chosen({row: found[row] for row in rows.tolist()}, matching)
            for rows, matching in zip(candidates, refused, strict=True)
        ]

    def _chosen(self, candidates: Mapping[int, Mapping[str, Any]], refused: set[int]) -> list[str]:
        """Return the first texts that do not match; of equal texts, the first one.

        `candidates` has the columns of rows, the most similar first. `refused` are the digests of matching texts.
        """
        different: dict[int, str] = {}
        for row, columns in candidates.items():
            text = str(columns["text"])
            whole = self.long_texts.get(row - columns["chunk"])
            if whole not in refused and digest(text) not in refused:
                different.setdefault(digest(text), text)
        return list(different.values())[: self.config.negatives]

    @cached_property
    def long_texts(self) -> dict[int, int]:
        """Row of a text's first chunk -> digest of the whole text, for texts that have several chunks."""
        digests: dict[int, int] = {}
        for part, start in enumerate(self.vectors.starts.tolist()):
            if self.vectors.rows[part]:
                digests |= _long_texts_in(self.vectors.read(part, ["chunk", "start", "end", "text"]), start)
        return digests


def _long_texts_in(table: pa.Table, first: int) -> dict[int, int]:
    """Return `Miner.long_texts` of a part; `first` is the number of its first row."""
    begins = np.flatnonzero(table["chunk"].to_numpy() == 0)
    counts = np.diff(begins, append=table.num_rows)
    digests = {}
    for begin, count in zip(begins[counts > 1].tolist(), counts[counts > 1].tolist()):
        chunks = table.slice(begin, count).to_pylist()
        gaps = [" " * (later["start"] > earlier["end"]) for earlier, later in zip(chunks, chunks[1:])]
        digests[first + begin] = digest("".join(chunk["text"] + gap for chunk, gap in zip(chunks, [*gaps, ""])))
    return digests


def schema_of(pairs: Pairs) -> pa.Schema:
    """Return the columns of the output: those of the pairs, and the list of negative texts."""
    fields = {pairs.query: pa.string(), pairs.match: pa.string(), NEGATIVES: pa.list_(pa.string())}
    return pa.schema(list(fields.items()))
