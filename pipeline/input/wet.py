# SPDX-License-Identifier: Apache-2.0
"""WET: the extracted text of a crawl, as Common Crawl has it, in records of WARC (ISO 28500).

A record of the type `conversion` is read as the JSON object `{"text": its block, "WARC-Target-URI": ..., ...}`: its
block and its headers, by their names. Records of the type `warcinfo` say how the file was made, and are skipped; others
are rejected. Where no record begins, or one has no length, the file is damaged: what it ends with is rejected.
"""

import json
import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tokenmill.pipeline.config.kept_fields import declared_fields
from tokenmill.pipeline.input.batches import Part
from tokenmill.pipeline.input.cutting import Found, Records, Scanned, Scanner
from tokenmill.pipeline.input.jsonl import Json, JsonLines
from tokenmill.pipeline.input.rejects import Rejects
from tokenmill.pipeline.input.streams import Stream

_HEAD = re.compile(rb"WARC/\d\.\d+\r\n(?:[!-9;-~]+:[^\r\n]*\r\n(?:[ \t][^\r\n]*\r\n)*)*\r\n")
_FOLD = re.compile(r"\r\n[ \t]+")
_BARE_HEAD = re.compile(rb"WARC/\d\.\d+\n")
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


class _Open(NamedTuple):
    """Where a record starts, where its block starts, and where the next record starts."""

    start: int
    block: int
    next: int


class WarcScanner(Scanner):
    """Finds records by their `Content-Length`; facts are how many bytes their headers have."""

    def __init__(self, max_bytes: int) -> None:
        """Takes how large a record may be to be kept."""
        super().__init__(max_bytes)
        self._open: _Open | None = None  # the open record, if its headers are complete
        self._before = b""  # what is needed of the stream before the chunk: its headers, or the last bytes

    def scan(self, chunk: bytes | memoryview, position: int, start: int, is_last: bool) -> Scanned:
        """Scans a chunk; see `Scanner.scan`."""
        data, base = self._before + chunk, position - len(self._before)
        rows: list[tuple[int, int, int, int]] = []
        while not self.fault and start < base + len(data):
            if self._open is None:
                self._open = self._record_at(data, start - base, base)
            if self._open is None or self._open.next > base + len(data):
                break
            end = self._open.next - len(_END)
            if not data.startswith(_END, end - base):
                self.fault = "the record does not end where its Content-Length says"
                break
            rows.append((start, end, self._open.next, self._open.block - start))
            start, self._open = self._open.next, None
        if is_last and start < position:
            self.fault = self.fault or "the file ends inside the record"
        is_known = self._open is not None or bool(self.fault)
        self._before = data[-len(_END) :] if is_known else data[start - base :]
        found = np.array(rows, np.int64).reshape(-1, 4)
        return Scanned(Found(*found.T), start, chunk)

    def _record_at(self, data: bytes, start: int, base: int) -> _Open | None:
        """Returns the record that starts at a byte, the end of which need not be there; None to read on, or a fault."""
        stop = data.find(_END, start, start + _MOST_HEAD_BYTES)
        head = _HEAD.fullmatch(data, start, stop + len(_END)) if stop >= 0 else None
        if head is None:
            is_open = stop < 0 and len(data) - start < _MOST_HEAD_BYTES
            if _BARE_HEAD.match(data, start):
                self.fault = (
                    "the lines of its headers end with bare line feeds, where WARC has CR LF; get the file again"
                )
            elif not is_open or b"WARC/"[: len(data) - start] != data[start : start + 5]:
                self.fault = "no record begins here"
            return None
        length = _headers(head[0]).get("Content-Length")
        if length is None:
            self.fault = "the record has no Content-Length"
        elif not re.fullmatch(r"[0-9]{1,15}", length):
            self.fault = f"the Content-Length of the record is {length[:40]!r}, not a number of 1 to 15 digits"
        else:
            block = base + head.end()
            return _Open(base + start, block, block + int(length) + len(_END))
        return None


def _headers(head: bytes) -> dict[str, str]:
    """Returns the headers in the beginning of a record, by their names as they are usually spelled."""
    headers: dict[str, str] = {}
    for line in _FOLD.sub(" ", head.decode("utf-8", "replace")).split("\r\n")[1:-2]:
        name, _, value = line.partition(":")
        name, value = _SPELLED.get(name.lower(), name), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


class WetReader(JsonLines):
    """Reads WET: an object of JSON is made of each record, and documents of these."""

    has_header = True

    def scanner(self) -> Scanner:
        """Returns what finds records."""
        return WarcScanner(self._config.max_document_bytes)

    def names(self, records: Records) -> list[str]:
        """Returns the names of fields in the first records, in the order in which they are met."""
        heads = zip(records.starts.tolist(), records.facts.tolist(), strict=True)
        headers = (_headers(records.data[start : start + n_bytes]) for start, n_bytes in heads)
        return list(dict.fromkeys(name for each in headers for name in ("text", *each)))

    def check(self, stream: Stream) -> pa.Schema:
        """Returns those of the fields to keep that a file may have.

        Raises:
          ValueError: when a field is declared as something that no header is.
        """
        names = {"text", *_HEADERS, *self.first_names(stream)}
        found = [field for field in declared_fields(self._config) if field.name in names]
        for field in found:
            if not (pa.types.is_string(field.type) or pa.types.is_timestamp(field.type)):
                raise ValueError(f"header {field.name!r} cannot be kept as {field.type}: a header is a string")
        return pa.schema(found)

    def parse(self, records: Records) -> Part:
        """Returns the documents and rejects of records."""
        rejects, n_skipped = Rejects(self._source.path), records.n_between
        objects: list[bytes] = []
        is_text = np.zeros(records.starts.size, np.bool_)
        places = zip(records.starts.tolist(), records.ends.tolist(), records.nexts.tolist(), strict=True)
        for row, (start, end, stop) in enumerate(places):
            block = start + int(records.facts[row])
            headers = _headers(records.data[start:block])
            if (kind := headers.get("WARC-Type")) == "warcinfo":
                n_skipped += stop - start
                continue
            reason, detail = "not_extracted", f"its WARC-Type is {kind!r}, not 'conversion'"
            whole = records.data[start:stop]
            try:
                whole.decode()
                if kind == "conversion":
                    text = records.data[block:end].decode()
                    objects.append(json.dumps({**headers, "text": text}, ensure_ascii=False).encode())
                    is_text[row] = True
                    continue
            except UnicodeDecodeError as error:
                if kind == "conversion":
                    reason = "invalid_utf8"
                    detail = f"byte 0x{whole[error.start]:02x} at byte {error.start} of the record"
            rejects.add(records.offset + start, stop - start, reason, detail, whole)
        ends = np.cumsum([0, *map(len, objects)])
        return self.parse_json(records.take(is_text), Json(b"".join(objects), ends[:-1], ends[1:]), rejects, n_skipped)
