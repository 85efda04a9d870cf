# SPDX-License-Identifier: Apache-2.0
"""Unigram: of all ways to cut a word into pieces, takes the one with the highest sum of scores."""

import dataclasses
import enum
import functools
import heapq
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import recycled
from tokenmill.tokenizer.errors import UnknownCharacterError
from tokenmill.tokenizer.kernels import unigram as kernels
from tokenmill.tokenizer.models.double_array import DoubleArray, double_array
from tokenmill.tokenizer.models.vocabulary import MAX_ID, NotDistinctError, ScoredTokens, Tokens, Vocabulary
from tokenmill.tokenizer.ragged import read_only

UNKNOWN_PENALTY = 10.0
"""An unknown character scores this much less than the worst piece."""

SPACE = "▁"
"""U+2581, which SentencePiece writes for a space."""


class PieceType(enum.IntEnum):
    """The type of a piece of a SentencePiece model; the numbers are those in the file."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class UnigramTables(NamedTuple):
    """A Unigram vocabulary as the kernels read it."""

    units: npt.NDArray[np.int64]
    """int64[n]: the states of the trie, see kernels.double_array."""
    root_base: int
    scores: npt.NDArray[np.float64]
    """float64[n_pieces]."""
    byte_ids: npt.NDArray[np.int32]
    """int32[256]: ids of the byte pieces `<0x00>` to `<0xFF>`, -1 for those the vocabulary does not have."""
    unk_id: int
    """Id of the unknown token, -1 if there is none."""
    unk_score: float
    byte_fallback: bool
    longest: int
    """The number of bytes of the longest piece, or character if that is longer."""
    single: bool
    """Whether sums are rounded to single precision, as in sentencepiece."""
    steps: npt.NDArray[np.float32]
    """float32[n_pieces + 1]: the score that each id adds to the sum of a path, the last is 0; of size 0 unless
    `single`."""


class UnigramScratch(NamedTuple):
    """Viterbi's work space: a value for every place in a word."""

    scores: npt.NDArray[np.float64]
    """float64[n_bytes + 1]: the score of the best path to each place."""
    pieces: npt.NDArray[np.int32]
    """int32[n_bytes + 1]: the last piece of that path."""
    starts: npt.NDArray[np.int64]
    """int64[n_bytes + 1]: where that piece begins."""
    seconds: npt.NDArray[np.float64]
    """float64[n_bytes + 1]: the score of the second best path to each place, for `weigh_paths`."""


def new_unigram_scratch(n_word_bytes: int) -> UnigramScratch:
    """Makes scratch for words of up to `n_word_bytes` bytes. Memory pages that no word reaches are never touched."""
    n = n_word_bytes + 1  # a place before every byte, and the end
    return UnigramScratch(
        recycled.empty(n, np.float64), recycled.empty(n, np.int32), recycled.empty(n, np.int64),
        recycled.empty(n, np.float64),
    )  # fmt: skip


MAX_PIECE_CHARACTERS = 512
"""The longest piece that matches in text, as for sentencepiece's trainer: each place in a text is the beginning of as
many steps through the pieces."""


