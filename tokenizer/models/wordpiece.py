# SPDX-License-Identifier: Apache-2.0
"""WordPiece: greedy longest match, with four policies for characters that are not in the vocabulary."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.kernels import wordpiece as kernels
from tokenmill.tokenizer.kernels.double_array import BASE_SHIFT, LABEL_MASK
from tokenmill.tokenizer.models.double_array import trie_of
from tokenmill.tokenizer.models.vocabulary import Vocabulary, check_ids
from tokenmill.tokenizer.ragged import read_only

OOV_POLICIES = {
    "word": kernels.OOV_WORD,
    "contain": kernels.OOV_CONTAIN,
    "char": kernels.OOV_CHAR,
    "byte": kernels.OOV_BYTE,
}
"""Policy for unknown characters -> its number in the kernels."""


_CONTINUES = b"\xff"
"""Replaces the prefix of entries that continue a word: a byte that occurs in no text."""


class WordPieceTables(NamedTuple):
    """A WordPiece vocabulary as the kernels read it."""

    units: npt.NDArray[np.int64]
    """int64[n]: the states of the trie, see kernels.double_array, with two roots: of the entries that begin a word, and
    of those that continue one, without their prefix.

    From the first root the prefix leads to the second: an entry with the prefix also begins a word that itself begins
    with the prefix.
    """
    root_bases: npt.NDArray[np.int64]
    """int64[2]."""
    behind_prefix: int
    """The base of the state that the prefix leads to, -1 if there is no prefix."""
    byte_ids: npt.NDArray[np.int32]
    """int32[256]: ids of the byte tokens `<0x00>` to `<0xFF>`, -1 for those the vocabulary does not have."""
    unk_id: int
    """`NO_ENTRY` if the unknown token is none."""
    max_word_chars: int
    policy: int
    """One of the values of `OOV_POLICIES`."""


@dataclasses.dataclass(frozen=True, eq=False)
class WordPiece:
    """A vocabulary whose entries begin a word, or, if they begin with a prefix, continue one.

    A word that itself begins with the prefix may begin with such an entry: the word `###` can be the entry `###`, which
    otherwise continues a word with a `#`.

    `oov_policy` decides what happens to a word with a character that no entry covers:

    - `word`: the whole word is one unknown token, as in BERT;
    - `contain`: a run of unknown characters becomes one unknown token, everything else in the word survives;
    - `char`: the word if it is an entry, otherwise character by character, each known or unknown;
    - `byte`: like `contain`, but unknown characters become byte tokens if the vocabulary has all of theirs.

    Under the last three no character that is in the vocabulary, in either position, is ever lost, and
    `max_input_chars_per_word` does not apply: only `word` makes longer words unknown.

    If the unknown token is no entry, a text that needs it cannot be encoded.

    Raises:
      ValueError: if an id is not in 0..2^24-1 or occurs twice, there is no such policy, or it is `byte` and the
        vocabulary has no byte token at all.

    Source: HF tokenizers `models/wordpiece/mod.rs` for `word`; tokenizer/reference_encoding.py for the others.
    """

    vocab: Mapping[str, int]
    unk_token: str = "[UNK]"
    continuing_subword_prefix: str = "##"
    max_input_chars_per_word: int = 100
    oov_policy: str = "word"

    def __post_init__(self) -> None:
        if self.oov_policy not in OOV_POLICIES:
            raise ValueError(f"oov must be one of {', '.join(OOV_POLICIES)}, got {self.oov_policy!r}")
        if not 1 <= self.max_input_chars_per_word < 1 << 63:  # kernels count in int64
            raise ValueError(
                f"max_input_chars_per_word must be positive and below 2**63, got {self.max_input_chars_per_word!r}"
            )
        check_ids(self.vocab)
        object.__setattr__(self, "vocab", Vocabulary.of(self.vocab))
        if self.oov_policy == "byte" and not any(f"<0x{b:02X}>" in self.vocab for b in range(256)):
            raise ValueError(
                "oov 'byte' needs byte tokens <0x00>..<0xFF> in the vocabulary, which has none; "
                "add them, or choose one of word, contain, char"
            )

    def __repr__(self) -> str:
        return f"WordPiece({len(self.vocab)} entries, unk_token={self.unk_token!r}, oov_policy={self.oov_policy!r})"

    @functools.cached_property
    def tables(self) -> WordPieceTables:
        """The vocabulary lowered to a trie."""
        units, root_bases, behind_prefix = self._trie()
        byte_ids = np.array([self.vocab.get(f"<0x{b:02X}>", -1) for b in range(256)], np.int32)
        return WordPieceTables(
            units=read_only(units),
            root_bases=read_only(root_bases),
            behind_prefix=behind_prefix,
            byte_ids=byte_ids,
            unk_id=Vocabulary.of(self.vocab).unknown_id(self.unk_token),
            max_word_chars=self.max_input_chars_per_word,
            policy=OOV_POLICIES[self.oov_policy],
        )

    def _trie(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]:
        """Returns the states, the bases of the two roots, and that of the state after the prefix."""
        prefix = self.continuing_subword_prefix.encode()
        entries = {token.encode(): token_id for token, token_id in self.vocab.items()}
        if prefix:
            # The entry that is only the prefix cannot continue a word, so it only begins one.
            begins_alone = entries.pop(prefix, -1)
            entries = {
                _CONTINUES + entry[len(prefix) :] if entry.startswith(prefix) else entry: token_id
                for entry, token_id in entries.items()
            } | {prefix: begins_alone}
        trie = trie_of(entries)
        if not prefix:
            return trie.units, np.full(2, trie.root_base), -1
        units, base, place = trie.units.copy(), trie.root_base, 0
        below = int(units[base ^ _CONTINUES[0]])
        behind_prefix = below >> BASE_SHIFT if below & LABEL_MASK == _CONTINUES[0] else 0
        for byte in prefix:
            place = base ^ byte
            base = int(units[place]) >> BASE_SHIFT
        units[place] |= behind_prefix << BASE_SHIFT
        return units, np.array([trie.root_base, behind_prefix]), behind_prefix
