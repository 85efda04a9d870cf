# SPDX-License-Identifier: Apache-2.0
"""An ordered map over threads: for reading files, and for functions that release the GIL."""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_AT_A_TIME = 64
"""Statistics of a split take up to 2 MB for a large vocabulary."""


def in_turn(
    function: Callable[[_Item], _Result], items: Iterable[_Item], *, waits: bool = False, n_ahead: int = _AT_A_TIME
) -> Iterator[_Result]:
    """Yields the result of `function` for each item, in the order of the items; threads compute results ahead.

    Args:
      function: called by several threads at the same time; an exception from it is raised here.
      items: iterated by the calling thread, `n_ahead` of them before the first result.
      waits: whether `function` waits for a remote store, so that more threads than processors are useful.
      n_ahead: at most this many results wait to be taken.
    """
    items = iter(items)
    with ThreadPoolExecutor(32 if waits else min(8, os.cpu_count() or 1)) as pool:
        while group := list(itertools.islice(items, n_ahead)):
            yield from pool.map(function, group)
