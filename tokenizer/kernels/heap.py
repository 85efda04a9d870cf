# SPDX-License-Identifier: Apache-2.0
"""A binary heap of integers, smallest first, in an array that the caller provides."""

from tokenmill.tokenizer.compiling.kernel import kernel_part


@kernel_part
def push(heap, size, item):
    """Adds an item to a heap of `size` items, whose array has room for one more; returns the new size."""
    i = size
    while i > 0:
        parent = (i - 1) >> 1
        if heap[parent] <= item:
            break
        heap[i] = heap[parent]
        i = parent
    heap[i] = item
    return size + 1


@kernel_part
def pop(heap, size):
    """Removes the first item, `heap[0]`, of a heap of `size` items, at least one; returns the new size."""
    size -= 1
    item = heap[size]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if item <= heap[child]:
            break
        heap[i] = heap[child]
        i = child
    heap[i] = item
    return size
