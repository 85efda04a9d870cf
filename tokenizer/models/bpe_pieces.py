# SPDX-License-Identifier: Apache-2.0
"""sentencepiece's BPE: the merges that are implied by pieces and their scores."""

import reprlib

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.models.bpe_tables import Merges
from tokenmill.tokenizer.models.kernels.bpe_pieces import find_merges
from tokenmill.tokenizer.models.vocabulary import Vocabulary

_MAX_MERGES = 1 << 21
"""The most merges; the largest known vocabulary, of 256,000 pieces, has half a million."""
_MAX_READ = 1 << 32
"""The most bytes to look at for finding them, a few seconds; a real vocabulary takes a thousandth of that."""


def merges_of_pieces(pieces: Vocabulary, can_merge: npt.NDArray[np.bool_], scores: npt.NDArray[np.float64]) -> Merges:
    """Returns every way to make a piece of two others: best score first, then by id, then the shorter first part first.

    Args:
      pieces: the pieces; the id of each is its number.
      can_merge, scores: bool[n] and float64[n], of each piece.

    Raises:
      ValueError: if there are more ways, or longer pieces, than training can leave.
    """
    ids = np.flatnonzero(can_merge)
    lengths = pieces.tokens.lengths[ids]
    has_length = np.zeros(int(lengths.max(initial=0)) + 1, np.bool_)
    has_length[lengths] = True
    order = ids[np.argsort(-scores[ids], kind="stable")]
    merges = np.empty((3, _MAX_MERGES), np.int32)
    n, n_done = find_merges(
        pieces.tokens.values, pieces.tokens.offsets, order, *pieces.table, can_merge, has_length, _MAX_READ, merges
    )
    if n_done < order.size:
        t = int(order[n_done])
        piece = reprlib.repr(pieces.tokens[t])
        raise ValueError(f"piece {t}, {piece}, can be made in more ways than training leaves")
    return Merges(*merges[:, :n].copy())
