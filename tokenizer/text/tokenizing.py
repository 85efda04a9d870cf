# SPDX-License-Identifier: Apache-2.0
"""`TextTokenizer`: a tokenizer, with the preparation of text before it: spans first, then steps."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.tokenizer import decoders
from tokenmill.tokenizer.added_tokens import Segments
from tokenmill.tokenizer.core import Tokenizer
from tokenmill.tokenizer.counting import Tally
from tokenmill.tokenizer.encoding import Encoding
from tokenmill.tokenizer.errors import check_list
from tokenmill.tokenizer.locating import Parts
from tokenmill.tokenizer.normalizers import SentencePieceNormalizer
from tokenmill.tokenizer.normalizers.base import Edges, TextStep
from tokenmill.tokenizer.ragged import Errors, Ragged, gathered, string_array, text_column, text_rows
from tokenmill.tokenizer.text.base import StepReport
from tokenmill.tokenizer.text.chain import ChainResult, TextChain, parse_steps
from tokenmill.tokenizer.text.spans import CutText, SpanFinder, SpanRule
from tokenmill.tokenizer.traced import PlacedText, Traced


class PreparedText(NamedTuple):
    """Documents that were cut at spans, and to which steps were applied."""

    rows: Ragged
    """The documents, or their parts if `cut` is given."""
    cut: CutText | None
    """Where documents were cut; its rows are those before the steps. None if there was no span."""
    reports: list[StepReport]
    n_spans: Mapping[str, int]
    """Token -> how many spans became it."""
    rejected: npt.NDArray[np.bool_]
    """bool[n_documents]: those that a step or a span rule gave up on; they are empty."""

    def texts(self) -> pa.LargeStringArray:
        """Returns the rows as a text column, for counting words."""
        return self._column(self.rows.offsets)

    def documents(self) -> pa.LargeStringArray:
        """Returns the text of each document without its spans."""
        return self._column(self.rows.offsets if self.cut is None else self.rows.offsets[self.cut.documents])

    def _column(self, offsets: npt.NDArray[np.int64]) -> pa.LargeStringArray:
        return string_array(self.rows.values[offsets[0] : offsets[-1]], offsets - offsets[0])


class EncodedText(NamedTuple):
    """The result of `TextTokenizer.encode_arrow`."""

    ids: pa.LargeListArray
    """One row of int32 ids per text; null for null and for rejected texts."""
    sources: pa.LargeListArray | None
    """For each text, the texts of its spans in order, null for rules that do not keep them; None if no rule keeps
    them."""
    prepared: PreparedText


class TextTokenizer:
    """A tokenizer, the spans that become tokens, and the steps that text goes through before it is tokenized.

    Spans are found in the raw text. Each part between them goes through the steps and the tokenizer by itself, like
    text next to an added token. Several threads may use it, as with `Tokenizer`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        normalize: Iterable[str | Mapping[str, Any] | TextStep] = (),
        spans: Iterable[SpanRule | Mapping[str, Any]] = (),
    ) -> None:
        """Puts a tokenizer, steps and spans together.

        Args:
          tokenizer: the tokenizer. Tokens of spans that it does not have get the next free ids, in the order of the
            rules; the attribute `tokenizer` has them.
          normalize: steps, in order; see `TextChain`.
          spans: rules, in order; see `SpanFinder`.

        Raises:
          ValueError: if a step or a rule is invalid, or a token has a function in the tokenizer already.
        """
        check_list("spans", spans)
        self.chain = TextChain(parse_steps(normalize))
        self.finder = SpanFinder(rule if isinstance(rule, SpanRule) else SpanRule.from_config(rule) for rule in spans)
        tokens = [rule.token for rule in self.finder.rules]
        if tokens and tokenizer.model is not None:
            check_span_tokens(tokenizer, tokens)
            tokenizer = tokenizer.with_special_tokens(tokens)
        self.tokenizer = tokenizer
        self._ids = np.array([tokenizer.token_to_id(token) for token in tokens if tokenizer.model], np.int32)
        self._rule_of_id = {int(token_id): number for number, token_id in enumerate(self._ids)}

    @classmethod
    def for_clip(cls, tokenizer: Tokenizer) -> "TextTokenizer":
        """Returns CLIP's tokenizer with the clean-up of OpenAI's code instead of HF's: ftfy, HTML, lower-case.

        Source: OpenAI CLIP `simple_tokenizer.py`; the same ids, except for what tests/tokenizer/text/test_clip.py
          lists.

        Args:
          tokenizer: CLIP's tokenizer, from its gzip of merges or any other of its files.
        """
        return cls(tokenizer.replace(normalizer=None), normalize=["clip"])

    def prepare(self, texts: Any) -> PreparedText:
        """Finds spans in a text column, and applies the steps to the text between them.

        Raises:
          TypeError: if `texts` is not a text column.
        """
        return self.prepare_rows(text_rows(texts), self.chain.apply_rows)

    def prepare_rows(self, rows: Ragged, apply: Callable[..., ChainResult]) -> PreparedText:
        """Finds spans in rows, and applies steps to the text between them; `apply` is like `TextChain.apply_rows`."""
        cut = self.finder.cut(rows) if self.finder.rules else None
        if cut is None:
            result = apply(rows)
            return PreparedText(result.rows, None, result.reports, self._counted(()), result.rejected)
        result = apply(cut.rows, cut.edges, cut.documents)
        counted = self._counted(cut.rules[cut.rules >= 0].tolist())
        return PreparedText(result.rows, cut, result.reports, counted, result.rejected | cut.rejected)

    def chain_for(self, text: str) -> TextChain:
        """Returns the steps that one text goes through."""
        return self.chain

    def _counted(self, rules: Iterable[int]) -> dict[str, int]:
        counts = Counter(rules)
        return {rule.token: counts[number] for number, rule in enumerate(self.finder.rules)}

    def encode_arrow(
        self,
        texts: Any,
        add_special_tokens: bool = False,
        tally: Tally | None = None,
        *,
        errors: Errors = "strict",
    ) -> EncodedText:
        """Encodes a text column; see `Tokenizer.encode_arrow`.

        Raises:
          TypeError, ValueError: as `Tokenizer.encode_arrow`.
        """
        rows, nulls = text_column(texts, errors)
        prepared = self.prepare(rows)
        if prepared.rejected.any():
            nulls = pa.array(prepared.rejected | (False if nulls is None else nulls.to_numpy(zero_copy_only=False)))
        ids = self.tokenizer.layout(add_special_tokens).apply(self.encode_prepared(prepared, tally, nulls))
        return EncodedText(ids, self.sources(prepared), prepared)

    def encode_prepared(
        self, prepared: PreparedText, tally: Tally | None = None, nulls: pa.Array | None = None
    ) -> pa.LargeListArray:
        """Encodes the result of `prepare` like `Tokenizer.encode_bare`; null where `nulls` is true."""
        return self.tokenizer.encode_segments(self.segments(prepared), tally, nulls)

    def segments(self, prepared: PreparedText) -> Ragged | Segments:
        """Returns the result of `prepare` as `Tokenizer.encode_segments` takes it."""
        cut = prepared.cut
        if cut is None:
            return prepared.rows
        tokens = np.where(cut.rules >= 0, self._ids[cut.rules], np.int32(-1)).astype(np.int32)
        return Segments(prepared.rows, tokens, cut.documents)

    def sources(self, prepared: PreparedText) -> pa.LargeListArray | None:
        """Returns the texts of spans, a row for each text that `prepared` was made from; see `EncodedText`."""
        if not any(rule.keep_source for rule in self.finder.rules):
            return None
        if prepared.cut is None:
            return pa.array([[]] * prepared.rows.n_rows, pa.large_list(pa.large_string()))
        cut = prepared.cut
        rules = cut.rules[cut.rules >= 0]
        values, offsets = gathered(cut.values, cut.sources[:, 0], cut.sources[:, 1])
        is_dropped = ~np.array([rule.keep_source for rule in self.finder.rules], np.bool_)[rules]
        n_before = np.concatenate(([0], np.cumsum(cut.rules >= 0)))[cut.documents]
        return pa.LargeListArray.from_arrays(pa.array(n_before), string_array(values, offsets, pa.array(is_dropped)))

    def encode(self, text: str, add_special_tokens: bool = True) -> Encoding:
        """Encodes one text to an `Encoding` with all fields; offsets are characters of the original text.

        Raises:
          TimeoutError: if an expression takes too long.
        """
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, got {type(text).__name__}")
        parts: list[PlacedText] = []
        tokens: list[int] = []
        spans: list[tuple[int, int]] = []
        at = 0
        for start, stop, rule in [*self.finder.find_text(text), (len(text), len(text), -1)]:
            for first, last, token_id in ((at, start, -1), (start, stop, int(self._ids[rule]) if rule >= 0 else -1)):
                if first < last:
                    places = (range(first, last), range(first + 1, last + 1)) if token_id < 0 else ((), ())
                    parts.append(PlacedText(text[first:last] if token_id < 0 else "", *places))
                    tokens.append(token_id)
                    spans.append((first, last))
            at = stop
        edges = Edges(*(np.array([span[k] == end for span in spans], np.bool_) for k, end in ((0, 0), (1, len(text)))))
        traced = self.chain_for(text).trace(Traced.of_texts(parts), edges)
        row_parts = np.array([0, len(parts)])
        return self.tokenizer.encode_parts(
            Parts.of(traced, np.array(tokens, np.int32), spans, row_parts), add_special_tokens
        )

    def decode(self, ids: Sequence[int], sources: Sequence[str | None] = (), skip_special_tokens: bool = True) -> str:
        """Decodes a row of ids; spans become their sources, those without a source their token or nothing.

        If tokens include all white space, as in byte-level BPE, this gives back the text that was tokenized. If they do
        not, as in WordPiece, there is a space on both sides of a span.

        Args:
          ids: the row.
          sources: the texts of its spans, in order; may be shorter.
          skip_special_tokens: whether to leave out special tokens, including spans without a source.
        """
        texts = iter(sources)
        joint = " " if _loses_spaces(self.tokenizer) else ""
        parts: list[str] = []
        chunk: list[int] = []
        for token_id in [*ids, -1]:
            if token_id >= 0 and token_id not in self._rule_of_id:
                chunk.append(token_id)
                continue
            if chunk:
                parts.append(self._decode_chunk(chunk, not parts or bool(joint), skip_special_tokens))
                chunk = []
            if token_id >= 0:
                source = next(texts, None)
                token = self.finder.rules[self._rule_of_id[token_id]].token
                parts.append(source if source is not None else "" if skip_special_tokens else token)
        return joint.join(part for part in parts if part)

    def _decode_chunk(self, ids: list[int], begins: bool, skip_special_tokens: bool) -> str:
        """Decodes ids; unless `begins`, without what a decoder does at the beginning of a text."""
        if begins:
            return self.tokenizer.decode(ids, skip_special_tokens)
        before = self.tokenizer.decode(ids[:1], skip_special_tokens)
        return self.tokenizer.decode([ids[0], *ids], skip_special_tokens)[len(before) :]


def _loses_spaces(tokenizer: Tokenizer) -> bool:
    """Whether tokens do not include white space at the ends of a text; then decoding puts spaces around a span."""
    return (
        tokenizer.decoder is None
        or isinstance(tokenizer.decoder, decoders.WordPiece)
        or isinstance(tokenizer.normalizer, SentencePieceNormalizer)
        or bool(getattr(tokenizer.model, "end_of_word_suffix", None))
    )


def check_span_tokens(tokenizer: Tokenizer, tokens: Iterable[str]) -> None:
    """Raises ValueError if a token has a function in a tokenizer: as unknown token, padding, or in its template."""
    taken = (
        {tokenizer.id_to_token(tokenizer.unk_token_id): "the unknown token"}
        if tokenizer.unk_token_id is not None
        else {}
    )
    if tokenizer.padding is not None:
        taken[tokenizer.padding.pad_token] = "the padding token"
    if tokenizer.post_processor is not None:
        template = tokenizer.post_processor.template(True)
        for special in template.special_tokens.values():
            taken |= dict.fromkeys(special.tokens, "part of the template")
    for token in tokens:
        if token in taken:
            raise ValueError(f"span token {token!r} is {taken[token]} of the tokenizer; choose one of its own")
