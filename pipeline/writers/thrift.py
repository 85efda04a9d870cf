# SPDX-License-Identifier: Apache-2.0
"""Thrift's compact protocol, written: what Parquet's headers and footers are encoded in.

Source: `doc/specs/thrift-compact-protocol.md` of Apache Thrift. Only the types that Parquet's metadata need.
"""

from collections.abc import Sequence

_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12


class Struct:
    """The bytes of one struct. Fields are added in the order of their numbers, as Parquet's definition gives them."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._last = 0

    def i32(self, number: int, value: int) -> "Struct":
        """Adds an `i32`, or an enum."""
        self._field(number, _I32)
        self._bytes += _zigzag(value)
        return self

    def i64(self, number: int, value: int) -> "Struct":
        """Adds an `i64`."""
        self._field(number, _I64)
        self._bytes += _zigzag(value)
        return self

    def binary(self, number: int, value: bytes | str) -> "Struct":
        """Adds a `binary` or a `string`."""
        self._field(number, _BINARY)
        self._bytes += _binary(value)
        return self

    def struct(self, number: int, value: "Struct") -> "Struct":
        """Adds a struct; it must be complete."""
        self._field(number, _STRUCT)
        self._bytes += value.to_bytes()
        return self

    def structs(self, number: int, values: Sequence["Struct"]) -> "Struct":
        """Adds a list of structs."""
        self._list(number, _STRUCT, [value.to_bytes() for value in values])
        return self

    def i32s(self, number: int, values: Sequence[int]) -> "Struct":
        """Adds a list of `i32` or of enums."""
        self._list(number, _I32, [_zigzag(value) for value in values])
        return self

    def strings(self, number: int, values: Sequence[str]) -> "Struct":
        """Adds a list of strings."""
        self._list(number, _BINARY, [_binary(value) for value in values])
        return self

    def to_bytes(self) -> bytes:
        """Returns the encoded struct, its stop byte included."""
        return bytes(self._bytes) + b"\0"

    def _field(self, number: int, kind: int) -> None:
        step = number - self._last
        assert 0 < step < 16, "fields in order, and without the long form of headers that Parquet never needs"
        self._bytes.append(step << 4 | kind)
        self._last = number

    def _list(self, number: int, kind: int, encoded: Sequence[bytes]) -> None:
        self._field(number, _LIST)
        size = len(encoded)
        self._bytes += bytes([size << 4 | kind]) if size < 15 else bytes([0xF0 | kind]) + varint(size)
        for each in encoded:
            self._bytes += each


def varint(value: int) -> bytes:
    """Returns a number, not negative, in groups of seven bits, the low ones first."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _zigzag(value: int) -> bytes:
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


def _binary(value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return varint(len(data)) + data
