"""Number formats of stored vectors: float32, float16, int8 with a scale per vector, and one bit per number.

Shapes: N vectors, D numbers per vector.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipeline.config.embed import VectorFormat
from pipeline.errors import ConfigError

VECTOR, SCALE = "vector", "scale"
"""Columns of a part: the vector as a list of fixed size, and for int8 the factor of the vector's numbers."""
BITS = 8
LARGEST = 127


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Functions that convert vectors, float32 (N, D), to stored numbers and back."""

    kind: pa.DataType
    """Arrow type of a stored number."""
    encode: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray | None]]
    """Return the stored numbers (N, numbers per vector), and the scales (N,) if there are any."""
    decode: Callable[[np.ndarray, np.ndarray | None], np.ndarray]
    """Return the vectors, float32 (N, D), from stored numbers and scales. Binary vectors consist of 1 and -1."""


def _encode_int8(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Scale each vector so that its largest number is 127 or -127, and round."""
    scales = np.abs(vectors).max(1, initial=0) / np.float32(LARGEST)
    safe = np.where(scales > 0, scales, np.float32(1))
    return np.rint(vectors / safe[:, None]).astype(np.int8), scales.astype(np.float32)


def _decode_int8(numbers: np.ndarray, scales: np.ndarray | None) -> np.ndarray:
    assert scales is not None
    return numbers.astype(np.float32) * scales[:, None]


FORMATS: dict[VectorFormat, Stored] = {
    "float32": Stored(
        kind=pa.float32(),
        encode=lambda vectors: (vectors, None),
        decode=lambda numbers, _: numbers,
    ),
    "float16": Stored(
        kind=pa.float16(),
        encode=lambda vectors: (vectors.astype(np.float16), None),
        decode=lambda numbers, _: numbers.astype(np.float32),
    ),
    "int8": Stored(kind=pa.int8(), encode=_encode_int8, decode=_decode_int8),
    "binary": Stored(
        kind=pa.uint8(),
        encode=lambda vectors: (np.packbits(vectors > 0, axis=1), None),
        decode=lambda numbers, _: np.unpackbits(numbers, axis=1).astype(np.float32) * 2 - 1,
    ),
}


def require_format(format: VectorFormat, dimension: int) -> None:
    """Raise ConfigError if vectors of this dimension cannot be stored in the format."""
    if format == "binary" and dimension % BITS:
        raise ConfigError(
            f"format (binary) needs a dimension that is a multiple of {BITS}, and the model's is {dimension}: "
            "choose int8"
        )


def to_columns(vectors: np.ndarray, format: VectorFormat) -> dict[str, pa.Array]:
    """Return the columns of a part that hold vectors (N, D), float32."""
    stored = FORMATS[format]
    numbers, scales = stored.encode(vectors)
    flat = pa.array(np.ascontiguousarray(numbers).reshape(-1), stored.kind)
    columns = {VECTOR: pa.FixedSizeListArray.from_arrays(flat, numbers.shape[1])}
    return columns if scales is None else columns | {SCALE: pa.array(scales)}


def as_stored(vectors: np.ndarray, format: VectorFormat) -> np.ndarray:
    """Return vectors (N, D), float32, as they are read after they were stored in the format."""
    stored = FORMATS[format]
    return stored.decode(*stored.encode(vectors))


def to_vectors(table: pa.Table, format: VectorFormat) -> np.ndarray:
    """Return the vectors in a part's columns, float32 (N, D)."""
    column = table[VECTOR]
    size = column.type.list_size
    numbers = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks]
    empty = np.zeros(0, FORMATS[format].kind.to_pandas_dtype())
    whole = np.concatenate([empty, *numbers]).reshape(-1, size) if len(numbers) != 1 else numbers[0].reshape(-1, size)
    scales = table[SCALE].to_numpy() if SCALE in table.column_names else None
    return FORMATS[format].decode(whole, scales)
