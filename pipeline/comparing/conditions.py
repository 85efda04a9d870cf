# SPDX-License-Identifier: Apache-2.0
"""Conditions on a comparison, for a CI: `bytes_per_token[de]@new.json < 3.8`."""

import math
import operator
import re
from collections.abc import Callable, Mapping
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


def parse(text: str) -> re.Match[str]:
    """Returns a condition in its parts: metric, group, tokenizer, sign, number.

    Raises:
      ValueError: if it is not a condition.
    """
    found = _GRAMMAR.fullmatch(text)
    try:
        is_good = found is not None and not math.isnan(float(found["number"]))
    except ValueError:
        is_good = False
    if found is None or not is_good:
        raise ValueError(
            f"--fail-if: {text!r} is no condition; write METRIC[GROUP]@TOKENIZER < NUMBER, where [GROUP] and "
            f"@TOKENIZER may be left out and the sign is one of {', '.join(_SIGNS)}, as in 'bytes_per_token[de] < 3.8'"
        )
    return found


def holding(condition: re.Match[str], report: Mapping[str, Any]) -> list[str]:
    """Returns a line for each tokenizer for which a condition holds; for all tokenizers, if it names none.

    Raises:
      ValueError: if the comparison has no such metric, group or tokenizer, or no value for it; the message lists those
        that it has.
    """
    text = condition.string.strip()
    by_group = _found(text, "metric", condition["metric"], _measures(report))
    group = condition["group"] or ALL  # or its kind and name, as in `language:de`
    names = (group, *(f"{kind}:{group}" for kind in ("language", "script", "source")))
    by_label = next((by_group[name] for name in names if name in by_group), None)
    if by_label is None:
        by_label = _found(text, "group", group, by_group)
    if (label := condition["tokenizer"]) is not None:
        by_label = {label: _found(text, "tokenizer", label, by_label)}
    known = {label: value for label, value in by_label.items() if value is not None}
    if not known:
        raise ValueError(f"--fail-if {text!r}: there is no token or no word to say it of")
    holds, limit = _SIGNS[condition["sign"]], float(condition["number"])
    return [f"{text}: it is {n:.6g} for {label}" for label, n in known.items() if holds(n, limit)]


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


def _found(text: str, what: str, name: str, known: Mapping[str, Any]) -> Any:
    if name in known:
        return known[name]
    names = list(known)
    more = f", and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    raise ValueError(f"--fail-if {text!r}: there is no {what} {name!r}; there are {', '.join(names[:_LISTED])}{more}")
