# SPDX-License-Identifier: Apache-2.0
"""Documents that a text step or a span gave up: moved from the documents of a batch to its rejects."""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schemas
from pipeline.readers import ReadBatch
from pipeline.readers.rejects import SAMPLE_BYTES
from pipeline.splits import Split

REASON = "text_timeout"
_DETAIL = "a regular expression of normalize or spans did not finish in its time"


def timed_out(gone: pa.RecordBatch, split: Split) -> pa.RecordBatch:
    """Returns the documents that took too long, `schemas.DOCUMENTS`, as `schemas.REJECTS`."""
    n = gone.num_rows
    columns: list[Any] = [
        pa.array([split.pieces[i].path for i in gone.column("piece").to_pylist()], pa.string()),
        gone.column("offset"),
        gone.column("n_bytes"),
        pa.repeat(pa.scalar(REASON, pa.string()), n),
        pa.repeat(pa.scalar(_DETAIL, pa.string()), n),
        pc.binary_slice(gone.column("text").cast(pa.binary()), 0, SAMPLE_BYTES),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schemas.REJECTS)


def without_rejected(batch: ReadBatch, rejected: npt.NDArray[np.bool_], split: Split) -> ReadBatch:
    """Returns a batch whose documents that took too long, bool[n], are among its rejects."""
    if not rejected.any():
        return batch
    gone = batch.documents.filter(pa.array(rejected))
    rejects = [timed_out(gone, split), *([] if batch.rejects is None else [batch.rejects])]
    table = pa.Table.from_batches(rejects).combine_chunks()
    return dataclasses.replace(
        batch, documents=batch.documents.filter(pa.array(~rejected)), rejects=table.to_batches()[0]
    )
