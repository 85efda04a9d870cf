# SPDX-License-Identifier: Apache-2.0
"""`EncodePlan`: a composition, lowered to what runs: cut at added tokens, normalize, then one engine for the rest."""

import collections.abc
import dataclasses
import itertools
import re
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import engines
from tokenmill.tokenizer.added_tokens import (
    AddedToken,
    AddedTokenMatcher,
    Contents,
    Segments,
    SpecialPolicy,
    no_tokens,
    normalized_content,
    segments_of,
)
from tokenmill.tokenizer.aligned import AlignedText
from tokenmill.tokenizer.counting import Tally
from tokenmill.tokenizer.engines.bert import BertEngine
from tokenmill.tokenizer.engines.few import MOST_TEXTS
from tokenmill.tokenizer.engines.tables import TablePool
from tokenmill.tokenizer.locating import AlignedToken, Located, align, located
from tokenmill.tokenizer.models import BPE, Unigram
from tokenmill.tokenizer.normalizers.base import same_rows
from tokenmill.tokenizer.normalizers.forms import NormalForm
from tokenmill.tokenizer.normalizers.traced import Traced, characters_before, traced
from tokenmill.tokenizer.normalizing import NormalizingStage
from tokenmill.tokenizer.pre_tokenizers import is_byte_level
from tokenmill.tokenizer.pre_tokenizers.spelled_bytes import spelled_words
from tokenmill.tokenizer.ragged import Ragged, read_only, text_rows
from tokenmill.tokenizer.sampling import Sampling, encode_sampled
from tokenmill.tokenizer.words import Words, whole_rows

Int32s = npt.NDArray[np.int32]
_Stage = collections.abc.Callable[[Ragged, npt.NDArray[np.bool_]], tuple[Ragged, npt.NDArray[np.bool_]]]


