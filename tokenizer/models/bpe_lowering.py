# SPDX-License-Identifier: Apache-2.0
"""Lowers a BPE model to the arrays that its kernels read."""

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.kernels.bpe_pairs import build_byte_pairs
from tokenmill.tokenizer.kernels.bpe_symbols import CONTINUES, ENDS
from tokenmill.tokenizer.models.bpe_fields import BPEFields
from tokenmill.tokenizer.models.bpe_tables import (
    BPETables,
    crossings_of,
    joins_of,
    new_bpe_scratch,
    pair_table,
    reachable,
    take_part,
)
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET
from tokenmill.tokenizer.models.kernels.bpe_merges import find_unmerged
from tokenmill.tokenizer.models.vocabulary import (
    WORD_PADDING,
    Words,
    offsets_of,
    word_table,
)

_ALPHABET = np.array([ord(c) for c in BYTE_ALPHABET], np.int32)
_N_CODE_POINTS = 0x110000


def lower(model: BPEFields, *, dropping: bool = False) -> BPETables:
    """Lowers a model to arrays; dropping: keeps the merges that can only be made if others are dropped."""
    unk_id = -1 if model.unk_token is None else model.columns.find_one(model.unk_token)
    byte_symbols = model.byte_symbols
    plain = model.byte_level and not model.prefix and int(byte_symbols[model.symbol_rows].min()) >= 0
    characters, characters_known = _characters(model)
    named = np.array([*model.byte_ids, unk_id], np.int64)
    symbols = np.array([*characters_known, *byte_symbols[model.symbol_rows].ravel()], np.int64)
    initial = np.concatenate([symbols, named])
    initial = initial[initial >= 0]
    merges = model.merge_ids
    # Byte tokens, the unknown token and markers can give a text a second spelling.
    is_plain = not (dropping or model.is_tied or model.prefix or model.suffix or take_part(named, merges))
    found = reachable(merges, initial, always=model.ignore_merges) if is_plain else None
    if found is None:
        pairs, bits = pair_table(merges.lefts, merges.rights, model.shared_ranks)
    else:
        merges, pairs, bits, _ = found
    byte_pairs = np.empty(1 << 16 if plain else 0, np.uint32)
    if plain:
        build_byte_pairs(byte_symbols, pairs, bits, byte_pairs)
    words = _words(model) if plain or model.ignore_merges else None
    crossings, partial, apart = (np.zeros(0, np.uint64),) * 3
    if plain and words:
        crossings, partial, apart = crossings_of(*_without_suffix(*words[:2], model.suffix.encode()))
    tables = BPETables(
        pairs=pairs,
        pair_bits=bits,
        products=merges.products,
        orders=np.array(model.merge_ranks if model.is_tied and not dropping else [], np.uint32),
        joins=joins_of(merges, initial),
        crossings=crossings,
        partial=partial,
        apart=apart,
        max_ids_per_byte=model.max_ids_per_byte,
        byte_level=model.byte_level,
        plain_bytes=plain,
        byte_symbols=byte_symbols,
        byte_pairs=byte_pairs,
        alphabet=_ALPHABET,
        characters=characters,
        prefix=np.frombuffer(bytearray(model.prefix.encode()), np.uint8),
        suffix=np.frombuffer(bytearray(model.suffix.encode()), np.uint8),
        byte_ids=np.array(model.byte_ids, np.int32),
        byte_fallback=model.byte_fallback,
        unk_id=unk_id,
        fuse_unk=model.fuse_unk,
        # HF draws float32, which are multiples of 2**-24, and compares them with the float32 of this.
        dropout_threshold=dropping * int(np.ceil(np.float32(model.dropout or 0) * np.float32(1 << 24))),
        whole_slots=np.zeros((1, 4), np.int64),
        whole_pool=np.zeros(0, np.uint8),
        longest_whole=0,
    )
    if not model.ignore_merges or not words:
        return tables
    made = None
    if found is not None:
        made = found.made
        # Words may begin with these as symbols, but not by their own spelling.
        others = np.zeros(made.size, np.bool_)
        others[named[named >= 0]] = True
        others[symbols[symbols >= 0]] = False
        made[others] = False
    return _with_whole_words(model, tables, words, made)


