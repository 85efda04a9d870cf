# SPDX-License-Identifier: Apache-2.0
"""Kernels that validate lines of JSON completely and extract two fields, 64 bytes of a string at a time.

`parse_lines` takes the documents, and says what is wrong with other lines.

Its reference implementation is `tokenmill.pipeline.input.jsonl._parse_line`;
`tests/pipeline/input/test_json_kernels.py` compares them. That one decides what a document is. The kernels accept or
reject a line only if they are sure to agree with it; other lines are left to it.

The inlined parts share these terms: `data` is uint8[n_bytes], valid UTF-8; `i` a position in it; `stop` the end of the
line without its line end, so that bytes from `stop` on are not read as JSON. Positions are int64.

Source: RFC 8259.
"""

import numpy as np
from llvmlite import ir

from tokenmill.tokenizer.compiling.kernel import intrinsic, kernel, kernel_part, trailing_zeros, types

_BLOCK = 64
_ZERO = np.uint64(0)
_ABSENT, _STRING, _NUMBER, _NULL, _OTHER = range(5)
"""Kinds of values that a field may have."""
_TEXT, _ID = 1, 2
"""The field that a value belongs to; the sum of both if it belongs to both."""
_VALUE, _FIRST_VALUE, _NAME, _FIRST_NAME, _NEXT = range(5)
"""What may come next: a value; a value or the end of an array; a name; a name or the end of an object; a comma or the
end of an array or object."""
_VALID, _UNKNOWN, _DEEP = -1, -2, -3
"""What `_find_fields` returns instead of a position."""
N_VERDICTS = 10
UNSURE, BLANK, NOT_JSON, NOT_OBJECT, TOO_DEEP, MISSING_FIELD, NULL_TEXT, NOT_STRING, BAD_ID, LONE_SURROGATE = range(
    N_VERDICTS
)
"""Verdicts of `parse_lines`."""


@intrinsic
def _special_in_string(typingctx, array, index):
    """Returns uint64, bit k for byte k: the quotes, backslashes and control characters of the 64 bytes at an index."""

    def codegen(context, builder, signature, args):
        block = ir.VectorType(ir.IntType(8), 64)
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        address = builder.bitcast(builder.gep(data, [args[1]]), block.as_pointer())
        text = builder.load(address, align=1)
        quotes = builder.icmp_unsigned("==", text, ir.Constant(block, [0x22] * 64))
        backslashes = builder.icmp_unsigned("==", text, ir.Constant(block, [0x5C] * 64))
        controls = builder.icmp_unsigned("<", text, ir.Constant(block, [0x20] * 64))
        return builder.bitcast(builder.or_(builder.or_(quotes, backslashes), controls), ir.IntType(64))

    return types.uint64(array, types.int64), codegen


@intrinsic
def _copy_block(typingctx, source, index, target, at):
    """Copies 64 bytes, for which both arrays must have room; returns uint64, bit k for byte k: the backslashes."""

    def codegen(context, builder, signature, args):
        block = ir.VectorType(ir.IntType(8), 64)

        def address(array, place):
            data = context.make_array(signature.args[array])(context, builder, args[array]).data
            return builder.bitcast(builder.gep(data, [args[place]]), block.as_pointer())

        text = builder.load(address(0, 1), align=1)
        builder.store(text, address(2, 3), align=1)
        backslashes = builder.icmp_unsigned("==", text, ir.Constant(block, [0x5C] * 64))
        return builder.bitcast(backslashes, ir.IntType(64))

    return types.uint64(source, types.int64, target, types.int64), codegen


@kernel_part
def skip_blanks(data, i, stop):
    """Returns the position of the first byte at or after i that is not JSON white space; `stop` if there is none."""
    while i < stop and (data[i] == 0x20 or data[i] == 0x09 or data[i] == 0x0D):
        i += 1
    return i


@kernel_part
def _hex_value(b):
    """Returns the value of a hexadecimal digit, -1 for any other byte."""
    if 0x30 <= b <= 0x39:
        return np.int64(b) - 0x30
    lower = np.int64(b) | 0x20
    return lower - 0x57 if 0x61 <= lower <= 0x66 else np.int64(-1)


@kernel_part
def _four_digits(data, i, stop):
    """Returns the value of the four hexadecimal digits at i; -1 if there are no such digits."""
    if i + 4 > stop:
        return np.int64(-1)
    value = np.int64(0)
    for k in range(4):
        digit = _hex_value(data[i + k])
        if digit < 0:
            return np.int64(-1)
        value = value << 4 | digit
    return value


