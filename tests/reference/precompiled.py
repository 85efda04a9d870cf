# SPDX-License-Identifier: Apache-2.0
"""The reference of `Precompiled`: what a character map makes of each grapheme or character."""

import functools

from tokenmill.tokenizer.normalizers import Precompiled, tables
from tokenmill.tokenizer.normalizers.kernels import precompiled as kernels


def normalize(text: str, normalizer: Precompiled) -> str:
    """What `normalizer` makes of a text."""
    parts = []
    for grapheme in graphemes(text):
        whole = _text_of(grapheme, normalizer) if len(grapheme.encode()) < kernels.SHORT_GRAPHEME else None
        if whole is not None:
            parts.append(whole)
            continue
        for char in grapheme:
            new = _text_of(char, normalizer)
            parts.append(char if new is None else new)
    return "".join(parts)


def _text_of(part: str, normalizer: Precompiled) -> str | None:
    """The text of the shortest prefix in the trie, None if there is none."""
    units, pool = _plain(normalizer.precompiled_charsmap)
    node = _offset(units[0])
    for byte in part.encode():
        node ^= byte
        if byte == 0 or node >= len(units) or units[node] & 0x800000FF != byte:
            return None
        has_text = units[node] & 256
        node ^= _offset(units[node])
        if has_text:
            value = units[node] & 0x7FFFFFFF if node < len(units) else len(pool)
            if value >= len(pool) or pool[value] & 0xC0 == 0x80:
                return None
            return pool[value:].partition(b"\0")[0].decode()
    return None


@functools.lru_cache(maxsize=4)
def _plain(precompiled_charsmap: bytes) -> tuple[list[int], bytes]:
    n = int.from_bytes(precompiled_charsmap[:4], "little")
    units = [int.from_bytes(precompiled_charsmap[i : i + 4], "little") for i in range(4, 4 + n, 4)]
    return units, precompiled_charsmap[4 + n :] or b"\0"


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & 512) >> 6)


def graphemes(text: str) -> list[str]:
    """Cuts a text into extended grapheme clusters (Unicode, UAX 29), and also between regional indicators."""
    found: list[str] = []
    for char in text:
        if found and not _has_break(found[-1], char):
            found[-1] += char
        else:
            found.append(char)
    return found


def _has_break(cluster: str, char: str) -> bool:
    """Whether a grapheme ends before `char`; rules GB3 to GB11 of UAX 29 in their order."""
    kinds = tables.graphemes()
    before, after = (int(kinds[ord(c)]) & kernels.CATEGORY for c in (cluster[-1], char))
    alone = (kernels.CR, kernels.LF, kernels.CONTROL)
    if before in alone or after in alone:
        return not (before == kernels.CR and after == kernels.LF)
    if (before, after) in _HANGUL_PAIRS:
        return False
    if after in (kernels.EXTEND, kernels.ZWJ, kernels.SPACING_MARK) or before == kernels.PREPEND:
        return False
    if after == kernels.CONSONANT:
        linked = False
        for c in reversed(cluster):
            if not kinds[ord(c)] & (kernels.LINKER | kernels.CONJUNCT_EXTEND):
                return not (linked and kinds[ord(c)] & kernels.CATEGORY == kernels.CONSONANT)
            linked = linked or bool(kinds[ord(c)] & kernels.LINKER)
    if after == kernels.PICTOGRAPH and before == kernels.ZWJ:
        for c in reversed(cluster[:-1]):
            if kinds[ord(c)] & kernels.CATEGORY != kernels.EXTEND:
                return bool(kinds[ord(c)] & kernels.CATEGORY != kernels.PICTOGRAPH)
    return True


_HANGUL_PAIRS = {
    *((kernels.HANGUL_L, x) for x in (kernels.HANGUL_L, kernels.HANGUL_V, kernels.HANGUL_LV, kernels.HANGUL_LVT)),
    *((a, b) for a in (kernels.HANGUL_LV, kernels.HANGUL_V) for b in (kernels.HANGUL_V, kernels.HANGUL_T)),
    *((a, kernels.HANGUL_T) for a in (kernels.HANGUL_LVT, kernels.HANGUL_T)),
}
