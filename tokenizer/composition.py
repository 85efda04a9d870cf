# SPDX-License-Identifier: Apache-2.0
"""`Composition`: the parts of a tokenizer, its vocabulary, and the length of its rows."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from tokenizer.added_tokens import AddedToken, SpecialPolicy
from tokenizer.models import Unigram
from tokenizer.normalizers import Normalizer
from tokenizer.post_processors import (
    PLAIN_LAYOUT,
    Direction,
    Padding,
    PostProcessor,
    TemplateProcessing,
    Truncation,
    TruncationStrategy,
    n_added,
)
from tokenizer.pre_tokenizers import PreTokenizer

DEFAULT_CACHE_BYTES = 32 << 20


class Composition:
    """What a tokenizer is made of; `Tokenizer` is one that encodes and decodes."""

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
          special: what becomes of the text of a special token in a document: "plain", it stays text; "split", it
          becomes the
            token, as in HF; "error", a ValueError. Not part of the file.
          cache_bytes: memory of one word cache; there are as many as threads that encode at the same time.
        """
        self.model = model
        self.normalizer = normalizer
        self.pre_tokenizer = pre_tokenizer
        self.post_processor = post_processor
        self.decoder = decoder
        self.added_tokens = tuple(added_tokens)
        self.truncation = truncation
        self.padding = padding
        self.special = special
        self._cache_bytes = cache_bytes
        if special not in ("plain", "split", "error"):
            raise ValueError(f"special must be 'plain', 'split' or 'error', got {special!r}")
        self._check_added_tokens()

    def _check_added_tokens(self) -> None:
        if not self.added_tokens:
            return
        vocab = vocab_of(self.model)
        for token in self.added_tokens:
            if vocab.get(token.content, token.id) != token.id:
                raise ValueError(
                    f"added token {token.content!r} has id {token.id}, but the vocabulary gives it "
                    f"{vocab[token.content]}"
                )
        taken = {token.id for token in self.added_tokens}.intersection(vocab.values())
        owners = {i: t for t, i in vocab.items() if i in taken}
        for token in self.added_tokens:
            if owners.setdefault(token.id, token.content) != token.content:
                raise ValueError(f"id {token.id} belongs to {owners[token.id]!r} and to added token {token.content!r}")

    # The vocabulary.

    def get_vocab(self, with_added_tokens: bool = True) -> dict[str, int]:
        """Returns token -> id, a copy."""
        vocab = dict(vocab_of(self.model))
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
        """Id of the unknown token, None where the model has none."""
        if isinstance(self.model, Unigram):
            return self.model.unk_id
        unk_token = getattr(self.model, "unk_token", None)
        return None if unk_token is None else vocab_of(self.model).get(unk_token)

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
        self,
        max_length: int,
        stride: int = 0,
        strategy: TruncationStrategy = "longest_first",
        direction: Direction = "right",
    ) -> None:
        """Cuts rows to at most `max_length` tokens, special tokens included.

        What does not fit is in `Encoding.overflowing`, each part with `stride` tokens of the one before; columns leave
        it out.
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
            pad_id = self._id_of.get(pad_token)
            if pad_id is None:
                raise ValueError(f"the vocabulary has no padding token {pad_token!r}; pass pad_id= or pad_token=")
        self.padding = Padding(length, direction, pad_to_multiple_of, pad_id, pad_type_id, pad_token)

    def no_padding(self) -> None:
        """Leaves rows as short as they are."""
        self.padding = None

    def _require_model(self) -> Any:
        if self.model is None:
            raise ValueError("this tokenizer has no model; train a vocabulary first (see tokenizer.trainers)")
        return self.model

    def _template(self, add_special_tokens: bool) -> TemplateProcessing:
        return PLAIN_LAYOUT if self.post_processor is None else self.post_processor.template(add_special_tokens)


def vocab_of(model: Any) -> Mapping[str, int]:
    """Returns token -> id of any model, nothing for none; of equal Unigram pieces the first counts."""
    if model is None:
        return {}
    if isinstance(model, Unigram):
        ids = range(len(model.vocab) - 1, -1, -1)
        return dict(zip((piece for piece, _ in reversed(model.vocab)), ids, strict=True))
    return model.vocab
