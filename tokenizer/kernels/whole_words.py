# SPDX-License-Identifier: Apache-2.0
"""Words that are tokens as a whole: all of a WordLevel vocabulary, and those that BPE looks up before it merges.

Its reference implementation is `tokenmill.tokenizer.models.wordlevel.WordLevel.tokenize`;
`tests/tokenizer/models/test_wordlevel.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part
from tokenmill.tokenizer.kernels.word_table import VALUE, find, first_slot, insert, word_key

COLLIDING = -1
_PASSED = 64
"""The most slots to pass for each entry, on average, on the way to its own; usually it is one or two."""


@kernel
def build_words(values, offsets, ids, slots, pool):
    """Fills a word table with entries, none of them empty; of equal ones the first counts.

    Args:
      values, offsets: uint8[n_bytes + 16] and int64[n + 1]; ids: int32[n].
      slots: int64[power of two, more than n; 4], zeros; pool: uint8 with room for all entries of more than 16 bytes;
        filled.

    Returns:
      The number of entries; or COLLIDING, and not all are there, if far more slots were passed than chance explains.
    """
    n, used = 0, 0
    mask = np.uint64(slots.shape[0] - 1)
    most_passed = _PASSED * (ids.size + _PASSED)
    for t in range(ids.size):
        at = offsets[t]
        w = offsets[t + 1] - at
        k0, k1 = word_key(values, at, w)
        j, found = find(slots, pool, values, at, w, k0, k1)
        if not found:
            used = insert(slots, pool, used, j, values, at, w, k0, k1)
            slots[j, VALUE] = ids[t]
            n += 1
        most_passed -= np.int64((np.uint64(j) - first_slot(w, k0, k1, mask)) & mask)
        if most_passed < 0:
            return COLLIDING
    return n


@kernel_part
def whole_word(data, at, w, slots, pool):
    """Returns the id of the word `data[at:at + w]`, -1 if it is no entry; `data` is readable 16 bytes beyond `at`."""
    k0, k1 = word_key(data, at, w)
    j, found = find(slots, pool, data, at, w, k0, k1)
    return slots[j, VALUE] if found else np.int64(-1)


@kernel_part
def put_word(token, w, out, o, ends):
    """Writes the id of a word of w bytes that is one token; returns the new o."""
    out[o] = token
    ends[0] = w
    return o + 1


@kernel_part
def wordlevel_word(word, w, model, scratch, out, o, ends):
    """Writes the id of the word of w bytes to `out[o]`; model: `WordLevelTables`, the rest as in `bpe_word`."""
    token = whole_word(word, 0, w, model.slots, model.pool)
    return put_word(model.unk_id if token < 0 else token, w, out, o, ends), token < 0
