# SPDX-License-Identifier: Apache-2.0
r"""JSON Lines, and files that are one JSON array: Arrow parses the lines that it takes as their definition does.

A line is a document if it is one JSON value by RFC 8259, in UTF-8, an object, nests at most 256 deep, and its text
field is a string that UTF-8 can express. If a name occurs twice in an object, the last one counts. `_parse_line`
decides this for one line, and says what is wrong with it. `json_columns` never decides otherwise, and leaves what is
unusual about a line to `_parse_line`.

The elements of an array are read as lines are; a kernel finds where they begin and end. If the array is not closed, the
file is damaged: what it ends with is rejected. Samples of rejects have spaces in place of line ends between strings.
"""

import contextlib
import json
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa

from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input.batches import NO_FIELDS, Part, make_documents
from tokenmill.pipeline.input.cutting import KernelScanner, LineScanner, Records, Scanner, StreamReader, skip_marks
from tokenmill.pipeline.input.json_columns import Columns, trim
from tokenmill.pipeline.input.json_values import KINDS, MAX_DEPTH, KeptFields, Number, inside, is_too_deep, values_at
from tokenmill.pipeline.input.record_kernels import BROKEN, scan_elements
from tokenmill.pipeline.input.rejects import Positions, Rejects, too_large
from tokenmill.tokenizer.utf8 import find_invalid_utf8

_FIRST_LINES = 100


class Json(NamedTuple):
    """The JSON of records, without line ends in it."""

    data: bytes
    starts: Positions
    """int64[n] each, in bytes from the start of `data`."""
    ends: Positions


class JsonLines(StreamReader):
    """Reads files of which each line is an object, or whose records have JSON."""

    def __init__(self, config: InputConfig, fields: pa.Schema = NO_FIELDS, *of_file: Any) -> None:
        """Takes how to read a file; see `StreamReader`."""
        super().__init__(config, fields, *of_file)
        self._kept = KeptFields(fields) if len(fields) else None
        self._columns = Columns(config, fields)

    def scanner(self) -> Scanner:
        """Returns what finds lines."""
        return LineScanner(self._config.max_document_bytes, skips_blank=True)

    def names(self, records: Records) -> list[str]:
        """Returns the names of fields in the first of some lines, in the order in which they are met."""
        names: dict[str, None] = {}
        places = records.starts[:_FIRST_LINES].tolist(), records.ends[:_FIRST_LINES].tolist()
        for start, end in zip(*places, strict=True):
            with contextlib.suppress(ValueError, RecursionError):
                record = json.loads(records.data[start:end], parse_int=str)
                names |= dict.fromkeys(record if isinstance(record, dict) else ())
        return list(names)

    def parse(self, records: Records) -> Part:
        """Returns the documents and rejects of lines."""
        starts = skip_marks(records.data, records.starts, records.ends)
        json_of = Json(records.data, starts, records.ends)
        return self.parse_json(records, json_of, Rejects(self._source.path), records.n_between)

    def parse_json(self, records: Records, json_of: Json, rejects: Rejects, n_skipped: int) -> Part:
        """Returns the documents and rejects of records.

        Args:
          records: where they are; their sizes and samples are those in the file.
          json_of: the JSON of each.
          rejects: what is rejected already of the same block.
          n_skipped: the bytes that are in no record.
        """
        sizes = records.nexts - records.starts
        firsts, lasts = trim(np.frombuffer(json_of.data, np.uint8), json_of.starts, json_of.ends)
        is_blank = firsts == lasts
        is_usual = ~is_blank & (sizes <= self._config.max_document_bytes)
        invalid = find_invalid_utf8(records.data, records.starts, records.nexts)
        if invalid is not None:
            is_usual &= invalid < 0
        usual = np.flatnonzero(is_usual)
        taken, documents = self._columns.take(json_of.data, firsts[usual], lasts[usual])
        rows = usual[taken]
        is_other = ~is_blank
        is_other[rows] = False
        if is_other.any():
            others, more = self._judge(records, json_of, np.flatnonzero(is_other), rejects)
            rows = np.concatenate([rows, others])
            order = np.argsort(rows, kind="stable")
            rows = rows[order]
            documents = pa.concat_batches([documents, more]).take(pa.array(order))
        texts, ids, *kept = documents.columns
        offsets = records.offset + records.starts[rows]
        n_skipped += int(sizes[is_blank].sum())
        made = make_documents(self._source, texts, ids, offsets, sizes[rows], *kept)
        return Part(made, rejects.to_batch(), len(records.data), n_skipped)

    def _judge(
        self, records: Records, json_of: Json, rows: Positions, rejects: Rejects
    ) -> tuple[Positions, pa.RecordBatch]:
        """Judges records by the definition, one by one; adds to rejects.

        Returns:
          The numbers of those that are documents, and their columns as `Columns.take` returns them.
        """
        limit, by_field = self._config.max_document_bytes, self._config.text_fields or [self._config.text_field]
        names = None if self._config.messages_field is not None else by_field
        numbers: list[int] = []
        texts: list[str] = []
        ids: list[str | None] = []
        good: list[bytes] = []

        def reject(row: int, reason: str, detail: str, line: bytes) -> None:
            start, stop = int(records.starts[row]), int(records.nexts[row])
            sample = line if json_of.data is records.data else records.data[start:stop]
            rejects.add(records.offset + start, stop - start, reason, detail, sample)

        for row in rows.tolist():
            line = json_of.data[json_of.starts[row] : json_of.ends[row]]
            n_bytes = int(records.nexts[row] - records.starts[row])
            try:
                if n_bytes > limit:
                    raise _UnusableError("too_large", too_large(n_bytes, limit))
                text, document_id = _parse_line(line, names, self._config.id_field, self._config.join)
            except _UnusableError as error:
                is_invalid = error.reason == "invalid_utf8"
                reject(
                    row, error.reason, self._invalid.explain(line, error.detail) if is_invalid else error.detail, line
                )
            else:
                numbers.append(row)
                texts.append(text)
                ids.append(document_id)
                good.append(line if self._kept is not None else b"")
        columns: list[pa.Array] = [pa.array(texts, pa.string()), pa.array(ids, pa.string())]
        misfits: dict[int, tuple[str, str]] = {}
        if self._kept is not None:
            kept, misfits = self._kept.take(good)
            columns.append(kept)
            for i, (reason, detail) in sorted(misfits.items()):
                row = numbers[i]
                reject(row, reason, detail, records.data[records.starts[row] : records.ends[row]])
        left = np.setdiff1d(np.arange(len(numbers)), list(misfits))
        batch = pa.RecordBatch.from_arrays(columns, schema=self._columns.schema)
        return np.array(numbers, np.int64)[left], batch.take(pa.array(left)) if misfits else batch


