# SPDX-License-Identifier: Apache-2.0
"""Compares tokenizers of one vocabulary on every code point: which of them get other ids."""

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from tokenmill.pipeline.comparing.loading import Candidate
from tokenmill.tokenizer import Tokenizer

_TEXTS = ("{}", "a{}b")
"""Texts in which a code point is tried: alone, and inside a word, where punctuation cuts."""
_BATCH = 1 << 15
"""Code points that are encoded at once."""


def compare(candidates: Sequence[Candidate]) -> dict[str, Any]:
    """Returns the code points to which tokenizers give other ids than the first of them, as plain JSON.

    Raises:
      ValueError: if their vocabularies differ, so that ids say nothing.
    """
    first = candidates[0]
    vocabulary = first.tokenizer.get_vocab()
    for other in candidates[1:]:
        if other.tokenizer.get_vocab() != vocabulary:
            raise ValueError(
                f"--on: {first.label} and {other.label} have different vocabularies, so their ids cannot be compared; "
                "name a corpus or word counts to compare them on"
            )
    differing, n_tried = [], 0
    for start in range(0, 0x110000, _BATCH):
        characters = [chr(c) for c in range(start, start + _BATCH) if not 0xD800 <= c < 0xE000]
        n_tried += len(characters)
        found: dict[str, dict[str, dict[str, list[str]]]] = {}
        for form in _TEXTS:
            texts = [form.format(character) for character in characters]
            for i, text in _differing(candidates, texts):
                tokens = {each.label: each.tokenizer.encode(text, add_special_tokens=False) for each in candidates}
                by = {label: _shown(each.ids, candidates[0].tokenizer) for label, each in tokens.items()}
                found.setdefault(characters[i], {})[text] = by
        differing += [
            {"code_point": f"U+{ord(c):04X}", "name": unicodedata.name(c, ""), "texts": found[c]} for c in sorted(found)
        ]
    labels = [each.label for each in candidates]
    return {"format_version": 1, "tokenizers": labels, "code_points": n_tried, "differing": differing}


def _differing(candidates: Sequence[Candidate], texts: list[str]) -> Iterator[tuple[int, str]]:
    """Yields the texts with ids of which the tokenizers are not of one mind, and their places."""
    column = pa.array(texts, pa.string())
    rows = [each.tokenizer.encode_arrow(column) for each in candidates]
    if all(rows[0].equals(other) for other in rows[1:]):
        return
    lists = [each.to_pylist() for each in rows]
    yield from ((i, text) for i, text in enumerate(texts) if any(other[i] != lists[0][i] for other in lists[1:]))


def _shown(ids: Sequence[int], tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.id_to_token(token_id) or str(token_id) for token_id in ids]


def lines(report: dict[str, Any]) -> Iterator[str]:
    """Yields a comparison as text: the code points, one a line, and how many they are."""
    for each in report["differing"]:
        for text, by in each["texts"].items():
            tokens = "   ".join(f"{label}: {' '.join(found)}" for label, found in by.items())
            yield f"{each['code_point']:8} {text!r}   {tokens}   {each['name'].lower()}".rstrip()
    n = len(report["differing"])
    yield f"{n:,} of {report['code_points']:,} code points have other ids in one of {', '.join(report['tokenizers'])}"
