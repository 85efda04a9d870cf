# SPDX-License-Identifier: Apache-2.0
"""What text steps and spans changed in the documents of a split, or of many: counts that can be added up."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from tokenmill.pipeline.books import json_files
from tokenmill.pipeline.books.json_files import Count
from tokenmill.pipeline.statistics.vocabulary import ratio

if TYPE_CHECKING:
    from tokenmill.tokenizer.text import StepReport

MAX_RESIZED = 0.01
"""The share of a language's characters that a step may add or remove before the summary names it."""


@dataclass(frozen=True)
class TextCounts:
    """Reports of steps, in order, and how often each span was found; they can be added up."""

    steps: "tuple[StepReport, ...]" = ()
    spans: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: Self) -> Self:
        if not self.steps and not self.spans:
            return other
        if not other.steps and not other.spans:
            return self
        steps = tuple(ours + theirs for ours, theirs in zip(self.steps, other.steps, strict=True))
        if {*self.spans} != {*other.spans}:
            raise ValueError(f"counts of different spans do not add up: {[*self.spans]} and {[*other.spans]}")
        return replace(self, steps=steps, spans={token: n + other.spans[token] for token, n in self.spans.items()})

    def to_json(self) -> str:
        """Returns this as JSON; the same text for equal counts."""
        return json.dumps(
            {"steps": [step.to_json() for step in self.steps], "spans": list(self.spans.items())}, sort_keys=True
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Returns the value that `to_json` turned into `text`.

        Raises:
          ValueError: if it is something else.
        """
        found = json_files.parse(text, _SHAPE, "counts of text steps")
        return cls(tuple(map(_read_report, found.steps)), dict(found.spans))

    def summary(self) -> dict[str, Any]:
        """Returns the part of stats.json about steps and spans."""
        return {"steps": [_summary(step) for step in self.steps], "spans": dict(self.spans)}


class _Report(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    step: str
    n_documents: Count
    n_documents_changed: Count
    n_documents_rejected: Count
    n_chars: Count
    n_chars_after: Count
    n_chars_changed: Count
    by_language: dict[str, Annotated[list[Count], Field(min_length=2, max_length=2)]]


class _Counts(BaseModel):
    model_config = ConfigDict(extra="forbid")

    steps: list[_Report]
    spans: list[tuple[str, Count]]


_SHAPE = TypeAdapter(_Counts)


def _read_report(report: _Report) -> "StepReport":
    from tokenmill.tokenizer.text import StepReport  # imported here, since a job without steps does not need it

    return StepReport.from_json(report.model_dump())


def _summary(report: "StepReport") -> dict[str, Any]:
    found: dict[str, Any] = {
        "step": report.step,
        "documents": report.n_documents,
        "documents_changed": report.n_documents_changed,
        "documents_rejected": report.n_documents_rejected,
        "characters": report.n_chars,
        "characters_after": report.n_chars_after,
        "characters_changed": report.n_chars_changed,
    }
    whole: list[tuple[str | None, tuple[int, int]]] = [(None, (report.n_chars, report.n_chars_after))]
    found["resized"] = [
        {"language": code, "characters": before, "characters_after": after, "share": ratio(after - before, before)}
        for code, (before, after) in sorted(report.by_language.items()) or whole
        if abs(after - before) > MAX_RESIZED * before
    ]
    return found
