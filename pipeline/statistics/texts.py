# SPDX-License-Identifier: Apache-2.0
"""What text steps and spans changed in the documents of a split, or of many."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tokenmill.pipeline.books.counts import STEP
from tokenmill.pipeline.statistics.vocabulary import ratio

if TYPE_CHECKING:
    from tokenmill.tokenizer.text import StepReport

MAX_RESIZED = 0.01
"""The share of a language's characters that a step may add or remove before the summary names it."""


def counts_of(steps: "Sequence[StepReport]") -> dict[str, dict[str, int]]:
    """Returns the numbers of the steps of a text pipeline by groups, whose names have the steps in order."""
    groups = {}
    for i, step in enumerate(steps):
        numbers = {name: n for name, n in vars(step).items() if name.startswith("n_")}
        for code, (before, after) in step.by_language.items():
            numbers |= {f"{_BEFORE}{code}": before, f"{_AFTER}{code}": after}
        groups[f"{STEP}{i:02}:{step.step}"] = numbers
    return groups


_BEFORE, _AFTER = "characters before:", "characters after:"


def summary(steps: Mapping[str, Mapping[str, int]], spans: Mapping[str, int]) -> dict[str, Any]:
    """Returns the part of stats.json about steps, the groups `counts.STEP`, and about spans by their tokens."""
    return {"steps": [_summary(name, numbers) for name, numbers in sorted(steps.items())], "spans": dict(spans)}


def _summary(name: str, n: Mapping[str, int]) -> dict[str, Any]:
    codes = sorted(each.removeprefix(_BEFORE) for each in n if each.startswith(_BEFORE))
    sizes: list[tuple[str | None, int, int]] = [(None, n["n_chars"], n["n_chars_after"])]
    if codes:
        sizes = [(code, n[f"{_BEFORE}{code}"], n[f"{_AFTER}{code}"]) for code in codes]
    return {
        "step": name.partition(":")[2],
        "documents": n["n_documents"],
        "documents_changed": n["n_documents_changed"],
        "documents_rejected": n["n_documents_rejected"],
        "characters": n["n_chars"],
        "characters_after": n["n_chars_after"],
        "characters_changed": n["n_chars_changed"],
        "resized": [
            {"language": code, "characters": before, "characters_after": after, "share": ratio(after - before, before)}
            for code, before, after in sizes
            if abs(after - before) > MAX_RESIZED * before
        ],
    }
