# SPDX-License-Identifier: Apache-2.0
"""Opens Parquet files so that no thread of Arrow outlives the call."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def open_parquet(handle: Any, **options: Any) -> pq.ParquetFile:
    """Opens a Parquet file through a Python handle, a seekable file for reading or what has its methods.

    Arrow would otherwise read ahead on threads of its own (as `pq.read_table` always does). Such a thread may still
    hold the handle when the interpreter ends, and then the process aborts instead of exiting.

    Raises:
      pa.ArrowException: if it is not Parquet.
    """
    return pq.ParquetFile(handle, pre_buffer=False, **options)


@contextlib.contextmanager
def whole(name: str) -> Iterator[None]:
    """Turns any exception of Arrow in the block, which reads the file `name`, into a ValueError."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{name}: not a whole Parquet file: {error}") from error
