# SPDX-License-Identifier: Apache-2.0
"""Byte pair encoding of one word: as one token if the model looks up whole words and has it, else symbols, then merges.

Its reference implementation is `tokenmill.tokenizer.models.bpe_reference.tokenize_bytes`;
`tests/tokenizer/models/test_bpe.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel_part
from tokenmill.tokenizer.kernels.bpe_merging import MAX_UNCUT, link, merge, merge_long, merge_scanning
from tokenmill.tokenizer.kernels.bpe_symbols import initial_symbols, plain_byte_symbols
from tokenmill.tokenizer.kernels.whole_words import put_word, whole_word


@kernel_part
def _emit(n, scratch, out, o, ends):
    """Writes the symbols that the links reach from the first one; returns the new o."""
    k = np.uint64(0)
    i = np.uint64(0)
    while i < np.uint64(n):
        after = np.uint64(scratch.nexts[i])
        out[np.uint64(o) + k] = scratch.ids[i]
        ends[k] = scratch.stops[after - np.uint64(1)]
        k += np.uint64(1)
        i = after
    return o + np.int64(k)


@kernel_part
def bpe_word(data, at, w, model, scratch, out, o, ends):
    """Tokenizes the word `data[at:at + w]` into `out[o:]`; see `bpe_part`."""
    return bpe_part(data, at, w, model.suffix.size > 0, model, scratch, out, o, ends)


@kernel_part
def bpe_part(data, at, w, has_suffix, model, scratch, out, o, ends):
    """Tokenizes the word `data[at:at + w]`, or a part of one, into `out[o:]`.

    Args:
      data: uint8, UTF-8 or for byte-level models any bytes, readable 16 bytes beyond `at`; w: at least 1.
      has_suffix: whether the model has a suffix, and this is the last part of a word, which takes it.
      model: the vocabulary, see `models.bpe.BPETables`.
      scratch: for words of w bytes, see `models.bpe_tables.new_bpe_scratch`.
      out: int32 with room for `max_ids_per_byte` ids per byte; ends: int64 likewise, filled with where each token
        ends in the word, in bytes.

    Returns:
      `(o, whether a character was unknown)`.
    """
    if w <= model.longest_whole:
        token = whole_word(data, at, w, model.whole_slots, model.whole_pool)
        if token >= 0:
            return put_word(token, w, out, o, ends), False
    unknown = False
    if model.plain_bytes and w <= MAX_UNCUT:
        # The usual case: every byte is a symbol, and the rank of two bytes takes one load.
        plain_byte_symbols(data, at, w, has_suffix, model, scratch)
        merge_scanning(0, w, model, scratch)
        return _emit(w, scratch, out, o, ends), False
    n, unknown = initial_symbols(data, at, w, has_suffix, model, scratch)
    if n == 0:
        return o, unknown
    merge(n, model, scratch)
    return _emit(n, scratch, out, o, ends), unknown


@kernel_part
def bpe_word_dropout(data, at, w, model, scratch, out, o, ends, key):
    """Tokenizes like `bpe_word`, with BPE-dropout; `key` is the `dropout_key` of this occurrence.

    As in HF, the whole word is then not looked up in the vocabulary.
    """
    n, unknown = initial_symbols(data, at, w, model.suffix.size > 0, model, scratch)
    if n == 0:
        return o, unknown
    link(0, n, scratch)
    merge_long(0, n, model, scratch, key)
    return _emit(n, scratch, out, o, ends), unknown
