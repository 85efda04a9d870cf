# SPDX-License-Identifier: Apache-2.0
"""`prune`: a vocabulary without the entries that text uses least; `replace`: new entries in place of unused ones.

Entries go one after the other, the least used first, and what an entry was used for then uses its parts. An entry that
merges still need is not yet free to go: so what stays is closed, no entry that cannot be made and no merge without its
parts. It is training backwards.

Words that have none of the removed entries are cut as before: all merges of such a word make entries that stay, or
their parts; its longest matches still match; and its best path is still the best among fewer.
"""

import heapq
import itertools
from collections.abc import Callable, Container, Iterator

import numpy as np

from tokenmill.tokenizer.core import Tokenizer
from tokenmill.tokenizer.models import BPE, Unigram, WordPiece
from tokenmill.tokenizer.models.unigram import SPACE
from tokenmill.tokenizer.vocabulary.changes import Change, parts_of, proven
from tokenmill.tokenizer.vocabulary.entries import fixed_ids, marks_of, merged, model_of, rebuilt, symbols_of
from tokenmill.tokenizer.vocabulary.extending import extend
from tokenmill.tokenizer.vocabulary.words import Counts, Ints, cutter, portions, token_counts

Split = Callable[[int, set[str]], list[int] | None]
"""What an entry is cut into if it is not there itself, given all entries that are; None if it must stay."""


def prune(
    tokenizer: Tokenizer, word_counts: Counts, *, size: int | None = None, min_count: int | None = None
) -> Change:
    """Returns a tokenizer without the entries that words use least; ids close up, in the old order.

    Added, unknown, byte and template tokens stay, and characters that the words have, unless bytes can spell them.

    Args:
      tokenizer: BPE, WordPiece or Unigram.
      word_counts: as for `extend`.
      size: how many ids are to be left.
      min_count: or entries that are used less often are removed.

    Raises:
      TypeError, ValueError: as `extend`; if not exactly one of the last two is given, or so many ids cannot go.
    """
    if (size is None) == (min_count is None):
        raise ValueError(f"give size or min_count, one of them; got {size!r} and {min_count!r}")
    kept = np.array([tokenizer.id_to_token(i) is not None for i in range(tokenizer.n_ids)])
    n_before = n_left = int(np.count_nonzero(kept))
    for token_id, count in least_used(tokenizer, uses(tokenizer, word_counts)):
        if count >= (1 << 63 if min_count is None else min_count) or n_left == size:
            break
        kept[token_id] = False
        n_left -= 1
    if size is not None and n_left != size:
        raise ValueError(f"size, or --to: {size!r}: must be from {n_left}, which have to stay, to {n_before}, all")
    id_of = np.where(kept, np.cumsum(kept) - 1, -1)
    return proven("prune", tokenizer, rebuilt(tokenizer, id_of, {}), id_of, {}, word_counts)


def replace(
    tokenizer: Tokenizer, word_counts: Counts, n: int, *, keep: Counts | None = None, min_count: int = 2
) -> Change:
    """Returns a tokenizer with up to `n` new entries, as `extend`, that have the ids of old ones that no word uses.

    Args:
      tokenizer, word_counts, keep, min_count: as for `extend`.
      n: the most entries to replace.

    Raises:
      TypeError, ValueError: as `extend`; if no entry is unused in all of these counts.
    """
    used = uses(tokenizer, word_counts) + (0 if keep is None else uses(tokenizer, keep))
    idle: list[int] = []
    for token_id, count in least_used(tokenizer, used):
        if count or len(idle) == n:
            break
        idle.append(token_id)
    if not idle:
        raise ValueError("no entry can be replaced: words use all of them")
    return extend(tokenizer, word_counts, len(idle), keep=keep, into=idle, min_count=min_count)


def uses(tokenizer: Tokenizer, counts: Counts) -> Ints:
    """Returns how often counted words use each id, int64[n_ids]."""
    found, cut = np.zeros(tokenizer.n_ids, np.int64), cutter(tokenizer)
    for part in portions(counts):
        found += token_counts(cut(part), part.counts, tokenizer.n_ids)
    return found


