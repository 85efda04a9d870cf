# SPDX-License-Identifier: Apache-2.0
"""Kernels that find where records begin and end: rows of CSV, and the elements of a JSON array.

Its reference implementations are the `csv` and the `json` of the standard library;
`tests/pipeline/input/test_delimited.py` and `test_json_array.py` compare them.

A kernel is called for each chunk of a stream, and continues in the state that it left. Positions are those in the
stream. `state` is int64[8]: what may come next; the first byte of the open record, -1 if there is none; where in the
chunk to go on; the position of the chunk; cells, or depth, of the open record; its end, as far as it is known; the
first line end in its quoted cells, -1 if there is none; the cells of the first row, 0 before it.
"""

from typing import Any

from tokenmill.tokenizer.compiling.kernel import kernel

STEP, START, AT, BASE, NUMBER, END, LINE, CELLS = range(8)
BROKEN, UNCLOSED, STRAY = -1, -2, -3
"""Facts of a record: there is text where none may be; the stream ends inside it, or inside the array; it is the line in
which a quoted cell begins that makes no row."""

_NEWLINE, _RETURN, _SPACE, _TAB = 10, 13, 32, 9
_QUOTE, _BACKSLASH, _COMMA = 34, 92, 44
_OPEN_LIST, _CLOSE_LIST, _OPEN_OBJECT, _CLOSE_OBJECT = 91, 93, 123, 125

_MARK = (0xEF, 0xBB, 0xBF)

_BEFORE, _NEW_CELL, _IN_CELL, _QUOTED, _AFTER_QUOTE, _AFTER_RETURN, _IS_BROKEN, _IN_MARK = range(8)
_OPENING, _BETWEEN, _IN_VALUE, _IN_STRING, _ESCAPED, _CLOSED, _BEHIND = range(7)


@kernel
def scan_rows(data: Any, delimiter: int, max_bytes: int, is_last: bool, state: Any, found: Any) -> int:
    """Finds rows; a quote at the beginning of a cell opens text in which delimiters and line ends are part of the cell.

    A line end is a line feed, a carriage return, or both. Blank lines, and byte order marks in front of rows, belong to
    no row. Where a quoted cell has line ends, and no row of as many cells as the first one comes of it, its first line
    is what is wrong, and scanning goes on behind that. A row that gets more cells is given up at once, so no byte is
    scanned more often than a row has cells.

    Args:
      data: uint8[n_bytes], the next chunk.
      delimiter: the byte between cells.
      max_bytes: how large a row with line ends in it may be.
      is_last: whether the stream ends with this chunk.
      state: int64[8], changed; `state[AT]` is negative where scanning must go on before the chunk.
      found: int64[n, 4], filled: where a row begins, where it ends without and with its line end, and the number of
        its cells, `BROKEN` if a quoted cell is followed by text, `UNCLOSED`, or `STRAY`.

    Returns:
      The number of rows; if it is n, or not all of the chunk is scanned, there may be more to find.
    """
    n, i, step = 0, state[AT], state[STEP]
    while i >= 0 and n < found.shape[0]:
        position, end, stop, is_stray = state[BASE] + i, -1, -1, False
        if i == data.size:
            is_stray = state[LINE] >= 0 and position - state[START] > max_bytes
            if is_last and state[START] >= 0:
                end, stop = state[END] if step == _AFTER_RETURN else position, position
            if stop < 0 and not is_stray:
                break
        else:
            c = data[i]
            if step == _QUOTED:
                if c == _QUOTE:
                    step = _AFTER_QUOTE
                elif state[LINE] < 0 and c in (_NEWLINE, _RETURN):
                    state[LINE] = position
                i += 1
                continue
            if step == _AFTER_RETURN:
                end, stop = state[END], position + 1 if c == _NEWLINE else position
            else:
                i += 1
                if step == _BEFORE:
                    if c in (_NEWLINE, _RETURN):
                        continue
                    step, state[START], state[NUMBER] = _NEW_CELL, position, 1
                    if c == _MARK[0]:
                        step = _IN_MARK
                        continue
                elif step in (_IN_MARK, _IN_MARK + 1):
                    if c == _MARK[step - _IN_MARK + 1]:
                        step += 1
                        if step == _IN_MARK + 2:
                            step, state[START] = _BEFORE, -1
                        continue
                    step = _IN_CELL
                if c == _RETURN:
                    step, state[END] = _AFTER_RETURN, position
                elif c == _NEWLINE:
                    end, stop = position, position + 1
                elif step == _IS_BROKEN:
                    continue
                elif c == delimiter:
                    step = _NEW_CELL
                    state[NUMBER] += 1
                    is_stray = state[LINE] >= 0 and 0 < state[CELLS] < state[NUMBER]
                elif c == _QUOTE and step in (_NEW_CELL, _AFTER_QUOTE):
                    step = _QUOTED
                elif step == _AFTER_QUOTE:
                    step, state[NUMBER] = _IS_BROKEN, BROKEN
                    is_stray = state[LINE] >= 0
                else:
                    step = _IN_CELL
                if stop < 0 and not is_stray:
                    continue
        fact = UNCLOSED if step == _QUOTED else state[NUMBER]
        if state[LINE] >= 0:
            is_other = fact < 0 or (state[CELLS] > 0 and fact != state[CELLS])
            if is_stray or is_other or stop - state[START] > max_bytes:
                fact = STRAY if is_stray or fact != UNCLOSED else UNCLOSED
                end, stop = state[LINE], state[LINE] + 1
        if state[CELLS] == 0:
            state[CELLS] = fact
        found[n, 0], found[n, 1], found[n, 2], found[n, 3] = state[START], end, stop, fact
        n += 1
        i, step, state[START], state[LINE] = stop - state[BASE], _BEFORE, -1, -1
    state[AT], state[STEP] = i, step
    return n


