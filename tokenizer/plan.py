# SPDX-License-Identifier: Apache-2.0
"""`EncodePlan`: a composition, lowered to what runs: cut at added tokens, normalize, then one engine for the rest."""

import collections.abc
import dataclasses
import re
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import engines
from tokenmill.tokenizer.added_tokens import (
    AddedTokenMatcher,
    Segments,
    no_tokens,
    normalized_content,
)
from tokenmill.tokenizer.counting import Tally
from tokenmill.tokenizer.engines.bert import BertEngine
from tokenmill.tokenizer.engines.few import MOST_TEXTS
from tokenmill.tokenizer.engines.tables import TablePool
from tokenmill.tokenizer.locating import Locator
from tokenmill.tokenizer.models import BPE, Unigram
from tokenmill.tokenizer.normalizers.forms import NormalForm
from tokenmill.tokenizer.normalizing import NormalizingStage
from tokenmill.tokenizer.pre_tokenizers import is_byte_level
from tokenmill.tokenizer.pre_tokenizers.spelled_bytes import spelled_words
from tokenmill.tokenizer.ragged import Ragged, read_only
from tokenmill.tokenizer.sampling import Sampling, encode_sampled
from tokenmill.tokenizer.words import Words, whole_rows


class EncodePlan:
    """A tokenizer's components, lowered to matchers, a normalizing stage and an engine. Several threads may use it."""

    def __init__(self, tokenizer: Any, cache_bytes: int) -> None:
        """Lowers the parts that a tokenizer has now."""
        normalizer, pre_tokenizer, model = tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.model
        added_tokens, special = tokenizer.added_tokens, tokenizer.special
        self.pool = TablePool(cache_bytes)
        self._normalizer = normalizer
        self._reads_bytes = is_byte_level(pre_tokenizer)
        if self._reads_bytes and isinstance(model, BPE) and not model.byte_level:
            model = dataclasses.replace(model, byte_level=True)
        self._model = model
        raw = [t for t in added_tokens if not t.normalized]
        normalized = [t for t in added_tokens if t.normalized]
        self._raw = AddedTokenMatcher(raw, [t.content for t in raw], special) if raw else None
        contents = [normalized_content(normalizer, t.content) for t in normalized]
        self._normalized = AddedTokenMatcher(normalized, contents, special) if normalized else None
        self._stage = NormalizingStage(
            normalizer, pre_tokenizer, spaces_matter=any(map(str.isspace, "".join(contents)))
        )
        self._looks_at_normalized = self._normalized is not None and not self._normalized.only_counts
        self._engine, self._engine_normalizes = engines.choose(
            normalizer, pre_tokenizer, model, self.pool, raw=not self._looks_at_normalized
        )

        self.locator = Locator(self._raw, normalizer, self._normalized, self._engine.stages, model)

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

    def locate_few(self, texts: collections.abc.Sequence[str]) -> tuple[list[int], list[tuple[int, int]]] | None:
        """Returns the ids and offsets of all tokens of texts that `encode_few` has encoded; None if it cannot."""
        if not isinstance(self._engine, BertEngine) or (self._may_be_cut and any(map(self._may_be_cut, texts))):
            return None
        return self._engine.locate_few([*map(str.encode, texts)])

    def locate_raw(self, rows: Ragged) -> tuple[Any, npt.NDArray[np.bool_]] | None:
        """Finds the tokens of rows by the engine itself, which is faster than `locator`; None if it cannot.

        Returns:
          See `engines.bert.BertEngine.locate`; not right are also rows with added tokens.
        """
        if not isinstance(self._engine, BertEngine) or self._looks_at_normalized:
            return None
        places, is_right = self._engine.locate(rows)
        cut = None if self._raw is None else self._raw.find(rows)
        if cut is not None:
            _, _, tokens, row_segments = cut
            is_right &= (np.diff(row_segments) == 1) & (tokens[row_segments[:-1]] < 0)
        return places, is_right

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
    ) -> tuple[Ragged, npt.NDArray[np.int32], npt.NDArray[np.bool_], npt.NDArray[np.int64] | None]:
        """Cuts rows at added tokens, and normalizes them if asked to or if the engine does not.

        Returns:
          The rows cut into segments; int32[n_segments], the id of those that are added tokens, -1 for text, or empty
          if none is; bool[n_segments], those that begin a document; int64[n_rows + 1], the segments of each row, None
          if each row is one.
        """
        rows, tokens, row_segments = text[:3] if isinstance(text, Segments) else (text, no_tokens(), None)
        segments, tokens, cut = self._cut(self._raw, rows, tokens, hits)
        if cut is not None:
            row_segments = cut if row_segments is None else cut[row_segments]
        is_first = read_only(_starts_document(rows, segments, row_segments))
        here = normalize or self._looks_at_normalized or not self._engine_normalizes
        if self._normalizer is not None and here:
            segments, is_first = self._stage.run(segments, is_first)
        if self._normalized is not None:
            before = segments
            segments, tokens, cut = self._cut(self._normalized, segments, tokens, hits)
            if cut is not None:
                is_first = read_only(_starts_document(before, segments, cut) & np.repeat(is_first, np.diff(cut)))
                row_segments = cut if row_segments is None else cut[row_segments]
        return segments, tokens, is_first, row_segments

    def _cut(
        self,
        matcher: AddedTokenMatcher | None,
        rows: Ragged,
        tokens: npt.NDArray[np.int32],
        hits: Counter[str] | None,
    ) -> tuple[Ragged, npt.NDArray[np.int32], npt.NDArray[np.int64] | None]:
        """Cuts the rows that are text; those that are added tokens already stay whole."""
        already = tokens if tokens.size else None
        cut = None if matcher is None else matcher.cut(rows, hits, tokens=already)
        return (rows, tokens, None) if cut is None else cut

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
