# SPDX-License-Identifier: Apache-2.0
"""tiktoken's vocabularies: the merges that are implied by the ranks of tokens."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.models.bpe_merges import MergesOfIds
from tokenmill.tokenizer.models.bpe_tables import (
    COLLIDING,
    PAIR_TABLE_TRIES,
    BPETables,
    Merges,
    empty_pairs,
    new_bpe_scratch,
    pair_bits,
)
from tokenmill.tokenizer.models.kernels.bpe_unmerged import recover_merges
from tokenmill.tokenizer.models.vocabulary import Words


class MergesOfRanks(MergesOfIds):
    """The merges found in a tiktoken vocabulary: one for each token that some pair makes."""

    def __init__(self, merges: Merges, vocab: Mapping[str, int], words: Words) -> None:
        super().__init__(merges, vocab)
        self.words = words


def merges_of_ranks(
    values: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], ids: npt.NDArray[np.int64], single: BPETables
) -> Merges:
    """Returns the merges that make the tokens of more than one byte, at most one for each token, in the order of ids.

    Args:
      values, offsets: uint8[n] and int64[n_tokens + 1], the bytes of the tokens, padded.
      ids: int64[n_tokens], which are also the ranks.
      single: the tables of a model that has only the tokens of one byte, and no merges.

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
