# SPDX-License-Identifier: Apache-2.0
"""`AlignedText`: a text that normalizers and pre-tokenizers change, and that remembers where its characters came from.

It is the slow path, for offsets. Columns take it only for rare rows.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class AlignedText:
    """A text whose every character knows the range of original characters it came from.

    Source: HF tokenizers `tokenizer/normalizer.rs`, `NormalizedString`, whose alignments these are, in characters.
    """

    text: str
    starts: list[int]
    stops: list[int]
    """One entry per character of `text`."""
    is_start: bool = True
    """Whether it begins where the text that it was cut from begins."""

    @classmethod
    def original(cls, text: str, first: int = 0) -> "AlignedText":
        """Returns an unchanged text; its first character is number `first` of the original."""
        return cls(text, list(range(first, first + len(text))), list(range(first + 1, first + len(text) + 1)))

    def __len__(self) -> int:
        return len(self.text)

    def __getitem__(self, part: slice) -> "AlignedText":
        return AlignedText(self.text[part], self.starts[part], self.stops[part], self.is_start and not part.start)

    def __add__(self, other: "AlignedText") -> "AlignedText":
        return AlignedText(self.text + other.text, self.starts + other.starts, self.stops + other.stops, self.is_start)

    def span(self) -> tuple[int, int]:
        """Returns the range of original characters, from the first character's start to the last one's stop."""
        return (self.starts[0], self.stops[-1]) if self.text else (0, 0)
