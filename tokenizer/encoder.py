# SPDX-License-Identifier: Apache-2.0
"""`Encoder`: the half of a tokenizer that turns text into ids."""

import functools
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from tokenizer.added_tokens import Segments
from tokenizer.aligned import AlignedText
from tokenizer.composition import Composition
from tokenizer.counting import Tally
from tokenizer.encoding import EncodedToken, Encoding, EncodingBuilder, assemble
from tokenizer.layout import lay_out
from tokenizer.plan import EncodePlan
from tokenizer.post_processors import n_added
from tokenizer.ragged import Ragged, list_array, null_rows, text_rows
from tokenizer.sampling import Sampling


class Encoder(Composition):
    """What `Tokenizer` does with text."""

    @functools.cached_property
    def _plan(self) -> EncodePlan:
        return EncodePlan(
            self.normalizer,
            self.pre_tokenizer,
            self._require_model(),
            self.added_tokens,
            self.special,
            self._cache_bytes,
        )

    def encode_arrow(
        self,
        texts: Any,
        add_special_tokens: bool = False,
        tally: Tally | None = None,
        *,
        sampling: Sampling | None = None,
        first_row: int = 0,
    ) -> pa.LargeListArray:
        """Encodes a text column: the fast path, with no Python object per text or token.

        Args:
          texts: pa.Array or pa.ChunkedArray of string, large_string, string_view or a dictionary of those.
          add_special_tokens: whether to lay rows out by the post-processor's single template.
          tally: counts what is met, see `new_tally`; one per thread. Not with `sampling`.
          sampling: how to draw tokens at random, BPE and Unigram only; None for the one best way.
          first_row: number of the first text in its corpus, for `sampling`: rows then do not depend on batches.

        Returns:
          One row of int32 ids per text, in order; truncated and padded if that is enabled. Null for null.

        Raises:
          TypeError: if `texts` is not a text column.
          ValueError: if sampling is asked for with a tally, or of a model that is neither BPE nor Unigram.
        """
        if sampling is not None:
            if tally is not None:
                raise ValueError("a tally counts the best way only; pass either tally= or sampling=")
            ids = self._plan.encode_sampled(text_rows(texts), sampling, first_row)
            return self._laid_out(ids, add_special_tokens, null_rows(texts))
        return self.encode_segments(text_rows(texts), add_special_tokens, tally, null_rows(texts))

    def encode_segments(
        self,
        text: Ragged | Segments,
        add_special_tokens: bool = False,
        tally: Tally | None = None,
        nulls: pa.Array | None = None,
    ) -> pa.LargeListArray:
        """Encodes rows of valid UTF-8, or rows that are cut into segments, some of which are tokens already.

        As `encode_arrow`; null where `nulls` is true.
        """
        return self._laid_out(self._plan.encode(text, tally), add_special_tokens, nulls)

    def _laid_out(self, ids: Ragged, add_special_tokens: bool, nulls: pa.Array | None) -> pa.LargeListArray:
        template = self._template(add_special_tokens)
        if n_added(template.single, template.special_tokens) or self.truncation or self.padding:
            ids = lay_out(ids, template, self.truncation, self.padding)
        return list_array(ids.values, ids.offsets, nulls)

    def new_tally(self) -> Tally:
        """Returns an empty tally for `encode_arrow`: words met, words and characters the unknown token swallowed."""
        return self._plan.new_tally()

    def nbest_encode(self, text: str, n: int) -> list[list[int]]:
        """Returns the ids of the `n` best ways to cut a text, best first, fewer where there are fewer.

        For Unigram models of sentencepiece; no special tokens. Scores are summed in double precision. Slow: plain
        Python, time and memory grow with `n` times the length of the text.

        Raises:
          ValueError: if the model is another, `n` is not positive, or a character is not covered.
        """
        return self._plan.nbest(text, n)

    def encode(self, text: str, pair: str | None = None, add_special_tokens: bool = True) -> Encoding:
        """Encodes one text, or a pair, with everything an `Encoding` has. For columns of text use `encode_arrow`."""
        builder = self._encode(text, pair, add_special_tokens)
        return self._build(builder, self.padding.target(len(builder.ids)) if self.padding else 0)

    def encode_aligned(self, parts: list[tuple[AlignedText, int]], add_special_tokens: bool = True) -> Encoding:
        """Encodes one text that is given in parts, each with the id it has if it is a token already, else -1.

        Offsets are those of the text that the parts say they come from.
        """
        trims = self.post_processor.trims if self.post_processor else ()
        template = self._template(add_special_tokens)
        builder = assemble(template, [self._aligned(parts)], self.truncation, trims)
        return self._build(builder, self.padding.target(len(builder.ids)) if self.padding else 0)

    def encode_batch(self, inputs: Iterable[str | tuple[str, str]], add_special_tokens: bool = True) -> list[Encoding]:
        """Encodes texts or pairs; the same as `encode` for each, but padding may follow the longest."""
        pairs = (item if isinstance(item, tuple) else (item, None) for item in inputs)
        builders = [self._encode(text, pair, add_special_tokens) for text, pair in pairs]
        target = self.padding.target(max((len(b.ids) for b in builders), default=0)) if self.padding else 0
        return [self._build(builder, target) for builder in builders]

    def _encode(self, text: str, pair: str | None, add_special_tokens: bool) -> EncodingBuilder:
        sequences = [self._tokens(text)] if pair is None else [self._tokens(text), self._tokens(pair)]
        trims = self.post_processor.trims if self.post_processor else ()
        return assemble(self._template(add_special_tokens), sequences, self.truncation, trims)

    def _tokens(self, text: str) -> list[EncodedToken]:
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, got {type(text).__name__}")
        return self._aligned([(AlignedText.original(text), -1)])

    def _aligned(self, parts: list[tuple[AlignedText, int]]) -> list[EncodedToken]:
        found = self._plan.align(parts)
        return [EncodedToken(token.id, self._token_of[token.id], token.span, token.word) for token in found]

    def _build(self, builder: EncodingBuilder, length: int) -> Encoding:
        if self.padding is None:
            return builder.build()
        pad = (self.padding.pad_id, self.padding.pad_token, self.padding.pad_type_id)
        return builder.build_padded(length, pad, self.padding.direction == "left")
