# SPDX-License-Identifier: Apache-2.0
r"""Outputs become training batches. In: the folder of a finished job. Out: rows in any order, batches, a state.

    manifest --shards--> units: maps, row groups, ranges of a store --dataset--> rows in any order
    seed, epoch --order--> which row comes when --samples--> batches of one rank, and a state of four numbers
    outputs, shares --mixture--> index: which source comes next \ index, outputs --> rows in any order
    outputs, length --packed--> index: parts of documents       /

`rows.Rows` is what can be read so. Everything here imports NumPy and pyarrow only; writing an index imports more.
"""
