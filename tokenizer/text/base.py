# SPDX-License-Identifier: Apache-2.0
"""What text steps report, and what they share: sets of characters, counts, rows of which some are replaced."""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.normalizers.tables import Skips
from tokenmill.tokenizer.ragged import Ragged, characters_before, read_only
from tokenmill.tokenizer.text import kernels


@dataclasses.dataclass(frozen=True)
class StepReport:
    """The changes that one step made to documents. All numbers are exact; reports of the same step can be added."""

    step: str
    """The step as a config writes it."""
    n_documents: int = 0
    n_documents_changed: int = 0
    n_documents_rejected: int = 0
    """Documents that the step gave up on; they are null in its output."""
    n_chars: int = 0
    """Characters of the documents before the step."""
    n_chars_after: int = 0
    n_chars_changed: int = 0
    """Characters replaced or removed, and characters inserted without replacing any."""
    by_language: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    """Language -> `n_chars` and `n_chars_after` of its documents, where languages are known."""

    def __add__(self, other: Self) -> Self:
        if self.step != other.step:
            raise ValueError(f"reports of different steps do not add up: {self.step!r} and {other.step!r}")
        names = [field.name for field in dataclasses.fields(self) if field.name.startswith("n_")]
        sums: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in names}
        by_language = dict(self.by_language)
        for code, (before, after) in other.by_language.items():
            n_before, n_after = by_language.get(code, (0, 0))
            by_language[code] = (n_before + before, n_after + after)
        return dataclasses.replace(self, **sums, by_language=by_language)

    def to_json(self) -> dict[str, Any]:
        """Returns the report as plain JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Returns the report whose `to_json` is `fields`."""
        by_language = {code: (before, after) for code, (before, after) in fields["by_language"].items()}
        return cls(**{**fields, "by_language": by_language})


class CharacterSet(NamedTuple):
    """A set of characters, with the tables to find them fast."""

    members: npt.NDArray[np.bool_]
    """bool[0x110000]."""
    firsts: npt.NDArray[np.bool_]
    """bool[256]: whether a member begins with this byte."""
    prints: bool
    """Whether none of the printing characters of ASCII is a member."""

    @classmethod
    def of(cls, members: npt.NDArray[np.bool_]) -> Self:
        """Returns the set of the code points that are true."""
        firsts = Skips.of(~members).steps == 0
        return cls(read_only(members), read_only(firsts), not members[0x20:0x7F].any())

    def rows_with(self, rows: Ragged) -> npt.NDArray[np.bool_]:
        """Returns which rows contain a member, bool[n_rows]."""
        found = np.zeros(rows.n_rows, np.bool_)
        kernels.find_characters(rows.values, rows.offsets, self.members, self.firsts, self.prints, found)
        return found


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Returns the end of a message, which asks whether the most similar allowed name was meant; or an empty one."""
    near = difflib.get_close_matches(name, list(allowed), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def check_encodable(name: str, text: str) -> None:
    """Raises ValueError if a text in a config has half of a surrogate pair, which is no character."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} must be text, but holds the lone surrogate {text[error.start]!r}") from None


def row_characters(rows: Ragged) -> npt.NDArray[np.int64]:
    """Returns how many characters each row has, int64[n_rows]."""
    return np.diff(characters_before(*rows))
