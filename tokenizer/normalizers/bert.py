# SPDX-License-Identifier: Apache-2.0
"""BERT's normalizer."""

import dataclasses
from typing import Any

import numpy as np

from tokenmill.tokenizer import kernel_memory, recycled
from tokenmill.tokenizer.normalizers.base import Normalizer, rows_of, unless_same
from tokenmill.tokenizer.normalizers.characters import CharacterStep, Lowercase
from tokenmill.tokenizer.normalizers.forms import NFD
from tokenmill.tokenizer.normalizers.kernels import bert as bert_kernels
from tokenmill.tokenizer.normalizers.tables import HF_UNICODE_VERSION
from tokenmill.tokenizer.ragged import Ragged
from tokenmill.tokenizer.traced import Traced
from tokenmill.tokenizer.unicode import tables as unicode_tables


@dataclasses.dataclass(frozen=True)
class BertNormalizer(Normalizer):
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
    unicode: str = dataclasses.field(default="8", repr=False)
    """The version of Unicode that accents are stripped by; see `unicode.tables.BERT_UNICODE`."""

    def __post_init__(self) -> None:
        unicode_tables.check_bert_unicode(self.unicode)

    def options(self) -> dict[str, Any]:
        """Returns the options, with `strip_accents` true or false."""
        strip = self.lowercase if self.strip_accents is None else self.strip_accents
        return {
            "clean_text": self.clean_text,
            "handle_chinese_chars": self.handle_chinese_chars,
            "strip_accents": strip,
            "lowercase": self.lowercase,
            "unicode": self.unicode,
        }

    def normalize_rows(self, rows: Ragged) -> Ragged:
        tables = unicode_tables.bert_tables(**self.options(), pre_tokenize=False)
        # An ideograph grows from three bytes to five at most.
        out = recycled.empty(int(rows.n_values * max(tables.max_bytes_ratio, 5 / 3)) + 16, np.uint8)
        offsets = np.zeros(rows.n_rows + 1, np.int64)
        scratch = kernel_memory.new_scratch(int(rows.max_row * tables.max_bytes_ratio) + 16)
        bert_kernels.normalize(rows.values, rows.offsets, tables, self.clean_text, scratch, out, offsets)
        return unless_same(rows, rows_of(out, offsets))

    def trace(self, text: Traced) -> Traced:
        for step in self.steps():
            text = step.trace(text)
        return text

    def steps(self) -> list[Normalizer]:
        """Returns simpler normalizers that do the same, one after the other."""
        steps: list[Normalizer] = [_CleanUp()] if self.clean_text else []
        steps += [_Apart()] if self.handle_chinese_chars else []
        if self.options()["strip_accents"]:
            steps += [NFD(HF_UNICODE_VERSION if self.unicode == "8" else self.unicode), _StripMarks()]
        return [*steps, Lowercase()] if self.lowercase else steps


def _members(name: str) -> list[int]:
    members: list[int] = np.flatnonzero(unicode_tables.property_table(name)).tolist()
    return members


@dataclasses.dataclass(frozen=True)
class _CleanUp(CharacterStep):
    """Removes control characters, and makes white space spaces."""

    def changes(self) -> dict[int, str]:
        return dict.fromkeys({*_members("spaces")} - {ord(" ")}, " ") | dict.fromkeys(_members("dropped"), "")


@dataclasses.dataclass(frozen=True)
class _Apart(CharacterStep):
    """Puts spaces around ideographs."""

    def changes(self) -> dict[int, str]:
        return {ideograph: f" {chr(ideograph)} " for ideograph in _members("cjk")}


@dataclasses.dataclass(frozen=True)
class _StripMarks(CharacterStep):
    """Removes nonspacing marks."""

    def changes(self) -> dict[int, str]:
        return dict.fromkeys(_members("nonspacing_marks"), "")
