# SPDX-License-Identifier: Apache-2.0
"""White space, a normalizer and a model by HF's rules, word by word: `tokenizer.json` of T5, XLM-R, NLLB.

Each word gets a "▁" in front, is normalized, and is encoded by itself. If no step looks from one word into another, the
ids of a word depend only on its bytes, and the table of the encode loop can be asked for these before anything is
normalized. This is checked once for a tokenizer, and once for each new word: a word that may become something else next
to other words makes its row *irregular*, and an irregular row goes through all steps one after the other.

In scripts without spaces words do not recur, but their parts do, and so do those of code. A word is cut between two
characters if each becomes one character whatever its neighbours, and if no token has the two side by side: then no
merge reaches across, and every path of Unigram passes there. So the parts can be encoded one by one, with one
exception: Unigram's sum so far decides how sums inside a part are rounded. A part where rounding could matter makes its
row irregular, too.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.tokenizer import normalizers, recycled
from tokenmill.tokenizer.counting import WORD_COUNTS, Tally, add_word_counts
from tokenmill.tokenizer.engines.models import ModelRunner
from tokenmill.tokenizer.engines.staged import StagedEngine, with_rows
from tokenmill.tokenizer.engines.steps import MISS, SPANS, steps_of
from tokenmill.tokenizer.engines.tables import TablePool, run_loop
from tokenmill.tokenizer.errors import UnknownCharacterError
from tokenmill.tokenizer.kernels import normalized_words as kernels
from tokenmill.tokenizer.kernels import sentencepiece_units
from tokenmill.tokenizer.kernels.by_address import Bound
from tokenmill.tokenizer.kernels.classes import N_CODE_POINTS
from tokenmill.tokenizer.kernels.encode_loop import FLAGGED
from tokenmill.tokenizer.kernels.normalized_words import (
    EVERY_SPACE,
    N_NOTED,
    N_PENDING,
    NO_SPACE,
    ONE_SPACE,
    Pending,
    WordTables,
)
from tokenmill.tokenizer.kernels.scanners_parts import SPACE as SPACE_CLASS
from tokenmill.tokenizer.kernels.span_table import FLAG, Table
from tokenmill.tokenizer.kernels.word_table import COUNTER_TOTAL
from tokenmill.tokenizer.models import BPE, Unigram
from tokenmill.tokenizer.models.bpe_tables import take_part
from tokenmill.tokenizer.models.unigram import SPACE, UnigramTables, new_unigram_scratch
from tokenmill.tokenizer.models.vocabulary import NO_ENTRY
from tokenmill.tokenizer.normalizers import Precompiled, Replace, Sequence, Strip
from tokenmill.tokenizer.normalizers.base import MAX_GROWTH, Normalizer
from tokenmill.tokenizer.normalizers.kernels import precompiled
from tokenmill.tokenizer.normalizers.kernels.normal_forms import INERT
from tokenmill.tokenizer.normalizers.tables import graphemes
from tokenmill.tokenizer.pre_tokenizers import Metaspace, WhitespaceSplit
from tokenmill.tokenizer.pre_tokenizers import Sequence as PreTokenizers
from tokenmill.tokenizer.ragged import Ragged, gathered, read_only, text_rows
from tokenmill.tokenizer.unicode import tables as unicode_tables
from tokenmill.tokenizer.words import Words, whole_rows

_METASPACE = Metaspace(SPACE, prepend_scheme="always", split=True)
_STRIPS = (Strip(left=False, right=True), Strip(left=True, right=True))
_FORMS = (normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD)
_OF_CHARACTERS = (normalizers.Lowercase, normalizers.Nmt, normalizers.StripAccents)
_SPACE_BYTES = len(SPACE.encode())
_NO_ADDED = read_only(np.empty(0, np.int32))
_ALL = ~np.uint64(0)
_NO_SPANS = Ragged(np.empty(0, np.int32), np.zeros(1, np.int64)), np.empty(0, np.bool_), np.empty(0, np.bool_)
"""The ids of no spans, and what else there is to say of these."""
_CACHE_BYTES = 1 << 20
"""Size of the table of normalized words, most of which occur once."""
_MOST_BYTES = 1 << 29
"""The most bytes of rows to encode at a time: all spans may be pending then, and Unigram's sums are off by little."""
_PIECE_BYTES = 1 << 14
"""Longer rows are cut into pieces of about this size, so that few words share the fate of an irregular one."""
_NEW_BYTES, _NEW_SHARE = 1 << 20, 256
"""The same, as long as more than one span in `_NEW_SHARE` bytes is new."""


