# SPDX-License-Identifier: Apache-2.0
"""File formats of shards. In: batches of token rows. Out: the bytes of a file, and rows again when it is read back.

`formats` has `open_writer` and `read_rows` for all of them. Each format is a module with a writer and a reader; its
compiled code is in `*_kernels`.
"""
