# SPDX-License-Identifier: Apache-2.0
"""What the kernel of `engines.scanned_unigram` knows of a normalizer, a pre-tokenizer and a Unigram model."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenizer import unicode_tables
from tokenizer.engines.character_folds import NONE, CharacterFolds
from tokenizer.engines.sentencepiece_tables import MAX_STATES
from tokenizer.kernels import precompiled, unigram_automaton
from tokenizer.kernels import scanned_unigram_words as kernels
from tokenizer.kernels.caches import CacheArrays, CounterArrays
from tokenizer.kernels.classes import N_CODE_POINTS
from tokenizer.kernels.scanned_unigram_parts import MIN_GAP
from tokenizer.kernels.scanners_parts import IDEOGRAPHS, SPACE
from tokenizer.models import Unigram
from tokenizer.models.unigram import SPACE as SPACE_MARK
from tokenizer.models.unigram import UnigramTables
from tokenizer.normalizers import tables as normalizer_tables
from tokenizer.ragged import read_only

_LONGEST_PIECE = 255
_MAX_GROWTH = 32
_ALL = ~np.uint64(0)


class WordTables(NamedTuple):
    """What becomes of words before the model sees them."""

    classes: npt.NDArray[np.uint8]
    """uint8[0x110000]: SPACE for what stands between words, IRREGULAR, JOINS, FOLLOWED."""
    images: npt.NDArray[np.int32]
    """int32[0x110000]: the one character that a character becomes whatever its neighbours, 0 where there is none."""
    has_folds: bool
    folds: CharacterFolds
    """What becomes of characters before the map."""
    folded_classes: npt.NDArray[np.uint8]
    """uint8[0x110000]: what `classes` would be without folds."""
    has_map: bool
    charsmap: normalizer_tables.CharsMap
    separators: npt.NDArray[np.uint64]
    """uint64[2]: all ones where tabs, and line ends, stand between words."""
    together: npt.NDArray[np.bool_]
    """bool[128 * 128]: which two of ASCII are neighbours in a piece."""
    neighbours: npt.NDArray[np.uint64]
    """uint64: a bit for (the hash of) every two others that are neighbours in a piece."""
    apart: npt.NDArray[np.bool_]
    """bool[128 * 128]: between which two of ASCII words are cut, as they are in the text."""
    longest_cut: int
    """Bytes of words up to which sums are exact to a quarter of `MIN_GAP`."""
    growth: float
    """Bytes that a byte becomes at most; words of which more become make a row irregular."""
    ends_in_space: bool
    """Whether white space at the end of a row becomes a "▁"."""


class ExactUnigram(NamedTuple):
    """A Unigram vocabulary by HF's rules, whose sums are in double precision."""

    unigram: UnigramTables
    states: npt.NDArray[np.int64]
    """int64[2 * n]: the automaton of its trie, see kernels.unigram_automaton, with pieces in place of scores."""


class WordWork(NamedTuple):
    """What the kernel works with and on, beside its input and its model."""

    cache: CacheArrays
    tally: CounterArrays
    position: npt.NDArray[np.int64]
    """int64[5], zeros to begin with; the last one says how many ids there must be room for, where there is too little.
    """
    text: npt.NDArray[np.uint8]
    """uint8: a word as it is normalized. Longer ones make a row irregular."""
    folded: npt.NDArray[np.uint8]
    """uint8, as long: a word before the map."""
    span: npt.NDArray[np.int64]
    text_span: npt.NDArray[np.int64]
    """int64[2]."""
    part: npt.NDArray[np.uint8]
    """uint8, room for the longest word and a byte."""
    noted: npt.NDArray[np.int64]
    """int64, two entries for every word of a row: begin and end."""
    irregular: npt.NDArray[np.bool_]
    """bool[n_rows], False to begin with."""
    out: npt.NDArray[np.int32]
    out_offsets: npt.NDArray[np.int64]


def exact_unigram(model: Unigram) -> ExactUnigram | None:
    """Lowers a Unigram model under HF's rules; None for those that the kernel is not made for."""
    tables = model.tables
    n = tables.units.size
    spells = model.byte_fallback and int(tables.byte_ids.min()) < 0
    if tables.single or tables.unk_id < 0 or tables.unk_score >= 0 or spells:
        return None
    if n >= MAX_STATES or tables.longest > _LONGEST_PIECE:
        return None
    states = np.empty(2 * n, np.int64)
    unigram_automaton.build_automaton(
        *model.trie, np.arange(len(model.vocab)), _LONGEST_PIECE, np.zeros(tables.longest + 2, np.int64),
        np.empty(n, np.int64), states, np.zeros(n, np.int32),
    )  # fmt: skip
    return ExactUnigram(tables, read_only(states))


