# SPDX-License-Identifier: Apache-2.0
"""SentencePiece character maps, made here or read from models, and the characters that normalizers go wrong on."""

import struct
from pathlib import Path

# Canonical decomposition and composition: several marks of several classes, starters that combine, jamo, composites
# that decompose only, compatibility characters; what joins graphemes.
MARKS = (
    "aeAo<\u0301\u0300\u0323\u0338\u0327\u0345\u0308\u05b0\u0334\u302a\u3099\u0344\u0340\u0374\u212b\u1e69\u0958\ufb1d"
)
MARKS += "\u1100\u1161\u11a8가각\u11a7\u0915\u094d\u0937\u09c7\u09be\u0cc6\u0cc2\u0cd5\u1025\u102e\U00011131\U00011127"
MARKS += "ﬁﷺ½①ｶﾞ\u1e9b\u1e9bǅΐᾂ\U0001d15e\U0001d165\U0001d16e"
GRAPHEMES = (
    "ae\r\n \u0301\u0308\u20d0\u200d\u200b\u0600\u0903\u0915\u094d\u093c\u0937\u0e33\u1100\u1161\u11a8가각\u263a"
)
GRAPHEMES += "\u2764\ufe0f\U0001f468\U0001f3fd©\U0001f1e9\U0001f1ea\U000110bd\u00ad\u0ec4\u1b05\u1b44\u1b13\U00011131"

_SMALL = {
    "e\u0301": "é", "a": "A", "\u0301": "", "\u1100": "long text", "\r": " ", "\r\n": "x", "\u200d": "", "\u00ad": "--",
    "\u263a": "\u0301", "\u0600": "n", "\u0915\u0301": "k", "\u20d0": "",
}  # fmt: skip


def build(texts: dict[bytes, str]) -> bytes:
    """A character map as SentencePiece writes it: a double-array trie, 256 units for each node, and the texts."""
    units: dict[int, int] = {}
    pool = b""
    places = {}
    for key, text in texts.items():
        places[key] = len(pool)
        pool += text.encode() + b"\0"
    free = [0]

    def build(node: int, label: int, prefix: bytes) -> None:
        following = sorted({key[len(prefix)] for key in texts if key.startswith(prefix) and len(key) > len(prefix)})
        has_text = prefix in texts
        wanted = ([0] if has_text else []) + following
        # Offsets are xored in, so a block of 256 of its own for each node is room enough.
        free[0] += 256
        base = free[0]
        units[node] = ((base ^ node) << 10) | (256 if has_text else 0) | label
        for byte in wanted:
            if byte == 0:
                units[base] = 1 << 31 | places[prefix]
            else:
                build(base ^ byte, byte, prefix + bytes([byte]))

    build(0, 0, b"")
    # An empty unit matches no byte, not even a zero byte.
    array = [units.get(i, 1 << 31) for i in range(free[0] + 256)]
    return struct.pack(f"<I{len(array)}I", 4 * len(array), *array) + pool


def small() -> bytes:
    """A map in which texts grow, shrink and vanish, graphemes as a whole among them."""
    return build({key.encode(): text for key, text in _SMALL.items()})


def of_model(path: Path) -> bytes:
    """The character map of a SentencePiece model: field 2 of its field 3."""

    def field(message: bytes, wanted: int) -> bytes:
        i, found = 0, b""

        def number() -> int:
            nonlocal i
            value = shift = 0
            while True:
                byte = message[i]
                i += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value

        while i < len(message):
            tag = number()
            if tag & 7 == 2:
                size = number()
                if tag >> 3 == wanted:
                    found = message[i : i + size]
                i += size
            elif tag & 7 == 0:
                number()
            else:
                i += 4 if tag & 7 == 5 else 8
        return found

    return field(field(path.read_bytes(), 3), 2)
