# SPDX-License-Identifier: Apache-2.0
"""A trie over bytes, stored as one hash table of its edges: small, built in one pass, a few nanoseconds a step."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part

_MIX = np.uint64(0x9E3779B97F4A7C15)
_NODE_BITS = 28
_NODE_MASK = np.uint64((1 << _NODE_BITS) - 1)
_SHIFT, _BYTE_BITS = np.uint64(_NODE_BITS), np.uint64(8)
_ONE = np.uint64(1)
_EMPTY = ~np.uint64(0)


class ByteTrie(NamedTuple):
    """The edges of a trie. Nodes 0 to n_roots - 1 are roots."""

    edges: npt.NDArray[np.uint64]
    """uint64[power of two]: node << 36 | byte << 28 | child node, all ones in empty slots."""
    node_ids: npt.NDArray[np.int32]
    """int32[n_nodes]: id of the entry that ends here, -1 for none."""


@kernel_part
def child(edges, node, byte):
    """Returns the child of `node` for `byte`, int64, or -1 if no entry goes on with it; edges as in `ByteTrie`."""
    j, _ = _edge(edges, node, byte)
    edge = edges[j]
    if edge == _EMPTY:
        return np.int64(-1)
    return np.int64(edge & _NODE_MASK)


@kernel_part
def _edge(edges, node, byte):
    """Returns the slot where the edge of a byte is, or belongs, and the edge's key; both uint64."""
    key = (np.uint64(node) << _BYTE_BITS) | np.uint64(byte)
    return _slot(edges, key), key


@kernel_part
def _slot(edges, key):
    mask = np.uint64(edges.size - 1)
    j = ((key * _MIX) >> np.uint64(32)) & mask
    while edges[j] >> _SHIFT != key and edges[j] != _EMPTY:
        j = (j + _ONE) & mask
    return j


@kernel
def _build(values, offsets, ids, roots, n_roots, edges, node_ids):
    """Adds entries below their roots; returns the number of nodes.

    Args:
      values, offsets: uint8[n_bytes] and int64[n + 1], the entries, none empty; ids: int32[n]; roots: int64[n].
      edges: uint64[power of two], all empty; node_ids: int32[n_nodes]; both filled, see `ByteTrie`.
    """
    n_nodes = n_roots
    for t in range(ids.size):
        node = np.int64(roots[t])
        for q in range(offsets[t], offsets[t + 1]):
            j, key = _edge(edges, node, values[q])
            if edges[j] == _EMPTY:
                edges[j] = key << _SHIFT | np.uint64(n_nodes)
                n_nodes += 1
            node = np.int64(edges[j] & _NODE_MASK)
        node_ids[node] = ids[t]
    return n_nodes


@kernel
def _link(text, root, to, n_nodes, edges):
    """Adds a text below a root, its last edge leading to the node `to`; returns the number of nodes.

    text: uint8[n]; edges: uint64[power of two], changed.
    """
    node = np.int64(root)
    for q in range(text.size):
        j, key = _edge(edges, node, text[q])
        if edges[j] == _EMPTY:
            edges[j] = key << _SHIFT | np.uint64(n_nodes)
            n_nodes += 1
        if q == text.size - 1:
            edges[j] = key << _SHIFT | np.uint64(to)
        node = np.int64(edges[j] & _NODE_MASK)
    return n_nodes


@kernel
def _move(edges, moved):
    """Copies edges into an empty table; edges: uint64[n]; moved: uint64[power of two], filled."""
    for j in range(edges.size):
        if edges[j] != _EMPTY:
            moved[_slot(moved, edges[j] >> _SHIFT)] = edges[j]


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
      ids: int32[n], the id of each; of equal strings below one root the last one's counts.
      roots: int64[n], the root of each, 0 to `n_roots` - 1.
      n_roots: the number of roots.
      link: (root, bytes, other root): after these bytes below `root`, the trie goes on as below `other root`. No entry
        of `root` begins with them.

    Raises:
      ValueError: if the entries have 2^28 bytes or more in all.
    """
    filled = [i for i, entry in enumerate(entries) if entry]
    offsets = np.zeros(len(filled) + 1, np.int64)
    np.cumsum([len(entries[i]) for i in filled], out=offsets[1:])
    values = np.frombuffer(bytearray().join(entries), np.uint8)
    n_bytes = values.size + (0 if link is None else len(link[1]))
    if n_bytes + n_roots >= int(_NODE_MASK):
        raise ValueError(f"entries must have fewer than {int(_NODE_MASK) - n_roots} bytes in all, got {n_bytes}")
    edges = _no_edges(2 * n_bytes)
    node_ids = np.full(n_bytes + n_roots, -1, np.int32)
    n_nodes = _build(values, offsets, ids[filled], roots[filled], n_roots, edges, node_ids)
    if link is not None:
        root, text, to = link
        n_nodes = _link(np.frombuffer(bytearray(text), np.uint8), root, to, n_nodes, edges)
    # Entries share most of their edges, so a smaller table will do; half to three quarters full, more of it is cached.
    packed = _no_edges(n_nodes + n_nodes // 3)
    _move(edges, packed)
    return ByteTrie(packed, node_ids[:n_nodes].copy())


def _no_edges(n: int) -> npt.NDArray[np.uint64]:
    """Makes a table with at least n slots."""
    return np.full(1 << max(4, (n - 1).bit_length()), _EMPTY, np.uint64)
