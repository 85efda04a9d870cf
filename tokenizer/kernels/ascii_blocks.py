# SPDX-License-Identifier: Apache-2.0
"""Finds where pre-tokens begin in 64 bytes of ASCII at once, by arithmetic on masks with a bit per byte.

A scanner that goes from word to word waits for the end of one before it can look at the next. Here a handful of vector
comparisons classify 64 bytes, and shifts of the masks say where words begin, whatever their number.

A function `<name>_starts(data, i)` belongs to the scanner `next_<name>` of `scanning.SCANNERS`. A pre-token begins at
byte i. Bit k of the result, a uint64, says whether one begins at i + k too, for every k before the first place that the
function cannot tell, and is 0 from there on. The bytes between two set bits are one pre-token. Bit 0 is always set.
`data` is readable for `BLOCK_READS` bytes after i. The caller masks what belongs to another text, together with the
last byte of this one, since the neighbour of a byte decides too.

If pre-tokens do not follow one another directly, starts are as above, and `<name>_stops` has a bit for every place
right after a pre-token: the pre-token that begins at the first start ends at the first stop, and so on.
"""

import functools
import string

import numpy as np
from llvmlite import ir

from tokenmill.tokenizer.compiling.kernel import intrinsic, kernel_part, leading_zeros, types

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
def up_to(mask):
    """Returns the lowest set bit of a mask and those below, all bits if none is set."""
    return _lowest(mask) | below(mask)


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
def _white_space_starts(spaces, newlines, others, high):
    r"""Returns where pre-tokens of white space begin by `\s*[\r\n]+|\s+(?!\S)|\s+`, and a mask of where that is known.

    Line ends right after `others` belong to these. A run of white space is known if its line ends come first. One that
    has other white space before a line end, or that reaches the end of the block or a byte that is not ASCII, is left
    to the scanner, which counts from the beginning of the run.
    """
    inner = spaces & ~newlines
    first_inner = inner & ~(inner << _ONE)
    after_inner = (inner + first_inner) & ~inner
    first = spaces & ~(spaces << _ONE)
    starts = first & ~(newlines & others << _ONE) | first_inner | inner & ~(inner >> _ONE)
    # If a run may go on beyond the ASCII of the block, maybe to a line end, only its beginning is known.
    n_last = leading_zeros(below(high) & ~spaces)
    known = (_TWO << np.uint64(64 - n_last)) - _ONE if n_last > 0 else ~np.uint64(0)
    # The runs that begin before the first line end that follows other white space; the last of them contains it.
    before = first & below(after_inner & newlines)
    if after_inner & newlines != np.uint64(0):
        known &= _ONE | (~np.uint64(0) >> np.uint64(leading_zeros(before)))
    return starts, known


@kernel_part
def word_starts(data, i, n_numbers, cased):
    """Finds starts like `cl100k_starts` or, if `cased`, `o200k_starts`, without contractions; also masks for these."""
    masks = classify(data, i)
    letters, digits, spaces, blanks = masks[LETTERS], masks[DIGITS], masks[SPACES], masks[BLANKS]
    newlines = masks[NEWLINES]
    others = ~(letters | digits | spaces | masks[HIGH])
    first_others = others & ~(others << _ONE) & ~(blanks << _ONE)
    white, known = _white_space_starts(spaces, newlines, others, masks[HIGH])
    # A character before letters joins them if it is no line end and a pre-token could begin with it.
    taken = spaces & ~newlines | first_others & ~(others >> _ONE)
    starts = white | first_others | letters & ~(letters << _ONE) & ~(taken << _ONE)
    if cased:
        upper = masks[UPPERS]
        starts |= upper & (letters & ~upper) << _ONE
        known &= below(masks[SLASHES] & newlines << _ONE)
    if n_numbers == 1:
        starts |= digits
    else:
        starts |= digits & ~(digits << _ONE)
        if n_numbers > 0:
            # Runs of more digits are left to the scanner, which counts them.
            known &= up_to(digits & digits >> _ONE & digits >> _TWO & digits >> _THREE)
    return starts & known & known_bits(masks[HIGH]), first_others & masks[APOSTROPHES], letters, masks[APOSTROPHES]


@kernel_part
def run_stops(masks_of_runs, singles):
    """Returns the places right after the runs of each mask, and after each single byte."""
    stops = singles << _ONE
    for mask in masks_of_runs:
        stops |= mask << _ONE & ~mask
    return stops


@kernel_part
def blank_words(data, i, separators):
    """Finds words between white space: blanks, and tabs and line ends if their masks in `separators` are all ones.

    Any other control character ends what is known. Returns starts and stops, as above.
    """
    masks = classify(data, i)
    words = masks[LETTERS] | masks[DIGITS] | masks[SIGNS]
    between = masks[BLANKS] | (masks[TABS] & separators[0]) | (masks[NEWLINES] & separators[1])
    known = known_bits(~(words | between))
    return words & ~(words << _ONE) & known | _ONE, words << _ONE & ~words


@kernel_part
def no_starts(data, i):
    """Tells nothing; for scanners that have no function of their own."""
    return _ONE