@kernel_part
def end_of_string(data, i, stop):
    """Returns the position of the quote that ends the string whose content begins at i; -1 if the string is not valid.

    Checks escapes, and that there are no control characters.
    """
    while i < stop:
        if i + _BLOCK <= data.size:
            marks = _special_in_string(data, i)
            if marks == _ZERO:
                i += _BLOCK
                continue
            i += trailing_zeros(marks)
            if i >= stop:
                break
        b = data[i]
        if b == 0x22:
            return i
        if b < 0x20:
            break
        if b != 0x5C:
            i += 1
            continue
        if i + 1 >= stop:
            break
        escape = data[i + 1]
        if escape == 0x75:
            if _four_digits(data, i + 2, stop) < 0:
                break
            i += 6
        elif (
            escape == 0x22
            or escape == 0x5C
            or escape == 0x2F
            or escape == 0x62
            or escape == 0x66
            or escape == 0x6E
            or escape == 0x72
            or escape == 0x74
        ):
            i += 2
        else:
            break
    return np.int64(-1)


@kernel_part
def _skip_digits(data, i, stop):
    while i < stop and 0x30 <= data[i] <= 0x39:
        i += 1
    return i


@kernel_part
def _end_of_number(data, i, stop):
    """Returns where the number at i ends; -1 if there is none."""
    if i < stop and data[i] == 0x2D:
        i += 1
    first = i
    i = _skip_digits(data, i, stop)
    if i == first or (data[first] == 0x30 and i > first + 1):
        return np.int64(-1)
    if i < stop and data[i] == 0x2E:
        first = i + 1
        i = _skip_digits(data, first, stop)
        if i == first:
            return np.int64(-1)
    if i < stop and data[i] | 0x20 == 0x65:
        i += 1
        if i < stop and (data[i] == 0x2B or data[i] == 0x2D):
            i += 1
        first = i
        i = _skip_digits(data, first, stop)
        if i == first:
            return np.int64(-1)
    return i


@kernel_part
def _end_of_literal(data, i, stop):
    """Returns where `true`, `false` or `null` at i ends; -1 if there is none of them."""
    if i + 4 <= stop:
        a, b, c, d = data[i], data[i + 1], data[i + 2], data[i + 3]
        if a == 0x74 and b == 0x72 and c == 0x75 and d == 0x65:
            return i + 4
        if a == 0x6E and b == 0x75 and c == 0x6C and d == 0x6C:
            return i + 4
        if i + 5 <= stop and a == 0x66 and b == 0x61 and c == 0x6C and d == 0x73 and data[i + 4] == 0x65:
            return i + 5
    return np.int64(-1)


@kernel_part
def is_name(data, start, stop, name):
    """Returns whether `data[start:stop]` equals `name`."""
    if stop - start != name.size:
        return False
    for k in range(name.size):  # noqa: SIM110  # numba has no all()
        if data[start + k] != name[k]:
            return False
    return True


@kernel_part
def has_backslash(data, start, stop):
    """Returns whether `data[start:stop]`, the content of a string, has an escape."""
    for i in range(start, stop):  # noqa: SIM110
        if data[i] == 0x5C:
            return True
    return False


@kernel_part
def _put_character(out, at, code):
    """Writes a code point in UTF-8 at `out[at]`, which must have room for it; returns the position after it."""
    if code < 0x80:
        out[at] = code
        return at + 1
    if code < 0x800:
        out[at] = 0xC0 | code >> 6
        out[at + 1] = 0x80 | code & 0x3F
        return at + 2
    if code < 0x10000:
        out[at] = 0xE0 | code >> 12
        out[at + 1] = 0x80 | code >> 6 & 0x3F
        out[at + 2] = 0x80 | code & 0x3F
        return at + 3
    out[at] = 0xF0 | code >> 18
    out[at + 1] = 0x80 | code >> 12 & 0x3F
    out[at + 2] = 0x80 | code >> 6 & 0x3F
    out[at + 3] = 0x80 | code & 0x3F
    return at + 4


@kernel_part
def unescape(data, i, stop, out, at):
    """Writes the text of a string, escapes decoded, at `out[at]`; returns the position after it.

    `data[i:stop]` is the content of a string that `end_of_string` has accepted. `out` needs room for `stop - i` bytes:
    no escape is shorter than the character it stands for. Returns -1 if the string has half of a surrogate pair.
    """
    while i < stop:
        if i + _BLOCK <= data.size and at + _BLOCK <= out.size:
            backslashes = _copy_block(data, i, out, at)
            n = trailing_zeros(backslashes)
            if n >= stop - i:
                return at + stop - i
            i += n
            at += n
            if n == _BLOCK:
                continue
        elif data[i] != 0x5C:
            out[at] = data[i]
            i += 1
            at += 1
            continue
        escape = data[i + 1]
        if escape != 0x75:
            code = np.int64(escape)
            if escape == 0x62:
                code = np.int64(0x08)
            elif escape == 0x66:
                code = np.int64(0x0C)
            elif escape == 0x6E:
                code = np.int64(0x0A)
            elif escape == 0x72:
                code = np.int64(0x0D)
            elif escape == 0x74:
                code = np.int64(0x09)
            out[at] = code
            at += 1
            i += 2
            continue
        code = _four_digits(data, i + 2, stop)
        i += 6
        if 0xD800 <= code < 0xE000:
            low = np.int64(-1)
            if code < 0xDC00 and i + 6 <= stop and data[i] == 0x5C and data[i + 1] == 0x75:
                low = _four_digits(data, i + 2, stop)
            if not 0xDC00 <= low < 0xE000:
                return np.int64(-1)
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
            i += 6
        at = _put_character(out, at, code)
    return at


