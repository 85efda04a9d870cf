# SPDX-License-Identifier: Apache-2.0
"""Exceptions a caller would catch.

ValueError
  TokenizerFileError      a tokenizer file that is broken, or holds something that TokenMill cannot represent
  UnknownCharacterError   a text that cannot be tokenized
  TextGrowthError         a text that the steps of a tokenizer make many times as long
"""

from collections.abc import Mapping

_MAX_CHARS = 800


def check_list(name: str, values: object) -> None:
    """Checks that an argument is not one string, or a mapping, whose characters or keys would be taken for its values.

    Raises:
      TypeError: if it is; the message says what to pass.
    """
    if isinstance(values, str | bytes):
        raise TypeError(f"{name} must be a list, got one {type(values).__name__}, {values!r:.80}; put it into a list")
    if isinstance(values, Mapping):
        raise TypeError(f"{name} must be a list, got a {type(values).__name__}; pass its values, as a list")


def check_strings(name: str, values: object) -> None:
    """Checks like `check_list`, and that every value is a str; `values` must not be an iterator."""
    check_list(name, values)
    for value in values:  # type: ignore[attr-defined]
        if not isinstance(value, str):
            raise TypeError(f"{name} must hold str, got {value!r:.80}")


class TokenizerFileError(ValueError):
    """A tokenizer file cannot be used; the message names the file, the place in it and the value.

    The middle of a long message is left out, because a value from a file may be of any length.
    """

    def __init__(self, message: str) -> None:
        if len(message) > _MAX_CHARS:
            message = f"{message[: _MAX_CHARS // 2]} [...] {message[-_MAX_CHARS // 2 :]}"
        super().__init__(message)


class UnknownCharacterError(ValueError):
    """A text holds a character that is not in the vocabulary, and the model has no unknown token."""

    def __init__(
        self, message: str = "a text holds a character that is not in the vocabulary, which has no unknown token"
    ) -> None:
        super().__init__(message)


class TextGrowthError(ValueError, MemoryError):
    """The steps of a tokenizer file make far more of a text than any real one does.

    It is a MemoryError, too: a text that goes on growing needs more memory than there is.
    """
