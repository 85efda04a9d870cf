# SPDX-License-Identifier: Apache-2.0
"""Strings that know where their characters come from, so that a rendered chat can be traced to its messages.

A template joins, strips, splits and replaces texts. `Traced` does the same as `str` and keeps a list of runs: which of
its characters come from which value. A method that is not here returns a plain `str`, whose characters then come from
nowhere, as those of the template do. Nothing is ever attributed to a value that did not write it.
"""

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Self, SupportsIndex

import markupsafe
from markupsafe import Markup


class Origin(NamedTuple):
    """The value that characters come from."""

    message: int
    """The number of the message."""
    field: str
    """Where in the message: "content", "tool_calls.0.function.name"; "content.2.text" is in the third part."""


GENERATION = Origin(-1, "generation")
"""The origin of what a `{% generation %}` block has rendered."""


class Run(NamedTuple):
    """Characters `start` to `stop` of a string come from the value at `origin`, where they begin at `at`."""

    start: int
    stop: int
    origin: Origin
    at: int = 0


class _Questions(threading.local):
    n_equal = 0


questions = _Questions()
"""`n_equal`: how often a text of a message, but its role, was compared to one that is not empty, or its length was
asked for. Who is told that they are equal may write the other in its place."""


def length(value: Any) -> int:
    """Returns `len(value)`; with the length of a text, and what is in it, a template knows to what it is equal."""
    if isinstance(value, Traced):
        value._note("a length")
    return len(value)


