# SPDX-License-Identifier: Apache-2.0
"""`Tokenizer`: composes normalizer, pre-tokenizer, model, post-processor and decoder, under HF's method names."""

import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenizer import decoders, unicode_data, unicode_tables
from tokenizer.added_tokens import AddedToken
from tokenizer.counting import Tally, WordCounter
from tokenizer.encoding import Encoding, EncodingBuilder
from tokenizer.kernels import rows as row_kernels
from tokenizer.models import WordPiece
from tokenizer.normalizers import BertNormalizer
from tokenizer.plan import BertWordPiecePlan
from tokenizer.post_processors import (
    PLAIN_LAYOUT,
    BertProcessing,
    Direction,
    Padding,
    TemplateProcessing,
    Truncation,
    TruncationStrategy,
    n_added,
)
from tokenizer.pre_tokenizers import BertPreTokenizer
from tokenizer.ragged import Ragged, id_rows, list_array, read_only, string_array, text_rows

DEFAULT_CACHE_BYTES = 32 << 20
BERT_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_NO_NORMALIZER = BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)


class _TokenTexts(NamedTuple):
    """What every id adds to a decoded text; offsets are int64[n_ids + 1] into the uint8 texts."""

    first: npt.NDArray[np.uint8]
    first_offsets: npt.NDArray[np.int64]
    later: npt.NDArray[np.uint8]
    later_offsets: npt.NDArray[np.int64]
    skipped: npt.NDArray[np.bool_]
    """bool[n_ids]: special tokens, and ids that belong to no token."""
    unknown: npt.NDArray[np.bool_]
    """bool[n_ids]: ids that belong to no token."""


