# SPDX-License-Identifier: Apache-2.0
"""Where pre-tokens begin in 64 bytes of ASCII at once, by arithmetic on masks with a bit per byte.

A scanner that goes from word to word waits for the end of one before it can look at the next. Here a handful of vector
comparisons classify 64 bytes, and shifts of the masks say where words begin, whatever their number.

A function `<name>_starts(data, i)` belongs to the scanner `scanners.next_<name>`: a pre-token begins at byte i, and bit
k of the result says whether one begins at i + k too, for every k up to the first place that it cannot tell, and is 0
beyond. Whatever lies between two set bits is one pre-token. Bit 0 is always set. `data` goes on for `BLOCK_READS` bytes
after i, whatever they are: what belongs to another text must be masked by the caller, together with the last byte of
this one, since a byte's neighbour decides too.

Where there is something between pre-tokens, bits of starts are as above, and `<name>_stops` has a bit for every place
right after a pre-token: the pre-token that begins with the first start ends with the first of them, and so on.
"""

import functools

import numpy as np
from llvmlite import ir

from tokenizer.kernels.compiling import intrinsic, kernel_part, leading_zeros, trailing_zeros, types

BLOCK_READS = 64
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_THREE = np.uint64(3)
(
    _LETTERS, _UPPER, _DIGITS, _SPACES, _BLANKS, _NEWLINES, _APOSTROPHES, _SLASHES, _TABS, _SIGNS, _UNDERSCORES,
    _STOPS, _HIGH,
) = range(13)  # fmt: skip


@intrinsic
def _classify(typingctx, array, index):
    """Returns masks of the 64 bytes at an index, by the names above: which bytes are letters, and so on."""

    def codegen(context, builder, signature, args):
        byte, block = ir.IntType(8), ir.VectorType(ir.IntType(8), 64)

        def every(value):
            return ir.Constant(block, [value] * 64)

        def below(vector, first, n):
            return builder.icmp_unsigned("<", builder.sub(vector, every(first)), every(n))

        def equal(vector, value):
            return builder.icmp_unsigned("==", vector, every(value))

        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        address = builder.gep(builder.bitcast(data, byte.as_pointer()), [args[1]])
        text = builder.load(builder.bitcast(address, block.as_pointer()), align=1)
        masks = [
            below(builder.or_(text, every(0x20)), ord("a"), 26),
            below(text, ord("A"), 26),
            below(text, ord("0"), 10),
            builder.or_(equal(text, 0x20), below(text, 0x09, 5)),
            equal(text, 0x20),
            builder.or_(equal(text, 0x0A), equal(text, 0x0D)),
            equal(text, ord("'")),
            equal(text, ord("/")),
            equal(text, 0x09),
            builder.or_(
                builder.or_(below(text, 0x21, 15), below(text, 0x3A, 7)),
                builder.or_(below(text, 0x5B, 6), below(text, 0x7B, 4)),
            ),
            equal(text, ord("_")),
            functools.reduce(builder.or_, (equal(text, ord(sign)) for sign in "(|).,!?")),
            builder.icmp_signed("<", text, every(0)),
        ]
        bits = [builder.bitcast(mask, ir.IntType(64)) for mask in masks]
        return context.make_tuple(builder, signature.return_type, bits)

    return types.UniTuple(types.uint64, 13)(array, types.int64), codegen


@kernel_part
def _lowest(mask):
    """Returns the lowest set bit of a mask."""
    return mask & (~mask + _ONE)


@kernel_part
def _below(mask):
    """Returns the bits below the lowest set bit of a mask, all where there is none."""
    return _lowest(mask) - _ONE


@kernel_part
def _up_to(mask):
    """Returns the lowest set bit of a mask and those below, all where there is none."""
    return _lowest(mask) | _below(mask)


@kernel_part
def _known(high):
    """Returns the bits before non-ASCII bytes or the end of the block, but for the last: its neighbour decides too."""
    return _below(high) >> _ONE


