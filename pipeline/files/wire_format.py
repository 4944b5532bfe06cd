"""Read protocol buffer messages without their schema (protobuf.dev/programming-guides/encoding)."""

from typing import Any

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types."""
LONGEST_NUMBER = 63
"""Maximum shift of a byte in a variable-length integer, in bits."""

Fields = dict[int, list[Any]]
"""Field number -> values: integers, or bytes."""


def _varint(content: bytes, position: int) -> tuple[int, int]:
    """Return the variable-length integer at `position` (7 bits per byte, lowest first), and the position after it."""
    value = shift = 0
    while True:
        byte = content[position]
        if shift > LONGEST_NUMBER:
            raise ValueError("a number has too many bytes")
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position


def fields(message: bytes) -> Fields:
    """Return {field number: values} of a protocol buffer message.

    Raises ValueError, IndexError or KeyError if the bytes are not such a message.
    """
    values: Fields = {}
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        if key & 7 == VARINT:
            value, position = _varint(message, position)
        else:
            sizes = {FIXED64: 8, FIXED32: 4}
            size, position = _varint(message, position) if key & 7 == BYTES else (sizes[key & 7], position)
            value, position = message[position : position + size], position + size
            if position > len(message):
                raise ValueError("a field is longer than its message")
        values.setdefault(key >> 3, []).append(value)
    return values