class Tokenizer:
    """Turns text into token ids and back.

    Made by `from_file`, `from_str` or `for_bert`. Methods may be called from several threads at once, except the four that
    change it: `enable_truncation`, `no_truncation`, `enable_padding`, `no_padding`.

    The text of a special token in a document is text like any other.
    """

    def __init__(
        self,
        *,
        model: WordPiece | None,
        normalizer: BertNormalizer | None = None,
        pre_tokenizer: BertPreTokenizer | None = None,
        post_processor: TemplateProcessing | BertProcessing | None = None,
        decoder: decoders.WordPiece | None = None,
        added_tokens: Sequence[AddedToken] = (),
        truncation: Truncation | None = None,
        padding: Padding | None = None,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        """Composes a tokenizer.

        Args:
          model: None for a tokenizer that only normalizes and counts words.
          normalizer: None leaves text as it is.
          pre_tokenizer: `BertPreTokenizer()` if None.
          decoder: None joins tokens with spaces, as HF does.
          cache_bytes: memory of one word cache; there are as many as threads that encode at the same time.
        """
        self.model = model
        self.normalizer = normalizer
        self.pre_tokenizer = pre_tokenizer or BertPreTokenizer()
        self.post_processor = post_processor
        self.decoder = decoder
        self.added_tokens = tuple(added_tokens)
        self.truncation = truncation
        self.padding = padding
        self._cache_bytes = cache_bytes
        self._check_added_tokens()

    def _check_added_tokens(self) -> None:
        vocab = self.model.vocab if self.model else {}
        for token in self.added_tokens:
            if vocab.get(token.content, token.id) != token.id:
                raise ValueError(
                    f"added token {token.content!r} has id {token.id}, but the vocabulary gives it {vocab[token.content]}"
                )
        owners = {i: t for t, i in vocab.items()}
        for token in self.added_tokens:
            if owners.setdefault(token.id, token.content) != token.content:
                raise ValueError(f"id {token.id} belongs to {owners[token.id]!r} and to added token {token.content!r}")

    # Making one.

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        *,
        lowercase: bool | None = None,
        strip_accents: bool | None = None,
        oov: str | None = None,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> "Tokenizer":
        """Loads a `tokenizer.json`, a `vocab.txt`, or a directory that holds one; which of them is seen from the content.

        Args:
          path: the file or directory.
          lowercase, strip_accents, oov: override what the file says; None keeps it. A `vocab.txt` says nothing, so there
            None means lower-case, accents follow the case, and oov "word": plain BERT.

        Raises:
          OSError: if it cannot be read; TokenizerFileError (a ValueError): if it is broken or not supported.
        """
        from tokenizer.formats import loading

        tokenizer = loading.load(Path(path), cache_bytes)
        return tokenizer._with_overrides(lowercase, strip_accents, oov)

    @classmethod
    def from_str(cls, json: str) -> "Tokenizer":
        """Loads the text of a `tokenizer.json`.

        Raises:
          TokenizerFileError (a ValueError): if it is broken or not supported.
        """
        from tokenizer.formats import tokenizer_json

        return tokenizer_json.read(json, "tokenizer.json", DEFAULT_CACHE_BYTES)

    @classmethod
    def for_bert(
        cls,
        vocab: Sequence[str] | Mapping[str, int],
        *,
        lowercase: bool = True,
        strip_accents: bool | None = None,
        clean_text: bool = True,
        handle_chinese_chars: bool = True,
        oov: str = "word",
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> "Tokenizer":
        """Composes BERT's tokenizer around a vocabulary: tokens in the order of their ids, or token -> id.

        `[CLS]` and `[SEP]` are put around texts where the vocabulary has both.

        Source: HF tokenizers `BertWordPieceTokenizer`.
        """
        ids = dict(vocab) if isinstance(vocab, Mapping) else {token: i for i, token in enumerate(vocab)}
        if len(ids) != len(vocab):
            twice = next(token for i, token in enumerate(vocab) if ids[token] != i)
            raise ValueError(f"vocab holds token {twice!r} more than once")
        special = sorted((ids[t], t) for t in BERT_SPECIAL_TOKENS if t in ids)
        has_both = "[CLS]" in ids and "[SEP]" in ids
        return cls(
            model=WordPiece(ids, oov_policy=oov),
            normalizer=BertNormalizer(clean_text, handle_chinese_chars, strip_accents, lowercase),
            post_processor=BertProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"])) if has_both else None,
            decoder=decoders.WordPiece(),
            added_tokens=[AddedToken(i, t) for i, t in special],
            cache_bytes=cache_bytes,
        )

    @classmethod
    def untrained_bert(cls, *, lowercase: bool = True, strip_accents: bool | None = None) -> "Tokenizer":
        """Composes BERT's normalizer and pre-tokenizer without a model, to count words before there is a vocabulary."""
        return cls(model=None, normalizer=BertNormalizer(strip_accents=strip_accents, lowercase=lowercase))

    def _with_overrides(self, lowercase: bool | None, strip_accents: bool | None, oov: str | None) -> "Tokenizer":
        normalizer, model = self.normalizer, self.model
        if lowercase is not None or strip_accents is not None:
            changes: dict[str, Any] = {}
            if lowercase is not None:
                changes["lowercase"] = lowercase
            if strip_accents is not None:
                changes["strip_accents"] = strip_accents
            normalizer = dataclasses.replace(normalizer or _NO_NORMALIZER, **changes)
        if oov is not None and model is not None:
            model = dataclasses.replace(model, oov_policy=oov)
        return Tokenizer(
            model=model,
            normalizer=normalizer,
            pre_tokenizer=self.pre_tokenizer,
            post_processor=self.post_processor,
            decoder=self.decoder,
            added_tokens=self.added_tokens,
            truncation=self.truncation,
            padding=self.padding,
            cache_bytes=self._cache_bytes,
        )

    def __reduce__(self) -> tuple[Callable[..., "Tokenizer"], tuple[str, int]]:
        # Compact, and whatever was compiled stays behind: the other process compiles or loads its own.
        return _rebuild, (self.to_str(), self._cache_bytes)

    # Writing it.

    def to_str(self, pretty: bool = False) -> str:
        """Returns the tokenizer as the text of a `tokenizer.json`, which HF tokenizers reads too.

        OOV policies other than `word` are kept in a field of the model that HF ignores.
        """
        from tokenizer.formats import tokenizer_json

        return tokenizer_json.write(self, pretty)

    def save(self, path: str | os.PathLike[str], pretty: bool = True) -> None:
        """Writes a `tokenizer.json`, or a `vocab.txt` where the name ends in `.txt`; whole or not at all.

        Raises:
          ValueError: if the format cannot hold the vocabulary. A `vocab.txt` holds nothing but the vocabulary.
        """
        from tokenizer.formats import files, vocab_txt

        target = Path(path)
        if target.suffix == ".txt":
            files.write_text(target, vocab_txt.write(self._require_model().vocab, str(target)))
        else:
            files.write_text(target, self.to_str(pretty))

    @property
    def digest(self) -> str:
        """SHA-256 of `to_str()` and of the Unicode versions, hexadecimal: equal digests, equal ids."""
        versions = repr(sorted(unicode_data.UNICODE_VERSIONS.items()))
        return hashlib.sha256(f"{self.to_str()}\n{versions}".encode()).hexdigest()

    # The vocabulary.

    def get_vocab(self, with_added_tokens: bool = True) -> dict[str, int]:
        """Returns token -> id, a copy."""
        vocab = dict(self.model.vocab) if self.model else {}
        if with_added_tokens:
            vocab.update((t.content, t.id) for t in self.added_tokens)
        return vocab

    def get_vocab_size(self, with_added_tokens: bool = True) -> int:
        """Returns how many tokens there are."""
        return len(self.get_vocab(with_added_tokens))

    @functools.cached_property
    def _token_of(self) -> dict[int, str]:
        return {i: t for t, i in self.get_vocab().items()}

    @functools.cached_property
    def _id_of(self) -> dict[str, int]:
        return self.get_vocab()

    @property
    def n_ids(self) -> int:
        """One more than the largest id."""
        return max(self._token_of, default=-1) + 1

    def token_to_id(self, token: str) -> int | None:
        """Returns the id of a token, None where there is no such token."""
        return self._id_of.get(token)

    def id_to_token(self, token_id: int) -> str | None:
        """Returns the token of an id, None where no token has it."""
        return self._token_of.get(token_id)

    @property
    def unk_token_id(self) -> int | None:
        """Id of the unknown token."""
        return self.model.vocab[self.model.unk_token] if self.model else None

    @property
    def pad_token_id(self) -> int:
        """Id that padding uses: the one padding was enabled with, else that of `[PAD]`, else 0."""
        return self.padding.pad_id if self.padding else self._id_of.get("[PAD]", 0)

    def num_special_tokens_to_add(self, is_pair: bool = False) -> int:
        """Returns how many tokens the post-processor adds to a text, or to a pair."""
        template = self._template(True)
        return n_added(template.pair if is_pair else template.single, template.special_tokens)

    # Rows of fixed length.

    def enable_truncation(
        self, max_length: int, strategy: TruncationStrategy = "longest_first", direction: Direction = "right"
    ) -> None:
        """Cuts rows to at most `max_length` tokens, special tokens included."""
        self.truncation = Truncation(max_length, strategy, direction)

    def no_truncation(self) -> None:
        """Leaves rows as long as they are."""
        self.truncation = None

    def enable_padding(
        self,
        direction: Direction = "right",
        pad_id: int | None = None,
        pad_type_id: int = 0,
        pad_token: str = "[PAD]",
        length: int | None = None,
        pad_to_multiple_of: int | None = None,
    ) -> None:
        """Fills rows up to `length` tokens, or to the longest of the batch; `pad_id` None takes that of `pad_token`."""
        if pad_id is None:
            pad_id = self._id_of.get(pad_token)
            if pad_id is None:
                raise ValueError(f"the vocabulary has no padding token {pad_token!r}; pass pad_id= or pad_token=")
        self.padding = Padding(length, direction, pad_to_multiple_of, pad_id, pad_type_id, pad_token)

    def no_padding(self) -> None:
        """Leaves rows as short as they are."""
        self.padding = None

    # Encoding.

    @functools.cached_property
    def _plan(self) -> BertWordPiecePlan:
        return BertWordPiecePlan(self.normalizer or _NO_NORMALIZER, self._require_model(), self._cache_bytes)

    def _require_model(self) -> WordPiece:
        if self.model is None:
            raise ValueError("this tokenizer has no model; train a vocabulary first (see tokenizer.trainers)")
        return self.model

    def _template(self, add_special_tokens: bool) -> TemplateProcessing:
        if not add_special_tokens or self.post_processor is None:
            return PLAIN_LAYOUT
        if isinstance(self.post_processor, BertProcessing):
            return self.post_processor.template()
        return self.post_processor

    def encode_arrow(self, texts: Any, add_special_tokens: bool = False, tally: Tally | None = None) -> pa.LargeListArray:
        """Encodes a text column: the fast path, with no Python object per text or token.

        Args:
          texts: pa.Array or pa.ChunkedArray of string, large_string, string_view or a dictionary of those.
          add_special_tokens: whether to lay rows out by the post-processor's single template.
          tally: counts what is met, see `new_tally`; one per thread.

        Returns:
          One row of int32 ids per text, in order; truncated and padded if that is enabled. Null for null.

        Raises:
          TypeError: if `texts` is not a text column.
        """
        rows = text_rows(texts)
        ids = self._plan.encode(rows, tally)
        template = self._template(add_special_tokens)
        if template is not PLAIN_LAYOUT or self.truncation or self.padding:
            ids = self._lay_out(ids, template)
        return list_array(ids.values, ids.offsets, _nulls(texts))

    def _lay_out(self, ids: Ragged, template: TemplateProcessing) -> Ragged:
        names = [piece.name if piece.is_sequence else None for piece in template.single]
        at = names.index("A")
        before, after = (
            np.array([i for p in pieces for i in template.special_tokens[p.name].ids], np.int32)
            for pieces in (template.single[:at], template.single[at + 1 :])
        )
        n_special = before.size + after.size
        lengths = np.diff(ids.offsets)
        kept = lengths
        if self.truncation:
            # `lengths` says in one place what fits, and raises where nothing does.
            longest = int(lengths.max(initial=0))
            kept = np.minimum(lengths, self.truncation.lengths(longest, None, n_special)[0])
        padded = self.padding.target(int(kept.max(initial=0)) + n_special) if self.padding else 0
        out = np.empty(int(np.maximum(kept + n_special, padded).sum()), np.int32)
        offsets = np.zeros(ids.n_rows + 1, np.int64)
        row_kernels.lay_out(
            ids.values, ids.offsets, kept, self.truncation is not None and self.truncation.direction == "left",
            before, after, padded, self.pad_token_id, self.padding is not None and self.padding.direction == "left",
            out, offsets,
        )  # fmt: skip
        return Ragged(out, offsets)

    def encode(self, text: str, pair: str | None = None, add_special_tokens: bool = True) -> Encoding:
        """Encodes one text, or a pair, with everything an `Encoding` has. For columns of text use `encode_arrow`."""
        encoding = self._encode(text, pair, add_special_tokens)
        n_padding = self.padding.target(len(encoding.ids)) - len(encoding.ids) if self.padding else 0
        return self._pad(encoding, n_padding)

    def encode_batch(
        self, inputs: Iterable[str | tuple[str, str]], add_special_tokens: bool = True
    ) -> list[Encoding]:
        """Encodes texts or pairs; the same as `encode` for each, but padding may follow the longest."""
        encodings = [
            self._encode(*(item if isinstance(item, tuple) else (item, None)), add_special_tokens) for item in inputs
        ]
        if not self.padding:
            return [self._pad(e, 0) for e in encodings]
        target = self.padding.target(max((len(e.ids) for e in encodings), default=0))
        return [self._pad(e, target - len(e.ids)) for e in encodings]

    def _encode(self, text: str, pair: str | None, add_special_tokens: bool) -> EncodingBuilder:
        template = self._template(add_special_tokens)
        pieces = template.single if pair is None else template.pair
        sequences = {"A": self._tokens(text)}
        if pair is not None:
            sequences["B"] = self._tokens(pair)
        if self.truncation:
            n_first, n_second = len(sequences["A"]), len(sequences["B"]) if pair is not None else None
            kept = self.truncation.lengths(n_first, n_second, n_added(pieces, template.special_tokens))
            for name, n in zip(sequences, kept, strict=False):
                tokens = sequences[name]
                sequences[name] = tokens[len(tokens) - n :] if self.truncation.direction == "left" else tokens[:n]
        builder = EncodingBuilder()
        for piece in pieces:
            if piece.is_sequence:
                for token_id, offsets, word in sequences[piece.name]:
                    token = self._token_of[token_id]
                    builder.add(token_id, token, piece.type_id, offsets, word, "AB".index(piece.name))
            else:
                special = template.special_tokens[piece.name]
                for token_id, token in zip(special.ids, special.tokens, strict=True):
                    builder.add(token_id, token, piece.type_id, (0, 0), None, None)
        return builder

    def _tokens(self, text: str) -> list[tuple[int, tuple[int, int], int]]:
        """Returns id, character offsets and word number of every token of a text."""
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, got {type(text).__name__}")
        data = text.encode()
        found = self._plan.align(data)
        # Number of the character that each byte belongs to.
        character = np.cumsum((np.frombuffer(data, np.uint8) & 0xC0) != 0x80) - 1
        starts, stops = character[found.starts].tolist(), (character[found.stops] + 1).tolist()
        return list(zip(found.ids.tolist(), zip(starts, stops, strict=True), found.word_numbers.tolist(), strict=True))

    def _pad(self, builder: EncodingBuilder, n_padding: int) -> Encoding:
        if self.padding is None:
            return builder.build()
        pad = (self.padding.pad_id, self.padding.pad_token, self.padding.pad_type_id)
        return builder.build(max(0, n_padding), pad, self.padding.direction == "left")

    # Decoding.

    @functools.cached_property
    def _texts(self) -> _TokenTexts:
        decoder = self.decoder
        if isinstance(decoder, decoders.WordPiece) and self.model and self.model.oov_policy == "byte":
            decoder = dataclasses.replace(decoder, byte_tokens=True)
        first, later = [b""] * self.n_ids, [b""] * self.n_ids
        for token_id, token in self._token_of.items():
            if decoder is None:
                first[token_id], later[token_id] = token.encode(), f" {token}".encode()
            else:
                first[token_id] = decoder.token_text(token, first=True)
                later[token_id] = decoder.token_text(token, first=False)
        unknown = np.ones(self.n_ids, np.bool_)
        unknown[list(self._token_of)] = False
        skipped = unknown.copy()
        skipped[[t.id for t in self.added_tokens if t.special]] = True
        return _TokenTexts(*_joined(first), *_joined(later), skipped, unknown)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Decodes one row of ids; bytes that are not UTF-8 become U+FFFD.

        Raises:
          ValueError: if an id belongs to no token.
        """
        values = np.asarray(ids, np.int64)
        rows = Ragged(values, np.array([0, values.size], np.int64))
        data, _ = self._decode_rows(rows, skip_special_tokens)
        return data.tobytes().decode("utf-8", "replace")

    def decode_batch(self, batch: Iterable[Sequence[int]], skip_special_tokens: bool = True) -> list[str]:
        """Decodes rows of ids, each as `decode` does."""
        return [self.decode(ids, skip_special_tokens) for ids in batch]

    def decode_arrow(self, ids: Any, skip_special_tokens: bool = True) -> pa.LargeStringArray:
        """Decodes a list column of ids, each row as `decode` does; null for null.

        Raises:
          TypeError: if it is not a list column of integers. ValueError: if an id belongs to no token.
        """
        rows = id_rows(ids)
        data, offsets = self._decode_rows(rows, skip_special_tokens)
        try:
            data.tobytes().decode("utf-8")
            texts = string_array(data, offsets, _nulls(ids))
        except UnicodeDecodeError:
            # Byte tokens that do not add up to characters: rare enough to go row by row.
            decoded = [data[a:b].tobytes().decode("utf-8", "replace") for a, b in zip(offsets, offsets[1:], strict=False)]
            texts = pa.array(decoded, pa.large_string(), mask=_nulls(ids))
        return texts

    def _decode_rows(self, rows: Ragged, skip_special: bool) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        texts = self._texts
        self._check_ids(rows.values[rows.offsets[0] : rows.offsets[-1]])
        skipped = texts.skipped if skip_special else texts.unknown
        values = read_only(rows.values.astype(np.int32, copy=False))
        offsets = np.zeros(rows.n_rows + 1, np.int64)
        row_kernels.text_sizes(values, rows.offsets, skipped, texts.first_offsets, texts.later_offsets, offsets)
        out = np.empty(int(offsets[-1]), np.uint8)
        row_kernels.join_texts(
            values, rows.offsets, skipped, texts.first, texts.first_offsets, texts.later, texts.later_offsets, out
        )
        return out, offsets

    def _check_ids(self, ids: npt.NDArray[Any]) -> None:
        if ids.size == 0:
            return
        outside = (ids < 0) | (ids >= self.n_ids)
        if not outside.any():
            outside = self._texts.unknown[ids]
        if outside.any():
            raise ValueError(f"id {ids[np.argmax(outside)]} belongs to no token; ids are 0..{self.n_ids - 1}")

    # Counting, explaining.

    def new_tally(self) -> Tally:
        """Returns an empty tally for `encode_arrow`: words met, and words and characters the unknown token swallowed."""
        return self._plan.new_tally()

    def new_word_counter(self) -> WordCounter:
        """Returns an empty counter of normalized pre-tokens; needs no model."""
        return WordCounter(unicode_tables.bert_tables(**(self.normalizer or _NO_NORMALIZER).options()))

    def explain(self) -> str:
        """Says which stages run fused in a compiled kernel, which beside it, and how full the word cache is."""
        plan = self._plan.describe()
        cache = plan["word_cache"]
        return "\n".join(
            [
                f"kernel    {plan['kernel']}: {' + '.join(plan['fused'])}",
                f"stages    {', '.join(plan['stages']) or 'none beside the kernel'}",
                f"model     {self.model!r}",
                f"unicode   {', '.join(f'{k} {v}' for k, v in unicode_data.UNICODE_VERSIONS.items())}",
                f"cache     {cache['words']} words in {cache['caches']} word caches of {self._cache_bytes >> 20} MiB, "
                f"{cache['misses']} misses so far",
            ]
        )

    def __repr__(self) -> str:
        return (
            f"Tokenizer(normalizer={self.normalizer!r}, pre_tokenizer={self.pre_tokenizer!r}, model={self.model!r}, "
            f"post_processor={type(self.post_processor).__name__}, decoder={self.decoder!r})"
        )


def _rebuild(json: str, cache_bytes: int) -> Tokenizer:
    from tokenizer.formats import tokenizer_json

    return tokenizer_json.read(json, "pickled tokenizer", cache_bytes)


def _nulls(array: Any) -> pa.Array | None:
    """Returns which rows are null as a boolean column, None where none is."""
    if not isinstance(array, (pa.Array, pa.ChunkedArray)) or array.null_count == 0:
        return None
    mask = array.is_null()
    return mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask


def _joined(texts: list[bytes]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(t) for t in texts], out=offsets[1:])
    return read_only(np.frombuffer(bytearray().join(texts), np.uint8)), offsets