@kernel_part
def bert_words(data, i, room, digits_apart):
    """Returns where words begin and where their last bytes are, by BertPreTokenizer, and where white space is.

    `room`, at least 1, is how many bytes of the text there are from i on. A word has its two bits or none: none if it
    may go on, or be another one, for what comes after it. digits_apart: uint64, see unicode_tables.BertTables.
    """
    masks = _classify(data, i)
    within = ~np.uint64(0) >> np.uint64(64 - min(room, 64))
    words = (masks[_LETTERS] | (masks[_DIGITS] & ~digits_apart)) & within
    signs = (masks[_SIGNS] | (masks[_DIGITS] & digits_apart)) & within
    spaces = (masks[_BLANKS] | masks[_NEWLINES] | masks[_TABS]) & within
    unknown = within & ~(words | signs | spaces)
    starts = words & ~(words << _ONE) | signs
    ends = words & ~(words >> _ONE) | signs
    if unknown != np.uint64(0) or room >= 64:
        ends &= _known(unknown)
    return starts, ends, spaces


@kernel_part
def gpt2_starts(data, i):
    """See above, for `next_gpt2`."""
    masks = _classify(data, i)
    letters, digits, spaces, blanks = masks[_LETTERS], masks[_DIGITS], masks[_SPACES], masks[_BLANKS]
    others = ~(letters | digits | spaces | masks[_HIGH])
    first_others = others & ~(others << _ONE)
    first_in_run = letters & ~(letters << _ONE) | digits & ~(digits << _ONE) | first_others
    after_blank = blanks << _ONE
    # A run takes one blank before it along; of other white space the last is a pre-token, and what comes before it.
    starts = first_in_run & ~after_blank | spaces & ~(spaces << _ONE & spaces >> _ONE)
    # Where a contraction may be, the scanner has to look.
    contractions = first_others & ~after_blank & masks[_APOSTROPHES] & letters >> _ONE
    return starts & _known(masks[_HIGH]) & _up_to(contractions) | _ONE


@kernel_part
def _white_space_starts(spaces, newlines, others):
    r"""Returns where pre-tokens of white space begin by `\s*[\r\n]+|\s+(?!\S)|\s+`, and up to where that is known.

    Line ends right after `others` belong to these. A run of white space is known where its line ends come first; one
    where others stand before a line end is left to the scanner, which counts from the beginning of the run, and so is
    one that reaches the end of the block.
    """
    inner = spaces & ~newlines
    first_inner = inner & ~(inner << _ONE)
    after_inner = (inner + first_inner) & ~inner
    first = spaces & ~(spaces << _ONE)
    starts = first & ~(newlines & others << _ONE) | first_inner | inner & ~(inner >> _ONE)
    # Of a run that may go on beyond the block, maybe to a line end, only the beginning is known.
    n_last = leading_zeros(~spaces)
    known = (_TWO << np.uint64(64 - n_last)) - _ONE if n_last > 0 else ~np.uint64(0)
    # The runs that begin before the first line end that comes too late: the last of them is the one it is in.
    before = first & _below(after_inner & newlines)
    if after_inner & newlines != np.uint64(0):
        known &= _ONE | (~np.uint64(0) >> np.uint64(leading_zeros(before)))
    return starts, known


