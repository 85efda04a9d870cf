# SPDX-License-Identifier: Apache-2.0
"""Splits of a text at a delimiter, one segment after the other in plain Python, by HF tokenizers' `normalizer.rs`."""

import itertools

import regex


def split(text: str, pattern: str, behavior: str, *, invert: bool = False) -> list[str]:
    """Returns the pre-tokens of a text; `pattern` is a regular expression that matches no empty string."""
    segments: list[tuple[str, bool]] = []
    end = 0
    for match in regex.finditer(pattern, text, flags=regex.VERSION1):
        segments += [(text[end : match.start()], invert), (match.group(), not invert)]
        end = match.end()
    segments = [(piece, is_match) for piece, is_match in [*segments, (text[end:], invert)] if piece]
    if behavior == "removed":
        return [piece for piece, is_match in segments if not is_match]
    if behavior == "contiguous":
        return ["".join(piece for piece, _ in run) for _, run in itertools.groupby(segments, key=lambda each: each[1])]
    if behavior == "isolated":
        return [piece for piece, _ in segments]
    is_reversed = behavior == "merged_with_next"
    words: list[str] = []
    was_match = True  # at the edge there is nothing to merge with
    for piece, is_match in segments[:: -1 if is_reversed else 1]:
        if is_match and not was_match:
            words[-1] = piece + words[-1] if is_reversed else words[-1] + piece
        else:
            words.append(piece)
        was_match = is_match
    return words[:: -1 if is_reversed else 1]
