# SPDX-License-Identifier: Apache-2.0
"""A trie over bytes as one hash table of its edges: small, built in one pass, a few nanoseconds a step."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenizer.kernels.compiling import kernel, kernel_part

_MIX = np.uint64(0x9E3779B97F4A7C15)


class ByteTrie(NamedTuple):
    """The edges of a trie. Nodes 0 to n_roots - 1 are roots."""

    edges: npt.NDArray[np.int64]
    """int64[power of two]: node << 8 | byte, -1 where empty."""
    children: npt.NDArray[np.int32]
    """int32, beside `edges`: where each edge leads."""
    node_ids: npt.NDArray[np.int32]
    """int32[n_nodes]: id of the entry that ends here, -1 for none."""


@kernel_part
def child(edges, children, node, byte):
    """Returns the node that `byte` leads to, -1 where no entry goes on that way."""
    key = (np.int64(node) << 8) | np.int64(byte)
    mask = np.uint64(edges.size - 1)
    j = ((np.uint64(key) * _MIX) >> np.uint64(32)) & mask
    while edges[j] != -1:
        if edges[j] == key:
            return np.int64(children[j])
        j = (j + np.uint64(1)) & mask
    return np.int64(-1)


@kernel_part
def _edge(edges, node, byte):
    """Returns where the edge of a byte is, or would be."""
    key = (np.int64(node) << 8) | np.int64(byte)
    mask = np.uint64(edges.size - 1)
    j = ((np.uint64(key) * _MIX) >> np.uint64(32)) & mask
    while edges[j] != -1 and edges[j] != key:
        j = (j + np.uint64(1)) & mask
    return np.int64(j), key


@kernel
def _build(values, offsets, ids, roots, n_roots, edges, children, node_ids):
    n_nodes = n_roots
    for t in range(ids.size):
        node = np.int64(roots[t])
        for q in range(offsets[t], offsets[t + 1]):
            j, key = _edge(edges, node, values[q])
            if edges[j] == -1:
                edges[j] = key
                children[j] = n_nodes
                n_nodes += 1
            node = np.int64(children[j])
        node_ids[node] = ids[t]
    return n_nodes


@kernel
def _link(text, root, to, n_nodes, edges, children):
    node = np.int64(root)
    for q in range(text.size):
        j, key = _edge(edges, node, text[q])
        if edges[j] == -1:
            edges[j] = key
            children[j] = n_nodes
            n_nodes += 1
        if q == text.size - 1:
            children[j] = to
        node = np.int64(children[j])
    return n_nodes


def build_trie(
    entries: list[bytes],
    ids: npt.NDArray[np.int32],
    roots: npt.NDArray[np.int64],
    n_roots: int,
    link: tuple[int, bytes, int] | None = None,
) -> ByteTrie:
    """Builds the trie of byte strings.

    Args:
      entries: the strings; empty ones are left out.
      ids: int32[n], of each; of equal ones under one root the last counts.
      roots: int64[n], the root each hangs from, below `n_roots`.
      n_roots: how many there are.
      link: a root, bytes, and another root: behind these bytes under the first it goes on as under the second. No entry
        of the first begins with them.
    """
    filled = [i for i, entry in enumerate(entries) if entry]
    offsets = np.zeros(len(filled) + 1, np.int64)
    np.cumsum([len(entries[i]) for i in filled], out=offsets[1:])
    values = np.frombuffer(bytearray().join(entries), np.uint8)
    n_bytes = values.size + (0 if link is None else len(link[1]))
    edges = np.full(1 << max(4, (2 * n_bytes).bit_length()), -1, np.int64)
    children = np.zeros(edges.size, np.int32)
    node_ids = np.full(n_bytes + n_roots, -1, np.int32)
    n_nodes = _build(values, offsets, ids[filled], roots[filled], n_roots, edges, children, node_ids)
    if link is not None:
        root, text, to = link
        n_nodes = _link(np.frombuffer(bytearray(text), np.uint8), root, to, n_nodes, edges, children)
    return ByteTrie(edges, children, node_ids[:n_nodes].copy())
