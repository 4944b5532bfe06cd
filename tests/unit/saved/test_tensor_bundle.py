"""A TensorFlow checkpoint written here byte by byte, after the formats' own documents."""

import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.config.model import Model
from pipeline.errors import CheckpointError
from pipeline.model.families.bert import BERT
from pipeline.model.weights import take_all, to_published
from pipeline.objectives.masked import MaskedTokens
from pipeline.saved.tensor_bundle import FOOTER, handle, masked_crc32c, read_bundle
from pipeline.saved.tensor_bundle import block as read_block
from pipeline.saved.tensor_bundle import varint as read_varint

ARRAYS = {
    "bert/embeddings/LayerNorm/beta": np.array([1, 2], np.float32),
    "bert/embeddings/LayerNorm/gamma": np.array([3, 4], np.float32),
    "bert/embeddings/word_embeddings": np.arange(6, dtype=np.float32).reshape(3, 2),
    "bert/embeddings/word_embeddings/adam_m": np.zeros((3, 2), np.float32),
    "bert/encoder/layer_11/attention/self/query/bias": np.array([5, 6], np.float32),
    "bert/encoder/layer_11/attention/self/query/kernel": np.array([[1, 2], [3, 4]], np.float32),
    "bert/pooler/dense/kernel": np.array([[7, 8], [9, 10]], np.float16),
    "cls/predictions/output_bias": np.array([0.5, -0.5, 0.25], np.float32),
    "cls/seq_relationship/output_bias": np.array([1, -1], np.float32),
    "cls/seq_relationship/output_weights": np.array([[1, 2], [3, 4]], np.float32),
    "global_step": np.array(7, np.int64),
}
TYPES = {"float32": 1, "int64": 9, "float16": 19}


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def whole(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value) if value else b""


