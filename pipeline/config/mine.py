"""Settings for mining hard negatives from vectors of texts."""

from dataclasses import dataclass
from typing import Literal

from pipeline.config.checks import require, require_at_least, require_share
from pipeline.config.locations import Location
from pipeline.config.placement import ModelPlacement

OUTPUTS = (".jsonl", ".parquet")


@dataclass(frozen=True, kw_only=True)
class Mine:
    """Find texts that are similar to a query and do not match it, as negative texts for training."""

    vectors: Location
    """Folder or URL of vectors that jobs/embed.py wrote, with their texts."""
    pairs: Location
    """File, folder, glob or URL of rows with a query and a matching text: CSV, TSV, JSON lines or Parquet."""
    output: Location
    """File of the rows with their negative texts, ending in .jsonl or .parquet; it appears when it is complete."""
    replace: bool = False
    """Replace output if it exists."""
    text: str | None = None
    """Column of the query; default: anchor, query or question, if the files have it, else text."""
    pair: str | None = None
    """Column of the matching text; default: positive or answer, if the files have it, else pair."""
    negatives: int = 4
    """Maximum negative texts per row."""
    among: int = 100
    """Number of most similar texts from which the negative texts of a query are chosen."""
    margin: float = 0.05
    """A negative text must be less similar to the query than the matching text, by this share of the matching text's
    similarity. This avoids texts that match the query although no row says so (Moreira et al. 2024).
    """
    checkpoint: Location | None = None
    """Folder or URL of the model that made the vectors; default: the model's location at that time."""
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
        require_at_least("negatives", self.negatives, 1)
        require(self.among >= self.negatives, f"among ({self.among}) must be at least negatives ({self.negatives})")
        require_share("margin", self.margin)
        require(
            self.output.endswith(OUTPUTS),
            f"output ({self.output}) must end in {' or '.join(OUTPUTS)}, the formats of the rows",
        )