class Traced(str):
    """A string with `runs`, in any order; those of a `{% generation %}` block may lie over others."""

    __slots__ = ("runs",)
    runs: tuple[Run, ...]

    def __new__(cls, text: str, runs: Iterable[Run] = ()) -> Self:
        """Makes one of a text and its runs."""
        made = super().__new__(cls, text)
        made.runs = tuple(runs)
        return made

    @classmethod
    def whole(cls, text: str, origin: Origin) -> Self:
        """Returns a text all of which comes from one value."""
        return cls(text, (Run(0, len(text), origin),) if text else ())

    def __str__(self) -> str:
        return self

    def __eq__(self, other: object) -> bool:
        self._note(other)
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        self._note(other)
        return str.__ne__(self, other)

    def __hash__(self) -> int:
        self._note("a key")
        return str.__hash__(self)

    def _note(self, other: object) -> None:
        if other and isinstance(other, str) and self.runs and self.runs[0].origin.field != "role":
            questions.n_equal += 1

    def __reduce__(self) -> tuple[Any, ...]:
        return Traced, (str.__str__(self), self.runs)

    def _slice(self, start: int, stop: int) -> "Traced":
        kept = [run for run in self.runs if run.start < stop and start < run.stop]
        runs = [
            Run(max(r.start, start) - start, min(r.stop, stop) - start, r.origin, r.at + max(0, start - r.start))
            for r in kept
        ]
        return type(self)(str.__getitem__(self, slice(start, stop)), runs if start < stop else ())

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step != 1:
                return concat([self._slice(i, i + 1) for i in range(start, stop, step)])
            return self._slice(start, max(start, stop))
        at = range(len(self))[key]
        return self._slice(at, at + 1)

    def __iter__(self) -> Iterator[str]:
        return (self._slice(i, i + 1) for i in range(len(self)))

    def __add__(self, other: str) -> str:
        # What `| safe` returns escapes HTML in what it is added to.
        return concat((self, other)) if isinstance(other, str) and not hasattr(other, "__html__") else NotImplemented

    def __radd__(self, other: str) -> str:
        return concat((other, self)) if isinstance(other, str) else NotImplemented

    def strip(self, chars: str | None = None, /) -> str:
        return self.lstrip(chars).rstrip(chars)

    def lstrip(self, chars: str | None = None, /) -> "Traced":
        return self._slice(len(self) - len(str.lstrip(self, chars)), len(self))

    def rstrip(self, chars: str | None = None, /) -> "Traced":
        return self._slice(0, len(str.rstrip(self, chars)))

    def removeprefix(self, prefix: str, /) -> str:
        return self._slice(len(prefix) if self.startswith(prefix) else 0, len(self))

    def removesuffix(self, suffix: str, /) -> str:
        return self._slice(0, len(self) - (len(suffix) if suffix and self.endswith(suffix) else 0))

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._pieces(str.split(self, sep, maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._pieces(str.rsplit(self, sep, maxsplit), sep)

    def splitlines(self, keepends: bool = False) -> list[str]:
        return self._pieces(str.splitlines(self, keepends), None)

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        before, found, after = self._pieces(str.partition(self, sep), "")
        return before, found, after

    def rpartition(self, sep: str, /) -> tuple[str, str, str]:
        before, found, after = self._pieces(str.rpartition(self, sep), "")
        return before, found, after

    def _pieces(self, pieces: Iterable[str], sep: str | None) -> list[str]:
        """Returns pieces of this text, in order, as slices of it.

        Between them is `sep`. None: white space or line ends, with which no piece but the first begins, so that a
        piece is where it is first found after the one before.
        """
        made: list[str] = []
        at = 0
        for piece in pieces:
            at = str.find(self, piece, at) if sep is None else at
            made.append(self._slice(at, at + len(piece)))
            at += len(piece) + len(sep or "")
        return made

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> str:
        if not old:
            return str.replace(self, old, new, count)
        pieces: list[str] = []
        start, left = 0, int(count)
        while left and (at := str.find(self, old, start)) >= 0:
            pieces += [self._slice(start, at), new]
            start, left = at + len(old), left - 1
        return self._alike(concat([*pieces, self._slice(start, len(self))]))

    def join(self, parts: Iterable[str], /) -> str:
        return join(self, parts)

    def upper(self) -> str:
        return self._changed(str.upper(self))

    def lower(self) -> str:
        return self._changed(str.lower(self))

    def capitalize(self) -> str:
        return self._changed(str.capitalize(self))

    def title(self) -> str:
        return self._changed(str.title(self))

    def _changed(self, text: str) -> str:
        return self._alike(Traced(text, self.runs) if len(text) == len(self) else text)

    def _alike(self, text: str) -> str:
        return text


class Safe(Traced):
    """What `| safe` makes of a traced text: HTML is escaped in what is added to it, as `Markup` does."""

    __slots__ = ()

    def __html__(self) -> "Safe":
        return self

    def __add__(self, other: str) -> str:
        return safe(concat((self, _escaped(other)))) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> str:
        return safe(concat((_escaped(other), self))) if isinstance(other, str) else NotImplemented

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> str:
        return super().replace(old, _escaped(new), count)

    def _alike(self, text: str) -> str:
        return safe(text)


def safe(text: Any) -> str:
    """Returns `Markup(text)`, traced if the text is."""
    return Safe(text, text.runs) if isinstance(text, Traced) else Markup(text)


def plain(value: Any) -> str:
    """Returns `str(value)`, traced if it is; of what `safe` made, the text."""
    return Traced(value, value.runs) if isinstance(value, Traced) else str(value)


def _escaped(text: str) -> str:
    escaped = markupsafe.escape(text)
    return text if escaped == text else escaped


def concat(parts: Iterable[str]) -> str:
    """Returns `"".join(parts)`, traced if a part is."""
    parts = parts if isinstance(parts, list | tuple) else list(parts)
    text = "".join(parts)
    runs: list[Run] = []
    is_traced = False
    at = 0
    for part in parts:
        if isinstance(part, Traced):
            is_traced = True
            runs += [Run(at + r.start, at + r.stop, r.origin, r.at) for r in part.runs] if at else part.runs
        at += len(part)
    return Traced(text, runs) if is_traced else text


def join(separator: str, parts: Iterable[str]) -> str:
    """Returns `separator.join(parts)`, traced if a part or the separator is."""
    parts = list(parts)
    if not isinstance(separator, Traced) and not any(isinstance(part, Traced) for part in parts):
        return str.join(separator, parts)
    return concat([each for part in parts for each in (separator, part)][1:])


def follow(value: Any, function: Callable[[Any], Any]) -> Any:
    """Returns `function(value)`, which is a text that holds strings of the value in one piece each, maybe changed.

    It is traced as far as strings in the value are. Called again with marks around each string, the function must
    return the same with marks around what it made of each; otherwise nothing is traced.
    """
    made = function(value)
    found: list[Traced] = []

    def mark(value: Any) -> Any:
        if isinstance(value, Traced) and value.runs:
            text, at, pieces = str.__str__(value), 0, []
            for start, stop, *_ in sorted(value.runs):
                if at <= start:
                    pieces += [text[at:start], f"{border}{len(found)}{border}{text[start:stop]}{border}"]
                    found.append(value._slice(start, stop))
                    at = stop
            return "".join([*pieces, text[at:]])
        if isinstance(value, dict):
            return {key: mark(each) for key, each in value.items()}
        return type(value)(map(mark, value)) if type(value) in (list, tuple) else value

    if not isinstance(made, str):
        return made
    # A character for private use, not in the text; `json` writes it as it is, or in ASCII as `\\ue000`.
    free = (chr(i) for i in range(0xE000, 0xF900) if chr(i) not in made and f"\\u{i:04x}" not in made)
    border = next(free, "")
    marked = mark(value)
    if not found or not border:
        return made
    either = f"(?:{border}|\\\\u{ord(border):04x})"
    pieces: list[str] = re.split(f"{either}([0-9]+){either}(.*?){either}", str(function(marked)), flags=re.DOTALL)
    for i in range(1, len(pieces), 3):
        pieces[i], pieces[i + 1] = "", _became(found[int(pieces[i])], pieces[i + 1])
    text = concat(pieces)
    if str.__ne__(text, made):
        return made
    return safe(text) if hasattr(made, "__html__") else text


def _became(source: Traced, text: str) -> str:
    """Returns what became of a source, traced if all of it comes from one value."""
    if str.__eq__(source, text):
        return source
    (start, stop, origin, at), *others = source.runs
    is_whole = not others and stop - start == len(source)
    return Traced(text, [Run(0, len(text), origin, at)]) if is_whole else text
