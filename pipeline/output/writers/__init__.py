# SPDX-License-Identifier: Apache-2.0
"""File formats of shards. In: batches of token rows. Out: the bytes of a file, and rows again when it is read back.

`formats` knows them all: `open_writer`, `read_rows`. A format is a module with a writer and a reader; its compiled code
is beside it in `*_kernels`.
"""