@kernel_part
def _field_of(data, start, stop, text_name, id_name):
    """Returns which fields the name `data[start:stop]` stands for: a sum of `_TEXT` and `_ID`."""
    field = 0
    if is_name(data, start, stop, text_name):
        field |= _TEXT
    if id_name.size > 0 and is_name(data, start, stop, id_name):
        field |= _ID
    return field


@kernel_part
def _find_fields(data, i, stop, text_name, id_name, stack, fields):
    """Returns `_VALID` if `data[i:stop]` is exactly one JSON value; finds the two fields of an object.

    Args:
      data, i, stop: the line, in valid UTF-8.
      text_name, id_name: the names of the fields, uint8; an empty `id_name` for none.
      stack: uint8[max_depth], scratch: the open brackets; behind the first, a name without its escapes.
      fields: int64[6], filled: kind, start and stop of the text, then of the id; a string without its quotes.

    Returns:
      A position if the line is not valid: where the part begins that is wrong. `_DEEP` if it nests deeper than `stack`,
      `_UNKNOWN` if a name of the object has an escape and is too long for `stack`: it may be one of the two.
    """
    fields[0] = fields[3] = _ABSENT
    result = np.int64(_VALID)
    depth = 0
    expected = _VALUE
    field = 0
    while True:
        i = skip_blanks(data, i, stop)
        if i >= stop:
            return result if depth == 0 and expected == _NEXT else i
        b = data[i]
        if expected == _NEXT:
            if depth == 0:
                return i
            if b == 0x2C:
                expected = _NAME if stack[depth - 1] == 0x7B else _VALUE
            elif b == stack[depth - 1] + 2:  # `]` is `[` + 2, `}` is `{` + 2
                depth -= 1
            else:
                return i
            i += 1
        elif (b == 0x7D and expected == _FIRST_NAME) or (b == 0x5D and expected == _FIRST_VALUE):
            depth -= 1
            expected = _NEXT
            i += 1
        elif expected in (_NAME, _FIRST_NAME):
            end = end_of_string(data, i + 1, stop) if b == 0x22 else np.int64(-1)
            if end < 0:
                return i
            field = 0
            if depth == 1:
                if not has_backslash(data, i + 1, end):
                    field = _field_of(data, i + 1, end, text_name, id_name)
                elif end - i - 1 < stack.size:
                    field = _field_of(
                        stack, np.int64(1), unescape(data, i + 1, end, stack, np.int64(1)), text_name, id_name
                    )
                else:
                    result = np.int64(_UNKNOWN)
            i = skip_blanks(data, end + 1, stop)
            if i >= stop or data[i] != 0x3A:
                return i
            i += 1
            expected = _VALUE
        else:
            start = i
            kind = _OTHER
            expected = _NEXT
            if b == 0x22:
                kind = _STRING
                start = i + 1
                end = end_of_string(data, start, stop)
                i = end + 1
            elif b == 0x7B or b == 0x5B:
                if depth == stack.size:
                    return np.int64(_DEEP)
                stack[depth] = b
                depth += 1
                expected = _FIRST_NAME if b == 0x7B else _FIRST_VALUE
                i = end = i + 1
            elif b == 0x2D or 0x30 <= b <= 0x39:
                kind = _NUMBER
                i = end = _end_of_number(data, i, stop)
            else:
                if b == 0x6E:
                    kind = _NULL
                i = end = _end_of_literal(data, i, stop)
            if end < 0:
                return start
            if field & _TEXT:
                fields[0], fields[1], fields[2] = kind, start, end
            if field & _ID:
                fields[3], fields[4], fields[5] = kind, start, end
            field = 0


