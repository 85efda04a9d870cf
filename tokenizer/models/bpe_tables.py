# SPDX-License-Identifier: Apache-2.0
"""The arrays that BPE kernels read and write, and how to make them."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import recycled
from tokenmill.tokenizer.kernels import bpe_crossings
from tokenmill.tokenizer.kernels import bpe_pairs as pairs
from tokenmill.tokenizer.kernels.bpe_crossings import BY_BYTES, BY_CHARACTERS, NEVER, WordCuts
from tokenmill.tokenizer.kernels.bpe_merging import MAX_SCANNED
from tokenmill.tokenizer.models.kernels import bpe_merges
from tokenmill.tokenizer.ragged import read_only


class BPETables(NamedTuple):
    """A BPE model as the kernels read it."""

    pairs: npt.NDArray[np.uint64]
    """uint64[n]: the pair table, see kernels.bpe_pairs."""
    pair_bits: int
    products: npt.NDArray[np.int32]
    """int32[n_merges]: the id that each merge makes; the rank of a merge is its index."""
    first_product: int
    """The id that the first merge makes if each of the others makes the next one, as GPT-2's do; otherwise -1."""
    orders: npt.NDArray[np.uint32]
    """uint32[n_merges]: the priority of each merge, if merges of different products have equal ones: then the leftmost
    pair goes first. SentencePiece models to which pieces were added later have such ties, as these all score zero.
    Otherwise of size 0."""
    joins: npt.NDArray[np.uint64]
    """uint64[2**JOIN_BITS / 64]: a bit for the hash of every two initial symbols that some merge reaches across."""
    crossings: npt.NDArray[np.uint64]
    partial: npt.NDArray[np.uint64]
    apart: npt.NDArray[np.uint64]
    """uint64[n]: sets of the characters and bytes around places inside tokens, see kernels.bpe_crossings; of size 0
    unless `plain_bytes`."""
    max_ids_per_byte: int
    """The most ids that a byte of a word can become."""
    byte_level: bool
    plain_bytes: bool
    """Whether all bytes are symbols, and the same ones at every place in a word but its end."""
    byte_symbols: npt.NDArray[np.int32]
    """int32[4, 256]: id of each byte by its place (kernels.bpe_symbols.CONTINUES | ENDS), -1 for none; byte-level
    only."""
    byte_pairs: npt.NDArray[np.uint32]
    """uint32[65536]: for plain bytes, rank << 8 of each two, `NO_RANK` << 8 if they do not merge."""
    alphabet: npt.NDArray[np.int32]
    """int32[256]: code points of BYTE_ALPHABET."""
    characters: npt.NDArray[np.int32]
    """int32[1, 2 or 4; 0x110000]: id + 1 of each character by its place, 0 for none; no rows if byte-level. Memory
    pages are only touched for scripts in the vocabulary or the text."""
    prefix: npt.NDArray[np.uint8]
    """uint8[n]: UTF-8 of `continuing_subword_prefix`."""
    suffix: npt.NDArray[np.uint8]
    """uint8[n]: UTF-8 of `end_of_word_suffix`."""
    byte_ids: npt.NDArray[np.int32]
    """int32[256]: ids of the byte tokens `<0x00>` to `<0xFF>`, -1 for those that are not in the vocabulary."""
    byte_fallback: bool
    unk_id: int
    """Id of the unknown token; -1 for none: unknown characters are dropped; `NO_ENTRY` if the vocabulary lacks it."""
    fuse_unk: bool
    dropout_threshold: int
    """0..2**24: a possible merge is skipped if 24 random bits are less than this; 0 for encoding without dropout."""
    whole_slots: npt.NDArray[np.int64]
    whole_pool: npt.NDArray[np.uint8]
    """int64[n_slots, 4] and uint8[n_pool]: the word table, see kernels.word_table, of the entries that are looked up as
    whole words because merging would not make them."""
    longest_whole: int
    """The number of bytes of the longest of these, 0 if there is none."""


def parts_lack_suffix(tables: BPETables) -> bool:
    """Whether words that take a suffix are cut into parts, of which all but the last lack it.

    They are not if some are looked up as a whole, bytes are not plain, or the suffix is not printable ASCII.
    """
    suffix = tables.suffix
    if not (tables.plain_bytes and suffix.size) or tables.longest_whole:
        return False
    return bool(suffix.min() > 0x20 and suffix.max() < 0x7F)


NO_CUTS = WordCuts(
    by=NEVER, crossings=read_only(np.empty(0, np.uint64)), partial=read_only(np.empty(0, np.uint64)),
    apart=read_only(np.empty(0, np.uint64)), characters=read_only(np.empty((1, 0), np.int32)),
    joins=read_only(np.empty(0, np.uint64)), whole_slots=read_only(np.empty((1, 4), np.int64)),
    whole_pool=read_only(np.empty(0, np.uint8)), longest_whole=0,
)  # fmt: skip
"""For models whose words are not cut. The arrays of all models are read-only: then they are of one type to numba."""


