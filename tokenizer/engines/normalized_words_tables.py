# SPDX-License-Identifier: Apache-2.0
"""What the kernels of `engines.normalized_words` know of a normalizer, a pre-tokenizer and the pieces of a model."""

import string
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenizer import unicode_tables
from tokenizer.engines.character_folds import NONE, CharacterFolds, texts_of_changed
from tokenizer.engines.normalized_words_models import WordModel
from tokenizer.kernels import normal_forms, normalized_words_runs, precompiled, sentencepiece_units
from tokenizer.kernels import normalized_words_text as kernels
from tokenizer.kernels.caches import CacheArrays, CounterArrays
from tokenizer.kernels.classes import N_CODE_POINTS
from tokenizer.kernels.ideographs import IDEOGRAPHS
from tokenizer.kernels.scanners_parts import SPACE
from tokenizer.models.unigram import SPACE as SPACE_MARK
from tokenizer.normalizers import NFC, NFD, NFKC, NFKD, Precompiled
from tokenizer.normalizers import tables as normalizer_tables
from tokenizer.ragged import read_only

_MAX_GROWTH = 32
_BYTES_AT_ONCE = 512
"""More than the kernel passes between two looks at how much room there is: a block, or a run."""
_ALL = ~np.uint64(0)


class WordTables(NamedTuple):
    """What becomes of words before the model sees them."""

    classes: npt.NDArray[np.uint8]
    """uint8[0x110000]: SPACE for what stands between words, IRREGULAR, JOINS."""
    images: npt.NDArray[np.int32]
    """int32[0x110000]: the one character that a character becomes whatever its neighbours, 0 where there is none."""
    has_folds: bool
    folds: CharacterFolds
    """What becomes of characters before the map."""
    folded_classes: npt.NDArray[np.uint8]
    """uint8[0x110000]: what `classes` would be without folds."""
    has_map: bool
    charsmap: normalizer_tables.CharsMap
    has_form: bool
    """Whether there is a normal form in place of a map."""
    form: normalizer_tables.NormalForm
    separators: npt.NDArray[np.uint64]
    """uint64[2]: all ones where tabs, and line ends, stand between words."""
    entries: npt.NDArray[np.int64]
    """int64[0x110000]: what parts of one character become and where parts end, see kernels.sentencepiece_units."""
    joins: npt.NDArray[np.uint64]
    """uint64: a bit for (the hash of) every two characters that are neighbours in a piece."""
    apart: npt.NDArray[np.bool_]
    """bool[128 * 128]: between which two of ASCII words are cut, as they are in the text."""
    longest_cut: int
    """Bytes of words that are cut; see WordModel."""
    growth: float
    """Bytes that a byte becomes at most; words of which more become make a row irregular."""
    spare_ids: int
    """Ids that are written between two looks at how much room there is, at most."""
    ends_in_space: bool
    """Whether white space at the end of a row becomes a "▁"."""
    counts_spaces: bool
    """Whether each space of several becomes a "▁", and not all of them one."""
    space_ids: npt.NDArray[np.int32]
    """int32[n]: what a "▁" becomes that is a word of its own."""
    unk_id: int
    fuses_unknown: bool
    """Whether several unknown characters in a row are one unknown token."""
    has_byte_ids: bool
    """Whether characters that are not known become bytes."""


class WordWork(NamedTuple):
    """What the kernel works with and on, beside its input and its model."""

    cache: CacheArrays
    tally: CounterArrays
    position: npt.NDArray[np.int64]
    """int64[6], zeros to begin with, see kernels.normalized_words."""
    text: npt.NDArray[np.uint8]
    """uint8, room for what becomes of the longest word that there is room for. Longer ones make a row irregular."""
    folded: npt.NDArray[np.uint8]
    """uint8, as long: a word before the map."""
    pieces: normalizer_tables.PieceScratch
    """For a normal form of a word, as long."""
    span: npt.NDArray[np.int64]
    text_span: npt.NDArray[np.int64]
    """int64[2]."""
    part: npt.NDArray[np.uint8]
    """uint8, room for a word, and PART_PADDING bytes more: the kernel asks for more where it meets a longer one."""
    notes: npt.NDArray[np.int64]
    """int64[N_NOTES], see kernels.normalized_words_runs."""
    noted: npt.NDArray[np.int64]
    """int64, two entries for every word of a row: begin and end."""
    irregular: npt.NDArray[np.bool_]
    """bool[n_rows], False to begin with."""
    out: npt.NDArray[np.int32]
    out_offsets: npt.NDArray[np.int64]


