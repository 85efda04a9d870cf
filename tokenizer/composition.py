# SPDX-License-Identifier: Apache-2.0
"""`Composition`: the parts of a tokenizer, its vocabulary, and the length of its rows."""

import bisect
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

from tokenmill.tokenizer.added_tokens import AddedToken, SpecialPolicy
from tokenmill.tokenizer.errors import check_list
from tokenmill.tokenizer.models import Unigram
from tokenmill.tokenizer.normalizers import Normalizer
from tokenmill.tokenizer.parts import check_added_tokens, vocab_of
from tokenmill.tokenizer.post_processors import (
    PLAIN_LAYOUT,
    Direction,
    Padding,
    PostProcessor,
    TemplateProcessing,
    Truncation,
    TruncationStrategy,
    n_added,
)
from tokenmill.tokenizer.pre_tokenizers import PreTokenizer

DEFAULT_CACHE_BYTES = 32 << 20
_PARTS = frozenset({"model", "normalizer", "pre_tokenizer", "decoder", "added_tokens", "special"})
"""Attributes that the compiled plan depends on."""
_ROWS = frozenset({"post_processor", "truncation", "padding"})
"""The other attributes that a `tokenizer.json` holds."""


PAD_NAMES = ("[PAD]", "<pad>", "<PAD>", "<|pad|>", "<|padding|>", "<|PAD_TOKEN|>")
"""Names of the special tokens that are for padding only, as vocabularies in use have them."""


