# SPDX-License-Identifier: Apache-2.0
"""`ByteLevel` and `Metaspace`: the pre-tokenizers of byte-level and SentencePiece models."""

import dataclasses
from typing import Literal

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.pre_tokenizers.known_patterns import GPT2_PATTERN
from tokenmill.tokenizer.pre_tokenizers.pattern_syntax import Node, parse
from tokenmill.tokenizer.pre_tokenizers.pieces import Pieces, PreTokenizer, prefixed_by, spaces_replaced
from tokenmill.tokenizer.pre_tokenizers.split import run_node
from tokenmill.tokenizer.unicode.tables import check_bert_unicode
from tokenmill.tokenizer.words import begins_with


@dataclasses.dataclass(frozen=True)
class ByteLevel(PreTokenizer):
    """Splits with the pattern of GPT-2. The bytes of its pre-tokens are those of the text.

    HF then spells every byte as a character of GPT-2's alphabet. Here models take bytes as they are, and only
    vocabularies and `id_to_token` use that alphabet.

    Source: HF tokenizers `pre_tokenizers/byte_level.rs`.
    """

    add_prefix_space: bool = True
    """Puts a space in front of every text that does not begin with one."""
    trim_offsets: bool = True
    """Without effect: HF reads it in post-processing only."""
    use_regex: bool = True
    unicode: str = dataclasses.field(default="8", repr=False)
    """The version of Unicode that says what letters and numbers are; see `unicode.tables.BERT_UNICODE`."""

    def __post_init__(self) -> None:
        check_bert_unicode(self.unicode)

    @property
    def isolated(self) -> Node | None:
        """See `PreTokenizer`."""
        return parse(GPT2_PATTERN, self.unicode) if self.use_regex and not self.add_prefix_space else None

    def split_pieces(self, pieces: Pieces) -> Pieces:
        """See `PreTokenizer`."""
        if self.add_prefix_space:
            pieces = prefixed_by(pieces, b" ", ~begins_with(*pieces.words[:3], b" "))
        return run_node(pieces, parse(GPT2_PATTERN, self.unicode)) if self.use_regex else pieces


@dataclasses.dataclass(frozen=True)
class Metaspace(PreTokenizer):
    """Replaces spaces by a visible character, puts one in front, and splits before each.

    Source: HF tokenizers `pre_tokenizers/metaspace.rs`.
    """

    replacement: str = "\u2581"
    prepend_scheme: Literal["always", "never", "first"] = "always"
    """Where one is put in front, if it is not there: every text, none, or only a text that begins its document."""
    split: bool = True

    def __post_init__(self) -> None:
        if len(self.replacement) != 1:
            raise ValueError(f"replacement must be one character, got {self.replacement!r}")
        if self.prepend_scheme not in ("always", "never", "first"):
            raise ValueError(f"prepend_scheme must be always, never or first, got {self.prepend_scheme!r}")

    def _prefixed(self, pieces: Pieces) -> npt.NDArray[np.bool_]:
        if self.prepend_scheme == "never":
            return np.zeros(pieces.words.n_words, np.bool_)
        there = begins_with(*pieces.words[:3], b" ") | begins_with(*pieces.words[:3], self.replacement.encode())
        return ~there if self.prepend_scheme == "always" else ~there & pieces.is_first

    def split_pieces(self, pieces: Pieces) -> Pieces:
        """See `PreTokenizer`."""
        return spaces_replaced(pieces, self.replacement, self._prefixed(pieces), cuts=self.split)
