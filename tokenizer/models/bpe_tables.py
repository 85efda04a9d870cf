# SPDX-License-Identifier: Apache-2.0
"""The arrays that BPE and WordLevel kernels read and write, and how to make them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenizer import recycled
from tokenizer.kernels import bpe_crossings
from tokenizer.kernels import bpe_pairs as pairs
from tokenizer.kernels.bpe_merging import MAX_SCANNED
from tokenizer.models.kernels import bpe_reachable
from tokenizer.models.vocabulary import WORD_PADDING, offsets_of


class BPETables(NamedTuple):
    """A BPE model as the kernels read it."""

    pairs: npt.NDArray[np.uint64]
    """uint64[n]: the pair table, see kernels.bpe_pairs."""
    pair_bits: int
    products: npt.NDArray[np.int32]
    """int32[n_merges]: the id that each merge makes; the rank of a merge is its index."""
    orders: npt.NDArray[np.uint32]
    """uint32[n_merges]: how good each merge is, the best first, where different ones are equally good: then the
    leftmost pair goes first, whatever it makes. SentencePiece models that somebody has added pieces to have such ties,
    as these all score zero. Else of no size."""
    joins: npt.NDArray[np.uint64]
    """uint64[2**JOIN_BITS / 64]: a bit for (the hash of) every two initial symbols that some merge reaches across."""
    crossings: npt.NDArray[np.uint64]
    partial: npt.NDArray[np.uint64]
    apart: npt.NDArray[np.uint64]
    """uint64[n]: what tokens hold on both sides of a place between two characters, see kernels.bpe_crossings; of no
    size unless `plain_bytes`."""
    max_ids_per_byte: int
    """The most ids that a byte of a word can become."""
    byte_level: bool
    plain_bytes: bool
    """Whether a word's bytes are all symbols, and the same wherever they stand but at its end."""
    byte_symbols: npt.NDArray[np.int32]
    """int32[4, 256]: id of each byte by where it stands (kernels.bpe_symbols.CONTINUES | ENDS), -1 for none; byte-level
    only."""
    byte_pairs: npt.NDArray[np.uint32]
    """uint32[65536]: for plain bytes, rank << 8 of each two, all ones where they do not merge."""
    alphabet: npt.NDArray[np.int32]
    """int32[256]: code points of BYTE_ALPHABET."""
    characters: npt.NDArray[np.int32]
    """int32[1, 2 or 4; 0x110000]: id + 1 of each character by where it stands, 0 for none; of no rows if byte-level.
    Only the pages of scripts in the vocabulary or the text are ever touched."""
    prefix: npt.NDArray[np.uint8]
    """uint8[n]: UTF-8 of `continuing_subword_prefix`."""
    suffix: npt.NDArray[np.uint8]
    """uint8[n]: UTF-8 of `end_of_word_suffix`."""
    byte_ids: npt.NDArray[np.int32]
    """int32[256]: ids of the byte tokens `<0x00>` to `<0xFF>`, -1 for those the vocabulary does not have."""
    byte_fallback: bool
    unk_id: int
    """-1 for none: unknown characters are dropped."""
    fuse_unk: bool
    dropout_threshold: int
    """Of 2**24: a chance to merge is passed over where 24 random bits are below it."""
    whole_slots: npt.NDArray[np.int64]
    whole_pool: npt.NDArray[np.uint8]
    """int64[n_slots, 4] and uint8[n_pool]: the word table, see kernels.word_table, of the entries that are looked up as
    whole words because merging would not make them."""
    longest_whole: int
    """Bytes in the longest of them, 0 where there is none."""


def without_suffix(tables: BPETables) -> BPETables:
    """Returns the tables for parts of words that are not the last one, which takes the suffix.

    The same tables where there is no suffix, or where words are not to be cut into parts: where some are looked up as
    a whole, or a suffix is not of bytes that stand for themselves.
    """
    suffix = tables.suffix
    if not (tables.plain_bytes and suffix.size) or tables.longest_whole or suffix.min() <= 0x20 or suffix.max() >= 0x7F:
        return tables
    return tables._replace(suffix=suffix[:0])


class BPEScratch(NamedTuple):
    """Room for the symbols of one word."""

    ids: npt.NDArray[np.int32]
    stops: npt.NDArray[np.int32]
    nexts: npt.NDArray[np.int32]
    previous: npt.NDArray[np.int32]
    """int32[n]: of each symbol its id, where it ends in the word, and which ones stand behind and before it."""
    keys: npt.NDArray[np.uint32]
    """uint32[MAX_SCANNED], see kernels.bpe_merging."""
    ranks: npt.NDArray[np.uint32]
    """uint32[n]: of the pair that begins with each symbol."""
    heap: npt.NDArray[np.uint64]
    skipped: npt.NDArray[np.uint64]
    """uint64[3 * n]: pairs that merge, and those that dropout has passed over, by rank and place."""


def new_bpe_scratch(n_word_bytes: int, tables: BPETables) -> BPEScratch:
    """Makes scratch for words of up to `n_word_bytes` bytes. Pages that no word reaches are never touched."""
    n = n_word_bytes * tables.max_ids_per_byte + 1
    return BPEScratch(
        ids=recycled.empty(n, np.int32),
        stops=recycled.empty(n, np.int32),
        nexts=recycled.empty(n, np.int32),
        previous=recycled.empty(n, np.int32),
        keys=np.empty(MAX_SCANNED, np.uint32),
        ranks=recycled.empty(n, np.uint32),
        # One item for every pair to begin with, and two for each merge.
        heap=recycled.empty(3 * n, np.uint64),
        skipped=recycled.empty(3 * n, np.uint64),
    )


