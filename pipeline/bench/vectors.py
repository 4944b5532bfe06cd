"""Compare our vectors of texts with `encode` of sentence-transformers: speed in turns, and cosine of the vectors."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch

from pipeline.bench.turns import median_seconds
from pipeline.command_line.command import Command
from pipeline.config.checks import require_at_least
from pipeline.config.embed import Embed
from pipeline.config.locations import Location, with_absolute_locations
from pipeline.config.placement import EmbedPlacement, EmbedPrecision
from pipeline.embed.model import VectorModel, load
from pipeline.embed.texts import InputColumns, text_files, text_tables
from pipeline.errors import ConfigError
from pipeline.saved.prompts import OF_DOCUMENTS
from pipeline.tables.roles import TEXT
from pipeline.train.hardware import cores, has_bfloat16

AIMS: dict[EmbedPrecision, float] = {"float32": 1.2, "bfloat16": 2.0, "int8": 2.0}
"""Number format -> ratio to aim for: sentence-transformers' seconds in float32, divided by ours."""
FLOORS = {"float32": 1.0, "bfloat16": 1.6, "int8": 1.6}
"""Number format -> ratio below which the bench fails."""
COSINES = {"float32": 0.9999, "bfloat16": 0.999, "int8": 0.99}
"""Number format -> least cosine of a text's two vectors."""
PEER = "sentence-transformers"
CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class VectorBench:
    """Compare our vectors with those of sentence-transformers on the CPU; both embed the same texts in turns."""

    checkpoint: Location
    """Folder of an embedding model that sentence-transformers loads too."""
    input: Location
    """Texts, as for jobs/embed.py."""
    text: str = "text"
    """Column of the text."""
    texts: int = 2_000
    """Number of texts, from the beginning of the input."""
    repetitions: int = 5
    """Timed repetitions."""

    def __post_init__(self) -> None:
        require_at_least("texts", self.texts, 1)
        require_at_least("repetitions", self.repetitions, 1)


def main(arguments: Sequence[str]) -> int:
    """Read the command line and compare; return 0 if speed and cosines pass, else 1.

    Raises PipelineError for errors that the user can fix.
    """
    command = Command(prog="jobs/bench.py vectors", about=str(VectorBench.__doc__), settings=VectorBench)
    return _measure(with_absolute_locations(command.read(arguments)))


def _measure(wanted: VectorBench) -> int:
    """Embed the texts in turns and print the results; return the exit code."""
    torch.set_num_threads(cores())
    texts = read_texts(wanted)
    vectors: dict[str, np.ndarray] = {}
    functions = {
        name: _kept(name, function, texts, vectors) for name, function in _sides(wanted.checkpoint, texts).items()
    }
    print(f"{len(texts):,} texts, {sum(map(len, texts)) / len(texts):,.0f} characters each, {cores()} CPU threads")
    seconds = median_seconds(functions, CPU, wanted.repetitions)
    return verdict(seconds, {name: lowest_cosine(vectors[name], vectors[PEER]) for name in vectors}, len(texts))


def read_texts(wanted: VectorBench) -> list[str]:
    """Return the first texts of the input that are not empty. Raises ConfigError if there are too few."""
    embed = Embed(checkpoint=wanted.checkpoint, input=wanted.input, output=f"{wanted.input}/vectors", text=wanted.text)
    files, columns = text_files(embed), InputColumns.of(embed)
    tables = (table for file in files for table in text_tables(file, "", columns, embed.rows_per_part))
    filled = (text for table in tables for text in table[TEXT].to_pylist() if text and text.strip())
    texts = list(islice(filled, wanted.texts))
    if not texts:
        raise ConfigError(f"input ({wanted.input}) has no text that is not empty in column {wanted.text}")
    if len(texts) < wanted.texts:
        raise ConfigError(f"texts ({wanted.texts:,}) are more than input ({wanted.input}) has: give {len(texts):,}")
    return texts


def _sides(checkpoint: str, texts: Sequence[str]) -> dict[str, Callable[[Sequence[str]], np.ndarray]]:
    """Return name -> function that embeds texts: sentence-transformers, then ours in each number format."""
    peer = _peer(checkpoint)
    ours = {name: _ours(checkpoint, name) for name in AIMS if name != "bfloat16" or has_bfloat16(CPU)}
    return {PEER: lambda given: peer.encode(list(given), prompt="", show_progress_bar=False)} | {
        name: model.vectors for name, model in ours.items()
    }


def _peer(checkpoint: str) -> Any:
    """Load the model in sentence-transformers. Raises ConfigError if sentence-transformers is not installed."""
    try:
        from sentence_transformers import SentenceTransformer  # imported here because it takes seconds
    except ImportError as error:
        raise ConfigError(
            f"bench vectors needs sentence-transformers ({error}): pip install sentence-transformers"
        ) from error
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
    return SentenceTransformer(checkpoint, device="cpu")


def _ours(checkpoint: str, precision: EmbedPrecision) -> VectorModel:
    """Load our model in a number format, without a prompt."""
    return load(checkpoint, EmbedPlacement(device="cpu", precision=precision), "", OF_DOCUMENTS)


def _kept(
    name: str,
    embed: Callable[[Sequence[str]], np.ndarray],
    texts: Sequence[str],
    vectors: dict[str, np.ndarray],
) -> Callable[[int], None]:
    """Return a function that embeds the texts and keeps the vectors."""

    def run(repetition: int) -> None:
        vectors[name] = embed(texts)

    return run


def lowest_cosine(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return the lowest cosine between vectors of the same text (texts, dimension)."""
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    return float(((ours * theirs).sum(1) / norms).min())


def verdict(seconds: dict[str, float], cosines: dict[str, float], texts: int) -> int:
    """Print a row per side; return 0 if every ratio and cosine passes, else 1."""
    print(f"{'':<24}{'texts/s':>10}{'ratio':>8}{'aim':>6}{'lowest cosine':>16}")
    failed = []
    for name, taken in seconds.items():
        ratio, aim = seconds[PEER] / taken, f"{AIMS[name]:g}" if name in AIMS else ""
        print(f"{name:<24}{texts / taken:>10,.1f}{ratio:>8.2f}{aim:>6}{cosines[name]:>16.5f}")
        if name in AIMS and ratio < FLOORS[name]:
            failed.append(f"below its floor: {name}: {ratio:.2f}, floor {FLOORS[name]:g}")
        if name in AIMS and cosines[name] < COSINES[name]:
            failed.append(f"{name}: lowest cosine {cosines[name]:.5f}, and it must be at least {COSINES[name]:g}")
    print("\n".join(failed), end="\n" * bool(failed))
    return 1 if failed else 0
