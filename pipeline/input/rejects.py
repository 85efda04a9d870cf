# SPDX-License-Identifier: Apache-2.0
"""Why a record could not be used: the closed list of reasons, and the rows that say so."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pipeline import schemas

REASONS = {
    "not_json": "the line is not exactly one JSON value by RFC 8259 (NaN and Infinity are not JSON)",
    "not_object": "the line is a JSON value, but not an object",
    "too_deep": "the line nests arrays and objects more than 256 deep",
    "missing_field": "the object has no text field",
    "null_text": "the text is null",
    "not_string": "the text is a number, true, false, an array or an object",
    "bad_field": "a field of input.keep_fields is not of the type that is declared for it",
    "bad_id": "the id is true, false, an array or an object; it may be a string, a number or null",
    "invalid_utf8": "the record is not valid UTF-8, or not valid in the encoding that input.encoding says",
    "lone_surrogate": "text, id or a field that is kept holds half of a surrogate pair, which no UTF-8 can express",
    "too_large": "the record has more than input.max_document_bytes bytes",
    "text_timeout": "a regular expression of normalize or spans took too long on the text, or ftfy would",
    "tokenizer_timeout": "a regular expression of the tokenizer took too long on the text",
    "unknown_character": "a character is not in the vocabulary, which has no unknown token",
    "out_of_memory": "there was not enough memory to tokenize the text",
    "truncated_stream": "the compressed file ends early; everything before this last, partial record was used",
    "bomb": "the compressed file gives over 1000 times its size; everything before this last, partial record was used",
    "corrupt_stream": "the file is damaged; everything before this last, partial record or these rows was used",
}
"""Every reason that a reject can have, and what it means."""

SAMPLE_BYTES = 1024
"""How much of a rejected record is kept to look at."""

_MAX_NAMES, _MAX_NAME = 20, 60
"""How many names of fields a message lists, and how many characters of each."""


class Rejects:
    """Rejected records of one file; each is a Python object, because there are few."""

    def __init__(self, source: str) -> None:
        """Starts with none; `source` is the path of the file as planned."""
        self._source = source
        self._offsets: list[int] = []
        self._n_bytes: list[int] = []
        self._reasons: list[str] = []
        self._details: list[str] = []
        self._samples: list[bytes] = []

    def add(self, offset: int, n_bytes: int, reason: str, detail: str, sample: bytes) -> None:
        """Adds a record. `sample` is the record or its beginning; its first `SAMPLE_BYTES` are kept."""
        assert reason in REASONS, reason
        self._offsets.append(offset)
        self._n_bytes.append(n_bytes)
        self._reasons.append(reason)
        self._details.append(detail)
        self._samples.append(bytes(sample[:SAMPLE_BYTES]))

    def to_batch(self) -> pa.RecordBatch | None:
        """Returns the rows as `schemas.REJECTS`; None when there are none."""
        if not self._offsets:
            return None
        order = np.argsort(self._offsets, kind="stable")  # rejects for kept fields are added after the others
        columns = [
            pa.repeat(pa.scalar(self._source, pa.string()), len(self._offsets)),
            pa.array(self._offsets, pa.int64()),
            pa.array(self._n_bytes, pa.int64()),
            pa.array(self._reasons, pa.string()),
            pa.array(self._details, pa.string()),
            pa.array(self._samples, pa.binary()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schemas.REJECTS).take(pa.array(order))


def too_large(n_bytes: int, limit: int) -> str:
    """Returns the detail of a reject with the reason `too_large`."""
    return f"{n_bytes} bytes, at most {limit} are allowed"


def listed_names(names: Sequence[str]) -> str:
    """Returns names of fields for a message; as they come from the input, they are escaped, shortened, and limited."""
    short = [repr(name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}...") for name in names[:_MAX_NAMES]]
    more = f" and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(short) + more
