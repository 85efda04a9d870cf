# SPDX-License-Identifier: Apache-2.0
"""`extend`: new entries for an existing vocabulary, learned from word counts; every old id stays what it was.

Words begin as the old model cuts them. Then training goes on: the most frequent pair of neighbours is merged, again and
again, but only into an entry that is new, and that the model makes of the entry's own text. So each new entry has one
merge, of lower priority than all old ones, and can be reached; that a word is cut at once, as tiktoken and
`ignore_merges` do, or that any two pieces merge that make one, as in sentencepiece, gives the same ids.

Models without merges take the same entries: WordPiece as its longest match, which may also match where no such pair
was; Unigram with the score of the two parts, and a little more, so that paths that had no such pair stay best.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tokenmill.tokenizer.core import Tokenizer
from tokenmill.tokenizer.models import BPE, Unigram, WordPiece
from tokenmill.tokenizer.models.unigram import PieceType
from tokenmill.tokenizer.trainers.alphabet import Characters, count_characters
from tokenmill.tokenizer.trainers.merging import Pairs
from tokenmill.tokenizer.trainers.word_counts import CountedWords, words_as_code_points
from tokenmill.tokenizer.vocabulary.changes import Change, proven
from tokenmill.tokenizer.vocabulary.entries import (
    Entry,
    fixed_ids,
    joined,
    longest_matches,
    marks_of,
    merged,
    model_of,
    rebuilt,
    spelled,
    symbols_of,
)
from tokenmill.tokenizer.vocabulary.runs import Neighbours
from tokenmill.tokenizer.vocabulary.words import Counts, Cuts, Ints, cut_differently, cutter, portions

COVERAGE = 0.9995
"""Unknown characters become entries, the most frequent first, until so much of all characters is known; as in
sentencepiece's training."""

_PAIRS_FOR_EACH = 2
"""How many of the most frequent pairs training begins with, for each merge that is wanted: of English 4-grams, 1.7 were
needed for 4,000 merges, and 1.3 for 1,000."""

_GAIN = 1e-3
"""How much better a new piece of Unigram scores than its two parts: small beside scores, which are logarithms of
probabilities, and large beside the rounding of sentencepiece's sums, 6e-5 at -1000. Each piece gains a little less than
those before it: with one gain for all, `am`+`e` and `a`+`me` would score alike, and which one is taken would be left to
the order in which a library adds."""


def extend(
    tokenizer: Tokenizer,
    word_counts: Counts,
    n: int,
    *,
    keep: Counts | None = None,
    into: Sequence[int] | None = None,
    min_count: int = 2,
    coverage: float = COVERAGE,
) -> Change:
    """Returns a tokenizer with up to `n` more entries, learned from the words that it cuts into most tokens.

    Args:
      tokenizer: BPE, WordPiece or Unigram.
      word_counts: columns `word` and `count`, as trainers take them, and columns of labels for the report. The words
        are those of this tokenizer: its normalizer and pre-tokenizer made them.
      n: the most entries to add.
      keep: counts of words none of which may be cut differently; None allows any change.
      into: the ids of the new entries, in their order; those that have an entry lose it. None: the next free ids.
      min_count: pairs and characters that occur less often are no entries.
      coverage: the share of all characters that are to be known; of no effect on models of bytes.

    Raises:
      TypeError, ValueError: as `Trainer.train`; or if the vocabulary cannot be extended; the message says why.
    """
    if n < 1 or min_count < 1 or not 0 <= coverage <= 1:
        raise ValueError(f"n and min_count must be positive, coverage in 0..1; got {n!r}, {min_count!r}, {coverage!r}")
    new_ids = list(range(tokenizer.n_ids, tokenizer.n_ids + n)) if into is None else list(into)
    if len(new_ids) < n or len(set(new_ids)) < len(new_ids) or min(new_ids) < 0:
        raise ValueError(f"{n} new entries need as many distinct ids, got {len(new_ids)}")
    entries = _characters(tokenizer, word_counts, keep, coverage, min_count)[:n]
    closed = _id_of(tokenizer, new_ids[:n])
    closed[closed >= 0] = np.arange(np.count_nonzero(closed >= 0))  # models without gaps take it, too
    base = rebuilt(tokenizer, closed, dict(enumerate(entries, int(closed.max()) + 1)))
    barred = _barred_tokens(tokenizer, keep)
    entries += _merges(base, word_counts, n - len(entries), min_count, barred)
    while True:
        if not entries:
            raise ValueError(f"nothing can be added: no pair occurs {min_count} times in words that may change")
        placed = dict(zip(new_ids, entries, strict=False))
        id_of = _id_of(tokenizer, list(placed))
        extended = rebuilt(tokenizer, id_of, placed)
        lost = _entries_to_drop(tokenizer, extended, keep, new_ids)
        if not lost:
            return proven("extend", tokenizer, extended, id_of, placed, word_counts, keep)
        entries = [entry for i, entry in enumerate(entries) if i not in lost]


