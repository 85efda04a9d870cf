# SPDX-License-Identifier: Apache-2.0
"""WET: the extracted text of a crawl, as Common Crawl has it, in records of WARC (ISO 28500).

A record of the type `conversion` is read as the JSON object `{"text": its block, "WARC-Target-URI": ..., ...}`: its
block and its headers, by their names. Records of the type `warcinfo` say how the file was made, and are skipped; others
are rejected. Where no record begins, or one has no length, the file is damaged: what it ends with is rejected.
"""

import dataclasses
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.kept_fields import declared_fields
from tokenmill.pipeline.input.batches import Part, Source, lost, rejected, skipped
from tokenmill.pipeline.input.jsonl import LineParser
from tokenmill.pipeline.input.lines import HEAD_BYTES, Block, LongLine, PartialLine
from tokenmill.pipeline.input.streams import Stream
from tokenmill.pipeline.input.transcoding import InvalidText

_HEAD = re.compile(rb"WARC/\d\.\d\r\n((?:[!-9;-~]+:[^\r\n]*\r\n)*)\r\n")
_BARE_HEAD = re.compile(rb"WARC/\d\.\d\n")
_MOST_HEAD_BYTES = 1 << 16
_END = b"\r\n\r\n"
_HEADERS = (
    "WARC-Record-ID Content-Length WARC-Date WARC-Type Content-Type WARC-Concurrent-To WARC-Block-Digest "
    "WARC-Payload-Digest WARC-IP-Address WARC-Refers-To WARC-Refers-To-Target-URI WARC-Refers-To-Date WARC-Target-URI "
    "WARC-Truncated WARC-Warcinfo-ID WARC-Filename WARC-Profile WARC-Identified-Payload-Type "
    "WARC-Identified-Content-Language"
).split()
"""Those of WARC 1.1, and what Common Crawl adds: a record need not have each."""
_SPELLED = {name.lower(): name for name in _HEADERS}


