# SPDX-License-Identifier: Apache-2.0
"""The patterns of encodings whose files do not say them."""

GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_ANY_CASE = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = r"|[^\r\n\p{L}\p{N}]?\p{L}+"
_SIGNS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|"
_UPPER = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _cased_words(contraction: str, upper: str = _UPPER, lower: str = _LOWER) -> str:
    return f"{upper}*{lower}+{contraction}|{upper}+{lower}*{contraction}"


def _signs(slash: str) -> str:
    return rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n{slash}]*|" + _SPACES


def _named() -> dict[str, str]:
    """Returns the pattern of each kind of `.tiktoken` file, spelled to mean the same in HF as in tiktoken."""
    upper, lower = (cased[:-1] + r"&&[^\p{Han}]]" for cased in (_UPPER, _LOWER))
    han = r"[\p{Han}]+|" + _cased_words(f"{_ANY_CASE}?", upper, lower)
    cl100k = (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+"
        r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
    )
    o200k = _cased_words(f"{_ANY_CASE}?") + r"|\p{N}{1,3}" + _signs("/")
    qwen = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
    return dict.fromkeys(("gpt2", "r50k_base", "p50k_base", "p50k_edit"), GPT2_PATTERN) | {
        "cl100k_base": cl100k,
        **dict.fromkeys(("o200k_base", "o200k_harmony", "llama4"), o200k),
        "llama3": _ANY_CASE + _WORDS + r"|\p{N}{1,3}" + _SIGNS + _SPACES,
        "qwen": qwen,
        "tekken": _cased_words("") + r"|\p{N}" + _signs("/"),
        "kimi_k2": han + r"|\p{N}{1,3}" + _SIGNS + _SPACES,
    }


CODE_PATTERN = _cased_words("") + r"|\p{N}| ?[^\s\p{L}\p{N}]+|[\r\n]+[ \t]*|\s+(?!\S)|\s+"
"""Words of source code: of `parseHTTP_v2` `parse`, `HTTP`, `_v` and `2`; a line break and the indentation after it."""

TIKTOKEN_PATTERNS = _named()
"""Name of an encoding -> its pattern; a `.tiktoken` file does not say its own."""
