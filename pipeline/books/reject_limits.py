# SPDX-License-Identifier: Apache-2.0
"""How many rejected records a job accepts before it stops: if most are rejected, the config is probably wrong."""

from dataclasses import dataclass
from typing import Self

from pipeline.config.input import InputConfig

ENOUGH_RECORDS = 10_000
"""Before a job has read this many records, the fraction of rejected ones means little."""


@dataclass(frozen=True, slots=True)
class RejectLimits:
    """`input.max_rejected` and `input.max_rejected_fraction`; None for no limit."""

    max_rejected: int | None = None
    max_fraction: float | None = None

    @classmethod
    def of(cls, config: InputConfig) -> Self:
        """Returns the limits of the `input` section."""
        return cls(config.max_rejected, config.max_rejected_fraction)

    def check(self, n_records: int, n_rejected: int, *, is_all: bool = False) -> None:
        """Raises if too many records were rejected.

        Args:
          n_records: how many records were read, including rejected ones.
          n_rejected: how many of them were rejected.
          is_all: whether this is the whole job; then the fraction is checked however few records there are.

        Raises:
          ValueError: with the numbers, the limit, and what to do.
        """
        found = f"{n_rejected:,} of {n_records:,} records read were rejected, more than "
        advice = (
            "; the rejects of finished splits are in rejected/. Correct the config and start again, or raise the limit "
            "and go on with --resume"
        )
        if self.max_rejected is not None and n_rejected > self.max_rejected:
            raise ValueError(f"{found}input.max_rejected {self.max_rejected:,}{advice}")
        if self.max_fraction is None or (n_records < ENOUGH_RECORDS and not is_all):
            return
        if n_rejected > self.max_fraction * n_records:
            raise ValueError(f"{found}input.max_rejected_fraction {self.max_fraction}{advice}")
