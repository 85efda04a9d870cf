# SPDX-License-Identifier: Apache-2.0
"""How HF tokenizers keeps track of where normalized characters came from, in plain Python.

Source: HF tokenizers `tokenizer/normalizer.rs`, `NormalizedString`. It holds alignments by byte; those of the bytes of
one character are always equal, so here they are held by character.
"""

from collections.abc import Callable, Iterable

from tokenizer.aligned import AlignedText

Change = tuple[str, int]
"""A character of the new text, and 1 if it is a new one, which came from where the one before came from; 0 if it takes
the place of a character; -n if it takes the place of a character and of the n after it."""


def transform(text: AlignedText, changes: Iterable[Change], n_removed: int = 0) -> AlignedText:
    """Makes a new text of changes; the first `n_removed` characters are gone before the first change."""
    characters, starts, stops = [], [], []
    at = n_removed
    for char, change in changes:
        source = at - 1 if change > 0 else at
        characters.append(char)
        # What is inserted before everything came from nowhere.
        starts.append(text.starts[source] if source >= 0 else text.starts[0] if text.starts else 0)
        stops.append(text.stops[source] if source >= 0 else starts[-1])
        if change <= 0:
            at += 1 - change
    return AlignedText("".join(characters), starts, stops)


def keep(text: AlignedText, is_kept: Callable[[str], bool]) -> AlignedText:
    """Removes all other characters."""
    kept = [i for i, char in enumerate(text.text) if is_kept(char)]
    return AlignedText(
        "".join(text.text[i] for i in kept), [text.starts[i] for i in kept], [text.stops[i] for i in kept]
    )


def expand(text: AlignedText, texts_of: Callable[[str], str]) -> AlignedText:
    """Turns every character into one or more."""
    return transform(text, [(new, int(i > 0)) for char in text.text for i, new in enumerate(texts_of(char))])
