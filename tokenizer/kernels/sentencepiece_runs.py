# SPDX-License-Identifier: Apache-2.0
"""Where the parts of SentencePiece's text lie in 64 characters at once that are not ASCII, a bit per character.

The parts are those that `sentencepiece_units.part_stop` finds one after another. For ASCII see `sentencepiece_blocks`.
"""

import numpy as np
from llvmlite import ir

from tokenizer.kernels.compiling import count_ones, intrinsic, kernel_part, trailing_zeros, types, unlikely
from tokenizer.kernels.sentencepiece_units import (
    IS_ALONE,
    IS_CONTROL,
    IS_DEPENDENT,
    IS_SEPARATOR,
    JOIN_BITS,
    UNKNOWN,
    UNKNOWN_MASK,
)
from tokenizer.kernels.vectors import I8, I32, I64, all_of, bits, gather, load_bytes, pick, spread

# What `notes` holds from its beginning on, for every place where a part may begin: the entry of the character there, or
# the ids of the part, as a slot has them; how many these are; the byte where it begins, and one more for the end.
COUNTS, PLACES = np.uint64(64), np.uint64(128)
_ONE = np.uint64(1)
_ALL = ~np.uint64(0)

_N = 16
"""Characters that `_next_characters` looks at."""
_KNOWN_BYTES = 57
"""Of 64 bytes so many are followed by seven others of them, so that it can be seen whether eight bytes of ASCII begin
there. Fourteen characters are no longer."""
_LAST_CODE_POINT = 0x10FFFF


@intrinsic
def _next_characters(typingctx, data, at, before, characters, joins, notes, n):
    """Notes the entries of 16 characters, and where each and the one behind them begin.

    The entries of the neighbours are read together, whatever the lengths of the characters: a loop over characters
    takes one as soon as it is known where the last one ends.

    Args:
      data, at: uint8, readable 68 bytes from `at` on, where a character begins.
      before: the entry of the character before.
      characters, joins: of KnownTables.
      notes, n: as in `run_parts`; what is noted begins at place n.

    Returns:
      How many bytes the characters have. Then masks of the next 64 bytes: where characters begin, which are not ASCII.
      Then masks of the characters: which are alone, dependent, separators, controls; have no id; are unknown; are
      joined with the one before.
    """

    def codegen(context, builder, signature, args):
        _, at, before, _, _, _, n = args
        data, characters, joins, notes = (
            context.make_array(signature.args[k])(context, builder, args[k]).data for k in (0, 3, 4, 5)
        )
        text = builder.gep(data, [at])
        block = load_bytes(builder, text, 64)
        high = bits(builder, builder.icmp_signed("<", block, all_of(I8, 64, 0)))
        begins = bits(builder, builder.icmp_signed(">=", block, all_of(I8, 64, 0xC0 - 0x100)))

        # Four bytes from each beginning on.
        noted = builder.gep(notes, [n])
        places = builder.gep(noted, [I64(int(PLACES))])
        four = ir.Constant(ir.VectorType(I32, _N), ir.Undefined)
        left = begins
        for k in range(_N + 1):
            offset = builder.cttz(left, ir.Constant(ir.IntType(1), 0))
            left = builder.and_(left, builder.sub(left, I64(1)))
            builder.store(builder.add(at, offset), builder.gep(places, [I64(k)]))
            if k < _N:
                word = builder.bitcast(builder.gep(text, [offset]), I32.as_pointer())
                four = builder.insert_element(four, builder.load(word, align=1), I32(k))

        def every(value):
            return all_of(I32, _N, value)

        def shifted(values, count):
            return builder.lshr(values, every(count))

        def only(values, kept):
            return builder.and_(values, every(kept))

        # As many bytes as the first one says, six bits from each but the first.
        lead = only(four, 0xFF)
        points = read = lead
        for least, shift, kept in ((0x80, 8, 0x7FF), (0xE0, 16, 0xFFFF), (0xF0, 24, 0x1FFFFF)):
            read = builder.or_(builder.shl(read, every(6)), only(shifted(four, shift), 0x3F))
            points = builder.select(builder.icmp_unsigned(">=", lead, every(least)), only(read, kept), points)
        # What is behind the row may be anything.
        is_one = builder.icmp_unsigned("<=", points, every(_LAST_CODE_POINT))
        entries = gather(builder, characters, builder.select(is_one, points, every(0)), I64)
        builder.store(entries, builder.bitcast(noted, entries.type.as_pointer()), align=8)

        # As `sentencepiece_units.joined`.
        halves = builder.bitcast(entries, ir.VectorType(I32, 2 * _N))
        lows, highs = (pick(builder, halves, halves, range(k, 2 * _N, 2)) for k in range(2))
        as_left = builder.or_(shifted(lows, JOIN_BITS), builder.shl(highs, every(32 - JOIN_BITS)))
        first_left = builder.trunc(builder.lshr(before, I64(JOIN_BITS)), I32)
        neighbours = pick(builder, as_left, spread(builder, first_left, _N), [_N, *range(_N - 1)])
        bit = only(builder.xor(neighbours, lows), (1 << JOIN_BITS) - 1)
        held = builder.lshr(gather(builder, joins, shifted(bit, 5), I32), only(bit, 31))

        masks = [
            builder.icmp_unsigned("!=", only(highs, flag >> 32), every(0))
            for flag in (IS_ALONE, IS_DEPENDENT, IS_SEPARATOR, IS_CONTROL, 1 << 63)
        ]
        masks.append(builder.icmp_unsigned("==", only(highs, UNKNOWN_MASK >> 32), every(UNKNOWN >> 32)))
        masks.append(builder.icmp_unsigned("!=", only(held, 1), every(0)))
        found = [offset, begins, high, *(bits(builder, mask) for mask in masks)]
        return context.make_tuple(builder, signature.return_type, found)

    return types.UniTuple(types.uint64, 10)(data, at, before, characters, joins, notes, n), codegen


