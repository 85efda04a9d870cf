# SPDX-License-Identifier: Apache-2.0
"""White space, a normalizer and a model by HF's rules, word by word: `tokenizer.json` of T5, XLM-R, NLLB.

Each word gets a "▁" in front, is normalized, and is encoded by itself. Where no step looks from one word into another,
what becomes of a word depends on nothing but its bytes, and the table of the encode loop can be asked for these before
anything is normalized. Whether that is so is found out once for a tokenizer, and once for each new word: one that may
become something else beside others makes its row *irregular*, and that goes through all steps one after the other.

Words without spaces do not come back, but their parts do, and so do those of code. They are cut between two characters
that become one each, whatever their neighbours, and these are neighbours in no token: no merge reaches across, and
every path of Unigram passes there. So the parts can be encoded one by one, but that Unigram's sum so far decides how
sums inside of a part are rounded: one where that could matter makes its row irregular, too.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenizer import edit_kernels, normalizers, recycled
from tokenizer.aligned import AlignedText
from tokenizer.counting import WORD_COUNTS, Tally, add_word_counts
from tokenizer.engines.base import AlignedToken
from tokenizer.engines.models import ModelRunner
from tokenizer.engines.staged import StagedEngine, whole_rows
from tokenizer.engines.tables import TablePool, run_loop
from tokenizer.errors import UnknownCharacterError
from tokenizer.kernels import normalized_words as kernels
from tokenizer.kernels import sentencepiece_units
from tokenizer.kernels.classes import N_CODE_POINTS
from tokenizer.kernels.normalized_words import EVERY_SPACE, N_NOTED, N_PENDING, NO_SPACE, ONE_SPACE, Pending, WordTables
from tokenizer.kernels.scanners_parts import SPACE as SPACE_CLASS
from tokenizer.kernels.span_table import FLAG, Table
from tokenizer.kernels.word_counters import COUNTER_TOTAL
from tokenizer.models import BPE, Unigram
from tokenizer.models.bpe_tables import take_part
from tokenizer.models.unigram import SPACE, UnigramTables, new_unigram_scratch
from tokenizer.models.vocabulary import tokens_of
from tokenizer.normalizers import Precompiled, Replace, Sequence, Strip
from tokenizer.normalizers.base import Normalizer
from tokenizer.normalizers.kernels import precompiled
from tokenizer.normalizers.kernels.normal_forms import INERT
from tokenizer.normalizers.tables import graphemes
from tokenizer.pre_tokenizers import Metaspace, WhitespaceSplit
from tokenizer.pre_tokenizers import Sequence as PreTokenizers
from tokenizer.ragged import Ragged, read_only, text_rows
from tokenizer.row_kernels import insert_rows
from tokenizer.unicode import tables as unicode_tables
from tokenizer.words import Words

_METASPACE = Metaspace(SPACE, prepend_scheme="always", split=True)
_STRIPS = (Strip(left=False, right=True), Strip(left=True, right=True))
_FORMS = (normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD)
_OF_CHARACTERS = (normalizers.Lowercase, normalizers.Nmt, normalizers.StripAccents)
_SPACE_BYTES = len(SPACE.encode())
_NO_ADDED = read_only(np.empty(0, np.int32))
_ALL = ~np.uint64(0)
_CACHE_BYTES = 1 << 20
"""Of the table of normalized words, which mostly come once."""
_MOST_BYTES = 1 << 29
"""Of rows that are encoded at a time: so that all spans may be pending, and for sums of Unigram to be off by little."""
_PIECE_BYTES = 1 << 14
"""Of longer rows, so that what is irregular has few words beside it."""
_NEW_BYTES, _NEW_SHARE = 1 << 20, 256
"""Likewise, as long as there is more than one new span in so many bytes."""


class _Cuts(NamedTuple):
    """How the words of a model may be cut."""

    fused_id: int
    """The unknown token where several in a row are one, -1 where they are not."""
    spells: bool
    """Whether unknown characters become bytes. Then the unknown token stands for nothing but its own text, and that is
    spelled, too, beside unknown characters."""
    unigram: UnigramTables | None = None
    least_gap: float = 0.0
    """By how much the best path of Unigram must lead in a part of a word, per byte of that, lest rounding decides."""


class NormalizedWordsEngine(StagedEngine):
    """Finds words and encodes them in one pass; new ones, and irregular rows, go through all steps."""

    def __init__(
        self, parts: tuple[Any, Any], steps: list[Normalizer], tables: WordTables, cuts: _Cuts | None,
        runner: ModelRunner, pool: TablePool,
    ) -> None:  # fmt: skip
        self._normalizer, pre_tokenizer = parts
        # The steps know words as they are normalized, the loop knows them raw.
        super().__init__(pre_tokenizer, runner, TablePool(_CACHE_BYTES))
        self._raw_pool = pool
        self._steps = steps
        self._is_new = True
        self._tables = tables
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
        """Returns the engine for parts of a tokenizer, None where one of them looks at more than a word."""
        steps = list(normalizer.normalizers) if isinstance(normalizer, Sequence) else [normalizer]
        steps = [step for step in steps if step is not None]
        splits = pre_tokenizer == PreTokenizers((WhitespaceSplit(), _METASPACE))
        one_space = bool(steps) and _makes_one_space(steps[-1], " " if splits else f" {SPACE}")
        steps = steps[:-1] if one_space else steps
        strips = bool(steps) and steps[-1] in _STRIPS
        steps = steps[:-1] if strips else steps
        if not (splits or pre_tokenizer == _METASPACE) or not all(map(_is_local, steps)):
            return None
        spaces = NO_SPACE if splits or strips else ONE_SPACE if one_space else EVERY_SPACE
        # Without a step that makes one space of several each is a word; a map makes one of "\r\n".
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
        """Encodes raw rows; see `base.Engine`."""
        counted = None if tally is None else self.new_tally()
        n = rows.n_rows + rows.n_values // _PIECE_BYTES + 1
        offsets, owners = np.empty(n, np.int64), np.empty(n, np.int64)
        n = kernels.cut_rows(*rows, added, self._tables, _PIECE_BYTES, offsets, owners)
        pieces, owners = Ragged(rows.values, offsets[: n + 1]), owners[:n]
        added, is_first = added[owners] if added.size else added, read_only(is_first[owners])
        parts: list[Ragged] = []
        begin = 0
        while begin < n or not parts:
            # What is pending must be put in place wherever it is met: little by little, as long as most is.
            limit = offsets[begin] + (_NEW_BYTES if self._is_new else _MOST_BYTES)
            end = max(int(np.searchsorted(pieces.offsets, limit, "right")) - 1, min(begin + 1, n))
            part = Ragged(rows.values, pieces.offsets[begin : end + 1])
            parts.append(self._encode_part(part, added[begin:end], read_only(is_first[begin:end]), counted))
            begin = end
        if tally is not None and counted is not None:
            tally.add(counted)
        ids = parts[0] if len(parts) == 1 else _joined(parts)
        firsts = np.searchsorted(owners, np.arange(rows.n_rows + 1))
        return Ragged(ids.values, ids.offsets[firsts])

    def _encode_part(
        self, rows: Ragged, added: npt.NDArray[np.int32], is_first: npt.NDArray[np.bool_], tally: Tally | None
    ) -> Ragged:
        """Encodes some rows, those that are irregular in steps."""
        if rows.n_values > _MOST_BYTES:
            return self._encode_in_steps(rows, added, is_first, tally)
        ids, irregular = self._encode_regular(rows, added, tally)
        which = np.flatnonzero(irregular)
        if not which.size:
            return ids
        others = _taken(rows.values, rows.offsets[which], rows.offsets[which + 1])
        more = self._encode_in_steps(others, _NO_ADDED, read_only(is_first[which]), tally)
        if tally is not None:
            # Their words have been counted before it was known that they are irregular.
            again = self.new_tally()
            self._encode_regular(others, _NO_ADDED, again)
            tally.counter.state[COUNTER_TOTAL] -= again.n_words
        out = recycled.empty(ids.n_values + more.n_values, np.int32)
        out[: ids.n_values] = ids.values
        insert_rows(out, ids.offsets, which, more.values, more.offsets)
        return Ragged(out, ids.offsets)

    def _encode_in_steps(
        self, rows: Ragged, added: npt.NDArray[np.int32], is_first: npt.NDArray[np.bool_], tally: Tally | None
    ) -> Ragged:
        rows = rows if self._normalizer is None else self._normalizer.normalize_rows(rows)
        words = self.words(rows, is_first)
        if tally is not None:
            # The kernel of a model may count parts of words in place of words.
            each = words._replace(row_offsets=np.arange(words.n_words + 1))
            is_unknown = self._has_unknown(self._runner.encode(each, _NO_ADDED, self._pool, None))
            tally.counter.state[COUNTER_TOTAL] += words.n_words
            self._count_unknown(words._replace(starts=words.starts[is_unknown], stops=words.stops[is_unknown]), tally)
        return self._runner.encode(words, added, self._pool, None)

    def _encode_regular(
        self, rows: Ragged, added: npt.NDArray[np.int32], tally: Tally | None
    ) -> tuple[Ragged, npt.NDArray[np.bool_]]:
        """Returns ids, and which rows are irregular: these have none, but their words are counted."""
        # A span has a byte at least. Pages that none reaches are never touched.
        n = rows.n_values + rows.n_rows
        noted = recycled.empty(0 if tally is None else 2 * n, np.int64)
        columns = (recycled.empty(n, np.uint64) for _ in range(3))
        pending = Pending(next(columns), next(columns), next(columns), noted, np.zeros(2, np.int64))
        irregular = np.zeros(rows.n_rows, np.bool_)

        def finish(table: Table, ids: Ragged) -> Ragged:
            n_pending = int(pending.state[N_PENDING])
            starts, stops = pending.starts[:n_pending], pending.stops[:n_pending]
            more, has_unknown, is_irregular = self._encode_spans(rows.values, starts, stops)
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
                # Those that were not pending have number -1.
                self._count(rows, irregular, at[np.append(has_unknown, True)[number]], tally)
            return ids

        ids = run_loop(
            kernels.encode, (rows, added, self._tables, pending), self._raw_pool, tally,
            first=int(rows.offsets[0]), n_rows=rows.n_rows, n_ids=2 * n, longest=0, finish=finish,
        )  # fmt: skip
        return ids, irregular

    def _encode_spans(
        self, data: npt.NDArray[np.uint8], starts: npt.NDArray[np.uint64], stops: npt.NDArray[np.uint64]
    ) -> tuple[Ragged, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Returns the ids of spans, which have an unknown token, and which are irregular."""
        is_inner = starts & FLAG != 0
        rows = _taken(data, (starts & ~FLAG).view(np.int64), stops.view(np.int64))
        first, _ = _borders(rows)
        is_space = self._tables.classes[first] == SPACE_CLASS
        irregular = np.zeros(rows.n_rows, np.bool_)
        for step in self._steps:
            if isinstance(step, Precompiled):
                # In a grapheme with the space before it, or with the one behind it.
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
            # Where the first part of a word ends, nothing has been added up before.
            irregular[is_inner] |= self._may_round(words._replace(starts=begins[inner], stops=words.stops[inner]))
        return ids, has_unknown, irregular

    def _may_round(self, words: Words) -> npt.NDArray[np.bool_]:
        """Returns for parts of words whether rounding might decide how Unigram cuts them."""
        assert self._cuts is not None
        n, gaps = words.max_word + 1, np.empty(words.n_words, np.float64)
        seconds = np.empty(n, np.float64)
        kernels.find_gaps(*words[:3], self._cuts.unigram, new_unigram_scratch(n), seconds, gaps)
        return gaps <= (words.stops - words.starts) * self._cuts.least_gap

    def _count(
        self, rows: Ragged, irregular: npt.NDArray[np.bool_], noted: npt.NDArray[np.int64], tally: Tally
    ) -> None:
        """Counts the words around noted places of regular rows, as they are normalized: they have unknown tokens."""
        starts, stops = np.empty(noted.size, np.int64), np.empty(noted.size, np.int64)
        n = kernels.words_around(rows.values, rows.offsets, irregular, noted, self._tables.classes, starts, stops)
        found = _taken(rows.values, starts[:n], stops[:n])
        for step in self._steps:
            found = step.normalize_rows(found)
        self._count_unknown(self.words(found, read_only(np.ones(n, np.bool_))), tally)

    def _has_unknown(self, ids: Ragged) -> npt.NDArray[np.bool_]:
        """Returns which rows have an unknown token."""
        return np.diff(np.append(0, np.cumsum(ids.values == self.unk_id))[ids.offsets]) > 0

    def _count_unknown(self, words: Words, tally: Tally) -> None:
        """Counts words that have an unknown token."""
        found = _taken(words.values, words.starts, words.stops)
        each = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), words.n_words, [None, pa.py_buffer(found.offsets), pa.py_buffer(found.values)]
        )
        ones = pa.array(np.ones(words.n_words, np.int64))
        tally.add_oov_words(add_word_counts([pa.Table.from_arrays([each, ones], schema=WORD_COUNTS)]))

    def align(self, text: AlignedText, is_first: bool, first_word: int) -> tuple[list[AlignedToken], int]:
        """Encodes one raw row with where each token came from; see `base.Engine`."""
        if self._normalizer is not None:
            text = self._normalizer.normalize_aligned(text)
        return super().align(text, is_first, first_word)

    def describe(self) -> tuple[str, list[str], list[str]]:
        """Returns kernel, fused components, stages beside it."""
        parts = [*([self._normalizer] if self._normalizer is not None else []), self._pre_tokenizer]
        return "normalized_words", [*(type(part).__name__ for part in parts), self._runner.model_name], []


