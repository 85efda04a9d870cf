# SPDX-License-Identifier: Apache-2.0
"""Finds words in 64 bytes of ASCII at once, by arithmetic on masks with a bit per byte, for BERT and SentencePiece.

A handful of vector comparisons classify 64 bytes, and shifts of the masks say where words begin and end, whatever their
number. Bit k is for byte i + k; `data` is readable for `BLOCK_READS` bytes after i. `blocks` does so for patterns.
"""

import functools
import string

import numpy as np
from llvmlite import ir

from tokenmill.tokenizer.compiling.kernel import intrinsic, kernel_part, types

BLOCK_READS = 64
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_THREE = np.uint64(3)
(
    LETTERS, UPPERS, DIGITS, SPACES, BLANKS, NEWLINES, APOSTROPHES, SLASHES, TABS, SIGNS, UNDERSCORES, HIGH,
) = range(12)  # fmt: skip
BYTES = {
    LETTERS: string.ascii_letters, UPPERS: string.ascii_uppercase, DIGITS: string.digits, SPACES: "\t\n\v\f\r ",
    BLANKS: " ", NEWLINES: "\n\r", APOSTROPHES: "'", SLASHES: "/", TABS: "\t", SIGNS: string.punctuation,
    UNDERSCORES: "_",
}  # fmt: skip
"""The characters of each mask but HIGH, which has the bytes that are not ASCII."""


@intrinsic
def classify(typingctx, array, index):
    """Returns masks of the 64 bytes of a uint8 array at an index, by the names above: the letters, and so on."""

    def codegen(context, builder, signature, args):
        byte, block = ir.IntType(8), ir.VectorType(ir.IntType(8), 64)

        def every(value):
            return ir.Constant(block, [value] * 64)

        def among(vector, mask):
            # A comparison for each run of characters.
            points = {ord(c) for c in BYTES[mask]}
            firsts = {c: next(n for n in range(1, 128) if c + n not in points) for c in points if c - 1 not in points}
            runs = [builder.icmp_unsigned("<", builder.sub(vector, every(c)), every(n)) for c, n in firsts.items()]
            return functools.reduce(builder.or_, runs)

        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        address = builder.gep(builder.bitcast(data, byte.as_pointer()), [args[1]])
        text = builder.load(builder.bitcast(address, block.as_pointer()), align=1)
        masks = [among(text, mask) for mask in range(HIGH)]
        masks.append(builder.icmp_signed("<", text, every(0)))
        bits = [builder.bitcast(mask, ir.IntType(64)) for mask in masks]
        return context.make_tuple(builder, signature.return_type, bits)

    return types.UniTuple(types.uint64, 12)(array, types.int64), codegen


@kernel_part
def _lowest(mask):
    """Returns the lowest set bit of a mask, uint64; 0 if none is set."""
    return mask & (~mask + _ONE)


@kernel_part
def below(mask):
    """Returns the bits below the lowest set bit of a mask, all bits if none is set."""
    return _lowest(mask) - _ONE


@kernel_part
def known_bits(high):
    """Returns the bits before the first set one, or the end of the block, less the last: its neighbour decides too."""
    return below(high) >> _ONE


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
        ends &= known_bits(unknown)
    return starts, ends, spaces


@kernel_part
def blank_words(data, i, separators):
    """Finds words between white space: blanks, and tabs and line ends if their masks in `separators` are all ones.

    Any other control character ends what is known. Returns where words start, and the places after them.
    """
    masks = classify(data, i)
    words = masks[LETTERS] | masks[DIGITS] | masks[SIGNS]
    between = masks[BLANKS] | (masks[TABS] & separators[0]) | (masks[NEWLINES] & separators[1])
    known = known_bits(~(words | between))
    return words & ~(words << _ONE) & known | _ONE, words << _ONE & ~words
