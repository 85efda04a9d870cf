# SPDX-License-Identifier: Apache-2.0
"""Finds where pre-tokens begin in 64 bytes of ASCII at once, by rules that come as data.

An automaton that goes from word to word waits for the end of one before it can look at the next. Here a table gives
each byte a class, and three more tables say for each class at each place of a window, two bytes before, one before, the
place itself, and one after, which of some rules hold there. A pre-token begins where one rule holds at all four places.
Each table has 16 entries, so that one instruction looks up 16 to 64 bytes.

`pre_tokenizers.boundaries` derives the rules from the automata of a pattern; they are for texts in which a pre-token
begins at the first byte of the block. `data` is readable for 64 bytes after i.

Its reference implementation is `tokenmill.tokenizer.pre_tokenizers.patterns.find_segments`;
`tests/tokenizer/pre_tokenizers/test_boundaries.py` compares them.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir

from tokenmill.tokenizer.compiling.kernel import count_ones, intrinsic, kernel_part, leading_zeros, types
from tokenmill.tokenizer.compiling.vectors import I8, I64, all_of, bits, constant, load_bytes, pick
from tokenmill.tokenizer.kernels.spans import expand

N_CLASSES = 15
"""Numbers of classes of bytes, with HIGH."""
HIGH, EDGE = 0, 15
"""The class of bytes that are not ASCII, or have none of their own; in a window, what is before a block."""
CLASSES, STEPS, LOOKS, SHARES, RUNS = 0, 8, 16, 24, 27
"""Where the parts of `Rules.tables` begin."""
N_TABLES = 29
STARTS, SECOND = 1, 2
"""Bits of an outcome: a pre-token begins here; one ends here, or, where several patterns cut, the first one cuts."""
BLOCK = 64
STRIDE = 56
"""From one block to the next, if more of the first is known. A stride that does not depend on what is found lets a
processor begin with the next block early: English is encoded in 0.83 of the time."""
AT_START, AT_SEGMENT, INSIDE = 0, 1, 2
"""What is known of the beginning of a block, see `find_boundaries`."""
N_PLACES = 24
"""See `put_places`; few blocks have more words."""
_N = 16
_ONE = np.uint64(1)
_ALL = ~np.uint64(0)


class Rules(NamedTuple):
    """Where pre-tokens begin in ASCII."""

    tables: npt.NDArray[np.uint8]
    """uint8[N_TABLES, 16]. CLASSES: those of ASCII. STEPS: each row of these, combined with the row before by exclusive
    or. LOOKS: for each place of a window, by class, rules for starts; then further rules. SHARES: which of these are
    for starts, second outcomes, and where nothing is known, 16 times each. RUNS: 0x80 for white space, and line ends.

    If a run of white space is followed by a line end, a byte that is not ASCII, or the end of the block or text, only
    its first byte is known, and that only if no line end is before it."""
    pairs: npt.NDArray[np.uint8]
    """uint8[w, w]: by the kinds of two characters, see `automata`, the outcome between them if a segment begins with
    the first, or with a run of ideographs of its kind, and ends behind it; 0 if that is not known. The second outcome,
    where all segments are words: all patterns may begin anew there."""


@intrinsic
def _apply(typingctx, array, index, tables, class_2, class_1):
    """Returns masks of the 64 bytes at an index: starts, second outcomes, unknown; white space, line ends, not ASCII.

    tables: see `Rules`; class_2, class_1: int64, the classes of the two bytes before.
    """

    def codegen(context, builder, signature, args):
        data, rules = (
            context.make_array(kind)(context, builder, value).data
            for kind, value in ((signature.args[0], args[0]), (signature.args[2], args[2]))
        )
        text = load_bytes(builder, builder.gep(data, [args[1]]), BLOCK)
        zero = all_of(I8, BLOCK, 0)

        def table(n):
            return load_bytes(builder, builder.gep(rules, [ir.Constant(I64, _N * n)]), _N)

        def look(n, values):
            return _look_up(context, builder, table(n), values)

        classes = _classify(context, builder, text, builder.gep(rules, [ir.Constant(I64, _N * CLASSES)]), table)
        # Byte by byte LLVM would insert all of the last 16.
        before = builder.or_(builder.shl(args[3], I64(8 * 6)), builder.shl(args[4], I64(8 * 7)))
        edge = builder.insert_element(all_of(I64, 8, 0), before, ir.Constant(ir.IntType(32), 7))
        edge, high = builder.bitcast(edge, text.type), all_of(I8, BLOCK, HIGH)
        window = [pick(builder, edge, classes, range(BLOCK - by, 2 * BLOCK - by)) for by in (2, 1)]
        window += classes, pick(builder, classes, high, range(1, BLOCK + 1))
        groups = [_all_hold(builder, [look(LOOKS + 4 * g + k, window[k]) for k in range(4)]) for g in range(2)]
        first = all_of(ir.IntType(32), BLOCK, 0)
        own, second, unknown = (
            builder.and_(groups[1], builder.shuffle_vector(table(SHARES + n), table(SHARES + n), first))
            for n in range(3)
        )
        vectors = builder.or_(groups[0], own), second, unknown
        masks = [bits(builder, builder.icmp_unsigned("!=", each, zero)) for each in vectors]
        flags = look(RUNS, classes), look(RUNS + 1, classes), text
        masks += [bits(builder, builder.icmp_signed("<", each, zero)) for each in flags]
        return context.make_tuple(builder, signature.return_type, masks)

    return types.UniTuple(types.uint64, 6)(array, types.int64, tables, types.int64, types.int64), codegen


@intrinsic
def _store_places(typingctx, batch, at, mask, base):
    """Stores the places of N_PLACES bits, plus `base`, from `batch[at]` on; returns N_PLACES, or 0 if it cannot."""

    def codegen(context, builder, signature, args):
        if "+avx512vbmi2" not in _processor(context)[1]:
            return ir.Constant(I64, 0)
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        places, wide = constant(I8, range(BLOCK)), ir.VectorType(I64, 8)
        flags = builder.bitcast(args[2], ir.VectorType(ir.IntType(1), BLOCK))
        kind = ir.FunctionType(places.type, [places.type, places.type, flags.type])
        compress = builder.module.declare_intrinsic("llvm.x86.avx512.mask.compress.v64i8", (), kind)
        packed = builder.call(compress, [places, all_of(I8, BLOCK, 0), flags])
        first = builder.insert_element(ir.Constant(wide, ir.Undefined), args[3], ir.Constant(ir.IntType(32), 0))
        bases = pick(builder, first, first, [0] * 8)
        for k in range(0, N_PLACES, 8):
            eight = builder.add(builder.zext(pick(builder, packed, packed, range(k, k + 8)), wide), bases)
            pointer = builder.gep(data, [builder.add(args[1], ir.Constant(I64, k))])
            builder.store(eight, builder.bitcast(pointer, wide.as_pointer()), align=8)
        return ir.Constant(I64, N_PLACES)

    return types.int64(batch, types.uint64, types.uint64, types.uint64), codegen


def _processor(context: Any) -> tuple[str, str]:
    """Returns the kind of machine that is compiled for, and the features of its processor."""
    triple, _, features = context.codegen().magic_tuple()
    return triple, features


def _all_hold(builder: ir.IRBuilder, parts: list[ir.Value]) -> ir.Value:
    return builder.and_(builder.and_(parts[0], parts[1]), builder.and_(parts[2], parts[3]))


def _classify(context: Any, builder: ir.IRBuilder, text: ir.Value, classes: ir.Value, table: Any) -> ir.Value:
    """Returns the classes of 64 bytes; 0 for those that are not ASCII."""
    vector = text.type
    if "+avx512vbmi" in _processor(context)[1]:
        # One instruction for all of ASCII.
        kind = ir.FunctionType(vector, [vector] * 3)
        look_up = builder.module.declare_intrinsic("llvm.x86.avx512.vpermi2var.qi.512", (), kind)
        halves = [load_bytes(builder, builder.gep(classes, [ir.Constant(I64, at)]), BLOCK) for at in (0, BLOCK)]
        found = builder.call(look_up, [halves[0], text, halves[1]])
        zero = all_of(I8, BLOCK, 0)
        return builder.select(builder.icmp_signed("<", text, zero), zero, found)
    minus = builder.module.declare_intrinsic("llvm.ssub.sat.v64i8", (), ir.FunctionType(vector, [vector, vector]))
    parts = [_look_up(context, builder, table(STEPS), text)]
    for r in range(1, 8):
        # What is below 16 * r is negative, and gives 0; so does what is not ASCII.
        place = builder.call(minus, [text, all_of(I8, BLOCK, _N * r)])
        parts.append(_look_up(context, builder, table(STEPS + r), place))
    while len(parts) > 1:
        parts = [builder.xor(a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _look_up(context: Any, builder: ir.IRBuilder, table: ir.Value, places: ir.Value) -> ir.Value:
    """Returns the entries of a table of 16 at the low four bits of 64 places; 0 for negative places."""
    triple, features = _processor(context)
    if triple.startswith("x86_64"):
        name, n = "llvm.x86.ssse3.pshuf.b.128", _N
        if "+avx512bw" in features:
            name, n = "llvm.x86.avx512.pshuf.b.512", 64
        elif "+avx2" in features:
            name, n = "llvm.x86.avx2.pshuf.b", 32
    elif triple.startswith(("aarch64", "arm64")):
        # Places of 16 and more give 0 here.
        places = builder.and_(places, all_of(I8, BLOCK, 0x8F))
        name, n = "llvm.aarch64.neon.tbl1.v16i8", _N
    else:
        return _look_up_each(builder, table, places)
    wide = pick(builder, table, table, [k % _N for k in range(n)])
    function = builder.module.declare_intrinsic(name, (), ir.FunctionType(wide.type, [wide.type, wide.type]))
    found = [
        builder.call(function, [wide, pick(builder, places, places, range(at, at + n))]) for at in range(0, BLOCK, n)
    ]
    while len(found) > 1:
        size = 2 * found[0].type.count
        found = [pick(builder, a, b, range(size)) for a, b in zip(found[::2], found[1::2], strict=True)]
    return found[0]


def _look_up_each(builder: ir.IRBuilder, table: ir.Value, places: ir.Value) -> ir.Value:
    """Does `_look_up` on processors without an instruction for it."""
    found = all_of(I8, BLOCK, 0)
    index = ir.IntType(32)
    for k in range(BLOCK):
        place = builder.extract_element(places, ir.Constant(index, k))
        entry = builder.extract_element(table, builder.and_(place, ir.Constant(I8, _N - 1)))
        is_one = builder.icmp_signed(">=", place, ir.Constant(I8, 0))
        entry = builder.select(is_one, entry, ir.Constant(I8, 0))
        found = builder.insert_element(found, entry, ir.Constant(index, k))
    return found


@kernel_part
def _below(mask):
    """Returns the bits below the lowest set bit of a mask, all bits if none is set."""
    return (mask & (~mask + _ONE)) - _ONE


@kernel_part
def put_places(mask, base, column, batch, n):
    """Does what `spans.expand` does, at once if it can; the column has room for N_PLACES more."""
    m = n + count_ones(mask)
    if m - n > _store_places(batch, column + np.uint64(n), mask, np.uint64(base)):
        return expand(mask, base, column, batch, n)
    return m


@kernel_part
def find_boundaries(data, i, end, rules, what):
    """Finds starts and second outcomes (see `boundaries`) in the block at i, bit 0 for i, up to what is not known.

    what: AT_START if it is known that a pre-token begins at i, and nothing more; AT_SEGMENT if a segment begins there;
      INSIDE if i is known in a block of the same text that began STRIDE bytes before.

    Returns:
      Starts, second outcomes, and the places that are known, the first ones of the block.
    """
    class_2, class_1 = np.int64(EDGE), np.int64(EDGE)
    if what == INSIDE:
        a, b = data[i - 2], data[i - 1]
        class_2, class_1 = np.int64(rules.tables[a >> 4, a & 15]), np.int64(rules.tables[b >> 4, b & 15])
    starts, second, unknown, white, ends, high = _apply(data, i, rules.tables, class_2, class_1)
    within = _ALL >> np.uint64(64 - min(end - i, 64))
    white &= within
    stop = high | ~within
    if what == AT_START:
        starts |= _ONE
        unknown &= ~_ONE
        second &= ~_ONE
    # Of white space that is followed by what decides about it, or by what is not seen, at most the beginning is known.
    solid = ~white & _below((ends | stop) & (white << _ONE))
    known = np.uint64(0)
    if solid != np.uint64(0):
        known = _ALL >> np.uint64(leading_zeros(solid))
    if what != INSIDE or solid != np.uint64(0):  # else white space at i may have begun before
        known |= (known + _ONE) & ~(ends << _ONE)
    # The last byte's neighbour decides too.
    known &= _below(unknown | stop) & (within >> _ONE)
    if what == AT_START:
        known |= _ONE
    return starts & known, second & known, known
