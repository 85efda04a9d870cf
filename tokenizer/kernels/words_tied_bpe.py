# SPDX-License-Identifier: Apache-2.0
"""BPE on characters where different merges are equally good, so that the leftmost pair goes first, whatever it makes.

SentencePiece models that somebody has added pieces to have such ties: added pieces all score zero.
"""

import numpy as np

from tokenizer.kernels import word_loops
from tokenizer.kernels.bpe_merging import link, merge_at
from tokenizer.kernels.bpe_pairs import NO_RANK, pair_rank
from tokenizer.kernels.compiling import kernel, kernel_part
from tokenizer.kernels.heap import pop, push
from tokenizer.kernels.misses import miss_by


@kernel_part
def _offer(n, model, orders, scratch, i, size):
    """Notes the rank of the pair that begins at symbol i, and adds its order to the heap where it merges."""
    after = np.int64(scratch.nexts[i])
    rank = NO_RANK
    if after < n:
        rank = pair_rank(model.pairs, model.pair_bits, scratch.ids[i], scratch.ids[after])
    scratch.ranks[i] = rank
    if rank != NO_RANK:
        size = push(scratch.heap, size, np.uint64(orders[rank]) << np.uint64(32) | np.uint64(i))
    return size


@kernel_part
def _symbols(word, w, model, scratch):
    """Fills `scratch.ids` and `scratch.stops`; returns their number, and whether a character was unknown.

    A run of unknown characters is one unknown token; byte tokens do not end it, as in `bpe_symbols.initial_symbols`.
    """
    n = 0
    unknown = False
    i = 0
    while i < w:
        code_point = np.int64(word[i])
        stop = i + 1
        if code_point >= 0x80:
            code_point &= 0x1F if code_point < 0xE0 else 0x0F if code_point < 0xF0 else 0x07
            while stop < w and (word[stop] & 0xC0) == 0x80:
                code_point = code_point << 6 | np.int64(word[stop] & 0x3F)
                stop += 1
        symbol = np.int64(model.characters[0, code_point]) - 1
        spelled = symbol < 0 and model.byte_fallback
        if spelled:
            for q in range(i, stop):
                spelled = spelled and model.byte_ids[word[q]] >= 0
        if spelled:
            for q in range(i, stop):
                scratch.ids[n] = model.byte_ids[word[q]]
                scratch.stops[n] = q + 1
                n += 1
        elif symbol < 0 and n > 0 and scratch.ids[n - 1] == model.unk_id:
            unknown = True
            scratch.stops[n - 1] = stop
        else:
            unknown = unknown or symbol < 0
            scratch.ids[n] = model.unk_id if symbol < 0 else symbol
            scratch.stops[n] = stop
            n += 1
        i = stop
    return n, unknown


@kernel_part
def tokenize(word, w, tied, scratch, out, o, ends):
    """Tokenizes one word; see `word_loops`. `tied` is a models.bpe_tables.TiedBPETables."""
    model, orders = tied
    n, unknown = _symbols(word, w, model, scratch)
    link(0, n, scratch)
    heap, ranks = scratch.heap, scratch.ranks
    size = 0
    for q in range(n):
        size = _offer(n, model, orders, scratch, q, size)
    while size > 0:
        item = heap[0]
        size = pop(heap, size)
        i = np.int64(item & np.uint64(0xFFFFFFFF))
        # What has changed since and is as good now has an item of its own, which comes next.
        if ranks[i] == NO_RANK or np.uint64(orders[ranks[i]]) != item >> np.uint64(32):
            continue
        before = merge_at(model, scratch, i, ranks[i])
        size = _offer(n, model, orders, scratch, i, size)
        if before >= 0:
            size = _offer(n, model, orders, scratch, before, size)
    k = 0
    i = np.int64(0)
    while i < n:
        following = np.int64(scratch.nexts[i])
        out[o + k] = scratch.ids[i]
        ends[k] = scratch.stops[following - 1]
        k += 1
        i = following
    return o + k, unknown


@kernel_part
def _tokenize_span(word, w, is_flagged, tied, scratch, out, o, ends):
    return tokenize(word, w, tied, scratch, out, o, ends)


@kernel
def miss(arguments, k, o):
    """See `misses.miss_by`."""
    return miss_by(_tokenize_span, arguments, k, o)


@kernel
def align(words, model, model_scratch, scratch, out, ends, numbers):
    """See `word_loops.align_words`."""
    return word_loops.align_words(tokenize, words, model, model_scratch, scratch, out, ends, numbers)


@kernel
def count_swallowed(words, counts, model, model_scratch, scratch, out, unk_id, characters):
    """See `word_loops.count_swallowed`."""
    word_loops.count_swallowed(tokenize, words, counts, model, model_scratch, scratch, out, unk_id, characters)
