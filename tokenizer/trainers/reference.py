# SPDX-License-Identifier: Apache-2.0
"""The slow twin of `WordPieceTrainer`: counts everything anew before every merge. Imported by tests only."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction


def train_wordpiece(
    word_counts: Mapping[str, int],
    *,
    vocab_size: int,
    min_frequency: int,
    rule: str,
    limit_alphabet: int | None = None,
    initial_alphabet: Sequence[str] = (),
    special_tokens: Sequence[str] = (),
    continuing_subword_prefix: str = "##",
) -> list[str]:
    """Returns the vocabulary that `WordPieceTrainer` with these fields learns from these words."""
    prefix = continuing_subword_prefix
    characters: Counter[str] = Counter()
    for text, count in word_counts.items():
        for character in text:
            characters[character] += count
    wanted = set(initial_alphabet)
    ranked = sorted(characters.keys() | wanted, key=lambda c: (c not in wanted, -characters[c], c))
    alphabet = sorted(ranked[:limit_alphabet])
    vocabulary = list(dict.fromkeys([*special_tokens, *alphabet]))
    known = set(vocabulary)
    words = []
    for text, count in word_counts.items():
        words.append((count, [prefix * (i > 0) + c for i, c in enumerate(text) if c in known]))
    continuing = sorted({c for text in word_counts for c in text[1:] if c in known})
    vocabulary = list(dict.fromkeys([*vocabulary, *(prefix + c for c in continuing)]))

    while len(vocabulary) < vocab_size:
        ids = {token: i for i, token in enumerate(vocabulary)}
        symbols: Counter[str] = Counter()
        pairs: Counter[tuple[str, str]] = Counter()
        for count, word in words:
            for symbol in word:
                symbols[symbol] += count
            for pair in itertools.pairwise(word):
                pairs[pair] += count
        frequent = [pair for pair, count in pairs.items() if count >= max(1, min_frequency)]
        if not frequent:
            break
        ranked_pairs = []
        for a, b in frequent:
            score = Fraction(pairs[a, b], 1 if rule == "frequency" else symbols[a] * symbols[b])
            ranked_pairs.append((-score, ids[a], ids[b], a, b))
        *_, left, right = min(ranked_pairs)
        merged = left + right.removeprefix(prefix)
        if merged not in ids:
            vocabulary.append(merged)
        for _, word in words:
            i = 0
            while i + 1 < len(word):
                if (word[i], word[i + 1]) == (left, right):
                    word[i : i + 2] = [merged]
                i += 1
    return vocabulary
