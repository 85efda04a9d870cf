# SPDX-License-Identifier: Apache-2.0
"""A sample of the documents of a corpus, each kept or left out by its own hash."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from pipeline.hashing import SAMPLING, document_keys
from pipeline.input.batches import ReadBatch

RULE = "sample"
"""The ledger's name for documents that the sample leaves out."""


def sample_batch(batch: ReadBatch, fraction: float, seed: int, names: Sequence[str]) -> ReadBatch:
    """Returns a batch without the documents that a sample leaves out; these are counted as filtered by `RULE`.

    A document is kept if its key is below `fraction` of all keys, so with one seed a smaller sample is contained in a
    larger one. Rejected records are neither kept nor left out: what cannot be read is reported in full.

    Args:
      batch: as read.
      fraction: of the documents to keep, in (0, 1]; the number kept is binomial, not exact.
      seed: picks one of many samples.
      names: of the pieces of the split.
    """
    limit = int(Fraction(fraction) * (1 << 64))
    if limit >= 1 << 64 or batch.documents.num_rows == 0:
        return batch
    return batch.leave_out({RULE: document_keys(SAMPLING, seed, names, batch.documents) >= np.uint64(limit)})
