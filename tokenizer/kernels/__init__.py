# SPDX-License-Identifier: Apache-2.0
"""Compiled loops over Arrow buffers.

The docstring of a kernel names each array with dtype, shape and direction: `out: int32[n_ids], filled`.

- no direction: the array is only read.
- filled: it is written; what it held before does not matter, unless the docstring says so: zeros, all -1.
- changed, added to: it is read and written.
- for work: the kernel writes it, and its content is of no use afterwards.

Shapes are in rows, bytes, ids or whatever their names say, or `uint8 with room for` something. Arrays that belong
together are a named tuple, whose fields describe them once. The docstring of a file names the reference implementation
of its kernels, and the test that compares them. `tests/tokenizer/kernels/test_registry.py` checks both.
"""