class EncodePlan:
    """A tokenizer's components, lowered to matchers, a normalizing stage and an engine. Several threads may use it."""

    def __init__(
        self,
        normalizer: Any,
        pre_tokenizer: Any,
        model: Any,
        added_tokens: collections.abc.Sequence[AddedToken],
        special: SpecialPolicy,
        cache_bytes: int,
    ) -> None:
        self.pool = TablePool(cache_bytes)
        self._normalizer = normalizer
        self._reads_bytes = is_byte_level(pre_tokenizer)
        if self._reads_bytes and isinstance(model, BPE) and not model.byte_level:
            model = dataclasses.replace(model, byte_level=True)
        self._model = model
        raw = [t for t in added_tokens if not t.normalized]
        normalized = [t for t in added_tokens if t.normalized]
        self._special = special
        self._raw = AddedTokenMatcher(raw, [t.content for t in raw], special) if raw else None
        contents = [normalized_content(normalizer, t.content) for t in normalized]
        self._normalized = AddedTokenMatcher(normalized, contents, special) if normalized else None
        self._contents = (
            Contents.of((token.content, token) for token in raw),
            Contents.of(zip(contents, normalized, strict=True)),
        )
        self._stage = NormalizingStage(
            normalizer, pre_tokenizer, spaces_matter=any(map(str.isspace, "".join(contents)))
        )
        self._looks_at_normalized = self._normalized is not None and not self._normalized.only_counts
        self._engine, self._engine_normalizes = engines.choose(
            normalizer, pre_tokenizer, model, self.pool, raw=not self._looks_at_normalized
        )

        # Texts with none of these have no added tokens.
        spelled = zip((*raw, *normalized), (*(t.content for t in raw), *contents), strict=True)
        cut = [re.escape(content) for t, content in spelled if not (t.special and special == "plain")]
        self._may_be_cut = re.compile("|".join(cut)).search if cut else None
        # A text in ASCII is in all normal forms.
        self._few_in_ascii = isinstance(normalizer, NormalForm)
        is_raw = normalizer is None or self._few_in_ascii or (self._engine_normalizes and not self._looks_at_normalized)
        self._few = self._engine.few if is_raw else None

    def new_tally(self) -> Tally:
        """Returns an empty tally."""
        return self._engine.new_tally()

    def encode_few(self, texts: collections.abc.Sequence[str]) -> list[list[int]] | None:
        """Encodes a few texts like `encode`, to lists, in less time; returns None if that cannot be done."""
        if self._few is None or not 0 < len(texts) <= MOST_TEXTS:
            return None
        if self._may_be_cut is not None and any(map(self._may_be_cut, texts)):
            return None
        if self._few_in_ascii and not all(map(str.isascii, texts)):
            return None
        try:
            return self._few.encode([*map(str.encode, texts)])
        except UnicodeEncodeError:
            return None  # half a surrogate pair: `text_rows` says where

    def locate_few(
        self, texts: collections.abc.Sequence[str], ids: collections.abc.Sequence[list[int]]
    ) -> list[tuple[int, int]] | None:
        """Finds the tokens of a few texts like `locate`, in less time; returns None if that cannot be done."""
        if not isinstance(self._engine, BertEngine) or self._few is None:
            return None
        if self._may_be_cut is not None and any(map(self._may_be_cut, texts)):
            return None
        (found, starts, stops, _, _), is_right = self._engine.locate(text_rows(texts))
        if not is_right.all() or found.values.tolist() != list(itertools.chain.from_iterable(ids)):
            return None
        return list(zip(starts.tolist(), stops.tolist(), strict=True))

    def encode(self, text: Ragged | Segments, tally: Tally | None = None) -> Ragged:
        """Encodes rows of UTF-8 into ids, int32, without special tokens of a template.

        Args:
          text: rows, or rows that are cut into segments already, some of which are tokens.
          tally: counts words and unknown characters; nothing if a TimeoutError is raised.

        Raises:
          TimeoutError: if a pattern does not finish on a row.
        """
        hits: Counter[str] | None = None if tally is None else Counter()
        segments, tokens, is_first, row_segments = self._prepared(text, hits)
        ids = self._engine.encode(segments, read_only(tokens), is_first, tally)
        if tally is not None and hits:
            tally.added_token_hits.update(hits)
        return ids if row_segments is None else Ragged(ids.values, ids.offsets[row_segments])

    def encode_sampled(self, rows: Ragged, sampling: Sampling, first_row: int) -> Ragged:
        """Encodes rows like `encode`, but with tokens drawn at random; the first row has number `first_row`.

        Raises:
          ValueError: if the model is neither BPE nor Unigram.
        """
        if not isinstance(self._model, BPE | Unigram):
            raise ValueError(f"sampling is for BPE and Unigram; the model is {self._model!r}")
        if not sampling.draws(self._model):
            return self.encode(rows)
        segments, tokens, is_first, row_segments = self._prepared(rows, None, normalize=True)
        n_parts = np.ones(rows.n_rows, np.int64) if row_segments is None else np.diff(row_segments)
        of_row = np.repeat(np.arange(rows.n_rows), n_parts)
        parts = np.arange(of_row.size) - np.repeat(np.cumsum(n_parts) - n_parts, n_parts)
        added = tokens if tokens.size else np.full(segments.n_rows, -1, np.int32)
        words = self._words(segments, is_first)
        if self._reads_bytes and isinstance(self._model, Unigram):
            words = spelled_words(words)
        ids = encode_sampled(self._model, words, added, sampling.keys(of_row + first_row, parts), sampling)
        return ids if row_segments is None else Ragged(ids.values, ids.offsets[row_segments])

    def _words(self, segments: Ragged, is_first: npt.NDArray[np.bool_]) -> Words:
        """Finds the words of normalized segments; without a pre-tokenizer each is one."""
        pre_tokenizer, _ = self._engine.stages
        return whole_rows(segments) if pre_tokenizer is None else pre_tokenizer.split_rows(segments, is_first)

    def nbest(self, text: str, n: int) -> list[list[int]]:
        """Returns the ids of the `n` best ways to cut a text; see `Tokenizer.nbest_encode`."""
        if not isinstance(self._model, Unigram) or self._model.piece_types is None:
            raise ValueError(f"n-best is for Unigram models of sentencepiece; the model is {self._model!r}")
        normalized = text if self._normalizer is None else self._normalizer.normalize_str(text)
        return [[i for i, _ in found.pieces] for found in self._model.nbest(normalized, n)] if normalized else [[]]

    def _prepared(
        self,
        text: Ragged | Segments,
        hits: Counter[str] | None,
        normalize: bool = False,
        stage: _Stage | None = None,
        again: set[int] | None = None,
    ) -> tuple[Ragged, npt.NDArray[np.int32], npt.NDArray[np.bool_], npt.NDArray[np.int64] | None]:
        """Cuts rows at added tokens, and normalizes them if asked to or if the engine does not.

        stage: normalizes instead of `NormalizingStage.run`; again: gets the rows that `Segments` calls so, None to cut
        them as they are, see `AddedTokenMatcher.cut`.

        Returns:
          The rows cut into segments; int32[n_segments], the id of those that are added tokens, -1 for text, or empty
          if none is; bool[n_segments], those that begin a document; int64[n_rows + 1], the segments of each row, None
          if each row is one.
        """
        rows, tokens, row_segments = text[:3] if isinstance(text, Segments) else (text, no_tokens(), None)
        segments, tokens, cut = self._cut(self._raw, rows, tokens, row_segments, hits, again)
        if cut is not None:
            row_segments = cut if row_segments is None else cut[row_segments]
        is_first = read_only(_starts_document(rows, segments, row_segments))
        here = normalize or self._looks_at_normalized or not self._engine_normalizes
        if self._normalizer is not None and here:
            segments, is_first = (stage or self._stage.run)(segments, is_first)
        if self._normalized is not None:
            before = segments
            segments, tokens, cut = self._cut(self._normalized, segments, tokens, row_segments, hits, again)
            if cut is not None:
                is_first = read_only(_starts_document(before, segments, cut) & np.repeat(is_first, np.diff(cut)))
                row_segments = cut if row_segments is None else cut[row_segments]
        return segments, tokens, is_first, row_segments

    def _cut(
        self,
        matcher: AddedTokenMatcher | None,
        rows: Ragged,
        tokens: npt.NDArray[np.int32],
        row_segments: npt.NDArray[np.int64] | None,
        hits: Counter[str] | None,
        again: set[int] | None,
    ) -> tuple[Ragged, npt.NDArray[np.int32], npt.NDArray[np.int64] | None]:
        """Cuts the rows that are text; those that are added tokens already stay whole.

        row_segments: int64[n + 1], which rows belong together, None if each is alone; again: gets the numbers
        of texts that `Segments.again` means.
        """
        already = tokens if tokens.size else None
        found = None if matcher is None else matcher.cut(rows, hits, tokens=already, in_place=again is not None)
        if found is None:
            return rows, tokens, None
        if again is not None and found.again.size:
            texts = found.again
            of_text = texts if row_segments is None else np.searchsorted(row_segments, texts, "right") - 1
            again.update(of_text.tolist())
        return found[:3]

    def word_numbers(self, rows: Ragged, ids: Ragged, n_bytes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Returns the number of each token's word in its row, int32[n_tokens], where `offsets.find_spans` is right.

        Args:
          rows, ids: the texts and their tokens; n_bytes: int32[n_ids], how long each token is.
        """
        segments, tokens, is_first, _ = self._prepared(
            rows, None, normalize=True, stage=lambda *segments: segments, again=set()
        )
        words = self._words(segments, is_first)
        is_token = tokens >= 0 if tokens.size else np.zeros(segments.n_rows, np.bool_)
        inside = np.repeat(is_token, np.diff(words.row_offsets))
        begins = np.sort(np.concatenate((words.starts[~inside], segments.offsets[:-1][is_token])), kind="stable")
        row_of = np.repeat(np.arange(rows.n_rows), np.diff(ids.offsets))
        ends = np.append(0, np.cumsum(n_bytes[ids.values]))
        at = ends[:-1] + (rows.offsets[:-1] - ends[ids.offsets[:-1]])[row_of]
        first = np.searchsorted(begins, rows.offsets[:-1])
        return (np.searchsorted(begins, at, "right") - 1 - first[row_of]).astype(np.int32)

    def locate(self, rows: Ragged, ids: Ragged) -> tuple[Int32s, Int32s, Int32s, npt.NDArray[np.bool_]]:
        """Finds where the tokens of all rows came from, at once.

        Args:
          rows, ids: the texts and their tokens.

        Returns:
          int32[n_tokens] each: starts and stops in characters, and numbers of words; and bool[n_rows], the rows for
          which these are right. They are not where `traced` or `located` cannot tell; then `align` can.
        """
        places = np.zeros((3, ids.n_values), np.int32)
        unnormalized: list[Traced] = []

        def stage(segments: Ragged, is_first: npt.NDArray[np.bool_]) -> tuple[Ragged, npt.NDArray[np.bool_]]:
            unnormalized.append(traced(self._normalizer, segments))
            return unnormalized[0].rows, is_first

        by_engine = isinstance(self._engine, BertEngine) and not self._looks_at_normalized
        again: set[int] = set()
        segments, tokens, is_first, row_segments = self._prepared(
            rows, None, normalize=not by_engine, stage=stage, again=again
        )
        is_token = tokens >= 0 if tokens.size else np.zeros(segments.n_rows, np.bool_)
        of_text, of_added = np.flatnonzero(~is_token), np.flatnonzero(is_token)
        texts = segments.take(of_text) if of_added.size else segments
        if isinstance(self._engine, BertEngine):
            places_found, is_sure = self._engine.locate(texts)
            found: Located | None = Located(*places_found, is_sure)
        else:
            found = located(self._engine.stages, self._model, texts, read_only(is_first[~is_token]))
        if found is None:
            return places[0], places[1], places[2], np.zeros(rows.n_rows, np.bool_)
        is_same = not unnormalized or (
            unnormalized[0].rows is unnormalized[0].before and bool(unnormalized[0].is_right.all())
        )
        # Most calls with few texts.
        if is_same and found.is_sure.all() and row_segments is None and all(map(np.array_equal, found.ids, ids)):
            narrow = [each.astype(np.int32) for each in (found.starts, found.stops, found.words)]
            return narrow[0], narrow[1], narrow[2], np.ones(rows.n_rows, np.bool_)
        raw = unnormalized[0] if unnormalized else Traced.unchanged(segments)
        # The tokens of texts and added tokens, in the order of their segments.
        at = characters_before(segments.values, segments.offsets)
        segment = np.concatenate((np.repeat(of_text, np.diff(found.ids.offsets)), of_added))
        order = np.argsort(segment, kind="stable")
        segment = segment[order]
        zeros = np.zeros_like(of_added)
        starts, stops, words, values = (
            np.concatenate(pair)[order]
            for pair in (
                (found.starts, zeros), (found.stops, np.diff(at)[of_added]), (found.words, zeros),
                (found.ids.values, tokens[of_added]),
            )
        )  # fmt: skip
        n_words = np.ones(segments.n_rows, np.int64)
        n_words[of_text] = found.n_words
        first_word = np.cumsum(n_words) - n_words
        n_segments = np.ones(rows.n_rows, np.int64) if row_segments is None else np.diff(row_segments)
        row_of = np.repeat(np.arange(rows.n_rows), n_segments)
        first_segment = np.cumsum(n_segments) - n_segments
        words += (first_word - first_word[np.minimum(first_segment, segments.n_rows - 1)][row_of])[segment]
        # From places in segments to places in the texts before they were normalized.
        owner = np.searchsorted(raw.rows.offsets, segments.offsets[:-1], "right") - 1
        owner = np.minimum(owner, raw.rows.n_rows - 1)
        base = characters_before(rows.values, raw.before.offsets[:-1])[owner]
        base -= characters_before(rows.values, rows.offsets)[row_of]
        inside = (at[:-1] - characters_before(raw.rows.values, raw.rows.offsets[:1])[0])[segment]
        origins = np.append(raw.origins, 0)  # for an empty token, of which nothing is known
        begins = starts + inside
        lasts = np.maximum(stops + inside - 1, begins)
        known = lasts < raw.origins.size
        starts, stops = (origins[np.where(known, each, -1)] + base[segment] for each in (begins, lasts))
        stops += 1
        # Only where the tokens are those that `encode` found.
        n_found = np.bincount(row_of[segment], minlength=rows.n_rows)
        n_tokens = np.diff(ids.offsets)
        is_right = n_found == n_tokens
        is_right[row_of[~raw.is_right[owner]]] = is_right[row_of[segment[~known]]] = False
        is_right[list(again)] = is_right[row_of[of_text[~found.is_sure]]] = False
        if unnormalized:
            is_right[self._with_changed_tokens(rows, raw)] = False
        kept, wanted = np.repeat(is_right, n_found), np.repeat(is_right, n_tokens)
        for place, each in zip(places, (starts, stops, words), strict=True):
            place[wanted] = each[kept]
        differs = np.zeros(ids.n_values, np.bool_)
        differs[wanted] = values[kept] != ids.values[wanted]
        is_right[np.repeat(np.arange(rows.n_rows), n_tokens)[differs]] = False
        return places[0], places[1], places[2], is_right

    def _with_changed_tokens(self, rows: Ragged, normalized: Traced) -> npt.NDArray[np.int64]:
        """Returns the rows with an added token whose text, white space around it included, the normalizer changed.

        Also where one of its steps undid what another did: the characters are not those of the text then.
        """
        _, tokens, row_segments = self._cut(self._raw, rows, no_tokens(), None, None, None)
        if row_segments is None:
            return np.empty(0, np.int64)
        is_changed = ~same_rows(normalized.before, normalized.rows)
        after = normalized.rows
        moved = np.flatnonzero(normalized.origins != Traced.unchanged(after).origins)
        ends = characters_before(*after)
        is_changed[np.searchsorted(ends - ends[0], moved, "right") - 1] = True
        return np.searchsorted(row_segments, np.flatnonzero((tokens >= 0) & is_changed), "right") - 1

    def align(self, parts: list[tuple[AlignedText, int]]) -> list[AlignedToken]:
        """Encodes one text and finds where each token came from.

        Args:
          parts: the parts of the text, each with its id if it is a token already, else -1.
        """
        tokens: list[AlignedToken] = []
        word = 0
        segments = [
            (segment, token_id, i == 0 and j == 0, part_id < 0)
            for i, (part, part_id) in enumerate(parts)
            for j, (segment, token_id) in enumerate(
                segments_of(part, self._contents[0], self._special) if part_id < 0 else [(part, part_id)]
            )
        ]
        for segment, token_id, starts_text, is_found in segments:
            if token_id >= 0:
                tokens.append(AlignedToken(token_id, segment.span(), word, segment.text if is_found else ""))
                word += 1
                continue
            if self._normalizer is not None:
                begin = segment.starts[0] if segment.text else 0
                segment = self._normalizer.normalize_aligned(segment)
                # As in `NormalizingStage`: if the first characters were removed, the text starts later.
                starts_text = starts_text and (not segment.text or segment.starts[0] == begin)
            first = True
            for part, part_id in segments_of(segment, self._contents[1], self._special):
                if part_id >= 0:
                    tokens.append(AlignedToken(part_id, part.span(), word, part.text))
                    word += 1
                else:
                    found, word = align(self._engine.stages, self._model, part, starts_text and first, word)
                    tokens += found
                first = False
        return tokens

    def describe(self) -> dict[str, Any]:
        """Returns what runs in the kernel and what does not, for `Tokenizer.explain`."""
        kernel, fused, stages = self._engine.describe()
        if self._normalizer is not None and not self._engine_normalizes:
            stages = [type(self._normalizer).__name__, *stages]
        return {"kernel": kernel, "fused": fused, "stages": stages}


def _starts_document(
    rows: Ragged, segments: Ragged, row_segments: npt.NDArray[np.int64] | None
) -> npt.NDArray[np.bool_]:
    """Returns for each segment whether it begins where its row begins."""
    if row_segments is None:
        return np.ones(segments.n_rows, np.bool_)
    first = np.zeros(segments.n_rows, np.bool_)
    first[row_segments[:-1]] = True
    return first
