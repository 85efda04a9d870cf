# SPDX-License-Identifier: Apache-2.0
"""The wire format of protocol buffers, as far as a SentencePiece model needs it: reads and writes fields, no schema.

Reading never recurses and never allocates more than the given data: a length that reaches past the end is an error.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from tokenmill.tokenizer.errors import TokenizerFileError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types; groups (3 and 4) are refused, which nothing has written for twenty years."""

_MAX_FIELD = (1 << 29) - 1


class Field(NamedTuple):
    """One field of a message."""

    number: int
    wire: int
    """One of VARINT, FIXED64, BYTES, FIXED32."""
    value: int | bytes
    """An unsigned integer for VARINT, otherwise the raw bytes."""

    def as_bytes(self, source: str) -> bytes:
        """Returns a length-delimited value.

        Raises:
          TokenizerFileError: if the field has another wire type.
        """
        if self.wire != BYTES or not isinstance(self.value, bytes):
            raise TokenizerFileError(
                f"{source}: field {self.number} must be bytes (wire type 2), got wire type {self.wire}"
            )
        return self.value

    def as_text(self, source: str) -> str:
        """Returns a string.

        Raises:
          TokenizerFileError: if it is not UTF-8.
        """
        data = self.as_bytes(source)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise TokenizerFileError(f"{source}: field {self.number} is not UTF-8: {data[:40]!r}") from error

    def as_int32(self, source: str) -> int:
        """Returns a signed 32-bit integer, which is encoded as 64 bits of two's complement."""
        if self.wire != VARINT or not isinstance(self.value, int):
            raise TokenizerFileError(
                f"{source}: field {self.number} must be an integer (wire type 0), got wire type {self.wire}"
            )
        return ((self.value + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)

    def as_bool(self, source: str) -> bool:
        """Returns a truth value."""
        return self.as_int32(source) != 0

    def as_float(self, source: str) -> float:
        """Returns a single-precision number."""
        if self.wire != FIXED32 or not isinstance(self.value, bytes):
            raise TokenizerFileError(
                f"{source}: field {self.number} must be a float (wire type 5), got wire type {self.wire}"
            )
        return float(struct.unpack("<f", self.value)[0])


def read_varint(data: bytes, at: int, source: str) -> tuple[int, int]:
    """Returns an unsigned integer and where it ends.

    Raises:
      TokenizerFileError: if it is cut off, or longer than ten bytes.
    """
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise TokenizerFileError(f"{source}: cut off in the middle of an integer at byte {at}")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise TokenizerFileError(f"{source}: an integer longer than ten bytes at byte {at - 10}")


def read_fields(data: bytes, source: str) -> Iterator[Field]:
    """Yields the fields of a message in order.

    Raises:
      TokenizerFileError: if the message is broken; the message of the error names the byte.
    """
    at = 0
    while at < len(data):
        begin = at
        tag, at = read_varint(data, at, source)
        number, wire = tag >> 3, tag & 7
        if not 1 <= number <= _MAX_FIELD:
            raise TokenizerFileError(f"{source}: field number {number} at byte {begin}, allowed are 1..{_MAX_FIELD}")
        if wire == VARINT:
            value, at = read_varint(data, at, source)
            yield Field(number, wire, value)
            continue
        if wire == BYTES:
            size, at = read_varint(data, at, source)
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
        else:
            raise TokenizerFileError(
                f"{source}: wire type {wire} at byte {begin} is not supported; allowed are 0, 1, 2, 5"
            )
        if size > len(data) - at:
            raise TokenizerFileError(
                f"{source}: field {number} at byte {begin} says it has {size} bytes, but {len(data) - at} are left"
            )
        yield Field(number, wire, bytes(data[at : at + size]))
        at += size


def write_varint(value: int) -> bytes:
    """Encodes an integer; a negative one as 64 bits of two's complement."""
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_int(number: int, value: int) -> bytes:
    """Returns an integer or truth value field."""
    return write_varint(number << 3 | VARINT) + write_varint(value)


def write_float(number: int, value: float) -> bytes:
    """Returns a single-precision field."""
    return write_varint(number << 3 | FIXED32) + struct.pack("<f", value)


def write_bytes(number: int, value: bytes) -> bytes:
    """Returns a field of bytes, text or a message."""
    return write_varint(number << 3 | BYTES) + write_varint(len(value)) + value


def write_field(field: Field) -> bytes:
    """Returns a field exactly as it was read."""
    if field.wire == VARINT and isinstance(field.value, int):
        return write_int(field.number, field.value)
    assert isinstance(field.value, bytes)
    if field.wire == BYTES:
        return write_bytes(field.number, field.value)
    return write_varint(field.number << 3 | field.wire) + field.value
