# SPDX-License-Identifier: Apache-2.0
"""Thrift's compact protocol, in which Parquet's headers and footers are encoded.

Source: `doc/specs/thrift-compact-protocol.md` of Apache Thrift. Only the types that Parquet's metadata needs.
"""

import struct
from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 12
"""Type codes. Enums are `I32`, strings `BINARY`, which takes bytes and text."""

Fields = dict[int, tuple[int, Any]]
"""A struct: maps the number of each field to its type code and its value. The value of a list is the type code of its
elements, and a list of them."""


def encode(fields: Fields) -> bytes:
    """Returns the encoded struct, its stop byte included."""
    out = bytearray()
    last = 0
    for number, (kind, value) in sorted(fields.items()):
        assert 0 < number - last < 16, "without the long form of headers that Parquet never needs"
        out.append(number - last << 4 | kind)
        out += _encoded(kind, value)
        last = number
    return bytes(out) + b"\0"


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
    if kind in (TRUE, FALSE):  # the type code of a boolean field is its value
        return None, at
    if kind == BYTE:
        return data[at], at + 1
    if kind in (I16, I32, I64):
        value, at = _read_varint(data, at)
        return value >> 1 ^ -(value & 1), at
    if kind == DOUBLE:
        return struct.unpack_from("<d", data, at)[0], at + 8
    if kind == BINARY:
        size, at = _read_varint(data, at)
        return data[at : at + size], at + size
    if kind == STRUCT:
        return read_struct(data, at)
    assert kind == LIST, f"a kind of Thrift that Parquet does not have: {kind}"
    size, element, at = data[at] >> 4, data[at] & 15, at + 1
    if size == 15:
        size, at = _read_varint(data, at)
    values = []
    for _ in range(size):
        # A truth value in a list takes a byte.
        value, at = (data[at], at + 1) if element in (TRUE, FALSE) else _read(data, at, element)
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
    if kind in (TRUE, FALSE):
        return b""
    if kind == BYTE:
        return bytes([value])
    if kind in (I16, I32, I64):
        return _zigzag(value)
    if kind == DOUBLE:
        return struct.pack("<d", value)
    if kind == BINARY:
        data = value.encode() if isinstance(value, str) else value
        return varint(len(data)) + data
    if kind == STRUCT:
        return encode(value)
    element, values = value
    header = bytes([len(values) << 4 | element]) if len(values) < 15 else bytes([0xF0 | element]) + varint(len(values))
    is_bool = element in (TRUE, FALSE)
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
