# SPDX-License-Identifier: Apache-2.0
"""`Tokenizer.as_tiktoken()`: the interface of tiktoken's `Encoding`, on the kernels.

Source: tiktoken 0.14, `core.py`, same names and meaning, except for what the docs list.
"""

import functools
import re
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.models import BPE
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET
from tokenmill.tokenizer.pre_tokenizers import is_byte_level

_BYTES = {character: byte for byte, character in enumerate(BYTE_ALPHABET)}


class TiktokenEncoding:
    """A byte-level BPE tokenizer as tiktoken's `Encoding`: special tokens in a text are an error unless it is said."""

    def __init__(self, tokenizer: Any, name: str = "tokenmill") -> None:
        """Takes a `Tokenizer`, whose added tokens are the special tokens.

        Raises:
          ValueError: if it is no byte-level BPE, or has a normalizer: it has no tokens that are bytes of the text.
        """
        model = tokenizer.model
        if not isinstance(model, BPE) or not is_byte_level(tokenizer.pre_tokenizer) or tokenizer.normalizer is not None:
            raise ValueError(f"as_tiktoken is for byte-level BPE without a normalizer, got {tokenizer!r:.200}")
        self.name = name
        self._special = {token.content: token.id for token in tokenizer.added_tokens}
        self._tokenizer = tokenizer.replace(added_tokens=(), post_processor=None, truncation=None, padding=None)
        special_ids = set(self._special.values())
        self._bytes = {
            i: bytes(_BYTES[c] for c in token)
            for token, i in model.vocab.items()
            if i not in special_ids and all(c in _BYTES for c in token)
        }
        self._bytes |= {i: content.encode() for content, i in self._special.items()}

    def __repr__(self) -> str:
        return f"<Encoding {self.name!r}>"

    # Texts to ids.

    def encode_ordinary(self, text: str) -> list[int]:
        """Encodes a text; special tokens in it are text."""
        return self.encode_ordinary_batch([text])[0]

    def encode_ordinary_batch(self, text: Sequence[str], *, num_threads: int = 8) -> list[list[int]]:
        """Encodes texts, in one call of the kernels; `num_threads` is taken and has no effect."""
        return [found.ids for found in self._tokenizer.encode_batch(list(map(_whole, text)))]

    def encode(
        self,
        text: str,
        *,
        allowed_special: Literal["all"] | AbstractSet[str] = frozenset(),
        disallowed_special: Literal["all"] | Collection[str] = "all",
    ) -> list[int]:
        """Encodes a text.

        Args:
          text: the text; half a surrogate pair becomes U+FFFD.
          allowed_special: the special tokens that become their ids where they occur; the longest of those that begin at
            the same place. In tiktoken the order of a hash table decides, also among those that are not allowed.
          disallowed_special: those that are an error where they occur; "all": those that are not allowed.

        Raises:
          ValueError: if a disallowed token occurs.
        """
        return self.encode_batch([text], allowed_special=allowed_special, disallowed_special=disallowed_special)[0]

    def encode_batch(
        self,
        text: Sequence[str],
        *,
        num_threads: int = 8,
        allowed_special: Literal["all"] | AbstractSet[str] = frozenset(),
        disallowed_special: Literal["all"] | Collection[str] = "all",
    ) -> list[list[int]]:
        """Encodes texts, each as `encode` does; `num_threads` is taken and has no effect."""
        allowed = self.special_tokens_set if allowed_special == "all" else allowed_special
        disallowed = self.special_tokens_set - allowed if disallowed_special == "all" else disallowed_special
        text = list(text)
        search = _pattern(frozenset(disallowed)).search if disallowed else lambda _: None
        if found := next(filter(None, map(search, text)), None):
            raise ValueError(
                f"the text has the special token {found.group()!r}, which is disallowed: name it in allowed_special to "
                "get its id, or leave it out of disallowed_special to take it as text; disallowed_special=() takes all "
                "as text"
            )
        allowed = allowed & self._special.keys()  # not in place: it is the caller's
        if not allowed:
            return self.encode_ordinary_batch(text)
        split = [re.split(f"({_pattern(frozenset(allowed)).pattern})", _whole(each)) for each in text]
        ordinary = iter(self.encode_ordinary_batch([piece for pieces in split for piece in pieces[::2]]))
        rows = []
        for pieces in split:
            rows.append(list(next(ordinary)))
            for special in pieces[1::2]:
                rows[-1] += [self._special[special], *next(ordinary)]
        return rows

    def encode_to_numpy(self, text: str, **special: Any) -> npt.NDArray[np.uint32]:
        """Returns what `encode` does, as uint32[n]."""
        return np.array(self.encode(text, **special), np.uint32)

    def encode_single_token(self, text_or_bytes: str | bytes) -> int:
        """Returns the id of a token; raises KeyError if it is none."""
        data = text_or_bytes.encode() if isinstance(text_or_bytes, str) else text_or_bytes
        return self._ids[data]

    # Ids to texts.

    def decode_single_token_bytes(self, token: int) -> bytes:
        """Returns the bytes of a token; raises KeyError if there is no such id."""
        return self._bytes[token]

    def decode_tokens_bytes(self, tokens: Iterable[int]) -> list[bytes]:
        """Returns the bytes of each token."""
        return [self._bytes[token] for token in tokens]

    def decode_bytes(self, tokens: Iterable[int]) -> bytes:
        """Returns the bytes of tokens; raises KeyError for an id that does not exist."""
        return b"".join(self.decode_tokens_bytes(tokens))

    def decode(self, tokens: Iterable[int], errors: str = "replace") -> str:
        """Returns the text of tokens; `errors` as for `bytes.decode`."""
        return self.decode_bytes(tokens).decode(errors=errors)

    def decode_with_offsets(self, tokens: Sequence[int]) -> tuple[str, list[int]]:
        """Returns the text of tokens, and the index of the character that each begins in."""
        n, offsets = 0, []
        for data in (parts := self.decode_tokens_bytes(tokens)):
            offsets.append(max(0, n - (0x80 <= data[0] < 0xC0)))
            n += sum(not 0x80 <= byte < 0xC0 for byte in data)
        return b"".join(parts).decode(), offsets

    def decode_batch(
        self, batch: Iterable[Iterable[int]], *, errors: str = "replace", num_threads: int = 8
    ) -> list[str]:
        """Returns the texts of several lists of tokens; `num_threads` is taken and has no effect."""
        return [self.decode(tokens, errors) for tokens in batch]

    def decode_bytes_batch(self, batch: Iterable[Iterable[int]], *, num_threads: int = 8) -> list[bytes]:
        """Returns the bytes of several lists of tokens; `num_threads` is taken and has no effect."""
        return [self.decode_bytes(tokens) for tokens in batch]

    # What there is.

    @functools.cached_property
    def _ids(self) -> dict[bytes, int]:
        return {data: i for i, data in self._bytes.items()}

    def token_byte_values(self) -> list[bytes]:
        """Returns the bytes of all tokens that are not special, in order of bytes."""
        return sorted(data for i, data in self._bytes.items() if i not in self._special.values())

    @property
    def eot_token(self) -> int:
        """The id of `<|endoftext|>`; KeyError if there is none."""
        return self._special["<|endoftext|>"]

    @property
    def special_tokens_set(self) -> set[str]:
        """The special tokens."""
        return set(self._special)

    def is_special_token(self, token: int) -> bool:
        """Whether an id is that of a special token."""
        return token in self._special.values()

    @functools.cached_property
    def max_token_value(self) -> int:
        """The largest id."""
        return max(self._bytes)

    @property
    def n_vocab(self) -> int:
        """One more than the largest id."""
        return self.max_token_value + 1


def _whole(text: str) -> str:
    """Returns a text without halves of surrogate pairs; two that belong together become their character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


@functools.lru_cache(maxsize=128)
def _pattern(tokens: frozenset[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(tokens, key=lambda token: (-len(token), token)))))
