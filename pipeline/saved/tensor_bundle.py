"""Read the tensors of TensorFlow checkpoints, the format of google-research/bert, without TensorFlow.

PREFIX.index is a LevelDB table (google/leveldb, doc/table_format.md). Its keys are tensor names, its values are
BundleEntryProto messages (tensorflow/core/protobuf/tensor_bundle.proto). The files PREFIX.data-?????-of-????? hold the
tensors' bytes.

The project has its own reader because it needs nothing else from TensorFlow.
"""

import math
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pipeline.errors import CheckpointError
from pipeline.files.wire_format import Fields, fields, varint

MAGIC = 0xDB4775248B80FB57
FOOTER, TRAILER = 48, 5
"""Sizes in bytes: of the footer (two block handles, padding, magic number), and of a block's trailer (compression,
checksum).
"""
DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 19: "<f2"}
"""tensorflow/core/framework/types.proto: DT_FLOAT, DT_DOUBLE, DT_INT32, DT_INT64, DT_HALF."""
MOST_INDEX, LONGEST_NAME = 1 << 24, 1 << 10
"""Limits in bytes: of an index, and of a name in the index.

The index of bert-large has 50,000 bytes.
"""
OPTIMIZER = re.compile(r"(^|/)(adam_[mv]|lamb_[mv]|Adam(_1)?|beta[12]_power|global_step)$")
"""Names of a checkpoint's optimiser state, which is not loaded."""
LEAVES = {"kernel": "weight", "gamma": "weight", "beta": "bias", "output_weights": "weight", "output_bias": "bias"}
"""Last part of a tensor's name in TensorFlow -> last part of its name in Hugging Face's checkpoints."""


def read_bundle(prefix: Path) -> dict[str, Tensor]:
    """Return the model's tensors under Hugging Face's names; `prefix` is the path of the index without .index.

    The index is verified by its checksums, but the data files only by their sizes. Raises CheckpointError for files
    that are not a TensorFlow checkpoint.
    """
    index = prefix.with_name(f"{prefix.name}.index")
    try:
        if index.stat().st_size > MOST_INDEX:
            raise ValueError(f"it has more than {MOST_INDEX:,} bytes")
        entries = dict(_table(index.read_bytes()))
        header = fields(entries.pop(b""))
        if _number(header, 2):
            raise ValueError("it is big-endian, but only little-endian can be read")
        named = {key.decode(): fields(value) for key, value in entries.items()}
        files = [
            np.memmap(prefix.with_name(f"{prefix.name}.data-{n:05d}-of-{_number(header, 1):05d}"), np.uint8, "r")
            for n in range(_number(header, 1))
        ]
        kept = {name: _array_of(name, entry, files) for name, entry in named.items() if not OPTIMIZER.search(name)}
        if (wanted := sum(array.nbytes for array in kept.values())) > (held := sum(len(file) for file in files)):
            raise ValueError(f"its tensors need {wanted} bytes, but its data files have {held} bytes")
        return dict(_to_published_name(name, array) for name, array in kept.items())
    except (IndexError, KeyError, ValueError, TypeError, AttributeError, OverflowError, OSError) as error:
        raise CheckpointError(f"{index.name} cannot be read as a TensorFlow checkpoint: {error}") from error


def _to_published_name(name: str, array: np.ndarray) -> tuple[str, Tensor]:
    """Return a tensor's name and values as Hugging Face publishes them. Kernels are transposed."""
    *path, leaf = name.replace("/layer_", "/layer/").split("/")
    if leaf.endswith("_embeddings"):
        path, leaf = [*path, leaf], "weight"
    copied = np.array(array.T if leaf == "kernel" else array, order="C")
    return ".".join(
        [*path, "bias" if name == "cls/predictions/output_bias" else LEAVES.get(leaf, leaf)]
    ), torch.from_numpy(copied)


def _array_of(name: str, entry: Fields, files: Sequence[np.ndarray]) -> np.ndarray:
    """Return a tensor's array, memory-mapped from its data file. Raises ValueError for an unsupported entry."""
    if 7 in entry:
        raise ValueError(f"tensor {name} is sliced: export the checkpoint with whole tensors")
    if _number(entry, 1) not in DTYPES:
        raise ValueError(
            f"tensor {name} has data type {_number(entry, 1)}, but only {', '.join(map(str, DTYPES))} can be read"
        )
    sizes = [_number(fields(size), 1) for size in fields(entry[2][-1]).get(2, [])] if 2 in entry else []
    offset, length, dtype = _number(entry, 4), _number(entry, 5), np.dtype(DTYPES[_number(entry, 1)])
    file = files[_number(entry, 3)]
    if length != math.prod(sizes) * dtype.itemsize or offset + length > len(file):
        raise ValueError(
            f"tensor {name} of shape {sizes} does not fit: it has {length} bytes from byte {offset} on, in a data "
            f"file of {len(file)} bytes"
        )
    return file[offset : offset + length].view(dtype).reshape(sizes)


def _table(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield all (key, value) pairs of a table, in order. Raises ValueError for a damaged table."""
    if int.from_bytes(content[-8:], "little") != MAGIC:
        raise ValueError("it does not end with the magic number of a LevelDB table")
    _, position = handle(content, len(content) - FOOTER)  # skip the handle of the metaindex block, which is empty
    index, _ = handle(content, position)
    end = 0
    for _, value in block(content, *index):
        offset, size = handle(value, 0)[0]
        if offset < end:
            raise ValueError("its blocks overlap")
        end = offset + size
        yield from block(content, offset, size)


def handle(content: bytes, position: int) -> tuple[tuple[int, int], int]:
    """Read the handle at `position`; return the offset and size of its block, and the position after the handle."""
    offset, position = varint(content, position)
    size, position = varint(content, position)
    return (offset, size), position


def block(content: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield all (key, value) pairs of a block. A key is stored without the prefix that the previous key has too."""
    whole, trailer = content[offset : offset + size], content[offset + size : offset + size + TRAILER]
    if trailer[0]:
        raise ValueError("its index is compressed")
    if int.from_bytes(trailer[1:], "little") != masked_crc32c(whole + trailer[:1]):
        raise ValueError("a checksum of its index does not match")
    # The entries are followed by the offsets of all entries with whole keys, and then by the number of these offsets.
    end = size - 4 - 4 * int.from_bytes(whole[-4:], "little")
    position, key = 0, b""
    while position < end:
        shared, position = varint(whole, position)
        rest, position = varint(whole, position)
        length, position = varint(whole, position)
        key = key[:shared] + whole[position : position + rest]
        if len(key) > LONGEST_NAME:
            raise ValueError(f"a tensor's name has more than {LONGEST_NAME} bytes")
        yield key, whole[position + rest : position + rest + length]
        position += rest + length


def _number(message: Fields, field: int) -> int:
    """Return the last value of an integer field. An absent field is 0, because the default value is not stored."""
    return int(message.get(field, [0])[-1])


@cache
def _crc32c_table() -> list[int]:
    """Return the lookup table of the Castagnoli polynomial."""
    remainders = list(range(256))
    for _ in range(8):
        remainders = [(value >> 1) ^ (0x82F63B78 if value & 1 else 0) for value in remainders]
    return remainders


def masked_crc32c(content: bytes) -> int:
    """Return the CRC-32C as LevelDB stores it: rotated by 15 bits, plus a constant."""
    value, remainders = 0xFFFFFFFF, _crc32c_table()
    for byte in content:
        value = remainders[(value ^ byte) & 255] ^ (value >> 8)
    value ^= 0xFFFFFFFF
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF
