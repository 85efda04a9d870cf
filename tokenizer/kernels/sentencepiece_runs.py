# SPDX-License-Identifier: Apache-2.0
"""Where the parts of SentencePiece's text lie in 64 characters at once that are not ASCII, a bit per character.

The parts are those that `sentencepiece_units.part_stop` finds one after another. For ASCII see `sentencepiece_blocks`.
"""

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tokenizer.kernels.compiling import kernel_part, load_u64
from tokenizer.kernels.sentencepiece_blocks import code_point_at
from tokenizer.kernels.sentencepiece_units import (
    IS_ALONE,
    IS_CONTROL,
    IS_DEPENDENT,
    IS_SEPARATOR,
    is_unknown,
    joined,
)
from tokenizer.kernels.utf8 import HIGH_BITS

# What `notes` holds from its beginning on, for every place where a part may begin: the entry of the character there, or
# the ids of the part, as a slot has them; how many these are; the byte where it begins, and one more for the end.
COUNTS, PLACES = np.uint64(64), np.uint64(128)
_ONE = np.uint64(1)


@intrinsic
def _flags(typingctx, entries, index):
    """Returns masks of which of 16 entries from an index on are alone, dependent, separators, controls, have no id."""

    def codegen(context, builder, signature, args):
        block = ir.VectorType(ir.IntType(64), 16)
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        address = builder.bitcast(builder.gep(data, [args[1]]), block.as_pointer())
        values = builder.load(address, align=8)
        masks = [
            builder.icmp_unsigned(
                "!=", builder.and_(values, ir.Constant(block, [flag] * 16)), ir.Constant(block, [0] * 16)
            )
            for flag in (IS_ALONE, IS_DEPENDENT, IS_SEPARATOR, IS_CONTROL, -1 << 63)
        ]
        bits = [builder.zext(builder.bitcast(mask, ir.IntType(16)), ir.IntType(64)) for mask in masks]
        return context.make_tuple(builder, signature.return_type, bits)

    return types.UniTuple(types.uint64, 5)(entries, types.uint64), codegen


@kernel_part
def run_parts(data, i, end, n_readable, tables, notes):
    """Finds the parts of up to 64 characters, up to an unknown one, or one with which eight bytes of ASCII begin.

    Args:
      data, i, end: as for `emit_known`; n_readable: where to stop at the latest.
      tables: KnownTables.
      notes: int64, at least 193, filled with the entries of the characters and where they begin, and the last one ends.

    Returns:
      `(n, starts, ends, behind_separator, words, has_id, is_closer)`: n characters; a bit for each of them where parts
      begin, and end, as far as that is known; as in `block_parts`; which have an id alone. Whether what follows wants a
      closer look.
    """
    characters, joins = tables.characters, tables.joins
    at = i
    n = np.uint64(0)
    before = np.uint64(0)
    joins_before, row_end = np.uint64(0), np.uint64(0)
    is_closer = False
    limit = min(end, n_readable)
    n_seen = np.uint64(0)
    while n < np.uint64(64) and at < n_readable:
        if at >= end:
            row_end = _ONE << n
            break
        eight = load_u64(data, at)
        stop = min(np.uint64(64), n + np.uint64(limit - at + 2) // np.uint64(3))
        while n < stop and eight & np.uint64(0xF0) == np.uint64(0xE0):
            # The same as below, for most of what comes here: characters of three bytes with an id.
            entry = characters[
                (eight & np.uint64(0x0F)) << np.uint64(12)
                | ((eight >> np.uint64(8)) & np.uint64(0x3F)) << np.uint64(6)
                | ((eight >> np.uint64(16)) & np.uint64(0x3F))
            ]
            if entry < 0:
                break
            joins_before |= joined(before, np.uint64(entry), joins) << n
            notes[n] = entry
            notes[PLACES + n] = at
            n += _ONE
            at += 3
            before = np.uint64(entry)
            eight = load_u64(data, at)
        n_seen = n
        if n == stop:
            continue
        lead = eight & np.uint64(0xFF)
        is_last = False
        if lead >= np.uint64(0x80):
            code_point = code_point_at(data, at)
            after = at + (2 if lead < np.uint64(0xE0) else 3 if lead < np.uint64(0xF0) else 4)
        else:
            code_point = lead
            after = at + 1
            is_last = n > np.uint64(0) and eight & HIGH_BITS == np.uint64(0)
        entry = characters[code_point]
        joins_before |= joined(before, np.uint64(entry), joins) << n
        notes[n] = entry
        notes[PLACES + n] = at
        is_closer = is_unknown(entry)
        n_seen = n + _ONE
        if is_last or is_closer:
            break
        n = n_seen
        at = after
        before = np.uint64(entry)
    notes[PLACES + n] = at
    if n == np.uint64(0):
        none = np.uint64(0)
        return np.int64(0), none, none, none, none, none, is_closer
    # What the entries seen say, 16 at a time; to begin with every part has one id.
    alone, dependent, separators, controls, no_id = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
    k = np.uint64(0)
    while k < n_seen:
        flags = _flags(notes, k)
        alone |= flags[0] << k
        dependent |= flags[1] << k
        separators |= flags[2] << k
        controls |= flags[3] << k
        no_id |= flags[4] << k
        for q in range(16):
            notes[COUNTS + k + np.uint64(q)] = 1
        k += np.uint64(16)
    there = ~np.uint64(0) if n == np.uint64(64) else (_ONE << n) - _ONE
    seen = ~np.uint64(0) if n_seen == np.uint64(64) else (_ONE << n_seen) - _ONE
    separators &= seen
    breaks = (~joins_before | alone | (alone << _ONE)) & ~(dependent | (dependent << _ONE)) & seen
    words = there & ~separators & ~controls
    if tables.shrink:
        inside = there & ~separators
        behind = inside & (separators << _ONE)
        starts = inside & (behind | breaks | _ONE)
        ends = inside & ((separators | breaks | row_end) >> _ONE)
    else:
        behind = np.uint64(0)
        breaks |= separators & ~(separators << _ONE)
        starts = there & (breaks | _ONE)
        ends = there & ((breaks | row_end) >> _ONE)
    return np.int64(n), starts, ends, behind, words, ~no_id, is_closer
