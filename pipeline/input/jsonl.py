# SPDX-License-Identifier: Apache-2.0
r"""JSON Lines: a kernel parses the lines that it is sure of, the standard library the others.

A line is a document if it is one JSON value by RFC 8259, in UTF-8, an object, nests at most 256 deep, and its text
field is a string that UTF-8 can express. If a name occurs twice in an object, the last one counts. `_parse_line`
decides this for one line, and says what is wrong with it. The kernels never decide otherwise, and leave lines that have
names with escapes to `_parse_line`. It also judges the first lines that are not accepted; for more there is no time.
"""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input.batches import Part, Source, lost, make_documents, skipped
from tokenmill.pipeline.input.json_blocks import MAX_DEPTH, is_too_deep, plain_lines, trim
from tokenmill.pipeline.input.json_columns import Columns
from tokenmill.pipeline.input.json_values import KINDS, KeptFields, Number
from tokenmill.pipeline.input.lines import Block, LongLine, Positions, cut_lines, find_lines, skip_marks
from tokenmill.pipeline.input.nested import inside, values_at
from tokenmill.pipeline.input.rejects import Rejects, too_large
from tokenmill.pipeline.input.streams import BLANK as BLANK_BYTES
from tokenmill.pipeline.input.streams import Stream
from tokenmill.pipeline.input.transcoding import InvalidText
from tokenmill.tokenizer.utf8 import find_invalid_utf8

NO_FIELDS = pa.schema([])
_FIRST_LINES = 100
_BLOCK_BYTES = 1 << 20


def read_jsonl(
    stream: Stream, source: Source, config: InputConfig, block_bytes: int, fields: pa.Schema = NO_FIELDS
) -> Iterator[Part]:
    """Yields the documents and rejects of a stream of JSON lines.

    Args:
      stream: the lines.
      source: the file they are in.
      config: which fields hold text and id, and how large a line may be.
      block_bytes: how much is parsed at once; a longer line is parsed alone.
      fields: the fields to keep, as the job has settled them.
    """
    parser = LineParser(source, config, fields, stream.invalid)
    yield from skipped(stream.n_skipped)
    for item in cut_lines(stream, block_bytes, config.max_document_bytes):
        if isinstance(item, Block) and item.data.lstrip(BLANK_BYTES + b"\n"):
            yield parser.parse_lines(item)
        elif isinstance(item, Block):
            yield from skipped(len(item.data))
        elif isinstance(item, LongLine) and item.is_blank:
            yield from skipped(item.n_bytes)
        else:
            yield lost(item, stream, source, config.max_document_bytes)


def first_names(stream: Stream, config: InputConfig) -> list[str]:
    """Returns the names of fields in the first lines, in the order in which they are met."""
    items = cut_lines(stream, _BLOCK_BYTES, config.max_document_bytes)
    data = next((item.data for item in items if isinstance(item, Block)), b"")
    starts, ends, _ = find_lines(data)
    return names_in(data, starts, ends)


def names_in(data: bytes, starts: Positions, ends: Positions) -> list[str]:
    """Returns the names of fields in the first of the lines `data[start:end]`, in the order in which they are met."""
    names: dict[str, None] = {}
    for start, end in zip(starts[:_FIRST_LINES].tolist(), ends[:_FIRST_LINES].tolist(), strict=True):
        with contextlib.suppress(ValueError, RecursionError):
            record = json.loads(data[start:end], parse_int=str)
            names |= dict.fromkeys(record if isinstance(record, dict) else ())
    return list(names)


def write(records: Iterable[Mapping[str, Any]], config: InputConfig) -> bytes:
    """Returns a file of records."""
    del config  # fields have their names
    return "".join(json.dumps(record) + "\n" for record in records).encode()


