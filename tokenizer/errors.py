# SPDX-License-Identifier: Apache-2.0
"""Exceptions a caller would catch.

ValueError
  TokenizerFileError   a tokenizer file that is broken, or holds what TokenMill cannot represent
"""


class TokenizerFileError(ValueError):
    """A tokenizer file cannot be used; the message names the file, the place in it and the value."""
