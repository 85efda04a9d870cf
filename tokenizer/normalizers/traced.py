# SPDX-License-Identifier: Apache-2.0
"""Rows normalized so that it is known of each new character which one it came from.

The reference implementation, which knows it of any text, is `Normalizer.normalize_aligned`;
`tests/tokenizer/test_offsets.py` compares them.
"""

import functools
import itertools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.normalizers.base import Edges, Normalizer, same_rows
from tokenmill.tokenizer.normalizers.characters import CharacterStep
from tokenmill.tokenizer.normalizers.edit_lists import EditingStep, found_edits
from tokenmill.tokenizer.normalizers.edits import Prepend, Replace
from tokenmill.tokenizer.normalizers.forms import NFC, NFD, NFKC, NFKD, NormalForm
from tokenmill.tokenizer.normalizers.kernels.precompiled import find_mapped
from tokenmill.tokenizer.normalizers.precompiled import Precompiled
from tokenmill.tokenizer.normalizers.sequence import Sequence
from tokenmill.tokenizer.pre_tokenizers.segment_kernels import character_positions
from tokenmill.tokenizer.ragged import Ragged, read_only

Int64s = npt.NDArray[np.int64]

FORMS = NFC | NFD | NFKC | NFKD


class Traced(NamedTuple):
    """Normalized rows, and what they were."""

    before: Ragged
    rows: Ragged
    origins: Int64s
    """int64[n_characters]: the number, in its row, of the character that each came from."""
    is_right: npt.NDArray[np.bool_]
    """bool[n_rows]: the rows whose origins are known."""

    @classmethod
    def unchanged(cls, rows: Ragged) -> "Traced":
        """Returns rows that nobody normalized."""
        ends = characters_before(*rows)
        origins = np.arange(ends[-1] - ends[0]) - np.repeat(ends[:-1] - ends[0], np.diff(ends))
        return cls(rows, rows, origins, np.ones(rows.n_rows, np.bool_))


def characters_before(values: npt.NDArray[np.uint8], at: Int64s) -> Int64s:
    """Returns how many characters of UTF-8 begin before each place, int64[n]; places must not decrease."""
    found = np.empty(at.size, np.int64)
    character_positions(values, 0, read_only(at), found)
    return found


def traced(normalizer: Normalizer, rows: Ragged) -> Traced:
    """Normalizes rows, and finds out where their characters came from."""
    done = Traced.unchanged(rows)
    for step in normalizer.flat() if isinstance(normalizer, Sequence) else [normalizer]:
        made, kept = step.normalize_rows(done.rows), _puts_back(step)
        if made is done.rows and not kept:
            continue
        before, after = (np.diff(characters_before(*each)) for each in (done.rows, made))
        n_new = None if kept else _n_new(step, done)
        if n_new is None or n_new.sum() != after.sum():
            same = same_rows(done.rows, made)
            if kept:
                same &= [kept not in made.values[a:b].tobytes() for a, b in itertools.pairwise(made.offsets.tolist())]
            done.is_right[:] &= same
            origins = np.zeros(int(after.sum()), np.int64)
            origins[np.repeat(same, after)] = done.origins[np.repeat(same, before)]
        else:
            origins = np.repeat(done.origins, n_new)
        done = done._replace(rows=made, origins=origins)
    return done


def _puts_back(step: Any) -> bytes:
    """Returns what a step may replace by itself, all of which then has the place of its last character; else b""."""
    if isinstance(step, Replace) and len(step.content) > 1 and (not step.is_fast or step.pattern == step.content):
        return step.content.encode()
    return b""