def _makes_one_space(step: Any, contents: str) -> bool:
    """Whether a normalizer puts one of some characters in place of several spaces."""
    is_run = isinstance(step, Replace) and step.is_regex and step.pattern == " {2,}"
    return is_run and len(step.content) == 1 and step.content in contents


def _is_local(step: Any) -> bool:
    """Whether a normalizer looks no further than at a character, those that it combines with, or a literal."""
    if isinstance(step, Replace):
        return not step.is_regex and step.pattern != ""
    return isinstance(step, (Precompiled, *_FORMS, *_OF_CHARACTERS))


def _knows_space(runner: ModelRunner) -> bool:
    """Whether "▁" is known: then the first token of a word is never the unknown one."""
    try:
        ids, _, _ = runner.align(whole_rows(text_rows([SPACE])))
    except UnknownCharacterError:
        return False
    return runner.unk_id not in ids


def _cuts_of(model: Any) -> _Cuts | None:
    """Returns how words may be cut, None where they may not."""
    if isinstance(model, BPE):
        # An unknown token of one character may be a known one.
        if not merges_like_sentencepiece(model) or len(model.unk_token or "") < 2 or model.tables.max_ids_per_byte > 1:
            return None
        cuts = _Cuts(model.tables.unk_id if model.fuse_unk else -1, model.byte_fallback)
        byte_ids = np.array(model.byte_ids)
    elif isinstance(model, Unigram) and not model.tables.single:
        largest = max(float(np.abs(model.scores).max()), abs(model.tables.unk_score), 1.0)
        # All paths are the same up to where a part begins. From there on each sum is off by half of its last bit, and
        # so is each of those before it: of at most as many scores as a word has bytes.
        least_gap = 4 * _MOST_BYTES * largest * 2.0**-53
        cuts = _Cuts(model.tables.unk_id, model.byte_fallback, model.tables, least_gap)
        byte_ids = model.tables.byte_ids
    else:
        return None
    return None if model.tables.unk_id < 0 or (cuts.spells and byte_ids.min() < 0) else cuts


