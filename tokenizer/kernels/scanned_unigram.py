# SPDX-License-Identifier: Apache-2.0
"""Unigram by HF's rules, fused with what HF's files put before it: from raw bytes to ids.

White space stands between words. Each word gets a "▁" in front, goes through a character map, and is encoded with sums
that begin at zero. So what becomes of a word depends on nothing but its bytes, and a word cache can be asked for these
before anything is normalized. Rows with a word of which that is not so are *irregular*, and left to the caller: where
the map makes white space of more than a separator, or nothing of a word, or joins a word to the space before it.

Words without spaces do not come back, but their parts do. They are cut between two characters that become one each,
whatever their neighbours, and these are neighbours in no piece: every path passes there, so the parts can be encoded
one by one, but that the sum so far decides how sums inside of a part are rounded. Where the best path leads by more
than `MIN_GAP`, rounding cannot change it (see `longest_cut`); else the whole word is encoded at once.
"""

import numpy as np

from tokenizer.kernels.ascii_blocks import BLOCK_READS, separated_parts
from tokenizer.kernels.bpe_characters import END_ROWS, MAY_CROSS
from tokenizer.kernels.compiling import kernel, kernel_part, trailing_zeros
from tokenizer.kernels.hot_words import LONGEST_HOT, emit_hot_key, remember_hot_key
from tokenizer.kernels.precompiled import normalize
from tokenizer.kernels.scanners_parts import SPACE, is_ideograph, run_end
from tokenizer.kernels.sentencepiece_rows import has_unknown
from tokenizer.kernels.unigram import emit_path, turn_path, width
from tokenizer.kernels.unigram_automaton import (
    ROOT,
    SCORE_SHIFT,
    advance,
    longest_piece,
    piece_bytes,
    root_base,
    shorter_piece,
)
from tokenizer.kernels.utf8 import next_character, write_utf8
from tokenizer.kernels.word_cache import (
    AT_BYTE,
    AT_ID,
    AT_ROW,
    CACHE_MISSES,
    COUNTER_TOTAL,
    IN_ROW,
    count_word,
    emit_cached,
    emit_short_key,
    is_too_small,
    remember,
)
from tokenizer.kernels.word_encoding import key_of
from tokenizer.kernels.word_table import SHORT_WORD_BYTES, find, short_key

IRREGULAR, JOINS, FOLLOWED = 1, 2, 8
"""Beside SPACE, what `classes` say of characters: rows with one are irregular; it is in a grapheme with the character
before it; what it becomes stands in front of another character in some piece."""

MIN_GAP = 2.0**-12
NEIGHBOUR_BITS = 20
_MIX_1 = np.uint64(0x9E3779B97F4A7C15)
_MIX_2 = np.uint64(0xC2B2AE3D27D4EB4F)
NEEDED = 4
"""Cell of `position`; the others are those of `word_cache`."""

_MARK = 0xFF
"""A byte that no text has. Behind a part that is not the first of its word it makes another key of it."""
_FIRST, _LAST = np.uint8(0xE1), np.uint8(0xEF)
"""First bytes of characters of three bytes, but those of the scripts of India, which have spaces."""
_DONE, _NO_ROOM, _FAILED, _NOT_CUT = 0, 1, 2, 3

_SCORE_SHIFT = np.uint64(SCORE_SHIFT)
_ONE, _TWO = np.uint64(1), np.uint64(2)


@kernel_part
def _find_path(word, w, model, scratch):
    """Finds the best path as `unigram.find_best_path` does, in one walk over an automaton.

    Place by place the best of all pieces that end there is chosen, of equal ones the longest.

    Returns:
      By how much it is better than any other at the least, at the places it passes.
    """
    scores, pieces, starts, seconds = scratch.scores, scratch.pieces, scratch.starts, scratch.seconds
    states, piece_scores = model.states, model.unigram.scores
    unk_score = model.unigram.unk_score
    scores[0] = 0.0
    base = root_base(states)
    state = ROOT
    i = np.int64(0)
    while i < w:
        stop = i + width(word[i])
        for q in range(i, stop):
            state, base = advance(states, state, base, np.uint64(word[q]))
        best, second = -np.inf, -np.inf
        start, piece = i, np.int64(-1)
        length = np.int64(0)
        end_state, more = longest_piece(states, state)
        while end_state != ROOT:
            length = piece_bytes(states, end_state)
            candidate_piece = np.int64(more >> _SCORE_SHIFT)
            candidate = piece_scores[np.uint64(candidate_piece)] + scores[stop - length]
            better = candidate > best
            second = max(second, best if better else candidate)
            best = candidate if better else best
            start = stop - length if better else start
            piece = candidate_piece if better else piece
            end_state, more = shorter_piece(states, more)
        if length != stop - i:
            # The shortest piece is not the character alone: it may be unknown.
            candidate = unk_score + scores[i]
            better = candidate > best
            second = max(second, best if better else candidate)
            best = candidate if better else best
            start = i if better else start
            piece = np.int64(model.unigram.unk_id) if better else piece
        scores[stop] = best
        seconds[stop] = second
        starts[stop] = start
        pieces[stop] = piece
        i = stop
    gap = np.inf
    stop = np.int64(w)
    while stop > 0:
        gap = min(gap, scores[stop] - seconds[stop])
        stop = starts[stop]
    return gap


