# SPDX-License-Identifier: Apache-2.0
"""Tracks where normalized characters came from, as HF tokenizers does, in plain Python.

Source: HF tokenizers `tokenizer/normalizer.rs`, `NormalizedString`. It has an alignment for each byte; those of the
bytes of one character are always equal, so here there is one for each character.
"""

from collections.abc import Callable, Iterable

from tokenizer.aligned import AlignedText

Change = tuple[str, int]
"""A character of the new text, and: 1 if it is inserted, with the origin of the character before it; 0 if it replaces
one character; -n if it replaces a character and the n after it."""


def transform(text: AlignedText, changes: Iterable[Change], n_removed: int = 0) -> AlignedText:
    """Makes a new text of changes; the first `n_removed` characters are removed before the first change."""
    characters, starts, stops = [], [], []
    at = n_removed
    for char, change in changes:
        source = at - 1 if change > 0 else at
        characters.append(char)
        # A character inserted before all others has no character before it: it is at the very start.
        starts.append(text.starts[source] if source >= 0 else text.starts[0] if text.starts else 0)
        stops.append(text.stops[source] if source >= 0 else starts[-1])
        if change <= 0:
            at += 1 - change
    return AlignedText("".join(characters), starts, stops)


def keep(text: AlignedText, is_kept: Callable[[str], bool]) -> AlignedText:
    """Removes the characters for which `is_kept` is false."""
    kept = [i for i, char in enumerate(text.text) if is_kept(char)]
    return AlignedText(
        "".join(text.text[i] for i in kept), [text.starts[i] for i in kept], [text.stops[i] for i in kept]
    )


def expand(text: AlignedText, texts_of: Callable[[str], str]) -> AlignedText:
    """Turns every character into one or more."""
    return transform(text, [(new, int(i > 0)) for char in text.text for i, new in enumerate(texts_of(char))])
