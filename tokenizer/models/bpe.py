# SPDX-License-Identifier: Apache-2.0
"""Byte pair encoding: GPT-2 and its heirs on bytes, CLIP and SentencePiece's BPE on characters, tiktoken's ranks."""

import dataclasses
import functools
import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from tokenizer.kernels import bpe as kernels
from tokenizer.kernels.bpe_pairs import NO_RANK, build_byte_pairs
from tokenizer.models import bpe_twin
from tokenizer.models.bpe_tables import (
    COLLIDING,
    PAIR_TABLE_TRIES,
    WORD_PADDING,
    BPETables,
    Merges,
    TiedBPETables,
    are_ordered,
    check_ids,
    crossings_of,
    empty_pairs,
    joins_of,
    new_bpe_scratch,
    offsets_of,
    padded_bytes,
    pair_bits,
    pair_table,
    utf8_words,
    word_table,
)
from tokenizer.models.bpe_twin import BYTE_ALPHABET, without

__all__ = ["BPE", "BYTE_ALPHABET", "BPETables", "new_bpe_scratch"]

_ALPHABET = np.array([ord(c) for c in BYTE_ALPHABET], np.int32)
_N_CODE_POINTS = 0x110000
_MAX_MERGES = int(NO_RANK)


class _MergesOfIds(Sequence[tuple[str, str]]):
    """The merges found in a tiktoken vocabulary, spelled out only for who looks at them."""

    def __init__(self, merges: Merges, tokens: Mapping[int, str]) -> None:
        self.ids, self._tokens = merges, tokens

    def __len__(self) -> int:
        return self.ids.lefts.size

    @overload
    def __getitem__(self, index: int) -> tuple[str, str]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, str]]: ...
    def __getitem__(self, index: int | slice) -> tuple[str, str] | list[tuple[str, str]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self._tokens[int(self.ids.lefts[index])], self._tokens[int(self.ids.rights[index])]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        tokens = self._tokens
        for left, right in zip(self.ids.lefts.tolist(), self.ids.rights.tolist(), strict=True):
            yield tokens[left], tokens[right]


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
    merge_ranks: Sequence[int] | None = None

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
        _ = self._merges
        self._check_merge_ranks()

    def _check_merge_ranks(self) -> None:
        if self.merge_ranks is None:
            return
        if self.byte_level or self.prefix or self.suffix or not self.fuse_unk or self.ignore_merges:
            raise ValueError("merge_ranks are for models of characters without markers, whose unknown tokens are fused")
        ranks = np.asarray(self.merge_ranks, np.int64)
        if ranks.size != len(self.merges) or (ranks.size and ranks[0] != 0) or not set(np.diff(ranks)) <= {0, 1}:
            raise ValueError(
                f"merge_ranks must be {len(self.merges)} numbers, 0 first, each that before it or one more"
            )
        shared = self._shared_ranks
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
        missing = [b for b in range(256) if bytes([b]) not in ranks]
        if missing:
            others = len(missing) - 1
            raise ValueError(f"every byte must be a token, but {bytes(missing[:1])!r} and {others} others are not")
        if b"" in ranks:
            raise ValueError(f"a token must not be empty, but id {ranks[b'']} is")
        tokens = list(ranks)
        values, offsets = padded_bytes(tokens)
        text = _ALPHABET[values].tobytes().decode("utf-32-le")
        bounds = offsets.tolist()
        vocab = dict(zip([text[a:b] for a, b in itertools.pairwise(bounds)], ranks.values(), strict=True))
        ids = check_ids(vocab)
        found = _merges_of_ranks(tokens, values, offsets, ids)
        merges = _MergesOfIds(found, dict(zip(ids.tolist(), vocab, strict=True)))
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
    def _byte_ids(self) -> list[int]:
        return [self.vocab.get(f"<0x{byte:02X}>", -1) for byte in range(256)]

    @property
    def _knows_everything(self) -> bool:
        if self.byte_fallback and min(self._byte_ids) >= 0:
            return True
        return self.byte_level and int(self._byte_symbols[self._rows].min()) >= 0

    @property
    def _rows(self) -> list[int]:
        """The rows of symbol tables that are used: places in a word where symbols look different."""
        continues = [0, kernels.CONTINUES] if self.prefix else [0]
        return continues + [kernels.ENDS | row for row in continues] if self.suffix else continues

    def spelled(self, character: str, row: int) -> str:
        """Returns what a character looks like at a place of a word, CONTINUES | ENDS."""
        before = self.prefix if row & kernels.CONTINUES else ""
        return before + character + (self.suffix if row & kernels.ENDS else "")

    @functools.cached_property
    def _byte_symbols(self) -> npt.NDArray[np.int32]:
        rows = [[self.vocab.get(self.spelled(c, row), -1) for c in BYTE_ALPHABET] for row in range(4)]
        return np.array(rows, np.int32)

    @functools.cached_property
    def _merges(self) -> Merges:
        if isinstance(self.merges, _MergesOfIds):
            return self.merges.ids
        n_prefix, n = len(self.prefix.encode()), len(self.merges)
        if not (set(map(type, self.merges)) <= {tuple, list} and set(map(len, self.merges)) <= {2}):
            raise ValueError(self._bad_merge())
        lefts, rights = (list(map(operator.itemgetter(side), self.merges)) for side in (0, 1))
        try:
            tails = [without(right, n_prefix) for right in rights] if n_prefix else rights
            columns = lefts, rights, map(operator.add, lefts, tails)
            return Merges(*(np.fromiter(map(self.vocab.__getitem__, column), np.int32, n) for column in columns))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise ValueError(self._bad_merge()) from None

    @property
    def merge_ids(self) -> Merges:
        """The merges as ids, in their order."""
        return self._merges

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
    def _shared_ranks(self) -> npt.NDArray[np.int32] | None:
        """int32[n_merges]: for merges that are equally good because they make the same token, the first of them."""
        if self.merge_ranks is None:
            return None
        _, first, of_merge = np.unique(self._merges.products, return_index=True, return_inverse=True)
        return first[of_merge].astype(np.int32)

    @functools.cached_property
    def tied_tables(self) -> TiedBPETables | None:
        """The tables where merges that make different tokens are equally good, None where none are."""
        if self.merge_ranks is None:
            return None
        orders = np.asarray(self.merge_ranks, np.uint32)
        if np.unique(orders).size == np.unique(self._merges.products).size:
            return None
        return TiedBPETables(self.tables, orders)

    @functools.cached_property
    def tables(self) -> BPETables:
        """The model lowered to arrays."""
        lefts, rights, products = self._merges
        pairs, bits = pair_table(lefts, rights, self._shared_ranks)
        unk_id = -1 if self.unk_token is None else self.vocab.get(self.unk_token, -1)
        byte_symbols = self._byte_symbols
        plain = self.byte_level and not self.prefix and int(byte_symbols[self._rows].min()) >= 0
        byte_pairs = np.empty(1 << 16 if plain else 0, np.uint32)
        if plain:
            build_byte_pairs(byte_symbols, pairs, bits, byte_pairs)
        crossings, partial = (
            crossings_of(*self._words()[:2]) if plain else (np.zeros(0, np.uint64), np.zeros(0, np.uint64))
        )
        characters, characters_known = self._characters()
        initial = np.array([*characters_known, *byte_symbols[self._rows].ravel(), *self._byte_ids, unk_id], np.int64)
        tables = BPETables(
            pairs=pairs,
            pair_bits=bits,
            products=products,
            # Merges of one rank may overlap, and lists by rank do not keep them in order.
            ordered=self.merge_ranks is None and are_ordered(self._merges),
            joins=joins_of(self._merges, initial[initial >= 0]),
            crossings=crossings,
            partial=partial,
            max_ids_per_byte=self.max_ids_per_byte,
            byte_level=self.byte_level,
            plain_bytes=plain,
            byte_symbols=byte_symbols,
            byte_pairs=byte_pairs,
            alphabet=_ALPHABET,
            characters=characters,
            prefix=np.frombuffer(bytearray(self.prefix.encode()), np.uint8),
            suffix=np.frombuffer(bytearray(self.suffix.encode()), np.uint8),
            byte_ids=np.array(self._byte_ids, np.int32),
            byte_fallback=self.byte_fallback,
            unk_id=unk_id,
            fuse_unk=self.fuse_unk,
            # HF draws float32, which are multiples of 2**-24, and compares them with the float32 of this.
            dropout_threshold=int(np.ceil(np.float32(self.dropout or 0) * np.float32(1 << 24))),
            whole_slots=np.zeros((1, 4), np.int64),
            whole_pool=np.zeros(0, np.uint8),
            longest_whole=0,
        )
        return self._with_whole_words(tables) if self.ignore_merges else tables

    def _characters(self) -> tuple[npt.NDArray[np.int32], list[int]]:
        """Returns the table of characters, and the ids in it."""
        if self.byte_level:
            return np.zeros((0, _N_CODE_POINTS), np.int32), []
        rows = self._rows
        characters = np.zeros((rows[-1] + 1, _N_CODE_POINTS), np.int32)
        initial = []
        for row in rows:
            before = self.prefix if row & kernels.CONTINUES else ""
            after = self.suffix if row & kernels.ENDS else ""
            n = len(before) + 1 + len(after)
            for token, token_id in self.vocab.items():
                if len(token) == n and token.startswith(before) and token.endswith(after):
                    characters[row, ord(token[len(before)])] = token_id + 1
                    initial.append(token_id)
        return characters, initial

    def _with_whole_words(self, tables: BPETables) -> BPETables:
        """Adds the word table: of the entries that merging would not make, which are few or none."""
        values, offsets, ids = self._words()
        lengths = np.diff(offsets)
        if isinstance(self.merges, _MergesOfIds):
            # Every token that has a pair is made by it; that is how the pair was found.
            made = np.zeros(int(ids.max()) + 1, np.bool_)
            made[tables.products] = True
            unmerged = ~made[ids] & (lengths > 1)
        else:
            longest = int(lengths.max(initial=1))
            scratch = new_bpe_scratch(longest, tables)
            unmerged = np.empty(ids.size, np.bool_)
            n_ids = longest * self.max_ids_per_byte
            out, ends = np.empty(n_ids, np.int32), np.empty(n_ids, np.int64)
            kernels.find_unmerged(values, offsets, ids, tables, scratch, out, ends, unmerged)
        values = np.append(values[:-WORD_PADDING][np.repeat(unmerged, lengths)], np.zeros(WORD_PADDING, np.uint8))
        lengths, ids = lengths[unmerged], ids[unmerged]
        slots, pool = word_table(values, offsets_of(lengths), ids)
        return tables._replace(whole_slots=slots, whole_pool=pool, longest_whole=int(lengths.max(initial=0)))

    def _words(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """Returns the entries that a word can be equal to: padded bytes, offsets, ids."""
        ids = np.fromiter(self.vocab.values(), np.int32, len(self.vocab))
        if not self.byte_level:
            return utf8_words(list(self.vocab), ids)
        # A byte-level word has as many bytes as the entry has characters.
        lengths = np.fromiter(map(len, self.vocab), np.int64, len(self.vocab))
        points = np.frombuffer("".join(self.vocab).encode("utf-32-le"), np.uint32)
        byte_of = np.full(0x145, -1, np.int16)
        byte_of[_ALPHABET] = np.arange(256)
        spelled = byte_of[np.minimum(points, 0x144)]
        foreign = np.zeros(ids.size, np.bool_)
        foreign[np.repeat(np.arange(ids.size), lengths)[spelled < 0]] = True
        kept = ~foreign & (lengths > 0)
        values = spelled[np.repeat(kept, lengths)].astype(np.uint8)
        return np.append(values, np.zeros(WORD_PADDING, np.uint8)), offsets_of(lengths[kept]), ids[kept]

    # The slow twin of the kernels.

    @functools.cached_property
    def ranks(self) -> dict[tuple[str, str], int]:
        """The rank of every pair that merges."""
        ranks = range(len(self.merges)) if self.merge_ranks is None else self.merge_ranks
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


def _merges_of_ranks(
    tokens: Sequence[bytes], values: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], ids: npt.NDArray[np.int64]
) -> Merges:
    lengths = np.diff(offsets)
    by_rank = np.argsort(ids)
    ranks = np.empty(ids.size, np.int32)
    ranks[by_rank] = np.arange(ids.size, dtype=np.int32)
    by_length = np.argsort(lengths, kind="stable")
    lefts, rights = np.empty(ids.size, np.int32), np.empty(ids.size, np.int32)
    single = {BYTE_ALPHABET[token[0]]: int(i) for token, i in zip(tokens, ids, strict=True) if len(token) == 1}
    no_merges = BPE(single, [], byte_level=True).tables._replace(ordered=False, products=ids[by_rank].astype(np.int32))
    scratch = new_bpe_scratch(int(lengths.max()), no_merges)
    for bits in range(pair_bits(ids.size), pair_bits(ids.size) + PAIR_TABLE_TRIES):
        tables = no_merges._replace(pairs=empty_pairs(bits), pair_bits=bits)
        if kernels.recover_merges(values, offsets, ranks, by_length, tables, scratch, lefts, rights):
            made = by_rank[lefts[by_rank] >= 0]
            return Merges(lefts[made], rights[made], ids[made].astype(np.int32))
    raise ValueError(COLLIDING)
