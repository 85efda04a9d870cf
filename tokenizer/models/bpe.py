# SPDX-License-Identifier: Apache-2.0
"""Byte pair encoding: GPT-2 and its like on bytes, CLIP and SentencePiece's BPE on characters, tiktoken's ranks."""

import bisect
import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.models import bpe_reference
from tokenmill.tokenizer.models.bpe_fields import BPEFields
from tokenmill.tokenizer.models.bpe_lowering import lower
from tokenmill.tokenizer.models.bpe_merges import MergesOfIds, merges_of_ranks
from tokenmill.tokenizer.models.bpe_tables import BPETables, new_bpe_scratch
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET, spelled_tokens
from tokenmill.tokenizer.models.vocabulary import Vocabulary, check_all_ids, padded_bytes

__all__ = ["BPE", "BYTE_ALPHABET", "BPETables", "new_bpe_scratch"]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class BPE(BPEFields):
    """A vocabulary and the merges that build its entries from characters, or from bytes, in order of preference.

    A word is cut into characters. All but the first get `continuing_subword_prefix` in front, the last gets
    `end_of_word_suffix` behind, and each is looked up in this form. Then, of all pairs of neighbours that merge, the
    one whose merge comes first in `merges` is merged, the leftmost among equals, until none is left. If a merge occurs
    twice, only the last one counts.

    An unknown character becomes its byte tokens `<0x00>`..`<0xFF>` if `byte_fallback` is set and the vocabulary has
    all of them; otherwise the unknown token, one for a whole run if `fuse_unk` is set; without one, nothing.

    Args:
      vocab: token -> id.
      merges: pairs of tokens whose concatenation (less the prefix of the second) is a token.
      dropout: probability with which a possible merge is skipped (BPE-dropout), None or 0 for never.
      unk_token: the unknown token, None for none.
      continuing_subword_prefix, end_of_word_suffix: markers, None or empty for none.
      fuse_unk, byte_fallback: see above.
      ignore_merges: whether a word that is an entry is that token, whatever merges would make of it. Not with dropout.
      byte_level: whether the vocabulary is written in BYTE_ALPHABET and words are bytes.
      merge_ranks: int32[n_merges], the priority of each merge, from 0, not decreasing. Of pairs with equal ranks the
        leftmost in the word merges first. None: each merge has the next rank. Equal ranks are needed for
        sentencepiece's rule: any two pieces that make a piece merge, by its score.

    Raises:
      ValueError: if an id is not in 0..2^24-1 or occurs twice; a merge is not a pair, or it or its product is not in
        the vocabulary; there are 2^24-1 merges or more; dropout is not in 0..1; the unknown token is no entry though a
        word may need it; `merge_ranks` do not fit the merges, or are given for a model that works on bytes, has a
        prefix or suffix, ignores merges, or does not fuse unknown tokens.

    Source: HF tokenizers `models/bpe/model.rs` and `word.rs`.
    """

    @classmethod
    def from_ranks(cls, ranks: Mapping[bytes, int]) -> "BPE":
        """Makes a byte-level model that does what tiktoken does; ranks: token -> its id, which is its rank too.

        tiktoken merges any two neighbours that together are a token, lowest rank first, unless the whole word is a
        token. Each token can come from at most one pair; with these pairs as merges, in order of rank, and
        `ignore_merges`, ids are the same.

        Raises:
          ValueError: if a byte is no token, a token is empty, or an id is not in 0..2^24-1 or occurs twice.
        """
        return cls.from_ranked_tokens(*padded_bytes(list(ranks)), list(ranks.values()))

    @classmethod
    def from_ranked_tokens(
        cls,
        values: npt.NDArray[np.uint8],
        offsets: npt.NDArray[np.int64],
        ranks: Sequence[int] | npt.NDArray[np.int64],
    ) -> "BPE":
        """Does `from_ranks` for tokens in arrays.

        Args:
          values, offsets: uint8[n_bytes + 16] and int64[n + 1], the bytes of the tokens, padded.
          ranks: the rank of each.

        Raises:
          ValueError: as `from_ranks`, or if a token occurs twice.
        """
        lengths = np.diff(offsets)
        tokens = spelled_tokens(values, offsets)
        if tokens.numbered is None:
            seen: dict[str, int] = {}
            for token, rank in zip(tokens, ranks, strict=True):
                if token in seen:
                    raise ValueError(f"token {token!r} stands twice, with ranks {seen[token]} and {rank}")
                seen[token] = rank
            raise ValueError(f"a token must not be empty, but id {seen['']} is")
        single = np.flatnonzero(lengths == 1)
        missing = np.flatnonzero(np.bincount(values[offsets[single]], minlength=256) == 0)
        if missing.size:
            first, others = bytes([missing[0]]), missing.size - 1
            raise ValueError(f"every byte must be a token, but {first!r} and {others} others are not")
        ids = check_all_ids(ranks, tokens)
        vocab = Vocabulary(tokens, ids.astype(np.int32), are_distinct=True)
        bytes_alone = cls({tokens[i]: int(ids[i]) for i in single.tolist()}, [], byte_level=True)
        found = merges_of_ranks(values, offsets, ids, bytes_alone.tables)
        return cls(vocab, MergesOfIds(found, vocab), ignore_merges=True, byte_level=True)

    def __repr__(self) -> str:
        options = [
            f", {field.name}={getattr(self, field.name)!r}"
            for field in dataclasses.fields(self)[2:]
            if field.name != "merge_ranks" and getattr(self, field.name) not in (None, False, "")
        ]
        options += [", sentencepiece's rules"] if self.merge_ranks is not None else []
        return f"BPE({len(self.vocab)} entries, {len(self.merges)} merges{''.join(options)})"

    # The arrays that the kernels read.

    @functools.cached_property
    def tables(self) -> BPETables:
        """The model lowered to arrays, for encoding without dropout."""
        return lower(self)

    @functools.cached_property
    def dropout_tables(self) -> BPETables:
        """The same for BPE-dropout, which may make merges that are never made without dropout."""
        return lower(self, dropping=True)

    # The reference implementation of the kernels.

    def tokenize(self, word: str, dropout_key: int | None = None) -> list[tuple[int, int]]:
        """Tokenizes one word in plain Python; returns each token's id and its end in the word, in characters.

        A token that ends within a character, as byte-level tokens may, counts as ending after it.
        """
        starts = [0]
        for character in word:
            starts.append(starts[-1] + len(character.encode()))
        found = self.tokenize_bytes(word.encode(), dropout_key)
        return [(token, bisect.bisect_left(starts, end, hi=len(word))) for token, end in found]

    def tokenize_bytes(self, word: bytes, dropout_key: int | None = None) -> list[tuple[int, int]]:
        """Tokenizes one word in plain Python; returns each token's id and its end in the word, in bytes.

        Args:
          word: the bytes of the word; UTF-8 unless the model is byte-level.
          dropout_key: the key of the random stream, see `bpe_reference.dropout_key`; None for no dropout.
        """
        return bpe_reference.tokenize_bytes(self, word, dropout_key)
