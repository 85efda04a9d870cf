# SPDX-License-Identifier: Apache-2.0
"""Finds the parts of SentencePiece's text in 64 bytes at once, by masks with a bit per byte.

The parts are those that `sentencepiece_units.part_stop` finds one after another.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import intrinsic, kernel_part, leading_zeros, load_u64, trailing_zeros, types
from tokenmill.tokenizer.compiling.vectors import I8, all_of, bits, load_bytes
from tokenmill.tokenizer.kernels.sentencepiece_units import IS_DEPENDENT, is_apart

BLOCK_READS = 64
# The masks of a block: spaces, tabs, line feeds, carriage returns, spaces or controls, bytes that are not ASCII, bytes
# that continue a character, ASCII letters, ASCII digits.
_SPACES, _TABS, _LINE_FEEDS, _RETURNS, _LOW, _HIGH, _INSIDE, _LETTERS, _DIGITS = range(9)

# The facts in `tables.block_masks`, all ones for yes, 0 for no. For each of BLOCK_BYTES, whether it is a SEPARATOR, and
# whether it is ALONE. Then for pairs of neighbours, by their classes, whether a part always ends between the two, and
# whether it sometimes does, so that it must be looked up: a letter, a digit, another graphic character, a separator,
# each before each of the first three; two separators; an ALONE byte next to anything.
BLOCK_BYTES = (0x09, 0x0A, 0x0D)
_PAIRS = 14
SEPARATES, STANDS_ALONE, ALWAYS_ENDS, SOMETIMES_ENDS = 0, 3, 6, 6 + _PAIRS
N_BLOCK_MASKS = 6 + 2 * _PAIRS
_SEPARATORS, _CONTROLS = 12, 13

_ONE = np.uint64(1)
_EVERY = ~np.uint64(0)


@intrinsic
def _classify(typingctx, array, index):
    """Returns the masks, see above, of the 64 bytes of a uint8 array at an index."""

    def codegen(context, builder, signature, args):
        def every(value):
            return all_of(I8, 64, value)

        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        text = load_bytes(builder, builder.gep(data, [args[1]]), 64)
        masks = [builder.icmp_unsigned("==", text, every(value)) for value in (0x20, *BLOCK_BYTES)]
        below = builder.icmp_unsigned("<", text, every(0x21))
        masks.append(builder.or_(below, builder.icmp_unsigned("==", text, every(0x7F))))
        masks.append(builder.icmp_signed("<", text, every(0)))
        masks.append(builder.icmp_signed("<", text, every(0xC0 - 0x100)))
        lower = builder.or_(text, every(0x20))
        masks.append(builder.icmp_unsigned("<", builder.sub(lower, every(ord("a"))), every(26)))
        masks.append(builder.icmp_unsigned("<", builder.sub(text, every(ord("0"))), every(10)))
        return context.make_tuple(builder, signature.return_type, [bits(builder, mask) for mask in masks])

    return types.UniTuple(types.uint64, 9)(array, types.int64), codegen


@kernel_part
def code_point_at(data, i):
    """Returns the code point at `i`, of any length; `data` is readable for eight bytes from there."""
    eight = load_u64(data, i)
    lead = eight & np.uint64(0xFF)
    second = (eight >> np.uint64(8)) & np.uint64(0x3F)
    third = (eight >> np.uint64(16)) & np.uint64(0x3F)
    if lead < np.uint64(0x80):
        return lead
    if lead < np.uint64(0xE0):
        return (lead & np.uint64(0x1F)) << np.uint64(6) | second
    if lead < np.uint64(0xF0):
        return (lead & np.uint64(0x0F)) << np.uint64(12) | second << np.uint64(6) | third
    fourth = (eight >> np.uint64(24)) & np.uint64(0x3F)
    return (lead & np.uint64(0x07)) << np.uint64(18) | second << np.uint64(12) | third << np.uint64(6) | fourth


@kernel_part
def _first_run(high, inside):
    """Returns where the first two neighbours begin that are not ASCII, after ASCII; 64 for both if there are none."""
    leads = high & ~inside
    # The addition carries over the bytes that continue a character, to the next character.
    behind = ((leads << _ONE) + inside) & leads
    first = leads & ~behind
    second = ((first << _ONE) + inside) & behind
    if second == np.uint64(0):
        return np.int64(64), np.int64(64)
    second &= ~second + _ONE
    return 63 - leading_zeros(first & (second - _ONE)), trailing_zeros(second)


@kernel_part
def _of_classes(said, k, letters, digits, signs):
    """Returns a mask of the characters whose class has a yes in `said`, in the order of classes, from k on."""
    return (letters & said[k]) | (digits & said[k + 1]) | (signs & said[k + 2])


@kernel_part
def _of_pairs(said, k, letters, digits, signs, separators, controls):
    """Returns a mask of the characters whose class and that of the one before have a yes in `said`, from k on."""
    second = separators & (separators << _ONE)
    return (
        ((letters << _ONE) & _of_classes(said, k, letters, digits, signs))
        | ((digits << _ONE) & _of_classes(said, k + 3, letters, digits, signs))
        | ((signs << _ONE) & _of_classes(said, k + 6, letters, digits, signs))
        | ((separators << _ONE) & _of_classes(said, k + 9, letters, digits, signs))
        | (second & said[k + _SEPARATORS])
        | ((controls | (controls << _ONE)) & said[k + _CONTROLS])
    )


@kernel_part
def block_parts(data, i, room, tables):
    """Finds the parts of 64 bytes.

    Args:
      data: uint8, readable BLOCK_READS + 8 bytes beyond `i`, where a part begins.
      room: the number of bytes of the row from `i` on, at least 1.
      tables: KnownTables.

    Returns:
      Masks `(starts, ends, behind_separator, words)`: where parts begin; where their last bytes are, as far as the
      block alone tells, and not in runs of characters that are not ASCII; which parts begin after separators that are
      dropped; all bytes that belong to words.
    """
    masks = _classify(data, i)
    n = min(room, np.int64(64))
    there = _EVERY >> np.uint64(64 - n)
    tabs, line_feeds, returns = masks[_TABS], masks[_LINE_FEEDS], masks[_RETURNS]
    said = tables.block_masks
    separators = there & (
        masks[_SPACES] | (tabs & said[SEPARATES]) | (line_feeds & said[SEPARATES + 1]) | (returns & said[SEPARATES + 2])
    )
    alone = (tabs & said[STANDS_ALONE]) | (line_feeds & said[STANDS_ALONE + 1]) | (returns & said[STANDS_ALONE + 2])
    unclear = masks[_LOW] & ~separators & ~alone & there
    # Nothing is known from the first unclear byte on.
    known = ((unclear & (~unclear + _ONE)) - _ONE) & there
    high, inside, letters = masks[_HIGH], masks[_INSIDE], masks[_LETTERS]
    characters = there & ~inside
    special = high | (high << _ONE)
    left = characters & ~special & ~_ONE
    if tables.shrink:
        left &= ~(separators | (separators << _ONE))
    digits = masks[_DIGITS]
    signs = ~(letters | digits | masks[_LOW] | high)
    breaks = left & (
        _of_pairs(said, ALWAYS_ENDS, letters, digits, signs, separators, alone) | (separators & ~(separators << _ONE))
    )
    left &= _of_pairs(said, SOMETIMES_ENDS, letters, digits, signs, separators, alone) & ~breaks
    while left != np.uint64(0):
        k = trailing_zeros(left)
        left &= left - _ONE
        before = np.uint64(data[np.uint64(i + k - 1)])
        here = np.uint64(data[np.uint64(i + k)])
        breaks |= np.uint64(tables.apart[(before << np.uint64(7)) | here]) << np.uint64(k)
    if high & there != np.uint64(0):
        first, second = _first_run(high & there, inside)
        # Look up each character that is not ASCII, and the ASCII next to it.
        left = (special | (high >> _ONE)) & characters
        more_breaks = np.uint64(0)
        before_entry = np.uint64(IS_DEPENDENT)
        while left != np.uint64(0):
            k = trailing_zeros(left)
            if k == second:
                # Blocks leave out runs, and the "▁" in front of one.
                run = _ONE << np.uint64(first)
                led = separators & ~(separators << _ONE) & (run >> _ONE)
                if led | (more_breaks & run) != np.uint64(0):
                    known &= (led if led != np.uint64(0) else run) - _ONE
                    break
            left &= left - _ONE
            entry = np.uint64(tables.characters[code_point_at(data, i + k)])
            more_breaks |= is_apart(before_entry, entry, tables.joins) << np.uint64(k)
            before_entry = entry
        breaks |= more_breaks & special & characters
    words = ~separators & ~alone & there
    if tables.shrink:
        words_only = there & ~separators
        behind = words_only & (separators << _ONE)
        starts = words_only & (behind | breaks | _ONE)
        ends = words_only & ((~there | separators | starts) >> _ONE)
    else:
        behind = np.uint64(0)
        starts = (separators & ~(separators << _ONE)) | breaks | _ONE
        ends = (starts | ~there) >> _ONE
    return starts, ends & known, behind, words
