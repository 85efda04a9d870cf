# SPDX-License-Identifier: Apache-2.0
"""Threads that work ahead of whoever takes their results in order: for files, and for what releases Python's lock."""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_AT_A_TIME = 64
"""Results that may wait: statistics of a split have up to 2 MB for a large vocabulary."""


def in_turn(function: Callable[[_Item], _Result], items: Iterable[_Item], *, waits: bool = False) -> Iterator[_Result]:
    """Yields what `function` returns for each item, in their order, from some threads.

    Args:
      function: is called by several threads at once; what it raises comes out here.
      items: are taken by this thread, `_AT_A_TIME` of them before the first result.
      waits: whether it waits for a remote store, so that more threads than processors are of use.
    """
    items = iter(items)
    with ThreadPoolExecutor(32 if waits else min(8, os.cpu_count() or 1)) as pool:
        while group := list(itertools.islice(items, _AT_A_TIME)):
            yield from pool.map(function, group)
