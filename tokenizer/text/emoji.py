# SPDX-License-Identifier: Apache-2.0
"""`Emoji`: emoji as units of whole grapheme clusters, which are isolated, described, dropped or kept."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from tokenmill.tokenizer.kernels.classes import N_CODE_POINTS
from tokenmill.tokenizer.normalizers.base import Edges
from tokenmill.tokenizer.normalizers.edit_lists import EditingStep, found_edits
from tokenmill.tokenizer.normalizers.tables import Skips
from tokenmill.tokenizer.ragged import Ragged, gathered, read_only, string_array
from tokenmill.tokenizer.text import tables
from tokenmill.tokenizer.text.kernels import emoji as kernels

Mode = Literal["isolate", "describe", "drop", "keep"]


@functools.cache
def emoji_classes() -> npt.NDArray[np.uint8]:
    """Returns the roles of characters in emoji, uint8[0x110000]: bits of `text.kernels.emoji`."""
    classes = np.zeros(N_CODE_POINTS, np.uint8)
    classes[tables.members("extended_pictographic")] |= kernels.PICTOGRAPH
    classes[tables.members("emoji_presentation")] |= kernels.PRESENTED
    classes[tables.members("grapheme_extend")] |= kernels.EXTEND
    classes[0x1F1E6:0x1F200] = kernels.FLAG
    classes[0x1F3FB:0x1F400] |= kernels.MODIFIER
    classes[0x200D] = kernels.JOINER
    classes[0xFE0F] |= kernels.EMOJI_STYLE
    classes[0xFE0E] |= kernels.TEXT_STYLE
    return read_only(classes)


@functools.cache
def _skips() -> Skips:
    begins = emoji_classes() & (kernels.PICTOGRAPH | kernels.PRESENTED | kernels.FLAG | kernels.EMOJI_STYLE) != 0
    begins[0x20E3] = True
    begins[:128] = False
    return Skips.of(~begins)


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
        if emoji_classes()[ord(c)] & (kernels.PICTOGRAPH | kernels.PRESENTED | kernels.MODIFIER)
    ]
    tags = "".join(chr(ord(c) - 0xE0000) for c in unit if 0xE0020 < ord(c) < 0xE007F)
    return f":{'_'.join([*names, *([tags] if tags else [])])}:"


@dataclasses.dataclass(frozen=True)
class Emoji(EditingStep):
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

    def find_edits(self, rows: Ragged, edges: Edges) -> tuple[npt.NDArray[np.int64], Sequence[str]]:
        if self.mode == "keep":
            return np.empty((0, 3), np.int64), ()
        edits = find_emoji(rows, kernels.ISOLATE if self.mode == "isolate" else kernels.UNITS)
        if self.mode != "describe" or not len(edits):
            return edits, ("", " ")
        units = pc.dictionary_encode(string_array(*gathered(rows.values, edits[:, 0], edits[:, 1])))
        edits[:, 2] = units.indices.to_numpy()
        return edits, [describe(unit) for unit in units.dictionary.to_pylist()]


def find_emoji(rows: Ragged, mode: int = kernels.UNITS) -> npt.NDArray[np.int64]:
    """Returns the emoji of rows, int64[n, 3]: where they start and stop, and a number; see `text.kernels.emoji`."""
    spaces = tables.table_of(tables.SPACES)
    return found_edits(kernels.find_emoji, rows, emoji_classes(), spaces, _skips(), mode)
