# SPDX-License-Identifier: Apache-2.0
"""A sequence of normalizers."""

import dataclasses
from collections.abc import Sequence as Normalizers

from tokenmill.tokenizer.normalizers.base import Normalizer, grown
from tokenmill.tokenizer.ragged import Ragged
from tokenmill.tokenizer.traced import Traced


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

    def flat(self) -> list[Normalizer]:
        """Returns the normalizers in order, with nested sequences flattened: so texts are compared with the first."""
        return [part for n in self.normalizers for part in (n.flat() if isinstance(n, Sequence) else [n])]

    @property
    def is_fast(self) -> bool:
        return all(normalizer.is_fast for normalizer in self.normalizers)

    def normalize_rows(self, rows: Ragged) -> Ragged:
        normalized = rows
        for normalizer in self.flat():
            normalized = grown(rows, normalizer.normalize_rows(normalized))
        return normalized

    def trace(self, text: Traced) -> Traced:
        rows = text.rows
        for normalizer in self.flat():
            text = normalizer.trace(text)
            grown(rows, text.rows)
        return text