def _id_of(tokenizer: Tokenizer, taken: Sequence[int]) -> Ints:
    """Returns the new id of each old one, int64[n_ids], if these ids get other entries."""
    id_of = np.arange(tokenizer.n_ids)
    id_of[[i for i in taken if i < id_of.size]] = -1
    return id_of


def _characters(
    tokenizer: Tokenizer, words: Counts, kept: Counts | None, coverage: float, min_count: int
) -> list[Entry]:
    """Returns entries for the most frequent unknown characters, in each form in which they stand in words."""
    model = model_of(tokenizer)
    if isinstance(model, BPE) and model.byte_level:
        return []
    marks, vocab = marks_of(model), tokenizer.get_vocab()
    found = _count_characters(words)
    in_kept = np.zeros_like(found.occurrences) if kept is None else _count_characters(kept).occurrences
    entries: dict[int, list[str]] = {}
    for character in np.flatnonzero(found.occurrences).tolist():
        places = [place for place in range(4) if found.places[character] >> place & 1]
        forms = [spelled(chr(character), place, marks) for place in places]
        entries[character] = [form for form in dict.fromkeys(forms) if form not in vocab]
    unknown = sorted((c for c in entries if entries[c]), key=lambda c: (-found.occurrences[c], c))
    total = found.occurrences.sum()
    known = total - found.occurrences[unknown].sum()
    chosen: list[Entry] = []
    lowest = min((score for _, score in model.vocab), default=0.0) if isinstance(model, Unigram) else 0.0
    for character in unknown:
        count = int(found.occurrences[character])
        if known >= coverage * total or count < min_count:
            break
        if not in_kept[character]:
            chosen += [Entry(form, occurrences=count, score=lowest) for form in entries[character]]
            known += count
    return chosen


def _count_characters(words: Counts) -> Characters:
    found = (count_characters(words_as_code_points(part.table())) for part in portions(words))
    return functools.reduce(lambda a, b: Characters(a.occurrences + b.occurrences, a.places | b.places), found)


def _barred_tokens(tokenizer: Tokenizer, kept: Counts | None) -> set[str]:
    """Returns the entries that must not be made: the old ones, and what would cut a word that is to stay as it is.

    Args:
      tokenizer: the old one.
      kept: the words to keep; None if any may change.
    """
    model, token_of = model_of(tokenizer), {i: token for token, i in tokenizer.get_vocab().items()}
    barred = set(token_of.values())
    if kept is None:
        return barred
    marks, cut = marks_of(model), cutter(tokenizer)
    for part in portions(kept):
        cuts = cut(part)
        if isinstance(model, WordPiece):
            for word, row in zip(part.words.to_pylist(), _rows(cuts), strict=True):
                barred.update(_longer_matches(word, [token_of[i] for i in row], model))
        else:  # A word that no new merge begins to change stays as it is: so neighbours in the old cut are all.
            keys = np.unique(cuts.neighbours()[0]).tolist()
            barred.update(joined(token_of[key >> 32], token_of[key & 0xFFFFFFFF], marks) for key in keys)
    return barred


def _rows(rows: Cuts) -> Iterator[list[int]]:
    ids, offsets = rows.values.tolist(), rows.offsets.tolist()
    return (ids[start:stop] for start, stop in itertools.pairwise(offsets))


