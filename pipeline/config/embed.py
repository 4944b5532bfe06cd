"""Settings for vectors of texts: embed a corpus, and search its vectors."""

from dataclasses import dataclass
from typing import Literal

from pipeline.config.checks import require, require_above_zero, require_at_least, require_rerank, require_utf8
from pipeline.config.locations import Location
from pipeline.config.placement import EmbedPlacement, ModelPlacement

VectorFormat = Literal["float32", "float16", "int8", "binary"]
RESULTS = ".jsonl"
RERANKED = 100
"""Texts of each query that are reranked, unless set otherwise."""


@dataclass(frozen=True, kw_only=True)
class Embed:
    """Compute a vector for every text of files or of a prepared corpus."""

    checkpoint: Location
    """Folder, URL or hf://OWNER/NAME of an encoder: a folder of sentence-transformers, a run, a run's export, or any
    other model that the pipeline loads.
    """
    input: Location
    """File, folder, glob or URL of the texts: CSV, TSV, JSON lines, Parquet, or one text per line; or the folder of a
    prepared corpus, whose training documents are embedded.
    """
    output: Location
    """Folder or URL of the vectors: Parquet files in the subfolder parts, and a manifest after the last vector."""
    format: VectorFormat = "float32"
    """Number format of the vectors. int8: a scale per vector and a byte per number; binary: the sign bit of each
    number.
    """
    text: str = "text"
    """Column of the text."""
    id: str | None = None
    """Column of the ids; default: id if the files have this column, else FILE:ROW."""
    title: str | None = None
    """Column of the titles; they are shown by search but not embedded. Default: title if the files have this column."""
    prompt: str | None = None
    """Name of one of the model's prompts, or a text such as "passage: " that is put before each text; default: the
    model's prompt for documents, if it has one.
    """
    chunks: bool = True
    """Cut texts that are too long for the model into chunks, and compute a vector for each chunk. If off, such texts
    are truncated.
    """
    keep_text: bool = True
    """Store the texts with the vectors, so that search can show the texts."""
    rows_per_part: int = 4_096
    """Maximum texts that are embedded and saved together; together they have at most a million characters. If the job
    is killed, each of its processes loses at most these texts.
    """
    replace: bool = False
    """Replace existing vectors."""
    actors: int | None = None
    """Number of processes that hold the model; default: one for a small input, else as many as fit into the cluster."""
    cpus: float = 1.0
    """CPUs per process."""
    gpus: float | None = None
    """GPUs per process, such as 0.25; default: one if the cluster has GPUs."""
    placement: EmbedPlacement = EmbedPlacement()

    def __post_init__(self) -> None:
        require_at_least("rows_per_part", self.rows_per_part, 1)
        require(self.actors is None or self.actors >= 1, f"actors ({self.actors}) must be at least 1")
        require(
            self.placement.device != "cuda" or self.gpus != 0,
            "placement.device cuda needs a GPU, but gpus is 0: leave placement.device or gpus out",
        )
        require(
            not self.placement.autoscaled or self.actors is not None,
            "placement.autoscaled needs actors, the number of processes that ask for nodes",
        )
        require(
            self.placement.precision != "int8" or self.placement.device != "cuda",
            "placement.precision int8 needs a CPU, but placement.device is cuda: use bfloat16",
        )
        require_above_zero("cpus", self.cpus)
        require(self.gpus is None or 0 <= self.gpus <= 1, f"gpus ({self.gpus}) must lie between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class Search:
    """Find the texts whose vectors are most similar to the vectors of queries."""

    vectors: Location
    """Folder or URL of vectors that jobs/embed.py wrote."""
    queries: str
    """One query, or a file of queries: CSV, TSV, JSON lines, Parquet, or one query per line."""
    top: int = 10
    """Texts to find for each query."""
    output: Location | None = None
    """File of the results, ending in .jsonl, with one line per query; default: a table is printed."""
    replace: bool = False
    """Replace output if it exists."""
    text: str = "text"
    """Column of the query, in a file with columns."""
    id: str | None = None
    """Column of the query's id; default: id if the file has this column, else the number of the query, from 1."""
    checkpoint: Location | None = None
    """Folder or URL of the model that made the vectors; default: the model's location at that time."""
    rerank: Location | None = None
    """Folder, URL or hf://OWNER/NAME of a cross-encoder, which reads a query and a text together. Its scores decide the
    order of the texts that the vectors find: output/finetune/NAME/model of pairs of texts, or a published model.
    """
    rerank_top: int | None = None
    """Texts of each query that rerank scores, at least top; default: 100, or top if that is more."""
    rerank_label: str | None = None
    """Label of rerank whose logit is the score; default: the second of two labels."""
    prompt: str | None = None
    """Name of one of the model's prompts, or a text such as "query: " that is put before each query; default: the
    model's prompt for queries, if it has one.
    """
    index: Literal["auto", "on", "off"] = "auto"
    """Search with an approximate index, which is built once and stored with the vectors; needs the package usearch.
    auto: only for more than a million vectors. off: compare each query with all vectors.
    """
    placement: ModelPlacement = ModelPlacement()

    def __post_init__(self) -> None:
        require_at_least("top", self.top, 1)
        require(self.queries.strip() != "", f"queries ({self.queries!r}) must not be empty")
        require_utf8("queries", self.queries)
        require(
            self.output is None or self.output.endswith(RESULTS),
            f"output ({self.output}) must end in {RESULTS}, the format of the results",
        )
        require_rerank(self.rerank, rerank_top=self.rerank_top, rerank_label=self.rerank_label)
        require(
            self.rerank_top is None or self.rerank_top >= self.top,
            f"rerank_top ({self.rerank_top}) must be at least top ({self.top})",
        )

    @property
    def candidates(self) -> int:
        """Texts of each query that the vectors find."""
        return self.top if self.rerank is None else self.rerank_top or max(self.top, RERANKED)