@kernel
def scan_elements(data: Any, is_last: bool, state: Any, found: Any) -> int:
    """Finds the elements of an array; line ends between their strings become spaces, so that each is a line of JSON.

    Commas and white space between elements belong to none of them.

    Args:
      data: uint8[n_bytes], the next chunk; changed.
      is_last: whether the stream ends with this chunk.
      state: int64[8], changed.
      found: int64[n, 4], filled: where an element begins, twice where it ends, and 0; `BROKEN` if it is what is not in
        the array, from there to the end of the stream; or `UNCLOSED`.

    Returns:
      The number of elements; if it is n, there may be more to find.
    """
    n, i, step = 0, state[AT], state[STEP]
    while i < data.size and n < found.shape[0]:
        c, position = data[i], state[BASE] + i
        i += 1
        if step == _IN_STRING:
            if c == _BACKSLASH:
                step = _ESCAPED
            elif c == _QUOTE:
                step, state[END] = _IN_VALUE, position + 1
            continue
        if step == _ESCAPED:
            step = _IN_STRING
            continue
        if c in (_NEWLINE, _RETURN, _SPACE, _TAB):
            if c == _NEWLINE and step == _IN_VALUE:
                data[i - 1] = _SPACE
            continue
        if step == _OPENING and c == _OPEN_LIST:
            step = _BETWEEN
            continue
        if step == _BETWEEN and c == _COMMA:
            continue
        if step == _BETWEEN and c == _CLOSE_LIST:
            step = _CLOSED
            continue
        if step in (_OPENING, _CLOSED):
            step, state[START] = _BEHIND, position
        if step == _BETWEEN:
            step, state[START], state[NUMBER] = _IN_VALUE, position, 0
        if step == _BEHIND:
            state[END] = position + 1
            continue
        if state[NUMBER] == 0 and c in (_COMMA, _CLOSE_LIST):
            found[n, 0], found[n, 1], found[n, 2], found[n, 3] = state[START], state[END], state[END], 0
            n += 1
            step, state[START] = _BETWEEN if c == _COMMA else _CLOSED, -1
            continue
        if c == _QUOTE:
            step = _IN_STRING
        elif c in (_OPEN_OBJECT, _OPEN_LIST):
            state[NUMBER] += 1
        elif c in (_CLOSE_OBJECT, _CLOSE_LIST) and state[NUMBER] > 0:
            state[NUMBER] -= 1
        state[END] = position + 1
    if is_last and i == data.size and n < found.shape[0] and step != _OPENING and step != _CLOSED:
        end = state[BASE] + i
        found[n, 0] = state[START] if state[START] >= 0 else end
        found[n, 1] = found[n, 2] = state[END] if step == _BEHIND else end
        found[n, 3] = BROKEN if step == _BEHIND else UNCLOSED
        n += 1
        step, state[START] = _CLOSED, -1
    state[AT], state[STEP] = i, step
    return n
