# SPDX-License-Identifier: Apache-2.0
"""`Encoder`: the half of a tokenizer that turns text into ids."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.tokenizer.added_tokens import Segments
from tokenmill.tokenizer.aligned import AlignedText
from tokenmill.tokenizer.assembling import MOST_LISTED, EncodedTexts, EncodedToken, RowLayout, assemble
from tokenmill.tokenizer.composition import Composition
from tokenmill.tokenizer.counting import Tally
from tokenmill.tokenizer.encoding import Encoding
from tokenmill.tokenizer.engines.few import MOST_TEXTS
from tokenmill.tokenizer.errors import check_list
from tokenmill.tokenizer.layout import Layout
from tokenmill.tokenizer.models import Unigram
from tokenmill.tokenizer.normalizers.base import same_rows
from tokenmill.tokenizer.offsets import Int32s, TokenLengths, WhiteSpace, are_bytes, find_spans, in_utf8
from tokenmill.tokenizer.plan import EncodePlan
from tokenmill.tokenizer.post_processors import trim_offsets
from tokenmill.tokenizer.ragged import Errors, Ragged, id_rows, list_array, text_column, text_rows
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
        left = self.truncation is not None and self.truncation.direction == "left" and any(self._trims)
        starts, stops, is_right, _ = self._find_places(rows, ids, self._trims, in_bytes=in_bytes)
        is_right &= not left
        for row in np.flatnonzero(~is_right).tolist():
            first, last = int(ids.offsets[row]), int(ids.offsets[row + 1])
            text = rows.values[rows.offsets[row] : rows.offsets[row + 1]].tobytes().decode()
            tokens = self._aligned([(AlignedText.original(text), -1)])
            if len(tokens) != last - first:
                raise ValueError(f"ids must be those of the texts: row {row} has {last - first}, of {len(tokens)}")
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

    @functools.cached_property
    def _white_space(self) -> WhiteSpace:
        return WhiteSpace(self, self._token_of)

    @functools.cached_property
    def _lengths(self) -> TokenLengths | None:
        return TokenLengths.of(self, self._token_of, self._white_space) if are_bytes(self) else None

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
        is_plain = pair is None and not is_pretokenized and type(sequence) is str
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
        layout, truncation = self._row_layouts[add_special_tokens], self.truncation
        finder = self._finders[is_pretokenized] if places else None
        encodings = EncodedTexts(finder, texts, firsts, ids, layout, truncation).encodings()
        if truncation is not None:
            for encoding in encodings:
                _ = encoding.ids  # raises here if a text cannot be truncated
        return encodings if self.padding is None else self._padded(encodings)

    @functools.cached_property
    def _row_layouts(self) -> tuple[RowLayout, RowLayout]:
        """The layouts without and with special tokens."""
        templates = map(self._template, (False, True))
        without, with_special = (RowLayout(each, self._trims, *each.around()) for each in templates)
        return without, with_special

    @functools.cached_property
    def _finders(self) -> "tuple[Finder, Finder]":
        """What finds the tokens of texts and of pre-tokenized texts, by the parts that this encoder has now."""
        fixed = object.__new__(type(self))
        fixed.__dict__.update(self.__dict__)
        return Finder(fixed, is_pretokenized=False), Finder(fixed, is_pretokenized=True)

    def _aligned(self, parts: list[tuple[AlignedText, int]]) -> list[EncodedToken]:
        found = self._plan.align(parts)
        return [EncodedToken(each.id, self._token_of[each.id], each.span, each.word, each.matched) for each in found]

    def _find_places(
        self, rows: Ragged, ids: Ragged, trims: Sequence[bool], *, in_bytes: bool = False
    ) -> tuple[Int32s, Int32s, npt.NDArray[np.bool_], Callable[[], Int32s]]:
        """Finds the tokens of rows; returns what `Places` takes."""
        lengths = self._lengths
        if lengths is not None:
            starts, stops, is_right = find_spans(rows, ids, lengths, trims, in_bytes=in_bytes)
            if self.normalizer is not None:
                is_right &= same_rows(rows, self.normalizer.normalize_rows(rows))
            if in_bytes or is_right.all():
                return starts, stops, is_right, functools.partial(self._plan.word_numbers, rows, ids, lengths.n_bytes)
        starts, stops, words, is_right = self._plan.locate(rows, ids)
        if trims:
            is_right &= self._white_space.trim(ids, trims, starts, stops)
        if in_bytes:
            starts, stops = (in_utf8(rows, ids.offsets, each) for each in (starts, stops))
        return starts, stops, is_right, lambda: words

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


class Places:
    """Where the tokens of texts are, all those of a batch."""

    def __init__(
        self, starts: Int32s, stops: Int32s, is_right: npt.NDArray[np.bool_], find_words: Callable[[], Int32s]
    ) -> None:
        """Takes what was found.

        Args:
          starts, stops: int32[n_tokens], in characters of the text.
          is_right: bool[n_texts], the texts for which all this is right; those of the others must be found otherwise.
          find_words: finds int32[n_tokens], the number of each token's word in its text.
        """
        self._starts, self._stops, self.is_right, self._find_words = starts, stops, is_right.tolist(), find_words

    @classmethod
    def of_pairs(cls, pairs: list[tuple[int, int]], n_texts: int, find_words: Callable[[], Int32s]) -> "Places":
        """Takes the offsets of a few tokens, which are right."""
        none = np.empty(0, np.int32)
        found = cls(none, none, np.ones(n_texts, np.bool_), find_words)
        found._pairs = pairs
        return found

    @functools.cached_property
    def _pairs(self) -> list[tuple[int, int]]:
        return list(zip(self._starts.tolist(), self._stops.tolist(), strict=True))

    def offsets(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Returns the offsets of the tokens from `begin` to `end`."""
        if self._starts.size <= MOST_LISTED:
            return self._pairs[begin:end]
        return list(zip(self._starts[begin:end].tolist(), self._stops[begin:end].tolist(), strict=True))

    @functools.cached_property
    def words(self) -> Int32s:
        """int32[n_tokens]: the number of each token's word in its text."""
        return self._find_words()


