# SPDX-License-Identifier: Apache-2.0
"""Finds accents, and the words that lose them.

Its reference implementation is in `tests/reference/text_steps.py`; `tests/tokenizer/text/test_references.py` compares
them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part
from tokenmill.tokenizer.kernels.utf8 import next_active, next_character
from tokenmill.tokenizer.normalizers.kernels.edit_lists import NOTHING, add_edit, finder

MARK, LATIN = 1, 2
"""Kinds of characters: a mark, which is removed if its base loses accents; a base of the Latin script."""

_PRIME = np.uint64(0x100000001B3)


@finder
def find_accents(data, i, end, row, tables, edits, n):
    """Finds characters with accents, and accents.

    Args:
      tables: uint8[0x110000], MARK, LATIN or neither; int32[0x110000], number of the text that replaces a character, 0
        if it stays, and text 0 is empty; normalizers.tables.Skips: ASCII, and characters that stay and are not Latin;
        whether marks stay after bases of other scripts.
    """
    kinds, texts, skips, only_latin = tables
    after_latin = not only_latin
    while i < end:
        start = next_active(data, i, end, skips)
        if start > i:
            after_latin = not only_latin or 0x61 <= data[start - 1] | 0x20 <= 0x7A
        if start == end:
            break
        code_point, i = next_character(data, start)
        if kinds[code_point] == MARK:
            if after_latin:
                n = add_edit(edits, n, start, i, NOTHING)
            continue
        after_latin = not only_latin or kinds[code_point] == LATIN
        if texts[code_point] > 0:
            n = add_edit(edits, n, start, i, texts[code_point])
    return n


@kernel
def find_edited_words(data, offsets, edits, is_word, words):
    """Finds the words that edits touch.

    Args:
      data: uint8[n], valid UTF-8; offsets: int64[n_rows + 1] into it.
      edits: int64[n_edits, 3], in order.
      is_word: bool[0x110000], the characters of words.
      words: int64[n_edits, 2], filled: where they start and stop.

    Returns:
      The number of words.
    """
    n = 0
    row = 0
    stop = np.int64(-1)
    for e in range(edits.shape[0]):
        if edits[e, 0] < stop:
            continue
        while offsets[row + 1] <= edits[e, 0]:
            row += 1
        start = edits[e, 0]
        while start > offsets[row]:
            before = start - 1
            while data[before] & 0xC0 == 0x80:
                before -= 1
            code_point, _ = next_character(data, before)
            if not is_word[code_point]:
                break
            start = before
        stop = edits[e, 1]
        while stop < offsets[row + 1]:
            code_point, following = next_character(data, stop)
            if not is_word[code_point]:
                break
            stop = following
        words[n, 0] = start
        words[n, 1] = stop
        n += 1
    return n


@kernel_part
def _hash(data, start, stop):
    found = np.uint64(0xCBF29CE484222325)
    for i in range(start, stop):
        found = (found ^ np.uint64(data[i])) * _PRIME
    return found


@kernel
def index_words(words, word_offsets, slots):
    """Makes a hash table of distinct words.

    Args:
      words, word_offsets: uint8[n] and int64[n_words + 1].
      slots: int64[power of two, more than n_words], zero; filled with numbers of words, plus one.
    """
    mask = slots.size - 1
    for word in range(word_offsets.size - 1):
        slot = np.int64(_hash(words, word_offsets[word], word_offsets[word + 1]) & np.uint64(mask))
        while slots[slot] != 0:
            slot = (slot + 1) & mask
        slots[slot] = word + 1


@kernel
def count_listed_words(data, offsets, is_word, words, word_offsets, slots, longest, counts):
    """Counts the words of rows that are in a list.

    Args:
      data: uint8[n], valid UTF-8; offsets: int64[n_rows + 1] into it.
      is_word: bool[0x110000], the characters of words.
      words, word_offsets, slots: see `index_words`; longest: the number of bytes of the longest.
      counts: int64[n_words], added to.
    """
    mask = slots.size - 1
    for row in range(offsets.size - 1):
        i = offsets[row]
        end = offsets[row + 1]
        while i < end:
            start = i
            code_point, i = next_character(data, i)
            if not is_word[code_point]:
                continue
            while i < end:
                code_point, following = next_character(data, i)
                if not is_word[code_point]:
                    break
                i = following
            if i - start > longest:
                continue
            slot = np.int64(_hash(data, start, i) & np.uint64(mask))
            while slots[slot] != 0:
                word = slots[slot] - 1
                if word_offsets[word + 1] - word_offsets[word] == i - start:
                    k = 0
                    while k < i - start and words[word_offsets[word] + k] == data[start + k]:
                        k += 1
                    if k == i - start:
                        counts[word] += 1
                        break
                slot = (slot + 1) & mask