class _Cuts(NamedTuple):
    """How the words of a model may be cut."""

    fused_id: int
    """Id of the unknown token if several in a row become one, else -1."""
    spells: bool
    """Whether unknown characters become bytes. Then only the text of the unknown token itself becomes that token, and
    next to unknown characters it becomes bytes, too."""
    unigram: UnigramTables | None = None
    least_gap: float = 0.0
    """The lead per byte that Unigram's best path needs in a part of a word, so that rounding cannot change it."""


class NormalizedWordsEngine(StagedEngine):
    """Finds words and encodes them in one pass; new ones, and irregular rows, go through all steps."""

    def __init__(
        self, parts: tuple[Any, Any], steps: list[Normalizer], tables: WordTables, cuts: _Cuts | None,
        runner: ModelRunner, pool: TablePool,
    ) -> None:  # fmt: skip
        self._normalizer, pre_tokenizer = parts
        # Two pools of tables: the steps look up normalized words, the loop raw ones.
        super().__init__(pre_tokenizer, runner, TablePool(_CACHE_BYTES))
        self._raw_pool = pool
        self._steps = steps
        self._is_new = True
        self._tables = tables
        self._spans = Bound(kernels.spans, SPANS, tables)
        self._cuts = cuts
        categories = graphemes() & precompiled.CATEGORY
        self._joins = (categories >= precompiled.EXTEND) & (categories <= precompiled.SPACING_MARK)
        self._takes = categories == precompiled.PREPEND
        self._is_border = unicode_tables.property_table("spaces").copy()
        self._is_border[[0, ord(SPACE)]] = True

    @classmethod
    def of(
        cls, normalizer: Any, pre_tokenizer: Any, model: Any, runner: ModelRunner, pool: TablePool
    ) -> "NormalizedWordsEngine | None":
        """Returns the engine for parts of a tokenizer, None if one of them looks at more than a word."""
        steps = list(normalizer.normalizers) if isinstance(normalizer, Sequence) else [normalizer]
        steps = [step for step in steps if step is not None]
        splits = pre_tokenizer == PreTokenizers((WhitespaceSplit(), _METASPACE))
        one_space = bool(steps) and _makes_one_space(steps[-1], " " if splits else f" {SPACE}")
        steps = steps[:-1] if one_space else steps
        strips = bool(steps) and steps[-1] in _STRIPS
        steps = steps[:-1] if strips else steps
        if not (splits or pre_tokenizer == _METASPACE) or not all(map(_is_local, steps)):
            return None
        if not _grows_little(steps):
            return None
        spaces = NO_SPACE if splits or strips else ONE_SPACE if one_space else EVERY_SPACE
        # Unless a step makes several spaces one, each is a word, so they are counted; but a map makes "\r\n" one.
        counts = not splits and not one_space
        if counts and (strips or any(isinstance(step, Precompiled) for step in steps)):
            return None
        if not _knows_space(runner):
            return None
        cuts = _cuts_of(model)
        tables = _word_tables(steps, model if cuts else None, splits, spaces)
        return None if tables is None else cls((normalizer, pre_tokenizer), steps, tables, cuts, runner, pool)

    def encode(
        self, rows: Ragged, added: npt.NDArray[np.int32], is_first: npt.NDArray[np.bool_], tally: Tally | None
    ) -> Ragged:
        """Encodes raw rows; see `tables.Engine`."""
        counted = None if tally is None else self.new_tally()
        n = rows.n_rows + rows.n_values // _PIECE_BYTES + 1
        offsets, owners = np.empty(n, np.int64), np.empty(n, np.int64)
        n = kernels.cut_rows(*rows, added, self._tables, _PIECE_BYTES, offsets, owners)
        pieces, owners, is_cut = Ragged(rows.values, offsets[: n + 1]), owners[:n], n > rows.n_rows
        if is_cut:
            added, is_first = added[owners] if added.size else added, is_first[owners]
        parts: list[Ragged] = []
        begin = 0
        while begin < n or not parts:
            # Pending spans are filled in later, wherever they occur: so while there are many, go in small steps.
            limit = offsets[begin] + (_NEW_BYTES if self._is_new else _MOST_BYTES)
            end = max(int(np.searchsorted(pieces.offsets, limit, "right")) - 1, min(begin + 1, n))
            part = Ragged(rows.values, pieces.offsets[begin : end + 1])
            parts.append(self._encode_part(part, added[begin:end], read_only(is_first[begin:end]), counted))
            begin = end
        if tally is not None and counted is not None:
            tally.add(counted)
        ids = parts[0] if len(parts) == 1 else _joined(parts)
        if not is_cut:
            return ids
        return Ragged(ids.values, ids.offsets[np.searchsorted(owners, np.arange(rows.n_rows + 1))])

    def _encode_part(
        self, rows: Ragged, added: npt.NDArray[np.int32], is_first: npt.NDArray[np.bool_], tally: Tally | None
    ) -> Ragged:
        """Encodes some rows word by word, and those that are irregular in steps."""
        if rows.n_values > _MOST_BYTES:
            return self._encode_in_steps(rows, added, is_first, tally)
        ids, irregular = self._encode_regular(rows, added, tally)
        which = np.flatnonzero(irregular)
        if not which.size:
            return ids
        others = rows.take(which)
        more = self._encode_in_steps(others, _NO_ADDED, read_only(is_first[which]), tally)
        if tally is not None:
            # The words of irregular rows have been counted twice: the encode loop counts before it knows.
            again = self.new_tally()
            self._encode_regular(others, _NO_ADDED, again)
            tally.counter.state[COUNTER_TOTAL] -= again.n_words
        return with_rows(ids, which, more)

    def _encode_in_steps(
        self, rows: Ragged, added: npt.NDArray[np.int32], is_first: npt.NDArray[np.bool_], tally: Tally | None
    ) -> Ragged:
        rows = rows if self._normalizer is None else self._normalizer.normalize_rows(rows)
        words = self.words(rows, is_first)
        if tally is not None:
            # A model's kernel may count parts of words instead of words.
            each = words._replace(row_offsets=np.arange(words.n_words + 1))
            is_unknown = self._has_unknown(self._runner.encode(each, _NO_ADDED, self._pool, None))
            tally.counter.state[COUNTER_TOTAL] += words.n_words
            self._count_unknown(words._replace(starts=words.starts[is_unknown], stops=words.stops[is_unknown]), tally)
        return self._runner.encode(words, added, self._pool, None)

    def _encode_regular(
        self, rows: Ragged, added: npt.NDArray[np.int32], tally: Tally | None
    ) -> tuple[Ragged, npt.NDArray[np.bool_]]:
        """Returns the ids, and which rows are irregular: these have no ids yet, but their words are counted."""
        # Every span has at least one byte. Memory pages that are not reached are never touched.
        n = rows.n_values + rows.n_rows
        noted = recycled.empty(0 if tally is None else 2 * n, np.int64)
        columns = (recycled.empty(n, np.uint64) for _ in range(3))
        pending = Pending(next(columns), next(columns), next(columns), noted, np.zeros(2, np.int64))
        irregular = np.zeros(rows.n_rows, np.bool_)

        def finish(table: Table, ids: Ragged) -> Ragged:
            n_pending = int(pending.state[N_PENDING])
            starts, stops = pending.starts[:n_pending], pending.stops[:n_pending]
            # A short text of known words has none, and the steps would take most of its time.
            found = self._encode_spans(rows.values, starts, stops) if n_pending else _NO_SPANS
            more, has_unknown, is_irregular = found
            self._is_new = n_pending * _NEW_SHARE > rows.n_values
            if n_pending:
                # There is room for a token per byte, and for the "▁" in front of a word.
                first = starts & FLAG == 0
                fits = np.diff(more.offsets) <= (stops - (starts & ~FLAG)).astype(np.int64) + first
                kernels.settle(rows.values, pending, *more, has_unknown, fits & ~is_irregular, table)
            fused_id = -1 if self._cuts is None else self._cuts.fused_id
            if n_pending or (fused_id >= 0 and (np.diff(np.flatnonzero(ids.values == fused_id)) == 1).any()):
                out = recycled.empty(int(kernels.placed_size(*ids, more.offsets)), np.int32)
                offsets = np.empty(rows.n_rows + 1, np.int64)
                kernels.place(*ids, *more, is_irregular, fused_id, out, offsets, irregular)
                ids = Ragged(out[: offsets[-1]], offsets)
            if tally is not None:
                at, number = pending.noted[: 2 * pending.state[N_NOTED]].reshape(-1, 2).T
                # Places of spans that were not pending have number -1.
                self._count(rows, irregular, at[np.append(has_unknown, True)[number]], tally)
            return ids

        bound = steps_of(FLAGGED, self._spans, Bound(kernels.miss, MISS, self._tables, pending))
        ids = run_loop(
            lambda _: bound, lambda _: None, rows, added, self._raw_pool, tally, n_ids=2 * n, longest=0, finish=finish
        )
        return ids, irregular

    def _encode_spans(
        self, data: npt.NDArray[np.uint8], starts: npt.NDArray[np.uint64], stops: npt.NDArray[np.uint64]
    ) -> tuple[Ragged, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Returns the ids of spans; bool[n], which of them have an unknown token; bool[n], which are irregular."""
        is_inner = starts & FLAG != 0
        rows = gathered(data, (starts & ~FLAG).view(np.int64), stops.view(np.int64))
        first, _ = _borders(rows)
        is_space = self._tables.classes[first] == SPACE_CLASS
        irregular = np.zeros(rows.n_rows, np.bool_)
        for step in self._steps:
            if isinstance(step, Precompiled):
                # The span may form a grapheme with the space before it, or with the one after it.
                first, last = _borders(rows)
                irregular |= self._joins[first] | self._takes[last]
            rows = step.normalize_rows(rows)
        first, last = _borders(rows)
        words = self.words(rows, read_only(np.ones(rows.n_rows, np.bool_)))
        irregular |= self._is_border[first] | self._is_border[last] | (np.diff(words.row_offsets) != 1)
        irregular &= ~is_space
        begins, inner = words.starts.copy(), words.row_offsets[:-1][is_inner]
        begins[inner] += _SPACE_BYTES
        words = Words(*map(read_only, words._replace(starts=begins)))
        ids = self._runner.encode(words, _NO_ADDED, self._pool, None)
        has_unknown = self._has_unknown(ids)
        if self._cuts is not None and self._cuts.spells:
            irregular |= has_unknown
        if self._cuts is not None and self._cuts.unigram is not None:
            # Only inner parts: before the first part of a word nothing has been summed.
            irregular[is_inner] |= self._may_round(words._replace(starts=begins[inner], stops=words.stops[inner]))
        return ids, has_unknown, irregular

    def _may_round(self, words: Words) -> npt.NDArray[np.bool_]:
        """Returns for each part of a word whether rounding might decide how Unigram cuts it, bool[n]."""
        assert self._cuts is not None
        gaps = np.empty(words.n_words, np.float64)
        kernels.find_gaps(*words[:3], self._cuts.unigram, new_unigram_scratch(words.max_word), gaps)
        return gaps <= (words.stops - words.starts) * self._cuts.least_gap

    def _count(
        self, rows: Ragged, irregular: npt.NDArray[np.bool_], noted: npt.NDArray[np.int64], tally: Tally
    ) -> None:
        """Counts, normalized, the words with unknown tokens: those around the noted places of regular rows."""
        starts, stops = np.empty(noted.size, np.int64), np.empty(noted.size, np.int64)
        n = kernels.words_around(rows.values, rows.offsets, irregular, noted, self._tables.classes, starts, stops)
        found = gathered(rows.values, starts[:n], stops[:n])
        for step in self._steps:
            found = step.normalize_rows(found)
        self._count_unknown(self.words(found, read_only(np.ones(n, np.bool_))), tally)

    def _has_unknown(self, ids: Ragged) -> npt.NDArray[np.bool_]:
        """Returns which rows have an unknown token."""
        return np.diff(np.append(0, np.cumsum(ids.values == self._runner.unk_id))[ids.offsets]) > 0

    def _count_unknown(self, words: Words, tally: Tally) -> None:
        """Counts words that have an unknown token."""
        found = gathered(words.values, words.starts, words.stops)
        each = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), words.n_words, [None, pa.py_buffer(found.offsets), pa.py_buffer(found.values)]
        )
        ones = pa.array(np.ones(words.n_words, np.int64))
        tally.add_oov_words(add_word_counts([pa.Table.from_arrays([each, ones], schema=WORD_COUNTS)]))

    def describe(self) -> tuple[str, list[str], list[str]]:
        """Returns the kernel, the components fused into it, and the stages before it."""
        parts = [*([self._normalizer] if self._normalizer is not None else []), self._pre_tokenizer]
        return "normalized_words", [*(type(part).__name__ for part in parts), self._runner.model_name], []


def _makes_one_space(step: Any, contents: str) -> bool:
    """Whether a normalizer replaces several spaces by one of the characters in `contents`."""
    is_run = isinstance(step, Replace) and step.is_regex and step.pattern == " {2,}"
    return is_run and len(step.content) == 1 and step.content in contents


def _is_local(step: Any) -> bool:
    """Whether a normalizer looks only at single characters, those that combine with them, or a literal."""
    if isinstance(step, Replace):
        return not step.is_regex and step.pattern != ""
    return type(step) in (Precompiled, *_FORMS, *_OF_CHARACTERS)


def _grows_little(steps: list[Any]) -> bool:
    """Whether steps that texts go through word by word, unchecked, cannot make them grow without end."""
    literals = [step for step in steps if isinstance(step, Replace)]
    ratios = [max(1, len(step.content.encode()) / len(step.pattern.encode())) for step in literals]
    return math.prod(ratios) <= MAX_GROWTH and sum(isinstance(step, Precompiled) for step in steps) <= 1


def _knows_space(runner: ModelRunner) -> bool:
    """Whether "▁" is in the vocabulary: then the first token of a word is never the unknown token."""
    try:
        ids, _, _ = runner.align(whole_rows(text_rows([SPACE])))
    except UnknownCharacterError:
        return False
    return runner.unk_id not in ids


def _cuts_of(model: Any) -> _Cuts | None:
    """Returns how words may be cut, None if they may not be."""
    if isinstance(model, BPE):
        # If the unknown token is one character, that character is in the vocabulary.
        if not merges_like_sentencepiece(model) or len(model.unk_token or "") < 2 or model.tables.max_ids_per_byte > 1:
            return None
        cuts = _Cuts(model.tables.unk_id if model.fuse_unk else -1, model.byte_fallback)
        byte_ids = np.array(model.byte_ids)
    elif isinstance(model, Unigram) and not model.tables.single:
        largest = max(float(np.abs(model.scores).max()), abs(model.tables.unk_score), 1.0)
        # All paths are the same up to where a part begins. From there on each addition rounds by at most half of the
        # sum's last bit, and a sum has at most as many scores as a word has bytes.
        least_gap = 4 * _MOST_BYTES * largest * 2.0**-53
        cuts = _Cuts(model.tables.unk_id, model.byte_fallback, model.tables, least_gap)
        byte_ids = model.tables.byte_ids
    else:
        return None
    return None if model.tables.unk_id in (-1, NO_ENTRY) or (cuts.spells and byte_ids.min() < 0) else cuts


def merges_like_sentencepiece(model: Any) -> bool:
    """Whether a BPE model merges as sentencepiece does, except that its list of merges decides which is better."""
    if not isinstance(model, BPE) or model.merge_ranks is not None or model.byte_level:
        return False
    if model.drops or model.ignore_merges or model.prefix or model.suffix:
        return False
    # The tokens of unknown characters must not merge with anything.
    unk_id = -1 if model.unk_token is None else model.columns.find_one(model.unk_token)
    return not take_part(np.array([*model.byte_ids, unk_id]), model.merge_ids)


def _word_tables(steps: list[Normalizer], model: Any, splits: bool, spaces: int) -> WordTables | None:
    """Returns the tables of words; None if the steps treat white space differently from the kernel.

    Args:
      steps: the normalizers that words go through; see `_is_local`.
      model: the model that encodes words, None if words may not be cut.
      splits: whether all white space separates words, and not only U+0020.
      spaces: see WordTables.
    """
    white = unicode_tables.property_table("spaces")
    categories = graphemes() & precompiled.CATEGORY
    # These characters combine with nothing except marks after them.
    stands_apart = white | (categories == precompiled.CONTROL) | (categories == precompiled.CR)
    stands_apart |= categories == precompiled.LF
    stands_apart[0] = False
    points = np.array([c for c in range(0x10000) if not 0xD800 <= c < 0xE000])
    texts = "".join(map(chr, points.tolist())).encode()
    offsets = np.append(0, np.cumsum(1 + (points >= 0x80).astype(np.int64) + (points >= 0x800)))
    rows = Ragged(read_only(np.frombuffer(texts, np.uint8)), offsets)
    # `skip_spaces` knows no white space beyond these ranges.
    separates = stands_apart[points] & ((points < 0xC0) | ((points >= 0x1000) & (points < 0x4000)))
    cuts = points > 0
    images = points
    for step in steps:
        separates &= stands_apart[images]
        if isinstance(step, Precompiled):
            cuts &= categories[images] == precompiled.ANY
        if isinstance(step, Replace) and len(step.pattern) > 1:
            in_pattern = np.isin(images, [ord(c) for c in step.pattern])
            separates &= ~in_pattern
            cuts &= ~in_pattern
        rows = step.normalize_rows(rows)
        first, last = _borders(rows)
        n_bytes = 1 + (first >= 0x80).astype(np.int64) + (first >= 0x800) + (first >= 0x10000)
        images = np.where((first == last) & (n_bytes == np.diff(rows.offsets)), first, 0)
        cuts &= images > 0
        if isinstance(step, _FORMS):
            cuts &= step.tables.kinds[images] == INERT
    separates &= white[images] if splits else images == ord(" ")
    cuts &= ~separates & ~white[images] & (images != ord(SPACE))
    classes = np.zeros(N_CODE_POINTS, np.uint8)
    classes[points[separates]] = SPACE_CLASS
    is_space = classes != 0
    if not is_space[0x20] or is_space[0x0A] != is_space[0x0D] or is_space[0x21:0x7F].any():
        return None
    if is_space[0x0A] and not classes[np.frombuffer(_normalized("\r\n", steps), np.uint8)].all():
        return None  # a character map may have the pair as one key
    entries = np.zeros(N_CODE_POINTS, np.uint64)
    joins = np.zeros((1 << sentencepiece_units.JOIN_BITS) // 64, np.uint64)
    if model is not None:
        _set_joins(model, joins)
        kernels.set_entries(points[cuts], images[cuts].astype(np.int32), entries)
    entries[is_space] = kernels.SEPARATES
    return WordTables(
        classes=read_only(classes),
        entries=read_only(entries),
        joins=read_only(joins),
        separators=read_only(np.where(is_space[[0x09, 0x0A]], _ALL, np.uint64(0))),
        spaces=spaces,
        sums=isinstance(model, Unigram),
    )


def _set_joins(model: BPE | Unigram, joins: npt.NDArray[np.uint64]) -> None:
    """Notes in `joins` which characters are neighbours in a token."""
    texts = (model.matching if isinstance(model, Unigram) else model.columns).tokens.characters
    # Tokens with a "▁" after the first character never match.
    is_behind = texts.points == ord(SPACE)
    is_behind[texts.offsets[:-1][texts.lengths > 0]] = False
    n_behind = np.append(0, np.cumsum(is_behind))
    kept = texts.take(n_behind[texts.offsets[1:]] == n_behind[texts.offsets[:-1]])
    sentencepiece_units.set_joins(*kept, joins, np.zeros(N_CODE_POINTS, np.bool_))


def _normalized(text: str, steps: list[Normalizer]) -> bytes:
    rows = text_rows([text])
    for step in steps:
        rows = step.normalize_rows(rows)
    return bytes(rows.values[rows.offsets[0] : rows.offsets[1]])


def _borders(rows: Ragged) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Returns the first and the last code point of each row, int32[n_rows] each, 0 for empty rows."""
    first, last = np.empty(rows.n_rows, np.int32), np.empty(rows.n_rows, np.int32)
    kernels.border_characters(*rows, first, last)
    return first, last


def _joined(parts: list[Ragged]) -> Ragged:
    """Concatenates the rows of several columns."""
    begins = np.cumsum([0, *(part.n_values for part in parts)])
    offsets = [part.offsets[1:] + begin for part, begin in zip(parts, begins[:-1], strict=True)]
    return Ragged(np.concatenate([part.values for part in parts]), np.concatenate([[0], *offsets]))
