# SPDX-License-Identifier: Apache-2.0
"""The patterns that real models ship, and the hand-written scanner of each."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal

from tokenmill.tokenizer.kernels import scanning
from tokenmill.tokenizer.pre_tokenizers import tables
from tokenmill.tokenizer.pre_tokenizers.pattern_automata import check_finished

Dialect = Literal["hf", "tiktoken"]
r"""Whose dialect a pattern is in: `{1,3}+` is possessive in tiktoken, and `(?:...{1,3})+` in HF's Oniguruma."""


@dataclasses.dataclass(frozen=True)
class Scanner:
    """A compiled pattern."""

    name: str
    """A name in `kernels.scanning.SCANNERS`, or AUTOMATA."""
    make_classes: Callable[..., Any]
    patterns: str = ""
    """The patterns of automata, if it runs these; empty for a hand-written scanner."""

    @property
    def drops_spaces(self) -> bool:
        """Whether white space is in no pre-token."""
        return self.name != scanning.AUTOMATA and scanning.SCANNERS[self.name].stops is not None

    @property
    def split(self) -> Any:
        """The kernel that splits a column with this scanner, see `kernels.scanning.split_kernel`."""
        return scanning.split_kernel(self.name)

    @property
    def classes(self) -> Any:
        """The scanner's table of code points; or automata, which are made anew for each call."""
        return self.make_classes()

    def check_finished(self, classes: Any) -> None:
        """Checks the result of `classes` after a call.

        Raises:
          TimeoutError: if an automaton gave up on a text.
        """
        if self.patterns:
            check_finished(classes, self.patterns)


_CLASSES = {"unicode_words": tables.word_classes, "bert": tables.bert_classes}
SCANNERS = {name: Scanner(name, _CLASSES.get(name, tables.pattern_classes)) for name in scanning.SCANNERS}


@functools.cache
def scanner_in(name: str, unicode: str) -> Scanner:
    """Returns the scanner of patterns or of BERT's words in a version of `unicode.tables.BERT_UNICODE`."""
    found = SCANNERS[name]
    return dataclasses.replace(found, make_classes=functools.partial(found.make_classes, unicode))


GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_ANY_CASE = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_BOTH_CASES = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = r"|[^\r\n\p{L}\p{N}]?\p{L}+"
_SIGNS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|"
_UPPER = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
_TIKTOKEN_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
_OLDER_TIKTOKEN_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)


def _spellings() -> dict[str, str]:
    """Returns spelling -> name of its scanner, for all known spellings that mean the same in both dialects."""
    found = {
        GPT2_PATTERN: "gpt2",
        r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",
        r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",
        r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s": "gpt2",
        _OLDER_TIKTOKEN_CL100K: "cl100k",
        _OLDER_TIKTOKEN_CL100K.replace("{1,3}", ""): "qwen2",
        _TIKTOKEN_CL100K.replace("{1,3}+", "{1,3}"): "cl100k_tiktoken",
        _CLIP: "clip",
        _CLIP.replace(r"[\p{L}]", r"\p{L}").replace(r"[\p{N}]", r"\p{N}"): "clip",
    }
    for contraction, suffix in ((_ANY_CASE, ""), (f"(?:{_BOTH_CASES})", "_ascii"), (_BOTH_CASES, "_ascii")):
        found[contraction + _WORDS + r"|\p{N}{1,3}" + _SIGNS + _SPACES] = f"cl100k{suffix}"
        found[contraction + _WORDS + r"|\p{N}" + _SIGNS + _SPACES] = f"qwen2{suffix}"
    marked = r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
    found[_ANY_CASE + marked + _SPACES] = "qwen35"
    for slash in ("/", r"\/"):
        found[_cased_words(f"{_ANY_CASE}?") + r"|\p{N}{1,3}" + _signs(slash)] = "o200k"
    return found


def _cased_words(contraction: str, upper: str = _UPPER, lower: str = _LOWER) -> str:
    return f"{upper}*{lower}+{contraction}|{upper}+{lower}*{contraction}"


def _signs(slash: str) -> str:
    return rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n{slash}]*|" + _SPACES


def _named() -> dict[str, str]:
    """Returns the pattern of each kind of `.tiktoken` file, spelled to mean the same in HF as in tiktoken."""
    first: dict[str, str] = {}
    for pattern, scanner in PATTERNS.items():
        first.setdefault(scanner, pattern)
    scanners_of = {
        "gpt2": "gpt2 r50k_base p50k_base p50k_edit",
        "cl100k_tiktoken": "cl100k_base",
        "o200k": "o200k_base o200k_harmony llama4",
        "cl100k": "llama3",
        "qwen2": "qwen",
    }
    first["cl100k"] = _ANY_CASE + _WORDS + r"|\p{N}{1,3}" + _SIGNS + _SPACES
    found = {name: first[scanner] for scanner, names in scanners_of.items() for name in names.split()}
    upper, lower = (cased[:-1] + r"&&[^\p{Han}]]" for cased in (_UPPER, _LOWER))
    han = r"[\p{Han}]+|" + _cased_words(f"{_ANY_CASE}?", upper, lower)
    return found | {
        "tekken": _cased_words("") + r"|\p{N}" + _signs("/"),
        "kimi_k2": han + r"|\p{N}{1,3}" + _SIGNS + _SPACES,
    }


PATTERNS = _spellings()
TIKTOKEN_PATTERNS = _named()
"""Name of an encoding -> its pattern; a `.tiktoken` file does not say its own."""
_ONLY_HF = {_TIKTOKEN_CL100K: "cl100k_ruby"}
_ONLY_TIKTOKEN = {_TIKTOKEN_CL100K: "cl100k_tiktoken"}


def scanner_name(pattern: str, dialect: Dialect = "hf") -> str | None:
    """Returns the name of the scanner whose pre-tokens are the matches of a pattern, None if there is none.

    Args:
      pattern: the text of the pattern as in a `tokenizer.json` or in tiktoken.
      dialect: whose dialect it is in.
    """
    pattern = pattern.replace("\r", r"\r").replace("\n", r"\n")  # files have line ends either way
    only = _ONLY_HF if dialect == "hf" else _ONLY_TIKTOKEN
    return only.get(pattern) or PATTERNS.get(pattern)
