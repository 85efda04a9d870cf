# SPDX-License-Identifier: Apache-2.0
"""The reference implementation of `UnigramTrainer`: substrings in dictionaries, one word after the other. Imported by
tests only."""

import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tokenmill.tokenizer.pre_tokenizers.tables import script_numbers
from tokenmill.tokenizer.trainers.unigram import UnigramTrainer
from tokenmill.tokenizer.trainers.unigram_seeds import LEAST_AT_ENDS

Scores = dict[str, float]


def train_unigram(
    trainer: UnigramTrainer, word_counts: Mapping[str, int], special: Sequence[str] = ("<unk>", "<s>", "</s>")
) -> list[tuple[str, float]]:
    """Returns the pieces that the trainer learns from these words, best first, without the special ones."""
    pattern = "|".join(map(re.escape, sorted(special, key=len, reverse=True)))
    words = [(part, count) for word, count in word_counts.items() for part in re.split(pattern, word)]
    total = sum(len(word) * count for word, count in words)
    unit = 1 << max(0, min(40, 61 - total.bit_length()))
    alphabet, runs = cut_words(trainer, words, special)
    scores = find_seeds(trainer, runs)
    enough = int(trainer.vocab_size * 1.1)
    while True:
        for _ in range(trainer.num_sub_iterations):
            scores = reestimate(scores, runs, unit)
        if len(scores) <= enough:
            break
        scores = prune(scores, runs, max(enough, int(trainer.shrinking_factor * len(scores))))

    rounded = {piece: float(np.float32(score)) for piece, score in scores.items()}
    final = {character: rounded[character] for character in alphabet if character in rounded}
    missing = sorted(alphabet.keys() - final.keys(), key=lambda c: (-alphabet[c], c))
    for k, character in enumerate(missing):
        final[character] = float(np.float32(min(rounded.values()) + 0.0001 * k))
    ranked = sorted((-score, piece) for piece, score in rounded.items() if piece not in final)
    for negative, piece in ranked[: trainer.vocab_size - len(special) - len(final)]:
        final[piece] = -negative
    return [(piece, score) for piece, score in sorted(final.items(), key=lambda item: (-item[1], item[0]))]


def cut_words(
    trainer: UnigramTrainer, words: Sequence[tuple[str, int]], special: Sequence[str]
) -> tuple[dict[str, int], list[tuple[str, int]]]:
    """Returns the alphabet with its counts, and the runs of its characters in the words."""
    parts = [(part, count) for word, count in words for part in re.split("[\0▅]", word)]
    counts: Counter[str] = Counter()
    for part, count in parts:
        for character in part:
            counts[character] += count
    required = set(trainer.required_chars) - {"\0", "▅"} - set(special)
    taken = dict.fromkeys(required, 0)
    total = before = sum(counts[character] for character in required)
    total += sum(count for character, count in counts.items() if character not in required)
    for character, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if character not in required and np.float32(before / max(1, total)) < np.float32(trainer.character_coverage):
            taken[character] = count
            before += count
    alphabet = {character: counts[character] for character in taken}
    runs = []
    for part, count in parts:
        known = "".join(character if character in alphabet else "\0" for character in part)
        runs += [(run, count) for run in known.split("\0") if run]
    return alphabet, runs


def find_seeds(trainer: UnigramTrainer, runs: Sequence[tuple[str, int]]) -> Scores:
    """Returns the pieces to begin with, with their scores."""
    counts: Counter[str] = Counter()
    followers = defaultdict(set)
    for run, count in runs:
        for i in range(len(run)):
            for j in range(i + 1, min(len(run), i + trainer.max_piece_length) + 1):
                counts[run[i:j]] += count
                followers[run[i:j]].add(run[j : j + 1])
    shares = {piece: count for piece, count in counts.items() if len(piece) == 1}
    ranked = sorted(
        (-count * len(piece), piece)
        for piece, count in counts.items()
        if len(piece) > 1
        and (len(followers[piece]) > 1 or (followers[piece] == {""} and count >= LEAST_AT_ENDS))
        and is_valid(trainer, piece)
    )
    shares |= {piece: -negative for negative, piece in ranked[: trainer.seed_sentencepiece_size]}
    log_total = math.log(sum(shares.values()))
    return {piece: math.log(shares[piece]) - log_total for piece in sorted(shares)}


