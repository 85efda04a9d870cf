# SPDX-License-Identifier: Apache-2.0
"""`Encoder`: the half of a tokenizer that turns text into ids."""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.tokenizer.added_tokens import Segments
from tokenmill.tokenizer.assembling import EncodedTexts
from tokenmill.tokenizer.composition import Composition
from tokenmill.tokenizer.counting import Tally
from tokenmill.tokenizer.encoding import Encoding
from tokenmill.tokenizer.errors import check_list
from tokenmill.tokenizer.layout import Layout
from tokenmill.tokenizer.locating import Parts
from tokenmill.tokenizer.offsets import EncodedToken, Places, TokenLengths, WhiteSpace, find_spans
from tokenmill.tokenizer.plan import EncodePlan
from tokenmill.tokenizer.ragged import Errors, Ragged, id_rows, list_array, text_column, text_rows
from tokenmill.tokenizer.sampling import Sampling


class Encoder(Composition):
    """The encoding methods of `Tokenizer`, and the compiled plan behind them."""

    _names_matched = False
    """Whether tokens of an encoding are named as in HF: added tokens and unknown pieces by the text they matched."""

    @functools.cached_property
    def _plan(self) -> EncodePlan:
        self._require_model()
        return EncodePlan(self, self._cache_bytes)

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
          offsets: where the tokens are in their texts, in characters (or True) or in UTF-8 bytes. They are found for
            the whole column; plain Python looks at a text only where a part of the tokenizer is not traced.

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
        rows, tokens = text_rows(texts), id_rows(ids)
        if rows.n_rows != tokens.n_rows:
            raise ValueError(f"ids must be those of the texts, got {tokens.n_rows} rows of ids for {rows.n_rows} texts")
        return self._spans(rows, tokens, 0, in_bytes=True)

    def _spans(
        self, rows: Ragged, ids: Ragged, n_around: int, *, in_bytes: bool
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Returns where the tokens of rows begin and stop, int32[n_tokens] each.

        ids: the rows encoded, offsets from 0 on; n_around: how many special tokens there will be in a row.
        """
        starts = ids.offsets[:-1]
        if self.truncation is not None and self.truncation.direction == "left":
            # What is the first token then is trimmed as that.
            longest = int(np.diff(ids.offsets).max(initial=0))
            kept = self.truncation.lengths(longest, None, n_around)[0]
            starts = np.maximum(starts, ids.offsets[1:] - kept)
        is_first = np.zeros(ids.n_values, np.bool_)
        is_first[starts[starts < ids.offsets[1:]]] = True
        return find_spans(self, rows, ids, is_first, self._trims, in_bytes=in_bytes)[:2]

    @functools.cached_property
    def _white_space(self) -> WhiteSpace:
        return WhiteSpace(self, self._token_of)

    @functools.cached_property
    def _lengths(self) -> TokenLengths | None:
        return TokenLengths(self, self._token_of) if TokenLengths.say(self) else None

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
        template = self._templates[add_special_tokens]
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
        is_plain = pair is None and not is_pretokenized and type(sequence) is str
        return self._encode_all([sequence if is_plain else (sequence, pair)], is_pretokenized, add_special_tokens)[0]

    def encode_parts(self, parts: Parts, add_special_tokens: bool = True) -> Encoding:
        """Encodes one text that is cut into parts already; offsets count in the original text of these."""
        found = self._plan.locator.locate(parts)
        ids, matched = found.ids.values.tolist(), found.find_matched()
        spans = zip(found.starts.tolist(), found.stops.tolist(), strict=True)
        tokens = zip(ids, map(self._token_of.__getitem__, ids), spans, found.words.tolist(), strict=True)
        return self._laid_out(
            [[EncodedToken(*token, matched.get(i, "")) for i, token in enumerate(tokens)]], add_special_tokens
        )

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
        return self._laid_out(sequences, add_special_tokens)

    def _encode_all(
        self, input: Any, is_pretokenized: bool, add_special_tokens: bool, *, places: bool = True
    ) -> list[Encoding]:
        """Encodes what `_pairs` returned, to ids. With `places`, the tokens are looked for in the text when asked."""
        texts: Sequence[Any] = input
        firsts: Sequence[int] | None = None
        plan = self._plan
        ids: Ragged | list[list[int]]
        if not input or type(input[0]) is str:
            few = plan.encode_few(texts)
            ids = plan.encode(text_rows(texts)) if few is None else few
        else:
            firsts = [0, *itertools.accumulate(1 if second is None else 2 for _, second in input)]
            texts = [text for a, b in input for text in ((a,) if b is None else (a, b))]
            words = [_words(text, is_pretokenized) for text in texts]
            rows = plan.encode(text_rows(list(itertools.chain.from_iterable(words))))
            ids = Ragged(rows.values, rows.offsets[np.cumsum([0, *map(len, words)])]) if is_pretokenized else rows
        words_of = functools.partial(_words, is_pretokenized=is_pretokenized)
        found = Places(self._fixed, texts, ids, words_of) if places else None
        template = self._templates[add_special_tokens]
        return self._padded(EncodedTexts(found, len(texts), firsts, ids, template, self.truncation).encodings())

    @functools.cached_property
    def _fixed(self) -> Self:
        """This encoder with the parts that it has now."""
        fixed = object.__new__(type(self))
        fixed.__dict__.update(self.__dict__)
        return fixed

    @property
    def _trims(self) -> tuple[bool, ...]:
        return self.post_processor.trims if self.post_processor else ()

    def _laid_out(self, sequences: list[list[EncodedToken]], add_special_tokens: bool) -> Encoding:
        template, read = self._templates[add_special_tokens], getattr(self, "token_runs", None)
        return self._padded(EncodedTexts.given(sequences, template, self.truncation, self._trims, read).encodings())[0]

    def _padded(self, encodings: list[Encoding]) -> list[Encoding]:
        padding = self.padding
        if padding is not None:
            target = padding.target(max(map(len, encodings), default=0))
            for encoding in encodings:
                encoding.pad_by(padding, target)
        return encodings


def _pairs(input: Iterable[Any], is_pretokenized: bool) -> list[Any]:
    """Returns texts as they are if each is a str, else a pair for each item: its text, and its second one or None."""
    items = list(input)
    if not is_pretokenized and set(map(type, items)) == {str}:
        return items
    pairs = []
    for i, item in enumerate(items):
        pairs.append(_text_and_pair(item, is_pretokenized))
        try:
            for text in (each for number, each in enumerate(pairs[-1]) if number == 0 or each is not None):
                _words(text, is_pretokenized)
        except TypeError as error:
            raise TypeError(f"input[{i}]: {error}") from error
    return pairs


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
