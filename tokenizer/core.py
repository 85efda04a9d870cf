# SPDX-License-Identifier: Apache-2.0
"""`Tokenizer`: composes normalizer, pre-tokenizer, model, post-processor and decoder, under HF's method names."""

import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tokenizer import decoders, unicode_data
from tokenizer.added_tokens import AddedToken, Segments, SpecialPolicy
from tokenizer.aligned import AlignedText
from tokenizer.composition import DEFAULT_CACHE_BYTES, Composition
from tokenizer.compositions import named_normalizer, named_pre_tokenizer, parts_for
from tokenizer.counting import Tally
from tokenizer.decoding import IdDecoder
from tokenizer.encoding import EncodedToken, Encoding, EncodingBuilder, assemble
from tokenizer.engines.choice import NO_NORMALIZER
from tokenizer.layout import lay_out
from tokenizer.models import WordPiece
from tokenizer.normalizers import BertNormalizer
from tokenizer.plan import EncodePlan
from tokenizer.post_processors import BertProcessing, n_added
from tokenizer.pre_tokenizers import BertPreTokenizer
from tokenizer.ragged import Ragged, list_array, null_rows, text_rows
from tokenizer.sampling import Sampling
from tokenizer.trainers.base import Trainer
from tokenizer.word_counter import WordCounter, count_texts, read_lines

