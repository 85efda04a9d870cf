# SPDX-License-Identifier: Apache-2.0
"""Kernels that place documents in sequences of a fixed length.

A piece is the part of a document that one sequence holds.

Its reference implementations are `tests.reference.placement.plan_in_order`, `tests.reference.placement.fit_best` and
`tests.reference.placement.fill`; `tests/pipeline/output/test_placement.py` compares them.
"""

from typing import Any

from tokenmill.tokenizer.compiling.kernel import kernel


@kernel
def plan_in_order(lengths: Any, size: int, splits: bool, docs: Any, starts: Any, sizes: Any, rows: Any) -> int:
    """Plans sequences that hold documents in their order.

    Args:
      lengths: int64[n], tokens of the documents.
      size: tokens of a sequence.
      splits: whether a document that does not fit into the rest of a sequence is cut there. If not, it begins a new
        one, and is cut only where it is longer than a sequence.
      docs, starts, sizes, rows: int64[n_pieces], filled with the pieces: which document, from which token of it, how
        many tokens, in which sequence. At most one piece per document and one per full sequence are made.

    Returns:
      The number of pieces.
    """
    n = 0
    row = 0
    room = size
    for doc in range(lengths.size):
        left = lengths[doc]
        start = 0
        if not splits and left > room and room < size:
            row += 1
            room = size
        while left > 0:
            if room == 0:
                row += 1
                room = size
            taken = min(left, room)
            docs[n] = doc
            starts[n] = start
            sizes[n] = taken
            rows[n] = row
            n += 1
            start += taken
            left -= taken
            room -= taken
    return n


@kernel
def fit_best(sizes: Any, size: int, bins: Any, head: Any, following: Any, tree: Any) -> int:
    """Puts each piece, in the order given, into the open sequence that it fills up most; else opens a new one.

    Among sequences with equal room, the one that came to this room last is taken.

    Args:
      sizes: int64[n], tokens of the pieces, from 1 to `size`.
      size: tokens of a sequence.
      bins: int64[n], filled with the sequence of each piece.
      head: int64[size + 1], -1 everywhere, for work: for each amount of room, the sequence that got this room last.
      following: int64[n], for work: for each sequence, the one that got the same room before it.
      tree: int64[2 * leaves], zeros, for work; `leaves` is a power of two > `size`. Leaf r counts the sequences with
        room r, an inner node those of its leaves.

    Returns:
      The number of sequences.
    """
    leaves = tree.size // 2
    n_bins = 0
    for i in range(sizes.size):
        need = sizes[i]
        node = leaves + need
        if tree[node] == 0:
            # Go up until the right sibling is not empty, then down to its leftmost leaf.
            while node > 1 and (node % 2 == 1 or tree[node + 1] == 0):
                node //= 2
            if node > 1:
                node += 1
                while node < leaves:
                    node *= 2
                    if tree[node] == 0:
                        node += 1
        if node > 1:
            room = node - leaves
            chosen = head[room]
            head[room] = following[chosen]
            while node > 0:
                tree[node] -= 1
                node //= 2
        else:
            room = size
            chosen = n_bins
            n_bins += 1
        bins[i] = chosen
        room -= need
        following[chosen] = head[room]
        head[room] = chosen
        node = leaves + room
        while node > 0:
            tree[node] += 1
            node //= 2
    return n_bins
