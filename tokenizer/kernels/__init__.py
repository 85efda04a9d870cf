# SPDX-License-Identifier: Apache-2.0
"""Compiled loops over Arrow buffers.

The docstring of a kernel names each array with dtype and shape, and what becomes of it: `out: int32[n_ids], filled`.

- nothing said: it is read.
- filled: it is written, and what it held does not matter, but for what is said of that: zeros, all -1.
- changed, added to: it is read and written.
- for work: what it holds then is of no use to anybody.

Shapes are in rows, bytes, ids or whatever their names say, or `uint8 with room for` something. Arrays that go together
are a named tuple, whose fields say it once. The docstring of a file names the slow twin of its kernels, and the test
that compares them. `tests/tokenizer/kernels/test_registry.py` looks at both.
"""