class Segmentation(NamedTuple):
    """One way to cut a word: its score, and the id and the end, in characters, of each piece."""

    score: float
    pieces: tuple[tuple[int, int], ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Unigram:
    """Pieces with scores, which are logarithms of probabilities; the id of a piece is its position.

    A character that is no piece by itself may become the unknown token, at the score of the worst piece less 10. A run
    of unknown characters is one token, or its byte pieces if `byte_fallback` is set and the vocabulary has all of
    them. If two paths have equal scores, the one whose last piece is longer wins, at every place in the word.

    Without `piece_types` the rules are HF's: every piece matches in text, whatever its purpose; sums are in double
    precision; a fused run of unknown characters that is itself a piece gets its id. With `piece_types` they are
    sentencepiece's, which can give other ids:

    - only NORMAL and USER_DEFINED pieces match in text, and only NORMAL ones count for the worst score;
    - a USER_DEFINED piece scores 0.1 for each of its bytes after the first, whatever the file says;
    - sums are rounded to single precision, and begin again at zero once one is below -100000, so that near ties are
      decided by rounding. A word in the middle of a text may therefore be cut differently from the same word alone:
      see kernels.sentencepiece_unigram.

    Raises:
      ValueError: if there are no pieces, or more than 2^24, a score is not finite, `unk_id` or the number of types
        does not fit the vocabulary, or, under sentencepiece's rules, a piece occurs twice.

    Source: HF tokenizers 0.23 `models/unigram/model.rs`, `encode_optimized`; sentencepiece 0.2.3 `EncodeOptimized`,
      probed. sentencepiece 0.2.0 scored USER_DEFINED pieces by the best score, and never began again at zero.
    """

    vocab: Sequence[tuple[str, float]]
    unk_id: int | None = None
    byte_fallback: bool = False
    piece_types: Sequence[int] | npt.NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        n = len(self.vocab)
        if not 1 <= n <= MAX_ID + 1:
            raise ValueError(f"a Unigram vocabulary has 1..{MAX_ID + 1} pieces, got {n}")
        if self.unk_id is not None and not 0 <= self.unk_id < n:
            raise ValueError(f"unk_id must be in 0..{n - 1}, got {self.unk_id!r}")
        if self.piece_types is not None and len(self.piece_types) != n:
            raise ValueError(f"piece_types must have one entry per piece, got {len(self.piece_types)} for {n} pieces")
        object.__setattr__(self, "vocab", ScoredTokens.of(self.vocab))
        finite = np.isfinite(self._given_scores)
        if not finite.all():
            i = int(np.flatnonzero(~finite)[0])
            raise ValueError(f"score of piece {self.vocab[i][0]!r} must be finite, got {self.vocab[i][1]!r}")
        lengths = self._pieces.take(self._matching_ids).characters.lengths
        if (longest := int(lengths.max(initial=0))) > MAX_PIECE_CHARACTERS:
            raise ValueError(f"a piece has {longest} characters, allowed are {MAX_PIECE_CHARACTERS}")
        if self.piece_types is not None:
            self._check_distinct()

    def _check_distinct(self) -> None:
        try:
            _ = self.matching
        except NotDistinctError:
            seen: set[str] = set()
            for i in self._matching_ids.tolist():
                if self.vocab[i][0] in seen:
                    raise ValueError(f"piece {self.vocab[i][0]!r} stands twice in the vocabulary") from None
                seen.add(self.vocab[i][0])

    def __repr__(self) -> str:
        rules = "HF's" if self.piece_types is None else "sentencepiece's"
        options = f"unk_id={self.unk_id!r}, byte_fallback={self.byte_fallback}"
        return f"Unigram({len(self.vocab)} pieces, {options}, {rules} rules)"

    @property
    def _pieces(self) -> Tokens:
        assert isinstance(self.vocab, ScoredTokens)
        return self.vocab.tokens

    @property
    def _given_scores(self) -> npt.NDArray[np.float64]:
        assert isinstance(self.vocab, ScoredTokens)
        return self.vocab.scores

    @functools.cached_property
    def _types(self) -> npt.NDArray[np.int64]:
        return np.array(() if self.piece_types is None else self.piece_types, np.int64)

    def _is_of_type(self, *kinds: PieceType) -> npt.NDArray[np.bool_]:
        return np.logical_or.reduce([self._types == kind for kind in kinds])

    def pieces_of_type(self, *kinds: PieceType) -> list[str]:
        """Returns the pieces of some types, in order; none without `piece_types`."""
        return [self._pieces[i] for i in np.flatnonzero(self._is_of_type(*kinds)).tolist()]

    @functools.cached_property
    def _matching_ids(self) -> npt.NDArray[np.int64]:
        has_text = self._pieces.lengths > 0
        if self.piece_types is not None:
            has_text &= self._is_of_type(PieceType.NORMAL, PieceType.USER_DEFINED)
        return np.flatnonzero(has_text)

    @functools.cached_property
    def piece_ids(self) -> Vocabulary:
        """Piece -> id of all pieces, whether they match in text or not.

        If a piece occurs twice, this is the first id under sentencepiece's rules, and under HF's the last, which
        matches.
        """
        if self._pieces.numbered is not None:
            return self._pieces.numbered
        pieces = self._pieces.listed
        if self.piece_types is None:
            return Vocabulary.of(dict(zip(pieces, range(len(pieces)), strict=True)))
        return Vocabulary.of(dict(zip(reversed(pieces), range(len(pieces) - 1, -1, -1), strict=True)))

    @functools.cached_property
    def matching(self) -> Vocabulary:
        """Piece -> id of the pieces that match in text; if one occurs twice, the last id, as in HF."""
        ids, every = self._matching_ids, self._pieces.numbered
        if every is not None:
            return every if ids.size == len(every) else every.take(ids)
        pieces = self._pieces.take(ids)
        try:
            return Vocabulary(pieces, ids.astype(np.int32))
        except NotDistinctError:
            if self.piece_types is not None:
                raise
        return Vocabulary.of(dict(zip(pieces, ids.tolist(), strict=True)))

    @functools.cached_property
    def scores(self) -> npt.NDArray[np.float64]:
        """float64[n]: the score of each piece when it matches."""
        if self.piece_types is None:
            return self._given_scores
        scores = self._given_scores.astype(np.float32).astype(np.float64)
        lengths = self._pieces.lengths
        for i in np.flatnonzero(self._types == PieceType.USER_DEFINED).tolist():
            scores[i] = np.float32(int(lengths[i]) * 0.1 - 0.1)
        return scores

    @functools.cached_property
    def _unk_score(self) -> float:
        scores = self._given_scores
        if self.piece_types is None:
            return float(scores.min()) - UNKNOWN_PENALTY
        normal = scores[self._types == PieceType.NORMAL].astype(np.float32)
        worst = normal.min() if normal.size else np.float32(0)
        return float(np.float32(worst - np.float32(UNKNOWN_PENALTY)))

    @functools.cached_property
    def _byte_ids(self) -> npt.NDArray[np.int32]:
        """int32[256]: ids of the byte pieces, -1 if there is none."""
        names = [f"<0x{byte:02X}>" for byte in range(256)]
        if self.piece_types is None:
            return self.matching.find(names).astype(np.int32)
        ids = {self._pieces[i]: i for i in np.flatnonzero(self._types == PieceType.BYTE).tolist()}
        return np.array([ids.get(name, -1) for name in names], np.int32)

    @functools.cached_property
    def splits_at_spaces(self) -> bool:
        """Whether cutting a text before every "▁" changes nothing, because no piece has one after another character.

        Then no piece reaches across such a cut, so a path through the text is one path for each part, its score is the
        sum of theirs, and the best path consists of the best paths; ties too, since all paths through a part start
        from the same place. With finite precision near ties may come out differently, since the sums before a part
        differ: HF's words always begin at zero, sentencepiece's do not, see kernels.sentencepiece_unigram. Unknown
        characters fuse only within a part: so "▁" must be a piece too, or the unknown run must not reach a cut.
        """
        return self.matching.find_one(SPACE) >= 0 and not self.matching.tokens.characters.has_inside(SPACE)

    @functools.cached_property
    def trie(self) -> DoubleArray:
        """The trie of the pieces that match."""
        order = self.matching.tokens.sorted_order()
        return double_array(self.matching.tokens.take(order), self.matching.ids[order])

    @functools.cached_property
    def tables(self) -> UnigramTables:
        """The vocabulary lowered to a double-array trie."""
        pieces = self.matching.tokens
        return UnigramTables(
            units=self.trie.units,
            root_base=self.trie.root_base,
            scores=read_only(self.scores),
            byte_ids=read_only(self._byte_ids),
            unk_id=-1 if self.unk_id is None else self.unk_id,
            unk_score=self._unk_score,
            byte_fallback=self.byte_fallback,
            longest=max(4, int(pieces.lengths.max(initial=0))),
            single=self.piece_types is not None,
            steps=read_only(self._steps()),
        )

    def _steps(self) -> npt.NDArray[np.float32]:
        if self.piece_types is None:
            return np.empty(0, np.float32)
        steps = np.append(self.scores.astype(np.float32), np.float32(0.0))
        if self.unk_id is not None:
            steps[self.unk_id] = self._unk_score
        for byte in np.flatnonzero(self._byte_ids >= 0).tolist():
            # Of the byte pieces of a character only the first has a score.
            steps[self._byte_ids[byte]] = 0.0 if byte & 0xC0 == 0x80 else self._unk_score
        return steps

    @functools.cached_property
    def _longest(self) -> int:
        return int(self.matching.tokens.characters.lengths.max(initial=0))

    def _edges(self, word: str, start: int) -> Iterator[tuple[int, int, float]]:
        """Yields `(end, id, score)` of all pieces that may begin at `start`, in characters; shorter ones first."""
        alone = False
        for stop in range(start + 1, min(len(word), start + self._longest) + 1):
            piece = self.matching.get(word[start:stop])
            if piece is not None:
                alone = alone or stop == start + 1
                yield stop, piece, float(self.scores[piece])
        if not alone:
            yield start + 1, -1 if self.unk_id is None else self.unk_id, self._unk_score

    def tokenize(self, word: str) -> list[tuple[int, int]]:
        """Tokenizes one word in plain Python, slowly; returns each token's id and its end in the word, in characters.

        Raises:
          UnknownCharacterError: if no piece covers a character and there is no unknown token.
        """
        round_sum = (lambda total: float(np.float32(total))) if self.piece_types is not None else float
        # For the best path to each place: its score, its last piece, and where that starts.
        best: list[tuple[float, int, int]] = [(0.0, -1, -1)] + [(0.0, -1, -1)] * len(word)
        for start in range(len(word)):
            so_far = best[start][0]
            if self.piece_types is not None and so_far < kernels.REBASE_BELOW:
                best[start:] = [(round_sum(score - so_far), piece, first) for score, piece, first in best[start:]]
            for stop, piece, score in self._edges(word, start):
                total = round_sum(score + best[start][0])
                if best[stop][2] < 0 or total > best[stop][0]:
                    if piece < 0:
                        raise UnknownCharacterError(_not_there(f"character {word[start]!r}"))
                    best[stop] = (total, piece, start)
        path: list[tuple[int, int]] = []
        stop = len(word)
        while stop > 0:
            path.append((best[stop][1], stop))
            stop = best[stop][2]
        return self._finish(word, path[::-1])

    def _finish(self, word: str, path: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Fuses the unknown characters of a path, or spells them in bytes."""
        tokens: list[tuple[int, int]] = []
        start = 0
        for k, (piece, stop) in enumerate(path):
            if piece != self.unk_id:
                tokens.append((piece, stop))
            elif k + 1 < len(path) and path[k + 1][0] == self.unk_id:
                continue
            else:
                run = word[start:stop]
                spelled = self._byte_ids[list(run.encode())].tolist() if self.byte_fallback else [-1]
                if self.piece_types is None and run in self.matching:
                    tokens.append((self.matching[run], stop))
                elif min(spelled) < 0:
                    tokens.append((self.unk_id, stop))
                else:
                    tokens += [(i, stop) for i in spelled]
            start = stop
        return tokens

    def nbest(self, word: str, n: int) -> list[Segmentation]:
        """Returns the `n` best paths, best first, or all if there are fewer; scores are summed in double precision.

        Of two paths with equal scores, the one whose last piece is longer comes first; if these are equal too, the
        rank of what precedes them decides. Time and memory grow with `n` times the length of the word.

        Raises:
          ValueError: if `n` is not positive.
          UnknownCharacterError: as `tokenize`.

        Source: sentencepiece `Lattice::NBest`, which searches the same paths, best first, with an agenda of limited
          size.
        """
        if n < 1:
            raise ValueError(f"n must be positive, got {n!r}")
        # For each place the best ways to it: score, where the last piece starts, which piece it is, and the number of
        # the way to its start.
        ways: list[list[tuple[float, int, int, int]]] = [[(0.0, -1, -1, -1)]] + [[] for _ in word]
        arriving: list[list[tuple[int, int, float]]] = [[] for _ in range(len(word) + 1)]
        for start in range(len(word)):
            for stop, piece, score in self._edges(word, start):
                if piece < 0:
                    raise UnknownCharacterError(_not_there(f"character {word[start]!r}"))
                arriving[stop].append((start, piece, score))
            # All pieces that end at the next place start at this one or before.
            heads = [(-(score + ways[s][0][0]), s, 0, piece, score) for s, piece, score in arriving[start + 1]]
            heapq.heapify(heads)
            while heads and len(ways[start + 1]) < n:
                negative, s, rank, piece, score = heapq.heappop(heads)
                ways[start + 1].append((-negative, s, piece, rank))
                if rank + 1 < len(ways[s]):
                    heapq.heappush(heads, (-(score + ways[s][rank + 1][0]), s, rank + 1, piece, score))
            arriving[start + 1] = []
        paths = []
        for rank in range(len(ways[len(word)])):
            pieces: list[tuple[int, int]] = []
            stop, way = len(word), rank
            while stop > 0:
                _, start, piece, before = ways[stop][way]
                pieces.append((piece, stop))
                stop, way = start, before
            paths.append(Segmentation(ways[len(word)][rank][0], tuple(self._finish(word, pieces[::-1]))))
        return paths

    def sample(self, word: str, alpha: float, seed: int, nbest_size: int = -1) -> list[tuple[int, int]]:
        """Tokenizes one word like `tokenize`, by a path drawn with a probability proportional to exp(alpha * score).

        Args:
          word: the word.
          alpha: 0 makes all paths equally likely; the larger it is, the more likely is the best path.
          seed: 0..2^64-1; equal seeds give equal paths, so give every word of a text its own seed.
          nbest_size: how many of the best paths to draw from; negative for all, 0 and 1 for the best alone.

        Raises:
          ValueError: if `alpha` is negative or not finite, or the seed does not fit.
          UnknownCharacterError: as `tokenize`.

        Source: sentencepiece `SampleEncode`. HF's `Unigram.alpha` counts the weights of earlier pieces more than once.
        """
        if not (math.isfinite(alpha) and alpha >= 0):
            raise ValueError(f"alpha must be a number of at least 0, got {alpha!r}")
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"seed must be in 0..2^64-1, got {seed!r}")
        if nbest_size in (0, 1):
            return self.tokenize(word)
        if nbest_size > 1:
            paths = self.nbest(word, nbest_size)
            weights = [math.exp(alpha * (path.score - paths[0].score)) for path in paths]
            limit = math.fsum(weights) * kernels.random_number(np.uint64(seed), 0)
            chosen = int(np.searchsorted(np.cumsum(weights), limit, side="right"))
            return list(paths[min(chosen, len(paths) - 1)].pieces)
        values = np.frombuffer(word.encode(), np.uint8)
        if not values.size:
            return []
        out, ends = np.empty(values.size, np.int32), np.empty(values.size, np.int64)
        n = kernels.sample_one(
            values, self.tables, float(alpha), np.uint64(seed), new_unigram_scratch(values.size), out, ends
        )
        if out[0] < 0:
            raise UnknownCharacterError(_not_there(f"a character of {word[:80]!r}"))
        chars = np.cumsum((values & 0xC0) != 0x80)
        return [(int(i), int(chars[end - 1])) for i, end in zip(out[:n], ends[:n], strict=True)]


def _not_there(what: str) -> str:
    return f"{what} is not in the vocabulary, which has no unknown token"
