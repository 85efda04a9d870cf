# SPDX-License-Identifier: Apache-2.0
"""The kernels' tables of a SentencePiece model: what every code point becomes, and which ones pieces join."""

import string
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.kernels import sentencepiece_blocks as blocks
from tokenmill.tokenizer.kernels import sentencepiece_units as kernels
from tokenmill.tokenizer.kernels.classes import N_CODE_POINTS
from tokenmill.tokenizer.models import BPE, Unigram
from tokenmill.tokenizer.models.unigram import SPACE
from tokenmill.tokenizer.models.vocabulary import Characters, Vocabulary
from tokenmill.tokenizer.normalizers.sentencepiece import (
    MAX_WORK,
    SentencePieceNormalizer,
    SentencePieceTables,
    new_links,
)
from tokenmill.tokenizer.ragged import distinct, read_only


class KnownTables(NamedTuple):
    """The tables that tell where a part of a text may end, see kernels.sentencepiece_units."""

    kinds: npt.NDArray[np.uint8]
    """uint8[256]: WORD, SEPARATOR or ALONE."""
    characters: npt.NDArray[np.int64]
    """int64[0x110000], see kernels.sentencepiece_units."""
    joins: npt.NDArray[np.uint64]
    """uint64[power of two]: a bit for the hash of every two characters that are neighbours in a piece."""
    apart: npt.NDArray[np.bool_]
    """bool[128 * 128]: whether a part may end between two ASCII characters."""
    block_masks: npt.NDArray[np.uint64]
    """uint64[N_BLOCK_MASKS], see kernels.sentencepiece_blocks."""
    shrink: bool
    """Whether separators are dropped, instead of each becoming a "▁"."""


class RawTables(NamedTuple):
    """A normalizer and the characters of a model, for encoding raw bytes; see kernels.sentencepiece_units."""

    steps: SentencePieceTables
    known: KnownTables
    unchanged: npt.NDArray[np.bool_]
    """bool[0x110000]: characters that stay themselves whatever follows."""
    unk_id: int
    """Id of the unknown token, -1 if unknown characters become bytes instead."""
    absent_id: int
    """The id that means "no id" in a slot; for Unigram one with the score 0, so that it can be summed."""
    ids_per_byte: float
    """The most ids that a byte of a row can become, not counting the "▁" in front."""


