# SPDX-License-Identifier: Apache-2.0
"""The BERT scanner: the next normalized word of a row, straight from the raw bytes.

Normalizing (clean-up, CJK isolation, accents, case) and splitting happen in one pass. A word of at most 16 bytes is
returned as two integers, its bytes in little-endian order, so that comparing words is comparing integers; the bytes of
every word are also in `word`.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel_part
from tokenmill.tokenizer.kernels.classes import DROPPED, ISOLATED, REORDERED, SPACE, TAIL, TAIL_CLASS, WORD
from tokenmill.tokenizer.kernels.utf8 import decode_utf8, next_character


@kernel_part
def _append(word, origins, traced, w, k0, k1, byte, origin):
    """Adds one byte to the word under construction and to its key."""
    word[w] = byte
    if traced:
        origins[w] = origin
    if w < 8:
        k0 |= np.uint64(byte) << np.uint64(8 * w)
    elif w < 16:
        k1 |= np.uint64(byte) << np.uint64(8 * (w - 8))
    return w + 1, k0, k1


@kernel_part
def append_character(data, start, end, tables, code_point, word, origins, traced, w, k0, k1, skip):
    """Adds the bytes that a character is normalized to, except the first `skip`."""
    replacement = tables.replacements[code_point]
    if replacement == 0:
        for q in range(start + skip, end):
            w, k0, k1 = _append(word, origins, traced, w, k0, k1, data[q], start)
    else:
        first = replacement >> 4
        for q in range(first + skip, first + (replacement & 15)):
            w, k0, k1 = _append(word, origins, traced, w, k0, k1, tables.pool[q], start)
    return w, k0, k1


@kernel_part
def append_reordered(data, start, end, tables, word, origins, traced, w, k0, k1):
    """Adds the run of combining characters that begins at `start`, in canonical order; returns where it ends.

    One pass finds the combining classes of the run, then one pass per class, ascending, adds its characters: stable,
    and linear in the length of the run. Characters that clean-up or accent stripping removes are skipped.
    """
    present_0 = np.uint64(0)
    present_1 = np.uint64(0)
    present_2 = np.uint64(0)
    present_3 = np.uint64(0)
    i = start
    stop = start
    while i < end:
        here = i
        code_point, i = next_character(data, i)
        combining = np.int64(tables.combining[code_point])
        if tables.classes[code_point] == DROPPED:
            if combining == 0 and tables.is_mark[code_point]:
                break  # a starter for canonical ordering, even though accent stripping removes it afterwards
            continue
        if combining == 0 or (combining == TAIL and here != start):
            break
        if combining == TAIL:
            w, k0, k1 = _append(
                word, origins, traced, w, k0, k1, tables.pool[tables.replacements[code_point] >> 4], here
            )
            for q in range(1, 4):
                w, k0, k1 = _append(
                    word, origins, traced, w, k0, k1, tables.pool[(tables.replacements[code_point] >> 4) + q], here
                )
            combining = TAIL_CLASS
        bit = np.uint64(1) << np.uint64(combining & 63)
        if combining < 64:
            present_0 |= bit
        elif combining < 128:
            present_1 |= bit
        elif combining < 192:
            present_2 |= bit
        else:
            present_3 |= bit
        stop = i
    for wanted in range(1, 255):
        present = present_0 if wanted < 64 else present_1 if wanted < 128 else present_2 if wanted < 192 else present_3
        if (present >> np.uint64(wanted & 63)) & np.uint64(1) == 0:
            continue
        i = start
        while i < stop:
            here = i
            code_point, i = next_character(data, i)
            if tables.classes[code_point] != REORDERED:
                continue
            combining = np.int64(tables.combining[code_point])
            if combining == wanted:
                w, k0, k1 = append_character(data, here, i, tables, code_point, word, origins, traced, w, k0, k1, 0)
            elif combining == TAIL and wanted == TAIL_CLASS:
                w, k0, k1 = append_character(data, here, i, tables, code_point, word, origins, traced, w, k0, k1, 4)
    return stop, w, k0, k1


@kernel_part
def any_word(data, i, end, tables, word, origins, traced, w, k0, k1):
    """Finds the next word of `data[i:end]`, byte by byte, or the rest of one that has `w` bytes already.

    Returns `(next i, n_bytes, key0, key1)`; n_bytes is 0 at the end of the row. With `traced`, `origins[q]` is the
    index in `data` of the character that byte q of the word came from.
    """
    while i < end:
        start = i
        b = data[i]
        if b < 128:
            x = tables.ascii_bytes[b]
            if x != 0:
                w, k0, k1 = _append(word, origins, traced, w, k0, k1, x, i)
                i += 1
                continue
            code_point = np.int64(b)
            i += 1
        else:
            code_point, i = decode_utf8(data, i)
        kind = tables.classes[code_point]
        if kind == WORD:
            w, k0, k1 = append_character(data, start, i, tables, code_point, word, origins, traced, w, k0, k1, 0)
        elif kind == SPACE:
            if w > 0:
                break
        elif kind == ISOLATED:
            if w > 0:
                i = start
                break
            w, k0, k1 = append_character(data, start, i, tables, code_point, word, origins, traced, w, k0, k1, 0)
            break
        elif kind == REORDERED:
            i, w, k0, k1 = append_reordered(data, start, end, tables, word, origins, traced, w, k0, k1)
    return i, w, k0, k1