@kernel_part
def _word_end(data, i, end, classes):
    """Returns where the word at i ends."""
    while i < end:
        b = data[i]
        if b < 128:
            if classes[b] & SPACE:
                break
            i += 1
        elif is_ideograph(data, i):
            i += 3
        else:
            code_point, after = next_character(data, i)
            if classes[code_point] & SPACE:
                break
            i = after
    return i


@kernel_part
def _ends_word(data, i, end, classes):
    """Whether a word ends at i."""
    if i == end:
        return True
    code_point, _ = next_character(data, i)
    return classes[code_point] & SPACE != 0


@kernel_part
def _put_space(text):
    text[0], text[1], text[2] = 0xE2, 0x96, 0x81
    return np.int64(3)


@kernel_part
def _normalized(data, at, w, is_first, tables, work):
    """Normalizes `data[at:at + w]`, a part, into `work.text`; returns its bytes, or -1 where a row is irregular."""
    text, classes = work.text, tables.classes
    begin = _put_space(text) if is_first else np.int64(0)
    n = begin
    is_simple = True
    i = at
    while i < at + w:
        code_point, after = next_character(data, i)
        kind = classes[code_point]
        if kind & IRREGULAR or (i == at and kind & JOINS):
            return np.int64(-1)
        image = np.int64(tables.images[code_point])
        is_simple = is_simple and image != 0
        if is_simple:
            n = write_utf8(image, text, n)
        i = after
    if is_simple:
        return n
    n = begin
    if not tables.has_map:
        for q in range(w):
            text[n + q] = data[at + q]
        return n + w
    span = work.span
    span[0], span[1] = at, at + w
    _, n_bytes = normalize(data, span, tables.charsmap, False, text, work.text_span)
    if n_bytes == 0 or n_bytes > w * tables.growth:
        return np.int64(-1)
    normalize(data, span, tables.charsmap, True, text[n:], work.text_span)
    i = n
    n += n_bytes
    while i < n:
        code_point, i = next_character(text, i)
        if classes[code_point] & (SPACE | IRREGULAR):
            return np.int64(-1)
    return n


@kernel_part
def _pair_bit(before, after):
    return ((np.uint64(before) * _MIX_1 ^ np.uint64(after)) * _MIX_2) >> np.uint64(64 - NEIGHBOUR_BITS)


@kernel
def find_neighbours(points, is_first, together, neighbours, followed):
    """Notes which characters are neighbours in a piece.

    Args:
      points: int32[n], the code points of all pieces; is_first: bool[n], where pieces begin.
      together: bool[128 * 128], set for two of ASCII, `before << 7 | after`.
      neighbours: uint64[2**NEIGHBOUR_BITS / 64], zeros, set for others.
      followed: bool[0x110000], False; set for characters in front of another one.
    """
    for q in range(1, points.size):
        before, after = np.int64(points[q - 1]), np.int64(points[q])
        if is_first[q]:
            continue
        followed[before] = True
        if before | after < 0x80:
            together[before << 7 | after] = True
        else:
            bit = _pair_bit(before, after)
            neighbours[bit >> np.uint64(6)] |= _ONE << (bit & np.uint64(63))


