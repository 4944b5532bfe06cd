"""Folders of made-up vectors."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipeline.embed.description import Description
from pipeline.embed.folder import (
    CUT,
    EMPTY,
    PRECISION,
    TEXTS,
    StoredChunks,
    begin,
    part_table,
    parts_in,
    publish,
    publish_part,
)
from pipeline.embed.vectors import Vectors, open_vectors

Write = Callable[..., Vectors]


@pytest.fixture
def write_vectors(tmp_path: Path) -> Write:
    """A function that writes vectors (N, D) to a folder in parts of 100 rows and opens the folder."""

    def write(
        vectors: np.ndarray,
        *,
        name: str = "vectors",
        format="float32",
        similarity: str = "cosine",
        chunks=None,
        ids=None,
        texts=None,
        model: Description | None = None,
        keep_text: bool = True,
    ) -> Vectors:
        count, dimension = vectors.shape
        model = model or Description(
            checkpoint="/none", digest="d", dimension=dimension, pooling="mean", normalized=False,
            similarity=similarity, prompt="", maximum_length=16,
        )  # fmt: skip
        numbers = chunks or [0] * count
        names = ids or [f"t{text}" for text in np.cumsum([number == 0 for number in numbers])]
        folder = str(tmp_path / name)
        assert not begin(folder, {"format": format}, replace=False)
        for part, first in enumerate(range(0, count, 100)):
            rows = slice(first, first + 100)
            shown = StoredChunks(
                ids=names[rows], titles=None, numbers=numbers[rows], spans=[(0, 1)] * len(names[rows]),
                texts=(texts or [f"text {row}" for row in range(count)])[rows],
            )  # fmt: skip
            table = part_table(shown, vectors[rows], format, keep_text)
            counts = {TEXTS: str(numbers[rows].count(0)), EMPTY: "0", CUT: "0", PRECISION: "float32"}
            publish_part(parts_in(folder), 0, part, table, counts)
        publish(folder, {"format": format}, model, format)
        return open_vectors(folder)

    return write