def merges_like_sentencepiece(model: Any) -> bool:
    """Whether merging by a list does what sentencepiece does, but that the list says which merge is better."""
    if not isinstance(model, BPE) or model.merge_ranks is not None or model.byte_level:
        return False
    if model.drops or model.ignore_merges or model.prefix or model.suffix:
        return False
    # What stands for unknown characters merges with nothing.
    unk_id = -1 if model.unk_token is None else model.vocab.get(model.unk_token, -1)
    return not take_part(np.array([*model.byte_ids, unk_id]), model.merge_ids)


def _word_tables(steps: list[Normalizer], model: Any, splits: bool, spaces: int) -> WordTables | None:
    """Returns the tables of words; None where white space is not what the kernel takes for it.

    Args:
      steps: what becomes of words; see `_is_local`.
      model: what encodes words, None where they may not be cut.
      splits: whether all white space stands between words, and not only blanks.
      spaces: see WordTables.
    """
    white = unicode_tables.property_table("spaces")
    categories = graphemes() & precompiled.CATEGORY
    # They combine with nothing, but with marks behind them.
    stands_apart = white | (categories == precompiled.CONTROL) | (categories == precompiled.CR)
    stands_apart |= categories == precompiled.LF
    stands_apart[0] = False
    points = np.array([c for c in range(0x10000) if not 0xD800 <= c < 0xE000])
    texts = "".join(map(chr, points.tolist())).encode()
    offsets = np.append(0, np.cumsum(1 + (points >= 0x80).astype(np.int64) + (points >= 0x800)))
    rows = Ragged(read_only(np.frombuffer(texts, np.uint8)), offsets)
    # `skip_spaces` looks no further.
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
            cuts &= step.form.kinds[images] == INERT
    separates &= white[images] if splits else images == ord(" ")
    cuts &= ~separates & ~white[images] & (images != ord(SPACE))
    classes = np.zeros(N_CODE_POINTS, np.uint8)
    classes[points[separates]] = SPACE_CLASS
    is_space = classes != 0
    if not is_space[0x20] or is_space[0x0A] != is_space[0x0D] or is_space[0x21:0x7F].any():
        return None
    if is_space[0x0A] and not classes[np.frombuffer(_normalized("\r\n", steps), np.uint8)].all():
        return None  # a map may have the two of them as one
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
    """Notes which characters are neighbours in a token."""
    texts = (model.matching.tokens if isinstance(model, Unigram) else tokens_of(model.vocab)).characters
    # Tokens with a "▁" behind something else match nowhere.
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
    """Returns the first and the last character of each row, 0 where there is none."""
    first, last = np.empty(rows.n_rows, np.int32), np.empty(rows.n_rows, np.int32)
    kernels.border_characters(*rows, first, last)
    return first, last


def _joined(parts: list[Ragged]) -> Ragged:
    """Returns the rows of several columns as one."""
    begins = np.cumsum([0, *(part.n_values for part in parts)])
    offsets = [part.offsets[1:] + begin for part, begin in zip(parts, begins[:-1], strict=True)]
    return Ragged(np.concatenate([part.values for part in parts]), np.concatenate([[0], *offsets]))


def _taken(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> Ragged:
    """Copies parts of texts one after the other."""
    out, offsets = recycled.empty(int((stops - starts).sum()), np.uint8), np.empty(starts.size + 1, np.int64)
    edit_kernels.gather(data, starts, stops, out, offsets)
    return Ragged(read_only(out), offsets)
