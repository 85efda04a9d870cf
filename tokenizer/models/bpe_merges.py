# SPDX-License-Identifier: Apache-2.0
"""`MergesOfIds`: the merges of a model, stored as ids; those that vocabularies of tiktoken and sentencepiece imply."""

import reprlib
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.models.bpe_tables import (
    COLLIDING,
    PAIR_TABLE_TRIES,
    BPETables,
    Merges,
    empty_pairs,
    new_bpe_scratch,
    pair_bits,
)
from tokenmill.tokenizer.models.kernels.bpe_merges import find_merges, recover_merges
from tokenmill.tokenizer.models.vocabulary import Lazy, Vocabulary

_MAX_MERGES = 1 << 21
"""The most merges; the largest known vocabulary, of 256,000 pieces, has half a million."""
_MAX_READ = 1 << 32
"""The most bytes to look at for finding them, a few seconds; a real vocabulary takes a thousandth of that."""


class MergesOfIds(Lazy[tuple[str, str]]):
    """Merges as ids.

    A hundred thousand pairs would take ten megabytes, which the garbage collector would go through again and again.
    """

    def __init__(self, merges: Merges, vocab: Vocabulary, prefix: str = "") -> None:
        self.ids, self.vocab, self._prefix = merges, vocab, prefix

    def are_of(self, vocab: Mapping[str, int], prefix: str) -> bool:
        """Whether the stored ids are those of a vocabulary, and the products those with this continuing prefix."""
        return self.vocab is vocab and self._prefix == prefix

    def _make(self) -> list[tuple[str, str]]:
        token_of = dict(zip(self.vocab.ids.tolist(), self.vocab.tokens, strict=True))
        columns = (map(token_of.__getitem__, ids.tolist()) for ids in (self.ids.lefts, self.ids.rights))
        return list(zip(*columns, strict=True))

    def __len__(self) -> int:
        return self.ids.lefts.size


def merges_of_ranks(
    values: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], ids: npt.NDArray[np.int64], single: BPETables
) -> Merges:
    """Returns the merges that make the tokens of more than one byte, at most one for each token, in the order of ids.

    values, offsets: the bytes of the tokens, padded. ids: int64[n_tokens], which are also the ranks. single: the tables
    of a model that has only the tokens of one byte, and no merges.

    Raises:
      ValueError: if the ids seem to be chosen to collide in the table.
    """
    lengths = np.diff(offsets)
    by_rank = np.argsort(ids)
    ranks = np.empty(ids.size, np.int32)
    ranks[by_rank] = np.arange(ids.size, dtype=np.int32)
    by_length = np.argsort(lengths, kind="stable")
    lefts, rights = np.empty(ids.size, np.int32), np.empty(ids.size, np.int32)
    no_merges = single._replace(products=ids[by_rank].astype(np.int32))
    scratch = new_bpe_scratch(int(lengths.max()), no_merges)
    for bits in range(pair_bits(ids.size), pair_bits(ids.size) + PAIR_TABLE_TRIES):
        tables = no_merges._replace(pairs=empty_pairs(bits), pair_bits=bits)
        if recover_merges(values, offsets, ranks, by_length, tables, scratch, lefts, rights):
            made = by_rank[lefts[by_rank] >= 0]
            return Merges(lefts[made], rights[made], ids[made].astype(np.int32))
    raise ValueError(COLLIDING)


def merges_of_pieces(pieces: Vocabulary, can_merge: npt.NDArray[np.bool_], scores: npt.NDArray[np.float64]) -> Merges:
    """Returns every way to make a piece of two others: best score first, then by id, then the shorter first part first.

    The id of each piece is its number; can_merge, scores: bool[n] and float64[n], of each.

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
