# SPDX-License-Identifier: Apache-2.0
"""Rows and batches as PyTorch, TensorFlow and Hugging Face's `datasets` take them; each imports its library on use.

Grain needs no adapter: `Rows` are a `RandomAccessDataSource`.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import storage
from tokenmill.pipeline.data.dataset import Dataset
from tokenmill.pipeline.data.order import Int64s
from tokenmill.pipeline.data.rows import Rows, Selection
from tokenmill.pipeline.data.samples import Readable, Samples, to_numpy

if TYPE_CHECKING:
    import datasets
    import tensorflow as tf


class TorchLoader:
    """A `DataLoader` of PyTorch whose workers read what `Samples` says; the state counts what the loop has got.

    So it does not depend on workers, and batches that were read ahead do not count.
    """

    def __init__(self, samples: Samples, loader: Any = None, **options: Any) -> None:
        """Makes the loader.

        Args:
          samples: which rows this rank reads.
          loader: the class; None for `torch.utils.data.DataLoader`.
          options: `num_workers`, `persistent_workers`, `prefetch_factor`, `pin_memory` and others of the class, but no
            `batch_size`, `sampler`, `shuffle` or `drop_last`, which are those of `samples`.
        """
        if loader is None:
            from torch.utils import data

            loader = data.DataLoader
        options = {"collate_fn": to_torch, **options}
        self.samples, self._loader = samples, loader(_Batches(samples.rows), batch_sampler=Steps(samples), **options)

    def __len__(self) -> int:
        """Returns the number of batches of a whole epoch."""
        return len(self.samples)

    def __iter__(self) -> Iterator[Any]:
        """Yields batches from the current position on; see `Samples`."""
        return self.samples.counted(self._loader)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state; see `Samples`."""
        return self.samples.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where the state was saved; see `Samples`."""
        self.samples.load_state_dict(state)


class _Batches:
    """A map-style dataset whose batches are taken at once."""

    def __init__(self, rows: Readable) -> None:
        self.rows = rows

    def __getitems__(self, rows: list[int]) -> pa.RecordBatch:
        return self.rows.take(np.asarray(rows, np.int64))


class Steps:
    """A batch sampler of PyTorch; `StatefulDataLoader` saves the state of its iterators, which is that of `Samples`."""

    def __init__(self, samples: Samples) -> None:
        """Takes the samples; an iterator begins at their position, and does not move it."""
        self.samples = samples

    def __len__(self) -> int:
        """Returns the number of batches of a whole epoch."""
        return len(self.samples)

    def __iter__(self) -> "Steps":
        """Returns an iterator over the rows of each batch."""
        own = Steps(copy.copy(self.samples))
        own.load_state_dict(own.state_dict())
        return own

    def __next__(self) -> list[int]:
        """Returns the rows of the next batch."""
        return next(self._rows).tolist()

    def state_dict(self) -> dict[str, Any]:
        """Returns the state behind the last batch."""
        return self.samples.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on behind that batch."""
        self.samples.load_state_dict(state)
        self._rows: Iterator[Int64s] = self.samples.counted(self.samples.steps())


def to_torch(batch: pa.RecordBatch) -> dict[str, Any]:
    """Returns the columns of a batch as `to_numpy` does, with tensors of their own in place of arrays."""
    import torch

    def converted(value: object) -> object:
        if isinstance(value, list):
            return [converted(each) for each in value]
        return torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value

    return {name: converted(value) for name, value in to_numpy(batch).items()}


def to_tf(samples: Samples) -> "tf.data.Dataset":
    """Returns a `tf.data.Dataset` of batches; their lists are ragged tensors, `to_tensor()` makes them dense.

    The samples count what TensorFlow has taken: with its `prefetch` that is more than the loop has got.
    """
    import tensorflow as tf

    def specified(field: pa.Field) -> "tf.TypeSpec":
        if pa.types.is_large_list(field.type):
            return tf.RaggedTensorSpec([None, None], tf.as_dtype(str(field.type.value_type)), 1, tf.int64)
        return tf.TensorSpec([None], tf.as_dtype(str(field.type)))

    def batches() -> Iterator[dict[str, Any]]:
        for batch in samples.counted(map(samples.rows.take, samples.steps())):
            columns = zip(batch.schema.names, batch.columns, strict=True)
            yield {name: ragged(column) for name, column in columns}

    def ragged(column: pa.Array) -> "tf.Tensor | tf.RaggedTensor":
        if not pa.types.is_large_list(column.type):
            return tf.constant(column.to_pylist(), tf.as_dtype(str(column.type)))
        values = column.values.to_numpy(zero_copy_only=False)
        return tf.RaggedTensor.from_row_splits(values, column.offsets.to_numpy())

    signature = {field.name: specified(field) for field in samples.rows.schema}
    return tf.data.Dataset.from_generator(batches, output_signature=signature)


def to_hf(rows: Rows) -> "datasets.Dataset":
    """Returns a `datasets.Dataset`: of memory maps, Megatron's format and Arrow it is mapped, and nothing is copied.

    Files of Parquet are read by `datasets` itself, into its own cache. Memory maps keep their type of ids, uint16 or
    int32.
    """
    import datasets

    if isinstance(rows, Selection):
        return to_hf(rows.rows).select(rows.numbers)
    if not isinstance(rows, Dataset):
        raise TypeError(f"{rows.name} is no dataset and no selection of one")
    names = rows.files["file"].to_pylist()
    if names[0].endswith(".parquet"):
        files = [storage.join(rows.name, name) for name in names]
        return datasets.Dataset.from_parquet(files, columns=rows.schema.names)
    return datasets.Dataset(pa.Table.from_batches(rows.units()).select(rows.schema.names))
