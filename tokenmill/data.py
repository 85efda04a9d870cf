# SPDX-License-Identifier: Apache-2.0
"""Training data: the rows of finished outputs in any order, with a state that fits any number of ranks.

    data = tokenmill.data.open("out", columns=["input_ids", "labels"])
    batches = data.samples(batch_size=8, seed=1, rank=rank, world_size=world_size)

Imports NumPy and pyarrow only.
"""

from tokenmill.pipeline.data.adapters import Steps, TorchLoader, to_hf, to_tf, to_torch
from tokenmill.pipeline.data.dataset import Dataset
from tokenmill.pipeline.data.index import open_rows
from tokenmill.pipeline.data.mixture import Mixture, MixturePlan, mix
from tokenmill.pipeline.data.order import Order
from tokenmill.pipeline.data.packed import Packed, pack
from tokenmill.pipeline.data.rows import Rows, Selection
from tokenmill.pipeline.data.samples import Samples, to_numpy

open = open_rows

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
    "mix",
    "open",
    "pack",
    "to_hf",
    "to_numpy",
    "to_tf",
    "to_torch",
]
