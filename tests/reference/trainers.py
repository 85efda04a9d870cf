# SPDX-License-Identifier: Apache-2.0
"""The reference implementations of the trainers, in plain Python: everything is counted again before every merge. For
tests only."""

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction

from tokenmill.tokenizer.models.bpe import BYTE_ALPHABET


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
    vocabulary, words = _begin(
        word_counts,
        [*special_tokens],
        [*special_tokens],
        _alphabet(word_counts, limit_alphabet, initial_alphabet),
        continuing_subword_prefix,
        "",
    )
    _merge(vocabulary, words, rule, vocab_size, min_frequency, continuing_subword_prefix, None, set())
    return vocabulary


def train_bpe(
    word_counts: Mapping[bytes, int],
    *,
    vocab_size: int,
    min_frequency: int = 0,
    special_tokens: Sequence[str] = (),
    user_defined_symbols: Sequence[str] = (),
    limit_alphabet: int | None = None,
    initial_alphabet: Sequence[str] = (),
    continuing_subword_prefix: str = "",
    end_of_word_suffix: str = "",
    max_token_length: int | None = None,
    byte_level: bool = False,
    byte_fallback: bool = False,
) -> tuple[list[str], list[tuple[str, str]]]:
    """Returns the vocabulary and the merges that `BPETrainer` with these fields learns from these words."""
    parts: Counter[str] = Counter()
    longest_first = sorted((symbol.encode() for symbol in user_defined_symbols), key=len, reverse=True)
    for word, count in word_counts.items():
        for part in re.split(b"|".join(map(re.escape, longest_first)), word) if longest_first else [word]:
            parts["".join(BYTE_ALPHABET[byte] for byte in part) if byte_level else part.decode()] += count
    reserved = [*user_defined_symbols, *(f"<0x{byte:02X}>" for byte in range(256) if byte_fallback)]
    vocabulary, words = _begin(
        parts,
        [*special_tokens, *reserved],
        [*special_tokens],
        sorted(BYTE_ALPHABET) if byte_level else _alphabet(parts, limit_alphabet, initial_alphabet),
        continuing_subword_prefix,
        end_of_word_suffix,
    )
    max_length = None if max_token_length is None else max(2, max_token_length - 1)
    merges = _merge(
        *(vocabulary, words, "frequency", vocab_size, min_frequency),
        *(continuing_subword_prefix, max_length, set(reserved)),
    )
    return vocabulary, list(dict.fromkeys(merges))


def train_words(word_counts: Mapping[str, int], special_tokens: Sequence[str], min_frequency: int) -> list[str]:
    """Returns the largest vocabulary that `WordLevelTrainer` learns from these words."""
    frequent = [word for word, count in word_counts.items() if word and count >= max(1, min_frequency)]
    frequent.sort(key=lambda word: (-word_counts[word], word.encode()))
    return list(dict.fromkeys([*special_tokens, *frequent]))


def train_characters(
    word_counts: Mapping[str, int], special_tokens: Sequence[str], min_frequency: int, character_coverage: float
) -> list[str]:
    """Returns the largest vocabulary that `CharacterTrainer` learns from these words."""
    characters = _count_characters(word_counts)
    total, covered = sum(characters.values()), 0
    vocabulary = dict.fromkeys(special_tokens)
    for character in sorted(characters, key=lambda c: (-characters[c], c)):
        if covered / total >= character_coverage or characters[character] < min_frequency:
            break
        covered += characters[character]
        vocabulary[character] = None
    return list(vocabulary)


def _count_characters(word_counts: Mapping[str, int]) -> Counter[str]:
    characters: Counter[str] = Counter()
    for text, count in word_counts.items():
        for character in text:
            characters[character] += count
    return characters


def _alphabet(word_counts: Mapping[str, int], limit: int | None, initial: Sequence[str]) -> list[str]:
    characters = _count_characters(word_counts)
    ranked = sorted(characters.keys() | set(initial), key=lambda c: (c not in initial, -characters[c], c))
    return sorted(ranked[:limit])


Words = list[tuple[int, list[str]]]
"""Count and symbols of each word."""


def _begin(
    word_counts: Mapping[str, int],
    before: Sequence[str],
    special_tokens: Sequence[str],
    alphabet: Sequence[str],
    prefix: str,
    suffix: str,
) -> tuple[list[str], Words]:
    """Returns the vocabulary before any merge, and the words as their characters."""
    known = {*special_tokens, *alphabet}
    marked: set[tuple[bool, bool, str, str]] = set()
    words: Words = []
    for text, count in word_counts.items():
        word = []
        for i, character in enumerate(text):
            if character in known:
                head, tail = prefix * (i > 0), suffix * (i == len(text) - 1)
                marked.add((bool(tail), bool(head), character, head + character + tail))
                word.append(head + character + tail)
        words.append((count, word))
    tokens = [token for *_, token in sorted(marked)]
    return list(dict.fromkeys([*before, *alphabet, *tokens])), words


def _merge(
    vocabulary: list[str],
    words: Words,
    rule: str,
    vocab_size: int,
    min_frequency: int,
    prefix: str,
    max_length: int | None,
    reserved: set[str],
) -> list[tuple[str, str]]:
    """Merges in `words`, adds to `vocabulary`, and returns the merges."""
    merges = []
    lengths = {symbol: 1 for _, word in words for symbol in word}
    while len(vocabulary) < vocab_size:
        ids = {token: i for i, token in enumerate(vocabulary)}
        symbols: Counter[str] = Counter()
        pairs: Counter[tuple[str, str]] = Counter()
        barred = set()
        for count, word in words:
            for symbol in word:
                symbols[symbol] += count
            for a, b in itertools.pairwise(word):
                pairs[a, b] += count
                is_long = max_length is not None and lengths[a] + lengths[b] > max_length
                if is_long or a + b.removeprefix(prefix) in reserved:
                    barred.add((a, b))
        ranked = []
        for (a, b), count in pairs.items():
            if count >= max(1, min_frequency) and (a, b) not in barred:
                score = Fraction(count, 1 if rule == "frequency" else symbols[a] * symbols[b])
                ranked.append((-score, ids[a], ids[b], a, b))
        if not ranked:
            break
        *_, left, right = min(ranked)
        merged = left + right.removeprefix(prefix)
        merges.append((left, right))
        lengths.setdefault(merged, lengths[left] + lengths[right])
        if merged not in ids:
            vocabulary.append(merged)
        for _, word in words:
            i = 0
            while i + 1 < len(word):
                if (word[i], word[i + 1]) == (left, right):
                    word[i : i + 2] = [merged]
                i += 1
    return merges
