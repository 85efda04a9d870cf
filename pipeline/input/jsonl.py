# SPDX-License-Identifier: Apache-2.0
r"""JSON Lines: a kernel parses the lines that it is sure of, the standard library the others.

A line is a document if it is one JSON value by RFC 8259, in UTF-8, an object, nests at most 256 deep, and its text
field is a string that UTF-8 can express. If a name occurs twice in an object, the last one counts. `_parse_line`
decides this for one line, and says what is wrong with it. The kernels never decide otherwise, and leave lines that have
names with escapes to `_parse_line`. It also judges the first lines that are not accepted; for more there is no time.
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input.batches import Part, Source, join_texts, lost, make_documents, skipped
from tokenmill.pipeline.input.json_kernels import (
    BAD_ID,
    BLANK,
    LONE_SURROGATE,
    MISSING_FIELD,
    N_VERDICTS,
    NOT_JSON,
    NOT_OBJECT,
    NOT_STRING,
    NULL_TEXT,
    TOO_DEEP,
    is_deeper,
    parse_lines,
)
from tokenmill.pipeline.input.json_value_kernels import ABSENT, INTEGER, NULL, NUMBER, STRING
from tokenmill.pipeline.input.json_values import KIND_NAMES, FieldColumns, Names, find_all, first_of, texts_of
from tokenmill.pipeline.input.lines import (
    Block,
    LongLine,
    Mask,
    Positions,
    cut_lines,
    find_lines,
    skip_marks,
    take_samples,
)
from tokenmill.pipeline.input.nested import inside, is_nested, values_at
from tokenmill.pipeline.input.rejects import Rejects, invalid_utf8, joined, too_large, too_large_all
from tokenmill.pipeline.input.streams import BLANK as BLANK_BYTES
from tokenmill.pipeline.input.streams import Stream
from tokenmill.pipeline.input.transcoding import InvalidText
from tokenmill.tokenizer.utf8 import find_invalid_utf8

NO_FIELDS = pa.schema([])
EXPLAINED = 100
"""This many of the lines of a piece that the kernel does not accept are judged by `_parse_line`, whose details are more
exact; a hostile file may have so many that there is no time for more."""
_FIRST_LINES = 100
_BLOCK_BYTES = 1 << 20
MAX_DEPTH = 256
"""How deep arrays and objects may nest. The standard library's own limit depends on how deep its caller's stack is."""


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
        self._fields = FieldColumns(fields) if len(fields) else None
        self._source = source
        self._config = config
        id_name = config.id_field or ""
        self._id_paths = [[id_name], id_name.split(".")] if is_nested(id_name) else []
        self._id_names = Names.of(self._id_paths)
        # The kernel accepts only lines with this field; of several text fields it looks for the last, as that one is
        # rarely missing.
        text_name = config.text_fields[-1] if config.text_fields else config.text_field
        self._names = tuple(
            np.frombuffer(name.encode(), np.uint8) for name in (text_name, "" if self._id_paths else id_name)
        )
        self._text_fields = config.text_fields or [config.text_field]
        # Only `_parse_line` follows a path; the kernel takes such a field where a line has it under its whole name.
        self._is_nested = config.messages_field is not None or any(map(is_nested, self._text_fields))
        self._is_sure = not (self._is_nested and (config.text_fields or config.messages_field is not None))
        """Whether the kernel may accept a line."""
        self._n_left_to_explain = EXPLAINED
        self._paths = [[name] for name in config.text_fields]
        self._path_names = Names.of(self._paths)
        self._scratch = np.zeros(MAX_DEPTH, np.uint8), np.zeros(6, np.int64)

    def parse_lines(self, block: Block) -> Part:
        """Parses the lines of a block."""
        starts, ends, nexts = find_lines(block.data)
        n_skipped = 0
        is_empty = starts == ends
        if is_empty.any():
            n_skipped = int((nexts - starts)[is_empty].sum())
            starts, ends, nexts = (each[~is_empty] for each in (starts, ends, nexts))
        return self.parse(block, (starts, skip_marks(block.data, starts, ends), ends, nexts), n_skipped)

    def parse(self, block: Block, lines: tuple[Positions, Positions, Positions, Positions], n_skipped: int) -> Part:
        """Parses some stretches of a block.

        Args:
          block: what they are in.
          lines: int64[n] each: where they start; where their JSON starts and ends, perhaps behind all of them; where
            what ends them, too, ends.
          n_skipped: the bytes that are in none of them.
        """
        data = block.data
        starts, heads, ends, nexts = lines
        rejects = Rejects(self._source.path)
        wanted = nexts - starts <= self._config.max_document_bytes
        invalid = find_invalid_utf8(data, starts, nexts)
        if invalid is not None:
            wanted &= invalid < 0
        texts, ids, rows, verdicts, places = self._parse_columns(data, heads, ends, wanted)
        if self._config.text_fields:
            texts, ids, rows = self._join(data, heads, ends, ids, rows)
        if self._id_paths:
            texts, ids, rows = self._nested_ids(data, heads, ends, texts, rows)

        slow_texts: list[str] = []
        slow_ids: list[str | None] = []
        slow_rows: list[int] = []
        if rows.size < starts.size:
            unsure, n_blank_bytes = self._judge(block, lines, invalid, rows, verdicts, places, rejects)
            n_skipped += n_blank_bytes
        else:
            unsure = np.zeros(0, np.int64)
        for row in unsure.tolist():
            start, n_bytes = int(starts[row]), int(nexts[row] - starts[row])
            line = data[heads[row] : ends[row]]
            sample = line if ends[row] <= nexts[row] else data[starts[row] : nexts[row]]
            try:
                if n_bytes > self._config.max_document_bytes:
                    raise _UnusableError("too_large", too_large(n_bytes, self._config.max_document_bytes))
                fields = self._text_fields if self._config.messages_field is None else None
                text, document_id = _parse_line(line, fields, self._config.id_field, self._config.join)
            except _UnusableError as error:
                is_invalid = error.reason == "invalid_utf8"
                detail = self._invalid.explain(line, error.detail) if is_invalid else error.detail
                rejects.add(block.offset + start, n_bytes, error.reason, detail, sample)
                continue
            slow_texts.append(text)
            slow_ids.append(document_id)
            slow_rows.append(row)
        if slow_rows:
            # Rows of the kernel and of the standard library, in the order of the file.
            rows = np.concatenate([rows, np.array(slow_rows, np.int64)])
            order = np.argsort(rows, kind="stable")
            rows = rows[order]
            texts = pa.concat_arrays([texts, pa.array(slow_texts, pa.string())]).take(pa.array(order))
            ids = pa.concat_arrays([ids, pa.array(slow_ids, pa.string())]).take(pa.array(order))
        kept = None
        if self._fields is not None:
            kept, misfits = self._fields.take(np.frombuffer(data, np.uint8), heads[rows], ends[rows])
            if misfits:
                for i, (reason, detail) in sorted(misfits.items()):
                    start, n_bytes = int(starts[rows[i]]), int(nexts[rows[i]] - starts[rows[i]])
                    rejects.add(
                        block.offset + start, n_bytes, reason, detail, data[start : min(ends[rows[i]], nexts[rows[i]])]
                    )
                left = np.setdiff1d(np.arange(rows.size), list(misfits))
                rows = rows[left]
                texts, ids, kept = (column.take(pa.array(left)) for column in (texts, ids, kept))
        documents = make_documents(
            self._source, texts, ids, block.offset + starts[rows], nexts[rows] - starts[rows], kept
        )
        return Part(documents, rejects.to_batch(), len(data), n_skipped)

    def _judge(
        self,
        block: Block,
        lines: tuple[Positions, Positions, Positions, Positions],
        invalid: Positions | None,
        accepted: Positions,
        verdicts: npt.NDArray[np.uint8],
        places: Positions,
        rejects: Rejects,
    ) -> tuple[Positions, int]:
        """Rejects lines that were not accepted; returns those for `_parse_line` to judge, and the size of blank ones.

        Args:
          block: the lines.
          lines: starts, starts without byte order marks, ends, nexts of `find_lines`.
          invalid: as `find_invalid_utf8` returns it.
          accepted: the numbers of the lines that were accepted.
          verdicts, places: of `json_kernels.parse_lines`, for all lines.
          rejects: added to.
        """
        data, limit = block.data, self._config.max_document_bytes
        is_other = np.ones(lines[0].size, np.bool_)
        is_other[accepted] = False
        others = np.flatnonzero(is_other)
        starts, heads, ends, nexts = (each[others] for each in lines)
        sizes = nexts - starts
        at = np.full(others.size, -1) if invalid is None else invalid[others]
        is_large, is_invalid = sizes > limit, at >= 0
        verdicts, places = verdicts[others], places[others]
        is_blank = verdicts == BLANK
        first = np.flatnonzero(~is_blank)[: self._n_left_to_explain]
        self._n_left_to_explain -= first.size
        is_left = ~is_blank
        is_left[first] = False

        def reject(rows: Mask, reason: str, details: Callable[[Mask], pa.StringArray | str]) -> None:
            rows = rows & is_left
            is_left[rows] = False
            if rows.any():
                samples = take_samples(data, starts[rows], np.minimum(ends, nexts)[rows])
                rejects.add_all(block.offset + starts[rows], sizes[rows], reason, details(rows), samples)

        reject(is_large, "too_large", lambda rows: too_large_all(sizes[rows], limit))
        reject(
            is_invalid,
            "invalid_utf8",
            lambda rows: self._invalid.explain_all(
                data, starts[rows], ends[rows], invalid_utf8(data, starts[rows], at[rows], "line")
            ),
        )
        # With several text fields, what is wrong with a text depends on all of them.
        sure = range(NOT_JSON, MISSING_FIELD if self._config.text_fields or self._is_nested else N_VERDICTS)
        for verdict in sure if is_left.any() else ():
            reject(verdicts == verdict, *self._explain(verdict, places))
        if self._config.text_fields and not self._is_nested and is_left.any():
            rows = np.flatnonzero(is_left & (verdicts >= MISSING_FIELD))
            for mask, reason, details in self._judge_texts(np.frombuffer(data, np.uint8), heads[rows], ends[rows]):
                is_of = np.zeros(others.size, np.bool_)
                is_of[rows[mask]] = True
                reject(is_of, reason, details)
        is_left[first] = True
        return others[is_left], int(sizes[is_blank].sum())

    def _judge_texts(
        self, values: np.ndarray, starts: Positions, ends: Positions
    ) -> Iterator[tuple[Mask, str, Callable[[Mask], pa.StringArray | str]]]:
        """Yields which objects of a block have no text in several fields, the reason, and what gives the details."""
        found = find_all(values, starts, ends, self._paths, self._path_names)
        kinds = np.stack([each.kinds for each in found])
        names = " or ".join(map(repr, self._text_fields))
        yield (kinds == ABSENT).all(0), "missing_field", lambda _: f"no field {names}"
        is_there = kinds != ABSENT
        yield is_there.any(0) & (~is_there | (kinds == NULL)).all(0), "null_text", lambda _: f"field {names} is null"
        is_wrong = ~np.isin(kinds, [ABSENT, NULL, STRING])
        is_broken = np.logical_or.reduce([texts_of(each)[1] for each in found])
        mask = is_wrong.any(0) & ~is_broken
        first = is_wrong.argmax(0)[mask]
        fields = pa.array([f"field {name!r} is " for name in self._text_fields]).take(pa.array(first))
        what = pa.array(KIND_NAMES).take(pa.array(kinds[first, np.flatnonzero(mask)]))
        yield mask, "not_string", lambda _: joined(fields, what)

    def _explain(self, verdict: int, places: Positions) -> tuple[str, Callable[[Mask], pa.StringArray | str]]:
        """Returns the reason for a verdict of `parse_lines`, and what gives the details for some of the lines."""
        text, document_id = f"field {self._config.text_field!r}", f"field {self._config.id_field!r}"

        def kind_of(what: str) -> Callable[[Mask], pa.StringArray | str]:
            return lambda rows: joined(f"{what} is ", _VALUE_KINDS.take(pa.array(places[rows])))

        fields = pa.array([text, document_id])
        found: dict[int, tuple[str, Callable[[Mask], pa.StringArray | str]]] = {
            NOT_JSON: ("not_json", lambda rows: joined("not JSON at byte ", places[rows], " of the line")),
            NOT_OBJECT: ("not_object", kind_of("the line")),
            TOO_DEEP: ("too_deep", lambda _: _TOO_DEEP),
            MISSING_FIELD: ("missing_field", lambda _: f"no {text}"),
            NULL_TEXT: ("null_text", lambda _: f"{text} is null"),
            NOT_STRING: ("not_string", kind_of(text)),
            BAD_ID: ("bad_id", kind_of(document_id)),
            LONE_SURROGATE: (
                "lone_surrogate",
                lambda rows: joined("half a surrogate pair in ", fields.take(pa.array(places[rows]))),
            ),
        }
        return found[verdict]

    def _parse_columns(
        self, data: bytes, starts: Positions, ends: Positions, wanted: Mask
    ) -> tuple[pa.Array, pa.Array, Positions, npt.NDArray[np.uint8], Positions]:
        """Parses the wanted lines.

        Returns:
          Texts, ids and line numbers of those that the kernel accepted; its verdicts on all lines, and their places.
        """
        n_lines = len(starts)
        values = np.frombuffer(data, np.uint8)
        texts, ids = np.empty(len(data), np.uint8), np.empty(len(data) if self._names[1].size else 0, np.uint8)
        text_offsets, id_offsets = np.zeros(n_lines + 1, np.int32), np.zeros(n_lines + 1, np.int32)
        has_id, rows = np.empty(n_lines, np.bool_), np.empty(n_lines, np.int64)
        verdicts, places = np.empty(n_lines, np.uint8), np.empty(n_lines, np.int64)
        columns = texts, text_offsets, ids, id_offsets, has_id, rows, verdicts, places
        n = parse_lines(values, (starts, ends, wanted), self._names, self._scratch, self._is_sure, *columns)
        return (
            _strings(texts, text_offsets[: n + 1]),
            _strings(ids, id_offsets[: n + 1], has_id[:n]) if ids.size else pa.nulls(n, pa.string()),
            rows[:n],
            verdicts,
            places,
        )

    def _join(
        self, data: bytes, starts: Positions, ends: Positions, ids: pa.Array, rows: Positions
    ) -> tuple[pa.Array, pa.Array, Positions]:
        """Returns joined texts, ids and line numbers of those `rows` whose text fields are strings, null or absent."""
        values = np.frombuffer(data, np.uint8)
        found = find_all(values, starts[rows], ends[rows], self._paths, self._path_names)
        is_sure = np.ones(rows.size, np.bool_)
        columns = []
        for each in found:
            texts, is_broken = texts_of(each)
            is_sure &= np.isin(each.kinds, [ABSENT, NULL, STRING]) & ~is_broken
            columns.append(texts)
        joined = join_texts(columns, self._config.join)
        if is_sure.all():
            return joined, ids, rows
        sure = pa.array(is_sure)
        return joined.filter(sure), ids.filter(sure), rows[is_sure]

    def _nested_ids(
        self, data: bytes, starts: Positions, ends: Positions, texts: pa.Array, rows: Positions
    ) -> tuple[pa.Array, pa.Array, Positions]:
        """Returns texts, ids and line numbers of those `rows` whose nested id is a string, a number, or not there."""
        found = find_all(np.frombuffer(data, np.uint8), starts[rows], ends[rows], self._id_paths, self._id_names)
        values = first_of(*found)
        ids, is_broken = texts_of(values)
        is_sure = np.isin(values.kinds, [ABSENT, NULL, STRING, NUMBER, INTEGER]) & ~is_broken
        is_zero = pc.and_(pc.equal(ids, "-0"), pa.array(values.kinds != STRING))
        sure = pa.array(is_sure)
        return texts.filter(sure), pc.if_else(pc.fill_null(is_zero, False), "0", ids).filter(sure), rows[is_sure]


def _strings(data: np.ndarray, offsets: np.ndarray, valid: Mask | None = None) -> pa.StringArray:
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(data[: offsets[-1]])]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


def _is_too_deep(line: bytes) -> bool:
    return is_deeper(np.frombuffer(line, np.uint8), MAX_DEPTH)


class _UnusableError(Exception):
    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class _Number(str):
    """A JSON number as it is written, of any length."""

    __slots__ = ()


def _refuse_constant(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is not JSON")


_TOO_DEEP = f"arrays and objects nest more than {MAX_DEPTH} deep"
_DECODER = json.JSONDecoder(parse_int=_Number, parse_float=_Number, parse_constant=_refuse_constant)
_KINDS = {dict: "an object", list: "an array", str: "a string", bool: "true or false", _Number: "a number"}
_BEGINS = {"{": "an object", "[": "an array", '"': "a string", "t": "true or false", "f": "true or false", "n": "null"}
_VALUE_KINDS = pa.array([_BEGINS.get(chr(byte), "a number") for byte in range(256)])


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
        raise _UnusableError("not_object", f"the line is {_KINDS.get(type(record), 'null')}")
    text = line.decode() if text_fields is None else join.join(_texts_in(record, text_fields))
    document_id = None if id_field is None else inside(record, id_field)
    if document_id is None:
        return text, None
    if not isinstance(document_id, str):
        raise _UnusableError("bad_id", f"field {id_field!r} is {_KINDS[type(document_id)]}")
    _check_surrogates(document_id, id_field)
    if type(document_id) is _Number and document_id == "-0":
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
            raise _UnusableError("not_string", f"field {field!r} is {_KINDS[type(text)]}")
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
    if line.count(b"[") + line.count(b"{") > MAX_DEPTH and _is_too_deep(line):
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
