# SPDX-License-Identifier: Apache-2.0
"""The characters that merging begins with: which are kept, how they are written, their symbols in the vocabulary."""

import reprlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.kernels.classes import N_CODE_POINTS
from tokenmill.tokenizer.models.bpe import BYTE_ALPHABET
from tokenmill.tokenizer.trainers.kernels import pair_merging
from tokenmill.tokenizer.trainers.kernels.pair_merging import CONTINUES, ENDS
from tokenmill.tokenizer.trainers.word_counts import CountedWords


class Characters(NamedTuple):
    """How often each character occurs, and where in words: arrays over code points, or over the 256 bytes."""

    occurrences: npt.NDArray[np.int64]
    places: npt.NDArray[np.uint8]
    """Bit `place` is set if the character occurs at that place of some word; a place is CONTINUES | ENDS."""

    @property
    def names(self) -> Sequence[str] | None:
        """The characters that vocabularies write for bytes; None if characters are written as they are."""
        return BYTE_ALPHABET if self.occurrences.size == len(BYTE_ALPHABET) else None

    def name(self, character: int) -> str:
        """Returns how a vocabulary writes a character."""
        return chr(character) if self.names is None else self.names[character]


class FirstTokens(NamedTuple):
    """The entries of a vocabulary before anything is merged."""

    tokens: list[str]
    ids: npt.NDArray[np.int32]
    """int32[4, n_distinct]: the symbol of each character by its place, -1 if it is left out."""
    n_alphabet: int
    n_marked: int
    """Entries for characters with the prefix or the suffix."""

    def parts(self, marks: Sequence[str]) -> list[str]:
        """Returns, for messages, how many entries the alphabet and the characters with one of these marks take."""
        marked = f"{self.n_marked} of them again with {' or '.join(map(repr, marks))}"
        return [f"{self.n_alphabet} characters", *([marked] if self.n_marked else [])]


def count_characters(words: CountedWords) -> Characters:
    """Counts the characters of words: bytes if their values are uint8, else code points."""
    n_distinct = 256 if words.values.dtype == np.uint8 else N_CODE_POINTS
    characters = Characters(np.zeros(n_distinct, np.int64), np.zeros(n_distinct, np.uint8))
    pair_merging.count_characters(*words, *characters)
    return characters


def choose_alphabet(
    characters: Characters, initial_alphabet: Sequence[str], limit_alphabet: int | None
) -> npt.NDArray[np.int64]:
    """Returns the code points to keep, ascending: the initial ones, then the most frequent; ties go to lower ones."""
    wanted = np.unique(np.array([ord(character) for character in initial_alphabet], np.int64))
    found = np.setdiff1d(np.flatnonzero(characters.occurrences), wanted)
    if limit_alphabet is not None:
        by_frequency = np.argsort(-characters.occurrences[found], kind="stable")  # ties stay in order of code points
        found = found[by_frequency[: limit_alphabet - len(wanted)]]
    return np.union1d(wanted, found)


def first_tokens(
    before: Sequence[str],
    alphabet: npt.NDArray[np.int64],
    characters: Characters,
    *,
    prefix: str = "",
    suffix: str = "",
    may_be_characters: Sequence[str] = (),
) -> FirstTokens:
    """Returns the tokens `before`, the alphabet, then its characters with the prefix, the suffix, and both.

    Within each of these groups the order is by code point of the written character. Marked characters are included only
    if they occur at such a place.

    Args:
      before: distinct; may contain characters of the alphabet, which then keep their place.
      alphabet: the characters to keep.
      characters: those that occur, and where.
      prefix, suffix: put before characters that continue a word, and after those that end one.
      may_be_characters: tokens of `before`; the characters among them are kept like those of the alphabet.
    """
    n_distinct = characters.occurrences.size
    singles = [] if characters.names else [ord(token) for token in may_be_characters if len(token) == 1]
    known = np.union1d(alphabet, np.array(singles, np.int64))
    known = np.array(sorted(known.tolist(), key=characters.name), np.int64)
    kept = set(alphabet.tolist())
    names = [characters.name(character) for character in known.tolist() if character in kept]
    tokens = list(dict.fromkeys([*before, *names]))
    ids = np.full((4, n_distinct), -1, np.int32)
    position_of = {token: position for position, token in enumerate(tokens)}
    places_of: dict[tuple[str, str], list[int]] = {}  # places with the same markers share a symbol
    for place in range(4):
        marks = (prefix if place & CONTINUES else "", suffix if place & ENDS else "")
        places_of.setdefault(marks, []).append(place)
    n_marked = 0
    for (head, tail), places in places_of.items():
        is_here = characters.places[known] & sum(1 << place for place in places) != 0
        for character in known[is_here].tolist():
            token = head + characters.name(character) + tail
            if token not in position_of:
                position_of[token] = len(tokens)
                tokens.append(token)
            n_marked += bool(head or tail)
            ids[places, character] = position_of[token]
    return FirstTokens(tokens, ids, len(names), n_marked)


def fewer(limit_alphabet: int | None) -> str:
    """Returns, for messages, how to make the alphabet smaller."""
    return f", or keep fewer characters with limit_alphabet (now {limit_alphabet!r})"


def check_alphabet(initial_alphabet: Sequence[str], limit_alphabet: int | None) -> None:
    """Checks the fields of trainers that merge characters.

    Raises:
      ValueError: if one is out of range, or they contradict each other.
    """
    if limit_alphabet is not None and limit_alphabet < 1:
        raise ValueError(f"limit_alphabet must be positive or None, got {limit_alphabet!r}")
    for character in initial_alphabet:
        if len(character) != 1:
            raise ValueError(f"initial_alphabet must hold single characters, got {reprlib.repr(character)}")
    n_initial = len(set(initial_alphabet))
    if limit_alphabet is not None and n_initial > limit_alphabet:
        raise ValueError(
            f"initial_alphabet has {n_initial} characters, more than limit_alphabet={limit_alphabet!r} lets in; "
            "raise limit_alphabet or shorten initial_alphabet"
        )