class JsonArray(JsonLines):
    """Reads files that are one array."""

    def scanner(self) -> Scanner:
        """Returns what finds elements."""
        return KernelScanner(scan_elements, self._config.max_document_bytes)

    def parse(self, records: Records) -> Part:
        """Returns the documents and rejects of elements."""
        rejects, n_between = Rejects(self._source.path), records.n_between
        if fact := records.facts[-1]:  # the kernel says so of nothing else than the end of a stream
            reason, detail = "corrupt_stream", "the file ends inside the array"
            if fact == BROKEN:
                reason, detail = "not_json", "it is not in the array"
            start, stop = int(records.starts[-1]), int(records.nexts[-1])
            rejects.add(records.offset + start, stop - start, reason, detail, records.data[start:stop])
            records = records.take(slice(-1))
        return self.parse_json(records, Json(records.data, records.starts, records.ends), rejects, n_between)


class _UnusableError(Exception):
    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def _refuse_constant(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is not JSON")


_TOO_DEEP = f"arrays and objects nest more than {MAX_DEPTH} deep"
_DECODER = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=_refuse_constant)
_SCAN: Any = _DECODER.scan_once  # type: ignore[attr-defined]


def _parse_line(
    line: bytes, text_fields: Sequence[str] | None, id_field: str | None, join: str = ""
) -> tuple[str, str | None]:
    """Returns the text and the id of a line without its line end; this function defines which lines are documents.

    Of several text fields, absent and null ones are left out. None: the line itself is the text.

    Raises:
      _UnusableError: with the reject reason and what was found.
    """
    record = _decode(line)
    if not isinstance(record, dict):
        raise _UnusableError("not_object", f"the line is {KINDS.get(type(record), 'null')}")
    text = line.decode() if text_fields is None else join.join(_texts_in(record, text_fields))
    document_id = None if id_field is None else inside(record, id_field)
    if document_id is None:
        return text, None
    if not isinstance(document_id, str):
        raise _UnusableError("bad_id", f"field {id_field!r} is {KINDS[type(document_id)]}")
    _check_surrogates(document_id, id_field)
    if type(document_id) is Number and document_id == "-0":
        return text, "0"
    return text, str(document_id)


def _texts_in(record: dict[str, Any], text_fields: Sequence[str]) -> list[str]:
    names = " or ".join(map(repr, text_fields))
    found = [(field, text) for field in text_fields for text in values_at(record, field)]
    if not found:
        raise _UnusableError("missing_field", f"no field {names}")
    texts = []
    for field, text in found:
        if text is None:
            continue
        if type(text) is not str:
            raise _UnusableError("not_string", f"field {field!r} is {KINDS[type(text)]}")
        _check_surrogates(text, field)
        texts.append(text)
    if not texts:
        raise _UnusableError("null_text", f"field {names} is null")
    return texts


def _decode(line: bytes) -> object:
    try:
        decoded = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _UnusableError(
            "invalid_utf8", f"byte 0x{line[error.start]:02x} at byte {error.start} of the line"
        ) from None
    if is_too_deep(line):
        raise _UnusableError("too_deep", _TOO_DEEP)
    start = len(decoded) - len(decoded.lstrip(" \t\r"))
    try:
        record, end = _SCAN(decoded, start)
    except StopIteration as error:  # which `raw_decode` makes a JSONDecodeError of, for a microsecond
        raise _UnusableError("not_json", f"not JSON at character {error.value} of the line") from None
    except json.JSONDecodeError as error:
        raise _UnusableError("not_json", f"not JSON at character {error.pos} of the line") from None
    except ValueError as error:
        raise _UnusableError("not_json", str(error)) from None
    if decoded[end:].strip(" \t\r"):
        raise _UnusableError("not_json", f"more than one value: the first ends at character {end} of the line")
    return record


def _check_surrogates(value: str, field: str | None) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        found = f"U+{ord(value[error.start]):04X} at character {error.start} of field {field!r}"
        raise _UnusableError("lone_surrogate", found) from None
