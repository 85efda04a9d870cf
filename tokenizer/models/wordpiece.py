# SPDX-License-Identifier: Apache-2.0
"""WordPiece: greedy longest match, with four policies for characters the vocabulary does not have."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenizer.kernels import wordpiece as kernels
from tokenizer.kernels.byte_trie import ByteTrie, build_trie
from tokenizer.models.ids import check_ids

OOV_POLICIES = {
    "word": kernels.OOV_WORD,
    "contain": kernels.OOV_CONTAIN,
    "char": kernels.OOV_CHAR,
    "byte": kernels.OOV_BYTE,
}
"""Name of each policy for what is not in the vocabulary, and its number in the kernels."""


class WordPieceTables(NamedTuple):
    """A WordPiece vocabulary as the kernels read it."""

    trie: ByteTrie
    """The entries, under two roots: those that begin a word, and those that continue one, without their prefix.

    Under the first the prefix leads to the second, as an entry with a prefix also begins a word that begins so.
    """
    characters: npt.NDArray[np.int32]
    """int32[2, kernels.wordpiece.N_CHARACTERS]: for characters of three bytes the node that they lead to from each root
    and one more, 0 for none."""
    byte_ids: npt.NDArray[np.int32]
    """int32[256]: ids of the byte tokens `<0x00>` to `<0xFF>`, -1 for those the vocabulary does not have."""
    unk_id: int
    max_word_chars: int
    policy: int
    """One of the values of `OOV_POLICIES`."""


@dataclasses.dataclass(frozen=True, eq=False)
class WordPiece:
    """A vocabulary whose entries begin a word, or continue one when they begin with a prefix.

    A word that begins with the prefix itself begins with such an entry as with any other: `###` is `##` and `#`, and
    would be the entry that continues a word with a `#`.

    What becomes of a word with a character that no entry covers is decided by `oov_policy`:

    - `word`: the whole word is one unknown token, as in BERT;
    - `contain`: a run of unknown characters costs one unknown token, everything else in the word survives;
    - `char`: the word if it is an entry, else character by character, each known or unknown;
    - `byte`: as `contain`, but unknown characters become byte tokens where the vocabulary has all of theirs.

    Under the last three no character that the vocabulary has, in either position, is ever lost, and `max_word_chars`
    does not apply: it limits only what `word` would give up on anyway.

    Raises:
      ValueError: if an id is not in 0..2^24-1 or occurs twice, the unknown token is no entry, the policy has no such
        name, or it is `byte` and the vocabulary has no byte token at all.

    Source: HF tokenizers `models/wordpiece/mod.rs` for `word`; tokenizer/reference.py for the others.
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
        if self.unk_token not in self.vocab:
            raise ValueError(
                f"the vocabulary has no unknown token {self.unk_token!r}; add it, or name another with unk_token="
            )
        check_ids(self.vocab)
        if self.oov_policy == "byte" and not any(f"<0x{b:02X}>" in self.vocab for b in range(256)):
            raise ValueError(
                "oov 'byte' needs byte tokens <0x00>..<0xFF> in the vocabulary, which has none; "
                "add them, or choose one of word, contain, char"
            )

    def __repr__(self) -> str:
        return f"WordPiece({len(self.vocab)} entries, unk_token={self.unk_token!r}, oov_policy={self.oov_policy!r})"

    @functools.cached_property
    def tables(self) -> WordPieceTables:
        """The vocabulary lowered to a byte trie."""
        prefix = self.continuing_subword_prefix
        n_prefix = len(prefix.encode())
        entries = [token.encode() for token in self.vocab]
        ids = np.fromiter(self.vocab.values(), np.int32, len(entries))
        if prefix:
            continuing = np.array([token.startswith(prefix) for token in self.vocab], np.bool_)
            entries = [e[n_prefix:] if c else e for e, c in zip(entries, continuing, strict=True)]
            roots = np.where(continuing, kernels.CONTINUING, kernels.INITIAL).astype(np.int64)
            trie = build_trie(entries, ids, roots, 2, (kernels.INITIAL, prefix.encode(), kernels.CONTINUING))
            # It begins words, as no entry continues one with nothing.
            trie.node_ids[kernels.CONTINUING] = self.vocab.get(prefix, -1)
        else:
            roots = np.repeat(np.array([kernels.INITIAL, kernels.CONTINUING]), len(entries))
            trie = build_trie(entries * 2, np.tile(ids, 2), roots, 2)
        characters = np.zeros((2, kernels.N_CHARACTERS), np.int32)
        kernels.find_characters(trie.edges, characters)
        byte_ids = np.array([self.vocab.get(f"<0x{b:02X}>", -1) for b in range(256)], np.int32)
        return WordPieceTables(
            trie=trie,
            characters=characters,
            byte_ids=byte_ids,
            unk_id=self.vocab[self.unk_token],
            max_word_chars=self.max_input_chars_per_word,
            policy=OOV_POLICIES[self.oov_policy],
        )
