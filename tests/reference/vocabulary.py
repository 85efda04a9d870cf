# SPDX-License-Identifier: Apache-2.0
"""The reference implementation of changed vocabularies, in plain Python: everything is cut and counted again before
every step. For tests only."""

import itertools
from collections import Counter
from collections.abc import Mapping

from tokenmill.tokenizer import BPE


def extend_bpe(
    model: BPE, words: Mapping[str, int], n: int, *, kept: Mapping[str, int], min_count: int
) -> list[tuple[str, str]]:
    """Returns the merges that `extend` adds to a model without markers that knows all characters.

    Args:
      model: the old one.
      words: word -> count.
      n: the most merges.
      kept: words that must not be cut differently.
      min_count: rarer pairs are not merged.
    """
    merges: list[tuple[str, str]] = []
    while len(merges) < n:
        now = _with(model, merges)
        pairs: Counter[tuple[int, int]] = Counter()
        for word, count in words.items():
            pairs.update({pair: count * k for pair, k in Counter(itertools.pairwise(_cut(now, word))).items()})
        token_of = {i: token for token, i in now.vocab.items()}
        in_kept = {a + b for word in kept for a, b in itertools.pairwise(token_of[i] for i in _cut(now, word))}
        wanted = []
        for (a, b), count in pairs.items():
            token = token_of[a] + token_of[b]
            is_barred = token in now.vocab or token in in_kept or _cut(now, token) != [a, b]
            if count >= min_count and not is_barred:
                wanted.append((-count, a, b))
        if not wanted:
            break
        _, a, b = min(wanted)
        merges.append((token_of[a], token_of[b]))
    return merges


def _with(model: BPE, merges: list[tuple[str, str]]) -> BPE:
    vocab = dict(model.vocab) | {a + b: len(model.vocab) + i for i, (a, b) in enumerate(merges)}
    return BPE(vocab, [*model.merges, *merges])


def _cut(model: BPE, word: str) -> list[int]:
    return [i for i, _ in model.tokenize(word)]


def prune_bpe(model: BPE, words: Mapping[str, int], size: int) -> set[str]:
    """Returns the entries that `prune` leaves of a model without markers, unknown or byte tokens."""
    uses: Counter[int] = Counter()
    for word, count in words.items():
        for token_id in _cut(model, word):
            uses[token_id] += count
    left = dict(model.vocab)
    while len(left) > size:
        needed = {part for a, b in model.merges if a + b in left for part in (a, b)}
        free = [token for token in left if token not in needed and (len(token) > 1 or not uses[left[token]])]
        gone = min(free, key=lambda token: (uses[left[token]], -left[token]))
        if len(gone) > 1:
            others = BPE(model.vocab, [(a, b) for a, b in model.merges if a + b != gone])
            for part in _cut(others, gone):
                uses[part] += uses[left[gone]]
        del left[gone]
    return set(left)