def raw_tables(normalizer: SentencePieceNormalizer, model: Any) -> RawTables | None:
    """Returns the tables for encoding raw text, None if the normalizer or the model forbid cutting it.

    Text is cut before spaces. So spaces must become "▁" in front of words, no piece may have a "▁" after another
    character, and no key of the character map and no user-defined piece may contain a space.
    """
    options = normalizer.escape_whitespaces and not normalizer.treat_whitespace_as_suffix
    if not options or any(" " in symbol for symbol in normalizer.user_defined_symbols):
        return None
    found = _vocabulary(model)
    if found is None:
        return None
    single_ids, pieces, unk_id, byte_ids, n_ids = found
    if single_ids[ord(SPACE)] < 0 or not 0 <= unk_id <= n_ids:
        return None
    if n_ids > kernels.MAX_ID:
        return None
    described = _images(normalizer)
    if described is None:
        return None
    images, begins, kinds, firsts = described
    joins = np.zeros((1 << kernels.JOIN_BITS) // 64, np.uint64)
    has_neighbours = np.zeros(N_CODE_POINTS, np.bool_)
    # Parts never end between two letters, though some could: so most places need not be looked at.
    letters = images[_ascii(string.ascii_letters)]
    letters = letters[letters > 0] - 1
    pairs = np.stack(np.meshgrid(letters, letters), axis=-1).reshape(-1, 2)
    if not kernels.set_joins(pieces.points, pieces.offsets, joins, has_neighbours):
        return None
    for more in (pairs, _more_neighbours(pieces, images, firsts)):
        kernels.set_joins(more.reshape(-1), np.arange(0, more.size + 1, 2), joins, has_neighbours)
    spells = byte_ids is not None
    characters, unchanged = np.empty(N_CODE_POINTS, np.int64), np.empty(N_CODE_POINTS, np.bool_)
    kernels.set_characters(
        images,
        begins,
        has_neighbours,
        single_ids,
        -1 if spells else unk_id,
        spells,
        kinds,
        characters,
        unchanged,
    )
    apart = np.zeros(128 * 128, np.bool_)
    kernels.set_apart(kinds, characters, joins, apart)
    known = KnownTables(
        kinds=read_only(kinds),
        characters=read_only(characters),
        joins=read_only(joins),
        apart=read_only(apart),
        block_masks=read_only(_block_masks(kinds, apart)),
        shrink=normalizer.remove_extra_whitespaces,
    )
    return RawTables(
        steps=normalizer.tables.steps,
        known=known,
        unchanged=read_only(unchanged),
        unk_id=-1 if spells else unk_id,
        absent_id=n_ids if isinstance(model, Unigram) else 0,
        ids_per_byte=normalizer.tables.growth,
    )


def _more_neighbours(
    pieces: Characters, images: npt.NDArray[np.int32], firsts: npt.NDArray[np.int32]
) -> npt.NDArray[np.int32]:
    """Returns pairs of characters, int32[n, 2], that may become neighbours in a piece when the second is normalized.

    "e" and an accent may become "é". So if a piece contains "xé", text is not cut between "x" and "e".

    Args:
      pieces: the pieces of more than one character.
      images, firsts: see `_Images`.
    """
    if not len(firsts):
        return np.empty((0, 2), np.int32)
    points = pieces.points
    inner = np.ones(points.size, np.bool_)
    inner[pieces.offsets[:-1]] = False
    is_inner = np.zeros(N_CODE_POINTS, np.bool_)
    is_inner[points[inner]] = True
    before: dict[int, set[int]] = {}
    for first, made in firsts[is_inner[firsts[:, 1]] & (images[firsts[:, 0]] > 0)].tolist():
        before.setdefault(made, set()).add(int(images[first]) - 1)
    is_made = np.zeros(N_CODE_POINTS, np.bool_)
    is_made[list(before)] = True
    found = np.flatnonzero(is_made[points] & inner)
    pairs = distinct(points[found - 1].astype(np.int64) << 21 | points[found])
    lefts, rights = (pairs >> 21).tolist(), (pairs & (1 << 21) - 1).tolist()
    found_pairs = [[left, other] for left, made in zip(lefts, rights, strict=True) for other in before[made]]
    return np.array(found_pairs, np.int32).reshape(-1, 2)


def _block_masks(kinds: npt.NDArray[np.uint8], apart: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    """Returns `KnownTables.block_masks`: facts about ASCII that kernels.sentencepiece_blocks need not look up."""
    said = np.zeros(blocks.N_BLOCK_MASKS, np.bool_)
    said[blocks.SEPARATES : blocks.SEPARATES + 3] = kinds[list(blocks.BLOCK_BYTES)] == kernels.SEPARATOR
    said[blocks.STANDS_ALONE : blocks.STANDS_ALONE + 3] = kinds[list(blocks.BLOCK_BYTES)] == kernels.ALONE
    letters, digits = _ascii(string.ascii_letters), _ascii(string.digits)
    signs = _ascii(string.punctuation)
    separators, controls = np.flatnonzero(kinds[:128] == kernels.SEPARATOR), np.flatnonzero(kinds == kernels.ALONE)
    ends = apart.reshape(128, 128)
    pairs = [ends[np.ix_(a, b)] for a in (letters, digits, signs, separators) for b in (letters, digits, signs)]
    pairs.append(ends[np.ix_(separators, separators)])
    others = np.concatenate([letters, digits, signs, controls, separators])
    pairs.append(np.concatenate([ends[np.ix_(controls, others)].ravel(), ends[np.ix_(others, controls)].ravel()]))
    for k, pair in enumerate(pairs):
        said[blocks.ALWAYS_ENDS + k] = pair.all()
        said[blocks.SOMETIMES_ENDS + k] = pair.any() and not pair.all()
    return np.where(said, ~np.uint64(0), np.uint64(0))


def _ascii(characters: str) -> npt.NDArray[np.int64]:
    return np.array([ord(c) for c in characters])


class _Vocabulary(NamedTuple):
    single_ids: npt.NDArray[np.int32]
    """int32[0x110000]: ids of the pieces of one character, -1 if there is none."""
    pieces: Characters
    """The longer pieces."""
    unk_id: int
    byte_ids: npt.NDArray[np.int32] | None
    """int32[256]: ids of the byte tokens; None if unknown characters do not become bytes."""
    n_ids: int


def _vocabulary(model: Any) -> _Vocabulary | None:
    """Returns the pieces of a model that can match in text, None if the model does not follow sentencepiece's rules."""
    if isinstance(model, Unigram):
        tables: Any = model.tables
        matching: Vocabulary = model.matching
        n_ids = len(model.vocab)
    else:
        tables = model.tables
        if model.drops or model.ignore_merges or model.byte_level or model.prefix or model.suffix:
            return None
        matching = model.columns
        n_ids = int(matching.ids.max(initial=0)) + 1
    ids, texts = matching.ids, matching.tokens.characters
    is_longer = texts.lengths > 1
    if isinstance(model, BPE):
        is_longer = np.zeros(n_ids, np.bool_)
        is_longer[model.merge_ids.products] = True
        is_longer = is_longer[ids]
    is_one = texts.lengths == 1
    single_ids = np.full(N_CODE_POINTS, -1, np.int32)
    single_ids[texts.points[texts.offsets[:-1][is_one]]] = ids[is_one]
    spells = bool(model.byte_fallback)
    if (spells and int(tables.byte_ids.min()) < 0) or (isinstance(model, BPE) and not (spells or model.fuse_unk)):
        return None
    return _Vocabulary(
        single_ids, texts.take(is_longer), int(tables.unk_id), tables.byte_ids if spells else None, n_ids
    )


class _Images(NamedTuple):
    """What a normalizer turns single characters into."""

    images: npt.NDArray[np.int32]
    """int32[0x110000]: one more than the one code point that each becomes whatever its neighbours; 0 if there is no
    such code point."""
    begins: npt.NDArray[np.bool_]
    """bool[0x110000]: the code points that begin longer keys."""
    kinds: npt.NDArray[np.uint8]
    """uint8[256]: the kinds of ASCII bytes, see KnownTables."""
    firsts: npt.NDArray[np.int32]
    """int32[n, 2], see kernels.sentencepiece_units.describe_charsmap."""


def _images(normalizer: SentencePieceNormalizer) -> _Images | None:
    """Returns the tables of single characters, None for normalizers that the kernels do not cover."""
    steps = normalizer.tables.steps
    images = np.arange(1, N_CODE_POINTS + 1, dtype=np.int32)
    dependent, begins = np.zeros(N_CODE_POINTS, np.bool_), np.zeros(N_CODE_POINTS, np.bool_)
    kinds = np.zeros(256, np.uint8)
    kinds[0x20] = kernels.SEPARATOR
    firsts = np.empty((0, 2), np.int32)
    if steps.units.size:
        stack = np.empty((MAX_WORK, 3), np.int64)
        key = np.empty(MAX_WORK, np.uint8)
        links = new_links(steps.units)
        # Keys share their ends in the map, so there may be more keys than units: nmt_nfkc has five times as many.
        n_firsts = 8 * steps.units.size
        while n_firsts > len(firsts):
            firsts = np.empty((n_firsts, 2), np.int32)
            n_firsts = kernels.describe_charsmap(
                steps.units, steps.results, links, stack, key, images, dependent, begins, firsts
            )
        if n_firsts < 0:
            return None
        firsts = firsts[:n_firsts]
        dependent[firsts[firsts[:, 1] == 0, 0]] = True
        if dependent[0x20] or begins[0x20] or images[0x20] != 0x21:
            # The map has keys with a space; almost none does.
            return None
        for byte in range(1, 0x20):
            if normalizer.maps_to_space(byte) and not dependent[byte] and not begins[byte]:
                kinds[byte] = kernels.SEPARATOR
    for symbol in normalizer.user_defined_symbols:
        for c in symbol:
            dependent[ord(c)] |= images[ord(c)] != ord(c) + 1
    images[dependent] = 0
    images[[0, ord(SPACE)]] = 0
    images[kinds[:128].nonzero()[0]] = ord(SPACE) + 1
    return _Images(images, begins, kinds, firsts)
