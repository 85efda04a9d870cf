# SPDX-License-Identifier: Apache-2.0
"""SentencePiece's normalizer, given by the character map in its models, as HF applies it."""

import dataclasses
import functools

import numpy as np

from tokenizer import recycled
from tokenizer.aligned import AlignedText
from tokenizer.normalizers import tables
from tokenizer.normalizers.base import Change, Normalizer, aligned, edits_of_changes, rows_of, unless_same
from tokenizer.normalizers.kernels import precompiled as kernels
from tokenizer.ragged import Ragged


@dataclasses.dataclass(frozen=True)
class Precompiled(Normalizer):
    """Applies a SentencePiece character map as HF tokenizers does it, which differs from SentencePiece.

    Source: HF tokenizers `normalizers/precompiled.rs` and the crate spm_precompiled.

    Raises:
      ValueError: if `precompiled_charsmap` is not a character map.
    """

    precompiled_charsmap: bytes = dataclasses.field(repr=False)
    """Size of a double-array trie in bytes (uint32), the trie, texts that end with NUL."""

    def __post_init__(self) -> None:
        self._tables()

    def _tables(self) -> tables.CharsMap:
        return tables.chars_map(self.precompiled_charsmap)

    def normalize_rows(self, rows: Ragged) -> Ragged:
        """Normalizes a column of valid UTF-8; see `Normalizer`."""
        offsets = np.empty(rows.n_rows + 1, np.int64)
        mapping = self._tables()
        # The texts of a map may have any length, so the result is measured first.
        changed, n_bytes = kernels.normalize(rows.values, rows.offsets, mapping, False, np.empty(0, np.uint8), offsets)
        if not changed:
            return rows
        out = recycled.empty(n_bytes + tables.SPARE_BYTES, np.uint8)
        kernels.normalize(rows.values, rows.offsets, mapping, True, out, offsets)
        return unless_same(rows, rows_of(out, offsets))

    def normalize_aligned(self, text: AlignedText) -> AlignedText:
        """Normalizes one text, with alignments; see `Normalizer`."""
        changes: list[Change] = []
        changed = False
        for grapheme in graphemes(text.text):
            whole = self._text_of(grapheme) if len(grapheme.encode()) < kernels.SHORT_GRAPHEME else None
            for part in [grapheme] if whole is not None else grapheme:
                new = self._text_of(part)
                if new is None:
                    changes.append((part, 0))
                    continue
                changed = True
                n_added = len(new) - len(part)
                changes += [(c, int(i >= len(new) - n_added)) for i, c in enumerate(new)]
                if n_added < 0 and changes:
                    # A removed character is merged into the one before; at the very beginning HF drops it.
                    changes[-1] = (changes[-1][0], changes[-1][1] + n_added)
        return aligned(text, edits_of_changes(text.text, changes)) if changed else text

    def _text_of(self, part: str) -> str | None:
        """Returns the text of the shortest prefix in the trie, None if there is none."""
        units, pool = _plain(self.precompiled_charsmap)
        node = _offset(units[0])
        for byte in part.encode():
            node ^= byte
            if byte == 0 or node >= len(units) or units[node] & 0x800000FF != byte:
                return None
            has_text = units[node] & 256
            node ^= _offset(units[node])
            if has_text:
                value = units[node] & 0x7FFFFFFF if node < len(units) else len(pool)
                if value >= len(pool) or pool[value] & 0xC0 == 0x80:
                    return None
                return pool[value:].partition(b"\0")[0].decode()
        return None


@functools.lru_cache(maxsize=4)
def _plain(precompiled_charsmap: bytes) -> tuple[list[int], bytes]:
    mapping = tables.chars_map(precompiled_charsmap)
    return mapping.units.tolist(), mapping.pool.tobytes()


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & 512) >> 6)


def graphemes(text: str) -> list[str]:
    """Cuts a text into extended grapheme clusters (Unicode, UAX 29), and also between regional indicators."""
    found: list[str] = []
    for char in text:
        if found and not _has_break(found[-1], char):
            found[-1] += char
        else:
            found.append(char)
    return found


def _has_break(cluster: str, char: str) -> bool:
    """Whether a grapheme ends before `char`; rules GB3 to GB11 of UAX 29 in their order."""
    kinds = tables.graphemes()
    before, after = (int(kinds[ord(c)]) & kernels.CATEGORY for c in (cluster[-1], char))
    alone = (kernels.CR, kernels.LF, kernels.CONTROL)
    if before in alone or after in alone:
        return not (before == kernels.CR and after == kernels.LF)
    if (before, after) in _HANGUL_PAIRS:
        return False
    if after in (kernels.EXTEND, kernels.ZWJ, kernels.SPACING_MARK) or before == kernels.PREPEND:
        return False
    if after == kernels.CONSONANT:
        linked = False
        for c in reversed(cluster):
            if not kinds[ord(c)] & (kernels.LINKER | kernels.CONJUNCT_EXTEND):
                return not (linked and kinds[ord(c)] & kernels.CATEGORY == kernels.CONSONANT)
            linked = linked or bool(kinds[ord(c)] & kernels.LINKER)
    if after == kernels.PICTOGRAPH and before == kernels.ZWJ:
        for c in reversed(cluster[:-1]):
            if kinds[ord(c)] & kernels.CATEGORY != kernels.EXTEND:
                return bool(kinds[ord(c)] & kernels.CATEGORY != kernels.PICTOGRAPH)
    return True


_HANGUL_PAIRS = {
    *((kernels.HANGUL_L, x) for x in (kernels.HANGUL_L, kernels.HANGUL_V, kernels.HANGUL_LV, kernels.HANGUL_LVT)),
    *((a, b) for a in (kernels.HANGUL_LV, kernels.HANGUL_V) for b in (kernels.HANGUL_V, kernels.HANGUL_T)),
    *((a, kernels.HANGUL_T) for a in (kernels.HANGUL_LVT, kernels.HANGUL_T)),
}
