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

_MOST_PASSED = 256
"""How often others may be preferred, some ten for each call: a single large document is not remembered for ever."""

_kept: collections.deque[tuple[npt.NDArray[np.uint8], int]] = collections.deque()
"""Memory, and how often it has been passed over. Without a lock, as memory may come back whenever an object dies;
single operations of a deque are atomic."""


def empty(n: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """As `np.empty`, of n elements, in memory that is used again when the array and all views of it are gone."""
    n_bytes = n * np.dtype(dtype).itemsize
    if not _LEAST_BYTES <= n_bytes <= _MOST_BYTES:
        return np.empty(n, dtype)
    memory = _take(n_bytes)
    return _lent(np.empty(_with_more(n_bytes), np.uint8) if memory is None else memory, n, dtype)


def zeros(n: int, dtype: npt.DTypeLike, n_cleared: int) -> npt.NDArray[Any]:
    """As `np.zeros`, likewise, of which only the first `n_cleared` are sure to be 0. New memory is not touched."""
    n_bytes = n * np.dtype(dtype).itemsize
    if not _LEAST_BYTES <= n_bytes <= _MOST_BYTES:
        return np.zeros(n, dtype)
    memory = _take(n_bytes)
    if memory is None:
        return _lent(np.zeros(_with_more(n_bytes), np.uint8), n, dtype)
    memory[: n_cleared * np.dtype(dtype).itemsize] = 0
    return _lent(memory, n, dtype)


def _with_more(n_bytes: int) -> int:
    """A quarter more, for another batch that is somewhat larger."""
    return min(n_bytes + n_bytes // 4, _MOST_BYTES)


def _lent(memory: npt.NDArray[np.uint8], n: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    # Of a memoryview and not of the array: what is made of this one refers to it, and not to the memory behind it.
    array: npt.NDArray[Any] = np.frombuffer(memory.data, dtype, n)
    weakref.finalize(array, _give_back, memory).atexit = False
    return array


def _give_back(memory: npt.NDArray[np.uint8]) -> None:
    """Keeps memory, and drops what has waited longest where that is too much."""
    _kept.append((memory, 0))
    n_bytes = sum(kept.size for kept, _ in tuple(_kept))
    with contextlib.suppress(IndexError):
        while n_bytes > _MOST_KEPT_BYTES:
            n_bytes -= _kept.popleft()[0].size


def _take(n_bytes: int) -> npt.NDArray[np.uint8] | None:
    """Returns at least so many bytes, of what is kept the least that is enough; None where there are none."""
    waiting = []
    with contextlib.suppress(IndexError):
        while True:
            waiting.append(_kept.popleft())
    fitting = [k for k, (memory, _) in enumerate(waiting) if n_bytes <= memory.size <= _TOO_LARGE * n_bytes]
    taken = waiting.pop(min(fitting, key=lambda k: waiting[k][0].size))[0] if fitting else None
    _kept.extend((memory, n_passed + 1) for memory, n_passed in waiting if n_passed < _MOST_PASSED)
    return taken