class Composition:
    """The parts of a tokenizer, without encoding and decoding; `Tokenizer` adds these."""

    pad_token: str | None = None
    """The padding token that its files name: `pad_token` of `tokenizer_config.json`, or `padding` of `tokenizer.json`.
    Not saved in a `tokenizer.json` without padding."""

    _is_made = False
    """Whether the constructor has set all parts."""

    def __init__(
        self,
        *,
        model: Any,
        normalizer: Normalizer | None = None,
        pre_tokenizer: PreTokenizer | None = None,
        post_processor: PostProcessor | None = None,
        decoder: Any = None,
        added_tokens: Sequence[AddedToken] = (),
        truncation: Truncation | None = None,
        padding: Padding | None = None,
        special: SpecialPolicy = "plain",
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        """Composes a tokenizer.

        Args:
          model: a WordPiece, BPE, Unigram or WordLevel; None for a tokenizer that only normalizes and counts words.
          normalizer: None leaves text as it is.
          pre_tokenizer: None makes every text one word.
          decoder: None joins tokens with spaces, as HF does.
          special: what happens to the text of a special token in a document: "plain" leaves it text; "split" makes it
            the token, as HF does; "error" raises a ValueError. Not saved in the file.
          cache_bytes: memory of one word cache; there is one for each thread that encodes at the same time.
        """
        self.model = model
        self.normalizer = normalizer
        self.pre_tokenizer = pre_tokenizer
        self.post_processor = post_processor
        self.decoder = decoder
        self.added_tokens: tuple[AddedToken, ...] = tuple(added_tokens)
        self.truncation = truncation
        self.padding = padding
        self.special = special
        self._cache_bytes = cache_bytes
        self._check()
        self._is_made = True

    def __setattr__(self, name: str, value: Any) -> None:
        """Replaces a part, and drops what was compiled for the old one.

        Raises:
          ValueError: if the new part does not fit the others.
        """
        old = self.__dict__.get(name)
        object.__setattr__(self, name, tuple(value) if name == "added_tokens" else value)
        if name in _ROWS:
            for derived in ("_text", "digest", "_templates"):
                self.__dict__.pop(derived, None)
        if name not in _PARTS or not self._is_made:
            return
        try:
            self._check()
        except ValueError:
            object.__setattr__(self, name, old)
            raise
        for key in [key for key in self.__dict__ if isinstance(getattr(type(self), key, None), cached_property)]:
            del self.__dict__[key]

    def _check(self) -> None:
        if self.special not in ("plain", "split", "error"):
            raise ValueError(f"special must be 'plain', 'split' or 'error', got {self.special!r}")
        check_added_tokens(self.model, self.added_tokens)

    # The vocabulary.

    def get_vocab(self, with_added_tokens: bool = True) -> dict[str, int]:
        """Returns token -> id, a copy."""
        vocab = dict(vocab_of(self.model).items())
        if with_added_tokens:
            vocab.update((t.content, t.id) for t in self.added_tokens)
        return vocab

    def get_added_tokens_decoder(self) -> dict[int, AddedToken]:
        """Returns id -> added token, ordered by id."""
        return {token.id: token for token in sorted(self.added_tokens, key=lambda token: token.id)}

    def add_tokens(self, tokens: Iterable[str | AddedToken]) -> int:
        """Adds tokens that are cut out of text before any other step runs; returns how many are new or changed.

        Args:
          tokens: a str keeps the id that it has in the vocabulary, or gets the next one after all others; it is looked
            for in normalized text. The id of an `AddedToken` must be the one its text has already, or a free one.

        Raises:
          TypeError: if it is not a list of those. ValueError: if an id belongs to another token.
        """
        return self._add(tokens, are_special=False)

    def add_special_tokens(self, tokens: Iterable[str | AddedToken]) -> int:
        """Adds special tokens, or makes tokens special that are there already; otherwise as `add_tokens`.

        A str is looked for in the raw text. `special` decides whether what is found becomes the token.
        """
        return self._add(tokens, are_special=True)

    def _add(self, tokens: Iterable[str | AddedToken], are_special: bool) -> int:
        check_list("tokens", tokens)
        added = {token.content: token for token in self.added_tokens}
        n_ids, n_new = self.n_ids, 0
        for token in tokens:
            if isinstance(token, str):
                if not token:
                    continue  # as HF does
                known = added[token].id if token in added else self.token_to_id(token)
                token_id = n_ids if known is None else known
                token = AddedToken(token_id, token, normalized=not are_special, special=are_special)
            elif not isinstance(token, AddedToken):
                raise TypeError(f"tokens must hold str or AddedToken, got {token!r:.80}")
            elif are_special:
                token = dataclasses.replace(token, special=True)
            n_ids = max(n_ids, token.id + 1)
            n_new += added.get(token.content) != token
            added[token.content] = token
        self.added_tokens = tuple(added.values())
        return n_new

    def get_vocab_size(self, with_added_tokens: bool = True) -> int:
        """Returns how many tokens there are; a piece of a Unigram model that occurs twice counts twice, as in HF."""
        model = self.model
        n_own = len(model.vocab) if isinstance(model, Unigram) else len(vocab_of(model))
        return n_own + self._n_beside if with_added_tokens else n_own

    @cached_property
    def _n_beside(self) -> int:
        """How many added tokens the vocabulary of the model does not have."""
        vocab = vocab_of(self.model)
        return sum(token not in vocab for token in self._added_ids)

    @cached_property
    def _token_of(self) -> Mapping[int, str]:
        vocab = vocab_of(self.model)
        added = {t.id: t.content for t in self.added_tokens}
        if isinstance(self.model, Unigram):  # a piece that occurs twice has two ids
            return {i: piece for i, (piece, _) in enumerate(self.model.vocab)} | added
        return dict(zip(vocab.ids.tolist(), vocab.tokens, strict=True)) | added

    @cached_property
    def _added_ids(self) -> dict[str, int]:
        return {token.content: token.id for token in self.added_tokens}

    @property
    def n_ids(self) -> int:
        """One more than the largest id."""
        is_unigram = isinstance(self.model, Unigram)  # a piece that occurs twice has two ids
        last = len(self.model.vocab) - 1 if is_unigram else int(vocab_of(self.model).ids.max(initial=-1))
        return max([last, *self._added_ids.values()]) + 1

    def token_to_id(self, token: str) -> int | None:
        """Returns the id of a token, None if there is no such token."""
        found = self._added_ids.get(token)
        return vocab_of(self.model).get(token) if found is None else found

    def id_to_token(self, token_id: int) -> str | None:
        """Returns the token of an id, None if no token has it."""
        return self._token_of.get(token_id)

    def tokens_with_prefix(self, prefix: str) -> dict[str, int]:
        """Returns token -> id of all tokens that begin with `prefix`, added tokens too, in the order of their bytes.

        Tokens are spelled as in the vocabulary: "▁un", "##un", or, in a byte-level one, "Ġun" for " un". The first
        call sorts the vocabulary; later ones are two binary searches.
        """
        tokens = self._sorted_tokens
        first = bisect.bisect_left(tokens, prefix)
        last = bisect.bisect_right(tokens, prefix, lo=first, key=lambda token: token[: len(prefix)])
        return {token: cast(int, self.token_to_id(token)) for token in tokens[first:last]}

    @cached_property
    def _sorted_tokens(self) -> list[str]:
        return sorted({*vocab_of(self.model), *self._added_ids})

    @property
    def unk_token_id(self) -> int | None:
        """Id of the unknown token, None if the model has none."""
        if isinstance(self.model, Unigram):
            return self.model.unk_id
        unk_token = getattr(self.model, "unk_token", None)
        return None if unk_token is None else vocab_of(self.model).get(unk_token)

    @property
    def pad_token_id(self) -> int | None:
        """Id that padding uses: the one padding was enabled with, else that of `pad_token`, or of `[PAD]` or the like.

        None if there is none.
        """
        if self.padding is not None:
            return self.padding.pad_id
        special = {token.content: token.id for token in self.added_tokens if token.special}
        named = (special[name] for name in PAD_NAMES if name in special)
        found = None if self.pad_token is None else self.token_to_id(self.pad_token)
        return found if found is not None else next(named, self.token_to_id("[PAD]"))

    def num_special_tokens_to_add(self, is_pair: bool = False) -> int:
        """Returns how many tokens the post-processor adds to a text, or to a pair."""
        template = self._templates[True]
        return n_added(template.pair if is_pair else template.single, template.special_tokens)

    # Rows of fixed length.

    def enable_truncation(
        self,
        max_length: int,
        stride: int = 0,
        strategy: TruncationStrategy = "longest_first",
        direction: Direction = "right",
    ) -> None:
        """Cuts rows to at most `max_length` tokens, special tokens included.

        What does not fit is in `Encoding.overflowing`, where each part repeats `stride` tokens of the one before;
        columns leave it out.
        """
        self.truncation = Truncation(max_length, strategy, direction, stride)

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
            pad_id = self.token_to_id(pad_token)
            if pad_id is None:
                raise ValueError(f"the vocabulary has no padding token {pad_token!r}; pass pad_id= or pad_token=")
        self.padding = Padding(length, direction, pad_to_multiple_of, pad_id, pad_type_id, pad_token)

    def no_padding(self) -> None:
        """Leaves rows as short as they are."""
        self.padding = None

    def _require_model(self) -> Any:
        if self.model is None:
            raise ValueError("this tokenizer has no model; train a vocabulary first (see tokenmill.tokenizer.trainers)")
        return self.model

    @cached_property
    def _templates(self) -> tuple[TemplateProcessing, TemplateProcessing]:
        """The layouts without and with special tokens."""
        if self.post_processor is None:
            return PLAIN_LAYOUT, PLAIN_LAYOUT
        return self.post_processor.template(False), self.post_processor.template(True)