def _n_new(step: Any, done: Traced) -> Int64s | None:
    """Returns how many characters a step makes of each, int64[n_characters]; None if that cannot be told."""
    rows = done.rows
    first, last = (int(rows.offsets[i]) for i in (0, -1))
    if isinstance(step, CharacterStep | FORMS):
        text = rows.values[first:last].tobytes().decode()
        codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        return _widths(step)[codes] if isinstance(step, CharacterStep) else _n_new_in_form(step, done, text, codes)
    n_new = np.ones(done.origins.size, np.int64)
    base = characters_before(rows.values, rows.offsets[:1])[0]
    if isinstance(step, Prepend):
        filled = np.diff(rows.offsets) > 0
        n_new[characters_before(rows.values, rows.offsets[:-1])[filled] - base] += len(step.prepend)
        return n_new
    if isinstance(step, Precompiled):
        found, texts = found_edits(find_mapped, rows, step.tables), step.tables.texts
        in_pool = np.append(0, np.cumsum(texts.pool & 0xC0 != 0x80))
        n_put = in_pool[texts.stops[found[:, 2]]] - in_pool[texts.starts[found[:, 2]]]
    elif isinstance(step, EditingStep) and step.is_fast:
        found, contents = step.find_edits(rows, Edges.of(rows.n_rows))
        n_put = np.array(list(map(len, contents)), np.int64)[found[:, 2]]
    else:
        return None
    starts, stops = characters_before(rows.values, found[:, :2].ravel()).reshape(-1, 2).T - base
    n_old = stops - starts
    if isinstance(step, Precompiled):
        # New characters have the places of old ones, one by one; what is too much has that of the last. HF gets lost
        # where the first characters of a text are removed.
        is_lost = (n_put == 0) & np.isin(found[:, 0], rows.offsets[:-1])
        done.is_right[np.searchsorted(rows.offsets, found[is_lost, 0], "right") - 1] = False
        kept = np.minimum(n_put, n_old)
        is_more = n_put > n_old
        starts, n_put, n_old = starts + kept - is_more, n_put - kept + is_more, n_old - kept + is_more
    # What replaces a stretch has the place of its last character.
    inside = np.repeat(starts + n_old - np.cumsum(n_old), n_old) + np.arange(n_old.sum())
    n_new[inside] = 0
    n_new[(starts + n_old - 1)[n_old > 0]] = n_put[n_old > 0]
    return n_new


def _n_new_in_form(step: NormalForm, done: Traced, text: str, codes: npt.NDArray[np.uint32]) -> Int64s:
    """Returns how many characters a normal form makes of each; text: all rows; codes: uint32[n_characters]."""
    n_new = np.ones(codes.size, np.int64)
    is_active = step.active()[codes]
    is_start = ~is_active
    ends = characters_before(*done.rows)
    filled = ends[:-1][np.diff(ends) > 0] - ends[0]
    is_start[filled] = True
    starts = np.flatnonzero(is_start)
    stops = np.append(starts[1:], codes.size)
    changes = np.logical_or.reduceat(is_active, starts) if starts.size else np.zeros(0, np.bool_)
    for start, stop in zip(starts[changes].tolist(), stops[changes].tolist(), strict=True):
        made = _n_new_in_piece(step, text[start:stop])
        if made is None:
            done.is_right[np.searchsorted(ends, start + ends[0], "right") - 1] = False
        else:
            n_new[start:stop] = made
    return n_new


@functools.lru_cache(maxsize=1 << 14)
def _n_new_in_piece(step: NormalForm, piece: str) -> tuple[int, ...] | None:
    """Returns what `_n_new` does of a piece, as `NormalForm.edits` cuts them; None if it gets something in front."""
    n_new, at = [0] * len(piece), 0
    for _, change in step.changes_of(piece):
        if change > 0 and not at:
            return None
        n_new[at - 1 if change > 0 else at] += 1
        at += 0 if change > 0 else 1 - change
    return tuple(n_new)


@functools.lru_cache(maxsize=16)
def _widths(step: CharacterStep) -> Int64s:
    widths = np.ones(0x110000, np.int64)
    for character, new in step.changes().items():
        widths[character] = len(new)
    return widths
