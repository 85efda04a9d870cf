# SPDX-License-Identifier: Apache-2.0
"""Code point tables of the BERT normalizer and pre-tokenizer.

Clean-up, CJK isolation, decomposition, accent stripping and lower-casing look at one character at a time, so all of
them
together are one table: for each code point a class, and the bytes that it becomes. The one exception is canonical
reordering, which looks at neighbours: the few characters that survive accent stripping and can take part in it have
their own class, and the scanner sorts them.
"""

import functools
import itertools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.kernels.ascii_blocks import BLANKS, BYTES, DIGITS, LETTERS, NEWLINES, SIGNS, TABS
from tokenmill.tokenizer.kernels.classes import (
    DROPPED,
    ISOLATED,
    N_CODE_POINTS,
    REORDERED,
    SPACE,
    TAIL,
    TAIL_CLASS,
    WORD,
)
from tokenmill.tokenizer.unicode import data

HANGUL_FIRST, HANGUL_LAST = 0xAC00, 0xD7A3

HF_1 = "17"
BERT_UNICODE = ("8", HF_1)
"""The versions of Unicode that BERT's punctuation can be of: that of HF tokenizers 0.23, and that of 1.0.

The latter decomposes by the newer version, too, and sorts by it; all else is the same in both.
"""


class BertTables(NamedTuple):
    """The BERT scanner's tables of code points. Read-only; shared by all tokenizers with the same options."""

    classes: npt.NDArray[np.uint8]
    """uint8[0x110000]: WORD, SPACE, ISOLATED, DROPPED or REORDERED."""
    replacements: npt.NDArray[np.int32]
    """int32[0x110000]: 0 if the character stays as it is, else `offset << 4 | n_bytes` into `pool`."""
    pool: npt.NDArray[np.uint8]
    """uint8[n]: UTF-8 of the replacements."""
    ascii_bytes: npt.NDArray[np.uint8]
    """uint8[256]: the byte that an ASCII word character becomes; 0 for every byte that needs a closer look."""
    digits_apart: np.uint64
    """All ones if each digit is a word of its own, else 0."""
    combining: npt.NDArray[np.uint8]
    """uint8[0x110000]: the canonical combining class, or TAIL; all zero if nothing is decomposed."""
    is_mark: npt.NDArray[np.bool_]
    """bool[0x110000]: nonspacing marks, which accent stripping removes only after canonical ordering."""
    max_bytes_ratio: float
    """No text grows by more than this factor, in bytes."""


@functools.cache
def combining_classes(unicode: str = "8") -> npt.NDArray[np.uint8]:
    """Returns the canonical combining class of every code point, uint8[0x110000]."""
    classes = data.numbers("bert/combining_classes")
    return classes | data.before_18(data.numbers("text/combining_classes")) if unicode == HF_1 else classes


@functools.cache
def decompositions(unicode: str = "8") -> dict[int, str]:
    """Returns the full canonical decompositions, except for Hangul."""
    return data.texts("bert/decompositions") | (data.texts("text/canonical") if unicode == HF_1 else {})


@functools.cache
def lowercase() -> dict[int, str]:
    """Returns the full lower-case mappings that change something."""
    return data.texts("bert/lowercase")


@functools.cache
def property_table(name: str) -> npt.NDArray[np.bool_]:
    """Returns which code points have a property that HF's BERT tests, bool[0x110000]: `property_table("spaces")`."""
    return data.members(f"bert/{name}")


def punctuation(unicode: str = "8") -> npt.NDArray[np.bool_]:
    """Returns what BERT takes for punctuation in a version of `BERT_UNICODE`, bool[0x110000]."""
    older = property_table("punctuation")
    if unicode != HF_1:
        return older
    newer = data.before_18(data.members("text/punctuation"))
    newer[:128] = older[:128]  # all symbols of ASCII
    return newer


def check_bert_unicode(version: str) -> None:
    """Raises ValueError if a version is not in `BERT_UNICODE`."""
    if version not in BERT_UNICODE:
        raise ValueError(f"unicode must be '8', as HF tokenizers 0.23, or '17', as 1.0, got {version!r}")


def decompose(code_point: int, unicode: str = "8") -> str:
    """Returns the full canonical decomposition of one character, itself if it has none."""
    if HANGUL_FIRST <= code_point <= HANGUL_LAST:
        index = code_point - HANGUL_FIRST
        lead, vowel, trail = 0x1100 + index // 588, 0x1161 + index % 588 // 28, 0x11A7 + index % 28
        return chr(lead) + chr(vowel) + (chr(trail) if trail != 0x11A7 else "")
    return decompositions(unicode).get(code_point, chr(code_point))


def check_ascii(table: npt.NDArray[np.uint8], values: Mapping[int, int], others: int | None = None) -> None:
    """Checks that a table says of ASCII what the masks of `kernels.ascii_blocks` say, so that both find the same words.

    Args:
      table: uint8[0x110000].
      values: mask -> the value that its characters must have, the last one if several masks have a character.
      others: the value of all other ASCII characters, None for any.

    Raises:
      ValueError: if a character has another value.
    """
    expected = np.full(128, -1 if others is None else others)
    for mask, value in values.items():
        expected[[ord(c) for c in BYTES[mask]]] = value
    wrong = np.flatnonzero((expected >= 0) & (expected != table[:128]))
    if wrong.size:
        c = int(wrong[0])
        raise ValueError(
            f"character {chr(c)!r} is of class {table[c]} in a table, but of class {expected[c]} to the masks of "
            "tokenizer/kernels/ascii_blocks.py; change BYTES there with the table"
        )