@kernel_part
def run_parts(data, i, end, n_readable, characters, joins, shrink, notes):
    """Finds the parts of up to 64 characters, up to an unknown one, or one with which eight bytes of ASCII begin.

    Args:
      data, i, end: as for `emit_known`; n_readable: where to stop at the latest.
      characters, joins, shrink: of KnownTables.
      notes: int64, at least 208, filled with the entries of the characters and where they begin, and the last one ends.

    Returns:
      `(n, starts, ends, behind_separator, words, has_id, is_closer)`: n characters; a bit for each of them where parts
      begin, and end, as far as that is known; as in `block_parts`; which have an id alone. Whether what follows wants a
      closer look.
    """
    at = i
    limit = min(end, n_readable)
    n = np.uint64(0)
    n_seen = np.uint64(0)
    before, row_end = np.uint64(0), np.uint64(0)
    alone, dependent, separators, controls = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
    no_id, together = np.uint64(0), np.uint64(0)
    is_closer = False
    while n < np.uint64(64) and at < n_readable:
        if at >= end:
            row_end = _ONE << n
            break
        found = _next_characters(data, at, before, characters, joins, notes, n)
        n_bytes, begins, high, unknown = found[0], found[1], found[2], found[8]
        # Looked at again behind the last one that is taken, they say the same.
        alone |= found[3] << n
        dependent |= found[4] << n
        separators |= found[5] << n
        controls |= found[6] << n
        no_id |= found[7] << n
        together |= found[9] << n
        ascii_begins = ~high
        ascii_begins &= ascii_begins >> _ONE
        ascii_begins &= ascii_begins >> np.uint64(2)
        ascii_begins &= ascii_begins >> np.uint64(4)
        beyond = _ALL << np.uint64(min(limit - at, np.int64(_KNOWN_BYTES)))
        ascii_begins &= ~beyond
        if n == np.uint64(0):
            ascii_begins &= ~_ONE
        stop = np.uint64(trailing_zeros(ascii_begins | beyond))
        n_more = np.uint64(count_ones(begins & ((_ONE << stop) - _ONE)))
        is_ascii = n_more < np.uint64(_N) and (ascii_begins >> stop) & _ONE != np.uint64(0)
        n_more = min(n_more, np.uint64(_N))
        if unlikely(unknown & ((_ONE << n_more) - _ONE) != np.uint64(0)):
            n = min(n + np.uint64(trailing_zeros(unknown)), np.uint64(64))
            is_closer = n < np.uint64(64)
            n_seen = n + np.uint64(is_closer)
            break
        n = min(n + n_more, np.uint64(64))
        n_seen = n
        if is_ascii:
            if n < np.uint64(64):
                is_closer = (unknown >> n_more) & _ONE != np.uint64(0)
                n_seen = n + _ONE
            break
        before = np.uint64(notes[n - _ONE])
        if unlikely(n_more < np.uint64(_N)):
            at = notes[PLACES + n]
        else:
            # The same, but known sooner than what has just been stored can be read.
            at += np.int64(n_bytes)
    if n == np.uint64(0):
        none = np.uint64(0)
        return np.int64(0), none, none, none, none, none, is_closer
    # To begin with every part has one id.
    for q in range(64):
        notes[COUNTS + np.uint64(q)] = 1
    there = _ALL if n == np.uint64(64) else (_ONE << n) - _ONE
    seen = _ALL if n_seen == np.uint64(64) else (_ONE << n_seen) - _ONE
    separators &= seen
    breaks = (~together | alone | (alone << _ONE)) & ~(dependent | (dependent << _ONE)) & seen
    words = there & ~separators & ~controls
    if shrink:
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