class Finder:
    """Finds where the tokens of texts are, by the parts that an encoder had when it encoded them."""

    def __init__(self, encoder: Encoder, *, is_pretokenized: bool) -> None:
        """Takes an encoder that nobody changes."""
        self._encoder, self._is_pretokenized = encoder, is_pretokenized
        self.read = encoder._read

    def places(self, texts: Sequence[Any], ids: Ragged | list[list[int]], trims: Sequence[bool]) -> Places:
        """Finds the tokens of texts whose ids are known; trims: see `assembling.assemble`."""
        if isinstance(ids, list) and len(ids) <= MOST_TEXTS and not trims and not self._is_pretokenized:
            lengths = self._encoder._lengths
            pairs = (self._encoder._plan.locate_few if lengths is None else lengths.of_few)(texts, ids)
            if pairs is not None:
                return Places.of_pairs(pairs, len(ids), lambda: self._places(texts, ids, trims).words)
        return self._places(texts, ids, trims)

    def _places(self, texts: Sequence[Any], ids: Ragged | list[list[int]], trims: Sequence[bool]) -> Places:
        encoder, words = self._encoder, [_words(text, self._is_pretokenized) for text in texts]
        rows = text_rows(list(itertools.chain.from_iterable(words)))
        if self._is_pretokenized:
            ids = encoder._plan.encode(rows)  # by words
        elif isinstance(ids, list):
            ends = np.cumsum([0, *map(len, ids)])
            ids = Ragged(np.fromiter(itertools.chain.from_iterable(ids), np.int32, int(ends[-1])), ends)
        starts, stops, is_right, find_words = encoder._find_places(rows, ids, trims)
        if self._is_pretokenized:
            n_words = np.array(list(map(len, words)), np.int64)
            text_of = np.repeat(np.arange(n_words.size), n_words)
            # If offsets are trimmed, the first token of a text is another matter than that of each word.
            is_right = (np.bincount(text_of, ~is_right, n_words.size) == 0) & (not trims)
            numbers = np.arange(rows.n_rows) - np.repeat(np.cumsum(n_words) - n_words, n_words)
            found = np.repeat(numbers, np.diff(ids.offsets)).astype(np.int32)
            find_words = lambda: found  # noqa: E731
        return Places(starts, stops, is_right, find_words)

    def names(self, ids: list[int], trims: bool = False) -> list[str] | None:
        """Returns the tokens of ids; None if they are named, or trimmed, by the text that they matched."""
        if (trims or self._encoder._names_matched) and not self._matched.isdisjoint(ids):
            return None
        return list(map(self._encoder._token_of.__getitem__, ids))

    @functools.cached_property
    def _matched(self) -> frozenset[int]:
        encoder = self._encoder
        unknown: set[Any] = {encoder.model.unk_id} if isinstance(encoder.model, Unigram) else set()
        return frozenset({*unknown, *encoder._added_ids.values()})

    def trimmed(self, token_id: int, span: tuple[int, int], trims: Sequence[bool]) -> tuple[int, int]:
        """Returns the offsets of a token that begins a part of its text; trims: see `assembling.assemble`."""
        for add_prefix_space in trims:
            (span,) = trim_offsets([self._encoder._token_of[token_id]], [span], add_prefix_space)
        return span

    def align(self, text: Any) -> list[EncodedToken]:
        """Finds the tokens of one text in plain stages."""
        encoder, words = self._encoder, _words(text, self._is_pretokenized)
        tokens = [encoder._aligned([(AlignedText.original(word), -1)]) for word in words]
        if self._is_pretokenized:
            tokens = [[token._replace(word=i) for token in each] for i, each in enumerate(tokens)]
        if encoder._names_matched:
            tokens = [[token._replace(text=token.matched or token.text) for token in each] for each in tokens]
        return list(itertools.chain.from_iterable(tokens))


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
