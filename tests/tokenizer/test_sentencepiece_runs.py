# SPDX-License-Identifier: Apache-2.0
"""Parts among 64 characters at once, against a plain walk from one character to the next."""

import itertools
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests import charsmaps
from tokenizer.engines.sentencepiece_tables import KnownTables, raw_tables
from tokenizer.kernels import sentencepiece_units as units
from tokenizer.kernels.compiling import kernel
from tokenizer.kernels.sentencepiece_blocks import BLOCK_READS
from tokenizer.kernels.sentencepiece_runs import COUNTS, PLACES, run_parts
from tokenizer.kernels.word_table import SHORT_WORD_BYTES
from tokenizer.models import Unigram
from tokenizer.normalizers.sentencepiece import SentencePieceNormalizer
from tokenizer.ragged import read_only

N_NOTES = 208
AT_END = BLOCK_READS + SHORT_WORD_BYTES
"""So many bytes at the end of an array are not read."""


class Run(NamedTuple):
    """What `run_parts` returns, as lists of the numbers of characters."""

    n: int
    starts: list[int]
    ends: list[int]
    behind: list[int]
    words: list[int]
    has_id: list[int]
    is_closer: bool
    entries: list[int]
    places: list[int]


@kernel
def call_run_parts(data, i, end, n_readable, tables, notes, masks):  # type: ignore[no-untyped-def]
    n, masks[0], masks[1], masks[2], masks[3], masks[4], is_closer = run_parts(
        data, i, end, n_readable, tables.characters, tables.joins, tables.shrink, notes
    )
    return n, is_closer


def fast(data: np.ndarray, i: int, end: int, known: KnownTables) -> Run:
    notes, masks = np.full(N_NOTES, -1, np.int64), np.zeros(5, np.uint64)
    n, is_closer = call_run_parts(data, i, end, data.size - AT_END, known, notes, masks)
    starts, ends, behind, words, has_id = ([k for k in range(n) if int(mask) >> k & 1] for mask in masks)
    if n > 0:
        assert notes[int(COUNTS) : int(COUNTS) + n].tolist() == [1] * n
    places = notes[int(PLACES) : int(PLACES) + n + 1].tolist() if n > 0 else [i]
    return Run(n, starts, ends, behind, words, has_id, is_closer, notes[:n].tolist(), places)


def slow(data: np.ndarray, i: int, end: int, known: KnownTables) -> Run:
    raw = data.tobytes()
    text = raw[i:end].decode()
    places = list(itertools.accumulate((len(c.encode()) for c in text), initial=i))
    entries = [int(known.characters[ord(c)]) for c in text]

    def is_unknown(k: int) -> bool:
        return entries[k] & units.UNKNOWN_MASK == units.UNKNOWN

    def is_separator(k: int) -> bool:
        return entries[k] & units.IS_SEPARATOR != 0

    def is_cut(k: int) -> bool:
        """Whether a part may end in front of a character that is no separator."""
        either = entries[k - 1] | entries[k]
        if either & units.IS_DEPENDENT:
            return False
        bit = (entries[k - 1] >> units.JOIN_BITS ^ entries[k]) & (1 << units.JOIN_BITS) - 1
        return either & units.IS_ALONE != 0 or int(known.joins[bit >> 6]) >> (bit & 63) & 1 == 0

    n, n_seen, is_closer = 0, 0, False
    while n < 64 and n < len(text) and places[n] < data.size - AT_END:
        begins_ascii = n > 0 and max(raw[places[n] : places[n] + 8]) < 128
        if begins_ascii or is_unknown(n):
            n_seen, is_closer = n + 1, is_unknown(n)
            break
        n += 1
        n_seen = n
    # Whether the row ends there is looked at only where another character would be.
    row_ends = [len(text)] if len(text) < 64 and end < data.size - AT_END else []
    cut = [False] + [is_cut(k) for k in range(1, n_seen)]
    if not known.shrink:
        cut = [c or (k > 0 and is_separator(k) and not is_separator(k - 1)) for k, c in enumerate(cut)]
        ends_at = [k for k in range(1, n_seen) if cut[k]] + row_ends
        starts = [k for k in range(n) if k == 0 or cut[k]]
        ends = [k - 1 for k in ends_at if k <= n]
        behind = []
    else:
        behind = [k for k in range(1, n) if is_separator(k - 1) and not is_separator(k)]
        starts = [k for k in range(n) if not is_separator(k) and (k == 0 or k in behind or cut[k])]
        ends_at = [k for k in range(1, n_seen) if cut[k] or is_separator(k)] + row_ends
        ends = [k - 1 for k in ends_at if k <= n and not is_separator(k - 1)]
    if n == 0:
        return Run(0, [], [], [], [], [], is_closer, [], [i])
    words = [k for k in range(n) if entries[k] & (units.IS_SEPARATOR | units.IS_CONTROL) == 0]
    has_id = [k for k in range(n) if entries[k] >= 0]
    return Run(n, starts, ends, behind, words, has_id, is_closer, entries[:n], places[: n + 1])


