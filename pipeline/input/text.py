# SPDX-License-Identifier: Apache-2.0
r"""Plain text: a document per line, per file, or per run of lines between blank ones.

Line ends are `\n` or `\r\n`. A document that is a line or a run of lines does not include its last line end; line ends
inside it are kept as they are. A document that is a file is kept byte for byte, without its byte order mark.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input.batches import Part, Source, make_documents
from tokenmill.pipeline.input.cutting import (
    Found,
    LineScanner,
    Records,
    Scanned,
    Scanner,
    StreamReader,
    skip_marks,
    take_samples,
    take_stretches,
)
from tokenmill.pipeline.input.rejects import Mask, Positions, Rejects, invalid_utf8, too_large_all
from tokenmill.pipeline.input.streams import BLANK
from tokenmill.pipeline.input.transcoding import InvalidText
from tokenmill.tokenizer.utf8 import find_invalid_utf8

_IS_BLANK = np.zeros(256, np.bool_)
_IS_BLANK[list(BLANK)] = True
# Lines with a longer indent are checked one by one.
_INDENT_BYTES = 32


class TextReader(StreamReader):
    """Reads plain text, which has no fields."""

    def scanner(self, config: InputConfig) -> Scanner:
        """Returns what finds documents, as `input.document` says."""
        kinds: dict[str, type[Scanner]] = {"line": LineScanner, "blank_line": ParagraphScanner, "file": WholeScanner}
        return kinds[config.document](config.max_document_bytes)

    def parser(self, source: Source, config: InputConfig, fields: pa.Schema, invalid: InvalidText) -> "TextParser":
        """Returns what makes documents of records."""
        del fields
        return TextParser(source, config.max_document_bytes, invalid)

    def names(self, records: Records, config: InputConfig) -> list[str]:
        """Returns no names."""
        del records, config
        return []

    def write(self, records: Iterable[Mapping[str, Any]], config: InputConfig) -> bytes:
        """Returns a file of the texts of records."""
        return "\n".join(record[config.text_field] for record in records).encode()


class WholeScanner(Scanner):
    """Takes all of a stream for one record; that of an empty one is an empty text, as in other formats."""

    def scan(self, chunk: bytes | memoryview, position: int, start: int, is_last: bool) -> Scanned:
        """Scans a chunk; see `Scanner.scan`."""
        starts = np.array([start] if is_last else [], np.int64)
        stops = np.full(starts.size, position)
        found = Found(starts, stops, stops, np.zeros(starts.size, np.int64))
        return Scanned(found, position if is_last else start, chunk)


class ParagraphScanner(LineScanner):
    """Finds runs of lines that are not blank; see `_mark_blank`."""

    def __init__(self, max_bytes: int) -> None:
        """Takes how large a record may be to be kept."""
        super().__init__(max_bytes)
        self._line: int | None = None  # where the line begins that has not ended yet
        self._has_text = False  # whether it is known not to be blank
        self._run: Found | None = None  # the lines of the open record, as one

    def scan(self, chunk: bytes | memoryview, position: int, start: int, is_last: bool) -> Scanned:
        """Scans a chunk; see `Scanner.scan`."""
        line = start if self._line is None else self._line
        lines = self.lines(chunk, position, line, is_last)
        inside = [np.maximum(each - position, 0) for each in lines[:2]]
        blank = _mark_blank(bytes(chunk), *inside)
        if blank.size:
            blank[0] &= not self._has_text
            line, self._has_text = int(lines.nexts[-1]), False
        self._has_text |= bool(bytes(chunk[max(0, line - position) :]).strip(BLANK))
        self._line = line
        if self._run is not None:
            lines = Found(*map(np.concatenate, zip(self._run, lines, strict=True)))
            blank = np.append(False, blank)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], ~blank, [False]])))
        first, last = edges[0::2], edges[1::2] - 1
        found = Found(lines.starts[first], lines.ends[last], lines.nexts[last], lines.facts[first])
        is_open = not is_last and last.size > 0 and last[-1] == blank.size - 1
        self._run = found.rows(found.starts.size - 1, found.starts.size) if is_open else None
        if self._run is not None:
            return Scanned(found.rows(0, found.starts.size - 1), int(self._run.starts[0]), chunk)
        return Scanned(found, line, chunk)


def _mark_blank(data: bytes, starts: Positions, ends: Positions) -> Mask:
    """Returns bool[n_lines]: the lines with nothing but spaces, tabs and carriage returns."""
    values = np.frombuffer(data, np.uint8)
    blank = np.zeros(len(starts), np.bool_)
    lines = np.arange(len(starts))
    for step in range(_INDENT_BYTES):
        positions = starts[lines] + step
        has_ended = positions >= ends[lines]
        blank[lines[has_ended]] = True
        # A line that ends at the end of the block has no byte at its position.
        lines, positions = lines[~has_ended], positions[~has_ended]
        lines = lines[_IS_BLANK[values[positions]]]
        if not len(lines):
            return blank
    for line in lines.tolist():
        blank[line] = not data[starts[line] : ends[line]].strip(BLANK)
    return blank


class TextParser:
    """Makes a document of each record."""

    def __init__(self, source: Source, max_bytes: int, invalid: InvalidText) -> None:
        """Takes the file, the largest size of a record, and what explains invalid ones."""
        self._source, self._max_bytes, self._invalid = source, max_bytes, invalid

    def parse(self, records: Records) -> Part:
        """Returns the documents and rejects of a block."""
        data, starts, ends = records.data, records.starts, records.ends
        sizes = records.nexts - starts
        rejects = Rejects(self._source.path)

        def reject(rows: Mask, reason: str, details: pa.StringArray) -> None:
            samples = take_samples(data, starts[rows], ends[rows])
            rejects.add_all(records.offset + starts[rows], sizes[rows], reason, details, samples)

        is_bad = is_large = sizes > self._max_bytes
        if is_large.any():
            reject(is_large, "too_large", too_large_all(sizes[is_large], self._max_bytes))
        at = find_invalid_utf8(data, starts, records.nexts)
        if at is not None:
            rows = (at >= 0) & ~is_large
            is_bad = is_large | rows
            details = invalid_utf8(data, starts[rows], at[rows], "record")
            reject(rows, "invalid_utf8", self._invalid.explain_all(data, starts[rows], ends[rows], details))
        if is_bad.any():
            starts, ends, sizes = starts[~is_bad], ends[~is_bad], sizes[~is_bad]
        texts = take_stretches(data, skip_marks(data, starts, ends), ends, pa.string())
        documents = make_documents(self._source, texts, None, records.offset + starts, sizes)
        return Part(documents, rejects.to_batch(), len(data), records.n_between)
