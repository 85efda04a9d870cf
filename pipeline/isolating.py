# SPDX-License-Identifier: Apache-2.0
"""Which documents of a batch a tokenizer gives up: found by halving the batch, so that the others lose nothing.

A tokenizer file is data: its patterns may take for ever on some text, its vocabulary may lack a character and have no
unknown token. A document may take more memory than there is. Kernels neither wait nor grow, so this is rare: what it
costs is paid by batches that fail.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenizer import UnknownCharacterError

GAVE_UP = (TimeoutError, MemoryError, UnknownCharacterError)
"""What a tokenizer raises on a document that it gives up."""

TIMEOUT, MEMORY, UNKNOWN = REASONS = "tokenizer_timeout", "out_of_memory", "unknown_character"
"""Reasons for rejects."""


def find_given_up(work: Callable[[pa.RecordBatch], object], documents: pa.RecordBatch) -> npt.NDArray[np.object_]:
    """Returns for each document the reason it is given up for, "" where it is not; `work` has failed on all of them.

    Args:
      work: tokenizes documents and leaves nothing behind; raises one of `GAVE_UP` if it gives one of them up.
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
