# SPDX-License-Identifier: Apache-2.0
"""Finds words in 64 bytes of ASCII at once, by arithmetic on masks with a bit per byte, for BERT and SentencePiece.

A handful of vector comparisons classify 64 bytes, and shifts of the masks say where words begin and end, whatever their
number. Bit k is for byte i + k; `data` is readable for `BLOCK_READS` bytes after i. `blocks` does so for patterns.
"""

import functools
import string

import numpy as np

from tokenmill.tokenizer.compiling.kernel import intrinsic, kernel_part, types
from tokenmill.tokenizer.compiling.vectors import I8, all_of, bits, load_bytes

BLOCK_READS = 64
_ONE = np.uint64(1)
LETTERS, DIGITS, BLANKS, NEWLINES, TABS, SIGNS = range(6)
BYTES = {
    LETTERS: string.ascii_letters, DIGITS: string.digits, BLANKS: " ", NEWLINES: "\n\r", TABS: "\t",
    SIGNS: string.punctuation,
}  # fmt: skip
"""The characters of each mask."""


@intrinsic
def classify(typingctx, array, index):
    """Returns masks of the 64 bytes of a uint8 array at an index, by the names above: the letters, and so on."""

    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        text = load_bytes(builder, builder.gep(data, [args[1]]), BLOCK_READS)

        def among(characters):
            # A comparison for each run of characters.
            points = {*characters.encode()}
            firsts = {c: next(n for n in range(1, 128) if c + n not in points) for c in points if c - 1 not in points}
            runs = [
                builder.icmp_unsigned("<", builder.sub(text, all_of(I8, BLOCK_READS, c)), all_of(I8, BLOCK_READS, n))
                for c, n in firsts.items()
            ]
            return bits(builder, functools.reduce(builder.or_, runs))

        return context.make_tuple(builder, signature.return_type, [among(BYTES[mask]) for mask in range(len(BYTES))])

    return types.UniTuple(types.uint64, len(BYTES))(array, types.int64), codegen


@kernel_part
def _known_bits(unknown):
    """Returns the bits before the first set one, or the end of the block, less the last: its neighbour decides too."""
    return ((unknown & (~unknown + _ONE)) - _ONE) >> _ONE


@kernel_part
def bert_words(data, i, room, digits_apart):
    """Returns three masks: where words begin and where their last bytes are, by BertPreTokenizer, and the white space.

    `room`, at least 1, is the number of bytes of the text from i on. A word may have a start without an end: then what
    comes after the known bytes decides where it ends. digits_apart: uint64, see unicode_tables.BertTables.
    """
    masks = classify(data, i)
    within = ~np.uint64(0) >> np.uint64(64 - min(room, 64))
    words = (masks[LETTERS] | (masks[DIGITS] & ~digits_apart)) & within
    signs = (masks[SIGNS] | (masks[DIGITS] & digits_apart)) & within
    spaces = (masks[BLANKS] | masks[NEWLINES] | masks[TABS]) & within
    unknown = within & ~(words | signs | spaces)
    starts = words & ~(words << _ONE) | signs
    ends = words & ~(words >> _ONE) | signs
    if unknown != np.uint64(0) or room >= 64:
        ends &= _known_bits(unknown)
    return starts, ends, spaces


@kernel_part
def blank_words(data, i, separators):
    """Finds words between white space: blanks, and tabs and line ends if their masks in `separators` are all ones.

    Any other control character ends what is known. Returns where words start, and the places after them.
    """
    masks = classify(data, i)
    words = masks[LETTERS] | masks[DIGITS] | masks[SIGNS]
    between = masks[BLANKS] | (masks[TABS] & separators[0]) | (masks[NEWLINES] & separators[1])
    known = _known_bits(~(words | between))
    return words & ~(words << _ONE) & known | _ONE, words << _ONE & ~words
