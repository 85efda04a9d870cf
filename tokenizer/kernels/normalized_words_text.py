# SPDX-License-Identifier: Apache-2.0
"""What `normalized_words` sees of a row: words between white space, the parts they are cut into, what each becomes."""

import numpy as np

from tokenizer.kernels.character_maps import fold
from tokenizer.kernels.compiling import kernel, kernel_part, unlikely
from tokenizer.kernels.ideographs import is_ideograph
from tokenizer.kernels.normal_forms import normalize as normalize_form
from tokenizer.kernels.precompiled import normalize
from tokenizer.kernels.references import values_of
from tokenizer.kernels.scanners_parts import SPACE
from tokenizer.kernels.sentencepiece_units import IS_SEPARATOR, is_apart
from tokenizer.kernels.utf8 import copy_bytes, next_character, write_utf8

IRREGULAR, JOINS = 1, 2
"""Beside SPACE, what `classes` say of characters: rows with one are irregular; it is in a grapheme with the character
before it."""

FIRST = np.uint8(0xE1)
"""First byte of characters of three bytes and more, but those of the scripts of India, which have spaces."""

_SPACE_MARK = 0x2581


@kernel_part
def word_end(data, i, end, classes):
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
def ends_word(data, i, end, classes):
    """Whether a word ends at i."""
    if i == end:
        return True
    code_point, _ = next_character(data, i)
    return classes[code_point] & SPACE != 0


@kernel_part
def put_space(text):
    """Writes a "▁" to the beginning of `text`; returns where it ends."""
    text[0], text[1], text[2] = 0xE2, 0x96, 0x81
    return np.int64(3)


@kernel_part
def normalized(text_of_rows, at, w, is_first):
    """Normalizes a part into `work.text`; returns its bytes, or -1 where a row is irregular.

    text_of_rows: a reference (see `references`) to the rows' data, WordTables and WordWork; at, w: the part's place.
    """
    data, tables, work = values_of(text_of_rows)
    text, classes = work.text, tables.classes
    begin = put_space(text) if is_first else np.int64(0)
    n = begin
    i = at
    while i < at + w:
        code_point, after = next_character(data, i)
        kind, image = classes[code_point], np.int64(tables.images[code_point])
        if unlikely(kind & IRREGULAR != 0 or image == 0 or (i == at and kind & JOINS != 0)):
            return _normalized_by_steps(text_of_rows, at, w, begin)
        n = write_utf8(image, text, n)
        i = after
    return n


@kernel
def _normalized_by_steps(text_of_rows, at, w, begin):
    """As `normalized`, where not every character becomes one whatever its neighbours; `begin`: where it begins."""
    data, tables, work = values_of(text_of_rows)
    classes = tables.classes
    i = at
    while i < at + w:
        code_point, after = next_character(data, i)
        kind = classes[code_point]
        if kind & IRREGULAR or (i == at and kind & JOINS):
            return np.int64(-1)
        i = after
    limit = np.int64(w * tables.growth)
    if not tables.has_folds:
        return _mapped(data, at, w, begin, limit, tables, work)
    n = fold(data, at, w, tables.folds, work.folded)
    if n > 0 and begin > 0:
        first, _ = next_character(work.folded, 0)
        if tables.folded_classes[first] & JOINS:
            return np.int64(-1)
    return _mapped(work.folded, np.int64(0), n, begin, limit, tables, work)


@kernel_part
def _mapped(data, at, w, begin, limit, tables, work):
    """Writes what the map, or the normal form, makes of `data[at:at + w]` to `work.text[begin:]`.

    Returns:
      The end of it, or -1 where that is at `begin`, more than `limit` bytes away, or has white space or a "▁".
    """
    text = work.text
    span = work.span
    span[0], span[1] = at, at + w
    n_bytes = w
    if tables.has_map:
        _, n_bytes = normalize(data, span, tables.charsmap, False, text, work.text_span)
    if n_bytes == 0 or n_bytes > limit:
        return np.int64(-1)
    if tables.has_map:
        normalize(data, span, tables.charsmap, True, text[begin:], work.text_span)
    elif tables.has_form:
        normalize_form(data, span, tables.form, work.pieces, text[begin:], work.text_span)
        n_bytes = work.text_span[1]
    else:
        return copy_bytes(data, at, at + w, text, begin)
    i = begin
    n = begin + n_bytes
    while i < n:
        code_point, i = next_character(text, i)
        if tables.folded_classes[code_point] & (SPACE | IRREGULAR):
            return np.int64(-1)
    return n


