# SPDX-License-Identifier: Apache-2.0
"""`Emoji`: emoji as units of whole grapheme clusters, which are isolated, described, dropped or kept."""

import dataclasses
import functools
from collections import abc
from typing import Literal

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.kernels.classes import N_CODE_POINTS
from tokenmill.tokenizer.normalizers.base import Edges
from tokenmill.tokenizer.pre_tokenizers.pattern_syntax import Alternation, Characters, Look, Node, Sequence
from tokenmill.tokenizer.ragged import Ragged, read_only
from tokenmill.tokenizer.text import tables
from tokenmill.tokenizer.text.patterns import PatternStep, isolate, one_of, times

Mode = Literal["isolate", "describe", "drop", "keep"]

PICTOGRAPH, PRESENTED, FLAG, EXTEND, MODIFIER = 1, 2, 4, 8, 16
"""Bits for the roles of a character: an extended pictograph; an emoji by itself; a regional indicator; joined to the
character before it; a skin tone."""
_JOINER, _EMOJI_STYLE, _TEXT_STYLE, _KEYCAP = "\u200d", "\ufe0f", "\ufe0e", "\u20e3"


@functools.cache
def emoji_classes() -> npt.NDArray[np.uint8]:
    """Returns the roles of characters in emoji, uint8[0x110000]: the bits above."""
    classes = np.zeros(N_CODE_POINTS, np.uint8)
    classes[tables.members("extended_pictographic")] |= PICTOGRAPH
    classes[tables.members("emoji_presentation")] |= PRESENTED
    classes[tables.members("grapheme_extend")] |= EXTEND
    classes[0x1F1E6:0x1F200] = FLAG
    classes[0x1F3FB:0x1F400] |= MODIFIER
    return read_only(classes)


@functools.cache
def emoji_pattern() -> Node:
    """Returns the pattern of an emoji; see `Emoji`."""

    def of(bits: int = 0, others: str = "") -> Characters:
        members = emoji_classes() & bits != 0
        members[[ord(c) for c in others]] = True
        return one_of(members)

    joined = times(of(EXTEND, _JOINER), 0)
    family = Alternation((of(EXTEND), Sequence((of(others=_JOINER), times(of(PICTOGRAPH), 0, 1)))))
    not_as_text = Look(behind=False, members=~of(others=_TEXT_STYLE).members, at_edge=True)
    as_emoji = Look(behind=False, members=of(MODIFIER, _EMOJI_STYLE).members, at_edge=False)
    begins = Alternation((Sequence((of(PRESENTED), not_as_text)), Sequence((of(PICTOGRAPH), as_emoji))))
    return Alternation(
        (
            Sequence((of(FLAG), times(of(FLAG), 0, 1), joined)),
            Sequence((of(others="0123456789#*"), times(of(others=_EMOJI_STYLE), 0, 1), of(others=_KEYCAP), joined)),
            Sequence((begins, times(family, 0))),
        )
    )


def describe(unit: str) -> str:
    """Returns the names of an emoji's characters: `:names_of_its_characters:`.

    For example, a flag is `:flag_de:`, a keycap `:keycap_1:`. All others have the Unicode names of their pictographs
    and skin tones, in lower case, with `_` between words and names; the letters of a tag sequence follow. A character
    without a name is `u+` and its code point.
    """
    letters = "".join(chr(ord("a") + ord(c) - 0x1F1E6) for c in unit if 0x1F1E6 <= ord(c) < 0x1F200)
    if letters:
        return f":flag_{letters}:"
    if "\u20e3" in unit and unit[0] < "\x80":
        return f":keycap_{unit[0]}:"
    names = [
        tables.emoji_names().get(c, f"u+{ord(c):x}").lower().replace(" ", "_")
        for c in unit
        if emoji_classes()[ord(c)] & (PICTOGRAPH | PRESENTED | MODIFIER)
    ]
    tags = "".join(chr(ord(c) - 0xE0000) for c in unit if 0xE0020 < ord(c) < 0xE007F)
    return f":{'_'.join([*names, *([tags] if tags else [])])}:"


@dataclasses.dataclass(frozen=True)
class Emoji(PatternStep):
    """Isolates, describes or removes emoji; a family, a flag, an emoji with skin tone and a keycap are one each.

    An emoji is a flag; a keycap; or a pictograph that is an emoji by itself, or by U+FE0F or a skin tone after it, with
    everything that is joined to it in one grapheme cluster.

    `isolate` puts spaces around each, unless there is white space already; `describe` replaces them by `:names:`, see
    `describe`; `drop` removes them; `keep` does nothing. A pictograph followed by U+FE0E is no emoji, nor is one, like
    ©, that is text unless U+FE0F follows.
    """

    name = "emoji"

    mode: Mode = "isolate"

    def __post_init__(self) -> None:
        if self.mode not in ("isolate", "describe", "drop", "keep"):
            raise ValueError(f"mode must be isolate, describe, drop or keep, got {self.mode!r}")

    @property
    def node(self) -> Node:
        return emoji_pattern()

    def new(self, match: str) -> str:
        return describe(match) if self.mode == "describe" else ""

    def find_edits(self, rows: Ragged, edges: Edges) -> tuple[npt.NDArray[np.int64], abc.Sequence[str]]:
        if self.mode == "keep":
            return np.empty((0, 3), np.int64), ()
        return isolate(rows, self.node) if self.mode == "isolate" else super().find_edits(rows, edges)
