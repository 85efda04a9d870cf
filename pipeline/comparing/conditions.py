# SPDX-License-Identifier: Apache-2.0
"""Conditions on a comparison, for a CI: `bytes_per_token[de]@new.json < 3.8`."""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tokenmill.pipeline.comparing.sums import ALL, KINDS

_GRAMMAR = re.compile(
    r"\s*(?P<metric>\w+)(\[(?P<group>[^\]]+)\])?(@(?P<tokenizer>\S+))?\s*(?P<sign><=|>=|==|!=|<|>)\s*(?P<number>\S+)\s*"
)
_SIGNS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_LISTED = 40


@dataclass(frozen=True)
class Condition:
    """A measure of a group, compared with a number."""

    text: str
    metric: str
    group: str
    """The name of a group, or its kind and name as in `language:de`."""
    tokenizer: str | None
    """The label of a tokenizer; None: any of them."""
    sign: str
    number: float


def parse(text: str) -> Condition:
    """Returns the condition that a text spells.

    Raises:
      ValueError: if it is not a condition.
    """
    found = _GRAMMAR.fullmatch(text)
    try:
        number = float(found["number"]) if found else None
    except ValueError:
        number = None
    if found is None or number is None or number != number:
        raise ValueError(
            f"--fail-if: {text!r} is no condition; write METRIC[GROUP]@TOKENIZER < NUMBER, where [GROUP] and "
            f"@TOKENIZER may be left out and the sign is one of {', '.join(_SIGNS)}, as in 'bytes_per_token[de] < 3.8'"
        )
    return Condition(text.strip(), found["metric"], found["group"] or ALL, found["tokenizer"], found["sign"], number)


def holding(condition: Condition, report: Mapping[str, Any]) -> list[str]:
    """Returns a line for each tokenizer for which a condition holds.

    Raises:
      ValueError: if the comparison has no such metric, group or tokenizer, or no value for it; the message lists those
        that it has.
    """
    by_group = _found(condition, "metric", condition.metric, _measures(report))
    names = (condition.group, *(f"{kind}:{condition.group}" for kind in ("language", "script", "source")))
    by_label = next((by_group[name] for name in names if name in by_group), None)
    if by_label is None:
        by_label = _found(condition, "group", condition.group, by_group)
    if condition.tokenizer is not None:
        by_label = {condition.tokenizer: _found(condition, "tokenizer", condition.tokenizer, by_label)}
    known = {label: value for label, value in by_label.items() if value is not None}
    if not known:
        raise ValueError(f"--fail-if {condition.text!r}: there is no token or no word to say it of")
    holds = _SIGNS[condition.sign]
    return [f"{condition.text}: it is {n:.6g} for {label}" for label, n in known.items() if holds(n, condition.number)]


def _measures(report: Mapping[str, Any]) -> dict[str, dict[str, dict[str, float | None]]]:
    """Returns all measures of a comparison: by name, by group, and by tokenizer."""
    found: dict[str, dict[str, dict[str, float | None]]] = {}

    def put(group: str, label: str, measures: Mapping[str, Any]) -> None:
        for name, value in measures.items():
            if not isinstance(value, list | dict) and not name.endswith("_interval"):
                found.setdefault(name, {}).setdefault(group, {})[label] = value

    for kind, rows in ((ALL, [report[ALL]]), *((kind, report.get(kind, ())) for kind in KINDS)):
        for row in rows:
            for label, measures in row["by"].items():
                put(ALL if kind == ALL else f"{kind}:{row['name']}", label, measures)
    for each in report["tokenizers"]:
        put(ALL, each["label"], each["vocabulary"])
        for unit, value in each.get("gini", {}).items():
            put(unit, each["label"], {"gini": value})
    for change, changed in report["robustness"].items():
        for label, measures in changed["by"].items():
            put(change, label, {"growth": measures["growth"]})
    for name, texts in report["made_texts"].items():
        for label, measures in texts.items():
            put(name, label, measures)
    return found


def _found(condition: Condition, what: str, name: str, known: Mapping[str, Any]) -> Any:
    if name in known:
        return known[name]
    names = list(known)
    more = f", and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    raise ValueError(
        f"--fail-if {condition.text!r}: there is no {what} {name!r}; there are {', '.join(names[:_LISTED])}{more}"
    )
