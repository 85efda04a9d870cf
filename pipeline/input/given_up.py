# SPDX-License-Identifier: Apache-2.0
"""Documents that a text step or the tokenizer gives up on: they are found, and become rejects.

A batch that fails is halved until each document at fault stands alone, so that its neighbours lose nothing.

A tokenizer file is data: its patterns may take forever on some text; its vocabulary may lack a character and have no
unknown token. A document may take more memory than there is. Kernels neither wait nor grow, so this is rare, and only
batches that fail pay for it.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schemas
from pipeline.books.input_counts import rejected
from pipeline.input.batches import ReadBatch
from pipeline.input.rejects import SAMPLE_BYTES
from pipeline.splits import Split
from tokenizer import UnknownCharacterError

GAVE_UP = (TimeoutError, MemoryError, UnknownCharacterError)
"""What a tokenizer raises on a document that it gives up on."""

TIMEOUT, MEMORY, UNKNOWN = REASONS = "tokenizer_timeout", "out_of_memory", "unknown_character"
"""Reasons for rejects."""


def find_given_up(work: Callable[[pa.RecordBatch], object], documents: pa.RecordBatch) -> npt.NDArray[np.object_]:
    """Returns for each document why the tokenizer gives up on it, or ""; `work` has failed on all of them together.

    Args:
      work: tokenizes documents and leaves nothing behind; raises one of `GAVE_UP` if it gives up on one of them.
      documents: one or more.
    """
    reasons = np.full(documents.num_rows, "", object)

    def search(start: int, stop: int) -> None:
        try:
            work(documents.slice(start, stop - start))
        except GAVE_UP as error:
            if stop - start > 1:
                halve(start, stop)
            else:
                reasons[start] = next(
                    reason for kind, reason in zip(GAVE_UP, REASONS, strict=True) if isinstance(error, kind)
                )

    def halve(start: int, stop: int) -> None:
        middle = (start + stop) // 2
        search(start, middle)
        search(middle, stop)

    if documents.num_rows > 1:
        halve(0, documents.num_rows)
    else:
        search(0, documents.num_rows)
    return reasons


REASON = "text_timeout"
"""For documents that a text step or a span gave up on."""

_DETAILS = {
    REASON: "a regular expression of normalize or spans did not finish in its time",
    TIMEOUT: "a regular expression of the tokenizer did not finish in its time",
    MEMORY: "there was not enough memory to tokenize the text",
    UNKNOWN: "a character is not in the vocabulary, which has no unknown token",
}


def as_rejects(gone: pa.RecordBatch, reason: str, split: Split) -> pa.RecordBatch:
    """Returns documents that were given up on, `schemas.DOCUMENTS`, as rejects, `schemas.REJECTS`."""
    n = gone.num_rows
    columns: list[Any] = [
        pa.array([split.pieces[i].path for i in gone.column("piece").to_pylist()], pa.string()),
        gone.column("offset"),
        gone.column("n_bytes"),
        pa.repeat(pa.scalar(reason, pa.string()), n),
        pa.repeat(pa.scalar(_DETAILS[reason], pa.string()), n),
        pc.binary_slice(gone.column("text").cast(pa.binary()), 0, SAMPLE_BYTES),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schemas.REJECTS)


def without_rejected(batch: ReadBatch, is_rejected: npt.NDArray[np.bool_], reason: str, split: Split) -> ReadBatch:
    """Returns a batch in which the documents that were given up on, bool[n], are rejects."""
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
