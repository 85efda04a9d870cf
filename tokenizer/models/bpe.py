# SPDX-License-Identifier: Apache-2.0
"""Byte pair encoding: GPT-2 and its heirs on bytes, CLIP and SentencePiece's BPE on characters, tiktoken's ranks."""

import dataclasses
import functools
import itertools
import operator
import reprlib
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tokenizer.kernels.bpe_pairs import NO_RANK
from tokenizer.kernels.bpe_symbols import CONTINUES, ENDS
from tokenizer.models import bpe_twin
from tokenizer.models.bpe_lowering import lower
from tokenizer.models.bpe_merges import MergesOfIds
from tokenizer.models.bpe_ranks import MergesOfRanks, merges_of_ranks
from tokenizer.models.bpe_tables import BPETables, Merges, TiedBPETables, new_bpe_scratch, padded_bytes
from tokenizer.models.bpe_twin import without
from tokenizer.models.byte_alphabet import BYTE_ALPHABET, spelled_tokens
from tokenizer.models.ids import check_all_ids, check_ids
from tokenizer.models.vocabulary import Vocabulary, find_ids

__all__ = ["BPE", "BYTE_ALPHABET", "BPETables", "new_bpe_scratch"]

_MAX_MERGES = int(NO_RANK)


@dataclasses.dataclass(frozen=True, eq=False)
class BPE:
    """A vocabulary and the merges that build its entries from characters, or from bytes, in order of preference.

    A word is cut into characters. Those that begin a word are entries as they are, the others with
    `continuing_subword_prefix` before them, the last with `end_of_word_suffix` after it. Then, of all pairs of
    neighbours that merge, the one whose merge stands first in `merges` does, the leftmost among equals, until none is
    left. Of equal merges only the last counts.

    An unknown character becomes its byte tokens `<0x00>`..`<0xFF>` where `byte_fallback` is set and the vocabulary
    has all of them, else the unknown token, one for a run of them where `fuse_unk` is set, else nothing.

    Args:
      vocab: id of each token.
      merges: pairs of tokens whose concatenation (less the prefix of the second) is a token.
      dropout: probability with which each chance to merge is passed over (BPE-dropout), None or 0 for never.
      unk_token: the unknown token, None for none.
      continuing_subword_prefix, end_of_word_suffix: markers, None or empty for none.
      fuse_unk, byte_fallback: see above.
      ignore_merges: whether a word that is an entry is that token, whatever merging would make of it. Not with dropout.
      byte_level: whether the vocabulary is written in BYTE_ALPHABET and words are bytes.
      merge_ranks: int32[n_merges], how good each merge is, not decreasing from 0; of equally good ones the leftmost
        pair in the word goes first, and where that makes no difference the same token comes out. None: each merge is
        worse than the one before. This is sentencepiece's rule: any two pieces merge that make a piece, by its score.

    Raises:
      ValueError: if an id is not in 0..2^24-1 or occurs twice; a merge is not a pair, or it or what it makes is not
        in the vocabulary; there are 2^24-1 merges or more; dropout is not in 0..1; the unknown token is no entry
        though a word may need it; `merge_ranks` do not fit the merges, or the model that has them works on bytes, has
        a prefix or suffix, ignores merges, or does not fuse unknown tokens.

    Source: HF tokenizers `models/bpe/model.rs` and `word.rs`.
    """

    vocab: Mapping[str, int]
    merges: Sequence[tuple[str, str]]
    dropout: float | None = None
    unk_token: str | None = None
    continuing_subword_prefix: str | None = None
    end_of_word_suffix: str | None = None
    fuse_unk: bool = False
    byte_fallback: bool = False
    ignore_merges: bool = False
    byte_level: bool = False
    merge_ranks: Sequence[int] | npt.NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        check_ids(self.vocab)
        if self.dropout is not None and not 0 <= self.dropout <= 1:
            raise ValueError(f"dropout must be in 0..1, got {self.dropout!r}")
        if len(self.merges) >= _MAX_MERGES:
            raise ValueError(f"there must be fewer than {_MAX_MERGES} merges, got {len(self.merges)}")
        if self.unk_token is not None and self.unk_token not in self.vocab and not self._knows_everything:
            raise ValueError(
                f"the vocabulary has no unknown token {self.unk_token!r}; add it, name another with unk_token=, "
                "or None to drop unknown characters"
            )
        if not (isinstance(self.merges, MergesOfIds) and self.merges.are_of(self.vocab, self.prefix)):
            object.__setattr__(self, "merges", MergesOfIds(self._ids_of_merges(), self.vocab, self.prefix))
        self._check_merge_ranks()

    def _check_merge_ranks(self) -> None:
        if self.merge_ranks is None:
            return
        if self.byte_level or self.prefix or self.suffix or not self.fuse_unk or self.ignore_merges:
            raise ValueError("merge_ranks are for models of characters without markers, whose unknown tokens are fused")
        ranks = np.asarray(self.merge_ranks)
        if ranks.size and ranks.dtype.kind != "i":
            raise ValueError(f"merge_ranks must be integers, got {reprlib.repr(self.merge_ranks)}")
        steps = np.diff(ranks, prepend=0)
        if ranks.size != len(self.merges) or ranks[:1].any() or ((steps != 0) & (steps != 1)).any():
            raise ValueError(
                f"merge_ranks must be {len(self.merges)} numbers, 0 first, each that before it or one more"
            )
        shared = self.shared_ranks
        if shared is not None and not np.array_equal(ranks[shared], ranks):
            i = int(np.flatnonzero(ranks[shared] != ranks)[0])
            raise ValueError(f"merge {i} makes the same token as merge {shared[i]}, but has another of merge_ranks")

    @classmethod
    def from_ranks(cls, ranks: Mapping[bytes, int]) -> "BPE":
        """Makes a byte-level model that does what tiktoken does with `ranks`, the id and rank of every token.

        tiktoken merges any two neighbours that together are a token, lowest rank first, unless the whole word is one.
        Each token comes from one pair at most; with these as merges, in order of rank, and `ignore_merges`, ids are
        the same.

        Raises:
          ValueError: if a byte is no token, there is an empty token, or an id is not in 0..2^24-1 or occurs twice.
        """
        return cls.from_ranked_tokens(*padded_bytes(list(ranks)), list(ranks.values()))

    @classmethod
    def from_ranked_tokens(
        cls,
        values: npt.NDArray[np.uint8],
        offsets: npt.NDArray[np.int64],
        ranks: Sequence[int] | npt.NDArray[np.int64],
    ) -> "BPE":
        """As `from_ranks`, of tokens in arrays.

        Args:
          values, offsets: uint8[n_bytes + 16] and int64[n + 1], the bytes of the tokens, padded.
          ranks: of each.

        Raises:
          ValueError: also if a token stands twice.
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
        merges = MergesOfRanks(found, vocab, (values, offsets, ids.astype(np.int32)))
        return cls(vocab, merges, ignore_merges=True, byte_level=True)

    def __repr__(self) -> str:
        options = [
            f", {field.name}={getattr(self, field.name)!r}"
            for field in dataclasses.fields(self)[2:]
            if field.name != "merge_ranks" and getattr(self, field.name) not in (None, False, "")
        ]
        options += [", sentencepiece's rules"] if self.merge_ranks is not None else []
        return f"BPE({len(self.vocab)} entries, {len(self.merges)} merges{''.join(options)})"

    # What follows from the fields.

    @property
    def drops(self) -> bool:
        """Whether words are to be tokenized with dropout."""
        return bool(self.dropout)

    @property
    def max_ids_per_byte(self) -> int:
        """The most ids that a byte of a word can become: byte tokens are made of markers too."""
        if not self.byte_fallback:
            return 1
        return (2 if self.byte_level else 1) + len(self.prefix.encode()) + len(self.suffix.encode())

    @property
    def prefix(self) -> str:
        """The continuing prefix, empty for none."""
        return self.continuing_subword_prefix or ""

    @property
    def suffix(self) -> str:
        """The suffix that ends words, empty for none."""
        return self.end_of_word_suffix or ""

    @functools.cached_property
    def byte_ids(self) -> list[int]:
        """The ids of the byte tokens `<0x00>` to `<0xFF>`, -1 for those the vocabulary does not have."""
        return find_ids(self.vocab, [f"<0x{byte:02X}>" for byte in range(256)]).tolist()

    @property
    def _knows_everything(self) -> bool:
        if self.byte_fallback and min(self.byte_ids) >= 0:
            return True
        return self.byte_level and int(self.byte_symbols[self.symbol_rows].min()) >= 0

    @property
    def symbol_rows(self) -> list[int]:
        """The rows of symbol tables that are used: places in a word where symbols look different."""
        continues = [0, CONTINUES] if self.prefix else [0]
        return continues + [ENDS | row for row in continues] if self.suffix else continues

    def spelled(self, character: str, row: int) -> str:
        """Returns what a character looks like at a place of a word, CONTINUES | ENDS."""
        before = self.prefix if row & CONTINUES else ""
        return before + character + (self.suffix if row & ENDS else "")

    @functools.cached_property
    def byte_symbols(self) -> npt.NDArray[np.int32]:
        """int32[4, 256]: id of each byte by where it stands (CONTINUES | ENDS), -1 for none."""
        spelled = [self.spelled(c, row) for row in range(4) for c in BYTE_ALPHABET]
        return find_ids(self.vocab, spelled).astype(np.int32).reshape(4, 256)

    @property
    def merge_ids(self) -> Merges:
        """The merges as ids, in their order."""
        assert isinstance(self.merges, MergesOfIds)
        return self.merges.ids

    def _ids_of_merges(self) -> Merges:
        n_prefix, n = len(self.prefix.encode()), len(self.merges)
        if not (set(map(type, self.merges)) <= {tuple, list} and set(map(len, self.merges)) <= {2}):
            raise ValueError(self._bad_merge())
        parts = list(itertools.chain.from_iterable(self.merges))
        lefts, rights = parts[::2], parts[1::2]
        try:
            tails = [without(right, n_prefix) for right in rights] if n_prefix else rights
            columns = lefts, rights, list(map(operator.add, lefts, tails))
            if isinstance(self.vocab, Vocabulary):
                found = [self.vocab.find(column).astype(np.int32) for column in columns]
                if min(ids.min(initial=0) for ids in found) < 0:
                    raise KeyError("a token that the vocabulary does not have")
                return Merges(*found)
            return Merges(*(np.fromiter(map(self.vocab.__getitem__, column), np.int32, n) for column in columns))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise ValueError(self._bad_merge()) from None

    def _bad_merge(self) -> str:
        """Says what is wrong with the first bad merge."""
        n_prefix = len(self.prefix.encode())
        for rank, merge in enumerate(self.merges):
            if type(merge) not in (tuple, list) or len(merge) != 2 or not all(isinstance(part, str) for part in merge):
                return f"merge {rank} must be a pair of tokens, got {merge!r}"
            left, right = merge
            for token in merge:
                if token not in self.vocab:
                    return f"merge {rank} is of {left!r} and {right!r}, but the vocabulary has no token {token!r}"
            try:
                product = left + without(right, n_prefix)
            except ValueError:
                return f"merge {rank} is of {left!r} and {right!r}, but {right!r} is shorter than the continuing prefix"
            if product not in self.vocab:
                return f"merge {rank} of {left!r} and {right!r} makes {product!r}, which the vocabulary does not have"
        raise AssertionError("every merge is good")

    @functools.cached_property
    def shared_ranks(self) -> npt.NDArray[np.int32] | None:
        """int32[n_merges]: for merges that are equally good because they make the same token, the first of them."""
        if self.merge_ranks is None:
            return None
        products = self.merge_ids.products
        first = np.empty(int(products.max(initial=-1)) + 1, np.int32)
        first[products[::-1]] = np.arange(products.size - 1, -1, -1, dtype=np.int32)  # of equal ones the last one stays
        return first[products]

    @functools.cached_property
    def is_tied(self) -> bool:
        """Whether merges that make different tokens are equally good."""
        if self.merge_ranks is None or not len(self.merge_ranks):
            return False
        return bool(self.merge_ranks[-1] + 1 != np.count_nonzero(np.bincount(self.merge_ids.products)))

    @functools.cached_property
    def tied_tables(self) -> TiedBPETables | None:
        """The tables where merges that make different tokens are equally good, None where none are."""
        return TiedBPETables(self.tables, np.asarray(self.merge_ranks, np.uint32)) if self.is_tied else None

    @functools.cached_property
    def tables(self) -> BPETables:
        """The model lowered to arrays, to encode without dropout."""
        return lower(self)

    @functools.cached_property
    def dropout_tables(self) -> BPETables:
        """The same for BPE-dropout, which may make merges that are never made without."""
        return lower(self, dropping=True)

    # The slow twin of the kernels.

    @functools.cached_property
    def ranks(self) -> dict[tuple[str, str], int]:
        """The rank of every pair that merges."""
        ranks = range(len(self.merges)) if self.merge_ranks is None else np.asarray(self.merge_ranks).tolist()
        return {(left, right): rank for rank, (left, right) in zip(ranks, self.merges, strict=True)}

    def tokenize(self, word: str, dropout_key: int | None = None) -> list[tuple[int, int]]:
        """Tokenizes one word in plain Python: the id of each token, and the character of the word at which it ends.

        A token that ends within a character, as byte-level tokens may, counts as ending after it.
        """
        starts = [0]
        for character in word:
            starts.append(starts[-1] + len(character.encode()))
        found = self.tokenize_bytes(word.encode(), dropout_key)
        return [(token, sum(start < end for start in starts[:-1])) for token, end in found]

    def tokenize_bytes(self, word: bytes, dropout_key: int | None = None) -> list[tuple[int, int]]:
        """Tokenizes one word in plain Python: the id of each token, and the byte of the word at which it ends.

        Args:
          word: the bytes of the word; UTF-8 unless the model is byte-level.
          dropout_key: names the random stream, see `dropout_key`; None for no dropout.
        """
        return bpe_twin.tokenize_bytes(self, word, dropout_key)
