# SPDX-License-Identifier: Apache-2.0
"""Where the parts of SentencePiece's text lie in 64 bytes at once, a bit per byte.

The parts are those that `sentencepiece_units.part_stop` finds one after another.
"""

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tokenizer.kernels.compiling import kernel_part, leading_zeros, load_u64, trailing_zeros
from tokenizer.kernels.sentencepiece_units import described_by, may_join

BLOCK_READS = 64
# What the masks of a block say: which bytes are spaces, tabs, line feeds, carriage returns, up to a space, not ASCII,
# which continue a character, and which are ASCII letters.
_SPACES, _TABS, _LINE_FEEDS, _RETURNS, _LOW, _HIGH, _INSIDE, _LETTERS = range(8)
# The bytes that `tables.block_separators` and `tables.block_alone` are about, in their order.
BLOCK_BYTES = (0x09, 0x0A, 0x0D)
_ONE = np.uint64(1)
_EVERY = ~np.uint64(0)


@intrinsic
def _classify(typingctx, array, index):
    """Returns masks of the 64 bytes at an index, by the names above."""

    def codegen(context, builder, signature, args):
        byte, block = ir.IntType(8), ir.VectorType(ir.IntType(8), 64)

        def every(value):
            return ir.Constant(block, [value] * 64)

        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        address = builder.gep(builder.bitcast(data, byte.as_pointer()), [args[1]])
        text = builder.load(builder.bitcast(address, block.as_pointer()), align=1)
        masks = [builder.icmp_unsigned("==", text, every(value)) for value in (0x20, *BLOCK_BYTES)]
        masks.append(builder.icmp_unsigned("<", text, every(0x21)))
        masks.append(builder.icmp_signed("<", text, every(0)))
        masks.append(builder.icmp_signed("<", text, every(0xC0 - 0x100)))
        lower = builder.or_(text, every(0x20))
        masks.append(builder.icmp_unsigned("<", builder.sub(lower, every(ord("a"))), every(26)))
        bits = [builder.bitcast(mask, ir.IntType(64)) for mask in masks]
        return context.make_tuple(builder, signature.return_type, bits)

    return types.UniTuple(types.uint64, 8)(array, types.int64), codegen


@kernel_part
def code_point_at(data, i):
    """Returns the character at `i`, of any length; `data` goes on for eight bytes."""
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
def ends_before(before, here, joins):
    """Returns 1 if a part may end between two characters, by what describes them, else 0, all without a branch."""
    is_end = (before != 0) & (here != 0) & (((before | here) < 0) | (not may_join(joins, before, here)))
    return np.uint64(is_end)


@kernel_part
def _first_run(high, inside):
    """Returns where two characters begin that are not ASCII, neither is the second, but what precedes them is.

    64 for both where there are none.
    """
    leads = high & ~inside
    # Adding carries over the bytes that continue a character, to the next one.
    behind = ((leads << _ONE) + inside) & leads
    first = leads & ~behind
    second = ((first << _ONE) + inside) & behind
    if second == np.uint64(0):
        return np.int64(64), np.int64(64)
    second &= ~second + _ONE
    return 63 - leading_zeros(first & (second - _ONE)), trailing_zeros(second)


@kernel_part
def block_parts(data, i, room, tables):
    """Finds the parts of 64 bytes.

    Args:
      data: uint8, readable BLOCK_READS + 8 bytes beyond `i`, where a part begins.
      room: how many bytes of the row there are from `i` on, at least 1.
      tables: KnownTables.

    Returns:
      `(starts, ends, single, behind_separator, words)`: where parts begin, where their last bytes are, a bit each or
      none; none if only what comes after the block, or a closer look, tells where it ends, nor in a run of characters
      that are not ASCII. Which of these ends are of parts of one character. Which parts begin behind separators that
      are left out. And all bytes that belong to words.
    """
    masks = _classify(data, i)
    n = min(room, np.int64(64))
    there = _EVERY >> np.uint64(64 - n)
    tabs, line_feeds, returns = masks[_TABS], masks[_LINE_FEEDS], masks[_RETURNS]
    tab_separates, line_feed_separates, return_separates = tables.block_separators
    tab_alone, line_feed_alone, return_alone = tables.block_alone
    separators = there & (
        masks[_SPACES] | (tabs & tab_separates) | (line_feeds & line_feed_separates) | (returns & return_separates)
    )
    alone = (tabs & tab_alone) | (line_feeds & line_feed_alone) | (returns & return_alone)
    unclear = masks[_LOW] & ~separators & ~alone & there
    # Nothing from the first unclear byte on.
    known = ((unclear & (~unclear + _ONE)) - _ONE) & there
    high, inside, letters = masks[_HIGH], masks[_INSIDE], masks[_LETTERS]
    characters = there & ~inside
    special = high | (high << _ONE)
    # Between two letters nothing ends.
    left = characters & ~special & ~(letters & (letters << _ONE)) & ~_ONE
    if tables.shrink:
        left &= ~(separators | (separators << _ONE))
    breaks = np.uint64(0)
    while left != np.uint64(0):
        k = trailing_zeros(left)
        left &= left - _ONE
        before = np.uint64(data[np.uint64(i + k - 1)])
        here = np.uint64(data[np.uint64(i + k)])
        breaks |= np.uint64(tables.apart[(before << np.uint64(7)) | here]) << np.uint64(k)
    if high & there != np.uint64(0):
        first, second = _first_run(high & there, inside)
        # Each of the others, and the ASCII beside it.
        left = (special | (high >> _ONE)) & characters
        more_breaks = np.uint64(0)
        described_before = np.int64(0)
        while left != np.uint64(0):
            k = trailing_zeros(left)
            if k == second:
                # Runs are not for blocks, nor the "▁" in front of one.
                run = _ONE << np.uint64(first)
                led = separators & ~(separators << _ONE) & (run >> _ONE)
                if led | (more_breaks & run) != np.uint64(0):
                    known &= (led if led != np.uint64(0) else run) - _ONE
                    break
            left &= left - _ONE
            described = described_by(tables.characters[code_point_at(data, i + k)])
            more_breaks |= ends_before(described_before, described, tables.joins) << np.uint64(k)
            described_before = described
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
    behind_first = ((starts << _ONE) + inside) & ~inside
    ends &= known
    return starts, ends, ends & (behind_first >> _ONE), behind, words
