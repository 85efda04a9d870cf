# SPDX-License-Identifier: Apache-2.0
"""A comparison as tables for a terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Column, Table
from rich.text import Text

from pipeline.comparing.measure import ALL, KINDS
from pipeline.reporting.blocks import percent
from pipeline.reporting.charts import number
from pipeline.running.display import megabytes

TOP = 20
"""Groups of a kind, and words, that are shown."""


def render(report: Mapping[str, Any]) -> Iterator[Any]:
    """Yields a comparison as what rich prints."""
    yield said(report)
    yield _groups("", [report[ALL]], report)
    for kind in KINDS:
        rows = report.get(kind, [])
        if len(rows) > 1:
            yield _groups(kind, rows[:TOP], report)
            if len(rows) > TOP:
                yield f"{len(rows) - TOP:,} more groups by {kind} are in --json"


def said(report: Mapping[str, Any]) -> str:
    """Returns a sentence on what was read."""
    on = report["on"]
    part = "" if on["is_whole"] else ", the beginning of every file"
    return f"{on['documents']:,} documents, {megabytes(on['bytes'])}, {on['words']:,} words{part}"


_MEASURES = {
    "bytes_per_token": "bytes/token",
    "bytes_per_token_difference": "difference",
    "tokens_per_megabyte": "tokens/MB",
    "fertility": "tokens/word",
    "strr": "whole words",
    "unknown": "unknown",
    "parity": "parity",
}
_SHARES = ("strr", "unknown")


def _groups(kind: str, rows: list[Any], report: Mapping[str, Any]) -> Table:
    labels = [each["label"] for each in report["tokenizers"]]
    shown = [name for name in _MEASURES if any(name in row["by"][label] for row in rows for label in labels)]
    heads = [Column(_MEASURES[name], justify="right") for name in shown]
    table = Table(
        Column(kind, overflow="fold"), Column("size", justify="right"), Column("tokenizer", overflow="fold"), *heads
    )
    for row in rows:
        for i, label in enumerate(labels):
            first = ("", "") if i else (Text(row["name"]), megabytes(row["bytes"]))
            table.add_row(*first, Text(label), *(cell(row["by"][label], name) for name in shown))
        table.add_section()
    return table


def cell(measures: Mapping[str, Any], name: str) -> str:
    """Returns a measure as text, with its interval where there is one; empty where there is no such measure."""
    if name not in measures:
        return ""
    if name in _SHARES:
        return percent(measures[name])
    limits = measures.get(f"{name}_interval") if name.startswith("bytes_per_token") else None
    return number(measures[name]) + (f" [{number(limits[0])}, {number(limits[1])}]" if limits else "")
