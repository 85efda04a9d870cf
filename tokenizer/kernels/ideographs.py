# SPDX-License-Identifier: Apache-2.0
"""Runs of ideographs, which are one word to many scanners, sixteen characters at a time."""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import intrinsic, kernel_part, trailing_zeros, types
from tokenmill.tokenizer.compiling.vectors import I16, all_of, bits, constant, load_bytes, pick

IDEOGRAPHS = slice(0x4E00, 0x9F80)
"""Code points of three bytes, of the same class in every table."""
_FIRST, _PAST = 0xE4B8, 0xE9BE
"""The first two bytes of the first of IDEOGRAPHS, and of the first character after them."""
_N = 16
_N_BYTES = 3 * _N


@kernel_part
def is_ideograph(data, i):
    """Whether the character at byte i is one of IDEOGRAPHS; `data` is readable for two bytes."""
    return _FIRST <= (np.int64(data[i]) << 8 | np.int64(data[i + 1])) < _PAST


@intrinsic
def _others(typingctx, data, i):
    """Returns a bit for each of sixteen characters from byte i on, if all have three bytes: 0 for an ideograph."""

    def codegen(context, builder, signature, args):
        text = context.make_array(signature.args[0])(context, builder, args[0]).data
        three = load_bytes(builder, builder.gep(text, [args[1]]), _N_BYTES)
        # The first two bytes of each character as one number.
        leads = pick(builder, three, three, [place for k in range(_N) for place in (3 * k + 1, 3 * k)])
        leads = builder.bitcast(leads, constant(I16, range(_N)).type)
        above = builder.sub(leads, all_of(I16, _N, _FIRST))
        return bits(builder, builder.icmp_unsigned(">=", above, all_of(I16, _N, _PAST - _FIRST)))

    return types.int64(data, types.int64), codegen


@kernel_part
def ideographs_end(data, i, end):
    """Returns where the run of IDEOGRAPHS at byte i ends, at most `end`; `data` is UTF-8 beyond `end` too.

    Near the end of `data`, where sixteen characters cannot be read, it may stop before the run ends.
    """
    while i < end and i + _N_BYTES <= data.size:
        n = trailing_zeros(np.uint64(_others(data, i) | 1 << _N))
        i += 3 * n
        if n < _N:
            break
    return min(i, end)
