# SPDX-License-Identifier: Apache-2.0
"""What text steps and spans changed in the documents of a split, or of many."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from tokenmill.pipeline.books.json_files import Count
from tokenmill.pipeline.statistics.vocabulary import ratio

if TYPE_CHECKING:
    from tokenmill.tokenizer.text import StepReport

MAX_RESIZED = 0.01
"""The share of a language's characters that a step may add or remove before the summary names it."""


class StepShape(BaseModel):
    """The shape of a `StepReport` as JSON."""

    model_config = ConfigDict(strict=True, extra="forbid")

    step: str
    n_documents: Count
    n_documents_changed: Count
    n_documents_rejected: Count
    n_chars: Count
    n_chars_after: Count
    n_chars_changed: Count
    by_language: dict[str, Annotated[list[Count], Field(min_length=2, max_length=2)]]


def read_step(report: StepShape) -> "StepReport":
    """Returns the report that `StepReport.to_json` turned into JSON of this shape."""
    from tokenmill.tokenizer.text import StepReport  # imported here, since a job without steps does not need it

    return StepReport.from_json(report.model_dump())


def summary(steps: "Sequence[StepReport]", spans: Mapping[str, int]) -> dict[str, Any]:
    """Returns the part of stats.json about steps, and about spans by their tokens."""
    return {"steps": [_summary(step) for step in steps], "spans": dict(spans)}


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