BERT_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class Tokenizer(Composition):
    """Turns text into token ids and back.

    Made by `from_file`, `from_str` or `for_bert`. Methods may be called from several threads at once, except those
    that change it: `enable_truncation`, `no_truncation`, `enable_padding`, `no_padding`, `train`,
    `train_from_iterator`.

    The text of a special token in a document is text like any other, unless `special` says otherwise.
    """

    # Making one.

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        *,
        lowercase: bool | None = None,
        strip_accents: bool | None = None,
        oov: str | None = None,
        special: SpecialPolicy = "plain",
        pattern: str | None = None,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> "Tokenizer":
        """Loads a tokenizer file of any kind, or a directory as `transformers` saves it.

        `tokenizer.json`, `vocab.txt`, `vocab.json` with `merges.txt` beside it, a SentencePiece model, CLIP's gzip of
        merges, tiktoken's ranks: which of them it is is seen from the content, not from the name.

        Args:
          path: the file or directory.
          lowercase, strip_accents, oov: override what the file says; None keeps it. A `vocab.txt` says nothing, so
          there
            None means lower-case, accents follow the case, and oov "word": plain BERT.
          special: as for the constructor.
          pattern: for tiktoken's ranks, which pattern splits text: "r50k_base", "cl100k_base", "o200k_base", ...

        Raises:
          OSError: if it cannot be read; TokenizerFileError (a ValueError): if it is broken or not supported.
        """
        from tokenizer.formats import loading

        tokenizer = loading.load(Path(path), cache_bytes, pattern)
        return tokenizer._with_overrides(lowercase, strip_accents, oov, special)

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
            pre_tokenizer=BertPreTokenizer(),
            post_processor=BertProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"])) if has_both else None,
            decoder=decoders.WordPiece(),
            added_tokens=[AddedToken(i, t) for i, t in special],
            cache_bytes=cache_bytes,
        )

    @classmethod
    def untrained_bert(cls, *, lowercase: bool = True, strip_accents: bool | None = None) -> "Tokenizer":
        """Composes BERT's normalizer and pre-tokenizer without a model, to count words before there is a vocabulary."""
        normalizer = BertNormalizer(strip_accents=strip_accents, lowercase=lowercase)
        return cls(model=None, normalizer=normalizer, pre_tokenizer=BertPreTokenizer())

    def _with_overrides(
        self,
        lowercase: bool | None = None,
        strip_accents: bool | None = None,
        oov: str | None = None,
        special: SpecialPolicy = "plain",
    ) -> "Tokenizer":
        normalizer, model = self.normalizer, self.model
        if lowercase is not None or strip_accents is not None:
            changes: dict[str, Any] = {}
            if lowercase is not None:
                changes["lowercase"] = lowercase
            if strip_accents is not None:
                changes["strip_accents"] = strip_accents
            normalizer = normalizer or NO_NORMALIZER
            if not isinstance(normalizer, BertNormalizer):
                raise ValueError(
                    f"lowercase and strip_accents are choices of BertNormalizer; the normalizer is {normalizer!r}"
                )
            normalizer = dataclasses.replace(normalizer, **changes)
        if oov is not None and model is not None:
            if not isinstance(model, WordPiece):
                raise ValueError(f"oov is a choice of WordPiece; the model is {model!r}")
            model = dataclasses.replace(model, oov_policy=oov)
        return self.replace(model=model, normalizer=normalizer, special=special)

    def with_special_tokens(self, contents: Sequence[str]) -> "Tokenizer":
        """Returns this tokenizer with special tokens added; those it has not yet get the next free ids, in order."""
        added = {token.content for token in self.added_tokens}
        if added.issuperset(contents):
            return self
        tokens = list(self.added_tokens)
        n_ids = self.n_ids
        for content in contents:
            if content in added:
                continue
            token_id = self.token_to_id(content)
            tokens.append(AddedToken(n_ids if token_id is None else token_id, content))
            n_ids += token_id is None
        return self.replace(added_tokens=tokens)

    def replace(self, **parts: Any) -> "Tokenizer":
        """Returns a tokenizer with some arguments of the constructor replaced."""
        kept = {
            "model": self.model,
            "normalizer": self.normalizer,
            "pre_tokenizer": self.pre_tokenizer,
            "post_processor": self.post_processor,
            "decoder": self.decoder,
            "added_tokens": self.added_tokens,
            "truncation": self.truncation,
            "padding": self.padding,
            "special": self.special,
            "cache_bytes": self._cache_bytes,
        }
        return Tokenizer(**(kept | parts))

    def __reduce__(self) -> tuple[Callable[..., "Tokenizer"], tuple[str, SpecialPolicy, int]]:
        # Compact, and whatever was compiled stays behind: the other process compiles or loads its own.
        return _rebuild, (self.to_str(), self.special, self._cache_bytes)

    # Writing it.

    def to_str(self, pretty: bool = False) -> str:
        """Returns the tokenizer as the text of a `tokenizer.json`, which HF tokenizers reads too.

        OOV policies other than `word` are kept in a field of the model that HF ignores.
        """
        from tokenizer.formats import tokenizer_json

        return tokenizer_json.write(self, pretty)

    def save(self, path: str | os.PathLike[str], pretty: bool = True, *, format: str | None = None) -> None:
        """Writes a `tokenizer.json`, or the file of the library that the model is from; whole or not at all.

        Args:
          path: the file.
          pretty: whether a `tokenizer.json` has line breaks.
          format: "tokenizer.json"; "vocab.txt", which holds nothing but the vocabulary of WordPiece; "vocab.json", with
            `merges.txt` beside it; "sentencepiece"; "tiktoken", which holds no special tokens; "clip". None goes by the
            name: `vocab.json`, or one that ends in `.txt`, `.model`, `.tiktoken`, `.gz`, else `tokenizer.json`.

        Raises:
          ValueError: if the format cannot hold this tokenizer; says what of it.
        """
        from tokenizer.formats import saving

        saving.save(self, Path(path), format, pretty)

    @property
    def digest(self) -> str:
        """SHA-256 of `to_str()` and of the Unicode versions, hexadecimal: equal digests, equal ids."""
        versions = repr(sorted(unicode_data.UNICODE_VERSIONS.items()))
        return hashlib.sha256(f"{self.to_str()}\n{versions}".encode()).hexdigest()

    # Encoding.

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

    # Decoding.

    @functools.cached_property
    def _id_decoder(self) -> IdDecoder:
        decoder = self.decoder
        if isinstance(decoder, decoders.WordPiece) and getattr(self.model, "oov_policy", None) == "byte":
            # HF's WordPiece has no byte tokens of its own making.
            decoder = dataclasses.replace(decoder, byte_tokens=True)
        return IdDecoder(self._token_of, [t.id for t in self.added_tokens if t.special], decoder)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Decodes one row of ids; bytes that are not UTF-8 become U+FFFD.

        Raises:
          ValueError: if an id belongs to no token.
        """
        values = np.asarray(ids, np.int64)
        rows = Ragged(values, np.array([0, values.size], np.int64))
        return self._id_decoder.decode_rows(rows, skip_special_tokens)[0]

    def decode_batch(self, batch: Iterable[Sequence[int]], skip_special_tokens: bool = True) -> list[str]:
        """Decodes rows of ids, each as `decode` does."""
        return [self.decode(ids, skip_special_tokens) for ids in batch]

    def decode_arrow(self, ids: Any, skip_special_tokens: bool = True) -> pa.LargeStringArray:
        """Decodes a list column of ids, each row as `decode` does; null for null.

        Raises:
          TypeError: if it is not a list column of integers. ValueError: if an id belongs to no token.
        """
        return self._id_decoder.decode_arrow(ids, skip_special_tokens)

    # Counting, explaining.

    def new_tally(self) -> Tally:
        """Returns an empty tally for `encode_arrow`: words met, words and characters the unknown token swallowed."""
        return self._plan.new_tally()

    def new_word_counter(self) -> WordCounter:
        """Returns an empty counter of normalized pre-tokens, as a vocabulary is trained on; needs no model.

        Special and other added tokens are text to it, as they are to HF's trainers.
        """
        return WordCounter(self.normalizer, self.pre_tokenizer)

    # Training.

    @classmethod
    def untrained(
        cls,
        normalizer: str,
        pre_tokenizer: str,
        *,
        lowercase: bool = False,
        strip_accents: bool | None = None,
        byte_level: bool = False,
        user_defined_symbols: Sequence[str] = (),
    ) -> "Tokenizer":
        """Composes a normalizer and a pre-tokenizer by name, without a model; see `compositions` for the names."""
        return cls(
            model=None,
            normalizer=named_normalizer(normalizer, lowercase, strip_accents, user_defined_symbols),
            pre_tokenizer=named_pre_tokenizer(pre_tokenizer, byte_level),
        )

    def with_model(
        self, model: Any, special_tokens: Sequence[str] = (), user_defined_symbols: Sequence[str] = ()
    ) -> "Tokenizer":
        """Returns this normalizer and pre-tokenizer with another model, and the decoder and layout that go with it.

        Args:
          model: a WordPiece, BPE, Unigram or WordLevel, as trainers return it. A Unigram model follows HF's rules
            instead of sentencepiece's, unless `SentencePieceNormalizer` makes its text.
          special_tokens: entries of its vocabulary that mark places.
          user_defined_symbols: entries that are kept whole in text.
        """
        parts = parts_for(model, self.normalizer, self.pre_tokenizer, special_tokens, user_defined_symbols)
        return Tokenizer(
            model=parts.model,
            normalizer=self.normalizer,
            pre_tokenizer=self.pre_tokenizer,
            post_processor=parts.post_processor,
            decoder=parts.decoder,
            added_tokens=parts.added_tokens,
            truncation=self.truncation,
            padding=self.padding,
            special=self.special,
            cache_bytes=self._cache_bytes,
        )

    def train_from_iterator(self, iterator: Iterable[str | Iterable[str]], trainer: Trainer[Any]) -> "Tokenizer":
        """Trains a vocabulary on texts, puts the model in place of the one there is, and returns this tokenizer.

        Words are counted in batches of a few megabytes; in memory are the distinct words. Not to be called while
        another thread uses this tokenizer.

        Args:
          iterator: texts, or batches of texts as HF takes them.
          trainer: one of `tokenizer.trainers`, whose special tokens become special tokens here.

        Raises:
          TypeError: if there is something else than a str in it. ValueError: what `trainer.train` raises.
        """
        return self._become_trained(count_texts(self.new_word_counter(), iterator), trainer)

    def train(
        self, files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], trainer: Trainer[Any]
    ) -> "Tokenizer":
        """Trains on the lines of text files in UTF-8, otherwise as `train_from_iterator`.

        As in HF a line keeps its line end.

        Raises:
          OSError: if a file cannot be read. ValueError: if one is not UTF-8, or what `trainer.train` raises.
        """
        return self._become_trained(count_texts(self.new_word_counter(), read_lines(files)), trainer)

    def _become_trained(self, counts: pa.Table, trainer: Trainer[Any]) -> "Tokenizer":
        tokens = (getattr(trainer, name, ()) for name in ("special_tokens", "user_defined_symbols"))
        trained = self.with_model(trainer.train(counts), *tokens)
        # Everything that was compiled for the old model goes with it.
        self.__dict__.clear()
        self.__dict__.update(trained.__dict__)
        return self

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


def _rebuild(json: str, special: SpecialPolicy, cache_bytes: int) -> Tokenizer:
    from tokenizer.formats import tokenizer_json

    return tokenizer_json.read(json, "pickled tokenizer", cache_bytes)._with_overrides(special=special)