@kernel
def describe_texts(places, pool, white, splits, most_bytes, separates, irregular, images):
    """Says what characters become by a map, or by a normal form.

    Args:
      places, pool: int32[0x110000] and uint8, see normalizers.tables.CharsMap.
      white: bool[0x110000], white space.
      splits: whether all of it stands between words, and not only blanks.
      most_bytes: of what a character may become.
      separates, irregular, images: bool, bool and int32 of the same size, set for the characters that the map has:
        which ones stand between words; which ones become white space and more; the one character that each becomes, 0
        for others.

    Returns:
      By how much any one grows; infinity, and not all are set, where one becomes more than `most_bytes`.
    """
    growth = 1.0
    for code_point in range(places.size):
        if places[code_point] == 0:
            continue
        start = np.int64(places[code_point]) - 1
        stop, n, n_white, has_mark, last = start, 0, 0, False, np.int64(0)
        while stop < pool.size and pool[stop] != 0:
            if stop - start > most_bytes:
                return np.inf
            last, stop = next_character(pool, stop)
            n += 1
            n_white += np.int64(white[last])
            has_mark |= last == _SPACE_MARK
        if stop - start > most_bytes:
            return np.inf
        separates[code_point] = n == 1 and n_white == 1 and (splits or last == 0x20)
        irregular[code_point] = not separates[code_point] and (has_mark or n_white > 0)
        images[code_point] = last if n == 1 else 0
        n_bytes = 1 + np.int64(code_point >= 0x80) + np.int64(code_point >= 0x800) + np.int64(code_point >= 0x10000)
        growth = max(growth, (stop - start) / n_bytes)
    return growth


@kernel
def describe_folds(folds, places, pool, folded_classes, folded_images, classes, images):
    """Says what characters become by folds and then a map.

    Args:
      folds: engines.character_folds.CharacterFolds; places, pool: as for `describe_texts`.
      folded_classes, folded_images: uint8 and int32[0x110000], the classes and images of what the map gets.
      classes, images: the same of what the folds get, copies to begin with; set for the characters that change.

    Returns:
      By how much any one that changes grows at most, by folds alone or with the map.
    """
    growth = 1.0
    for code_point in range(folds.places.size):
        place = np.int64(folds.places[code_point])
        if place == 0:
            continue
        i = place >> 8
        stop = i + (place & 0xFF)
        n_bytes, n, n_mapped = stop - i, 0, np.int64(0)
        kinds, first_kind, image = np.uint8(0), np.uint8(0), np.int64(0)
        while i < stop:
            begin = i
            folded, i = next_character(folds.texts, i)
            first_kind = folded_classes[folded] if n == 0 else first_kind
            kinds |= folded_classes[folded]
            image = np.int64(folded_images[folded])
            text = np.int64(places[folded]) - 1
            n_mapped += i - begin if text < 0 else 0
            while 0 <= text < pool.size and pool[text] != 0:
                n_mapped += 1
                text += 1
            n += 1
        if n == 1:
            classes[code_point], images[code_point] = kinds, image
        else:
            classes[code_point] = IRREGULAR if kinds & (SPACE | IRREGULAR) else first_kind
            images[code_point] = 0
        n_raw = 1 + np.int64(code_point >= 0x80) + np.int64(code_point >= 0x800) + np.int64(code_point >= 0x10000)
        growth = max(growth, max(n_bytes, n_mapped) / n_raw)
    return growth


@kernel
def set_apart(entries, joins, apart):
    """Fills bool[128 * 128]: whether words are cut between two characters of ASCII, `before << 7 | here`."""
    for before in range(128):
        for here in range(128):
            either_separates = (entries[before] | entries[here]) & IS_SEPARATOR != 0
            ends = is_apart(np.uint64(entries[before]), np.uint64(entries[here]), joins) != 0
            apart[before << 7 | here] = ends and not either_separates


@kernel_part
def part_end(data, at, end, tables):
    """Returns where the part of a word at `at` ends, `end` being that of the row.

    Words are cut between two characters of ASCII, and beside characters of three bytes and more: others stand in words
    that come back whole.
    """
    entries = tables.entries
    lead = data[at]
    code_point, q = next_character(data, at)
    before = entries[code_point]
    while q < end:
        next_lead = data[q]
        code_point, after = next_character(data, q)
        entry = entries[code_point]
        if entry & IS_SEPARATOR:
            break
        if (lead | next_lead) < 0x80:
            if tables.apart[np.int64(lead) << 7 | np.int64(next_lead)]:
                break
        elif max(lead, next_lead) >= FIRST and is_apart(np.uint64(before), np.uint64(entry), tables.joins) != 0:
            break
        lead, before = next_lead, entry
        q = after
    return q
