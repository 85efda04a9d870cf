# SPDX-License-Identifier: Apache-2.0
"""Large arrays for results and work space, whose memory later calls use again once nothing refers to it.

Memory that a process touches for the first time costs more than the work done in it: the system clears every page, and
a virtual machine may have to ask its host for it first. Without this module every batch would be encoded in new memory.
"""

import collections
import contextlib
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

_LEAST_BYTES, _MOST_BYTES = 1 << 20, 1 << 27
"""Arrays of these sizes are recycled: smaller ones the allocator keeps anyway; larger ones go back to the system."""
_MOST_KEPT_BYTES = 1 << 29
"""The most memory kept in all; pages that no call has touched count, though they take none."""
_TOO_LARGE = 2
"""Memory of more than this many times what is needed is not used: a caller may keep a small result for long."""

_MOST_PASSED = 256
"""Memory is freed after requests have passed it over this often, some ten a call: one large document is forgotten."""

_kept: collections.deque[tuple[npt.NDArray[np.uint8], int]] = collections.deque()
"""Free memory, and how often each piece has been passed over. There is no lock, because memory may come back whenever
an object dies; single operations of a deque are atomic."""


def empty(n: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Like `np.empty`, n elements; the memory is recycled when the array and all views of it are gone."""
    n_bytes = n * np.dtype(dtype).itemsize
    if not _LEAST_BYTES <= n_bytes <= _MOST_BYTES:
        return np.empty(n, dtype)
    memory = _take(n_bytes)
    return _lent(np.empty(_with_more(n_bytes), np.uint8) if memory is None else memory, n, dtype)


def zeros(n: int, dtype: npt.DTypeLike, n_cleared: int) -> npt.NDArray[Any]:
    """Like `np.zeros`, in recycled memory; only the first `n_cleared` are sure to be 0. New memory is not touched."""
    n_bytes = n * np.dtype(dtype).itemsize
    if not _LEAST_BYTES <= n_bytes <= _MOST_BYTES:
        return np.zeros(n, dtype)
    memory = _take(n_bytes)
    if memory is None:
        return _lent(np.zeros(_with_more(n_bytes), np.uint8), n, dtype)
    memory[: n_cleared * np.dtype(dtype).itemsize] = 0
    return _lent(memory, n, dtype)


def _with_more(n_bytes: int) -> int:
    """Adds a quarter, so that a somewhat larger batch fits later."""
    return min(n_bytes + n_bytes // 4, _MOST_BYTES)


def _lent(memory: npt.NDArray[np.uint8], n: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    # Made from a memoryview: views of the array then refer to the array, and not to the memory behind it.
    array: npt.NDArray[Any] = np.frombuffer(memory.data, dtype, n)
    weakref.finalize(array, _give_back, memory).atexit = False
    return array


def _give_back(memory: npt.NDArray[np.uint8]) -> None:
    """Keeps memory for later calls, and frees what has waited longest if that is too much."""
    _kept.append((memory, 0))
    n_bytes = sum(kept.size for kept, _ in tuple(_kept))
    with contextlib.suppress(IndexError):
        while n_bytes > _MOST_KEPT_BYTES:
            n_bytes -= _kept.popleft()[0].size


def _take(n_bytes: int) -> npt.NDArray[np.uint8] | None:
    """Returns the smallest kept memory of at least `n_bytes` bytes, None if there is none."""
    waiting = []
    with contextlib.suppress(IndexError):
        while True:
            waiting.append(_kept.popleft())
    fitting = [k for k, (memory, _) in enumerate(waiting) if n_bytes <= memory.size <= _TOO_LARGE * n_bytes]
    taken = waiting.pop(min(fitting, key=lambda k: waiting[k][0].size))[0] if fitting else None
    _kept.extend((memory, n_passed + 1) for memory, n_passed in waiting if n_passed < _MOST_PASSED)
    return taken
