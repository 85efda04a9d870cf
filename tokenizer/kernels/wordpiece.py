# SPDX-License-Identifier: Apache-2.0
"""WordPiece on one word: greedy longest match in a byte trie, under four policies for what is not in the vocabulary."""

import numpy as np

from tokenizer.kernels.byte_trie import child
from tokenizer.kernels.compiling import kernel, kernel_part
from tokenizer.kernels.utf8 import decode_utf8

OOV_WORD, OOV_CONTAIN, OOV_CHAR, OOV_BYTE = 0, 1, 2, 3

INITIAL, CONTINUING = 0, 1
"""Roots of the trie: entries that begin a word, entries that continue one (their prefix left out). Behind the prefix
the first goes on as the second."""

FIRST_LEAD, PAST_LEAD = 0xE0, 0xF0
"""First bytes of characters of three bytes."""
N_CHARACTERS = 1 << 16
"""Their code points are below it."""


@kernel
def find_characters(edges, nodes):
    """Fills where the characters of three bytes lead to from the two roots of a trie.

    nodes: int32[2, N_CHARACTERS], zeros; the node and one more, 0 for none.
    """
    for root in range(2):
        for lead in range(FIRST_LEAD, PAST_LEAD):
            first = child(edges, root, lead)
            if first < 0:
                continue
            for second in range(64):
                node = child(edges, first, 0x80 | second)
                if node < 0:
                    continue
                for third in range(64):
                    code_point = (lead & 0x0F) << 12 | second << 6 | third
                    nodes[root, code_point] = child(edges, node, 0x80 | third) + 1


@kernel_part
def _longest_match(word, i, end, model, root):
    """Returns `(id, end of the match)` of the longest entry that `word[i:end]`, not empty, begins with; id -1 for none.

    Those that continue a word begin one with their prefix, at its beginning and nowhere else.
    """
    best = np.int64(-1)
    best_end = i
    if FIRST_LEAD <= word[i] < PAST_LEAD:
        # What has no spaces has many words that fail at once: one load for three that wait for one another.
        code_point, j = decode_utf8(word, i)
        node = np.int64(model.characters[root, np.uint64(code_point)]) - 1
    else:
        node = child(model.trie.edges, root, word[i])
        j = i + 1
    while node >= 0:
        if model.trie.node_ids[node] >= 0:
            best = np.int64(model.trie.node_ids[node])
            best_end = j
        if j >= end or (node == CONTINUING and i > 0):
            break
        node = child(model.trie.edges, node, word[j])
        j += 1
    return best, best_end


@kernel_part
def _character_end(word, i, w):
    i += 1
    while i < w and (word[i] & 0xC0) == 0x80:
        i += 1
    return i


@kernel_part
def _n_characters(word, w):
    n = 0
    for q in range(w):
        n += np.int64((word[q] & 0xC0) != 0x80)
    return n


@kernel_part
def _emit(out, ends, o, first, token, end):
    """Appends a token; `ends[k]` is where the k-th token of the word ends, in bytes of the word."""
    out[o] = token
    ends[o - first] = end
    return o + 1


@kernel_part
def _emit_unknown(word, i, end, model, out, ends, o, first, merge_runs):
    """Appends what an unknown character becomes: its byte tokens, or the unknown token.

    Byte tokens where the policy wants them and the vocabulary has all of them. Returns `(o, swallowed)`.
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
        is_short = w <= model.max_word_chars or _n_characters(word, w) <= model.max_word_chars
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
        stop = _character_end(word, i, w)
        # One character at a time for OOV_CHAR, else as far as the vocabulary reaches.
        end = stop if policy == OOV_CHAR else w
        root = INITIAL if i == 0 or policy == OOV_CHAR else CONTINUING
        token, j = _longest_match(word, i, end, model, root)
        if token < 0:
            # Known in the other position only: still known, so nothing is lost.
            token, j = _longest_match(word, i, end, model, CONTINUING if root == INITIAL else INITIAL)
        if token >= 0:
            o = _emit(out, ends, o, first, token, j)
            i = j
            continue
        o, lost = _emit_unknown(word, i, stop, model, out, ends, o, first, policy != OOV_CHAR)
        unknown = unknown or lost
        i = stop
    return o, unknown
