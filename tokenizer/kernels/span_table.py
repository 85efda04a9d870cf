# SPDX-License-Identifier: Apache-2.0
"""The table of the encode loop: the bytes of a span of text -> its ids.

A line of the table is 64 bytes, as the processor reads them, and holds two slots of uint64[4]:

    0, 1  the key: up to 15 bytes as they are in the text, and in the highest byte how many;
          for longer spans a hash, then 0xFF and the length, and their bytes are in a pool
    2, 3  up to three ids of 32 bits and their number, plus `UNKNOWN` if one is the unknown token; if there are more
          than three, or the span is long: where in the pools ids and bytes are, and their number plus `POOLED`;
          from bit `LIMIT_SHIFT` of column 3 on, a number for the model: the limit of sums, see `sentencepiece_unigram`

Column 1 is 0 in empty slots. A span for which its line and the next have no room evicts another: the table does not
grow, and an evicted span is encoded again when it recurs.

Keys are bytes of the raw text, before normalization: "The" and "the" are two entries. So text is normalized only on a
miss.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.compiling.kernel import cgutils, intrinsic, ir, kernel_part, load_u64, types, unlikely
from tokenmill.tokenizer.kernels.word_table import long_key, same_bytes, word_key_anywhere

LONGEST = 15
"""The most bytes of a span that is its own key."""
POOLED, UNKNOWN = 1 << 31, 1 << 30
_N_BITS, _LIMIT_BITS = 13, 17
LIMIT_SHIFT = np.uint64(32 + _N_BITS)
MAX_LIMIT = (1 << _LIMIT_BITS) - 1
FLAG = np.uint64(1 << 63)
"""Added to the start of a span that must not share an entry with the same bytes without it; scanners say what for."""
IDS_USED, BYTES_USED, MISSES, EVICTIONS = 0, 1, 2, 3
"""Places in `Table.state`."""
_MOST_BYTES, _MOST_IDS = 1 << 12, 1 << 12
"""Longer spans are not put into the table."""
_N_MASK = (1 << _N_BITS) - 1
_ONE, _TWO, _THREE, _FOUR, _32 = (np.uint64(c) for c in (1, 2, 3, 4, 32))
_LONG = np.uint64(0xFF << 56)
_LOW = np.uint64(0xFFFFFFFF)
_DIRECT_BITS = np.uint64(20)
_DIRECT_MASK = np.uint64((1 << 20) - 1)
_DIRECT_UNKNOWN = np.uint64(1 << 63)
_FIRST_EIGHT = np.array([(1 << 8 * min(w, 8)) - 1 for w in range(16)], np.uint64)
_NEXT_EIGHT = np.array([(1 << 8 * max(w - 8, 0)) - 1 for w in range(16)], np.uint64)
_MIX_1, _MIX_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


class Table(NamedTuple):
    """The table: spans and their ids."""

    slots: npt.NDArray[np.uint64]
    """uint64[8 * n_lines], n_lines a power of two; see above."""
    direct: npt.NDArray[np.uint64]
    """uint64[0x10000], for characters of three bytes that are always a span: three ids of 20 bits, their number, and in
    the highest bit whether one is the unknown token; 0 until the character has been seen."""
    ids: npt.NDArray[np.int32]
    """int32[n]: the pool of ids."""
    words: npt.NDArray[np.uint8]
    """uint8[n]: the pool of bytes of long spans."""
    state: npt.NDArray[np.int64]
    """int64[4]: used of `ids`, used of `words`, misses, evictions."""


class Entry(NamedTuple):
    """A span, and what its slot holds besides ids."""

    at: int
    n_bytes: int
    key_0: int
    key_1: int
    slot: int
    """Where in `Table.slots` it is put."""
    limit: int
    """0..MAX_LIMIT."""
    absent: int
    """The id for unused places of the slot."""


@intrinsic
def ask_for_line(typingctx, array, index):
    """Prefetches the line of `array[index]`, uint64, which will be read soon."""

    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        address = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(8).as_pointer())
        i32 = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address.type, i32, i32, i32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(function, [address, i32(0), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(array, types.uint64), codegen


@intrinsic
def copy_four(typingctx, source, p, out, o):
    """Copies 16 bytes from `source[p]`, uint64 or int32, to `out[o:o + 4]`, int32."""

    def codegen(context, builder, signature, args):
        four = ir.VectorType(ir.IntType(32), 4).as_pointer()
        pointers = []
        for k in (0, 2):
            data = context.make_array(signature.args[k])(context, builder, args[k]).data
            pointers.append(builder.bitcast(builder.gep(data, [args[k + 1]]), four))
        builder.store(builder.load(pointers[0], align=4), pointers[1], align=4)
        return context.get_dummy_value()

    return types.void(source, types.uint64, out, types.int64), codegen


@intrinsic
def _fold(typingctx, a, b):
    """Returns the two halves of the product of two uint64, one xor the other."""

    def codegen(context, builder, signature, args):
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        high = builder.trunc(builder.lshr(product, wide(64)), ir.IntType(64))
        return builder.xor(high, builder.trunc(product, ir.IntType(64)))

    return types.uint64(types.uint64, types.uint64), codegen


@kernel_part
def hash_key(k0, k1):
    """Returns a hash of a key, uint64, best in its highest bits."""
    return _fold(k0 ^ _MIX_1, k1 ^ _MIX_2)


@kernel_part
def first_slot(k0, k1, shift):
    """Returns where in `slots` the line of a key begins; shift: 64 less the bits of the number of lines."""
    return (hash_key(k0, k1) >> shift) << _THREE


@kernel_part
def span_key(data, at, w):
    """Returns the key of the span `data[at:at + w]`."""
    if unlikely((at + 16 > data.size) & (w <= LONGEST)):
        k0, k1 = word_key_anywhere(data, at, w)
        return k0, k1 | np.uint64(w) << np.uint64(56)
    return key_within(data, at, w)


@kernel_part
def key_within(data, at, w):
    """Does what `span_key` does, where `data` is readable for 16 bytes from `at`."""
    if unlikely(w > LONGEST):
        return long_key(data, at, w), np.uint64(w) | _LONG
    n = np.uint64(w)
    return load_u64(data, at) & _FIRST_EIGHT[n], load_u64(data, at + 8) & _NEXT_EIGHT[n] | n << np.uint64(56)


@kernel_part
def _code_point(eight):
    """Returns the character in the lowest three bytes of `eight`; 0, which `direct` never has, if it has not three."""
    lead = eight & np.uint64(0xFF)
    c = (lead & np.uint64(15)) << np.uint64(12) | (eight >> _TWO) & np.uint64(63 << 6)
    is_three = np.uint64((lead >= np.uint64(0xE0)) & (lead <= np.uint64(0xEF)))
    return (c | (eight >> np.uint64(16)) & np.uint64(63)) * is_three


@kernel_part
def begins_run(direct, data, i):
    """Whether `direct` has the three characters from i on; `data` is readable for fifteen bytes from there."""
    first, second = direct[_code_point(load_u64(data, i))], direct[_code_point(load_u64(data, i + 3))]
    return (first != 0) & (second != 0) & (direct[_code_point(load_u64(data, i + 6))] != 0)


@kernel_part
def emit_direct(work, data, i, stop, o):
    """Appends the ids of the characters at the beginning of `data[i:stop]`, as long as `direct` has them.

    If there is a tally, it counts unknown characters by code point, and all others as the first: no branch on which it
    is. `data` is readable for eight bytes from each character on. Returns where it stopped, and the new o.
    """
    direct, characters, out = work.table.direct, work.tally.characters, work.out
    while i < stop:
        c = _code_point(load_u64(data, i))
        value = direct[c]
        if value == np.uint64(0):
            break
        if work.tallying:
            characters[c * (value >> np.uint64(63))] += 1
        out[np.uint64(o)] = np.int32(value & _DIRECT_MASK)
        out[np.uint64(o + 1)] = np.int32((value >> _DIRECT_BITS) & _DIRECT_MASK)
        out[np.uint64(o + 2)] = np.int32((value >> (_TWO * _DIRECT_BITS)) & _DIRECT_MASK)
        o += np.int64((value >> np.uint64(60)) & _THREE)
        i += 3
    return i, o


@kernel_part
def remember_direct(direct, code_point, out, before, o, has_unknown):
    """Keeps the ids `out[before:o]` of a character of three bytes, if they fit."""
    n = o - before
    value = np.uint64(n) << np.uint64(60)
    if has_unknown:
        value |= _DIRECT_UNKNOWN
    for q in range(min(n, 3)):
        if np.uint64(out[before + q]) > _DIRECT_MASK:
            return
        value |= np.uint64(out[before + q]) << (np.uint64(q) * _DIRECT_BITS)
    if 0 < n <= 3:
        direct[code_point] = value


@kernel_part
def emit_pooled(table, data, at, w, j, out, o):
    """Appends the ids of a span whose key is in slot j and whose ids are in the pool; `out` has room for three more.

    Returns `(o, whether the slot is of this span)`.
    """
    where, n = table.slots[j + _TWO], np.int64(table.slots[j + _THREE] >> _32)
    if w > LONGEST and not same_bytes(table.words, np.int64(where >> _32), data, at, w):
        return o, False
    p = where & _LOW
    n_ids = n & _N_MASK
    for q in range(0, n_ids, 4):
        copy_four(table.ids, p + np.uint64(q), out, o + q)
    return o + n_ids, True


@kernel_part
def find_span(table, data, at, w, k0, k1, j, out, o):
    """Looks for a span in two lines, from slot j on, and appends its ids.

    Returns `(o, whether it was there, whether it has an unknown token, the slot where it may be put)`.
    """
    slots = table.slots
    last = np.uint64(slots.size - 1)
    j &= ~np.uint64(7)
    for q in range(4):
        here = (j + np.uint64(4 * q)) & last
        if slots[here + _ONE] == 0:
            return o, False, False, here
        if slots[here] == k0 and slots[here + _ONE] == k1:
            n = np.int64(slots[here + _THREE] >> _32)
            has_unknown = n & UNKNOWN != 0
            if n < POOLED:
                copy_four(slots, here + _TWO, out, o)
                return o + (n & 3), True, has_unknown, here
            o, is_same = emit_pooled(table, data, at, w, here, out, o)
            return o, is_same, has_unknown and is_same, here
    table.state[EVICTIONS] += 1
    return o, False, False, (j + np.uint64(8) + ((k0 & _ONE) << _TWO)) & last


@kernel_part
def limit_of(slots, j):
    """Returns the limit in slot j."""
    return np.int64((slots[j + _THREE] >> LIMIT_SHIFT) & np.uint64(MAX_LIMIT))


@kernel_part
def remember_span(table, data, at, w, k0, k1, j, out, before, o, has_unknown):
    """Puts the ids `out[before:o]` of a span into slot j, if the pools have room."""
    remember_limited(table, data, Entry(at, w, k0, k1, j, np.uint64(0), np.uint64(0)), out, before, o, has_unknown)


@kernel_part
def remember_limited(table, data, entry, out, before, o, has_unknown):
    """Does what `remember_span` does, with a limit and the id of absent ones; entry: Entry."""
    at, w, k0, k1, j, limit, absent = entry
    slots, words, state = table.slots, table.words, table.state
    n = o - before
    marks = np.uint64(UNKNOWN if has_unknown else 0) << _32 | limit << LIMIT_SHIFT
    if n <= 3 and w <= LONGEST:
        a, b, c = absent, absent, absent
        if n > 0:
            a = np.uint64(out[before])
        if n > 1:
            b = np.uint64(out[before + 1])
        if n > 2:
            c = np.uint64(out[before + 2])
        slots[j + _TWO] = a | b << _32
        slots[j + _THREE] = c | np.uint64(n) << _32 | marks
    else:
        n_bytes, bytes_used = w if w > LONGEST else 0, state[BYTES_USED]
        if n_bytes > _MOST_BYTES or bytes_used + n_bytes > words.size:
            return
        if not pool_ids(table, j, bytes_used, out, before, o, marks):
            return
        for q in range(n_bytes):
            words[bytes_used + q] = data[at + q]
        state[BYTES_USED] = bytes_used + n_bytes
    slots[j], slots[j + _ONE] = k0, k1


@kernel_part
def pool_ids(table, j, bytes_at, out, before, o, marks):
    """Puts the ids `out[before:o]` into the pool, and into slot j where they and the bytes of the span are.

    marks: the flags and the limit for column 3 of the slot. The key is not written. If the pool has no room, returns
    False and changes nothing.
    """
    n, used = o - before, table.state[IDS_USED]
    if n > _MOST_IDS or used + n + 4 > table.ids.size:
        return False
    table.slots[j + _TWO] = np.uint64(used | bytes_at << 32)
    table.slots[j + _THREE] = np.uint64(n + POOLED) << _32 | marks
    for q in range(n):
        table.ids[used + q] = out[before + q]
    table.state[IDS_USED] = used + n
    return True
