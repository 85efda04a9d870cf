# SPDX-License-Identifier: Apache-2.0
"""A comparison drawn: tables for a terminal, or one page that opens offline."""

from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree.ElementTree import Element

from rich.table import Column, Table
from rich.text import Text

from pipeline.comparing.measure import ALL, KINDS
from pipeline.comparing.views import TOP, said, views
from pipeline.reporting import blocks, charts

_DEFINITIONS = (
    "These are diagnostics: they say how text is cut, not how well a model learns from it. Tokens per word and the "
    "Gini coefficient are those of TokEval; words kept whole and parity follow TokLens."
)
_TEXTS = ("", "tokenizer", "word", "source", "document")
"""Heads of columns whose cells may be wrapped; numbers may not."""


def tables(report: Mapping[str, Any]) -> Iterator[Any]:
    """Yields a comparison as what rich prints."""
    yield said(report)
    for view in views(report):
        heads = (
            Column(head, justify="right" if i else "left", overflow="fold", no_wrap=head not in _TEXTS)
            for i, head in enumerate(view.heads)
        )
        table = Table(*heads, title=Text(f"\n{view.title}"), title_justify="left", caption=Text(view.said))
        for row in view.rows:
            table.add_row(*row)
        yield table


def page(report: Mapping[str, Any]) -> str:
    """Returns a comparison as HTML."""
    drawn = {f"By {kind}": figures for kind in KINDS if (figures := _figures(report, kind))}
    sections = [
        blocks.section(view.title, view.said, *drawn.get(view.title, ()), blocks.table(view.heads, view.rows))
        for view in views(report)
    ]
    by = report[ALL]["by"].items()
    headline = blocks.headline((label, f"{charts.number(each['bytes_per_token'])} bytes/token") for label, each in by)
    title = "Comparison of tokenizers"
    return blocks.document(title, f"{said(report)} {_DEFINITIONS}", sections, headline)


def _figures(report: Mapping[str, Any], kind: str) -> list[Element]:
    first, *others = (each["label"] for each in report["tokenizers"])
    measure = "bytes_per_token_difference"
    figures = []
    for label in others:
        rows = [row for row in report.get(kind, ())[:TOP] if row["by"][label][measure] is not None]
        if rows:
            names, values = [row["name"] for row in rows], [row["by"][label][measure] for row in rows]
            figures.append(charts.bars(f"Bytes per token of {label}, less those of {first}.", names, values, "bytes"))
    return figures