@kernel_part
def _word_starts(data, i, n_numbers, cased, slashes):
    """As `_cl100k_starts` or, if `cased`, `_o200k_starts`, but for contractions; also returns masks for these.

    `slashes`: whether they are like line ends behind signs.
    """
    masks = _classify(data, i)
    letters, digits, spaces, blanks = masks[_LETTERS], masks[_DIGITS], masks[_SPACES], masks[_BLANKS]
    newlines = masks[_NEWLINES]
    others = ~(letters | digits | spaces | masks[_HIGH])
    first_others = others & ~(others << _ONE) & ~(blanks << _ONE)
    white, known = _white_space_starts(spaces, newlines, others)
    # One character before letters goes with them if it is not a line end and a pre-token could begin with it.
    taken = spaces & ~newlines | first_others & ~(others >> _ONE)
    starts = white | first_others | letters & ~(letters << _ONE) & ~(taken << _ONE)
    if cased:
        upper = masks[_UPPER]
        starts |= upper & (letters & ~upper) << _ONE
        if slashes:
            known &= _below(masks[_SLASHES] & newlines << _ONE)
    if n_numbers == 1:
        starts |= digits
    else:
        starts |= digits & ~(digits << _ONE)
        if n_numbers > 0:
            # Where there are more digits, the scanner counts them.
            more = digits & digits >> _ONE & digits >> _TWO
            known &= _up_to(more & digits >> _THREE if n_numbers == 3 else more)
    return starts & known & _known(masks[_HIGH]), first_others & masks[_APOSTROPHES], letters, masks[_APOSTROPHES]


@kernel_part
def like_cl100k_starts(data, i, n_numbers):
    """See above, for `next_like_cl100k` with 1, 2 or 3 digits in a pre-token at most; 0: with any number."""
    starts, first_apostrophes, letters, _ = _word_starts(data, i, n_numbers, False, False)
    return starts & _up_to(first_apostrophes & letters >> _ONE) | _ONE


@kernel_part
def cl100k_starts(data, i):
    """See above, for `next_cl100k`, `next_cl100k_ascii` and `next_cl100k_tiktoken`."""
    return like_cl100k_starts(data, i, 3)


@kernel_part
def cl100k_ruby_starts(data, i):
    """See above, for `next_cl100k_ruby`."""
    return like_cl100k_starts(data, i, 0)


@kernel_part
def qwen2_starts(data, i):
    """See above, for `next_qwen2`, `next_qwen2_ascii` and `next_qwen35`."""
    return like_cl100k_starts(data, i, 1)


@kernel_part
def _o200k_starts(data, i, slashes):
    starts, _, letters, apostrophes = _word_starts(data, i, 3, True, slashes)
    # A contraction belongs to the word before it.
    return starts & _below(apostrophes & letters << _ONE & letters >> _ONE) | _ONE


@kernel_part
def o200k_starts(data, i):
    """See above, for `next_o200k`."""
    return _o200k_starts(data, i, True)


@kernel_part
def kimi_k2_starts(data, i):
    """See above, for `next_kimi_k2`."""
    return _o200k_starts(data, i, False)


@kernel_part
def tekken_starts(data, i):
    """See above, for `next_tekken`."""
    starts, _, _, _ = _word_starts(data, i, 1, True, True)
    return starts | _ONE


@kernel_part
def bloom_starts(data, i):
    """See above, for `next_bloom`."""
    masks = _classify(data, i)
    words = ~(masks[_SPACES] | masks[_STOPS] | masks[_HIGH])
    first_in_run = words & ~(words << _ONE)
    taken = masks[_BLANKS] & first_in_run >> _ONE
    others = (masks[_SPACES] | masks[_STOPS]) & ~taken
    starts = first_in_run & ~(taken << _ONE) | taken | others & ~(others << _ONE)
    return starts & _known(masks[_HIGH]) | _ONE


@kernel_part
def _run_stops(masks_of_runs, singles):
    """Returns the places right after the runs of each mask, and after each single byte."""
    stops = singles << _ONE
    for mask in masks_of_runs:
        stops |= mask << _ONE & ~mask
    return stops


@kernel_part
def clip_starts(data, i):
    """See above, for `next_clip`."""
    masks = _classify(data, i)
    letters, digits, spaces = masks[_LETTERS], masks[_DIGITS], masks[_SPACES]
    others = ~(letters | digits | spaces | masks[_HIGH])
    first_others = others & ~(others << _ONE)
    starts = letters & ~(letters << _ONE) | digits | first_others
    # Where a contraction may be, the scanner has to look.
    contractions = first_others & masks[_APOSTROPHES] & letters >> _ONE
    return starts & _known(masks[_HIGH]) & _up_to(contractions) | _ONE


