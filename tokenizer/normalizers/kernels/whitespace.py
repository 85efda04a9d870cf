# SPDX-License-Identifier: Apache-2.0
"""Collapses runs of white space, and strips it at the ends of documents.

Its reference implementation is in `tests/reference/text_steps.py`; `tests/tokenizer/text/test_references.py` compares
them.
"""

from tokenmill.tokenizer.compiling.kernel import kernel_part
from tokenmill.tokenizer.kernels.text_parts import run_end, run_start
from tokenmill.tokenizer.kernels.utf8 import next_character
from tokenmill.tokenizer.normalizers.kernels.edit_lists import NOTHING, SPACE, add_edit, finder
from tokenmill.tokenizer.normalizers.kernels.matches import next_run

AS_SPACE, KEEP, PARAGRAPHS = 0, 1, 2
"""Treatment of line breaks: like other white space; all stay; at most two stay."""
BREAK, TWO_BREAKS = 2, 3
"""Numbers of more texts that edits put in."""


@kernel_part
def _is_break(code_point):
    return code_point == 0x0A or code_point == 0x0D or code_point == 0x85 or 0x2028 <= code_point <= 0x2029


@kernel_part
def _collapse(data, start, stop, breaks, edits, n):
    """Notes the edits for one run of white space inside a row."""
    n_breaks = 0
    if breaks != AS_SPACE:
        i = start
        while i < stop:
            code_point, following = next_character(data, i)
            if _is_break(code_point) and not (code_point == 0x0D and following < stop and data[following] == 0x0A):
                n_breaks += 1
            i = following
    if n_breaks == 0:
        return add_edit(edits, n, start, stop, SPACE)
    if breaks == PARAGRAPHS and n_breaks > 2:
        return add_edit(edits, n, start, stop, TWO_BREAKS)
    i = start
    gone = start  # the text from here to `i` is removed
    while i < stop:
        code_point, following = next_character(data, i)
        if _is_break(code_point) and not (code_point == 0x0D and following < stop and data[following] == 0x0A):
            if gone < i:
                n = add_edit(edits, n, gone, i, NOTHING)
            if code_point != 0x0A:
                n = add_edit(edits, n, i, following, BREAK)
            gone = following
        i = following
    return add_edit(edits, n, gone, stop, NOTHING) if gone < stop else n


@finder
def find_whitespace(data, i, end, row, tables, edits, n):
    """Finds the edits that collapse and strip white space.

    Args:
      tables: bool[n_rows] twice, whether a row begins where its document does, and ends where it ends;
        normalizers.tables.Runs of white space that must change; whether these are collapsed; treatment of line breaks,
        see above; whether both ends of documents are stripped.
    """
    begins, ends, runs, collapse, breaks, strip = tables
    first = i
    tail = end
    if strip and begins[row]:
        i = run_end(data, i, end, runs.members)
        if i > first:
            n = add_edit(edits, n, first, i, NOTHING)
    if strip and ends[row]:
        tail = run_start(data, end, i, runs.members)
    while collapse and i < tail:
        start, i = next_run(data, i, tail, runs)
        if start < i:
            n = _collapse(data, start, i, breaks, edits, n)
    if tail < end:
        n = add_edit(edits, n, tail, end, NOTHING)
    return n
