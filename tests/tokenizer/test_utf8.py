# SPDX-License-Identifier: Apache-2.0
"""`find_invalid_utf8` against Python's decoder, and what its kernel does 32 bytes at a time."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tokenmill.tokenizer.utf8 import find_invalid_utf8

_TEXTS = st.text(st.sampled_from("aé中🐇߿ࠀ\ud7ff\ue000\uffff\U00010000\U0010ffff"), max_size=120).map(str.encode)
_PIECES = st.lists(_TEXTS | st.binary(max_size=6) | st.just(b"a" * 70), max_size=5).map(b"".join)


def _first_invalid(data: bytes) -> int:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return -1


def _found(rows: list[bytes]) -> list[int]:
    stops = np.cumsum([len(row) for row in rows], dtype=np.int64)
    starts = stops - [len(row) for row in rows]
    found = find_invalid_utf8(b"".join(rows), starts, stops)
    if found is None:
        return [-1] * len(rows)
    return [at - start if at >= 0 else -1 for at, start in zip(found.tolist(), starts.tolist(), strict=True)]


@given(st.lists(_PIECES, max_size=4), st.integers(0, 8))
@example([b"\xe4\xb8", b"\xad"], 0)
def test_it_finds_the_byte_at_which_the_decoder_stops(rows, n_before):
    rows = [b"." * n_before, *rows]
    assert _found(rows) == [_first_invalid(row) for row in rows]


@pytest.mark.parametrize("n_before", [0, 3, 29, 30, 31, 32, 61, 64])
def test_every_pair_of_bytes_at_the_edges_of_blocks(n_before):
    # What two bytes must not be, whatever follows; a third and fourth byte continue them.
    pairs = [bytes([lead, second]) for lead in range(0x7F, 0x100) for second in (0x7F, *range(0x80, 0xC1, 0x0F), 0xC2)]
    for before in ("é" * n_before, "a" * n_before):
        for pair in pairs:
            for after in (b"", b"\x80", b"\x80\x80", b"\x80\x80" + "中".encode() * 30):
                data = before.encode() + pair + after
                assert _found([data]) == [_first_invalid(data)], data
