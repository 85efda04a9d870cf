# SPDX-License-Identifier: Apache-2.0
"""sentencepiece's BPE: the merges that are implied by pieces and their scores."""

import reprlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tokenizer.kernels.bpe_pieces import find_merges
from tokenizer.models.bpe_tables import Merges, utf8_words, word_table

_MAX_MERGES = 1 << 21
"""The largest known vocabulary, of 256,000 pieces, has half a million."""
_MAX_READ = 1 << 32
"""Bytes looked at to find them, a few seconds; a real vocabulary takes a thousandth."""


def merges_of_pieces(pieces: Sequence[str], ids: npt.NDArray[np.int32], scores: npt.NDArray[np.float64]) -> Merges:
    """Returns every way to make a piece of two others: best score first, then by id, then the shorter first part first.

    Args:
      pieces: that may merge, none empty, no two equal.
      ids, scores: of each.

    Raises:
      ValueError: if there are so many, or so long pieces, as no training leaves.
    """
    values, offsets, _ = utf8_words(pieces, ids)
    numbers = np.arange(ids.size, dtype=np.int32)
    slots, pool = word_table(values, offsets, numbers)
    lengths = np.diff(offsets)
    has_length = np.zeros(int(lengths.max(initial=0)) + 1, np.bool_)
    has_length[lengths] = True
    order = np.lexsort((ids, -scores))
    merges = np.empty((3, _MAX_MERGES), np.int32)
    n, n_done = find_merges(values, offsets, order, slots, pool, has_length, _MAX_READ, merges)
    if n_done < len(pieces):
        t = int(order[n_done])
        raise ValueError(f"piece {ids[t]}, {reprlib.repr(pieces[t])}, can be made in more ways than training leaves")
    return Merges(*ids[merges[:, :n]])
