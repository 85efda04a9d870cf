# SPDX-License-Identifier: Apache-2.0
"""Large arrays of a call, results and work space, whose memory later calls use again once nothing refers to them.

Memory that a process has not touched before costs more than what is done in it: the system clears every page, and a
virtual machine may have to ask its host for it first. Without this every batch would be encoded in such memory.
"""

import collections
import contextlib
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

_LEAST_BYTES, _MOST_BYTES = 1 << 20, 1 << 27
"""What is smaller the allocator keeps by itself; what is larger goes back to the system."""
_MOST_KEPT_BYTES = 1 << 29
"""In all, counting pages too that no call has reached, of which there are none."""
_TOO_LARGE = 2
"""Times what is needed: large memory is for large arrays, and not for small results that a caller keeps."""

_kept: collections.deque[npt.NDArray[np.uint8]] = collections.deque()
"""Without a lock, as memory may come back whenever an object dies; single operations of a deque are atomic."""


def empty(n: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """As `np.empty`, of n elements, in memory that is used again when the array and all views of it are gone."""
    n_bytes = n * np.dtype(dtype).itemsize
    if not _LEAST_BYTES <= n_bytes <= _MOST_BYTES:
        return np.empty(n, dtype)
    memory = _take(n_bytes)
    # Of a memoryview and not of the array: what is made of this one refers to it, and not to the memory behind it.
    array: npt.NDArray[Any] = np.frombuffer(memory.data, dtype, n)
    weakref.finalize(array, _give_back, memory).atexit = False
    return array


def _give_back(memory: npt.NDArray[np.uint8]) -> None:
    """Keeps memory, and drops what has waited longest where that is too much."""
    _kept.append(memory)
    n_bytes = sum(kept.size for kept in tuple(_kept))
    while n_bytes > _MOST_KEPT_BYTES and _kept:
        n_bytes -= _kept.popleft().size


def _take(n_bytes: int) -> npt.NDArray[np.uint8]:
    """Returns at least so many bytes: of what is kept the least that is enough, else new ones."""
    passed: list[npt.NDArray[np.uint8]] = []
    best = None
    with contextlib.suppress(IndexError):
        while True:
            memory = _kept.pop()
            if n_bytes <= memory.size <= _TOO_LARGE * n_bytes and (best is None or memory.size < best.size):
                best, memory = memory, best
            if memory is not None:
                passed.append(memory)
    _kept.extend(reversed(passed))
    # A quarter more is for another batch that is somewhat larger.
    return np.empty(min(n_bytes + n_bytes // 4, _MOST_BYTES), np.uint8) if best is None else best
