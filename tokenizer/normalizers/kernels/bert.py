# SPDX-License-Identifier: Apache-2.0
"""BERT's normalizer as a separate step, for callers who need the text and not the ids.

Its reference implementation is in `tests/reference/bert.py`; `tests/tokenizer/normalizers/test_bert.py` compares them.
"""

from tokenmill.tokenizer.compiling.kernel import kernel
from tokenmill.tokenizer.kernels.bert_scanner import append_character, append_reordered
from tokenmill.tokenizer.kernels.classes import ISOLATED, REORDERED, SPACE, WORD
from tokenmill.tokenizer.kernels.utf8 import next_character


@kernel
def normalize(data, offsets, tables, clean_text, scratch, out, out_offsets):
    """Normalizes rows.

    Args:
      data: uint8[n], valid UTF-8; offsets: int64[n_rows + 1] into it.
      tables: unicode_tables.BertTables made without the pre-tokenizer.
      clean_text: whether white space becomes a space.
      scratch: kernel_memory.Scratch for the longest row.
      out: uint8 with room for the result; out_offsets: int64[n_rows + 1], filled.
    """
    o = 0
    for row in range(offsets.size - 1):
        i = offsets[row]
        end = offsets[row + 1]
        while i < end:
            start = i
            code_point, i = next_character(data, i)
            kind = tables.classes[code_point]
            if kind == WORD or (kind == SPACE and not clean_text):
                o = append_character(data, start, i, tables, code_point, out, scratch.origins, False, o, 0)
            elif kind == SPACE:
                out[o] = 32
                o += 1
            elif kind == ISOLATED:
                out[o] = 32
                o = append_character(data, start, i, tables, code_point, out, scratch.origins, False, o + 1, 0)
                out[o] = 32
                o += 1
            elif kind == REORDERED:
                i, o = append_reordered(data, start, end, tables, out, scratch.origins, False, o)
        out_offsets[row + 1] = o