def is_valid(trainer: UnigramTrainer, piece: str) -> bool:
    """Whether these two or more characters may be a piece."""
    if "▁" in piece and not (trainer.allow_whitespace_only_pieces and set(piece) == {"▁"}):
        turned = piece[::-1] if trainer.treat_whitespace_as_suffix else piece
        if "▁" in (turned[1:] if trainer.split_by_whitespace else turned[-1]):
            return False
    digits = "0123456789０１２３４５６７８９"
    if trainer.split_digits and any(character in digits for character in piece):
        return False
    scripts: list[int | None] = []
    for character in piece.replace("▁", ""):
        number = int(script_numbers()[ord(character)]) or int(script_numbers()[ord(".")])
        if not trainer.split_by_number and character in digits:
            scripts.append(None)
        elif number == script_numbers()[0x300]:
            scripts.append(scripts[-1] if scripts else None)
        else:
            scripts.append(number)
    changes = any(None not in pair and pair[0] != pair[1] for pair in itertools.pairwise(scripts))
    return not (trainer.split_by_unicode_script and changes)


def _edges(scores: Scores, text: str, start: int, unknown: float) -> Iterator[tuple[int, str | None, float]]:
    """Yields end, piece and score of all pieces that may begin at `start`, longer ones first."""
    longest = max(map(len, scores))
    for stop in range(min(len(text), start + longest), start, -1):
        if text[start:stop] in scores:
            yield stop, text[start:stop], scores[text[start:stop]]
    if text[start] not in scores:
        yield start + 1, None, unknown


def _unknown_score(scores: Scores) -> float:
    return min(scores.values()) - 10.0


def expect(scores: Scores, runs: Sequence[tuple[str, int]], unit: int) -> Counter[str]:
    """Returns the expected count of each piece, in parts of 1 / `unit`. Long runs would underflow."""
    expected: Counter[str] = Counter()
    unknown = _unknown_score(scores)
    for run, count in runs:
        n = len(run)
        forward, backward = [1.0] + [0.0] * n, [0.0] * (n + 1)
        for i in range(n):
            for stop, _, score in _edges(scores, run, i, unknown):
                forward[stop] += forward[i] * math.exp(score)
        backward[n] = float(count) * unit / forward[n]
        for i in range(n - 1, -1, -1):
            for stop, piece, score in _edges(scores, run, i, unknown):
                share = backward[stop] * math.exp(score)
                backward[i] += share
                if piece is not None:
                    expected[piece] += int(forward[i] * share + 0.5)
    return expected


def digamma(x: float) -> float:
    """Returns an approximation of the derivative of the logarithm of the gamma function."""
    result = 0.0
    while x < 7:
        result -= 1 / x
        x += 1
    x -= 0.5
    xx = 1 / x
    xx2 = xx * xx
    xx4 = xx2 * xx2
    return result + math.log(x) + (1 / 24) * xx2 - (7 / 960) * xx4 + (31 / 8064) * xx4 * xx2 - (127 / 30720) * xx4 * xx4


def reestimate(scores: Scores, runs: Sequence[tuple[str, int]], unit: int) -> Scores:
    """Returns the pieces after one step of EM."""
    expected = expect(scores, runs, unit)
    kept = {piece: expected[piece] for piece in scores if 2 * expected[piece] >= unit}
    if not kept:
        return scores
    of_total = digamma(sum(kept.values()) / unit)
    return {piece: digamma(parts / unit) - of_total for piece, parts in kept.items()}


def find_best(scores: Scores, text: str, *, whole: bool = True) -> tuple[float, list[str | None]]:
    """Returns the score and the pieces of the best path; None is an unknown character."""
    unknown = _unknown_score(scores)
    best: list[tuple[float, list[str | None]]] = [(0.0, []), *((-math.inf, []) for _ in text)]
    for i in range(len(text)):
        for stop, piece, score in _edges(scores, text, i, unknown):
            if (whole or piece != text) and best[i][0] + score > best[stop][0]:
                best[stop] = (best[i][0] + score, [*best[i][1], piece])
    return best[-1]


def prune(scores: Scores, runs: Sequence[tuple[str, int]], size: int) -> Scores:
    """Returns the `size` pieces with the highest losses."""
    frequencies: Counter[str] = Counter()
    for run, count in runs:
        for piece in find_best(scores, run)[1]:
            if piece is not None:
                frequencies[piece] += count
    total = frequencies.total()
    ranked = []
    for piece, score in scores.items():
        frequency = frequencies[piece]
        if len(piece) == 1 and frequency:
            ranked.append((-math.inf, piece))
        elif frequency:
            of_path, path = find_best(scores, piece, whole=False)
            if of_path <= score:
                others = 0.0
                for other in reversed(path):
                    others += math.log((frequencies[other] if other else 0) + frequency)
                others -= len(path) * math.log(total + frequency * (len(path) - 1))
                ranked.append((-frequency * (math.log(frequency) - math.log(total) - others), piece))
    kept = {piece for _, piece in sorted(ranked)[:size]}
    return {piece: score for piece, score in scores.items() if piece in kept}
