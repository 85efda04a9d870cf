# SPDX-License-Identifier: Apache-2.0
"""`Encoder`: the half of a tokenizer that turns text into ids."""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.tokenizer.added_tokens import Segments
from tokenmill.tokenizer.aligned import AlignedText
from tokenmill.tokenizer.assembling import EncodedTexts, EncodedToken, assemble
from tokenmill.tokenizer.composition import Composition
from tokenmill.tokenizer.counting import Tally
from tokenmill.tokenizer.encoding import Encoding
from tokenmill.tokenizer.errors import check_list
from tokenmill.tokenizer.layout import Layout
from tokenmill.tokenizer.offsets import TokenLengths, are_normal, find_spans
from tokenmill.tokenizer.plan import EncodePlan
from tokenmill.tokenizer.post_processors import trim_offsets
from tokenmill.tokenizer.ragged import Errors, Ragged, list_array, text_column, text_rows
from tokenmill.tokenizer.sampling import Sampling


class Encoder(Composition):
    """The encoding methods of `Tokenizer`, and the compiled plan behind them."""

    _names_matched = False
    """Whether tokens of an encoding are named as in HF: added tokens and unknown pieces by the text they matched."""

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
        errors: Errors = "strict",
        offsets: bool | Literal["characters", "bytes"] = False,
    ) -> pa.LargeListArray:
        """Encodes a text column: the fast path, with no Python object per text or token.

        Args:
          texts: pa.Array or pa.ChunkedArray of string, large_string, string_view or a dictionary of those, or a list
            of str. Its offsets and its UTF-8 are checked.
          add_special_tokens: whether to lay rows out by the post-processor's single template.
          tally: counts words and unknown characters, see `new_tally`; one per thread. Not with `sampling`.
          sampling: how to draw tokens at random, BPE and Unigram only; None for the best tokens.
          first_row: for `sampling`, the number of the first text in its corpus: so draws do not depend on batches.
          errors: "strict" raises an error for bytes that are not UTF-8, "replace" reads them as U+FFFD.
          offsets: where the tokens are in their texts, in characters (or True) or in UTF-8 bytes. Byte-level models
            without a normalizer take little longer; for others plain Python looks at each text.

        Returns:
          One row of int32 ids per text, in order; truncated and padded if that is enabled. Null for null. With
          `offsets` a `pa.RecordBatch` of three such columns, `input_ids`, `starts` and `stops`; both offsets are 0 for
          special tokens and padding, and else those of `Encoding.offsets`.

        Raises:
          TypeError: if `texts` is not a text column.
          ValueError: if sampling is asked for with a tally, or of a model that is neither BPE nor Unigram; if an offset
            of `texts` is outside its buffer, or a row is not UTF-8: the message names the row and the byte.
        """
        if offsets:
            if tally is not None or sampling is not None:
                raise ValueError("offsets are those of the best tokens, not counted: without tally= and sampling=")
            return self._encode_with_offsets(texts, add_special_tokens, errors, in_bytes=offsets == "bytes")
        if sampling is not None:
            if tally is not None:
                raise ValueError("a tally counts the best way only; pass either tally= or sampling=")
            rows, nulls = text_column(texts, errors)
            ids = list_array(*self._plan.encode_sampled(rows, sampling, first_row), nulls)
        else:
            ids = self.encode_bare(texts, tally, errors)
        return self.layout(add_special_tokens).apply(ids)

    def _encode_with_offsets(
        self, texts: Any, add_special_tokens: bool, errors: Errors, *, in_bytes: bool
    ) -> pa.RecordBatch:
        rows, nulls = text_column(texts, errors)
        ids, layout = self._plan.encode(rows), self.layout(add_special_tokens)
        starts, stops = self._spans(rows, ids, layout.n_around, in_bytes=in_bytes)
        padding = None if layout.padding is None else dataclasses.replace(layout.padding, pad_id=0)
        places = dataclasses.replace(
            layout, before=np.zeros_like(layout.before), after=np.zeros_like(layout.after), padding=padding
        )
        columns = [layout.apply(list_array(*ids, nulls))]
        columns += [places.apply(list_array(each, ids.offsets, nulls)) for each in (starts, stops)]
        return pa.record_batch(columns, names=["input_ids", "starts", "stops"])

    def token_offsets(self, texts: Any, ids: pa.LargeListArray) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Returns where in its text each token begins and stops, in UTF-8 bytes: int32[n_tokens] twice.

        Args:
          texts: a text column without nulls, as for `encode_arrow`.
          ids: the tokens that `encode_bare` returned for it.
        """
        rows, _ = text_column(texts, "strict")
        offsets = ids.offsets.to_numpy()
        values = ids.values.to_numpy()[offsets[0] : offsets[-1]]
        return self._spans(rows, Ragged(values, offsets - offsets[0]), 0, in_bytes=True)

    def _spans(
        self, rows: Ragged, ids: Ragged, n_around: int, *, in_bytes: bool
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Returns where the tokens of rows begin and stop, int32[n_tokens] each.

        ids: the rows encoded, offsets from 0 on; n_around: how many special tokens there will be in a row.
        """
        left = self.truncation is not None and self.truncation.direction == "left" and any(self._trims)
        if self._lengths is None or left:
            is_right = np.zeros(rows.n_rows, np.bool_)
            starts, stops = np.zeros((2, ids.n_values), np.int32)
        else:
            starts, stops, is_right = self._find_spans(rows, ids, self._lengths, in_bytes=in_bytes)
        for row in np.flatnonzero(~is_right).tolist():
            first, last = int(ids.offsets[row]), int(ids.offsets[row + 1])
            text = rows.values[rows.offsets[row] : rows.offsets[row + 1]].tobytes().decode()
            tokens = self._aligned([(AlignedText.original(text), -1)])
            skipped = 0
            if left and self.truncation is not None:  # what is first after that is trimmed as the first
                kept = self.truncation.lengths(len(tokens), None, n_around)[0]
                skipped = len(tokens) - kept
            spans = [token.offsets for token in tokens[skipped:]]
            for add_prefix_space in self._trims:
                spans = trim_offsets([t.matched or t.text for t in tokens[skipped:]], spans, add_prefix_space)
            spans = [(0, 0)] * skipped + spans
            if in_bytes:
                at = np.cumsum([0, *(len(c.encode()) for c in text)]).tolist()
                spans = [(at[start], at[stop]) for start, stop in spans]
            starts[first:last], stops[first:last] = zip(*spans, strict=True) if spans else ((), ())
        return starts, stops

    def _find_spans(
        self, rows: Ragged, ids: Ragged, lengths: TokenLengths, *, in_bytes: bool
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
        starts, stops, is_right = find_spans(rows, ids, lengths, self._trims, in_bytes=in_bytes)
        return starts, stops, is_right & are_normal(self.normalizer, rows)

    @functools.cached_property
    def _lengths(self) -> TokenLengths | None:
        return TokenLengths.of(self, self._token_of)

    def encode_bare(self, texts: Any, tally: Tally | None = None, errors: Errors = "strict") -> pa.LargeListArray:
        """Encodes a text column to the bare tokens of its texts, of which `layout` makes rows.

        Like `encode_arrow`, but without special tokens, truncation and padding.
        """
        rows, nulls = text_column(texts, errors)
        return self.encode_segments(rows, tally, nulls)

    def encode_segments(
        self, text: Ragged | Segments, tally: Tally | None = None, nulls: pa.Array | None = None
    ) -> pa.LargeListArray:
        """Encodes rows of valid UTF-8, or rows cut into segments, some of which are tokens already.

        Otherwise like `encode_bare`; null where `nulls` is true.
        """
        ids = self._plan.encode(text, tally)
        return list_array(ids.values, ids.offsets, nulls)

    def layout(
        self, add_special_tokens: bool = False, *, prepend: Sequence[int] = (), append: Sequence[int] = ()
    ) -> Layout:
        """Returns the layout that `encode_arrow` uses, with further ids, if given, right before and after each text."""
        template = self._template(add_special_tokens)
        return Layout.of(template, self.truncation, self.padding, prepend=prepend, append=append)

    def new_tally(self) -> Tally:
        """Returns an empty tally for `encode_arrow`; it counts words, and those and characters that become unknown."""
        return self._plan.new_tally()

    def nbest_encode(self, text: str, n: int) -> list[list[int]]:
        """Returns the ids of the `n` best ways to cut a text, best first, or of all ways if there are fewer.

        For Unigram models of sentencepiece; without special tokens. Scores are summed in double precision. Slow: it is
        plain Python, and time and memory grow with `n` times the length of the text.

        Raises:
          ValueError: if the model is of another kind, `n` is not positive, or a character is not in the vocabulary.
        """
        return self._plan.nbest(_words(text, is_pretokenized=False)[0], n)

    def encode(
        self,
        sequence: str | Sequence[str],
        pair: str | Sequence[str] | None = None,
        is_pretokenized: bool = False,
        add_special_tokens: bool = True,
    ) -> Encoding:
        """Encodes one text, or a pair, to an `Encoding` with all fields. For columns of text use `encode_arrow`.

        Args:
          sequence: the text.
          pair: a second text, None for none.
          is_pretokenized: whether a text is given as a list of words, each of which is encoded like a separate text.
            Offsets then count characters in the word; `word_ids` says which word.
          add_special_tokens: whether to lay tokens out as the post-processor says.

        Raises:
          TypeError: if a text has another type. ValueError: if it cannot be truncated as `enable_truncation` asked.
        """
        is_plain = type(sequence) is str and pair is None and not is_pretokenized
        return self._encode_all([sequence if is_plain else (sequence, pair)], is_pretokenized, add_special_tokens)[0]

    def encode_aligned(self, parts: list[tuple[AlignedText, int]], add_special_tokens: bool = True) -> Encoding:
        """Encodes one text that is given in parts, each with its id if it is a token already, else -1.

        Offsets count in the original text of the parts.
        """
        return self._padded([self._assembled([self._aligned(parts)], add_special_tokens)])[0]

    def encode_batch(
        self, input: Iterable[Any], is_pretokenized: bool = False, add_special_tokens: bool = True
    ) -> list[Encoding]:
        """Encodes texts or pairs, each as `encode` does, but padding may go up to the longest of them.

        Args:
          input: texts, or pairs of them: a tuple or list of two.
          is_pretokenized: whether a text is a list or tuple of words.
          add_special_tokens: as for `encode`.

        Raises:
          TypeError: if `input` is one text, or a text has another type. ValueError: as `encode`.
        """
        check_list("input", input)
        return self._encode_all(_pairs(input, is_pretokenized), is_pretokenized, add_special_tokens)

    def encode_batch_fast(
        self, input: Iterable[Any], is_pretokenized: bool = False, add_special_tokens: bool = True
    ) -> list[Encoding]:
        """Encodes texts or pairs like `encode_batch`, but only to ids.

        As in HF, `tokens` are empty, offsets (0, 0) and `word_ids` None, except for what the post-processor adds.
        """
        check_list("input", input)
        return self._encode_all(_pairs(input, is_pretokenized), is_pretokenized, add_special_tokens, places=False)

    def post_process(
        self, encoding: Encoding, pair: Encoding | None = None, add_special_tokens: bool = True
    ) -> Encoding:
        """Truncates, lays out and pads encodings that `encode` returned without special tokens.

        Raises:
          ValueError: if an encoding is truncated or padded already, or has special tokens; or as `encode`.
        """
        sequences = []
        for part in (encoding,) if pair is None else (encoding, pair):
            if any(part.special_tokens_mask) or part.overflowing:
                raise ValueError(
                    "post_process is for encodings without special tokens, truncation and padding; encode with "
                    f"add_special_tokens=False and both disabled, got {part!r}"
                )
            columns = part.ids, part.tokens, part.offsets, part.word_ids
            sequences.append([EncodedToken(*token) for token in zip(*columns, strict=True)])
        return self._padded([self._assembled(sequences, add_special_tokens)])[0]

    def _encode_all(
        self, input: Any, is_pretokenized: bool, add_special_tokens: bool, *, places: bool = True
    ) -> list[Encoding]:
        """Encodes what `_pairs` returned, to ids. With `places`, the tokens are looked for in the text when asked."""
        texts: Sequence[Any] = input
        firsts: Sequence[int] = range(len(input) + 1)
        spans = None
        if not input or type(input[0]) is str:
            rows = text_rows(texts)
            ids = self._plan.encode(rows)
            if places and self._lengths is not None:
                spans = functools.partial(self._find_spans, rows, ids, self._lengths, in_bytes=False)
        else:
            firsts = [0, *itertools.accumulate(1 if second is None else 2 for _, second in input)]
            texts = [text for pair in input for text in pair if text is not None]
            words = [_words(text, is_pretokenized) for text in texts]
            ids = self._plan.encode(text_rows(list(itertools.chain.from_iterable(words))))
            if is_pretokenized:
                ids = Ragged(ids.values, ids.offsets[np.cumsum([0, *map(len, words)])])
        template, truncation = self._template(add_special_tokens), self.truncation
        find = functools.partial(_align_text, self._plan, self._token_of, is_pretokenized, self._names_matched)
        align = find if places else _bare
        finish = functools.partial(assemble, template, truncation=truncation, trims=self._trims, read=self._read)
        encodings = EncodedTexts(texts, firsts, ids, template, truncation, align, finish, spans).encodings()
        if truncation is not None:
            for encoding in encodings:
                _ = encoding.ids  # raises here if a text cannot be truncated
        return self._padded(encodings)

    def _aligned(self, parts: list[tuple[AlignedText, int]]) -> list[EncodedToken]:
        return _align(self._plan, self._token_of, parts)

    @property
    def _trims(self) -> tuple[bool, ...]:
        return self.post_processor.trims if self.post_processor else ()

    @property
    def _read(self) -> Any:
        return getattr(self, "token_runs", None)  # from `Decoder`, if this is a whole `Tokenizer`

    def _assembled(self, sequences: list[list[EncodedToken]], add_special_tokens: bool) -> Encoding:
        return assemble(self._template(add_special_tokens), sequences, self.truncation, self._trims, self._read)

    def _padded(self, encodings: list[Encoding]) -> list[Encoding]:
        padding = self.padding
        if padding is not None:
            target = padding.target(max(map(len, encodings), default=0))
            for encoding in encodings:
                encoding.pad(target, padding.direction, padding.pad_id, padding.pad_type_id, padding.pad_token)
        return encodings


def _align(plan: EncodePlan, token_of: Mapping[int, str], parts: list[tuple[AlignedText, int]]) -> list[EncodedToken]:
    """Encodes one text in plain stages, which know where its tokens come from."""
    return [EncodedToken(each.id, token_of[each.id], each.span, each.word, each.matched) for each in plan.align(parts)]


def _align_text(
    plan: EncodePlan,
    token_of: Mapping[int, str],
    is_pretokenized: bool,
    names_matched: bool,
    text: Any,
    _: list[int],
) -> list[EncodedToken]:
    words = _words(text, is_pretokenized)
    tokens = [_align(plan, token_of, [(AlignedText.original(word), -1)]) for word in words]
    if is_pretokenized:
        tokens = [[token._replace(word=i) for token in each] for i, each in enumerate(tokens)]
    if names_matched:
        tokens = [[token._replace(text=token.matched or token.text) for token in each] for each in tokens]
    return list(itertools.chain.from_iterable(tokens))


def _bare(_: Any, ids: list[int]) -> list[EncodedToken]:
    return [EncodedToken(i, "", (0, 0), None) for i in ids]


def _pairs(input: Iterable[Any], is_pretokenized: bool) -> list[Any]:
    """Returns texts as they are if each is a str, else a pair for each item: its text, and its second one or None."""
    items = list(input)
    if not is_pretokenized and set(map(type, items)) == {str}:
        return items
    return [_text_and_pair(item, is_pretokenized) for item in items]


def _text_and_pair(item: Any, is_pretokenized: bool) -> tuple[Any, Any]:
    """Splits an item of a batch into a text and its pair, None for none.

    A list or tuple of two is a pair; but two str, if `is_pretokenized`, are one text of two words.
    """
    if isinstance(item, list | tuple):
        is_text = is_pretokenized and all(isinstance(word, str) for word in item)
        if not is_text and len(item) == 2 and None not in item:
            return item[0], item[1]
    return item, None


def _words(text: Any, is_pretokenized: bool) -> list[str]:
    """Returns the words of a pre-tokenized text, or a text as its only word."""
    if not is_pretokenized:
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, got {type(text).__name__}")
        return [text]
    if not isinstance(text, list | tuple) or not all(isinstance(word, str) for word in text):
        raise TypeError(f"pre-tokenized text must be a list or tuple of str, got {text!r:.80}")
    return list(text)