PIECES = [*"▁abé玫瑰かが🙂𝖟1（\x01", "ab", "玫瑰", "瑰か", "𝖟🙂", "b玫", "é玫", "▁玫", "玫a", "🙂a"]
RULES = charsmaps.build(
    {k.encode(): v for k, v in {"か\u3099": "が", "\u3000": " ", "（": "(", "e\u0301": "é"}.items()}
)


def tables_of(shrink: bool, rules: bool, byte_fallback: bool) -> KnownTables:
    vocab = [("<unk>", 0.0), *((piece, -1.0 - k) for k, piece in enumerate(PIECES))]
    kinds = [2] + [1] * len(PIECES)
    if byte_fallback:
        vocab += [(f"<0x{byte:02X}>", 0.0) for byte in range(256)]
        kinds += [6] * 256
    normalizer = SentencePieceNormalizer(RULES if rules else b"", remove_extra_whitespaces=shrink)
    found = raw_tables(normalizer, Unigram(vocab, 0, byte_fallback, kinds))
    assert found is not None
    return found.known


TABLES = [tables_of(*choice) for choice in itertools.product([False, True], repeat=3)]
WORDS = st.sampled_from(
    [
        *"ab1 \n\té玫瑰かが\u3099\u3000（🙂𝖟▁\x01\x00",
        "玫瑰" * 9,
        "𝖟🙂" * 10,
        "é" * 17,
        "abababab",
        "ab1 ab",
        "仮",
        "ж" * 5,
    ]
)
TEXTS = st.lists(WORDS, min_size=1, max_size=60).map("".join)


@given(st.integers(0, len(TABLES) - 1), TEXTS, st.integers(0, 90), st.data())
@example(0, "玫" * 64 + "abababab", 0, None)
@example(0, "玫" * 16 + "abababab", 0, None)
@example(1, "🙂" * 40, 0, None)
@example(2, "玫" * 63 + "仮", 0, None)
def test_runs_are_those_of_a_walk(kind: int, text: str, n_left: int, drawn: st.DataObject | None) -> None:
    raw = text.encode()
    # What is behind the row is another one, and then the end of the array, sooner or later.
    data = read_only(np.frombuffer(raw + ("瑰b" * 50).encode()[: n_left // 4 * 4] + bytes(16), np.uint8))
    first = 0 if drawn is None else drawn.draw(st.integers(0, len(text) - 1))
    i = len(text[:first].encode())
    known = TABLES[kind]
    if data.size - AT_END > i:
        assert fast(data, i, len(raw), known) == slow(data, i, len(raw), known)


@pytest.mark.parametrize("kind", range(len(TABLES)))
def test_every_length_of_run_and_row(kind: int) -> None:
    known = TABLES[kind]
    for unit in ("玫", "é", "🙂", "瑰か", "仮", "玫 ", "（", "𝖟ж", "か\u3099"):
        for n in range(1, 70):
            raw = (unit * n + "abababab").encode()
            data = read_only(np.frombuffer(raw + b"a" * 200, np.uint8))
            for end in (len(raw), len(raw) - 1, len(raw) - 8):
                assert fast(data, 0, end, known) == slow(data, 0, end, known)
