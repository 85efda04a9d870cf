# SPDX-License-Identifier: Apache-2.0
"""SentencePiece's normalizer, given by the character map in its models, as HF applies it."""

import dataclasses

import numpy as np

from tokenmill.tokenizer.normalizers import tables
from tokenmill.tokenizer.normalizers.base import Normalizer, unless_same
from tokenmill.tokenizer.normalizers.edit_lists import (
    apply_edits,
    found_edits,
    in_characters,
    put_at_last,
)
from tokenmill.tokenizer.normalizers.kernels import precompiled as kernels
from tokenmill.tokenizer.ragged import Ragged
from tokenmill.tokenizer.traced import Traced


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
        self.tables  # noqa: B018  checks the map

    @property
    def tables(self) -> tables.CharsMap:
        """The character map for kernels."""
        return tables.chars_map(self.precompiled_charsmap)

    def normalize_rows(self, rows: Ragged) -> Ragged:
        found = found_edits(kernels.find_mapped, rows, self.tables)
        return unless_same(rows, apply_edits(rows, found, self.tables.texts).rows) if len(found) else rows

    def trace(self, text: Traced) -> Traced:
        edits, texts = found_edits(kernels.find_mapped, text.rows, self.tables), self.tables.texts
        if not len(edits):
            return text
        # New characters have the places of old ones, one by one; what is too much has that of the last.
        in_pool = np.append(0, np.cumsum(texts.pool & 0xC0 != 0x80))
        n_put = in_pool[texts.stops[edits[:, 2]]] - in_pool[texts.starts[edits[:, 2]]]
        starts, stops = in_characters(text.rows, edits)
        kept = np.minimum(n_put, stops - starts)
        is_more = n_put > stops - starts
        bounds = text.bounds
        # If what is removed follows what is too much, the last of that has the place of the first that is removed.
        takes_over = (n_put[1:] == 0) & is_more[:-1] & (starts[1:] == stops[:-1]) & ~np.isin(starts[1:], bounds)
        firsts, lasts = starts[1:][takes_over], stops[:-1][takes_over] - 1
        starts, n_put = starts + kept - is_more, n_put - kept + is_more
        changes = starts < stops
        n_new = put_at_last(text.starts.size, starts[changes], stops[changes], n_put[changes])
        n_new[firsts] += 1
        n_new[lasts] -= 1
        for row in np.flatnonzero(np.isin(bounds[:-1], np.flatnonzero(n_new == 0))).tolist():
            # Where the first characters are removed, HF takes the others for them, and the last ones for removed.
            of_row = n_new[bounds[row] : bounds[row + 1]]
            lost = int(np.argmax(of_row > 0)) if of_row.any() else 0
            of_row[: of_row.size - lost] = of_row[lost:].copy()
            of_row[of_row.size - lost :] = 0
        return text.repeated(apply_edits(text.rows, edits, texts).rows, n_new)
