# SPDX-License-Identifier: Apache-2.0
"""SentencePiece's normalizer, given by the character map in its models, as HF applies it."""

import dataclasses

from tokenmill.tokenizer.normalizers import tables
from tokenmill.tokenizer.normalizers.base import Applied, Change, Edges, Edit, TextStep, edits_of_changes, unless_same
from tokenmill.tokenizer.normalizers.edit_lists import apply_edits, found_edits, places_in_text
from tokenmill.tokenizer.normalizers.kernels import precompiled as kernels
from tokenmill.tokenizer.ragged import Ragged, text_rows


@dataclasses.dataclass(frozen=True)
class Precompiled(TextStep):
    """Applies a SentencePiece character map as HF tokenizers does it, which differs from SentencePiece.

    Source: HF tokenizers `normalizers/precompiled.rs` and the crate spm_precompiled.

    Raises:
      ValueError: if `precompiled_charsmap` is not a character map.
    """

    name = "Precompiled"

    precompiled_charsmap: bytes = dataclasses.field(repr=False)
    """Size of a double-array trie in bytes (uint32), the trie, texts that end with NUL."""

    def __post_init__(self) -> None:
        self.tables  # noqa: B018  checks the map

    @property
    def tables(self) -> tables.CharsMap:
        """The character map for kernels."""
        return tables.chars_map(self.precompiled_charsmap)

    def edits(self, text: str, begins: bool = True, ends: bool = True) -> list[Edit]:
        found = found_edits(kernels.find_mapped, text_rows([text]), self.tables)
        pool, texts = self.tables.texts.pool, self.tables.texts
        changes: list[Change] = []
        at = 0
        for (start, stop), k in zip(places_in_text(text, found[:, :2]), found[:, 2].tolist(), strict=True):
            new = pool[texts.starts[k] : texts.stops[k]].tobytes().decode()
            n_added = len(new) - (stop - start)
            changes += [(c, 0) for c in text[at:start]]
            changes += [(c, int(i >= stop - start)) for i, c in enumerate(new)]
            if n_added < 0 and changes:
                # A removed character is merged into the one before; at the very beginning HF drops it.
                changes[-1] = (changes[-1][0], changes[-1][1] + n_added)
            at = stop
        return edits_of_changes(text, [*changes, *((c, 0) for c in text[at:])]) if len(found) else []

    def apply_rows(self, rows: Ragged, edges: Edges) -> Applied:
        found = found_edits(kernels.find_mapped, rows, self.tables)
        applied = apply_edits(rows, found, self.tables.texts)
        return applied._replace(rows=unless_same(rows, applied.rows)) if len(found) else applied
