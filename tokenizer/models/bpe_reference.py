# SPDX-License-Identifier: Apache-2.0
"""The reference implementation of the BPE kernels, in plain Python, short enough to be believed by reading."""

import heapq
import itertools
from collections.abc import Sequence

import numpy as np

from tokenmill.tokenizer.errors import UnknownCharacterError
from tokenmill.tokenizer.kernels.bpe_symbols import CONTINUES, ENDS
from tokenmill.tokenizer.models.bpe_fields import BPEFields, without
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET

_U64 = (1 << 64) - 1


def tokenize_bytes(model: BPEFields, word: bytes, key: int | None) -> list[tuple[int, int]]:
    """Returns the ids of a word, and where each ends, in bytes; see `BPE.tokenize_bytes`."""
    text = "".join(BYTE_ALPHABET[b] for b in word) if model.byte_level else word.decode()
    if model.ignore_merges and key is None and text in model.vocab:
        return [(model.vocab[text], len(word))]
    found = _merged(model, *_initial_symbols(model, text), key)
    ends = itertools.accumulate(length for _, length in found)
    return [(model.vocab[symbol], min(end, len(word))) for (symbol, _), end in zip(found, ends, strict=True)]


def _initial_symbols(model: BPEFields, text: str) -> tuple[list[str], list[int]]:
    symbols: list[str] = []
    lengths: list[int] = []
    waiting: list[int] = []  # lengths of unknown tokens that have not been added yet

    def flush() -> None:
        for length in waiting:
            symbols.append(str(model.unk_token))
            lengths.append(length)
        waiting.clear()

    for i, character in enumerate(text):
        row = (CONTINUES if i else 0) | (ENDS if i == len(text) - 1 else 0)
        symbol = model.spelled(character, row)
        length = 1 if model.byte_level else len(character.encode())
        byte_tokens = [f"<0x{b:02X}>" for b in symbol.encode()]
        if symbol in model.vocab:
            flush()
            symbols.append(symbol)
            lengths.append(length)
        elif model.byte_fallback and all(token in model.vocab for token in byte_tokens):
            symbols += byte_tokens
            lengths += [0 if model.byte_level and k else 1 for k in range(len(byte_tokens))]
        elif model.unk_token is not None:
            if model.unk_token not in model.vocab:
                raise UnknownCharacterError
            if waiting and model.fuse_unk:
                waiting[-1] += length
            else:
                flush()
                waiting.append(length)
    flush()
    return symbols, lengths


def _join(model: BPEFields, left: str, right: str) -> str:
    return left + without(right, len(model.prefix.encode()))


def _merged(model: BPEFields, symbols: Sequence[str], lengths: Sequence[int], key: int | None) -> list[tuple[str, int]]:
    """Returns the symbols that are left after all merges, and their lengths."""
    # Symbols keep their places, as the kernel's items do: one that has been merged into another becomes None.
    places: list[str | None] = [*symbols, None]
    sizes, n = list(lengths), len(symbols)
    before, after = list(range(-1, n)), list(range(1, n + 2))
    chances: list[tuple[int, int]] = []

    def rank(i: int) -> int | None:
        left, right = places[i], places[after[i]]
        return None if left is None or right is None else model.ranks.get((left, right))

    def add(i: int) -> None:
        found = rank(i) if i >= 0 else None
        if found is not None:
            heapq.heappush(chances, (found, i))

    for i in range(n):
        add(i)
    skipped: list[tuple[int, int]] = []
    n_draws = 0
    while chances:
        chance = heapq.heappop(chances)
        n_draws += 1
        if key is not None and _random(key, n_draws) / 2**24 < np.float32(model.dropout or 0):
            skipped.append(chance)
            continue
        for other in skipped:
            heapq.heappush(chances, other)
        skipped.clear()
        found, i = chance
        if rank(i) != found:  # one of the two has been merged with another
            continue
        j = after[i]
        places[i] = _join(model, str(places[i]), str(places[j]))
        places[j] = None
        sizes[i] += sizes[j]
        after[i] = after[j]
        before[after[i]] = i
        add(before[i])
        add(i)
    return [(place, size) for place, size in zip(places, sizes, strict=False) if place is not None]


def dropout_key(seed: int, occurrence: int) -> int:
    """Returns the key of the random stream of one occurrence of a word; see kernels.bpe_merging."""
    z = (seed * 0xD1342543DE82EF95 + occurrence) & _U64
    z = (z ^ z >> 32) * 0xD6E8FEB86659FD93 & _U64
    z = (z ^ z >> 32) * 0xD6E8FEB86659FD93 & _U64
    return z ^ z >> 32


def _random(key: int, counter: int) -> int:
    z = (key + (counter + 1) * 0x9E3779B97F4A7C15) & _U64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _U64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _U64
    return (z ^ z >> 31) >> 40