@kernel_part
def _are_neighbours(before, after, together, neighbours):
    """Whether some piece may have two characters beside each other; letters always may."""
    if before | after < 0x80:
        return together[before << 7 | after]
    bit = _pair_bit(before, after)
    return (neighbours[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & _ONE != np.uint64(0)


@kernel
def set_apart(images, together, neighbours, apart):
    """Fills bool[128 * 128]: whether words are cut between two characters of ASCII, `before << 7 | here`."""
    for before in range(128):
        for here in range(128):
            left, right = np.int64(images[before]), np.int64(images[here])
            are_letters = 0x61 <= before | 0x20 <= 0x7A and 0x61 <= here | 0x20 <= 0x7A
            is_place = left != 0 and right != 0 and not are_letters
            apart[before << 7 | here] = is_place and not _are_neighbours(left, right, together, neighbours)


@kernel_part
def _fused(out, word_first, before, o, unk_id):
    """Drops the unknown token at `before` where it follows another one of its word; returns the new o."""
    if before == word_first or o == before or out[before] != unk_id or out[before - 1] != unk_id:
        return o
    for q in range(before, o - 1):
        out[q] = out[q + 1]
    return o - 1


@kernel_part
def _emit_characters(data, at, limit, end, is_inner, word_first, tables, unk_id, characters, out, o):
    """Appends the ids of the characters that the part of a word at `at` begins with, which do not begin at `limit`.

    Goes on as long as they are known to be parts of their own, as `bpe_characters.emit_characters` does. `word_first`
    is where the ids of their word begin; `end` is that of the row.
    """
    if at == end:
        return at, o
    code_point, after = next_character(data, at)
    while at < limit and _FIRST <= data[at] <= _LAST:
        row = code_point + (0 if is_inner else END_ROWS)
        n = np.int64(characters[row, 0])
        if n == 0:
            break
        following, beyond = code_point, after
        if after < end:
            following, beyond = next_character(data, after)
            right = np.int64(tables.images[following])
            if tables.classes[following] & SPACE != 0:
                limit = after
            elif right == 0:
                break
            elif n >= MAY_CROSS:
                left = np.int64(tables.images[code_point])
                if _are_neighbours(left, right, tables.together, tables.neighbours):
                    break
        else:
            limit = after
        out[o] = characters[row, 1]
        out[o + 1] = characters[row, 2]
        out[o + 2] = characters[row, 3]
        o = _fused(out, word_first, o, o + (n & (MAY_CROSS - 1)), unk_id)
        at, code_point, after = after, following, beyond
        is_inner = True
    return at, o


@kernel_part
def _remember_character(data, at, w, is_inner, tables, characters, out, before, o):
    """Keeps the ids `out[before:o]` of the part `data[at:at + w]` if it is a character for the table."""
    if w != 3 or not _FIRST <= data[at] <= _LAST or o - before >= MAY_CROSS:
        return
    code_point, _ = next_character(data, at)
    if tables.images[code_point] == 0:
        return
    row = code_point + (0 if is_inner else END_ROWS)
    n = o - before
    for q in range(n):
        characters[row, 1 + q] = out[before + q]
    characters[row, 0] = n | (MAY_CROSS if tables.classes[code_point] & FOLLOWED else 0)


@kernel_part
def _part_end(data, at, end, tables):
    """Returns where the part of a word at `at` ends, `end` being that of the row.

    Words are cut between two characters of ASCII, and beside characters of three bytes and more: others stand in words
    that come back whole.
    """
    lead = data[at]
    code_point, q = next_character(data, at)
    before = np.int64(tables.images[code_point])
    while q < end:
        next_lead = data[q]
        code_point, after = next_character(data, q)
        if tables.classes[code_point] & SPACE:
            break
        image = np.int64(tables.images[code_point])
        if (lead | next_lead) < 0x80:
            if tables.apart[np.int64(lead) << 7 | np.int64(next_lead)]:
                break
        elif (
            max(lead, next_lead) >= _FIRST
            and before != 0
            and image != 0
            and not _are_neighbours(before, image, tables.together, tables.neighbours)
        ):
            break
        lead, before = next_lead, image
        q = after
    return q


@kernel_part
def _marked(data, at, w, is_inner):
    """Returns the key of a part of at most 15 bytes, and its bytes, mark included."""
    k0, k1 = short_key(data, at, w)
    mark = np.uint64(_MARK if is_inner else 0)
    if w < 8:
        k0 |= mark << np.uint64(8 * w)
    else:
        k1 |= mark << np.uint64(8 * w - 64)
    return k0, k1, w + np.int64(is_inner)


@kernel_part
def _emit_known(hot, slots, slot_mask, ids, data, at, w, is_inner, out, o):
    """Appends the ids of the part `data[at:at + w]` if it is short, cached, and has no unknown token.

    `data` is readable for 16 bytes after `at`. Returns `(o, True)`, or `(o before, False)`.
    """
    if w >= SHORT_WORD_BYTES:
        return o, False
    k0, k1, n = _marked(data, at, w, is_inner)
    if n <= LONGEST_HOT:
        o, is_done = emit_hot_key(hot, k0, n, out, o)
        if is_done:
            return o, True
    before = o
    o, is_done = emit_short_key(slots, slot_mask, ids, k0, k1, n, out, o)
    if is_done and n <= LONGEST_HOT:
        remember_hot_key(hot, k0, n, out, before, o)
    return o, is_done


@kernel_part
def _encode_part(data, at, w, is_inner, tables, model, scratch, work, o):
    """Appends the ids of the part `data[at:at + w]`, from the cache or from the model; returns `(o, what became)`."""
    cache, out, part = work.cache, work.out, work.part
    if w < SHORT_WORD_BYTES and at + SHORT_WORD_BYTES <= data.size:
        k0, k1, n_key = _marked(data, at, w, is_inner)
    else:
        for q in range(w):
            part[q] = data[at + q]
        part[w] = _MARK
        n_key = w + np.int64(is_inner)
        k0, k1 = key_of(part, 0, n_key)
    # Of short ones only the key is looked at.
    j, found = find(cache.slots, cache.words, part, 0, n_key, k0, k1)
    if found:
        o, _ = emit_cached(cache.slots, cache.ids, j, out, o)
        return o, _DONE
    if is_too_small(cache):
        return o, _NO_ROOM
    n = _normalized(data, at, w, not is_inner, tables, work)
    if n < 0:
        return o, _FAILED
    before = o
    gap = _find_path(work.text, n, model, scratch)
    if is_inner and gap <= MIN_GAP:
        return o, _NOT_CUT
    turn_path(n, scratch)
    o, _ = emit_path(work.text, n, model.unigram, scratch, out, o, scratch.ends)
    is_unknown = has_unknown(out, before, o, np.int32(model.unigram.unk_id))
    remember(cache, j, part, 0, n_key, k0, k1, out, before, o, is_unknown)
    cache.state[CACHE_MISSES] += 1
    _remember_character(data, at, w, is_inner, tables, cache.characters, out, before, o)
    return o, _DONE


@kernel_part
def _count_noted(data, tables, work, first, n_noted):
    """Counts words with unknown tokens, as they are normalized; returns how many it has had room for."""
    for k in range(first, n_noted):
        at, stop = work.noted[2 * k], work.noted[2 * k + 1]
        n = _normalized(data, at, stop - at, True, tables, work)
        k0, k1 = key_of(work.text, 0, n)
        if not count_word(work.tally, work.text, 0, n, k0, k1):
            return k
    return n_noted


@kernel
def encode(rows, added, tables, model, scratch, work, tallying):
    """Encodes rows until they are done, the tally of unknown words is full, or there must be more room.

    Args:
      rows: ragged.Ragged of valid UTF-8; added: as for `word_encoding.encode_words`.
      tables: engines.scanned_unigram_tables.WordTables.
      model: engines.scanned_unigram_tables.ExactUnigram; scratch: ScoredScratch, for the longest word.
      work: engines.scanned_unigram_tables.WordWork; rows that are irregular are noted there, and have no ids.
      tallying: whether to count the words that contain an unknown token.

    Returns:
      True when all rows are done; False when there must be more room for ids first, if the last cell of `position` is
      not 0, or the cache must grow, if it is not within a row, or else the tally must be emptied.
    """
    data, offsets = rows
    position, out, slots, ids = work.position, work.out, work.cache.slots, work.cache.ids
    hot, classes, noted = work.cache.hot, tables.classes, work.noted
    unk_id = np.int32(model.unigram.unk_id)
    slot_mask = np.uint64(slots.shape[0] - 1)
    n_readable = data.size - BLOCK_READS - SHORT_WORD_BYTES
    o = position[AT_ID]
    for row in range(position[AT_ROW], offsets.size - 1):
        if position[IN_ROW] != 0:
            # All is done but the counting of what was noted.
            done = _count_noted(data, tables, work, position[AT_BYTE], position[IN_ROW])
            if done < position[IN_ROW]:
                position[AT_BYTE] = done
                return False
            position[IN_ROW] = 0
            work.out_offsets[row + 1] = o
            continue
        i = np.int64(offsets[row])
        end = np.int64(offsets[row + 1])
        # The "▁" in front of a word may become three.
        needed = o + np.int64((end - i) * (tables.growth + 3.0)) + SHORT_WORD_BYTES
        if needed > out.size:
            position[AT_ROW], position[AT_ID], position[NEEDED] = row, o, needed
            return False
        row_first = o
        n_noted = 0
        became = _DONE
        is_text = added.size == 0 or added[row] < 0
        if not is_text:
            out[o] = added[row]
            o += 1
            i = end
        begin = i
        i = run_end(data, i, end, classes, SPACE)
        ends_in_space = i > begin
        n_words = np.int64(i < end)
        is_inner = False
        word_at, word_first, noted_end = i, o, begin
        while i < end:
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
                    o, is_done = _emit_known(hot, slots, slot_mask, ids, data, i, stop - i, is_inner, out, o)
                    if not is_done:
                        break
                    i = block + np.int64(k)
                    is_inner = (firsts >> k) & _ONE == np.uint64(0)
                    n_words += np.int64(not is_inner)
                    word_at = word_at if is_inner else i
                    word_first = word_first if is_inner else o
                if stop <= i and i > block:
                    continue
            is_known = stop > i
            before = o
            is_done = False
            if not is_known:
                limit = word_at + tables.longest_cut
                stop, o = _emit_characters(
                    data, i, limit, end, is_inner, word_first, tables, unk_id, work.cache.characters, out, o
                )
                is_done = stop > i
            if not is_known and not is_done:
                stop = _part_end(data, i, end, tables)
                if i < n_readable:
                    o, is_done = _emit_known(hot, slots, slot_mask, ids, data, i, stop - i, is_inner, out, o)
            if not is_done:
                o, became = _encode_part(data, i, stop - i, is_inner, tables, model, scratch, work, o)
                is_whole = not is_inner and _ends_word(data, stop, end, classes)
                if became == _DONE and not is_whole:
                    # Only the text of the unknown token becomes it where others become bytes, and is spelled in bytes
                    # beside those.
                    is_spelled = model.unigram.byte_fallback and has_unknown(out, before, o, unk_id)
                    became = _NOT_CUT if is_spelled or stop - word_at > tables.longest_cut else _DONE
                if became == _NOT_CUT:
                    stop = _word_end(data, stop, end, classes)
                    before = word_first
                    o, became = _encode_part(
                        data, word_at, stop - word_at, False, tables, model, scratch, work, word_first
                    )
                if became != _DONE:
                    break
                o = _fused(out, word_first, before, o, unk_id)
            if tallying and word_at >= noted_end and has_unknown(out, before, o, unk_id):
                noted_end = _word_end(data, stop, end, classes)
                noted[2 * n_noted], noted[2 * n_noted + 1] = word_at, noted_end
                n_noted += 1
            i = stop
            is_inner = not _ends_word(data, i, end, classes)
            if not is_inner:
                i = run_end(data, stop, end, classes, SPACE)
                ends_in_space = i > stop
                word_at, word_first = i, o
                n_words += np.int64(i < end)
        if became == _NO_ROOM:
            position[AT_ROW], position[AT_ID] = row, row_first
            return False
        if became == _DONE and is_text and ends_in_space and tables.ends_in_space:
            text_end = _put_space(work.text)
            _find_path(work.text, text_end, model, scratch)
            turn_path(text_end, scratch)
            before = o
            o, _ = emit_path(work.text, text_end, model.unigram, scratch, out, o, scratch.ends)
            n_words += 1
            if tallying and has_unknown(out, before, o, unk_id):
                became = _FAILED
        if became != _DONE:
            work.irregular[row] = True
            o = row_first
            work.out_offsets[row + 1] = o
            continue
        work.tally.state[COUNTER_TOTAL] += n_words
        if n_noted > 0:
            done = _count_noted(data, tables, work, 0, n_noted)
            if done < n_noted:
                position[AT_ROW], position[AT_BYTE], position[AT_ID], position[IN_ROW] = row, done, o, n_noted
                return False
        work.out_offsets[row + 1] = o
    return True
