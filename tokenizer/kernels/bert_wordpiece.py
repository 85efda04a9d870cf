# SPDX-License-Identifier: Apache-2.0
"""BERT's normalizer, its pre-tokenizer and WordPiece in the encode loop; and the same spans counted instead.

The loop's spans are words of raw text; only words that are not in its table are cleaned, lower-cased and stripped of
accents.

Its reference implementation is in `tests/reference/bert.py`; `tests/tokenizer/test_encode.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import (
    kernel,
    kernel_part,
    leading_zeros,
    trailing_zeros,
)
from tokenmill.tokenizer.compiling.references import refer
from tokenmill.tokenizer.kernels.ascii_blocks import bert_words
from tokenmill.tokenizer.kernels.bert_scanner import any_word
from tokenmill.tokenizer.kernels.blocks import put_places
from tokenmill.tokenizer.kernels.by_address import call_model, fields_of
from tokenmill.tokenizer.kernels.classes import DROPPED, ISOLATED, REORDERED, SPACE, WORD
from tokenmill.tokenizer.kernels.encode_loop import AT, KEY_0, KEY_1, READS, SLOT, STOP
from tokenmill.tokenizer.kernels.scanners_parts import character
from tokenmill.tokenizer.kernels.span_table import (
    MISSES,
    begins_run,
    emit_direct,
    find_span,
    remember_direct,
    remember_span,
)
from tokenmill.tokenizer.kernels.spans import add_span
from tokenmill.tokenizer.kernels.utf8 import decode_utf8, next_character
from tokenmill.tokenizer.kernels.word_table import COUNTER_TOTAL, add_count, word_key
from tokenmill.tokenizer.kernels.wordpiece import wordpiece

_ONE = np.uint64(1)


@kernel_part
def spans(own, loop, i, inner, end, n, o):
    """Finds the raw words of a row; see `encode_loop.Steps`. own: a reference to unicode_tables.BertTables."""
    (tables,) = fields_of(own)
    data, _, _, work = fields_of(loop)
    batch, classes, direct, n_readable = work.batch, tables.classes, work.table.direct, data.size - READS
    before = n
    n_emitted = np.int64(0)
    while i < end and n < work.limit:
        if i < n_readable and data[i] < 128 and data[i + 1] < 128:
            starts, ends, spaces = bert_words(data, i, end - i, tables.digits_apart)
            if ends != np.uint64(0):
                put_places(starts, i, AT, batch, n)
                n = put_places(ends, i + 1, STOP, batch, n)
                i += 64 - leading_zeros(ends)
                continue
            if spaces & _ONE:
                i += trailing_zeros(~spaces)
                continue
        elif i < n_readable and n == 0:
            first = i
            i, o = emit_direct(work, data, i, min(end, n_readable), o)
            n_emitted += (i - first) // 3
            if i > first:
                if work.tallying:
                    break  # a batch begins behind what has been counted: it may have to be found again
                continue
        elif i < n_readable and begins_run(direct, data, i):
            break
        kind, after = character(data, i, classes)
        first = i
        i = after
        if kind == SPACE:
            continue
        if kind != ISOLATED:
            while i < end:
                kind, after = character(data, i, classes)
                if kind in (SPACE, ISOLATED):
                    break
                i = after
        add_span(batch, n, first, i, np.uint64(0))
        n += 1
    return i, inner, n, n - before + n_emitted, o


@kernel_part
def _character_alone(data, at, w, tables):
    """Returns the code point of a character of three bytes that is a word wherever it stands, and stays as it is; or 0.

    Such a word is looked up and counted by this number, any other by its bytes.
    """
    if w == 3 and data[at] >= 0xE0:
        code_point, _ = decode_utf8(data, at)
        if tables.classes[code_point] == ISOLATED and tables.replacements[code_point] == 0:
            return code_point
    return np.int64(0)


@kernel_part
def miss(own, loop, k, o):
    """Like `word_models.miss`; words that normalization leaves empty are not put into the table.

    own: a reference to unicode_tables.BertTables and to the model, a Step.
    """
    tables, model = fields_of(own)
    data, _, _, work = fields_of(loop)
    table, batch, out, word = work.table, work.batch, work.out, work.word
    at = np.int64(batch[AT + k])
    w = np.int64(batch[STOP + k]) - at
    k0, k1 = batch[KEY_0 + k], batch[KEY_1 + k]
    before = o
    code_point = _character_alone(data, at, w, tables)
    o, found, has_unknown, j = find_span(table, data, at, w, k0, k1, batch[SLOT + k], out, o)
    if found and not (has_unknown and work.tallying):
        return o
    _, n = any_word(data, at, at + w, tables, word, work.ends, False)
    if n == 0:
        # Normalized it is empty, and so no word.
        work.tally.state[COUNTER_TOTAL] -= 1
        return before
    if not found:
        o, has_unknown = call_model(model, (refer((word, out, work.ends)), n, False, before))
        table.state[MISSES] += 1
        remember_span(table, data, at, w, k0, k1, j, out, before, o, has_unknown)
        if code_point > 0:
            remember_direct(table.direct, code_point, out, before, o, has_unknown)
    if has_unknown and work.tallying:
        if code_point > 0:
            work.tally.characters[code_point] += 1
        else:
            h0, h1 = word_key(word, 0, n)
            add_count(work.tally, word, 0, n, h0, h1, 1)
    return o


@kernel
def add_normalized(values, offsets, counts, tables, word, origins, counter):
    """Adds up the counts of raw words that normalize to the same word; those that become empty are no words.

    Args:
      values: uint8[n_bytes]; offsets: int64[n + 1]: raw words as `count` finds them; counts: int64[n].
      tables: unicode_tables.BertTables.
      word: uint8 with room for the longest word; origins: int64[0]; for work.
      counter: kernel_memory.CounterArrays, with room for all.
    """
    for r in range(counts.size):
        _, w = any_word(values, offsets[r], offsets[r + 1], tables, word, origins, False)
        if w > 0:
            k0, k1 = word_key(word, 0, w)
            add_count(counter, word, 0, w, k0, k1, counts[r])
            counter.state[COUNTER_TOTAL] += counts[r]


@kernel
def locate(
    tables, model, rows, scratch, characters, out, offsets, starts, stops, word_numbers, n_words, is_right
):  # fmt: skip
    """Encodes rows, and finds where every token came from, without the table of the encode loop.

    Args:
      tables: unicode_tables.BertTables; model: WordPieceTables.
      rows: ragged.Ragged of valid UTF-8; scratch: kernel_memory.Scratch for a row.
      characters: int32 with room for the bytes of a row, for work.
      out: int32[n_ids]; starts, stops: int64[n_ids], the characters of its row that each token covers; word_numbers:
        int64[n_ids]; filled, each with room for `max_bytes_ratio` tokens per byte.
      offsets: int64[n_rows + 1]: where in these the tokens of each row begin, filled.
      n_words: int64[n_rows], filled: the words of each row.
      is_right: bool[n_rows], filled: not in a row where a combining character that stays has another beside it. Where
        those change their order, HF gives them the places that they then have.
    """
    data, row_offsets = rows
    word, origins, ends = scratch.word, scratch.origins, scratch.ends
    o = 0
    offsets[0] = 0
    for row in range(row_offsets.size - 1):
        i, end = row_offsets[row], row_offsets[row + 1]
        first = i
        n = -1
        last = WORD
        is_right[row] = True
        for j in range(i, end):
            if data[j] & 0xC0 != 0x80:
                n += 1
                code_point, _ = next_character(data, j)
                kind = tables.classes[code_point]
                if min(kind, last) >= DROPPED and max(kind, last) == REORDERED:
                    is_right[row] = False
                last = kind
            characters[j - first] = n
        number = 0
        while i < end:
            i, w = any_word(data, i, end, tables, word, origins, True)
            if w == 0:
                break
            before = o
            o, _ = wordpiece(word, w, model, out, o, ends)
            begin = 0
            for t in range(before, o):
                stop = ends[t - before]
                if t > before and ends[t - before - 1] == stop:
                    # All byte tokens of one character have its place.
                    starts[t] = starts[t - 1]
                else:
                    starts[t] = characters[origins[begin] - first]
                stops[t] = characters[origins[stop - 1] - first] + 1
                word_numbers[t] = number
                begin = stop
            number += 1
        offsets[row + 1] = o
        n_words[row] = number