def word_tables(
    model: Unigram,
    folds: CharacterFolds,
    precompiled_charsmap: bytes | None,
    *,
    splits_at_white_space: bool,
    ends_in_space: bool,
) -> WordTables | None:
    """Returns the tables of words; None for folds or a map that the kernel is not made for.

    Args:
      model: a Unigram model.
      folds: what becomes of characters first.
      precompiled_charsmap: the map of `Precompiled`, None where there is none.
      splits_at_white_space: whether all white space stands between words, and not only blanks.
      ends_in_space: see WordTables.
    """
    charsmap = normalizer_tables.chars_map(precompiled_charsmap or _NO_MAP)
    graphemes = charsmap.graphemes & precompiled.CATEGORY
    white = unicode_tables.property_table("SPACES")
    mapped = charsmap.places > 0
    separates, irregular, images, growth = _white_space(charsmap, white, splits_at_white_space)
    irregular |= graphemes == precompiled.PREPEND
    irregular[ord(SPACE_MARK)] = True
    others = ~separates & ~irregular
    joins = (graphemes >= precompiled.EXTEND) & (graphemes <= precompiled.SPACING_MARK)
    classes = np.zeros(N_CODE_POINTS, np.uint8)
    classes[separates] = SPACE
    classes[irregular] = kernels.IRREGULAR
    classes[others & joins] = kernels.JOINS
    images[~others | (graphemes != precompiled.ANY)] = 0
    folded_classes = classes
    if folds is not NONE:
        classes, folded_images = classes.copy(), images.copy()
        growth = max(growth, kernels.describe_folds(folds, charsmap, folded_classes, folded_images, classes, images))
    is_space = classes & SPACE != 0
    if (
        not is_space[0x20]
        or is_space[0x0A] != is_space[0x0D]
        or is_space[0x21:0x7F].any()
        or is_space[IDEOGRAPHS].any()
    ):
        return None
    if mapped[0x20] or folds.places[0x20] or growth > _MAX_GROWTH:
        return None
    points, offsets = model.matching.tokens.characters
    begins = np.zeros(points.size, np.bool_)
    begins[offsets[:-1]] = True
    neighbours, followed = np.zeros((1 << kernels.NEIGHBOUR_BITS) // 64, np.uint64), np.zeros(N_CODE_POINTS, np.bool_)
    together, apart = np.zeros(128 * 128, np.bool_), np.zeros(128 * 128, np.bool_)
    kernels.find_neighbours(points, begins, together, neighbours, followed)
    kernels.set_apart(images, together, neighbours, apart)
    classes = classes | np.where(followed[images] & (images > 0), np.uint8(kernels.FOLLOWED), np.uint8(0))
    largest = max(float(np.abs(model.scores).max()), abs(model.tables.unk_score), 1.0)
    return WordTables(
        classes=read_only(classes),
        images=read_only(images),
        has_folds=folds is not NONE,
        folds=folds,
        folded_classes=read_only(folded_classes),
        has_map=precompiled_charsmap is not None,
        charsmap=charsmap,
        separators=read_only(np.where(is_space[[0x09, 0x0A]], _ALL, np.uint64(0))),
        together=read_only(together),
        neighbours=read_only(neighbours),
        apart=read_only(apart),
        # n sums of at most n scores each are off by n * n * largest * 2^-53.
        longest_cut=int(min((MIN_GAP / 4 / largest * 2.0**53) ** 0.5, 1 << 30)),
        growth=growth,
        ends_in_space=ends_in_space,
    )


def _white_space(
    charsmap: normalizer_tables.CharsMap, white: npt.NDArray[np.bool_], splits_at_white_space: bool
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], npt.NDArray[np.int32], float]:
    """Returns what characters become by themselves.

    Returns:
      Which ones stand between words; which ones become white space and more; the one character that each becomes, 0
      for others; by how much any one grows.
    """
    images = np.arange(N_CODE_POINTS, dtype=np.int32)
    separates = white.copy()
    irregular = np.zeros(N_CODE_POINTS, np.bool_)
    if not splits_at_white_space:
        irregular |= white
        separates[:] = False
        separates[0x20], irregular[0x20] = True, False
    growth = kernels.describe_texts(
        charsmap.places, charsmap.pool, white, splits_at_white_space, 4 * _MAX_GROWTH, separates, irregular, images
    )
    return separates, irregular, images, growth


_NO_MAP = (4).to_bytes(4, "little") + bytes(4)
"""A character map without keys."""
