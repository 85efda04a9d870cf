# SPDX-License-Identifier: Apache-2.0
"""`BPEFields`: the checked fields of a BPE model, and what follows from them before anything is compiled or merged."""

import dataclasses
import functools
import itertools
import operator
import reprlib
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.kernels.bpe_pairs import NO_RANK
from tokenmill.tokenizer.kernels.bpe_symbols import CONTINUES, ENDS
from tokenmill.tokenizer.models.bpe_merges import MergesOfIds
from tokenmill.tokenizer.models.bpe_tables import Merges
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET
from tokenmill.tokenizer.models.vocabulary import Vocabulary, check_ids

_MAX_MERGES = int(NO_RANK)


@dataclasses.dataclass(frozen=True, eq=False)
class BPEFields:
    """The fields of `BPE`, whose docstring explains them."""

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
        object.__setattr__(self, "vocab", Vocabulary.of(self.vocab))
        if self.dropout is not None and not 0 <= self.dropout <= 1:
            raise ValueError(f"dropout must be in 0..1, got {self.dropout!r}")
        if len(self.merges) >= _MAX_MERGES:
            raise ValueError(f"there must be fewer than {_MAX_MERGES} merges, got {len(self.merges)}")
        if not (isinstance(self.merges, MergesOfIds) and self.merges.are_of(self.vocab, self.prefix)):
            object.__setattr__(self, "merges", MergesOfIds(self._ids_of_merges(), self.columns, self.prefix))
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

    # What follows from the fields.

    @property
    def columns(self) -> Vocabulary:
        """The vocabulary as columns, which it is since it was checked."""
        assert isinstance(self.vocab, Vocabulary)
        return self.vocab

    @property
    def drops(self) -> bool:
        """Whether words are tokenized with dropout."""
        return bool(self.dropout)

    @property
    def max_ids_per_byte(self) -> int:
        """The most ids that a byte of a word can become; more than 1 if markers become byte tokens too."""
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
        """The ids of the byte tokens `<0x00>` to `<0xFF>`, -1 for those that are not in the vocabulary."""
        return self.columns.find([f"<0x{byte:02X}>" for byte in range(256)]).tolist()

    @property
    def knows_everything(self) -> bool:
        """Whether no character can be unknown."""
        if self.byte_fallback and min(self.byte_ids) >= 0:
            return True
        return self.byte_level and int(self.byte_symbols[self.symbol_rows].min()) >= 0

    @property
    def symbol_rows(self) -> list[int]:
        """The rows of the symbol tables that are used: one for each place in a word with its own markers."""
        continues = [0, CONTINUES] if self.prefix else [0]
        return continues + [ENDS | row for row in continues] if self.suffix else continues

    def spelled(self, character: str, row: int) -> str:
        """Returns a character with the markers of its place in a word; row: bits CONTINUES | ENDS."""
        before = self.prefix if row & CONTINUES else ""
        return before + character + (self.suffix if row & ENDS else "")

    @functools.cached_property
    def byte_symbols(self) -> npt.NDArray[np.int32]:
        """int32[4, 256]: id of each byte by its place in a word (CONTINUES | ENDS), -1 for none."""
        spelled = [self.spelled(c, row) for row in range(4) for c in BYTE_ALPHABET]
        return self.columns.find(spelled).astype(np.int32).reshape(4, 256)

    @property
    def merge_ids(self) -> Merges:
        """The merges as ids, in their order."""
        assert isinstance(self.merges, MergesOfIds)
        return self.merges.ids

    def _ids_of_merges(self) -> Merges:
        n_prefix = len(self.prefix.encode())
        if not (set(map(type, self.merges)) <= {tuple, list} and set(map(len, self.merges)) <= {2}):
            raise ValueError(self._bad_merge())
        parts = list(itertools.chain.from_iterable(self.merges))
        lefts, rights = parts[::2], parts[1::2]
        try:
            tails = [without(right, n_prefix) for right in rights] if n_prefix else rights
            columns = lefts, rights, list(map(operator.add, lefts, tails))
            found = [self.columns.find(column).astype(np.int32) for column in columns]
            if min(ids.min(initial=0) for ids in found) < 0:
                raise KeyError("a token that the vocabulary does not have")
            return Merges(*found)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise ValueError(self._bad_merge()) from None

    def _bad_merge(self) -> str:
        """Returns what is wrong with the first bad merge, for a message."""
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
        """int32[n_merges]: for each merge, the first of those with the same rank and the same product."""
        if self.merge_ranks is None:
            return None
        products = self.merge_ids.products
        first = np.empty(int(products.max(initial=-1)) + 1, np.int32)
        first[products[::-1]] = np.arange(products.size - 1, -1, -1, dtype=np.int32)  # of equal ones the last stays
        return first[products]

    @functools.cached_property
    def is_tied(self) -> bool:
        """Whether merges of equal rank make different tokens."""
        if self.merge_ranks is None or not len(self.merge_ranks):
            return False
        return bool(self.merge_ranks[-1] + 1 != np.count_nonzero(np.bincount(self.merge_ids.products)))

    @functools.cached_property
    def ranks(self) -> dict[tuple[str, str], int]:
        """The rank of every pair that merges."""
        ranks = range(len(self.merges)) if self.merge_ranks is None else np.asarray(self.merge_ranks).tolist()
        return {(left, right): rank for rank, (left, right) in zip(ranks, self.merges, strict=True)}


def without(token: str, n_prefix: int) -> str:
    """Cuts the first `n_prefix` bytes off a token, whatever they are, as HF does.

    Raises:
      ValueError: if it has fewer, or they end within a character.
    """
    if n_prefix == 0:
        return token
    encoded = token.encode()
    if len(encoded) < n_prefix:
        raise ValueError(token)
    return encoded[n_prefix:].decode()
