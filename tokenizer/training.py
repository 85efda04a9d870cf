# SPDX-License-Identifier: Apache-2.0
"""`Trainable`: the half of a tokenizer that counts words, and gets a model that was trained on them."""

import dataclasses
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self, cast

import pyarrow as pa

from tokenmill.tokenizer.composition import Composition
from tokenmill.tokenizer.compositions import named_normalizer, named_pre_tokenizer, parts_for
from tokenmill.tokenizer.errors import check_list, check_strings
from tokenmill.tokenizer.post_processors import renumbered
from tokenmill.tokenizer.pre_tokenizers import is_byte_level
from tokenmill.tokenizer.word_counter import WordCounter, count_texts, read_lines

if TYPE_CHECKING:
    from tokenmill.tokenizer.trainers.base import Trainer


class Trainable(Composition):
    """The training methods of `Tokenizer`."""

    def new_word_counter(self) -> WordCounter:
        """Returns an empty counter of normalized pre-tokens, the words that a vocabulary is trained on; needs no model.

        Special and other added tokens are text to it, as they are to HF's trainers. It counts words as they are in the
        text, after a `ByteLevel` too. After one, all trainers but that of byte-level BPE need the words as
        `tokenmill.tokenizer.trainers.spelled_word_counts` spells them.
        """
        return WordCounter(self.normalizer, self.pre_tokenizer)

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
    ) -> Self:
        """Makes a normalizer and a pre-tokenizer by name, without a model; see `compositions` for the names."""
        check_strings("user_defined_symbols", user_defined_symbols)
        return cls(
            model=None,
            normalizer=named_normalizer(normalizer, lowercase, strip_accents, user_defined_symbols),
            pre_tokenizer=named_pre_tokenizer(pre_tokenizer, byte_level),
        )

    def with_model(
        self, model: Any, special_tokens: Sequence[str] = (), user_defined_symbols: Sequence[str] = ()
    ) -> Self:
        """Returns this normalizer and pre-tokenizer with another model, and the decoder and layout that go with it.

        Args:
          model: a WordPiece, BPE, Unigram or WordLevel, as trainers return it. A Unigram model follows HF's rules
            instead of sentencepiece's, unless the normalizer is or contains a `SentencePieceNormalizer`.
          special_tokens: entries of its vocabulary that become special tokens.
          user_defined_symbols: entries that are never split in text.
        """
        check_strings("special_tokens", special_tokens)
        check_strings("user_defined_symbols", user_defined_symbols)
        parts = parts_for(model, self.normalizer, self.pre_tokenizer, special_tokens, user_defined_symbols)
        parts = dataclasses.replace(parts, truncation=self.truncation, padding=self.padding)
        return cast(Self, cast(Any, self).from_parts(parts, special=self.special, cache_bytes=self._cache_bytes))

    def train_from_iterator(self, iterator: Iterable[str | Iterable[str]], trainer: "Trainer[Any]") -> Self:
        """Trains a model on texts, replaces the present one with it, and returns this tokenizer.

        As in HF all other parts stay. The tokens of the post-processor, and added tokens that the trainer does not
        know, get their ids in the new vocabulary, or the next ones after it. Where there was no post-processor or
        decoder, one that fits the model is added.

        Words are counted in batches of a few megabytes; memory holds the distinct words. Do not call it while another
        thread uses this tokenizer.

        Args:
          iterator: texts, or batches of texts as HF takes them.
          trainer: one of `tokenmill.tokenizer.trainers`; its special tokens become this tokenizer's.

        Raises:
          TypeError: if the iterator yields anything but str. ValueError: what `trainer.train` raises; or, before any
          work, if the post-processor needs a token that neither the trainer nor this tokenizer has.
        """
        check_list("iterator", iterator)
        return self._become_trained(count_texts(self.new_word_counter(), iterator), trainer)

    def train(self, files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], trainer: "Trainer[Any]") -> Self:
        """Trains on the lines of text files in UTF-8; otherwise like `train_from_iterator`.

        As in HF, a line keeps its line end.

        Raises:
          OSError: if a file cannot be read. ValueError: if one is not UTF-8, or what `trainer.train` raises.
        """
        if not isinstance(files, str):
            check_list("files", files)
        return self._become_trained(count_texts(self.new_word_counter(), read_lines(files)), trainer)

    def _become_trained(self, counts: pa.Table, trainer: "Trainer[Any]") -> Self:
        tokens = [getattr(trainer, name, ()) for name in ("special_tokens", "user_defined_symbols")]
        self._check_layout_for(trainer)
        if is_byte_level(self.pre_tokenizer) and not getattr(trainer, "byte_level", False):
            from tokenmill.tokenizer.trainers.word_counts import spelled_word_counts

            counts = spelled_word_counts(counts)
        trained = self.with_model(trainer.train(counts), *tokens)
        added = {token.content for token in trained.added_tokens}
        for token in sorted(self.added_tokens, key=lambda token: token.id):
            if token.content not in added:
                known = trained.token_to_id(token.content)
                token_id = trained.n_ids if known is None else known
                trained.added_tokens = (*trained.added_tokens, dataclasses.replace(token, id=token_id))
        if self.post_processor is not None:
            trained.post_processor = renumbered(self.post_processor, trained.get_vocab().__getitem__)
        trained.decoder = self.decoder or trained.decoder
        # This also drops everything that was compiled for the old model.
        self.__dict__.clear()
        self.__dict__.update(trained.__dict__)
        return self

    def _check_layout_for(self, trainer: "Trainer[Any]") -> None:
        if self.post_processor is None:
            return
        known = {token.content for token in self.added_tokens}
        for name in ("special_tokens", "user_defined_symbols", "control_symbols"):
            known.update(getattr(trainer, name, ()))
        known.update(getattr(trainer, f"{name}_piece", "") for name in ("unk", "bos", "eos", "pad"))
        needed = {token for special in self._templates[True].special_tokens.values() for token in special.tokens}
        if missing := sorted(needed - known):
            raise ValueError(
                f"the post-processor lays texts out with {missing[0]!r}, which the vocabulary would not have; add it "
                "to the special tokens of the trainer, or put another post-processor in place"
            )