def cuts_of(tables: BPETables) -> WordCuts:
    """Returns where the words of a model may be cut into parts."""
    if tables.byte_level:
        by = BY_BYTES if tables.plain_bytes and (not tables.suffix.size or parts_lack_suffix(tables)) else NEVER
    else:
        by = BY_CHARACTERS if tables.characters.shape[0] == 1 else NEVER
    arrays = {name: read_only(getattr(tables, name)) for name in WordCuts._fields[1:-1]}
    return WordCuts(by=by, longest_whole=tables.longest_whole, **arrays)


class BPEScratch(NamedTuple):
    """Work space for the symbols of one word."""

    ids: npt.NDArray[np.int32]
    stops: npt.NDArray[np.int32]
    nexts: npt.NDArray[np.int32]
    previous: npt.NDArray[np.int32]
    """int32[n]: each symbol's id, its end in the word, and the symbols after and before it."""
    keys: npt.NDArray[np.uint32]
    """uint32[MAX_SCANNED], see kernels.bpe_merging."""
    ranks: npt.NDArray[np.uint32]
    """uint32[n]: the rank of the pair that begins with each symbol."""
    heap: npt.NDArray[np.uint64]
    skipped: npt.NDArray[np.uint64]
    """uint64[3 * n]: pairs that merge, and pairs that dropout has skipped; rank << 32 | place."""


def new_bpe_scratch(n_word_bytes: int, tables: BPETables) -> BPEScratch:
    """Makes scratch for words of up to `n_word_bytes` bytes. Memory pages that no word reaches are never touched."""
    n = n_word_bytes * tables.max_ids_per_byte + 1
    return BPEScratch(
        ids=recycled.empty(n, np.int32),
        stops=recycled.empty(n, np.int32),
        nexts=recycled.empty(n, np.int32),
        previous=recycled.empty(n, np.int32),
        keys=np.empty(MAX_SCANNED, np.uint32),
        ranks=recycled.empty(n, np.uint32),
        # One item for every pair at first, and two more for each merge.
        heap=recycled.empty(3 * n, np.uint64),
        skipped=recycled.empty(3 * n, np.uint64),
    )


class Merges(NamedTuple):
    """Merges as ids, int32[n] each; the rank of a merge is its index."""

    lefts: npt.NDArray[np.int32]
    rights: npt.NDArray[np.int32]
    products: npt.NDArray[np.int32]


def take_part(ids: npt.NDArray[np.int64], merges: Merges) -> bool:
    """Whether one of these ids is a part or the product of a merge; -1 is no id."""
    is_one = np.zeros(1 + max(int(part.max(initial=0)) for part in (ids, *merges)), np.bool_)
    is_one[ids[ids >= 0]] = True
    return any(bool(is_one[part].any()) for part in merges)


def pair_bits(n_merges: int) -> int:
    """Returns the bits of a pair table: two to four slots a pair. The filter passes few others."""
    return max(pairs.MIN_PAIR_BITS, (2 * n_merges).bit_length())


PAIR_TABLE_TRIES = 4
COLLIDING = "the merges do not fit into a hash table: their ids look made to collide"


def empty_pairs(bits: int) -> npt.NDArray[np.uint64]:
    """Returns an empty pair table."""
    n_filter = 1 << (bits + pairs.FILTER_BITS - 6)
    slots = np.full(n_filter + (1 << bits) + 64, -1, np.int64).view(np.uint64)
    slots[:n_filter] = 0
    return slots


def pair_table(
    lefts: npt.NDArray[np.int32], rights: npt.NDArray[np.int32], ranks: npt.NDArray[np.int32] | None = None
) -> tuple[npt.NDArray[np.uint64], int]:
    """Builds the pair table of merges; returns its slots and bits. Without `ranks`, the rank of a merge is its index.

    Raises:
      ValueError: if the table would have to be much larger than merges from training need.
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
    """The merges that can ever be made, see `models.kernels.bpe_merges.find_reachable`."""

    merges: Merges
    pairs: npt.NDArray[np.uint64]
    bits: int
    """The slots of their pair table, see kernels.bpe_pairs."""
    made: npt.NDArray[np.bool_]
    """bool[n]: the ids that merges give for their own spelling; larger ids are not among these."""


def reachable(merges: Merges, initial: npt.NDArray[np.int64], *, always: bool) -> Reachable | None:
    """Finds the merges that can ever be made; returns None if that cannot be told.

    merges: best first; if two have equal ranks, they make the same token. initial: int64[n], ids of the initial symbols
    of words; every text has only one spelling in these. always: whether to search even if clearly all can be made.

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
        n_reached = bpe_merges.find_reachable(*merges, initial, slots, bits, strengths, splits, reached)
        if n_reached == bpe_merges.UNCERTAIN:
            return None
        if n_reached >= 0:
            kept = reached[:n_reached]
            return Reachable(Merges(*(ids[kept] for ids in merges)), slots, bits, strengths >= 0)
    raise ValueError(COLLIDING)


def joins_of(merges: Merges, initial: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Returns the bits of `BPETables.joins`; all are set if it is not clear what tokens begin and end with."""
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
