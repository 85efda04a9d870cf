# SPDX-License-Identifier: Apache-2.0
"""Byte pair encoding: GPT-2 and its like on bytes, CLIP and SentencePiece's BPE on characters, tiktoken's ranks."""

import bisect
import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.kernels.bpe_pairs import build_byte_pairs
from tokenmill.tokenizer.kernels.bpe_symbols import CONTINUES, ENDS
from tokenmill.tokenizer.models import bpe_reference
from tokenmill.tokenizer.models.bpe_fields import BPEFields
from tokenmill.tokenizer.models.bpe_merges import MergesOfIds, merges_of_ranks
from tokenmill.tokenizer.models.bpe_tables import (
    BPETables,
    crossings_of,
    joins_of,
    new_bpe_scratch,
    pair_table,
    reachable,
    take_part,
)
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET, spelled_tokens
from tokenmill.tokenizer.models.kernels.bpe_merges import find_unmerged
from tokenmill.tokenizer.models.vocabulary import (
    WORD_PADDING,
    Vocabulary,
    Words,
    check_all_ids,
    offsets_of,
    padded_bytes,
    word_table,
)

__all__ = ["BPE", "BYTE_ALPHABET", "BPETables", "new_bpe_scratch"]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class BPE(BPEFields):
    """A vocabulary and the merges that build its entries from characters, or from bytes, in order of preference.

    A word is cut into characters. All but the first get `continuing_subword_prefix` in front, the last gets
    `end_of_word_suffix` behind, and each is looked up in this form. Then, of all pairs of neighbours that merge, the
    one whose merge comes first in `merges` is merged, the leftmost among equals, until none is left. If a merge occurs
    twice, only the last one counts.

    An unknown character becomes its byte tokens `<0x00>`..`<0xFF>` if `byte_fallback` is set and the vocabulary has
    all of them; otherwise the unknown token, one for a whole run if `fuse_unk` is set; without one, nothing. If there
    is one and the vocabulary lacks it, a text with an unknown character cannot be encoded.

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
        the vocabulary; there are 2^24-1 merges or more; dropout is not in 0..1; `merge_ranks` do not fit the merges,
        or are given for a model that works on bytes, has a prefix or suffix, ignores merges, or does not fuse unknown
        tokens.

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
        return _lower(self)

    @functools.cached_property
    def dropout_tables(self) -> BPETables:
        """The same for BPE-dropout, which may make merges that are never made without dropout."""
        return _lower(self, dropping=True)

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


# Lowering to arrays.

_ALPHABET = np.array([ord(c) for c in BYTE_ALPHABET], np.int32)
_N_CODE_POINTS = 0x110000


def _lower(model: BPE, *, dropping: bool = False) -> BPETables:
    """Lowers a model to arrays; dropping: keeps the merges that can only be made if others are dropped."""
    unk_id = -1 if model.unk_token is None else model.columns.find_one(model.unk_token)
    byte_symbols, knows_all = model.byte_symbols, model.knows_everything
    plain = model.byte_level and not model.prefix and int(byte_symbols[model.symbol_rows].min()) >= 0
    characters, characters_known = _characters(model)
    named = np.array([*model.byte_ids, unk_id], np.int64)
    symbols = np.array([*characters_known, *byte_symbols[model.symbol_rows].ravel()], np.int64)
    initial = np.concatenate([symbols, named])
    initial = initial[initial >= 0]
    merges = model.merge_ids
    # Byte tokens, the unknown token and markers can give a text a second spelling.
    is_plain = not (dropping or model.is_tied or model.prefix or model.suffix or take_part(named, merges))
    found = reachable(merges, initial, always=model.ignore_merges) if is_plain else None
    if found is None:
        pairs, bits = pair_table(merges.lefts, merges.rights, model.shared_ranks)
    else:
        merges, pairs, bits, _ = found
    byte_pairs = np.empty(1 << 16 if plain else 0, np.uint32)
    if plain:
        build_byte_pairs(byte_symbols, pairs, bits, byte_pairs)
    words = _words(model) if plain or model.ignore_merges else None
    crossings, partial, apart = (np.zeros(0, np.uint64),) * 3
    if plain and words:
        crossings, partial, apart = crossings_of(*_without_suffix(*words[:2], model.suffix.encode()))
    tables = BPETables(
        pairs=pairs,
        pair_bits=bits,
        products=merges.products,
        first_product=_first_product(merges.products),
        orders=np.array(model.merge_ranks if model.is_tied and not dropping else [], np.uint32),
        joins=joins_of(merges, initial),
        crossings=crossings,
        partial=partial,
        apart=apart,
        max_ids_per_byte=model.max_ids_per_byte,
        byte_level=model.byte_level,
        plain_bytes=plain,
        byte_symbols=byte_symbols,
        byte_pairs=byte_pairs,
        alphabet=_ALPHABET,
        characters=characters,
        prefix=np.frombuffer(bytearray(model.prefix.encode()), np.uint8),
        suffix=np.frombuffer(bytearray(model.suffix.encode()), np.uint8),
        byte_ids=np.array(model.byte_ids, np.int32),
        byte_fallback=model.byte_fallback,
        unk_id=unk_id if model.unk_token is None or knows_all else model.columns.unknown_id(model.unk_token),
        fuse_unk=model.fuse_unk,
        # HF draws float32, which are multiples of 2**-24, and compares them with the float32 of this.
        dropout_threshold=dropping * int(np.ceil(np.float32(model.dropout or 0) * np.float32(1 << 24))),
        whole_slots=np.zeros((1, 4), np.int64),
        whole_pool=np.zeros(0, np.uint8),
        longest_whole=0,
    )
    if not model.ignore_merges or not words:
        return tables
    made = None
    if found is not None:
        made = found.made
        # Words may begin with these as symbols, but not by their own spelling.
        others = np.zeros(made.size, np.bool_)
        others[named[named >= 0]] = True
        others[symbols[symbols >= 0]] = False
        made[others] = False
    return _with_whole_words(model, tables, words, made)


def _first_product(products: npt.NDArray[np.int32]) -> int:
    """Returns `BPETables.first_product`."""
    return int(products[0]) if products.size and bool((np.diff(products) == 1).all()) else -1


def _characters(model: BPE) -> tuple[npt.NDArray[np.int32], list[int]]:
    """Returns the table of characters, see `BPETables.characters`, and the ids in it."""
    if model.byte_level:
        return np.zeros((0, _N_CODE_POINTS), np.int32), []
    rows = model.symbol_rows
    characters = np.zeros((rows[-1] + 1, _N_CODE_POINTS), np.int32)
    initial = []
    ids = model.columns.ids
    points, offsets = model.columns.tokens.characters
    for row in rows:
        before = model.prefix if row & CONTINUES else ""
        after = model.suffix if row & ENDS else ""
        found = np.flatnonzero(np.diff(offsets) == len(before) + 1 + len(after))
        places = offsets[found]
        is_one = np.ones(found.size, np.bool_)
        for k, c in enumerate(before):
            is_one &= points[places + k] == ord(c)
        for k, c in enumerate(after, len(before) + 1):
            is_one &= points[places + k] == ord(c)
        found, places = found[is_one], places[is_one]
        characters[row, points[places + len(before)]] = ids[found] + 1
        initial += ids[found].tolist()
    return characters, initial


def _with_whole_words(model: BPE, tables: BPETables, words: Words, made: npt.NDArray[np.bool_] | None) -> BPETables:
    """Adds the word table of the entries that merges would not make, which are few or none.

    made: bool[n], the ids that merges make, if that is known already; larger ids are not made.
    """
    values, offsets, ids = words
    lengths = np.diff(offsets)
    if made is not None:
        unmerged = np.ones(ids.size, np.bool_)
        is_there = ids < made.size
        unmerged[is_there] = ~made[ids[is_there]]
    else:
        longest = int(lengths.max(initial=1))
        scratch = new_bpe_scratch(longest, tables)
        unmerged = np.empty(ids.size, np.bool_)
        n_ids = longest * model.max_ids_per_byte
        out, ends = np.empty(n_ids, np.int32), np.empty(n_ids, np.int64)
        find_unmerged(values, offsets, ids, tables, scratch, out, ends, unmerged)
    values = np.append(values[:-WORD_PADDING][np.repeat(unmerged, lengths)], np.zeros(WORD_PADDING, np.uint8))
    lengths, ids = lengths[unmerged], ids[unmerged]
    slots, pool, _ = word_table(values, offsets_of(lengths), ids)
    return tables._replace(whole_slots=slots, whole_pool=pool, longest_whole=int(lengths.max(initial=0)))


def _without_suffix(
    values: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], suffix: bytes
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Returns the padded bytes and offsets of words, without the suffix of those that end with it."""
    lengths = np.diff(offsets)
    has_suffix = lengths >= len(suffix)
    for k, byte in enumerate(suffix):
        has_suffix &= values[np.maximum(offsets[1:] - len(suffix) + k, 0)] == byte
    if not suffix or not has_suffix.any():
        return values, offsets
    places = np.arange(values.size - WORD_PADDING)
    stops = np.where(has_suffix, offsets[1:] - len(suffix), offsets[1:])
    kept = places < np.repeat(stops, lengths)
    return np.append(values[:-WORD_PADDING][kept], np.zeros(WORD_PADDING, np.uint8)), offsets_of(stops - offsets[:-1])


def _words(model: BPE) -> Words:
    if not model.byte_level:
        return model.columns.words
    # A byte-level word has as many bytes as the entry has characters.
    ids = model.columns.ids
    points, offsets = model.columns.tokens.characters
    lengths = np.diff(offsets)
    byte_of = np.full(0x145, -1, np.int16)
    byte_of[_ALPHABET] = np.arange(256)
    spelled = byte_of[np.minimum(points, 0x144)]
    kept = lengths > 0
    foreign = spelled < 0
    if foreign.any():
        kept[np.repeat(np.arange(ids.size), lengths)[foreign]] = False
        spelled = spelled[np.repeat(kept, lengths)]
    values = np.zeros(spelled.size + WORD_PADDING, np.uint8)
    values[: spelled.size] = spelled
    return values, offsets_of(lengths[kept]), ids[kept]
