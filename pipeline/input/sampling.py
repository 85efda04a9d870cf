# SPDX-License-Identifier: Apache-2.0
"""A sample of a corpus: whether a document is in it depends only on a seed and on a hash of the document's place."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from tokenmill.pipeline.books.rules import SAMPLE
from tokenmill.pipeline.hashing import SAMPLING, document_keys
from tokenmill.pipeline.input.batches import ReadBatch


def sample_batch(batch: ReadBatch, fraction: float, seed: int, names: Sequence[str]) -> ReadBatch:
    """Returns a batch without the documents that a sample leaves out; these count as filtered by `SAMPLE`.

    A document is kept if its key is below `fraction` of the range of keys. So with one seed a smaller sample is part of
    a larger one. Rejected records are not sampled: all of them are reported.

    Args:
      batch: as read.
      fraction: the share of documents to keep, in (0, 1]; the number kept is binomial, not exact.
      seed: another seed chooses another sample.
      names: the names of the pieces of the split.
    """
    limit = int(Fraction(fraction) * (1 << 64))
    if limit >= 1 << 64 or batch.documents.num_rows == 0:
        return batch
    return batch.leave_out({SAMPLE: document_keys(SAMPLING, seed, names, batch.documents) >= np.uint64(limit)})
