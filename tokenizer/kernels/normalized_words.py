# SPDX-License-Identifier: Apache-2.0
"""A model of pieces by HF's rules, fused with what HF's files put before it: from raw bytes to ids.

White space stands between words. Each word gets a "▁" in front, goes through a character map or a normal form, and is
encoded by itself. So what becomes of a word depends on nothing but its bytes, and a word cache can be asked for these
before anything is normalized. Rows with a word of which that is not so are *irregular*, and left to the caller: where
the map makes white space of more than a separator, or nothing of a word, or joins a word to the space before it.

Words without spaces do not come back, but their parts do. They are cut between two characters that become one each,
whatever their neighbours, and these are neighbours in no piece: no merge reaches across, and every path of Unigram
passes there, so the parts can be encoded one by one, but that Unigram's sum so far decides how sums inside of a part
are rounded. Where the best path leads by more than `MIN_GAP`, rounding cannot change it (see `longest_cut`); else the
whole word is encoded at once.

A loop that kernels are made of by naming what encodes the text of a word, inlined:
`encode_text(text, n, model, scratch, out, o) -> (o, gap)` appends the ids of `text[:n]`; `gap` is by how much they are
better than all others.
"""

import numpy as np

from tokenizer.kernels.ascii_blocks import BLOCK_READS, separated_parts
from tokenizer.kernels.compiling import kernel, kernel_part, trailing_zeros
from tokenizer.kernels.normalized_words_parts import (
    DONE,
    FAILED,
    NO_ROOM,
    NOT_CUT,
    PART_PADDING,
    TOO_LONG,
    emit_known,
    encode_part,
    fused,
    most_ids,
)
from tokenizer.kernels.normalized_words_runs import begins_run, emit_run, emit_unknown, forget
from tokenizer.kernels.normalized_words_text import ends_word, normalized, part_end, word_end
from tokenizer.kernels.references import refer, values_of
from tokenizer.kernels.scanners_parts import SPACE, run_end
from tokenizer.kernels.sentencepiece_units import has_unknown
from tokenizer.kernels.word_cache import AT_BYTE, AT_ID, AT_ROW, COUNTER_TOTAL, IN_ROW, count_word
from tokenizer.kernels.word_encoding import key_of
from tokenizer.kernels.word_table import SHORT_WORD_BYTES

NEEDED, NEEDED_BYTES = 4, 5
"""Cells of `position`: for how many ids, and for a word of how many bytes, there must be room first; the others are
those of `word_cache`."""
_ONE, _TWO = np.uint64(1), np.uint64(2)


@kernel
def count_noted(text_of_rows, first, n_noted):
    """Counts words with unknown tokens, as they are normalized; returns how many it has had room for.

    Where one is longer than there is room for, `position` says so.

    text_of_rows: see `normalized_words_text.normalized`.
    """
    _, _, work = values_of(text_of_rows)
    for k in range(first, n_noted):
        at, stop = work.noted[2 * k], work.noted[2 * k + 1]
        if stop - at > work.part.size - PART_PADDING:
            work.position[NEEDED_BYTES] = stop - at
            return k
        n = normalized(text_of_rows, at, stop - at, True)
        k0, k1 = key_of(work.text, 0, n)
        if not count_word(work.tally, work.text, 0, n, k0, k1):
            return k
    return n_noted


@kernel_part
def _emit_spaces(n, tables, out, o):
    """Appends what n spaces that are words of their own become; nothing where there is too little room for them.

    Returns where they end, which then is where they would.
    """
    if o + n * tables.space_ids.size > out.size:
        return o + n * tables.space_ids.size
    for _ in range(n):
        for q in range(tables.space_ids.size):
            out[o + q] = tables.space_ids[q]
        o += tables.space_ids.size
    return o


@kernel_part
def _count_characters(data, i, stop):
    n = np.int64(0)
    for q in range(i, stop):
        n += np.int64(data[q] & 0xC0 != 0x80)
    return n


