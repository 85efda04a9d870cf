# SPDX-License-Identifier: Apache-2.0
"""`EncodePlan`: a composition, lowered to what runs: cut at added tokens, normalize, then one engine for the rest."""

import collections.abc
import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import engines
from tokenmill.tokenizer.added_tokens import (
    AddedToken,
    AddedTokenMatcher,
    Segments,
    SpecialPolicy,
    no_tokens,
    normalized_content,
)
from tokenmill.tokenizer.aligned import AlignedText
from tokenmill.tokenizer.counting import Tally
from tokenmill.tokenizer.engines.base import AlignedToken
from tokenmill.tokenizer.engines.sentencepiece import LikeSentencePieceEngine
from tokenmill.tokenizer.engines.staged import StagedEngine, whole_rows
from tokenmill.tokenizer.engines.tables import TablePool
from tokenmill.tokenizer.models import BPE, Unigram
from tokenmill.tokenizer.normalizing import NormalizingStage
from tokenmill.tokenizer.pre_tokenizers import is_byte_level
from tokenmill.tokenizer.pre_tokenizers.spelled_bytes import spelled_words
from tokenmill.tokenizer.ragged import Ragged, read_only, text_rows
from tokenmill.tokenizer.sampling import Sampling, encode_sampled


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

    def new_tally(self) -> Tally:
        """Returns an empty tally."""
        return self._engine.new_tally()

    def encode(self, text: Ragged | Segments, tally: Tally | None = None) -> Ragged:
        """Encodes rows of UTF-8 into ids, int32, without special tokens of a template.

        Args:
          text: rows, or rows that are cut into segments already, some of which are tokens.
          tally: counts words and unknown characters; nothing if a TimeoutError is raised.

        Raises:
          TimeoutError: if a pattern that no scanner covers does not finish on a row.
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
        segments, tokens, is_first, row_segments = self._prepared(rows, None, normalize=True)
        n_parts = np.ones(rows.n_rows, np.int64) if row_segments is None else np.diff(row_segments)
        of_row = np.repeat(np.arange(rows.n_rows), n_parts)
        parts = np.arange(of_row.size) - np.repeat(np.cumsum(n_parts) - n_parts, n_parts)
        added = tokens if tokens.size else np.full(segments.n_rows, -1, np.int32)
        engine = self._engine
        if isinstance(engine, StagedEngine | LikeSentencePieceEngine):
            words = engine.words(segments, is_first)
        else:
            # Under sentencepiece's own rules a row is one word.
            words = whole_rows(segments)
        if self._reads_bytes and isinstance(self._model, Unigram):
            words = spelled_words(words)
        ids = encode_sampled(self._model, words, added, sampling.keys(of_row + first_row, parts), sampling)
        return ids if row_segments is None else Ragged(ids.values, ids.offsets[row_segments])

    def nbest(self, text: str, n: int) -> list[list[int]]:
        """Returns the ids of the `n` best ways to cut a text; see `Tokenizer.nbest_encode`."""
        if not isinstance(self._model, Unigram) or self._model.piece_types is None:
            raise ValueError(f"n-best is for Unigram models of sentencepiece; the model is {self._model!r}")
        normalized = text if self._normalizer is None else self._normalizer.normalize_str(text)
        return [[i for i, _ in found.pieces] for found in self._model.nbest(normalized, n)] if normalized else [[]]

    def _prepared(
        self, text: Ragged | Segments, hits: Counter[str] | None, normalize: bool = False
    ) -> tuple[Ragged, npt.NDArray[np.int32], npt.NDArray[np.bool_], npt.NDArray[np.int64] | None]:
        """Cuts rows at added tokens, and normalizes them if asked to or if the engine does not.

        Returns:
          The rows cut into segments; int32[n_segments], the id of those that are added tokens, -1 for text, or empty
          if none is; bool[n_segments], those that begin a document; int64[n_rows + 1], the segments of each row, None
          if each row is one.
        """
        rows, tokens, row_segments = text if isinstance(text, Segments) else (text, no_tokens(), None)
        segments, tokens, cut = self._cut(self._raw, rows, tokens, None, hits)
        if cut is not None:
            row_segments = cut if row_segments is None else cut[row_segments]
        is_first = read_only(_starts_document(rows, segments, row_segments))
        if self._normalizer is not None and (normalize or self._looks_at_normalized or not self._engine_normalizes):
            segments, is_first = self._stage.run(segments, is_first)
        if self._normalized is not None:
            before = segments
            segments, tokens, cut = self._cut(self._normalized, segments, tokens, None, hits)
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
    ) -> tuple[Ragged, npt.NDArray[np.int32], npt.NDArray[np.int64] | None]:
        """Cuts the rows that are text; those that are added tokens already stay whole."""
        found = matcher.cut(rows, hits) if matcher is not None else None
        if found is None:
            return rows, tokens, row_segments
        if tokens.size == 0:
            return found.rows, found.tokens, found.row_segments
        # The matcher looks into all rows; the segments of a row that is a token become one again.
        return _keep_whole(rows, tokens, found.rows.offsets, found.tokens, found.row_segments)

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
                self._segments(part, self._raw) if part_id < 0 else [(part, part_id)]
            )
        ]
        for segment, token_id, starts_text, is_found in segments:
            if token_id >= 0:
                tokens.append(AlignedToken(token_id, segment.span(), word, segment.text if is_found else ""))
                word += 1
                continue
            if self._normalizer is not None and (self._looks_at_normalized or not self._engine_normalizes):
                begin = segment.starts[0] if segment.text else 0
                segment = self._normalizer.normalize_aligned(segment)
                # As in `NormalizingStage`: if the first characters were removed, the text starts later.
                starts_text = starts_text and (not segment.text or segment.starts[0] == begin)
            first = True
            for part, part_id in self._segments(segment, self._normalized):
                if part_id >= 0:
                    tokens.append(AlignedToken(part_id, part.span(), word, part.text))
                    word += 1
                else:
                    found, word = self._engine.align(part, starts_text and first, word)
                    tokens += found
                first = False
        return tokens

    def _segments(self, text: AlignedText, matcher: AddedTokenMatcher | None) -> list[tuple[AlignedText, int]]:
        if matcher is None or not text.text:
            return [(text, -1)]
        data = text.text.encode()
        found = matcher.cut(text_rows([text.text]))
        if found is None:
            return [(text, -1)]
        ends = [len(data[:offset].decode()) for offset in found.rows.offsets.tolist()]
        return [(text[a:b], t) for a, b, t in zip(ends, ends[1:], found.tokens.tolist(), strict=False)]

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


def _keep_whole(
    rows: Ragged,
    tokens: npt.NDArray[np.int32],
    cut_offsets: npt.NDArray[np.int64],
    cut_tokens: npt.NDArray[np.int32],
    row_segments: npt.NDArray[np.int64],
) -> tuple[Ragged, npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    is_token = tokens >= 0
    n_segments = np.where(is_token, 1, np.diff(row_segments))
    kept = np.ones(cut_tokens.size, np.bool_)
    inside = np.repeat(is_token, np.diff(row_segments))
    kept[inside] = False
    kept[row_segments[:-1][is_token]] = True
    of_row = np.repeat(np.arange(tokens.size), np.diff(row_segments))
    new_tokens = np.where(inside, tokens[of_row], cut_tokens)[kept].astype(np.int32)
    starts = cut_offsets[:-1][kept]
    offsets = np.append(starts, cut_offsets[-1])
    new_row_segments = np.zeros(tokens.size + 1, np.int64)
    np.cumsum(n_segments, out=new_row_segments[1:])
    return Ragged(rows.values, offsets), new_tokens, new_row_segments
