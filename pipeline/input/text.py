# SPDX-License-Identifier: Apache-2.0
r"""Plain text: a document per line, per file, or per run of lines between blank ones.

Line ends are `\n` or `\r\n`. A document that is a line or a run of lines does not include its last line end; line ends
inside it are kept as they are. A document that is a file is kept byte for byte, without its byte order mark.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input.batches import Part, Source, lost, make_documents, rejected, skipped
from tokenmill.pipeline.input.lines import (
    Block,
    LongLine,
    Mask,
    OpenRecord,
    PartialLine,
    Positions,
    cut_lines,
    find_lines,
    skip_marks,
    take_samples,
    take_stretches,
    without_line_end,
)
from tokenmill.pipeline.input.rejects import Rejects, invalid_utf8, too_large, too_large_all
from tokenmill.pipeline.input.streams import BLANK, Stream
from tokenmill.pipeline.input.transcoding import InvalidText
from tokenmill.tokenizer.utf8 import find_invalid_utf8

_IS_BLANK = np.zeros(256, np.bool_)
_IS_BLANK[list(BLANK)] = True
# Lines with a longer indent are checked one by one.
_INDENT_BYTES = 32


def read_text(
    stream: Stream, source: Source, config: InputConfig, block_bytes: int, fields: pa.Schema
) -> Iterator[Part]:
    """Yields the documents and rejects of a stream of text, which has none of the kept `fields`."""
    del fields
    reader = TextReader(source, config.max_document_bytes, block_bytes, stream.invalid)
    read = {"line": reader.read_lines, "blank_line": reader.read_paragraphs, "file": reader.read_file}
    return read[config.document](stream)


def first_names(stream: Stream, config: InputConfig) -> list[str]:
    """Returns no names: text has no fields."""
    del stream, config
    return []


def write(records: Iterable[Mapping[str, Any]], config: InputConfig) -> bytes:
    """Returns a file of the texts of records."""
    return "\n".join(record[config.text_field] for record in records).encode()


class _Lines(NamedTuple):
    """A block and the lines in it, as `find_lines` gives them."""

    data: bytes
    starts: Positions
    ends: Positions
    nexts: Positions


class TextReader:
    """Reads the documents of one plain text file."""

    def __init__(self, source: Source, max_bytes: int, block_bytes: int, invalid: InvalidText) -> None:
        """Takes how to read a file.

        Args:
          source: the file.
          max_bytes: the largest size of a record; longer ones are rejected.
          block_bytes: how much is processed at once; a longer record is processed alone.
          invalid: explains invalid records.
        """
        self._source = source
        self._invalid = invalid
        self._max_bytes = max_bytes
        self._block_bytes = block_bytes

    def read_lines(self, stream: Stream) -> Iterator[Part]:
        """Yields every line that is not empty as a document."""
        yield from skipped(stream.n_skipped)
        for item in cut_lines(stream, self._block_bytes, self._max_bytes):
            if isinstance(item, Block) and not item.data.lstrip(b"\n"):
                yield from skipped(len(item.data))
            elif isinstance(item, Block):
                starts, ends, nexts = find_lines(item.data)
                is_empty = ends == starts
                rows = np.flatnonzero(~is_empty)
                n_skipped = int((nexts - starts)[is_empty].sum())
                lines = _Lines(item.data, starts, ends, nexts)
                yield Part(*self._make_rows(item.offset, lines, rows, rows), len(item.data), n_skipped)
            else:
                yield lost(item, stream, self._source, self._max_bytes)

    def read_paragraphs(self, stream: Stream) -> Iterator[Part]:
        """Yields every run of lines that are not blank as a document; see `_mark_blank`."""
        yield from skipped(stream.n_skipped)
        document = OpenRecord(self._max_bytes)
        for item in cut_lines(stream, self._block_bytes, self._max_bytes):
            if isinstance(item, Block):
                yield from self._read_paragraph_block(item, document)
            elif isinstance(item, LongLine) and item.is_blank:
                yield from self._close(document)
                yield from skipped(item.n_bytes)
            else:
                document.extend(item.head, item.offset, item.n_bytes)
                if not isinstance(item, LongLine):
                    # It cannot be known whether the document ends where the stream was cut.
                    partial = PartialLine(document.offset, document.n_bytes, document.data())
                    yield lost(partial, stream, self._source, self._max_bytes)
                    return
        yield from self._close(document)

    def read_file(self, stream: Stream) -> Iterator[Part]:
        """Yields the whole file as a document; none if it is empty."""
        yield from skipped(stream.n_skipped)
        document = OpenRecord(self._max_bytes)
        for chunk in stream.chunks():
            document.extend(chunk, stream.offset)
        if stream.damage is not None:
            partial = PartialLine(stream.offset, document.n_bytes, document.data())
            yield lost(partial, stream, self._source, self._max_bytes)
        else:
            yield from self._close(document, keep_line_end=True)

    def read_files(self, data: bytes, starts: Positions, stops: Positions) -> Part:
        """Returns each of several files in `data` that is not empty as a document."""
        rows = np.flatnonzero(starts < stops)
        return Part(*self._make_rows(0, _Lines(data, starts, stops, stops), rows, rows), len(data), 0)

    def _read_paragraph_block(self, block: Block, document: OpenRecord) -> Iterator[Part]:
        """Yields the documents that end in a block; one that may continue after it becomes the open document."""
        data = block.data
        starts, ends, nexts = find_lines(data)
        blank = _mark_blank(data, starts, ends)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], ~blank, [False]])))
        first, last = edges[0::2], edges[1::2] - 1
        start, stop = 0, len(data)
        if document.n_bytes and not blank[0]:
            start = int(nexts[last[0]])
            document.extend(data[:start], block.offset)
            first, last = first[1:], last[1:]
            if start == stop:
                return
        yield from self._close(document)
        if len(last) and last[-1] == len(starts) - 1:
            stop = int(starts[first[-1]])
            document.extend(data[stop:], block.offset + stop)
            first, last = first[:-1], last[:-1]
        if start < stop:
            n_skipped = int((nexts - starts)[blank].sum())
            lines = _Lines(data, starts, ends, nexts)
            yield Part(*self._make_rows(block.offset, lines, first, last), stop - start, n_skipped)

    def _close(self, document: OpenRecord, keep_line_end: bool = False) -> Iterator[Part]:
        if not document.n_bytes:
            return
        data = document.data()
        content = data if keep_line_end else without_line_end(data)
        if document.n_bytes > self._max_bytes:
            detail = too_large(document.n_bytes, self._max_bytes)
            yield rejected(self._source, document.offset, document.n_bytes, "too_large", detail, content)
        else:
            only = np.zeros(1, np.int64)
            lines = _Lines(data, only, np.array([len(content)]), np.array([len(data)]))
            yield Part(*self._make_rows(document.offset, lines, only, only), len(data), 0)
        document.clear()

    def _make_rows(
        self, offset: int, lines: _Lines, first: Positions, last: Positions
    ) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """Returns documents and rejects of a block, each from a line in `first` to the matching line in `last`."""
        starts, ends = lines.starts[first], lines.ends[last]
        sizes = lines.nexts[last] - starts
        is_large = sizes > self._max_bytes
        invalid = find_invalid_utf8(lines.data, lines.starts, lines.nexts)
        is_invalid: Mask = np.zeros(len(first), np.bool_)
        rejects = Rejects(self._source.path)

        def reject(rows: Mask, reason: str, details: pa.StringArray) -> None:
            samples = take_samples(lines.data, starts[rows], ends[rows])
            rejects.add_all(offset + starts[rows], sizes[rows], reason, details, samples)

        if is_large.any():
            reject(is_large, "too_large", too_large_all(sizes[is_large], self._max_bytes))
        if invalid is not None:
            wrong = np.flatnonzero(invalid >= 0)
            nexts = np.searchsorted(wrong, first)  # of the lines that are wrong, the first one from `first` on
            is_invalid = np.append(wrong, len(invalid))[nexts] <= last
            rows = is_invalid & ~is_large
            at = invalid[wrong[nexts[rows]]]
            details = invalid_utf8(lines.data, starts[rows], at, "record")
            reject(rows, "invalid_utf8", self._invalid.explain_all(lines.data, starts[rows], ends[rows], details))
        good = np.flatnonzero(~(is_large | is_invalid))
        starts, ends = starts[good], ends[good]
        texts = take_stretches(lines.data, skip_marks(lines.data, starts, ends), ends, pa.string())
        documents = make_documents(self._source, texts, None, offset + starts, sizes[good])
        return documents, rejects.to_batch()


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
