# SPDX-License-Identifier: Apache-2.0
"""A comparison drawn: tables for a terminal, or one page that opens offline."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Column, Table
from rich.text import Text

from tokenmill.pipeline.comparing.measure import ALL, KINDS
from tokenmill.pipeline.comparing.views import TOP, name_cell, said, views
from tokenmill.pipeline.reporting import html

_TEXTS = ("", "tokenizer", "word", "source", "document")
"""Heads of columns whose cells may be wrapped; numbers may not."""


MANY_UNKNOWN = 0.01
"""From this share of unknown tokens on, a page warns of it: they make a tokenizer look better than it is."""


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
    labels, by = [each["label"] for each in report["tokenizers"]], report[ALL]["by"]
    known = [each["bytes_per_token"] or 0 for each in by.values() if (each["unknown"] or 0) < MANY_UNKNOWN]
    return html.render(
        "comparing/comparison.html.jinja",
        labels=labels,
        by=by,
        best=max(known, default=None),
        MANY_UNKNOWN=MANY_UNKNOWN,
        said=said(report),
        told=_told(report, labels),
        sources=[name_cell(row["name"]) for row in report.get("source", ())],
        charts=list(_charts(report)),
        views=list(views(report)),
    )


def _charts(report: Mapping[str, Any]) -> Iterator[tuple[str, list[list[Any]], list[tuple[int, int]]]]:
    """Yields kinds of groups, the bytes per token of each group and tokenizer, and the cells with many unknown tokens.

    Scripts are left out where languages say the same.
    """
    kinds = [kind for kind in KINDS if len(report.get(kind, ())) > 1]
    for kind in kinds[:2]:
        rows = [(name_cell(row["name"]), list(row["by"].values())) for row in report[kind][:TOP]]
        faint = [
            (i, j)
            for i, (_, measures) in enumerate(rows)
            for j, each in enumerate(measures, 1)
            if (each["unknown"] or 0) >= MANY_UNKNOWN
        ]
        yield kind, [[name, *(each["bytes_per_token"] for each in measures)] for name, measures in rows], faint


def _told(report: Mapping[str, Any], labels: list[str]) -> Iterator[str]:
    """Yields how many tokens each tokenizer makes, compared with the first one, and for which group fewest and most."""
    groups = next((report[kind] for kind in KINDS[1:] if len(report.get(kind, ())) > 1), ())
    first = labels[0]
    for label in labels[1:]:
        whole, *parts = [
            (100 * (row["by"][label]["tokens"] / row["by"][first]["tokens"] - 1), name_cell(row["name"]))
            for row in (report[ALL], *groups)
            if row["by"][first]["tokens"]
        ] or [(0.0, "")]
        line = f"{label} makes {abs(whole[0]):.0f} % {'more' if whole[0] > 0 else 'fewer'} tokens than {first}"
        if parts:
            line += ": from {:+.0f} % in {} to {:+.0f} % in {}".format(*min(parts), *max(parts))
        yield f"{line}."