@functools.lru_cache(maxsize=16)
def bert_tables(
    *, clean_text: bool, handle_chinese_chars: bool, strip_accents: bool, lowercase: bool, pre_tokenize: bool = True,
    isolate_digits: bool = False, unicode: str = "8",
) -> BertTables:  # fmt: skip
    """Lowers `BertNormalizer` with these options, followed by `BertPreTokenizer` unless told otherwise, to tables.

    isolate_digits: whether there is a `Digits(individual_digits=True)` besides the latter.
    unicode: see `BERT_UNICODE`.

    Source: HF tokenizers `normalizers/bert.rs` and `pre_tokenizers/bert.rs`; proven on every code point by
    tests/parity/test_unicode_tables.py.
    """
    spaces, marks, signs = property_table("spaces"), property_table("nonspacing_marks"), punctuation(unicode)
    cjk, dropped = property_table("cjk"), property_table("dropped")

    if not pre_tokenize:
        signs = np.zeros(N_CODE_POINTS, np.bool_)
    if isolate_digits:
        signs = signs | data.members("patterns/numeric")
    classes = np.zeros(N_CODE_POINTS, np.uint8)
    classes[signs] = ISOLATED
    classes[spaces] = SPACE
    if strip_accents:
        classes[marks] = DROPPED
    changed, texts = _changed(strip_accents=strip_accents, lower_case=lowercase, unicode=unicode)
    points = np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32)
    lengths = np.array([*map(len, texts)], np.int64)
    of = np.repeat(np.arange(changed.size), lengths)  # the text that each character is of
    kinds = np.where(spaces[points], SPACE, np.where(signs[points], ISOLATED, WORD))
    n_apart = np.bincount(of, kinds != WORD, changed.size)
    if wrong := np.flatnonzero((n_apart > 0) & (lengths > 1)).tolist():
        # No character of Unicode does this; a table of one class per character could not express it.
        c, text = changed[wrong[0]], texts[wrong[0]]
        raise ValueError(f"U+{c:04X} decomposes into {text!r}, which mixes words with separators")
    classes[changed] = DROPPED
    classes[changed[of]] = kinds
    if handle_chinese_chars:
        classes[cjk] = ISOLATED
    if clean_text:
        # Clean-up runs before everything else, so it overrides.
        classes[dropped] = DROPPED
    classes[0xD800:0xE000] = DROPPED  # not characters; valid UTF-8 has none

    if pre_tokenize:
        of_ascii = {LETTERS: WORD, DIGITS: ISOLATED if isolate_digits else WORD, SIGNS: ISOLATED}
        check_ascii(classes, of_ascii | dict.fromkeys((BLANKS, NEWLINES, TABS), SPACE))

    sizes, own = (
        np.array([len(text.encode()) for text in each], np.int64) for each in (texts, map(chr, changed.tolist()))
    )
    is_new = (lengths != 1) | (points[np.cumsum(lengths) - 1] != changed)
    is_new &= classes[changed] != DROPPED
    replaced, sizes, own = changed[is_new], sizes[is_new], own[is_new]
    pool = "\0" + "".join(itertools.compress(texts, is_new))  # offset 0 stays unused, so that a replacement is never 0
    replacements = np.zeros(N_CODE_POINTS, np.int32)
    replacements[replaced] = (1 + np.cumsum(sizes) - sizes) << 4 | sizes

    ascii, is_of_ascii = np.arange(128), changed[of] < 128
    ascii[changed[of[is_of_ascii]]] = points[is_of_ascii]
    ascii_bytes = np.zeros(256, np.uint8)
    ascii_bytes[:128] = np.where(classes[:128] == WORD, ascii, 0)
    combining = np.zeros(N_CODE_POINTS, np.uint8)
    if strip_accents:
        combining[:] = combining_classes(unicode)
        of_texts = combining[points]
        for i in np.flatnonzero(np.bincount(of[of_texts > 0])).tolist():
            c, text, of_text = changed[i], texts[i], of_texts[of == i].tolist()
            if combining_classes(unicode)[c] == 0:
                if of_text[0] != 0 or set(of_text[1:]) != {TAIL_CLASS} or len(text[0].encode()) != 4:
                    raise ValueError(f"U+{c:04X} decomposes into {text!r}, which the scanner cannot reorder")
                combining[c] = TAIL
        classes[(combining > 0) & (classes == WORD)] = REORDERED
    return BertTables(
        classes=classes,
        replacements=replacements,
        pool=np.frombuffer(pool.encode(), np.uint8),
        ascii_bytes=ascii_bytes,
        digits_apart=~np.uint64(0) if isolate_digits else np.uint64(0),
        combining=combining,
        is_mark=marks,
        max_bytes_ratio=max([1.0, *(sizes / own).tolist()]),
    )


@functools.cache
def _changed(*, strip_accents: bool, lower_case: bool, unicode: str) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Returns the characters that may become something else, int64[n], and the text that each becomes."""
    changed: dict[int, str] = {}
    lower = lowercase() if lower_case else {}
    if strip_accents:
        removed = dict.fromkeys(np.flatnonzero(property_table("nonspacing_marks")).tolist())
        for c in [*decompositions(unicode), *range(HANGUL_FIRST, HANGUL_LAST + 1)]:
            # As in HF, decomposition comes first, then lower-casing.
            changed[c] = decompose(c, unicode).translate(removed).translate(lower)
    changed |= {c: text for c, text in lower.items() if c not in changed}
    return np.array([*changed], np.int64), [*changed.values()]