@kernel_part
def clip_stops(data, i):
    """See above, for `next_clip`."""
    masks = _classify(data, i)
    letters, digits, spaces = masks[_LETTERS], masks[_DIGITS], masks[_SPACES]
    others = ~(letters | digits | spaces | masks[_HIGH])
    return _run_stops((letters, others), digits)


@kernel_part
def nonspace_starts(data, i):
    """See above, for `next_nonspace`."""
    masks = _classify(data, i)
    words = ~(masks[_SPACES] | masks[_HIGH])
    return words & ~(words << _ONE) & _known(masks[_HIGH]) | _ONE


@kernel_part
def nonspace_stops(data, i):
    """See above, for `next_nonspace`."""
    masks = _classify(data, i)
    return _run_stops((~(masks[_SPACES] | masks[_HIGH]),), np.uint64(0))


@kernel_part
def unicode_words_starts(data, i):
    """See above, for `next_unicode_words`."""
    masks = _classify(data, i)
    words = masks[_LETTERS] | masks[_DIGITS] | masks[_UNDERSCORES]
    others = ~(words | masks[_SPACES] | masks[_HIGH])
    starts = words & ~(words << _ONE) | others & ~(others << _ONE)
    return starts & _known(masks[_HIGH]) | _ONE


@kernel_part
def unicode_words_stops(data, i):
    """See above, for `next_unicode_words`."""
    masks = _classify(data, i)
    words = masks[_LETTERS] | masks[_DIGITS] | masks[_UNDERSCORES]
    return _run_stops((words, ~(words | masks[_SPACES] | masks[_HIGH])), np.uint64(0))


@kernel_part
def bert_starts(data, i):
    """See above, for `next_bert`."""
    masks = _classify(data, i)
    signs = masks[_SIGNS]
    words = ~(signs | masks[_SPACES] | masks[_HIGH])
    return (words & ~(words << _ONE) | signs) & _known(masks[_HIGH]) | _ONE


@kernel_part
def bert_stops(data, i):
    """See above, for `next_bert`."""
    masks = _classify(data, i)
    signs = masks[_SIGNS]
    return _run_stops((~(signs | masks[_SPACES] | masks[_HIGH]),), signs)


@kernel_part
def separated_parts(data, i, separators, apart):
    """Finds parts of words between white space: blanks, and tabs and line ends where masks in `separators` are set.

    Nothing is told from another control character on. `apart`, bool[128 * 128], says between which two characters,
    `before << 7 | here`, words are cut; not between letters.

    Returns:
      `(starts, stops, firsts)`: as above, for parts; and which starts are those of words.
    """
    masks = _classify(data, i)
    words = masks[_LETTERS] | masks[_DIGITS] | masks[_SIGNS]
    between = masks[_BLANKS] | (masks[_TABS] & separators[0]) | (masks[_NEWLINES] & separators[1])
    known = _known(~(words | between))
    firsts = words & ~(words << _ONE)
    breaks = np.uint64(0)
    left = words & (words << _ONE) & ~(masks[_LETTERS] & (masks[_LETTERS] << _ONE)) & known
    while left != np.uint64(0):
        k = trailing_zeros(left)
        left &= left - _ONE
        before, here = np.uint64(data[np.uint64(i + k - 1)]), np.uint64(data[np.uint64(i + k)])
        breaks |= np.uint64(apart[(before << np.uint64(7)) | here]) << np.uint64(k)
    return (firsts | breaks) & known | _ONE, (words << _ONE & ~words) | breaks, firsts


@kernel_part
def no_starts(data, i):
    """See above, for scanners that have no such function."""
    return _ONE
