# SPDX-License-Identifier: Apache-2.0
"""`UnigramTrainer`: word counts -> Unigram model, by EM over many candidate pieces and pruning down."""

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from tokenmill.tokenizer.models.unigram import PieceType, Unigram
from tokenmill.tokenizer.trainers.base import (
    BYTE_TOKENS,
    Tell,
    Trainer,
    check_encodable,
    check_integers,
    check_size,
    check_sizes,
    check_tokens,
    freeze_strings,
)
from tokenmill.tokenizer.trainers.kernels import unigram_suffixes as kernels
from tokenmill.tokenizer.trainers.unigram_em import Candidates, fixed_point_unit, seed_candidates
from tokenmill.tokenizer.trainers.unigram_seeds import (
    Alphabet,
    Pieces,
    choose_alphabet,
    find_seeds,
    lay_out,
    sort_suffixes,
)
from tokenmill.tokenizer.trainers.word_counts import CountedWords, distinct_words, words_as_code_points

MAX_WEIGHT = 2**62
"""The counts, each times its word's characters and `max_piece_length`, add up to less than this: sums stay int64."""

MAX_PIECE_LENGTH = 512
"""The largest `max_piece_length`, as in sentencepiece."""

_REQUIRED_STEP = 0.0001
"""The difference between the scores of required characters that training has dropped."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnigramTrainer(Trainer[Unigram]):
    """Learns a Unigram model from word counts. The defaults are those of sentencepiece.

    Words are normalized and have "▁" for spaces, as after `Metaspace`. Then:

    1. *Alphabet*: the required characters, and the most frequent ones until `character_coverage` of all text is
       covered. Words are cut at all other characters, and at the texts of special pieces, which no piece may cross.
    2. *Seeds*: these characters, and, of the substrings of words that are not always followed by the same character,
       the `seed_sentencepiece_size` with the highest product of occurrences and length. The end of a word counts as a
       character here; a substring that occurs only at the ends of words is a seed if it occurs 5 times.
    3. *EM*, `num_sub_iterations` times: the expected count of each piece is computed over all ways to cut the words.
       Pieces with less than 0.5 are dropped, the others get new scores, digamma(expected) - digamma(sum).
    4. *Pruning*, unless at most 1.1 times `vocab_size` pieces are left: of the pieces that are in some word's best path
       and are the best way to cut their own text, the share `shrinking_factor` with the highest loss is kept: the
       likelihood that would be lost if their occurrences were cut in the next best way. Characters are always kept.
       Then 3 again.
    5. *Vocabulary*: special pieces at their ids, then the alphabet and the pieces with the best scores, in the order of
       scores, then of code points.

    The model depends only on the words and their counts. Occurrences are summed as integers, and ties go to the piece
    that comes first by its code points; of equally good paths the one whose last piece is longer is best. Expected
    counts are summed in fixed point (`expect` of `unigram_em`), so they do not depend on the order of the
    words, nor on how these are spread over workers. Logarithms are those of the machine's C library.

    A word may be of any length: time and memory grow with the characters of the distinct words.

    Source: sentencepiece 0.2.1 `unigram_model_trainer.cc` and `trainer_interface.cc`; in 0.2.3, as probed, tabs are
      ordinary characters.
    Known differences: seeds are found in the distinct words, weighted by their counts; sentencepiece uses whole
    sentences, in which a substring that occurs only at the ends of words is a seed if it also ends a sentence. Special
    pieces do not count in the coverage. Sums are in double precision and fixed point, not in single precision. Expected
    counts of unknown characters go to no piece; sentencepiece adds them to the first one. A seed's score has 64 bits.
    Special pieces are only found within words. No word is too long; sentencepiece skips sentences of more than 4192
    bytes, and those with U+2585, which here cuts words, as U+0000 does. Held-out text takes fewer tokens than with the
    vocabulary of sentencepiece, or as many (tests/parity/test_unigram_trainer.py).

    Args:
      vocab_size: pieces of the vocabulary, including special ones.
      character_coverage: the least part of all characters, by occurrence, that the alphabet covers.
      required_chars: characters that are always in the alphabet.
      seed_sentencepiece_size: the most substrings to begin with, besides the characters.
      max_piece_length: the most characters of a piece, at most 512.
      shrinking_factor: the part of the pieces that one pruning keeps.
      num_sub_iterations: steps of EM between prunings.
      split_by_unicode_script: no piece has characters of two scripts; Kana count as Han.
      split_by_number: for the rule above, digits are a script of their own; if not, they go with any.
      split_by_whitespace: "▁" may only begin a piece, or end it; if not, it may be inside.
      split_digits: each digit is a piece of its own.
      treat_whitespace_as_suffix: words end with "▁" instead of beginning with it.
      allow_whitespace_only_pieces: runs of "▁" may be pieces.
      unk_id, bos_id, eos_id, pad_id: ids of the special pieces; negative for none, but there must be an unknown piece.
      unk_piece, bos_piece, eos_piece, pad_piece: their texts.
      control_symbols, user_defined_symbols: more special pieces, which get the first free ids; user-defined ones are
        never split in text. A symbol with the text of bos, eos or pad changes the type of that piece.
      byte_fallback: unknown characters become bytes, 256 special pieces after the symbols.
      hard_vocab_limit: too few pieces for `vocab_size` are an error; if not, the vocabulary is smaller.

    Raises:
      TypeError: for a string instead of a list, or another number instead of an integer.
      ValueError: for a value out of range, or an id or a piece that occurs twice.
    """

    vocab_size: int = 8000
    character_coverage: float = 0.9995
    required_chars: str = ""
    seed_sentencepiece_size: int = 1_000_000
    max_piece_length: int = 16
    shrinking_factor: float = 0.75
    num_sub_iterations: int = 2
    split_by_unicode_script: bool = True
    split_by_number: bool = True
    split_by_whitespace: bool = True
    split_digits: bool = False
    treat_whitespace_as_suffix: bool = False
    allow_whitespace_only_pieces: bool = False
    unk_id: int = 0
    bos_id: int = 1
    eos_id: int = 2
    pad_id: int = -1
    unk_piece: str = "<unk>"
    bos_piece: str = "<s>"
    eos_piece: str = "</s>"
    pad_piece: str = "<pad>"
    control_symbols: tuple[str, ...] = ()
    user_defined_symbols: tuple[str, ...] = ()
    byte_fallback: bool = False
    hard_vocab_limit: bool = True

    def __post_init__(self) -> None:
        """Checks every field; lists become tuples."""
        freeze_strings(self, "control_symbols", "user_defined_symbols")
        check_integers(self)
        check_size(self.vocab_size)
        for name in ("character_coverage", "shrinking_factor"):
            value = getattr(self, name)
            if not 0 < value <= 1 or (name == "shrinking_factor" and value == 1):
                allowed = "above 0 and below 1" if name == "shrinking_factor" else "above 0 and at most 1"
                raise ValueError(f"{name} must be {allowed}, got {value!r}")
        for name in ("seed_sentencepiece_size", "num_sub_iterations"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)!r}")
        if not 1 <= self.max_piece_length <= MAX_PIECE_LENGTH:
            raise ValueError(f"max_piece_length must be in 1..{MAX_PIECE_LENGTH}, got {self.max_piece_length!r}")
        if self.unk_id < 0:
            raise ValueError(
                f"unk_id must not be negative, a Unigram model needs an unknown piece; got {self.unk_id!r}"
            )
        check_tokens("control_symbols and user_defined_symbols", [*self.control_symbols, *self.user_defined_symbols])
        check_encodable([self.required_chars, *self._special_pieces_by_name(), *self.control_symbols])
        check_encodable(self.user_defined_symbols)
        self._special_pieces()

    def _special_pieces_by_name(self) -> dict[str, int]:
        """Returns piece -> id of the special pieces whose ids are fields.

        Raises:
          ValueError: if a piece or an id occurs twice.
        """
        found: dict[str, int] = {}
        for name in ("unk", "bos", "eos", "pad"):
            token_id, piece = getattr(self, f"{name}_id"), getattr(self, f"{name}_piece")
            if token_id < 0:
                continue
            if not piece or piece in found:
                raise ValueError(f"{name}_piece must not be empty and differ from the others, got {piece!r}")
            if token_id in found.values():
                raise ValueError(f"{name}_id must differ from the other ids, got {token_id!r} twice")
            found[piece] = token_id
        return found

    def _special_pieces(self) -> dict[int, tuple[str, PieceType]]:
        """Returns the special pieces by id.

        Raises:
          ValueError: if a symbol has the text of the unknown piece or of a byte piece.
        """
        ids = self._special_pieces_by_name()
        kinds = dict.fromkeys(ids, PieceType.CONTROL) | {self.unk_piece: PieceType.UNKNOWN}
        symbols = dict.fromkeys(self.control_symbols, PieceType.CONTROL)
        symbols |= dict.fromkeys(self.user_defined_symbols, PieceType.USER_DEFINED)
        for piece in symbols:
            if piece == self.unk_piece or (self.byte_fallback and piece in BYTE_TOKENS):
                raise ValueError(
                    f"control_symbols and user_defined_symbols must not hold {piece!r}, which has a meaning"
                )
        kinds |= symbols
        if self.byte_fallback:
            kinds |= dict.fromkeys(BYTE_TOKENS, PieceType.BYTE)
        taken = set(ids.values())
        free = (i for i in itertools.count() if i not in taken)
        for piece in kinds:
            if piece not in ids:
                ids[piece] = next(free)
        return {ids[piece]: (piece, kind) for piece, kind in kinds.items()}

    def train_sizes(self, word_counts: pa.Table, sizes: Sequence[int], tell: Tell | None = None) -> dict[int, Unigram]:
        """Returns the model of each size, from one training; each is what `train` returns for that `vocab_size`.

        The prunings down to the largest size are shared by all, those down to the next by all but the largest, and so
        on.

        Args:
          word_counts, sizes, tell: as in `Trainer.train_sizes`; progress is that of rounds of EM.

        Raises:
          TypeError: if a column is missing or of another type.
          ValueError: before any work, if there is no word or size; a count is negative or null; a word is null, not
            UTF-8, or holds a space; the sums are larger than `word_counts.MAX_CHARACTERS` or `MAX_WEIGHT`; or a size is
            too small for the special pieces and the alphabet. Before EM, if a size is larger than the special pieces
            and the seeds; after it, if too few pieces are left. An error says how many there are.

        Cost: characters of the distinct words times a few pieces per character for each of about
        log(seeds / vocab_size) / log(1 / `shrinking_factor`) prunings, times `num_sub_iterations`; about 60 bytes per
        character.
        """
        special = self._special_pieces()
        distinct = distinct_words(word_counts)
        words = words_as_code_points(distinct, [piece for piece, _ in special.values()])
        weight = self._check(words)
        alphabet = self._choose_alphabet(words, special)
        check_sizes(
            sizes,
            len(special) + alphabet.code_points.size,
            [f"{len(special)} special pieces", f"{alphabet.code_points.size} characters"],
            f", or cover fewer characters with character_coverage (now {self.character_coverage!r})",
        )
        _check_ids(special, min(sizes))
        waiting = sorted(set(sizes), reverse=True)
        candidates = self._find_seeds(words, alphabet, weight)
        n_absent = int(np.count_nonzero(alphabet.counts == 0))
        self._check_enough(waiting[0], len(special) + candidates.n + n_absent)

        models: dict[int, Unigram] = {}
        for n_done in itertools.count():
            if tell is not None:
                tell("rounds", n_done + self._rounds(candidates.n, waiting[-1]), functools.partial(int, n_done))
            candidates = self._reestimate(candidates)
            while waiting and candidates.n <= _enough(waiting[0]):
                size = waiting.pop(0)
                models[size] = self._finish(candidates, alphabet, special, size)
            losses = candidates.weigh() if waiting else np.empty(0)
            n_next = int(self.shrinking_factor * candidates.n)
            while waiting and n_next <= _enough(waiting[0]):
                size = waiting.pop(0)
                last = self._reestimate(candidates.prune(losses, _enough(size)))
                models[size] = self._finish(last, alphabet, special, size)
            if not waiting:
                if tell is not None:
                    tell("rounds", n_done + 1, functools.partial(int, n_done + 1))
                break
            candidates = candidates.prune(losses, n_next)
        return {size: models[size] for size in sizes}

    def _rounds(self, n: int, size: int) -> int:
        """Returns how many rounds of EM and pruning `n` pieces take until `size` are left, if EM drops none."""
        n_rounds = 1
        while (n := int(self.shrinking_factor * n)) > _enough(size):
            n_rounds += 1
        return n_rounds

    def _reestimate(self, candidates: Candidates) -> Candidates:
        for _ in range(self.num_sub_iterations):
            candidates = candidates.reestimate()
        return candidates

    def _check(self, words: CountedWords) -> int:
        """Returns the number of characters of all words, by occurrence; raises an error if that is too many."""
        if (words.values == ord(" ")).any():
            word = int(np.searchsorted(words.offsets, np.argmax(words.values == ord(" ")), side="right")) - 1
            text = "".join(map(chr, words.values[words.offsets[word] : words.offsets[word + 1]][:40].tolist()))
            raise ValueError(
                f"word_counts: words of a Unigram model have no spaces, got {text!r}; pre-tokenize with Metaspace, "
                "which writes them as '▁'"
            )
        lengths = np.diff(words.offsets)
        # Computed in two halves, each of which fits into 64 bits.
        high, low = np.dot(lengths, words.counts >> 32), np.dot(lengths, words.counts & 0xFFFFFFFF)
        weight = (int(high) << 32) + int(low)
        if weight * self.max_piece_length >= MAX_WEIGHT:
            raise ValueError(
                f"word_counts: the counts add up to {weight} characters, which times max_piece_length="
                f"{self.max_piece_length!r} is 2**62 or more; scale them down"
            )
        return weight

    def _choose_alphabet(self, words: CountedWords, special: Mapping[int, tuple[str, PieceType]]) -> Alphabet:
        texts = {piece for piece, _ in special.values()}
        required = "".join(character for character in self.required_chars if character not in texts)
        alphabet = choose_alphabet(words, self.character_coverage, required)
        if not alphabet.counts.any():
            raise ValueError("word_counts holds no character that may be part of a piece; is the input empty?")
        return alphabet

    def _find_seeds(self, words: CountedWords, alphabet: Alphabet, weight: int) -> Candidates:
        text = lay_out(words, alphabet.code_points)
        depth = self.max_piece_length + 1  # to see whether a longest piece is always followed by the same character
        suffixes, common = sort_suffixes(text, depth)
        rules = (
            kernels.SPLIT_BY_SCRIPT * self.split_by_unicode_script
            | kernels.SPLIT_BY_NUMBER * self.split_by_number
            | kernels.SPLIT_DIGITS * self.split_digits
            | kernels.SPLIT_BY_SPACE * self.split_by_whitespace
            | kernels.SPACE_AS_SUFFIX * self.treat_whitespace_as_suffix
            | kernels.SPACES_ALONE * self.allow_whitespace_only_pieces
        )
        seeds, scores = find_seeds(
            text, suffixes, common, depth=depth, rules=rules, n_seeds=self.seed_sentencepiece_size
        )
        return seed_candidates(text, suffixes, common, seeds, scores, fixed_point_unit(weight))

    def _check_enough(self, size: int, n_pieces: int) -> None:
        if self.hard_vocab_limit and n_pieces < size:
            raise ValueError(
                f"vocab_size={size!r} is too high, these words give {n_pieces} pieces, special ones included; "
                f"lower vocab_size to {n_pieces} or less, or let it be smaller with hard_vocab_limit=False"
            )

    def _finish(
        self, candidates: Candidates, alphabet: Alphabet, special: Mapping[int, tuple[str, PieceType]], size: int
    ) -> Unigram:
        """Returns the model with the alphabet and the best of the candidates."""
        scores = candidates.scores.astype(np.float32).astype(np.float64)  # as a file of sentencepiece can hold them
        text, lengths = candidates.text, candidates.lengths
        numbers = text.values[candidates.places]
        of_character = np.full(alphabet.code_points.size, np.nan)
        is_single = lengths == 1
        of_character[numbers[is_single] - 1] = scores[is_single]
        missing = np.flatnonzero(np.isnan(of_character))
        missing = missing[np.lexsort((missing, -alphabet.counts[missing]))]
        steps = scores.min() + _REQUIRED_STEP * np.arange(missing.size)
        of_character[missing] = steps.astype(np.float32)

        n_wanted = size - len(special)
        pieces = [(-score, chr(c)) for score, c in zip(of_character.tolist(), alphabet.code_points, strict=True)]
        others = np.flatnonzero(~is_single)
        others = others[np.argsort(-scores[others], kind="stable")[: n_wanted - len(pieces)]]
        spelled, offsets = Pieces(candidates.places[others], lengths[others]).spell(text)
        letters = text.alphabet[spelled - 1].astype("<i4").tobytes().decode("utf-32-le")
        ends = itertools.pairwise(offsets.tolist())
        pieces += [(-score, letters[a:b]) for score, (a, b) in zip(scores[others].tolist(), ends, strict=True)]
        pieces.sort()
        n_pieces = len(pieces) + len(special)
        self._check_enough(size, n_pieces)
        _check_ids(special, n_pieces)
        ordered = iter(pieces)
        vocab, types = [], []
        for token_id in range(n_pieces):
            if token_id in special:
                vocab.append((special[token_id][0], 0.0))
                types.append(special[token_id][1])
            else:
                negative, piece = next(ordered)
                # As `tokenizer.json` will be read, so that the model equals the one in its file.
                vocab.append((piece, -negative))
                types.append(PieceType.NORMAL)
        return Unigram(vocab, self.unk_id, self.byte_fallback, tuple(types))


def _check_ids(special: Mapping[int, tuple[str, PieceType]], n_pieces: int) -> None:
    if max(special) >= n_pieces:
        piece, _ = special[max(special)]
        raise ValueError(
            f"the id {max(special)} of {piece!r} must be below the number of pieces, {n_pieces}; choose a lower one"
        )


def _enough(size: int) -> int:
    """Returns the number of pieces to prune down to, before the last choice by score."""
    return int(size * 1.1)
