# SPDX-License-Identifier: Apache-2.0
"""Keeps single records of files that can only be read as a whole, for a replay of rejects."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tokenmill.pipeline.books.input_counts import PieceCounts, count_part
from tokenmill.pipeline.input.batches import Part


@dataclass(frozen=True)
class Wanted:
    """The wanted records of a split."""

    rule: str
    """The rule that filters the others."""
    offsets: Mapping[int, np.ndarray]
    """int64[n] by the index of a piece: offsets of the wanted records; of other pieces every record is wanted."""

    def choose(self, part: Part, counts: PieceCounts) -> tuple[Part, PieceCounts]:
        """Returns a part with only the wanted records, and its counts; the others count as filtered.

        A record that is not wanted may be a document or, under a changed config, a reject.
        """
        at = self.offsets.get(part.piece)
        if at is None:
            return part, counts
        documents, rejects = (
            batch if batch is None else batch.filter(pa.array(np.isin(batch.column("offset").to_numpy(), at)))
            for batch in (part.documents, part.rejects)
        )
        left = count_part(documents, rejects, part.n_bytes, part.n_skipped_bytes, part.sha256)
        counts = dataclasses.replace(
            left,
            n_records=counts.n_records,
            filtered={self.rule: counts.n_records - left.n_records} if counts.n_records > left.n_records else None,
            n_filtered_bytes=part.n_bytes - part.n_skipped_bytes - left.n_document_bytes - left.n_rejected_bytes,
        )
        return dataclasses.replace(part, documents=documents, rejects=rejects), counts
