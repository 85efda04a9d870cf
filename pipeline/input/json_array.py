# SPDX-License-Identifier: Apache-2.0
"""A file that is one JSON array: its elements are read as lines of JSON are, a few at a time.

A kernel finds where they begin and end; `jsonl` decides which of them are documents. If the array is not closed, the
file is damaged: what it ends with is rejected. Samples of rejects have spaces in place of line ends between strings.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input.batches import Part, Source, lost, rejected, skipped
from tokenmill.pipeline.input.jsonl import LineParser, names_in
from tokenmill.pipeline.input.lines import Block, Records, cut_records
from tokenmill.pipeline.input.record_kernels import BROKEN, scan_elements
from tokenmill.pipeline.input.streams import Stream


def read_json_array(
    stream: Stream, source: Source, config: InputConfig, block_bytes: int, fields: pa.Schema
) -> Iterator[Part]:
    """Yields the documents and rejects of an array; a part is at most as large as a chunk and an element."""
    del block_bytes
    parser = LineParser(source, config, fields, stream.invalid)
    yield from skipped(stream.n_skipped)
    for item in cut_records(stream, scan_elements, config.max_document_bytes):
        if not isinstance(item, Records):
            yield lost(item, stream, source, config.max_document_bytes)
        elif not item.starts.size:
            yield from skipped(len(item.data))
        elif item.facts[-1]:  # the kernel says so of nothing else than the end of a stream, which comes alone
            reason, detail = "corrupt_stream", "the file ends inside the array"
            if item.facts[-1] == BROKEN:
                reason, detail = "not_json", "it is not in the array"
            start, stop = int(item.starts[-1]), int(item.nexts[-1])
            part = rejected(source, item.offset + start, stop - start, reason, detail, item.data[start:stop])
            yield Part(None, part.rejects, len(item.data), item.n_between)
        else:
            places = item.starts, item.starts, item.ends, item.nexts
            yield parser.parse(Block(item.offset, item.data), places, item.n_between)


def first_names(stream: Stream, config: InputConfig) -> list[str]:
    """Returns the names of fields in the first elements, in the order in which they are met."""
    for item in cut_records(stream, scan_elements, config.max_document_bytes):
        if isinstance(item, Records) and item.starts.size:
            return names_in(item.data, item.starts, item.ends)
    return []


def write(records: Iterable[Mapping[str, Any]], config: InputConfig) -> bytes:
    """Returns a file of records."""
    del config  # fields have their names
    return json.dumps(list(records), indent=1).encode()
