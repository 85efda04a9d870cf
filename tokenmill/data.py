# SPDX-License-Identifier: Apache-2.0
"""Training data: the rows of finished outputs in any order, with a state that fits any number of ranks.

    data = tokenmill.data.open("out", columns=["input_ids", "labels"])
    batches = data.samples(batch_size=8, seed=1, rank=rank, world_size=world_size)

Imports NumPy and pyarrow only.
"""

from typing import Any

from tokenmill.pipeline.data.adapters import Steps, TorchLoader, to_hf, to_tf, to_torch
from tokenmill.pipeline.data.dataset import Dataset
from tokenmill.pipeline.data.index import open_rows
from tokenmill.pipeline.data.mixture import Mixture, MixturePlan, mix
from tokenmill.pipeline.data.order import Order
from tokenmill.pipeline.data.packed import Packed, pack
from tokenmill.pipeline.data.rows import Rows, Selection
from tokenmill.pipeline.data.samples import Samples, to_numpy

open = open_rows


def explain(samples: Samples, step: int, row: int, token: int | None = None) -> dict[str, Any]:
    """Returns where row `row` of a rank's batch came from: shards, documents, files and bytes, as `tokenmill trace`.

    Args:
      samples: the batches of the rank, in as large batches and on as many ranks as then.
      step: 0 for the next one of `samples`, which is that behind a state that was loaded, or the first of all.
      row: of the batch, from 0.
      token: its position in the row, from 0; None for the whole row.

    Returns:
      Plain JSON: the `epoch`, the number of the `row` among all rows, and `parts`, one for each stored row in it:
      `output`, `shard` and `row`; `start`, `first` and `size` of its tokens; `through`, the mixture and the packing;
      `documents`, see `tokenmill.pipeline.proving.trace`.

    Raises:
      IndexError: if the batch has no such row.
      TypeError: if the rows are none of TokenMill's.
      ValueError, OSError: if an output is not as its manifest says; a text that cannot be read again is none.
    """
    from tokenmill.pipeline.proving.trace import explain_step  # reads inputs, and needs what a job needs

    return explain_step(samples, step, row, token)


__all__ = [
    "Dataset",
    "Mixture",
    "MixturePlan",
    "Order",
    "Packed",
    "Rows",
    "Samples",
    "Selection",
    "Steps",
    "TorchLoader",
    "explain",
    "mix",
    "open",
    "pack",
    "to_hf",
    "to_numpy",
    "to_tf",
    "to_torch",
]
