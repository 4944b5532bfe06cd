"""Number formats of vectors: literals, and the error of each."""

from typing import get_args

import numpy as np
import pyarrow as pa
import pytest

from pipeline.config.embed import VectorFormat
from pipeline.embed.formats import FORMATS, require_format, to_columns, to_vectors
from pipeline.errors import ConfigError

VECTORS = np.random.default_rng(0).normal(size=(50, 16)).astype(np.float32)


def again(vectors: np.ndarray, format) -> np.ndarray:
    return to_vectors(pa.table(to_columns(vectors, format)), format)


def test_literals() -> None:
    vectors = np.array([[1, -0.5, 0, 0.25, -1, 2, -2, 0.1], [0] * 8], np.float32)
    assert to_columns(vectors, "binary")["vector"].to_pylist() == [[0b10010101], [0]]
    assert to_columns(vectors, "int8")["vector"].to_pylist()[0] == [64, -32, 0, 16, -64, 127, -127, 6]
    assert to_columns(vectors, "int8")["scale"].to_pylist() == [np.float32(2 / 127), 0]
    assert again(vectors, "binary")[0].tolist() == [1, -1, -1, 1, -1, 1, -1, 1]
    assert again(vectors, "int8")[1].tolist() == [0] * 8
    assert to_columns(vectors, "float16")["vector"].type == pa.list_(pa.float16(), 8)


@pytest.mark.parametrize(
    ("format", "least"), [("float32", 1), ("float16", 0.9999999), ("int8", 0.9999), ("binary", 0.6)]
)
def test_stored_vectors_point_the_same_way(format, least: float) -> None:
    stored = again(VECTORS, format)
    cosines = (stored * VECTORS).sum(1) / np.linalg.norm(stored, axis=1) / np.linalg.norm(VECTORS, axis=1)
    assert stored.dtype == np.float32 and cosines.min() >= least - 1e-6
    assert format != "float32" or np.array_equal(stored, VECTORS)


def test_every_format_of_the_setting_has_a_row() -> None:
    assert set(FORMATS) == set(get_args(VectorFormat))


def test_no_vectors() -> None:
    for format in FORMATS:
        assert again(np.zeros((0, 16), np.float32), format).shape == (0, 16)


def test_bits_fill_bytes() -> None:
    require_format("binary", 16)
    with pytest.raises(
        ConfigError, match=r"^format \(binary\) needs a dimension that is a multiple of 8, and .* is 12"
    ):
        require_format("binary", 12)
