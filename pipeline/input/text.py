# SPDX-License-Identifier: Apache-2.0
r"""Plain text: a document per line, per file, or per run of lines between blank ones.

Line ends are `\n` or `\r\n`. A document that is a line or a run of lines does not include its last line end; line ends
inside it are kept as they are. A document that is a file is kept byte for byte, without its byte order mark.
"""

import numpy as np
import pyarrow as pa

from tokenmill.pipeline.input.batches import Part, make_documents
from tokenmill.pipeline.input.cutting import (
    Found,
    LineScanner,
    Records,
    Scanned,
    Scanner,
    StreamReader,
    skip_marks,
    take_stretches,
)
from tokenmill.pipeline.input.rejects import Mask, Positions, Rejects
from tokenmill.pipeline.input.streams import BLANK

_IS_BLANK = np.zeros(256, np.bool_)
_IS_BLANK[list(BLANK)] = True
# Lines with a longer indent are checked one by one.
_INDENT_BYTES = 32


class TextReader(StreamReader):
    """Reads plain text, which has no fields: each record is a document."""

    def scanner(self) -> Scanner:
        """Returns what finds documents, as `input.document` says."""
        kinds: dict[str, type[Scanner]] = {"line": LineScanner, "blank_line": ParagraphScanner, "file": WholeScanner}
        return kinds[self._config.document](self._config.max_document_bytes)

    def parse(self, records: Records) -> Part:
        """Returns the documents and rejects of a block."""
        rejects, n_between = Rejects(self._source.path), records.n_between
        is_large = self._reject_too_large(rejects, records)
        is_bad = is_large | self._reject_invalid(rejects, records, ~is_large)
        data, good = records.data, records.take(~is_bad) if is_bad.any() else records
        texts = take_stretches(data, skip_marks(data, good.starts, good.ends), good.ends, pa.string())
        offsets, sizes = records.offset + good.starts, good.nexts - good.starts
        documents = make_documents(self._source, texts, None, offsets, sizes)
        return Part(documents, rejects.to_batch(), len(data), n_between)

    def names(self, records: Records) -> list[str]:
        """Returns no names."""
        return []


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
