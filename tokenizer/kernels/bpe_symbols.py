# SPDX-License-Identifier: Apache-2.0
"""The symbols of a word before the first merge of BPE: one per character or byte; unknown characters as in HF.

`data[at:at + w]` is the word, uint8, readable 16 bytes beyond `at`; model: BPETables; scratch: BPEScratch for w bytes.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel_part
from tokenmill.tokenizer.kernels.bpe_pairs import NO_KEY, pair_rank
from tokenmill.tokenizer.kernels.utf8 import decode_utf8

# Rows of `model.characters` and `model.byte_symbols`: the symbol of a character depends on its place in the word.
CONTINUES, ENDS = 1, 2


@kernel_part
def _add_symbol(scratch, n, symbol, stop, w):
    scratch.ids[n] = symbol
    scratch.stops[n] = min(stop, w)
    return n + 1


@kernel_part
def _byte_tokens(data, at, stop, row, model, scratch, n, end, w):
    """Appends the byte tokens of an unknown character with its markers; returns the new n, -1 if some are missing.

    As in HF each token takes a byte of the word, also those of a marker (continuing prefix, end-of-word suffix).
    """
    n_prefix = model.prefix.size if row & CONTINUES else 0
    n_suffix = model.suffix.size if row & ENDS else 0
    spelled = stop - at
    if model.byte_level:
        spelled = 1 if model.alphabet[data[at]] < 0x80 else 2
    for q in range(n_prefix + spelled + n_suffix):
        if q < n_prefix:
            byte = model.prefix[q]
        elif q >= n_prefix + spelled:
            byte = model.suffix[q - n_prefix - spelled]
        elif not model.byte_level:
            byte = data[at + q - n_prefix]
        elif spelled == 1:
            byte = np.uint8(model.alphabet[data[at]])
        elif q == n_prefix:
            byte = np.uint8(0xC0 | model.alphabet[data[at]] >> 6)
        else:
            byte = np.uint8(0x80 | (model.alphabet[data[at]] & 0x3F))
        if model.byte_ids[byte] < 0:
            return -1
        if not model.byte_level or q == 0:
            end += 1
        n = _add_symbol(scratch, n, model.byte_ids[byte], end, w)
    return n


@kernel_part
def initial_symbols(data, at, w, has_suffix, model, scratch):
    """Fills `scratch.ids` and `scratch.stops`; returns `(number of symbols, whether a character was unknown)`.

    Unknown characters are treated exactly as in HF: an unknown token waits until a known character or the end of the
    word, and byte tokens go before it; a character that is dropped because there is no unknown token takes no place.
    """
    n = 0
    end = 0
    waiting = 0
    unknown = False
    i = 0
    while i < w:
        code_point, stop = np.int64(data[at + i]), i + 1
        if not model.byte_level and code_point >= 0x80:
            code_point, stop = decode_utf8(data, at + i)
            stop -= at
        row = CONTINUES if i > 0 and model.prefix.size > 0 else 0
        if stop == w and has_suffix:
            row |= ENDS
        if model.byte_level:
            symbol = np.int64(model.byte_symbols[row, code_point])
        else:
            symbol = np.int64(model.characters[row, code_point]) - 1
        if symbol >= 0:
            if waiting:
                end += waiting
                waiting = 0
                n = _add_symbol(scratch, n, model.unk_id, end, w)
            end += stop - i
            n = _add_symbol(scratch, n, symbol, end, w)
        else:
            fallen = -1
            if model.byte_fallback:
                fallen = _byte_tokens(data, at + i, at + stop, row, model, scratch, n, end, w)
            if fallen >= 0:
                end += 1 if model.byte_level else fallen - n
                n = fallen
            else:
                unknown = True
                if model.unk_id >= 0:
                    if waiting and not model.fuse_unk:
                        end += waiting
                        waiting = 0
                        n = _add_symbol(scratch, n, model.unk_id, end, w)
                    waiting += stop - i
        i = stop
    if waiting:
        n = _add_symbol(scratch, n, model.unk_id, end + waiting, w)
    return n, unknown


@kernel_part
def plain_byte_symbols(data, at, w, has_suffix, model, scratch):
    """Fills symbols, links and keys for a word whose bytes are all symbols: the rank of two bytes takes one load."""
    ids, keys = scratch.ids, scratch.keys
    last = w - 1
    left = np.int64(data[at])
    for q in range(last):
        right = np.int64(data[at + q + 1])
        ids[q] = model.byte_symbols[0, left]
        keys[q] = model.byte_pairs[left << 8 | right] | np.uint32(q)
        left = right
    if has_suffix:
        ids[last] = model.byte_symbols[ENDS, left]
        if last > 0:
            rank = pair_rank(model.pairs, model.pair_bits, ids[last - 1], ids[last])
            keys[last - 1] = rank << np.uint32(8) | np.uint32(last - 1)
    else:
        ids[last] = model.byte_symbols[0, left]
    for q in range(w):
        scratch.stops[q] = q + 1
        scratch.nexts[q] = q + 1
        scratch.previous[q] = q - 1
    scratch.previous[w] = last
    for q in range(last, (w + 7) & ~7):
        keys[q] = NO_KEY