@kernel_part
def encode_rows(encode_text, rows, added, tables, model, scratch, work, tallying):
    """Encodes rows until they are done, the tally of unknown words is full, or there must be more room.

    Args:
      encode_text: see above, with what it wants of `model` and of `scratch`, which is for words as long as in `work`.
      rows: ragged.Ragged of valid UTF-8; added: as for `word_encoding.encode_words`.
      tables: engines.normalized_words_tables.WordTables.
      work: engines.normalized_words_tables.WordWork; rows that are irregular are noted there, and have no ids.
      tallying: whether to count the words that contain an unknown token.

    Returns:
      True when all rows are done; False when there must be more room first for ids, or for words, if these cells of
      `position` are not 0, or the cache must grow, if it is not within a row, or else the tally must be emptied.
    """
    data, offsets = rows
    position, out, slots, ids = work.position, work.out, work.cache.slots, work.cache.ids
    hot, classes, noted = work.cache.hot, tables.classes, work.noted
    text_of_rows = refer((data, tables, work))
    unk_id = np.int32(tables.unk_id)
    taken, slot_mask = work.cache.taken, np.uint64(slots.shape[0] - 1)
    limit = out.size - tables.spare_ids
    n_readable = data.size - BLOCK_READS - SHORT_WORD_BYTES
    forget(work.notes)
    o = position[AT_ID]
    for row in range(position[AT_ROW], offsets.size - 1):
        if position[IN_ROW] != 0:
            # All is done but the counting of what was noted.
            done = count_noted(text_of_rows, position[AT_BYTE], position[IN_ROW])
            if done < position[IN_ROW]:
                position[AT_BYTE] = done
                return False
            position[IN_ROW] = 0
            work.out_offsets[row + 1] = o
            continue
        i = np.int64(offsets[row])
        end = np.int64(offsets[row + 1])
        row_first = o
        n_noted = 0
        became = DONE
        is_text = added.size == 0 or added[row] < 0
        if not is_text:
            out[o] = added[row]
            o += 1
            i = end
        begin = i
        i = run_end(data, i, end, classes, SPACE)
        # Spaces that are words of their own: in front of a word all but the last, which is part of it.
        n_spaces = np.int64(0)
        n_last = np.int64(i > begin)
        if tables.counts_spaces and i > begin:
            n_last = _count_characters(data, begin, i)
            n_spaces = n_last - 1 if i < end else n_spaces
            o = _emit_spaces(n_spaces, tables, out, o)
        n_words = np.int64(i < end)
        is_inner = False
        word_at, word_first, noted_end = i, o, begin
        at, stop = i, i
        while i < end and o <= limit:
            block = i
            stop = i
            room = min(end - i, BLOCK_READS + 1)
            is_short = i + BLOCK_READS - word_at <= tables.longest_cut
            if is_short and room > 2 and i < n_readable and data[i] < 128 and data[i + 1] < 128:
                starts, stops, firsts = separated_parts(data, i, tables.separators, tables.apart)
                # Without what lies beyond the text or depends on that, and without the part at i itself.
                starts &= ((_TWO << np.uint64(room - 2)) - _ONE) & ~_ONE
                while starts != np.uint64(0):
                    k = np.uint64(trailing_zeros(starts))
                    starts &= starts - _ONE
                    stop = block + trailing_zeros(stops)
                    stops &= stops - _ONE
                    o, is_done = emit_known(hot, taken, slots, slot_mask, ids, data, i, stop - i, is_inner, out, o)
                    if not is_done:
                        break
                    i = block + np.int64(k)
                    is_inner = (firsts >> k) & _ONE == np.uint64(0)
                    n_words += np.int64(not is_inner)
                    if tables.counts_spaces and i > stop + 1:
                        n_spaces += i - stop - 1
                        o = _emit_spaces(i - stop - 1, tables, out, o)
                    word_at = word_at if is_inner else i
                    word_first = word_first if is_inner else o
                if stop <= i and i > block:
                    continue
            is_known = stop > i
            before = o
            is_done = False
            if not is_known and i < n_readable and begins_run(data, i):
                if is_inner:
                    stop, o = emit_unknown(data, i, end, word_first, tables, unk_id, out, o)
                    is_done = stop > i
                if not is_done:
                    stop, unknown_stop, word_at, word_first, n_begun, o = emit_run(
                        text_of_rows, i, end, is_inner, word_at, word_first, o
                    )
                    n_words += n_begun
                    is_done = stop > i
                    if unknown_stop > 0:
                        # The part behind those that were known is not.
                        is_inner |= is_done
                        i, before, stop, is_done = stop, o, unknown_stop, False
            if stop == i:
                stop = part_end(data, i, end, tables)
                if i < n_readable and stop <= word_at + tables.longest_cut:
                    o, is_done = emit_known(hot, taken, slots, slot_mask, ids, data, i, stop - i, is_inner, out, o)
            if not is_done:
                at, at_inner = i, is_inner
                while True:
                    o, became = encode_part(encode_text, text_of_rows, at, stop - at, at_inner, model, scratch, before)
                    is_whole = not at_inner and ends_word(data, stop, end, classes)
                    if became == DONE and not is_whole:
                        # Only the text of the unknown token becomes it where others become bytes, and is spelled in
                        # bytes beside those.
                        is_spelled = tables.has_byte_ids and has_unknown(out, before, o, unk_id)
                        became = NOT_CUT if is_spelled or stop - word_at > tables.longest_cut else DONE
                    if became != NOT_CUT:
                        break
                    stop = word_end(data, stop, end, classes)
                    at, at_inner, before = word_at, False, word_first
                if became != DONE:
                    break
                o = fused(tables, out, word_first, before, o, unk_id)
            if tallying and word_at >= noted_end and has_unknown(out, before, o, unk_id):
                noted_end = word_end(data, stop, end, classes)
                noted[2 * n_noted], noted[2 * n_noted + 1] = word_at, noted_end
                n_noted += 1
            i = stop
            is_inner = not ends_word(data, i, end, classes)
            if not is_inner:
                i = run_end(data, stop, end, classes, SPACE)
                n_last = np.int64(i > stop)
                if tables.counts_spaces and i > stop + 1:
                    n_last = _count_characters(data, stop, i)
                    if i < end:
                        n_spaces += n_last - 1
                        o = _emit_spaces(n_last - 1, tables, out, o)
                word_at, word_first = i, o
                n_words += np.int64(i < end)
        if became == NO_ROOM:
            position[AT_ROW], position[AT_ID] = row, row_first
            return False
        if became == DONE and is_text and tables.ends_in_space:
            n_spaces += n_last
            o = _emit_spaces(n_last, tables, out, o)
        if became == TOO_LONG or (became == DONE and o > limit):
            position[AT_ROW], position[AT_ID], position[NEEDED] = row, row_first, o + tables.spare_ids
            if became == TOO_LONG:
                position[NEEDED] += most_ids(stop - at, tables)
                position[NEEDED_BYTES] = stop - at
            return False
        n_words += n_spaces
        if n_spaces > 0 and tallying and has_unknown(tables.space_ids, 0, tables.space_ids.size, unk_id):
            became = FAILED
        if became != DONE:
            work.irregular[row] = True
            o = row_first
            work.out_offsets[row + 1] = o
            continue
        work.tally.state[COUNTER_TOTAL] += n_words
        if n_noted > 0:
            done = count_noted(text_of_rows, 0, n_noted)
            if done < n_noted:
                position[AT_ROW], position[AT_BYTE], position[AT_ID], position[IN_ROW] = row, done, o, n_noted
                return False
        work.out_offsets[row + 1] = o
    return True