def nested(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def block(pairs: list[tuple[bytes, bytes]], restart: int = 3) -> bytes:
    content, before, restarts = b"", b"", []
    for place, (key, value) in enumerate(pairs):
        shared = 0
        if place % restart == 0:
            restarts.append(len(content))
        else:
            while shared < min(len(before), len(key)) and before[shared] == key[shared]:
                shared += 1
        content += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        before = key
    return content + b"".join(at.to_bytes(4, "little") for at in restarts) + len(restarts).to_bytes(4, "little")


def write(
    folder: Path,
    arrays: dict[str, np.ndarray],
    *,
    blocks: int = 3,
    endianness: int = 0,
    dtypes: dict[str, int] = TYPES,
    shared: bool = False,
) -> Path:
    """A checkpoint of one data file, its index in several blocks."""
    data, pairs = b"", [(b"", whole(1, 1) + whole(2, endianness) + nested(3, whole(1, 1)))]
    for name, array in sorted(arrays.items()):
        shape = b"".join(nested(2, whole(1, size)) for size in array.shape)
        content = array.tobytes()
        entry = (
            whole(1, dtypes[str(array.dtype)])
            + nested(2, shape)
            + whole(4, 0 if shared else len(data))
            + whole(5, len(content))
            + varint(6 << 3 | 5)
            + b"crc!"
        )
        pairs.append((name.encode(), entry))
        data += content
    index, handles, size = b"", [], math.ceil(len(pairs) / blocks)
    for part in [*(pairs[start : start + size] for start in range(0, len(pairs), size)), [], None]:
        content = block(handles[:-1] if part is None else part)  # the last two are the metaindex and the index
        handles.append((part[-1][0] if part else b"", varint(len(index)) + varint(len(content))))
        index += content + b"\0" + masked_crc32c(content + b"\0").to_bytes(4, "little")
    index += (handles[-2][1] + handles[-1][1]).ljust(40, b"\0") + 0xDB4775248B80FB57.to_bytes(8, "little")
    (folder / "model.ckpt.index").write_bytes(index)
    (folder / "model.ckpt.data-00000-of-00001").write_bytes(data)
    return folder / "model.ckpt"


def test_checksums_are_those_of_the_formats() -> None:
    # RFC 3720, B.4: the CRC-32C of "123456789" and of 32 zero bytes, before they are masked.
    for content, crc in ((b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA)):
        assert masked_crc32c(content) == ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32


def test_tensors_come_under_the_published_names(tmp_path: Path) -> None:
    found = read_bundle(write(tmp_path, ARRAYS))
    expected = {
        "bert.embeddings.LayerNorm.bias": [1, 2],
        "bert.embeddings.LayerNorm.weight": [3, 4],
        "bert.embeddings.word_embeddings.weight": [[0, 1], [2, 3], [4, 5]],
        "bert.encoder.layer.11.attention.self.query.bias": [5, 6],
        "bert.encoder.layer.11.attention.self.query.weight": [[1, 3], [2, 4]],
        "bert.pooler.dense.weight": [[7, 9], [8, 10]],
        "cls.predictions.bias": [0.5, -0.5, 0.25],
        "cls.seq_relationship.bias": [1, -1],
        "cls.seq_relationship.weight": [[1, 2], [3, 4]],
    }
    assert {name: tensor.tolist() for name, tensor in found.items()} == expected
    assert found["bert.pooler.dense.weight"].dtype == torch.float16 and found["cls.predictions.bias"].is_contiguous()


def test_a_whole_checkpoint_of_google_is_a_whole_checkpoint_here(tmp_path: Path) -> None:
    settings = Model(layers=2, width=4, heads=2, feed_forward=6, maximum_positions=9)
    state = {name: torch.randn(tensor.shape) for name, tensor in MaskedTokens(settings, 11).state_dict().items()}
    found = take_all(
        read_bundle(
            write(
                tmp_path,
                {google_name(name): google_array(name, tensor) for name, tensor in to_published(state, BERT).items()},
            )
        ),
        state,
        settings,
    )
    assert found.keys() == state.keys() and all(torch.equal(found[name], tensor) for name, tensor in state.items())


def google_name(name: str) -> str:
    """The name of a tensor in google-research/bert's modeling.py and run_pretraining.py."""
    path = name.replace(".layer.", ".layer_")
    if "LayerNorm" in path:
        return path.replace(".weight", ".gamma").replace(".bias", ".beta").replace(".", "/")
    if "seq_relationship" in path:
        path = path.replace(".weight", ".output_weights").replace(".bias", ".output_bias")
    path = path.replace("_embeddings.weight", "_embeddings").replace(
        "cls.predictions.bias", "cls.predictions.output_bias"
    )
    return path.replace(".weight", ".kernel").replace(".", "/")


def google_array(name: str, tensor: torch.Tensor) -> np.ndarray:
    """TensorFlow's dense layers have their weights the other way round."""
    return np.ascontiguousarray(tensor.numpy().T if google_name(name).endswith("kernel") else tensor.numpy())


def refusal(prefix: Path) -> str:
    with pytest.raises(CheckpointError) as refused:
        read_bundle(prefix)
    message = str(refused.value)
    assert message.startswith(f"{prefix.name}.index cannot be read as a TensorFlow checkpoint: ")
    return message.removeprefix(f"{prefix.name}.index cannot be read as a TensorFlow checkpoint: ")


def test_damage_is_said(tmp_path: Path) -> None:
    prefix = write(tmp_path, ARRAYS)
    index, data = (
        (tmp_path / "model.ckpt.index").read_bytes(),
        (tmp_path / "model.ckpt.data-00000-of-00001").read_bytes(),
    )
    # The last 8 bytes are the step, which is not read; the 16 before them are of the last tensor that is.
    (tmp_path / "model.ckpt.data-00000-of-00001").write_bytes(data[:-12])
    assert (
        refusal(prefix)
        == f"tensor cls/seq_relationship/output_weights of shape [2, 2] does not fit: it has 16 bytes from byte "
        f"{len(data) - 24} on, in a data file of {len(data) - 12} bytes"
    )
    for place in range(0, len(index) - FOOTER, 7):
        flipped = bytearray(index)
        flipped[place] ^= 4
        (tmp_path / "model.ckpt.index").write_bytes(flipped)
        refusal(prefix)
    (tmp_path / "model.ckpt.index").write_bytes(index[:-1])
    assert refusal(prefix) == "it does not end with the magic number of a LevelDB table"
    (tmp_path / "model.ckpt.index").write_bytes(index)
    (tmp_path / "model.ckpt.data-00000-of-00001").unlink()
    assert "No such file" in refusal(prefix)


def test_what_was_written_elsewhere_is_said(tmp_path: Path) -> None:
    assert refusal(write(tmp_path, ARRAYS, endianness=1)) == "it is big-endian, but only little-endian can be read"
    assert (
        refusal(write(tmp_path, ARRAYS, dtypes=TYPES | {"float16": 7}))
        == "tensor bert/pooler/dense/kernel has data type 7, but only 1, 2, 3, 9, 19 can be read"
    )
    assert len(read_bundle(write(tmp_path, ARRAYS, blocks=1))) == 9


def test_an_index_that_asks_for_more_than_its_files_hold_is_refused(tmp_path: Path) -> None:
    prefix = write(tmp_path, {f"bert/a{number}": np.ones(4, np.float32) for number in range(3)}, shared=True)
    os.truncate(tmp_path / "model.ckpt.data-00000-of-00001", 16)
    assert refusal(prefix) == "its tensors need 48 bytes, but its data files have 16 bytes"
    assert refusal(write(tmp_path, {"x" * 1025: np.ones(1, np.float32)})) == "a tensor's name has more than 1024 bytes"
    with pytest.raises(ValueError, match="^a number has too many bytes$"):
        read_varint(b"\xff" * 100, 0)
    with open(tmp_path / "model.ckpt.index", "wb") as sparse:
        sparse.truncate(1 << 40)
    assert refusal(tmp_path / "model.ckpt") == "it has more than 16,777,216 bytes"


def test_an_index_whose_blocks_overlap_is_refused(tmp_path: Path) -> None:
    prefix = write(tmp_path, ARRAYS)
    index = (tmp_path / "model.ckpt.index").read_bytes()
    place = handle(index, handle(index, len(index) - FOOTER)[1])[0]
    handles = [handle(value, 0)[0] for _, value in read_block(index, *place)]
    assert len(handles) == 3
    twice = block([(key, varint(handles[0][0]) + varint(handles[0][1])) for key in (b"a", b"b")])
    index = index[: place[0]] + twice + b"\0" + masked_crc32c(twice + b"\0").to_bytes(4, "little")
    index += (varint(0) + varint(0) + varint(place[0]) + varint(len(twice))).ljust(
        40, b"\0"
    ) + 0xDB4775248B80FB57.to_bytes(8, "little")
    (tmp_path / "model.ckpt.index").write_bytes(index)
    assert refusal(prefix) == "its blocks overlap"
