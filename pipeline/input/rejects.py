# SPDX-License-Identifier: Apache-2.0
"""Why a record could not be used: the closed list of reasons, and the rows that say so."""

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline import schemas
from tokenmill.tokenizer.chat.conversations import REASONS as CONVERSATION_REASONS

Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

REASONS = {
    "not_json": "the line is not exactly one JSON value by RFC 8259 (NaN and Infinity are not JSON)",
    "not_object": "the line is a JSON value, but not an object",
    "too_deep": "the line nests arrays and objects more than 256 deep",
    "missing_field": "the object has no text field",
    "null_text": "the text is null",
    "not_string": "the text is a number, true, false, an array or an object",
    "wrong_cells": "the row has another number of cells than the header of its file",
    "bad_quotes": "a quoted cell of the row is followed by text in place of a delimiter, or never closed",
    "not_extracted": "the record of a crawl is not extracted text, as those of the type conversion are",
    "bad_field": "a field of input.keep_fields is not of the type that is declared for it",
    "bad_id": "the id is true, false, an array or an object; it may be a string, a number or null",
    "invalid_utf8": "the record is not valid UTF-8, or not valid in the encoding that input.encoding says",
    "lone_surrogate": "text, id or a field that is kept holds half of a surrogate pair, which no UTF-8 can express",
    "too_large": "the record has more than input.max_document_bytes bytes",
    "text_timeout": "a regular expression of normalize or spans did not finish in its time, or ftfy would not",
    "tokenizer_timeout": "a regular expression of the tokenizer did not finish in its time",
    "unknown_character": "a character is not in the vocabulary, which has no unknown token",
    "out_of_memory": "there was not enough memory to tokenize the text, or a step of the tokenizer makes it too long",
    **CONVERSATION_REASONS,
    "unreadable_file": "nothing of the file can be read: it is damaged, or not what its name or the config says",
    "truncated_stream": "the compressed file ends early; everything before this last, partial record was used",
    "bomb": "the compressed file gives over 1000 times its size; everything before this last, partial record was used",
    "corrupt_stream": "the file is damaged; everything before this last, partial record or these rows was used",
}
"""Every reason that a reject can have, and what it means, which is its detail where nobody gives another."""

SAMPLE_BYTES = 1024
"""How much of a rejected record is kept to look at."""

_MAX_NAMES, _MAX_NAME = 20, 60
"""How many names of fields a message lists, and how many characters of each."""


class Rejects:
    """Rejected records of one stretch of a file, as columns: a hostile file may have millions."""

    def __init__(self, source: str) -> None:
        """Starts with none; `source` is the path of the file as planned."""
        self._source = source
        self._single: list[tuple[int, int, str, str, bytes]] = []
        self._columns: list[Sequence[pa.Array]] = []

    def add(self, offset: int, n_bytes: int, reason: str, detail: str, sample: bytes) -> None:
        """Adds a record. `sample` is the record or its beginning; its first `SAMPLE_BYTES` are kept."""
        assert reason in REASONS, reason
        self._single.append((offset, n_bytes, reason, detail, bytes(sample[:SAMPLE_BYTES])))

    def add_all(
        self,
        offsets: Positions,
        n_bytes: Positions,
        reason: str,
        details: pa.StringArray | str,
        samples: pa.BinaryArray | None = None,
    ) -> None:
        """Adds records that are rejected for the same reason.

        Args:
          offsets: int64[n] as in `schemas.REJECTS`, like `n_bytes`.
          n_bytes: int64[n].
          reason: a key of `REASONS`.
          details: string[n], or one for all.
          samples: binary[n], at most `SAMPLE_BYTES` each; None for empty ones.
        """
        assert reason in REASONS, reason
        n = len(offsets)
        if isinstance(details, str):
            details = repeated(details, n)
        samples = pa.repeat(pa.scalar(b""), n) if samples is None else samples
        positions = pa.array(offsets, pa.int64()), pa.array(n_bytes, pa.int64())
        self._columns.append([*positions, repeated(reason, n), details, samples])

    def to_batch(self) -> pa.RecordBatch | None:
        """Returns the rows as `schemas.REJECTS`, ordered by their offsets; None when there are none."""
        groups = [group for group in self._columns if len(group[0])]
        if self._single:
            types = schemas.REJECTS.types[1:]
            groups.append(
                [pa.array(each, kind) for each, kind in zip(zip(*self._single, strict=True), types, strict=True)]
            )
        if not groups:
            return None
        columns = [parts[0] if len(parts) == 1 else pa.concat_arrays(parts) for parts in zip(*groups, strict=True)]
        columns = [repeated(self._source, len(columns[0])), *columns]
        batch = pa.RecordBatch.from_arrays(columns, schema=schemas.REJECTS)
        offsets = columns[1].to_numpy()
        return batch if (np.diff(offsets) >= 0).all() else batch.take(pa.array(np.argsort(offsets, kind="stable")))


def repeated(text: str, n: int) -> pa.StringArray:
    """Returns string[n] of one text."""
    return pa.repeat(pa.scalar(text, pa.string()), n)


def joined(*parts: str | Positions | pa.StringArray) -> pa.StringArray:
    """Returns string[n]: texts, numbers (int64[n]) and string[n] put together row by row."""
    texts = [pc.cast(pa.array(part), pa.string()) if isinstance(part, np.ndarray) else part for part in parts]
    return pc.binary_join_element_wise(*texts, "")


def too_large(n_bytes: int, limit: int) -> str:
    """Returns the detail of a reject with the reason `too_large`."""
    return f"{n_bytes}{_too_large(limit)}"


def too_large_all(n_bytes: Positions, limit: int) -> pa.StringArray:
    """Returns `too_large` of many, string[n], from int64[n]."""
    return joined(n_bytes, _too_large(limit))


def _too_large(limit: int) -> str:
    return f" bytes, at most {limit} are allowed"


@functools.cache
def _hex() -> pa.StringArray:
    """Returns what is said of each byte; not when the module is imported, as `pa.array` then imports pandas: 0.4 s."""
    return pa.array([f"byte 0x{byte:02x} at byte " for byte in range(256)])


def invalid_utf8(data: bytes, starts: Positions, at: Positions, what: str) -> pa.StringArray:
    """Returns string[n]: the details of rejects with the reason `invalid_utf8`.

    Args:
      data: the bytes that contain the records.
      starts: int64[n]: where they begin.
      at: int64[n]: where the byte is that is not UTF-8.
      what: what a record is: "line" or "record".
    """
    values = np.frombuffer(data, np.uint8)[at]
    return joined(_hex().take(pa.array(values)), at - starts, f" of the {what}")


def listed_names(names: Sequence[str]) -> str:
    """Returns names of fields for a message; as they come from the input, they are escaped, shortened, and limited."""
    short = [repr(name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}...") for name in names[:_MAX_NAMES]]
    more = f" and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(short) + more