def least_used(tokenizer: Tokenizer, counts: Ints) -> Iterator[tuple[int, int]]:
    """Yields the entries that can go, one after the other, with how often they were used when they went.

    Of equally often used ones the largest id goes first. As many of them as one likes may go, from the first on.

    Args:
      tokenizer: any.
      counts: int64[n_ids], how often each id occurs; not changed.
    """
    model, vocab = model_of(tokenizer), tokenizer.get_vocab()
    # Bytes cannot stand for "▁", which decoders turn into a space before they join bytes.
    fixed = fixed_ids(tokenizer) | ({vocab[SPACE]} if SPACE in vocab else set())
    used, there = counts.tolist(), set(vocab)
    token_of = {i: token for token, i in vocab.items()}
    needed, needs = [0] * len(used), _needs(model, vocab)
    for need in itertools.chain.from_iterable(needs.values()):
        needed[need] += 1
    split = _split_of(model, vocab, token_of)
    heap = [(used[i], -i) for i in token_of if i not in fixed and not needed[i]]
    heapq.heapify(heap)
    while heap:
        count, negative = heapq.heappop(heap)
        token_id = -negative
        if count != used[token_id]:
            heapq.heappush(heap, (used[token_id], negative))
            continue
        parts = split(token_id, there)
        if parts is None or (not parts and count and not getattr(model, "byte_fallback", False)):
            continue  # words would become unknown
        there.discard(token_of[token_id])
        yield token_id, count
        for part in parts:
            used[part] += count
        for need in needs.get(token_id, ()):
            needed[need] -= 1
            if not needed[need] and need not in fixed:
                heapq.heappush(heap, (used[need], -need))


def _needs(model: BPE | WordPiece | Unigram, vocab: dict[str, int]) -> dict[int, set[int]]:
    """Returns the parts without which merges do not make an entry as they do now.

    They are the parts of all its merges; or, where any two pieces that make one merge, of the merge in its own text.
    """
    needs: dict[int, set[int]] = {}
    if not isinstance(model, BPE):
        return needs
    for product, *parts in zip(*(ids.tolist() for ids in model.merge_ids[::-1]), strict=True):
        needs.setdefault(product, set()).update(parts)
    if model.merge_ranks is not None:
        for token, token_id in model.vocab.items():
            own = merged(symbols_of(token, ("", "")), model.ranks, ("", ""), stop=2)
            if token_id in needs and len(own) == 2:
                needs[token_id] = {vocab[part] for part in own}
    return needs


def _split_of(model: BPE | WordPiece | Unigram, vocab: dict[str, int], token_of: dict[int, str]) -> Split:
    if isinstance(model, BPE):
        marks, bytes_of = marks_of(model), set(model.byte_symbols.ravel().tolist()) if model.byte_level else set()

        def of_merges(token_id: int, there: set[str]) -> list[int] | None:
            symbols = symbols_of(token_of[token_id], marks)
            if token_id in bytes_of:
                return None
            parts = merged(symbols, model.ranks, marks, stop=2) if len(symbols) > 1 else []
            return [vocab[part] for part in parts if part in there]

        return of_merges
    if isinstance(model, WordPiece):
        return lambda i, there: _ids(parts_of(token_of[i], model, there, token_of[i]), vocab)
    scores = dict(zip((piece for piece, _ in model.vocab), model.scores.tolist(), strict=True))
    lowest = min((score, piece) for piece, score in scores.items())[1]  # by which unknown characters score

    def of_paths(token_id: int, there: set[str]) -> list[int] | None:
        token = token_of[token_id]
        return None if token == lowest else _ids(best_path(token, scores, there), vocab)

    return of_paths


def _ids(tokens: list[str], vocab: dict[str, int]) -> list[int]:
    return [vocab[token] for token in tokens]


def best_path(text: str, scores: dict[str, float], there: Container[str]) -> list[str]:
    """Returns the pieces, other than the text itself, with the highest sum of scores; none if they do not cover it."""
    best: list[tuple[float, list[str]] | None] = [(0.0, []), *[None] * len(text)]
    for stop in range(1, len(text) + 1):
        for start in range(stop):
            piece, so_far = text[start:stop], best[start]
            if so_far is not None and piece in there and piece != text:
                total, now = so_far[0] + scores.get(piece, 0.0), best[stop]
                if now is None or total > now[0]:
                    best[stop] = (total, [*so_far[1], piece])
    found = best[-1]
    return [] if found is None else found[1]
