# SPDX-License-Identifier: Apache-2.0
"""Kernels that find the values of fields in lines of JSON.

The lines are known to be valid JSON objects, so everything between the fields is skipped unchecked.

Its reference implementation is `tokenmill.pipeline.input.json_values.find_slowly`;
`tests/pipeline/input/test_json_values.py` compares them.
"""

import numpy as np

from tokenmill.pipeline.input.json_kernels import end_of_string, has_backslash, is_name, skip_blanks, unescape
from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part

ABSENT, STRING, INTEGER, NUMBER, BOOLEAN, NULL, OBJECT, ARRAY = range(8)
"""Kinds of values; an integer has neither a fraction nor an exponent."""


@kernel_part
def _end_of_value(data, i, stop):
    """Returns the position after the value that begins at i; the line, which ends at `stop`, must be valid JSON."""
    b = data[i]
    if b == 0x22:
        return end_of_string(data, i + 1, stop) + 1
    if b != 0x7B and b != 0x5B:
        while i < stop and data[i] != 0x2C and data[i] != 0x7D and data[i] != 0x5D and data[i] > 0x20:
            i += 1
        return i
    depth = 0
    while i < stop:
        b = data[i]
        if b == 0x22:
            i = end_of_string(data, i + 1, stop)
        elif b == 0x7B or b == 0x5B:
            depth += 1
        elif b == 0x7D or b == 0x5D:
            depth -= 1
            if depth == 0:
                return i + 1
        i += 1
    return i


@kernel_part
def _kind_of(data, start, stop):
    b = data[start]
    if b == 0x22:
        return STRING
    if b == 0x7B:
        return OBJECT
    if b == 0x5B:
        return ARRAY
    if b == 0x6E:
        return NULL
    if b == 0x74 or b == 0x66:
        return BOOLEAN
    for i in range(start, stop):
        if data[i] == 0x2E or data[i] | 0x20 == 0x65:
            return NUMBER
    return INTEGER


@kernel
def find_values(data, starts, ends, names, bounds, firsts, depths, found, kinds, value_starts, value_stops):
    """Finds the values of fields in lines that are JSON objects; if a name occurs twice, the last one counts.

    Args:
      data: uint8[n_bytes], the lines.
      starts, ends: int64[n] each.
      names: uint8[n_bytes], bounds: int64[n_names + 1], firsts: int64[n_paths + 1]: see `json_values.Names`.
      depths: int64[n_paths], for work.
      found: bool[n], filled: whether the line was understood; False if a name with escapes may be one of `names`.
      kinds: uint8[n_paths, n], filled.
      value_starts, value_stops: int64[n_paths, n], filled where there is a value.
    """
    n_paths = firsts.size - 1
    for row in range(starts.size):
        i, stop = skip_blanks(data, starts[row], ends[row]) + 1, ends[row]
        for p in range(n_paths):
            kinds[p, row] = ABSENT
            depths[p] = 0  # how many names of path p enclose the current position
        depth = 0
        found[row] = True
        while True:
            i = skip_blanks(data, i, stop)
            b = data[i]
            if b == 0x2C:
                i += 1
                continue
            if b == 0x7D:
                if depth == 0:
                    break
                for p in range(n_paths):
                    if depths[p] == depth:
                        depths[p] -= 1
                depth -= 1
                i += 1
                continue
            end = end_of_string(data, i + 1, stop)
            if has_backslash(data, i + 1, end):
                found[row] = False
                break
            name_start, name_end = i + 1, end
            i = skip_blanks(data, end + 1, stop)
            i = skip_blanks(data, i + 1, stop)
            is_entered = False
            value_end = np.int64(-1)
            for p in range(n_paths):
                if depths[p] != depth:
                    continue
                name = firsts[p] + depth
                if not is_name(data, name_start, name_end, names[bounds[name] : bounds[name + 1]]):
                    continue
                kinds[p, row] = ABSENT
                if name + 1 < firsts[p + 1]:
                    if data[i] == 0x7B:
                        depths[p] += 1
                        is_entered = True
                    continue
                if value_end < 0:
                    value_end = _end_of_value(data, i, stop)
                kind = _kind_of(data, i, value_end)
                kinds[p, row] = kind
                is_string = np.int64(kind == STRING)
                value_starts[p, row], value_stops[p, row] = i + is_string, value_end - is_string
            if is_entered:
                depth += 1
                i += 1
            else:
                i = value_end if value_end >= 0 else _end_of_value(data, i, stop)


@kernel
def put_texts(data, kinds, starts, stops, out, offsets, is_valid):
    """Writes values as text: strings decoded, other values as they are written, nothing for absent values and null.

    Args:
      data: uint8[n_bytes], kinds: uint8[n], starts, stops: int64[n]: see `json_values.Values`.
      out: uint8 with room for the sum of `stops - starts` and one block of 64 bytes, filled.
      offsets: int32[n + 1], filled.
      is_valid: uint8[n], filled: 0 for nothing, 1 for a text, 2 for a string with half a surrogate pair.
    """
    at = np.int64(0)
    offsets[0] = 0
    for row in range(kinds.size):
        is_valid[row] = 0
        if kinds[row] == STRING:
            end = unescape(data, starts[row], stops[row], out, at)
            is_valid[row] = 2 if end < 0 else 1
            at = at if end < 0 else end
        elif kinds[row] != ABSENT and kinds[row] != NULL:
            for i in range(starts[row], stops[row]):
                out[at] = data[i]
                at += 1
            is_valid[row] = 1
        offsets[row + 1] = at


@kernel
def put_lines(data, kinds, starts, stops, out):
    """Writes values as lines of JSON, `{"v":...}`; returns how many bytes were written; arguments as for `put_texts`.

    out: uint8 with room for the values and 11 more bytes for each, filled.
    """
    at = 0
    for row in range(kinds.size):
        out[at], out[at + 1], out[at + 2], out[at + 3], out[at + 4] = 0x7B, 0x22, 0x76, 0x22, 0x3A
        at += 5
        if kinds[row] == ABSENT or kinds[row] == NULL:
            out[at], out[at + 1], out[at + 2], out[at + 3] = 0x6E, 0x75, 0x6C, 0x6C
            at += 4
        else:
            is_string = np.int64(kinds[row] == STRING)
            for i in range(starts[row] - is_string, stops[row] + is_string):
                out[at] = 0x20 if data[i] == 0x0D else data[i]
                at += 1
        out[at], out[at + 1] = 0x7D, 0x0A
        at += 2
    return at
