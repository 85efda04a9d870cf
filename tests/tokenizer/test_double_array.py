# SPDX-License-Identifier: Apache-2.0
"""Tries as double arrays hold what they were made of, and nothing else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenizer.kernels import double_array as kernels
from tokenizer.models.bpe_tables import padded_bytes
from tokenizer.models.double_array import double_array
from tokenizer.models.vocabulary import Tokens


@given(st.sets(st.binary(min_size=1, max_size=6), max_size=60))
def test_the_double_array_holds_exactly_its_entries(entries: set[bytes]) -> None:
    ordered = sorted(entries)
    units, root, _, _ = double_array(Tokens(*padded_bytes(ordered)), np.arange(len(ordered), dtype=np.int32))

    def look_up(entry: bytes) -> int:
        base, found = root, -1
        for byte in entry:
            unit = int(units[base ^ byte])
            if unit & 511 != byte:
                return -1
            found, base = (unit >> kernels.PIECE_SHIFT & kernels.PIECE_MASK) - 1, unit >> kernels.BASE_SHIFT
        return found

    for i, entry in enumerate(ordered):
        assert look_up(entry) == i
        for other in (entry[:-1], entry + b"\0", entry[:-1] + bytes([entry[-1] ^ 1])):
            if other and other not in entries:
                assert look_up(other) == -1


def test_entries_that_are_too_many_are_refused() -> None:
    entries = Tokens(np.zeros(16, np.uint8), np.array([0, 1 << 28]))  # refused before their bytes are looked at
    with pytest.raises(ValueError, match="must have fewer than 268435456 bytes in all, got 268435456"):
        double_array(entries, np.zeros(1, np.int32))
