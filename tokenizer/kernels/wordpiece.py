# SPDX-License-Identifier: Apache-2.0
"""WordPiece on one word: greedy longest match in a trie, with four policies for unknown characters.

Its reference implementation is `tokenmill.tokenizer.reference_encoding.wordpiece`; `tests/tokenizer/test_encode.py`
compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel_part
from tokenmill.tokenizer.kernels.double_array import BASE_SHIFT, LABEL_MASK, PIECE_MASK, PIECE_SHIFT
from tokenmill.tokenizer.kernels.utf8 import character_bytes, n_characters

OOV_WORD, OOV_CONTAIN, OOV_CHAR, OOV_BYTE = 0, 1, 2, 3

INITIAL, CONTINUING = 0, 1
"""Roots of the trie: of the entries that begin a word, and of those that continue one, without their prefix. After the
prefix, the first goes on like the second."""


@kernel_part
def _longest_match(word, i, end, model, root):
    """Returns `(id, end of the match)` of the longest entry that `word[i:end]`, not empty, begins with; id -1 for none.

    An entry that continues a word matches with its prefix only at the beginning of a word.
    """
    units = model.units
    best = np.int64(-1)
    best_end = i
    byte = np.int64(word[i])
    j = i + 1
    unit = units[np.uint64(model.root_bases[root] ^ byte)]
    while unit & LABEL_MASK == byte:
        piece = (unit >> PIECE_SHIFT) & PIECE_MASK
        best = piece - 1 if piece != 0 else best
        best_end = j if piece != 0 else best_end
        base = unit >> BASE_SHIFT
        if j >= end or (base == model.behind_prefix and i > 0):
            break
        byte = np.int64(word[j])
        unit = units[np.uint64(base ^ byte)]
        j += 1
    return best, best_end


@kernel_part
def _emit(out, ends, o, first, token, end):
    """Appends a token; `ends[k]` is where the k-th token of the word ends, in bytes of the word."""
    out[o] = token
    ends[o - first] = end
    return o + 1


@kernel_part
def _emit_unknown(word, i, end, model, out, ends, o, first, merge_runs):
    """Appends the byte tokens of an unknown character, or the unknown token.

    Byte tokens only if the policy asks for them and the vocabulary has all of them. Returns `(o, swallowed)`.
    """
    if model.policy == OOV_BYTE:
        have_all = True
        for q in range(i, end):
            if model.byte_ids[word[q]] < 0:
                have_all = False
        if have_all:
            for q in range(i, end):
                o = _emit(out, ends, o, first, model.byte_ids[word[q]], end)
            return o, False
    if merge_runs and o > first and out[o - 1] == model.unk_id:
        ends[o - 1 - first] = end
        return o, True
    return _emit(out, ends, o, first, model.unk_id, end), True


@kernel_part
def wordpiece(word, w, model, out, o, ends):
    """Tokenizes `word[:w]` into `out[o:]`.

    Args:
      word: uint8, at least `w` bytes of valid UTF-8, `w` at least 1.
      model: the vocabulary, see `models.wordpiece.WordPieceTables`.
      out: int32 with room for one id per byte; ends: int64 likewise, filled with where each token ends in the word.

    Returns:
      `(new o, has_unknown)`.
    """
    first = o
    policy = model.policy
    unknown = False
    if policy == OOV_WORD:
        is_short = w <= model.max_word_chars or n_characters(word, 0, w) <= model.max_word_chars
        i = 0
        while i < w and is_short:
            token, j = _longest_match(word, i, w, model, INITIAL if i == 0 else CONTINUING)
            if token < 0:
                break
            o = _emit(out, ends, o, first, token, j)
            i = j
        if i < w:
            o = _emit(out, ends, first, first, model.unk_id, w)
            unknown = True
        return o, unknown
    if policy == OOV_CHAR:
        token, j = _longest_match(word, 0, w, model, INITIAL)
        if token >= 0 and j == w:
            return _emit(out, ends, o, first, token, w), False
    i = 0
    while i < w:
        stop = i + character_bytes(word[i])
        # OOV_CHAR matches one character at a time, the others as much as they can.
        end = stop if policy == OOV_CHAR else w
        root = INITIAL if i == 0 or policy == OOV_CHAR else CONTINUING
        token, j = _longest_match(word, i, end, model, root)
        if token < 0:
            # The entry is known, but only in the other position: take it, so that nothing is lost.
            token, j = _longest_match(word, i, end, model, CONTINUING if root == INITIAL else INITIAL)
        if token >= 0:
            o = _emit(out, ends, o, first, token, j)
            i = j
            continue
        o, lost = _emit_unknown(word, i, stop, model, out, ends, o, first, policy != OOV_CHAR)
        unknown = unknown or lost
        i = stop
    return o, unknown
