# SPDX-License-Identifier: Apache-2.0
"""Finds for models.bpe how each token of a vocabulary is made, and the tokens that merges never make.

Its reference implementation is `tokenmill.tokenizer.models.bpe.BPE.tokenize`;
`tests/tokenizer/models/test_bpe_reachable.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel
from tokenmill.tokenizer.kernels.bpe import bpe_word
from tokenmill.tokenizer.kernels.bpe_merging import MAX_SCANNED, link, merge_long, merge_scanning, set_keys
from tokenmill.tokenizer.kernels.bpe_pairs import is_sparse, set_rank


@kernel
def recover_merges(values, offsets, ranks, order, model, scratch, lefts, rights):
    """Finds the pair that makes each token of a tiktoken vocabulary, at most one for each.

    A token is made of the two parts that are left when everything shorter in it has merged: merges inside its bytes do
    not depend on what is around them. So tokens are gone through by length, and `model.pairs` is filled on the way.

    Args:
      values, offsets: uint8[n_bytes + 16] and int64[n + 1], the tokens; ranks: int32[n], the place of each by id.
      order: int64[n], the tokens by length.
      model: `models.bpe.BPETables` with products, and no pairs yet but room for n; scratch: BPEScratch, for work.
      lefts, rights: int32[n], filled; -1 for single bytes and for tokens that merges never make.

    Returns:
      False if the table of pairs needs more bits: try again.
    """
    for t in order:
        lefts[t] = -1
        rights[t] = -1
        at = offsets[t]
        w = offsets[t + 1] - at
        if w < 2:
            continue
        for q in range(w):
            scratch.ids[q] = model.byte_symbols[0, values[at + q]]
        link(0, w, scratch)
        if w <= MAX_SCANNED:
            set_keys(0, w, model, scratch)
            merge_scanning(0, w, model, scratch)
        else:
            merge_long(0, w, model, scratch, np.uint64(0))
        middle = np.int64(scratch.nexts[0])
        if middle < w and scratch.nexts[middle] == w:
            lefts[t] = scratch.ids[0]
            rights[t] = scratch.ids[middle]
            if not set_rank(model.pairs, model.pair_bits, lefts[t], rights[t], ranks[t]):
                return False
    return is_sparse(model.pairs, model.pair_bits)


@kernel
def find_unmerged(values, offsets, ids, model, scratch, out, ends, unmerged):
    """Marks the entries whose own spelling does not merge to them.

    Args:
      values, offsets: uint8[n_bytes + 16] and int64[n + 1], the entries; ids: int32[n].
      model: BPETables; scratch: BPEScratch; out: int32[n_ids]; ends: int64[n_ids]: for the longest entry, for work.
      unmerged: bool[n], filled.
    """
    for t in range(ids.size):
        at = offsets[t]
        o, _ = bpe_word(values, at, offsets[t + 1] - at, model, scratch, out, 0, ends)
        unmerged[t] = o != 1 or out[0] != ids[t]
