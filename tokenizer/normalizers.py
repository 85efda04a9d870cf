# SPDX-License-Identifier: Apache-2.0
"""Normalizers: text to text, before anything is split."""

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa

from tokenizer import unicode_tables
from tokenizer.kernels import bert_normalizer, caches
from tokenizer.ragged import string_array, text_rows


@dataclasses.dataclass(frozen=True)
class BertNormalizer:
    """BERT's normalizer: clean-up, isolation of CJK ideographs, accent stripping, lower-casing, in this order.

    Source: HF tokenizers `normalizers/bert.rs`; the same on every code point (tests/parity/test_unicode_tables.py).
    """

    clean_text: bool = True
    """Removes control characters, NUL and U+FFFD; turns white space into spaces."""
    handle_chinese_chars: bool = True
    """Puts spaces around CJK ideographs."""
    strip_accents: bool | None = None
    """Decomposes and removes nonspacing marks; None follows `lowercase`."""
    lowercase: bool = True

    def options(self) -> dict[str, bool]:
        """Returns the four switches with `strip_accents` decided."""
        strip = self.lowercase if self.strip_accents is None else self.strip_accents
        return {
            "clean_text": self.clean_text,
            "handle_chinese_chars": self.handle_chinese_chars,
            "strip_accents": strip,
            "lowercase": self.lowercase,
        }

    def normalize_arrow(self, texts: Any) -> pa.LargeStringArray:
        """Normalizes a text column; rows and their order stay, nulls become empty, nothing aliases the input."""
        rows = text_rows(texts)
        tables = unicode_tables.bert_tables(**self.options(), pre_tokenize=False)
        # An ideograph grows from three bytes to five at most.
        out = np.empty(int(rows.n_values * max(tables.max_bytes_ratio, 5 / 3)) + 16, np.uint8)
        offsets = np.zeros(rows.n_rows + 1, np.int64)
        scratch = caches.new_scratch(int(rows.max_row * tables.max_bytes_ratio) + 16)
        bert_normalizer.normalize(rows.values, rows.offsets, tables, self.clean_text, scratch, out, offsets)
        return string_array(out[: offsets[-1]], offsets)

    def normalize_str(self, text: str) -> str:
        """Normalizes one text."""
        return str(self.normalize_arrow(pa.array([text], pa.large_string()))[0].as_py())