@kernel_part
def _put_id(data, fields, ids, at):
    """Writes the id of a line at `ids[at]`; returns the position after it, -1 if it is neither a string nor a number.

    `fields` is what `_find_fields` has filled. `ids` needs room for the bytes of the value. An absent id or null writes
    nothing.
    """
    kind, start, stop = fields[3], fields[4], fields[5]
    if kind in (_ABSENT, _NULL):
        return at
    if kind == _STRING:
        return unescape(data, start, stop, ids, at)
    if kind != _NUMBER:
        return np.int64(-1)
    if stop - start == 2 and data[start] == 0x2D and data[start + 1] == 0x30:
        start += 1  # the integer -0 is 0
    for i in range(start, stop):
        ids[at] = data[i]
        at += 1
    return at


@kernel_part
def _is_deeper(line, i, stop, max_depth):
    depth = 0
    while i < stop:
        b = line[i]
        if b == 0x22:
            i += 1
            while i < stop and line[i] != 0x22:
                i += 2 if line[i] == 0x5C else 1
        elif b == 0x7B or b == 0x5B:
            depth += 1
            if depth > max_depth:
                return True
        elif b == 0x7D or b == 0x5D:
            depth -= 1
        i += 1
    return False


@kernel
def parse_lines(
    data, lines, names, scratch, accepts, texts, text_offsets, ids, id_offsets, has_id, rows, verdicts, places
):
    """Extracts text and id of lines, and says what is wrong with the others.

    Args:
      data: uint8[n_bytes], the bytes that contain the lines.
      lines: int64[n_lines], where lines start, int64[n_lines], where they end, without line ends; and bool[n_lines],
        which lines to look at, all of them in valid UTF-8.
      names: uint8[n] twice, the names of the fields for text and id; an empty one for no id.
      scratch: uint8[max_depth] and int64[6], for work.
      accepts: whether an object may be accepted; if not, the reference implementation has to decide on each.
      texts: uint8[data.size], filled with the texts of the accepted lines.
      text_offsets: int32[n_lines + 1], filled with where each begins.
      ids: uint8[data.size], id_offsets: int32[n_lines + 1], filled, the same for ids; a number as it is written,
        nothing for a line without an id.
      has_id: bool[n_lines], filled.
      rows: int64[n_lines], filled with the numbers of the accepted lines.
      verdicts: uint8[n_lines], filled; `UNSURE` for accepted lines, lines that were not looked at, and where the
        reference implementation has to decide.
      places: int64[n_lines], filled: for `NOT_JSON` a position in the line; for `NOT_OBJECT`, `NOT_STRING` and `BAD_ID`
        the first byte of the value; for `LONE_SURROGATE` 0 for the text, 1 for the id.

    Returns:
      How many lines were accepted.
    """
    starts, ends, wanted = lines
    text_name, id_name = names
    stack, fields = scratch
    n = 0
    text_offsets[0] = id_offsets[0] = 0
    for row in range(starts.size):
        verdicts[row] = UNSURE
        places[row] = 0
        start, end = starts[row], ends[row]
        first = skip_blanks(data, start, end)
        if first == end:
            verdicts[row] = BLANK
            continue
        if not wanted[row]:
            continue
        found = _find_fields(data, start, end, text_name, id_name, stack, fields)
        if found == _DEEP or (found >= 0 and end - start > stack.size and _is_deeper(data, start, end, stack.size)):
            verdicts[row] = TOO_DEEP
        elif found >= 0:
            verdicts[row] = NOT_JSON
            places[row] = found - start
        elif data[first] != 0x7B:
            verdicts[row] = NOT_OBJECT
            places[row] = data[first]
        elif found != _VALID or not accepts:
            continue
        elif fields[0] == _ABSENT:
            verdicts[row] = MISSING_FIELD
        elif fields[0] == _NULL:
            verdicts[row] = NULL_TEXT
        elif fields[0] != _STRING:
            verdicts[row] = NOT_STRING
            places[row] = data[fields[1]]
        else:
            text_end = unescape(data, fields[1], fields[2], texts, np.int64(text_offsets[n]))
            id_end = np.int64(0)
            if text_end < 0:
                verdicts[row] = LONE_SURROGATE
            elif fields[3] == _OTHER:
                verdicts[row] = BAD_ID
                places[row] = data[fields[4]]
            else:
                id_end = _put_id(data, fields, ids, np.int64(id_offsets[n]))
                if id_end < 0:
                    verdicts[row] = LONE_SURROGATE
                    places[row] = 1
            if verdicts[row] == UNSURE:
                has_id[n] = fields[3] == _STRING or fields[3] == _NUMBER
                rows[n] = row
                n += 1
                text_offsets[n] = text_end
                id_offsets[n] = id_end
    return n


@kernel
def is_deeper(line, max_depth):
    """Returns whether arrays and objects of a line nest more than `max_depth` deep; brackets in strings do not count.

    line: uint8[n_bytes].
    """
    return _is_deeper(line, np.int64(0), np.int64(line.size), max_depth)