class Merges(NamedTuple):
    """Merges as ids; the rank of each is its index."""

    lefts: npt.NDArray[np.int32]
    rights: npt.NDArray[np.int32]
    products: npt.NDArray[np.int32]


def take_part(ids: npt.NDArray[np.int64], merges: Merges) -> bool:
    """Whether merges have one of these ids, -1 for none, as a part or make it."""
    is_one = np.zeros(1 + max(int(part.max(initial=0)) for part in (ids, *merges)), np.bool_)
    is_one[ids[ids >= 0]] = True
    return any(bool(is_one[part].any()) for part in merges)


def padded_bytes(tokens: Sequence[bytes]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Returns the bytes of all tokens, padded as kernels want them, and offsets."""
    values = np.frombuffer(bytearray().join([*tokens, bytes(WORD_PADDING)]), np.uint8)
    return values, offsets_of(np.fromiter(map(len, tokens), np.int64, len(tokens)))


def pair_bits(n_merges: int) -> int:
    """Bits of the slots of a pair table: three to six a pair, because most searches are for pairs that do not merge."""
    return max(pairs.MIN_PAIR_BITS, (3 * n_merges).bit_length())


PAIR_TABLE_TRIES = 4
COLLIDING = "the merges do not fit into a hash table: their ids look made to collide"


def empty_pairs(bits: int) -> npt.NDArray[np.uint64]:
    """Returns a pair table with nothing in it."""
    n_filter = 1 << (bits + pairs.FILTER_BITS - 6)
    slots = np.full(n_filter + (1 << bits) + 64, -1, np.int64).view(np.uint64)
    slots[:n_filter] = 0
    return slots


def pair_table(
    lefts: npt.NDArray[np.int32], rights: npt.NDArray[np.int32], ranks: npt.NDArray[np.int32] | None = None
) -> tuple[npt.NDArray[np.uint64], int]:
    """Builds the pair table of merges; returns its slots and their bits. `ranks` None: each merge's own index.

    Raises:
      ValueError: if it would have to be much larger than merges from training need.
    """
    least = pair_bits(lefts.size)
    if ranks is None:
        ranks = np.arange(lefts.size, dtype=np.int32)
    for bits in range(least, least + PAIR_TABLE_TRIES):
        slots = empty_pairs(bits)
        if pairs.build_pairs(lefts, rights, ranks, slots, bits):
            return slots, bits
    raise ValueError(COLLIDING)


class Reachable(NamedTuple):
    """The merges that can ever be made, see models.kernels.bpe_reachable."""

    merges: Merges
    pairs: npt.NDArray[np.uint64]
    bits: int
    """Their pair table."""
    made: npt.NDArray[np.bool_]
    """bool[n]: which ids merging gives back for their own spelling; none beyond."""


def reachable(merges: Merges, initial: npt.NDArray[np.int64], *, always: bool) -> Reachable | None:
    """Finds the merges that can ever be made; None where it cannot be told.

    Args:
      merges: best first; where two are equally good, they make the same token.
      initial: int64[n], ids of the symbols that words begin as; every text has one spelling in these.
      always: whether to look even if it is all of them.

    Raises:
      ValueError: as `pair_table`.
    """
    n_makers = np.bincount(merges.products)
    if n_makers.max(initial=0) <= 1 and not always:
        return None
    n_ids = 1 + max(int(ids.max(initial=0)) for ids in (*merges, initial))
    reached = np.empty(merges.products.size, np.int32)
    least = pair_bits(int(np.count_nonzero(n_makers)))
    for bits in range(least, least + PAIR_TABLE_TRIES):
        slots = empty_pairs(bits)
        strengths, splits = np.full(n_ids, -1), np.empty((2, n_ids), np.int32)
        n_reached = bpe_reachable.find_reachable(*merges, initial, slots, bits, strengths, splits, reached)
        if n_reached == bpe_reachable.UNCERTAIN:
            return None
        if n_reached >= 0:
            kept = reached[:n_reached]
            return Reachable(Merges(*(ids[kept] for ids in merges)), slots, bits, strengths >= 0)
    raise ValueError(COLLIDING)


def joins_of(merges: Merges, initial: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Returns the bits of `BPETables.joins`; all are set where it is not clear what tokens begin and end with."""
    n = 1 + max(int(ids.max(initial=0)) for ids in (*merges, initial))
    firsts = np.full(n, -1, np.int32)
    firsts[initial] = initial
    lasts = firsts.copy()
    joins = np.zeros((1 << pairs.JOIN_BITS) // 64, np.uint64)
    if not pairs.find_joins(*merges, firsts, lasts, joins):
        joins[:] = ~np.uint64(0)
    return joins


def crossings_of(
    values: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Returns `BPETables.crossings`, `partial` and `apart` for tokens with these bytes."""
    crossings = np.zeros((1 << bpe_crossings.CROSSING_BITS) // 64, np.uint64)
    partial = np.zeros((1 << 16) // 64, np.uint64)
    crossed = np.zeros((1 << bpe_crossings.CROSSED_BITS) // 64, np.uint64)
    bpe_crossings.find_crossings(values, offsets, crossings, partial, crossed)
    apart = np.zeros((1 << 16) // 64, np.uint64)
    bpe_crossings.find_apart(crossed, apart)
    return crossings, partial, apart
