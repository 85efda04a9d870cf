# SPDX-License-Identifier: Apache-2.0
"""Documents that are named one by one, in files that can only be read whole."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pipeline.readers.batches import ReadBatch


@dataclass(frozen=True)
class Wanted:
    """Which documents of a split are wanted."""

    rule: str
    """By which the others are filtered."""
    offsets: Mapping[int, np.ndarray]
    """By the index of a piece the offsets of its documents; of a piece that is not named, all."""

    def choose(self, batch: ReadBatch) -> ReadBatch:
        """Returns a batch of the documents that are wanted."""
        pieces, offsets = batch.documents.column("piece").to_numpy(), batch.documents.column("offset").to_numpy()
        is_wanted = np.ones(batch.documents.num_rows, np.bool_)
        for piece, at in self.offsets.items():
            is_wanted &= (pieces != piece) | np.isin(offsets, at)
        return batch.leave_out(is_wanted, self.rule)