def word_tables(
    model: WordModel,
    folds: CharacterFolds,
    last: Precompiled | NFC | NFD | NFKC | NFKD | None,
    *,
    splits_at_white_space: bool,
    ends_in_space: bool,
    counts_spaces: bool,
) -> WordTables | None:
    """Returns the tables of words; None for folds or a map that the kernel is not made for.

    Args:
      model: what tokenizes words.
      folds: what becomes of characters first.
      last: the map or the normal form that comes after these, None where there is none.
      splits_at_white_space: whether all white space stands between words, and not only blanks.
      ends_in_space, counts_spaces: see WordTables.
    """
    charsmap = normalizer_tables.chars_map(last.precompiled_charsmap if isinstance(last, Precompiled) else _NO_MAP)
    places, pool, form = charsmap.places, charsmap.pool, _NO_FORM
    graphemes = charsmap.graphemes & precompiled.CATEGORY
    has_form = last is not None and not isinstance(last, Precompiled)
    if last is not None and not isinstance(last, Precompiled):
        form = last.form
        graphemes = np.zeros(N_CODE_POINTS, np.uint8)  # a space joins nothing
        places, pool = texts_of_changed(last)
    white = unicode_tables.property_table("SPACES")
    separates, irregular, images, growth = _white_space(places, pool, white, splits_at_white_space, ends_in_space)
    if has_form:
        images[form.kinds[images] != normal_forms.INERT] = 0
        growth = max(growth, _growth(form))
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
        folds_grow = kernels.describe_folds(folds, places, pool, folded_classes, folded_images, classes, images)
        growth = max(growth, folds_grow * (growth if has_form else 1.0))
    is_space = classes & SPACE != 0
    if (
        not is_space[0x20]
        or is_space[0x0A] != is_space[0x0D]
        or is_space[0x21:0x7F].any()
        or is_space[IDEOGRAPHS].any()
    ):
        return None
    if places[0x20] or folds.places[0x20] or growth > _MAX_GROWTH:
        return None
    entries, join_bits = _entries(model, images, is_space)
    apart = np.zeros(128 * 128, np.bool_)
    kernels.set_apart(entries, join_bits, apart)
    return WordTables(
        classes=read_only(classes),
        images=read_only(images),
        has_folds=folds is not NONE,
        folds=folds,
        folded_classes=read_only(folded_classes),
        has_map=isinstance(last, Precompiled),
        charsmap=charsmap,
        has_form=has_form,
        form=form,
        separators=read_only(np.where(is_space[[0x09, 0x0A]], _ALL, np.uint64(0))),
        entries=read_only(entries),
        joins=read_only(join_bits),
        apart=read_only(apart),
        longest_cut=model.longest_cut,
        growth=growth,
        spare_ids=int(_BYTES_AT_ONCE * (growth + 3.0)) + 64,
        ends_in_space=ends_in_space,
        counts_spaces=counts_spaces,
        space_ids=model.space_ids,
        unk_id=model.unk_id,
        fuses_unknown=model.fuses_unknown,
        has_byte_ids=model.has_byte_ids,
    )


def _entries(
    model: WordModel, images: npt.NDArray[np.int32], is_space: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """Returns `entries` and `joins` of WordTables."""
    texts = model.characters
    is_one = texts.lengths == 1
    # Pieces with a "▁" behind something else match nowhere.
    is_behind = texts.points == ord(SPACE_MARK)
    is_behind[texts.offsets[:-1][texts.lengths > 0]] = False
    behind = np.concatenate([np.zeros(1, np.int64), np.cumsum(is_behind)])
    pieces = texts.take(~is_one & (behind[texts.offsets[1:]] == behind[texts.offsets[:-1]]))
    # Words are never cut between letters, though in some places they might be: they come back whole.
    letters = images[[ord(c) for c in string.ascii_letters]]
    letters = letters[letters > 0]
    pairs = np.stack(np.meshgrid(letters, letters), axis=-1).reshape(-1, 2)
    joins = np.zeros((1 << sentencepiece_units.JOIN_BITS) // 64, np.uint64)
    has_neighbours = np.zeros(N_CODE_POINTS, np.bool_)
    for points, offsets in (pieces, (pairs.reshape(-1), np.arange(0, pairs.size + 1, 2))):
        is_filled = sentencepiece_units.set_joins(points, offsets, joins, has_neighbours)
        assert is_filled
    single_ids = np.full(N_CODE_POINTS, -1, np.int32)
    single_ids[texts.points[texts.offsets[:-1][is_one]]] = model.ids[is_one]
    entries = np.empty(N_CODE_POINTS, np.int64)
    normalized_words_runs.set_entries(
        images, is_space, has_neighbours, single_ids, model.unk_id, model.has_byte_ids, entries
    )
    return entries, joins


def _growth(form: normalizer_tables.NormalForm) -> float:
    """Returns how many bytes a byte becomes at most."""
    n_bytes = np.repeat([1, 2, 3, 4], [0x80, 0x780, 0xF800, 0x100000])
    return float((1 + form.growth / n_bytes).max())


def _white_space(
    places: npt.NDArray[np.int32], pool: npt.NDArray[np.uint8], white: npt.NDArray[np.bool_],
    splits_at_white_space: bool, ends_in_space: bool,
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], npt.NDArray[np.int32], float]:  # fmt: skip
    """Returns what characters become by themselves.

    Returns:
      Which ones stand between words; which ones become white space and more; the one character that each becomes, 0
      for others; by how much any one grows.
    """
    images = np.arange(N_CODE_POINTS, dtype=np.int32)
    separates = white.copy()
    irregular = np.zeros(N_CODE_POINTS, np.bool_)
    if not splits_at_white_space:
        separates[:] = False
        separates[0x20] = True
        # All other white space is part of words, but where it is stripped.
        irregular |= white & ~separates & (not ends_in_space)
    growth = kernels.describe_texts(
        places, pool, white, splits_at_white_space, 4 * _MAX_GROWTH, separates, irregular, images
    )
    return separates, irregular, images, growth


_NO_MAP = (4).to_bytes(4, "little") + bytes(4)
"""A character map without keys."""
_NO_FORM = normalizer_tables.NormalForm(
    kinds=read_only(np.zeros(1, np.uint8)),
    combining=read_only(np.zeros(1, np.uint8)),
    decompositions=read_only(np.zeros(1, np.int32)),
    parts=read_only(np.zeros(1, np.int32)),
    growth=read_only(np.zeros(1, np.int8)),
    composes=False,
    is_second=read_only(np.zeros(1, np.bool_)),
    steps=read_only(np.zeros(1, np.uint8)),
    ranges=normalizer_tables.ByteRanges(np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)),
    pairs=read_only(np.zeros(1, np.uint64)),
)
"""In place of one where there is none: the kernel is compiled for its types, and does not look at it."""
