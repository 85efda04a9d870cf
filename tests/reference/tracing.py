# SPDX-License-Identifier: Apache-2.0
"""Where characters come from, one text after the other in plain Python; and what columns say of single texts."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tokenmill.tokenizer import normalizers
from tokenmill.tokenizer.assembling import EncodedTexts
from tokenmill.tokenizer.encoding import Encoding
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET
from tokenmill.tokenizer.normalizers.base import Edit, edits_of_characters, placed
from tokenmill.tokenizer.normalizers.edits import found_edits, places_in_text
from tokenmill.tokenizer.normalizers.forms import Change
from tokenmill.tokenizer.normalizers.kernels.precompiled import find_mapped
from tokenmill.tokenizer.offsets import EncodedToken
from tokenmill.tokenizer.post_processors import TemplateProcessing, Truncation
from tokenmill.tokenizer.pre_tokenizers import ByteLevel, PreTokenizer
from tokenmill.tokenizer.pre_tokenizers.sequence import flat
from tokenmill.tokenizer.ragged import characters_before, text_rows
from tokenmill.tokenizer.traced import PlacedText, Traced


def original(text: str, first: int = 0) -> PlacedText:
    """Returns an unchanged text; its first character is number `first` of the original."""
    return PlacedText(text, range(first, first + len(text)), range(first + 1, first + len(text) + 1))


def normalized(normalizer: Any, text: PlacedText) -> PlacedText:
    """Returns a normalized text by the edits of each step."""
    if isinstance(normalizer, normalizers.Sequence | normalizers.BertNormalizer):
        is_sequence = isinstance(normalizer, normalizers.Sequence)
        for step in normalizer.flat() if is_sequence else normalizer.steps():
            text = normalized(step, text)
        return text
    if isinstance(normalizer, normalizers.ByteLevel):
        spell = edits_of_characters(text.text, lambda c: "".join(BYTE_ALPHABET[b] for b in c.encode()))
        return placed(text, spell)
    if isinstance(normalizer, normalizers.Prepend):
        return placed(text, [Edit(0, 1, normalizer.prepend + text.text[0])] if text.text else [])
    if isinstance(normalizer, normalizers.Precompiled):
        return placed(text, edits_of_map(normalizer, text.text))
    if isinstance(normalizer, normalizers.NFC | normalizers.NFD | normalizers.NFKC | normalizers.NFKD):
        return placed(text, edits_of_changes(text.text, normalizer.changes_of(text.text)))
    return placed(text, normalizer.edits(text.text)) if text.text else text


def edits_of_changes(text: str, changes: Iterable[Change]) -> list[Edit]:
    """Returns the edits of a new text that is given character by character."""
    edits: list[Edit] = []
    at = 0
    for char, change in changes:
        if change > 0:
            edits.append(Edit(at, at, char))
            continue
        edits += [Edit(at, at + 1, char)] if text[at] != char else []
        edits += [Edit(at + 1, at + 1 - change, "")] if change else []
        at += 1 - change
    return [*edits, Edit(at, len(text), "")] if at < len(text) else edits


def edits_of_map(normalizer: normalizers.Precompiled, text: str) -> list[Edit]:
    """Returns the edits of a character map as HF tokenizers makes them."""
    found = found_edits(find_mapped, text_rows([text]), normalizer.tables)
    pool, texts = normalizer.tables.texts.pool, normalizer.tables.texts
    changes: list[Change] = []
    at = 0
    for (start, stop), k in zip(places_in_text(text, found[:, :2]), found[:, 2].tolist(), strict=True):
        new = pool[texts.starts[k] : texts.stops[k]].tobytes().decode()
        n_added = len(new) - (stop - start)
        changes += [(c, 0) for c in text[at:start]]
        changes += [(c, int(i >= stop - start)) for i, c in enumerate(new)]
        if n_added < 0 and changes:
            # A removed character is merged into the one before; at the very beginning HF drops it.
            changes[-1] = (changes[-1][0], changes[-1][1] + n_added)
        at = stop
    return edits_of_changes(text, [*changes, *((c, 0) for c in text[at:])]) if len(found) else []


def traced(normalizer: Any, text: str, first: int = 0) -> PlacedText:
    """Returns a text that was normalized as a column of one row."""
    return next(normalizer.trace(Traced.of_texts([original(text, first)])).texts())


def traced_words(
    pre_tokenizer: PreTokenizer, text: str, *, is_first: bool = True, first: int = 0
) -> list[tuple[str, tuple[int, int]]]:
    """Returns the pre-tokens of a text, spelled if steps follow a `ByteLevel`, and where they are."""
    pieces = pre_tokenizer.trace_rows(text_rows([text]), np.array([is_first]))
    assert pieces.origins is not None
    words, steps = pieces.words, [isinstance(step, ByteLevel) for step in flat(pre_tokenizer)]
    ends = np.stack((words.starts + 1, words.stops), 1).ravel()
    places = pieces.origins[characters_before(words.values, ends) - 1].reshape(-1, 2).tolist()
    found = []
    for i, (start, last) in enumerate(places):
        word = words.word(i)
        is_spelled = any(steps[:-1])
        spelled = "".join(BYTE_ALPHABET[b] for b in word) if is_spelled else word.decode()
        found.append((spelled, (first + start, first + last + 1)))
    return found


def assemble(
    template: TemplateProcessing, sequences: Sequence[list[EncodedToken]], truncation: Truncation | None = None,
    trims: tuple[bool, ...] = (),
) -> Encoding:  # fmt: skip
    """Lays out a text or a pair of which everything is known."""
    return EncodedTexts.given(sequences, template, truncation, trims).encodings()[0]
