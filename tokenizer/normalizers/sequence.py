# SPDX-License-Identifier: Apache-2.0
"""A sequence of normalizers."""

import dataclasses
from collections.abc import Sequence as Normalizers

from tokenizer.aligned import AlignedText
from tokenizer.normalizers.base import Normalizer
from tokenizer.ragged import Ragged


@dataclasses.dataclass(frozen=True)
class Sequence(Normalizer):
    """Applies normalizers in order.

    Raises:
      TypeError: if an element is not a normalizer.
    """

    normalizers: Normalizers[Normalizer]

    def __post_init__(self) -> None:
        for i, normalizer in enumerate(self.normalizers):
            if not isinstance(normalizer, Normalizer):
                raise TypeError(f"normalizers[{i}]: expected a normalizer, got {normalizer!r}")
        object.__setattr__(self, "normalizers", tuple(self.normalizers))

    @property
    def is_fast(self) -> bool:
        """Whether all its normalizers are fast; see `Normalizer`."""
        return all(normalizer.is_fast for normalizer in self.normalizers)

    def normalize_rows(self, rows: Ragged) -> Ragged:
        """Normalizes a column of valid UTF-8; see `Normalizer`."""
        for normalizer in self.normalizers:
            rows = normalizer.normalize_rows(rows)
        return rows

    def normalize_aligned(self, text: AlignedText) -> AlignedText:
        """Normalizes one text, with alignments; see `Normalizer`."""
        for normalizer in self.normalizers:
            text = normalizer.normalize_aligned(text)
        return text