class LineParser:
    """Parses lines, or other stretches of JSON without line ends in it, to documents and rejects."""

    def __init__(self, source: Source, config: InputConfig, fields: pa.Schema, invalid: InvalidText) -> None:
        """Takes the file, how to read it, the fields to keep, and what explains invalid records."""
        self._invalid = invalid
        self._source = source
        self._config = config
        self._fields = KeptFields(fields) if len(fields) else None
        self._columns = Columns(config, fields)

    def parse_lines(self, block: Block) -> Part:
        """Parses the lines of a block."""
        starts, ends, nexts = find_lines(block.data)
        return self.parse(block, (starts, skip_marks(block.data, starts, ends), ends, nexts), 0)

    def parse(self, block: Block, lines: tuple[Positions, Positions, Positions, Positions], n_skipped: int) -> Part:
        """Parses some stretches of a block.

        Args:
          block: what they are in.
          lines: int64[n] each: where they start; where their JSON starts and ends, perhaps behind all of them; where
            what ends them, too, ends.
          n_skipped: the bytes that are in none of them.
        """
        starts, heads, ends, nexts = lines
        rejects = Rejects(self._source.path)
        firsts, lasts = trim(np.frombuffer(block.data, np.uint8), heads, ends)
        is_blank = firsts == lasts
        is_usual = ~is_blank & (nexts - starts <= self._config.max_document_bytes)
        invalid = find_invalid_utf8(block.data, starts, nexts)
        if invalid is not None:
            is_usual &= invalid < 0
        usual = np.flatnonzero(is_usual)
        usual = usual[plain_lines(block.data, firsts[usual], lasts[usual])]
        taken, documents = self._columns.take(block.data, firsts[usual], lasts[usual])
        rows = usual[taken]
        is_other = ~is_blank
        is_other[rows] = False
        if is_other.any():
            others, more = self._judge(block, lines, np.flatnonzero(is_other), rejects)
            rows = np.concatenate([rows, others])
            order = np.argsort(rows, kind="stable")
            rows = rows[order]
            documents = pa.concat_batches([documents, more]).take(pa.array(order))
        texts, ids, *kept = documents.columns
        offsets, n_bytes = block.offset + starts[rows], nexts[rows] - starts[rows]
        n_skipped += int((nexts - starts)[is_blank].sum())
        return Part(
            make_documents(self._source, texts, ids, offsets, n_bytes, *kept),
            rejects.to_batch(),
            len(block.data),
            n_skipped,
        )

    def _judge(
        self,
        block: Block,
        lines: tuple[Positions, Positions, Positions, Positions],
        rows: Positions,
        rejects: Rejects,
    ) -> tuple[Positions, pa.RecordBatch]:
        """Judges lines by the definition, one by one; adds to rejects.

        Returns:
          The numbers of those that are documents, and their columns as `Columns.take` returns them.
        """
        data, limit = block.data, self._config.max_document_bytes
        names = (
            None if self._config.messages_field is not None else self._config.text_fields or [self._config.text_field]
        )
        found: list[tuple[int, str, str | None]] = []
        good: list[bytes] = []

        def reject(row: int, reason: str, detail: str, line: bytes) -> None:
            start, stop = int(starts[row]), int(nexts[row])
            sample = line if ends[row] <= stop else data[start:stop]
            rejects.add(block.offset + start, stop - start, reason, detail, sample)

        starts, heads, ends, nexts = lines
        for row in rows.tolist():
            line = data[heads[row] : ends[row]]
            try:
                if nexts[row] - starts[row] > limit:
                    raise _UnusableError("too_large", too_large(int(nexts[row] - starts[row]), limit))
                found.append((row, *_parse_line(line, names, self._config.id_field, self._config.join)))
            except _UnusableError as error:
                is_invalid = error.reason == "invalid_utf8"
                detail = self._invalid.explain(line, error.detail) if is_invalid else error.detail
                reject(row, error.reason, detail, line)
            else:
                good.append(line if self._fields is not None else b"")
        numbers, texts, ids = zip(*found, strict=True) if found else ((), (), ())
        columns: list[pa.Array] = [pa.array(texts, pa.string()), pa.array(ids, pa.string())]
        misfits: dict[int, tuple[str, str]] = {}
        if self._fields is not None:
            kept, misfits = self._fields.take(good)
            columns.append(kept)
            for i, (reason, detail) in sorted(misfits.items()):
                reject(numbers[i], reason, detail, data[starts[numbers[i]] : min(ends[numbers[i]], nexts[numbers[i]])])
        left = np.setdiff1d(np.arange(len(found)), list(misfits))
        batch = pa.RecordBatch.from_arrays(columns, schema=self._columns.schema)
        return np.array(numbers, np.int64)[left], batch.take(pa.array(left)) if misfits else batch


class _UnusableError(Exception):
    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def _refuse_constant(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is not JSON")


_TOO_DEEP = f"arrays and objects nest more than {MAX_DEPTH} deep"
_DECODER = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=_refuse_constant)


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


def _decode(line: bytes) -> Any:
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
        record, end = _DECODER.raw_decode(decoded, start)
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