def _characters(model: BPEFields) -> tuple[npt.NDArray[np.int32], list[int]]:
    """Returns the table of characters, see `BPETables.characters`, and the ids in it."""
    if model.byte_level:
        return np.zeros((0, _N_CODE_POINTS), np.int32), []
    rows = model.symbol_rows
    characters = np.zeros((rows[-1] + 1, _N_CODE_POINTS), np.int32)
    initial = []
    ids = model.columns.ids
    points, offsets = model.columns.tokens.characters
    for row in rows:
        before = model.prefix if row & CONTINUES else ""
        after = model.suffix if row & ENDS else ""
        found = np.flatnonzero(np.diff(offsets) == len(before) + 1 + len(after))
        places = offsets[found]
        is_one = np.ones(found.size, np.bool_)
        for k, c in enumerate(before):
            is_one &= points[places + k] == ord(c)
        for k, c in enumerate(after, len(before) + 1):
            is_one &= points[places + k] == ord(c)
        found, places = found[is_one], places[is_one]
        characters[row, points[places + len(before)]] = ids[found] + 1
        initial += ids[found].tolist()
    return characters, initial


def _with_whole_words(
    model: BPEFields, tables: BPETables, words: Words, made: npt.NDArray[np.bool_] | None
) -> BPETables:
    """Adds the word table of the entries that merges would not make, which are few or none.

    made: bool[n], the ids that merges make, if that is known already; larger ids are not made.
    """
    values, offsets, ids = words
    lengths = np.diff(offsets)
    if made is not None:
        unmerged = np.ones(ids.size, np.bool_)
        is_there = ids < made.size
        unmerged[is_there] = ~made[ids[is_there]]
    else:
        longest = int(lengths.max(initial=1))
        scratch = new_bpe_scratch(longest, tables)
        unmerged = np.empty(ids.size, np.bool_)
        n_ids = longest * model.max_ids_per_byte
        out, ends = np.empty(n_ids, np.int32), np.empty(n_ids, np.int64)
        find_unmerged(values, offsets, ids, tables, scratch, out, ends, unmerged)
    values = np.append(values[:-WORD_PADDING][np.repeat(unmerged, lengths)], np.zeros(WORD_PADDING, np.uint8))
    lengths, ids = lengths[unmerged], ids[unmerged]
    slots, pool, _ = word_table(values, offsets_of(lengths), ids)
    return tables._replace(whole_slots=slots, whole_pool=pool, longest_whole=int(lengths.max(initial=0)))


def _without_suffix(
    values: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], suffix: bytes
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Returns the padded bytes and offsets of words, without the suffix of those that end with it."""
    lengths = np.diff(offsets)
    has_suffix = lengths >= len(suffix)
    for k, byte in enumerate(suffix):
        has_suffix &= values[np.maximum(offsets[1:] - len(suffix) + k, 0)] == byte
    if not suffix or not has_suffix.any():
        return values, offsets
    places = np.arange(values.size - WORD_PADDING)
    stops = np.where(has_suffix, offsets[1:] - len(suffix), offsets[1:])
    kept = places < np.repeat(stops, lengths)
    return np.append(values[:-WORD_PADDING][kept], np.zeros(WORD_PADDING, np.uint8)), offsets_of(stops - offsets[:-1])


def _words(model: BPEFields) -> Words:
    if not model.byte_level:
        return model.columns.words
    # A byte-level word has as many bytes as the entry has characters.
    ids = model.columns.ids
    points, offsets = model.columns.tokens.characters
    lengths = np.diff(offsets)
    byte_of = np.full(0x145, -1, np.int16)
    byte_of[_ALPHABET] = np.arange(256)
    spelled = byte_of[np.minimum(points, 0x144)]
    kept = lengths > 0
    foreign = spelled < 0
    if foreign.any():
        kept[np.repeat(np.arange(ids.size), lengths)[foreign]] = False
        spelled = spelled[np.repeat(kept, lengths)]
    values = np.zeros(spelled.size + WORD_PADDING, np.uint8)
    values[: spelled.size] = spelled
    return values, offsets_of(lengths[kept]), ids[kept]