@dataclasses.dataclass(frozen=True, slots=True)
class _Record:
    """A record in a buffer: where it starts, where its block starts and ends, and where the next record starts."""

    start: int
    block: int
    end: int
    next: int
    headers: dict[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class _Broken:
    """The rest of a stream, from where no record can be read: its position, its size, its beginning, and the fault."""

    offset: int
    n_bytes: int
    head: bytes
    fault: str


def read_wet(
    stream: Stream, source: Source, config: InputConfig, block_bytes: int, fields: pa.Schema
) -> Iterator[Part]:
    """Yields the documents and rejects of a stream; a part is at most as large as a chunk and a record."""
    del block_bytes
    parser = LineParser(source, config, fields, stream.invalid)
    yield from skipped(stream.n_skipped)
    for item in _cut(stream, config.max_document_bytes):
        if isinstance(item, _Broken):
            yield rejected(source, item.offset, item.n_bytes, "corrupt_stream", item.fault, item.head)
        elif isinstance(item, tuple):
            yield from _parse(parser, source, stream.invalid, *item)
        else:
            yield lost(item, stream, source, config.max_document_bytes)


def _parse(
    parser: LineParser, source: Source, invalid: InvalidText, offset: int, data: bytes, records: list[_Record]
) -> Iterator[Part]:
    """Yields the parts of some records one after another; runs of texts become one part."""
    for (reason, detail), group in itertools.groupby(records, lambda record: _fault(record, data, invalid)):
        run = list(group)
        start = run[0].start
        if reason == "warcinfo":
            yield from skipped(run[-1].next - start)
        elif reason:
            for each in run:
                sample = data[each.start : each.next]
                yield rejected(source, offset + each.start, len(sample), reason, detail, sample)
        else:
            raw = data[start : run[-1].next]
            # The parser takes its JSON from behind the records; what it says is about the records themselves.
            objects = [_object(each, data) for each in run]
            ends = len(raw) + np.cumsum([len(each) for each in objects])
            heads = np.concatenate([[len(raw)], ends[:-1]])
            starts, nexts = np.array([(each.start, each.next) for each in run], np.int64).T - start
            part = parser.parse(Block(offset + start, b"".join([raw, *objects])), (starts, heads, ends, nexts), 0)
            yield dataclasses.replace(part, n_bytes=len(raw))


def _fault(record: _Record, data: bytes, invalid: InvalidText) -> tuple[str, str]:
    """Returns why a record is no document, and the detail; "" twice if it may be one."""
    kind = record.headers.get("WARC-Type")
    if kind != "conversion":
        return "warcinfo" if kind == "warcinfo" else "not_extracted", f"its WARC-Type is {kind!r}, not 'conversion'"
    whole = data[record.start : record.next]
    try:
        whole.decode()
    except UnicodeDecodeError as error:
        detail = f"byte 0x{whole[error.start]:02x} at byte {error.start} of the record"
        return "invalid_utf8", invalid.explain(whole, detail)
    return "", ""


def _object(record: _Record, data: bytes) -> bytes:
    fields = {**record.headers, "text": data[record.block : record.end].decode()}
    return json.dumps(fields, ensure_ascii=False).encode()


def _cut(
    stream: Stream, max_bytes: int
) -> Iterator[tuple[int, bytes, list[_Record]] | LongLine | PartialLine | _Broken]:
    """Yields a stream in order, as whole records: the position of some bytes, the bytes, and the records in them.

    Memory: a record of `max_bytes`, and a chunk of the stream.
    """
    offset, data, fault = stream.offset, bytearray(), ""
    n_more = 0  # bytes of a record that is too long to keep, `data` is its beginning, which are not read yet
    n_bytes = 0  # of that record, or of the rest of a broken stream
    for chunk in stream.chunks():
        if n_more or fault:
            taken = len(chunk) if fault else min(n_more, len(chunk))
            n_bytes, n_more = n_bytes + taken, max(0, n_more - taken)
            if n_more or fault:
                continue
            yield LongLine(offset, n_bytes, bytes(data), is_blank=False)
            offset, n_bytes, data, chunk = offset + n_bytes, 0, bytearray(), chunk[taken:]
        data += chunk
        records: list[_Record] = []
        at = 0
        while at < len(data):
            found = _record_at(data, at)
            if isinstance(found, _Record) and found.next <= len(data):
                if not data.startswith(_END, found.end):
                    found = "the record does not end where its Content-Length says"
                else:
                    records.append(found)
                    at = found.next
                    continue
            if isinstance(found, str):
                fault, n_bytes = found, len(data) - at
            elif found is not None and found.next - found.start > max_bytes:
                n_bytes, n_more = len(data) - at, found.next - len(data)
            break
        if records:
            yield offset, bytes(data[:at]), records
            offset += at
            del data[:at]
        if n_more or fault:
            del data[HEAD_BYTES:]
    n_bytes = n_bytes or len(data)
    if stream.damage is not None:
        yield PartialLine(offset, n_bytes, bytes(data[:HEAD_BYTES]))
    elif n_bytes:
        yield _Broken(offset, n_bytes, bytes(data[:HEAD_BYTES]), fault or "the file ends inside the record")


def _record_at(data: bytearray, start: int) -> _Record | str | None:
    """Returns the record that starts at a byte, the end of which need not be there; what is wrong; None to read on."""
    stop = data.find(_END, start, start + _MOST_HEAD_BYTES)
    head = _HEAD.fullmatch(data, start, stop + len(_END)) if stop >= 0 else None
    if head is None:
        if _BARE_HEAD.match(data, start):
            return "the lines of its headers end with bare line feeds, where WARC has CR LF; get the file again"
        is_open = stop < 0 and len(data) - start < _MOST_HEAD_BYTES
        return None if is_open and b"WARC/"[: len(data) - start] == data[start : start + 5] else "no record begins here"
    headers: dict[str, str] = {}
    for line in head[1].decode("utf-8", "replace").split("\r\n")[:-1]:
        name, _, value = line.partition(":")
        name, value = _SPELLED.get(name.lower(), name), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    length = headers.get("Content-Length")
    if length is None:
        return "the record has no Content-Length"
    if not re.fullmatch(r"[0-9]{1,15}", length):
        return f"the Content-Length of the record is {length[:40]!r}, not a number of 1 to 15 digits"
    end = head.end() + int(length)
    return _Record(start, head.end(), end, end + len(_END), headers)


def first_names(stream: Stream, config: InputConfig) -> list[str]:
    """Returns the names of fields in the first records, in the order in which they are met."""
    for item in _cut(stream, config.max_document_bytes):
        if isinstance(item, tuple):
            return list(dict.fromkeys(name for record in item[2] for name in ("text", *record.headers)))
    return []


def check(stream: Stream, config: InputConfig) -> pa.Schema:
    """Returns those of the fields to keep that a file may have.

    Raises:
      ValueError: when a field is declared as something that no header is.
    """
    names = {"text", *_HEADERS, *first_names(stream, config)}
    found = [field for field in declared_fields(config) if field.name in names]
    for field in found:
        if not (pa.types.is_string(field.type) or pa.types.is_timestamp(field.type)):
            raise ValueError(f"header {field.name!r} cannot be kept as {field.type}: a header is a string")
    return pa.schema(found)


def write(records: Iterable[Mapping[str, Any]], config: InputConfig) -> bytes:
    """Returns a file of records."""
    del config  # fields have their names
    out = []
    for record in records:
        block = str(record["text"]).encode()
        headers = {"WARC-Type": "conversion", **record, "Content-Length": len(block)}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if name != "text")
        out += [f"WARC/1.0\r\n{lines}\r\n".encode(), block, _END]
    return b"".join(out)
