# SPDX-License-Identifier: Apache-2.0
"""Reads the large fields of a `tokenizer.json` without a Python object for each token.

All functions take `data`, uint8[n_bytes + 16], JSON in UTF-8 and then zeros, which JSON never contains: they end all
loops. Readers return where they stopped, or FAILED for whatever is not spelled as usual; some of that is valid JSON.

Its reference implementation is `json.loads`; `tests/tokenizer/formats/test_json_vocabulary.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part
from tokenmill.tokenizer.kernels.utf8 import write_utf8
from tokenmill.tokenizer.kernels.whole_words import whole_word

FAILED = -1
_MAX_DIGITS = 9
"""The most digits of an id; larger ids are refused, but later."""
_QUOTE, _BACKSLASH, _COMMA, _COLON, _SPACE, _ZERO = ord('"'), ord("\\"), ord(","), ord(":"), ord(" "), ord("0")
_OBJECT, _OBJECT_END, _LIST, _LIST_END = ord("{"), ord("}"), ord("["), ord("]")
_UNICODE, _MINUS, _PLUS, _POINT = ord("u"), ord("-"), ord("+"), ord(".")

_ESCAPED = np.zeros(256, np.uint8)
_ESCAPED[[ord(c) for c in '"\\/bfnrt']] = [ord(c) for c in '"\\/\b\f\n\r\t']
_HEX = np.full(256, -1, np.int8)
_HEX[[ord(c) for c in "0123456789abcdefABCDEF"]] = [*range(16), *range(10, 16)]
_IS_SPACE = np.zeros(256, np.bool_)
_IS_SPACE[[ord(c) for c in " \t\n\r"]] = True
_ENDS_VALUE = _IS_SPACE.copy()
_ENDS_VALUE[[0, _COMMA, _OBJECT_END, _LIST_END]] = True

POWERS_OF_TEN = np.array([float(f"1e{k}") for k in range(309)])
_FITS_ANOTHER_DIGIT = np.uint64((1 << 64) // 10 - 1)
_TEN = np.uint64(10)

_MODEL = np.frombuffer(b"model", np.uint8)
_VOCAB = np.frombuffer(b"vocab", np.uint8)
_MERGES = np.frombuffer(b"merges", np.uint8)


@kernel
def read_model(data, tokens, token_offsets, ids, scores, parts, part_offsets, counts, spans):
    """Finds and reads `model.vocab` and `model.merges`.

    They are an object of integers and a list; or there is only `vocab`, a list of pieces with scores.

    Args:
      data: uint8[n_bytes + 16], the JSON of an object, see the module.
      tokens: uint8 with room for the tokens of n_bytes of JSON, and 16 more bytes; token_offsets: int64[n + 1]; ids:
        int32[n]; filled with the entries of `vocab`.
      scores: float64[n], filled instead of `ids` if `vocab` is a list.
      parts: uint8[n_bytes], part_offsets: int64[n + 1], filled: the two tokens of each merge, one after the other.
      counts: int64[2], filled: the numbers of tokens and of parts.
      spans: int64[2, 2], filled: where the two values begin and end; zeros if there is none.

    Returns:
      Where the object ends, or FAILED.
    """
    at = _after(data, _skip_space(data, 0), _OBJECT)
    seen = False
    while at >= 0 and data[at] != _OBJECT_END:
        first = at
        at = _before_value(data, at)
        if at < 0:
            return FAILED
        if not _is_key(data, first, _MODEL):
            at = _skip_value(data, at)
        elif seen or data[at] != _OBJECT:
            return FAILED
        else:
            seen = True
            at = _read_fields(data, at, tokens, token_offsets, ids, scores, parts, part_offsets, counts, spans)
        at = _next_member(data, at)
    return at


@kernel_part
def _read_fields(data, at, tokens, token_offsets, ids, scores, parts, part_offsets, counts, spans):
    at = _after(data, at, _OBJECT)
    while at >= 0 and data[at] != _OBJECT_END:
        first = at
        at = _before_value(data, at)
        if at < 0:
            return FAILED
        start = at
        if _is_key(data, first, _VOCAB) and (data[at] == _OBJECT or data[at] == _LIST):
            if spans[0, 1] > 0:
                return FAILED
            if data[at] == _OBJECT:
                counts[0], at = read_vocab(data, at, tokens, token_offsets, ids)
            else:
                counts[0], at = _read_pieces(data, at, tokens, token_offsets, scores)
            spans[0, 0], spans[0, 1] = start, at
        elif _is_key(data, first, _MERGES) and data[at] == _LIST:
            if spans[1, 1] > 0:
                return FAILED
            counts[1], at = _read_merges(data, at, parts, part_offsets)
            spans[1, 0], spans[1, 1] = start, at
        else:
            at = _skip_value(data, at)
        at = _next_member(data, at)
    return at if at < 0 else at + 1


@kernel
def read_vocab(data, at, tokens, offsets, ids):
    """Reads an object of integers that begins at `at`; arrays as for `read_model`, `offsets` as `token_offsets` there.

    offsets: int64[n + 1], filled.

    Returns:
      The number of entries, and where the object ends or FAILED.
    """
    n, o = 0, 0
    offsets[0] = 0
    at = _after(data, at, _OBJECT)
    while at >= 0 and data[at] != _OBJECT_END:
        at, o = _read_string(data, at, tokens, o)
        at = -1 if at < 0 else _after(data, _skip_space(data, at), _COLON)
        if at < 0:
            return 0, FAILED
        number, first = np.int64(0), at
        while _ZERO <= data[at] < _ZERO + 10:
            number = 10 * number + data[at] - _ZERO
            at += 1
            if at - first > _MAX_DIGITS:
                return 0, FAILED
        if at == first or (data[first] == _ZERO and at > first + 1):
            return 0, FAILED
        ids[n] = number
        n += 1
        offsets[n] = o
        at = _next_member(data, at)
    tokens[o : o + 16] = 0
    return n, FAILED if at < 0 else at + 1


@kernel_part
def _read_pieces(data, at, tokens, offsets, scores):
    """Reads a list of `[piece, score]`; otherwise like `read_vocab`."""
    n, o = 0, 0
    offsets[0] = 0
    at = _after(data, at, _LIST)
    while at >= 0 and data[at] != _LIST_END:
        at, o = _read_string(data, _after(data, at, _LIST), tokens, o)
        at = -1 if at < 0 else _after(data, _skip_space(data, at), _COMMA)
        scores[n], at = _read_float(data, at)
        at = -1 if at < 0 else _after(data, _skip_space(data, at), _LIST_END)
        if at < 0:
            return 0, FAILED
        n += 1
        offsets[n] = o
        at = _next_member(data, at)
    tokens[o : o + 16] = 0
    return n, FAILED if at < 0 else at + 1


@kernel_part
def _read_digits(data, at, number):
    """Appends decimal digits to a number; returns where they end, or FAILED, and the new number."""
    while _ZERO <= data[at] < _ZERO + 10:
        if number > _FITS_ANOTHER_DIGIT:
            return np.int64(FAILED), number
        number = number * _TEN + np.uint64(data[at] - _ZERO)
        at += 1
    return at, number


@kernel_part
def _read_float(data, at):
    """Reads a number like `formats.json_numbers.read_float`; returns it and where it ends, or FAILED."""
    if at < 0:
        return 0.0, np.int64(FAILED)
    is_negative = data[at] == _MINUS
    first = at + np.int64(is_negative)
    at, digits = _read_digits(data, first, np.uint64(0))
    if at <= first or (data[first] == _ZERO and at > first + 1):
        return 0.0, np.int64(FAILED)
    exponent = np.int64(0)
    if data[at] == _POINT:
        point = at
        at, digits = _read_digits(data, at + 1, digits)
        if at <= point + 1:
            return 0.0, np.int64(FAILED)
        exponent = point + 1 - at
    if data[at] | 0x20 == ord("e"):
        at += 1
        is_small = data[at] == _MINUS
        first = at + np.int64(is_small or data[at] == _PLUS)
        at, power = _read_digits(data, first, np.uint64(0))
        if at <= first or at > first + 3:
            return 0.0, np.int64(FAILED)
        exponent += -np.int64(power) if is_small else np.int64(power)
    if abs(exponent) >= POWERS_OF_TEN.size:
        return 0.0, np.int64(FAILED)
    number = np.float64(digits)
    if exponent < 0:
        number /= POWERS_OF_TEN[-exponent]
    else:
        number *= POWERS_OF_TEN[exponent]
    return -number if is_negative else number, at if np.isfinite(number) else np.int64(FAILED)


@kernel_part
def _read_merges(data, at, parts, offsets):
    """Reads a list of pairs of strings, or of strings with one space; returns the number of parts, and its end."""
    n, o = 0, 0
    offsets[0] = 0
    at = _after(data, at, _LIST)
    while at >= 0 and data[at] != _LIST_END:
        if data[at] == _LIST:
            at, o = _read_string(data, _after(data, at, _LIST), parts, o)
            offsets[n + 1] = o
            at = -1 if at < 0 else _after(data, _skip_space(data, at), _COMMA)
            at, o = _read_string(data, at, parts, o)
            at = -1 if at < 0 else _after(data, _skip_space(data, at), _LIST_END)
        else:
            first = o
            at, o = _read_string(data, at, parts, o)
            n_spaces = 0
            offsets[n + 1] = first
            for q in range(first, o):
                n_spaces += parts[q] == _SPACE
                if n_spaces == 0:
                    offsets[n + 1] = q + 1
                else:
                    parts[q] = parts[q + 1]
            if n_spaces != 1:
                return 0, FAILED
            o -= 1
        if at < 0 or offsets[n + 1] == offsets[n] or o == offsets[n + 1]:
            return 0, FAILED
        n += 2
        offsets[n] = o
        at = _next_member(data, at)
    parts[o : o + 16] = 0
    return n, FAILED if at < 0 else at + 1


@kernel_part
def _skip_space(data, at):
    while _IS_SPACE[data[at]]:
        at += 1
    return at


@kernel_part
def _after(data, at, byte):
    """Skips a byte that must be at `at`, and white space after it; FAILED if it is not there, or `at` is FAILED."""
    if at < 0 or data[at] != byte:
        return np.int64(FAILED)
    return _skip_space(data, at + 1)


@kernel_part
def _before_value(data, at):
    """Returns where the value of a member begins; its key begins at `at`."""
    if data[at] != _QUOTE:
        return np.int64(FAILED)
    at = _skip_string(data, at)
    return at if at < 0 else _after(data, _skip_space(data, at), _COLON)


@kernel_part
def _next_member(data, at):
    """Returns where the next member begins, or the bracket after the last one."""
    if at < 0:
        return np.int64(FAILED)
    at = _skip_space(data, at)
    if data[at] != _COMMA:
        # The caller sees which bracket it is.
        return at if data[at] == _OBJECT_END or data[at] == _LIST_END else np.int64(FAILED)
    at = _skip_space(data, at + 1)
    return np.int64(FAILED) if data[at] == _OBJECT_END or data[at] == _LIST_END else at


@kernel_part
def _is_key(data, at, name):
    """Whether the string at `at` is `name`, spelled without escapes."""
    for k in range(name.size):
        if data[at + 1 + k] != name[k]:
            return False
    return data[at + 1 + name.size] == _QUOTE


@kernel_part
def _skip_string(data, at):
    at += 1
    while data[at] != _QUOTE:
        if data[at] == _BACKSLASH:
            at += 1
        if data[at] == 0:
            return np.int64(FAILED)
        at += 1
    return at + 1


@kernel_part
def _skip_value(data, at):
    """Returns where a value ends; checks only its brackets and strings."""
    depth = 0
    while True:
        if data[at] == _QUOTE:
            at = _skip_string(data, at)
            if at < 0:
                return at
        elif data[at] == _OBJECT or data[at] == _LIST:
            depth += 1
            at += 1
        elif data[at] == _OBJECT_END or data[at] == _LIST_END:
            if depth == 0:
                return np.int64(FAILED)
            depth -= 1
            at += 1
        elif data[at] == 0:
            return np.int64(FAILED)
        elif depth == 0:
            while not _ENDS_VALUE[data[at]]:
                at += 1
            return at
        else:
            at += 1
        if depth == 0:
            return at


@kernel_part
def _read_string(data, at, out, o):
    """Writes the string that begins at `at` as UTF-8; returns where it ends, or FAILED, and the new o."""
    if at < 0 or data[at] != _QUOTE:
        return np.int64(FAILED), o
    at += 1
    while data[at] != _QUOTE:
        byte = data[at]
        if byte != _BACKSLASH:
            if byte < _SPACE:
                return np.int64(FAILED), o
            out[o] = byte
            o += 1
            at += 1
        elif data[at + 1] != _UNICODE:
            byte = _ESCAPED[data[at + 1]]
            if byte == 0:
                return np.int64(FAILED), o
            out[o] = byte
            o += 1
            at += 2
        else:
            code_point = _four_digits(data, at + 2)
            at += 6
            if 0xD800 <= code_point < 0xDC00 and data[at] == _BACKSLASH and data[at + 1] == _UNICODE:
                low = _four_digits(data, at + 2)
                at += 6
                if low < 0xDC00 or low > 0xDFFF:
                    return np.int64(FAILED), o
                code_point = 0x10000 + ((code_point - 0xD800) << 10) + low - 0xDC00
            if code_point <= 0 or 0xD800 <= code_point < 0xE000:
                return np.int64(FAILED), o
            o = write_utf8(code_point, out, o)
    return at + 1, o


@kernel_part
def _four_digits(data, at):
    """Returns the number of four hexadecimal digits, FAILED if they are not such."""
    number = np.int64(0)
    for k in range(4):
        digit = np.int64(_HEX[data[at + k]])
        if digit < 0:
            return np.int64(FAILED)
        number = number << 4 | digit
    return number


@kernel
def find_merges(parts, offsets, slots, pool, lefts, rights, products):
    """Looks up the two parts of each merge, and what they make together.

    Args:
      parts, offsets: uint8[n_bytes + 16] and int64[2 * n + 1].
      slots: int64[n_slots, 4]; pool: uint8[n_pool]: word table of the vocabulary.
      lefts, rights, products: int32[n], filled with ids.

    Returns:
      Whether the vocabulary has all of them.
    """
    for t in range(lefts.size):
        at, middle, end = offsets[2 * t], offsets[2 * t + 1], offsets[2 * t + 2]
        left = whole_word(parts, at, middle - at, slots, pool)
        right = whole_word(parts, middle, end - middle, slots, pool)
        product = whole_word(parts, at, end - at, slots, pool)
        if left < 0 or right < 0 or product < 0:
            return False
        lefts[t] = left
        rights[t] = right
        products[t] = product
    return True
