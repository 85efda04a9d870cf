# SPDX-License-Identifier: Apache-2.0
"""The BERT scanner: the next normalized word of a row, straight from the raw bytes.

Normalizing (clean-up, CJK isolation, accents, case) and splitting happen in one pass.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel_part
from tokenmill.tokenizer.kernels.classes import DROPPED, ISOLATED, REORDERED, SPACE, TAIL, TAIL_CLASS, WORD
from tokenmill.tokenizer.kernels.utf8 import decode_utf8, next_character


@kernel_part
def _append(word, origins, traced, w, byte, origin):
    """Adds one byte to the word under construction; returns its new length."""
    word[w] = byte
    if traced:
        origins[w] = origin
    return w + 1


@kernel_part
def append_character(data, start, end, tables, code_point, word, origins, traced, w, skip):
    """Adds the bytes that a character is normalized to, except the first `skip`."""
    replacement = tables.replacements[code_point]
    if replacement == 0:
        for q in range(start + skip, end):
            w = _append(word, origins, traced, w, data[q], start)
    else:
        first = replacement >> 4
        for q in range(first + skip, first + (replacement & 15)):
            w = _append(word, origins, traced, w, tables.pool[q], start)
    return w


@kernel_part
def _next_class(data, start, end, tables, after):
    """Returns the least combining class above `after` in the run of combining characters at `start`, 255 if none is.

    Also returns where the run ends.
    """
    least = np.int64(255)
    stop = start
    i = start
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
            combining = np.int64(TAIL_CLASS)
        if combining > after:
            least = min(least, combining)
        stop = i
    return least, stop


@kernel_part
def append_reordered(data, start, end, tables, word, origins, traced, w):
    """Adds the run of combining characters that begins at `start`, in canonical order; returns where it ends.

    One pass for each class, ascending, adds its characters: stable, and linear in the length of the run. Characters
    that clean-up or accent stripping removes are skipped.
    """
    code_point, i = next_character(data, start)
    if tables.combining[code_point] == TAIL:
        # A letter with marks of its own: the letter comes first, the marks with the others.
        first = tables.replacements[code_point] >> 4
        for q in range(4):
            w = _append(word, origins, traced, w, tables.pool[first + q], start)
    wanted, stop = _next_class(data, start, end, tables, 0)
    while wanted < 255:
        i = start
        while i < stop:
            here = i
            code_point, i = next_character(data, i)
            if tables.classes[code_point] != REORDERED:
                continue
            combining = np.int64(tables.combining[code_point])
            if combining == wanted:
                w = append_character(data, here, i, tables, code_point, word, origins, traced, w, 0)
            elif combining == TAIL and wanted == TAIL_CLASS:
                w = append_character(data, here, i, tables, code_point, word, origins, traced, w, 4)
        wanted, _ = _next_class(data, start, end, tables, wanted)
    return stop, w


@kernel_part
def any_word(data, i, end, tables, word, origins, traced):
    """Finds the next word of `data[i:end]`, byte by byte, and writes it, normalized, into `word`.

    Returns `(next i, n_bytes)`; n_bytes is 0 at the end of the row. With `traced`, `origins[q]` is the index in `data`
    of the character that byte q of the word came from.
    """
    w = np.int64(0)
    while i < end:
        start = i
        b = data[i]
        if b < 128:
            x = tables.ascii_bytes[b]
            if x != 0:
                w = _append(word, origins, traced, w, x, i)
                i += 1
                continue
            code_point = np.int64(b)
            i += 1
        else:
            code_point, i = decode_utf8(data, i)
        kind = tables.classes[code_point]
        if kind == WORD:
            w = append_character(data, start, i, tables, code_point, word, origins, traced, w, 0)
        elif kind == SPACE:
            if w > 0:
                break
        elif kind == ISOLATED:
            if w > 0:
                i = start
                break
            w = append_character(data, start, i, tables, code_point, word, origins, traced, w, 0)
            break
        elif kind == REORDERED:
            i, w = append_reordered(data, start, end, tables, word, origins, traced, w)
    return i, w