def _longer_matches(word: str, tokens: Sequence[str], model: WordPiece) -> Iterator[str]:
    """Yields what would match longer than a token of a word, or where no entry matches."""
    at, prefix = 0, model.continuing_subword_prefix
    if tokens == [model.unk_token]:  # as far as entries match
        tokens, _ = longest_matches(word, prefix, model.vocab)
    for token in [*tokens, ""]:
        size = len(token.removeprefix(prefix if at else "")) if token != model.unk_token else 1
        for stop in range(at + size + 1, len(word) + 1):
            yield (prefix if at else "") + word[at:stop]
        at += size


def _merges(base: Tokenizer, words: Counts, n: int, min_count: int, barred: set[str]) -> list[Entry]:
    """Returns the entries of the first `n` merges that training goes on with; none of them is `barred`.

    It learns from the runs of the most frequent pairs alone, which are few. They give every merge that occurs at least
    as often as the rarest of these pairs, and so all `n`; or else it begins again, with more pairs.
    """
    neighbours, rank = Neighbours(words, base), _PAIRS_FOR_EACH * n
    while n:
        least = max(min_count, neighbours.count_of(rank))
        entries = list(itertools.islice(_merges_of(base, neighbours.runs(least), least, barred), n))
        if len(entries) == n or least == min_count:
            return entries
        rank *= 2
    return []


def _merges_of(base: Tokenizer, runs: CountedWords, min_count: int, barred: set[str]) -> Iterator[Entry]:
    """Yields the entries of merges that occur at least `min_count` times in runs of the tokens of `base`."""
    model, fixed = model_of(base), fixed_ids(base)
    marks = marks_of(model)
    tokens = [base.id_to_token(i) or "" for i in range(base.n_ids)]
    known, score_of = barred | set(tokens), scores_of_parts(model)
    ranks = dict(model.ranks) if isinstance(model, BPE) else {}
    rank = 1 + max(ranks.values(), default=-1)
    symbols = np.tile(np.arange(len(tokens), dtype=np.int32), (4, 1))
    pairs = Pairs(runs, symbols, min_count)
    for count, left, right in pairs:
        if left in fixed or right in fixed:
            continue
        token = joined(tokens[left], tokens[right], marks)
        if token in known:
            continue
        if isinstance(model, BPE):
            pair = tokens[left], tokens[right]
            if tuple(merged(symbols_of(token, marks), ranks, marks)) != pair:
                continue
            ranks[pair] = rank = rank + 1
        known.add(token)
        tokens.append(token)
        pairs.merge(left, right, len(tokens) - 1)
        yield Entry(token, tokens[left], tokens[right], count, score_of(token, tokens[left], tokens[right]))


def scores_of_parts(model: Any) -> Callable[..., float]:
    """Returns what scores a new piece, given it and its parts, if it has any; 0 unless the model is Unigram.

    No score is lower than the lowest of the old ones, by which unknown characters score.
    """
    if not isinstance(model, Unigram):
        return lambda token, *parts: 0.0
    scores = dict(zip((piece for piece, _ in model.vocab), model.scores.tolist(), strict=True))
    types = model.piece_types
    normal = [s for i, (_, s) in enumerate(model.vocab) if types is None or types[i] == PieceType.NORMAL]
    lowest, n_old = min(normal, default=0.0), len(scores)

    def score(token: str, *parts: str) -> float:
        gain = _GAIN * (1 + 1 / (len(scores) - n_old + 1))
        scores[token] = max(lowest, sum(scores[part] for part in parts) + gain) if parts else lowest
        return scores[token]

    return score


def _entries_to_drop(old: Tokenizer, new: Tokenizer, kept: Counts | None, new_ids: Sequence[int]) -> set[int]:
    """Returns the places of new pieces of Unigram that cut a word that is to stay as it is; merges never do."""
    place_of, lost = {token_id: place for place, token_id in enumerate(new_ids)}, set[int]()
    cut_old, cut_new = cutter(old), cutter(new)
    for part in portions(kept) if kept is not None and isinstance(old.model, Unigram) else ():
        after = cut_new(part)
        changed = cut_differently(cut_old(part), after)[after.rows]
        lost |= {place_of[i] for i in np.unique(after.values[changed]).tolist() if i in place_of}
    return lost
