# SPDX-License-Identifier: Apache-2.0
"""Documents that a text step or the tokenizer gives up on: they are found, and become rejects.

A batch that fails is halved until each document at fault is alone, so that its neighbours are kept.

A tokenizer file is data from elsewhere: its patterns may take forever on some text; its vocabulary may lack a character
and have no unknown token. A document may need more memory than there is. This is rare, and costs time only for batches
that fail.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline import schemas
from tokenmill.pipeline.books.counts import rejected
from tokenmill.pipeline.input.batches import ReadBatch
from tokenmill.pipeline.input.rejects import REASONS, SAMPLE_BYTES, repeated
from tokenmill.pipeline.isolating import isolate
from tokenmill.pipeline.splits import Split
from tokenmill.tokenizer import UnknownCharacterError

GAVE_UP = (TimeoutError, MemoryError, UnknownCharacterError)
"""The exceptions by which a tokenizer gives up on a document."""

TIMEOUT, MEMORY, UNKNOWN = OF_TOKENIZER = "tokenizer_timeout", "out_of_memory", "unknown_character"
"""The reject reasons for these exceptions, in the same order."""

TEXT_TIMEOUT = "text_timeout"
"""The reject reason for documents on which a text step or a span gave up."""


class Rows(Protocol):
    """Documents, or something with one row for each."""

    @property
    def num_rows(self) -> int:
        """How many there are."""

    def slice(self, start: int, n: int, /) -> Self:
        """Returns `n` of them from `start` on."""


def find_given_up(work: Callable[[Any], object], documents: Rows) -> npt.NDArray[np.object_]:
    """Returns object[n]: for each document the reject reason, or "" if the tokenizer does not give up on it.

    Args:
      work: tokenizes documents without side effects, and raises one of `GAVE_UP` if it gives up on one of them. It has
        failed on all `documents` together.
      documents: one or more.
    """
    reasons = np.full(documents.num_rows, "", object)

    def attempt(start: int, stop: int) -> bool:
        work(documents.slice(start, stop - start))
        return True

    for start, _, error in isolate(attempt, documents.num_rows, GAVE_UP, has_failed=True):
        if isinstance(error, GAVE_UP):
            named = zip(GAVE_UP, OF_TOKENIZER, strict=True)
            reasons[start] = next(reason for kind, reason in named if isinstance(error, kind))
    return reasons


def as_rejects(
    gone: pa.RecordBatch, reason: str, split: Split, details: pa.StringArray | None = None
) -> pa.RecordBatch:
    """Returns documents (`schemas.DOCUMENTS`) on which something gave up as rejects (`schemas.REJECTS`).

    `reason` is a key of `REASONS`. `details`, string[n], says what is wrong with each; None: what the reason means.
    """
    assert reason in REASONS, reason
    n = gone.num_rows
    columns: list[Any] = [
        pa.array([piece.path for piece in split.pieces], pa.string()).take(gone.column("piece")),
        gone.column("offset"),
        gone.column("n_bytes"),
        repeated(reason, n),
        repeated(REASONS[reason], n) if details is None else details,
        pc.binary_slice(gone.column("text").cast(pa.binary()), 0, SAMPLE_BYTES),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schemas.REJECTS)


def without_rejected(batch: ReadBatch, is_rejected: npt.NDArray[np.bool_], reason: str, split: Split) -> ReadBatch:
    """Returns a batch in which the documents marked in `is_rejected`, bool[n], are rejects."""
    if not is_rejected.any():
        return batch
    gone = batch.documents.filter(pa.array(is_rejected))
    rejects = [as_rejects(gone, reason, split), *([] if batch.rejects is None else [batch.rejects])]
    table = pa.Table.from_batches(rejects).combine_chunks()
    return dataclasses.replace(
        batch,
        documents=batch.documents.filter(pa.array(~is_rejected)),
        rejects=table.to_batches()[0],
        pieces=(*batch.pieces, *rejected(gone, reason)),
    )
