# SPDX-License-Identifier: Apache-2.0
"""Where the units of SentencePiece's text lie in 64 bytes at once, by arithmetic on masks with a bit per byte.

Whatever the bytes mean, only those up to the space decide: a unit is what `sentencepiece_rows` would find byte by byte.
"""

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tokenizer.kernels.compiling import kernel_part

BLOCK_READS = 64
# What the masks of a block say: which bytes are spaces, tabs, line feeds, carriage returns, up to a space, not ASCII.
_SPACES, _TABS, _LINE_FEEDS, _RETURNS, _LOW, _HIGH = range(6)
# The bytes that `tables.block_separators` and `tables.block_alone` are about, in their order.
BLOCK_BYTES = (0x09, 0x0A, 0x0D)
_ONE = np.uint64(1)


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
        bits = [builder.bitcast(mask, ir.IntType(64)) for mask in masks]
        return context.make_tuple(builder, signature.return_type, bits)

    return types.UniTuple(types.uint64, 6)(array, types.int64), codegen


@kernel_part
def block_units(data, i, room, tables, shrink):
    """Returns where units begin and where their last bytes are, a bit per byte from `i` on, where a unit begins.

    A unit has its two bits or none: none if only what comes after the block, or a closer look, tells where it ends.
    Where runs of spaces shrink, no unit has any; all units but the first are then right behind one.

    Args:
      data: uint8, readable BLOCK_READS bytes beyond `i`; room: how many bytes of the row there are from `i` on, at
        least 1.
      tables: RawTables.
    """
    masks = _classify(data, i)
    beyond = np.uint64(0)
    if room < 64:
        beyond = ~np.uint64(0) << np.uint64(room)
    tabs, line_feeds, returns = masks[_TABS], masks[_LINE_FEEDS], masks[_RETURNS]
    tab_separates, line_feed_separates, return_separates = tables.block_separators
    tab_alone, line_feed_alone, return_alone = tables.block_alone
    separators = (
        masks[_SPACES] | (tabs & tab_separates) | (line_feeds & line_feed_separates) | (returns & return_separates)
    )
    # A character that is a unit of its own is one behind ASCII only.
    alone = (tabs & tab_alone) | (line_feeds & line_feed_alone) | (returns & return_alone)
    alone &= ~(masks[_HIGH] << _ONE)
    unclear = masks[_LOW] & ~separators & ~alone & ~beyond
    if shrink:
        separators |= beyond
        words = ~separators
        starts = words & (separators << _ONE | _ONE)
        ends = words & (separators >> _ONE)
    else:
        starts = (separators & ~(separators << _ONE)) | alone | (alone << _ONE) | _ONE
        ends = (starts | beyond) >> _ONE
    # Nothing from the first unclear byte on, nor the unit that it may belong to.
    known = (unclear & (~unclear + _ONE)) - _ONE
    return starts, ends & known & ~beyond
