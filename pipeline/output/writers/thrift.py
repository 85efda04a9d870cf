# SPDX-License-Identifier: Apache-2.0
"""Thrift's compact protocol, in which Parquet's headers and footers are encoded.

Source: `doc/specs/thrift-compact-protocol.md` of Apache Thrift. Only the types that Parquet's metadata needs.
"""

import struct
from collections.abc import Sequence
from typing import Any

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 12

Fields = dict[int, tuple[int, Any]]
"""A struct that was read: maps the number of each field to its type code and its value. The value of a list is the type
code of its elements, and a list of them."""


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

    @staticmethod
    def of(fields: Fields) -> "Struct":
        """Returns a struct to write, from one that was read and perhaps changed."""
        found = Struct()
        for number, (kind, value) in sorted(fields.items()):
            found._field(number, kind)
            found._bytes += _encoded(kind, value)
        return found

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


def read_struct(data: bytes, at: int) -> tuple[Fields, int]:
    """Returns the struct that begins at a byte, and where it ends."""
    fields: Fields = {}
    number = 0
    while data[at]:
        step, kind = data[at] >> 4, data[at] & 15
        assert step, "the long form of headers, which Parquet never needs"
        number += step
        value, at = _read(data, at + 1, kind)
        fields[number] = kind, value
    return fields, at + 1


def _read(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in (_TRUE, _FALSE):  # the type code of a boolean field is its value
        return None, at
    if kind == _BYTE:
        return data[at], at + 1
    if kind in (_I16, _I32, _I64):
        value, at = _read_varint(data, at)
        return value >> 1 ^ -(value & 1), at
    if kind == _DOUBLE:
        return struct.unpack_from("<d", data, at)[0], at + 8
    if kind == _BINARY:
        size, at = _read_varint(data, at)
        return data[at : at + size], at + size
    if kind == _STRUCT:
        return read_struct(data, at)
    assert kind == _LIST, f"a kind of Thrift that Parquet does not have: {kind}"
    size, element, at = data[at] >> 4, data[at] & 15, at + 1
    if size == 15:
        size, at = _read_varint(data, at)
    values = []
    for _ in range(size):
        # A truth value in a list takes a byte.
        value, at = (data[at], at + 1) if element in (_TRUE, _FALSE) else _read(data, at, element)
        values.append(value)
    return (element, values), at


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def _encoded(kind: int, value: Any) -> bytes:
    if kind in (_TRUE, _FALSE):
        return b""
    if kind == _BYTE:
        return bytes([value])
    if kind in (_I16, _I32, _I64):
        return _zigzag(value)
    if kind == _DOUBLE:
        return struct.pack("<d", value)
    if kind == _BINARY:
        return _binary(value)
    if kind == _STRUCT:
        return Struct.of(value).to_bytes()
    element, values = value
    header = bytes([len(values) << 4 | element]) if len(values) < 15 else bytes([0xF0 | element]) + varint(len(values))
    is_bool = element in (_TRUE, _FALSE)
    return header + b"".join(bytes([each]) if is_bool else _encoded(element, each) for each in values)


def varint(value: int) -> bytes:
    """Returns a non-negative number as a varint: groups of seven bits, the low ones first."""
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
