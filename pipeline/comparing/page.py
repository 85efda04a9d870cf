# SPDX-License-Identifier: Apache-2.0
"""A comparison for people: a list of tables, the same for a terminal and for a page that opens offline."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Column, Table
from rich.text import Text

from tokenmill.pipeline.comparing.sums import ALL, KINDS
from tokenmill.pipeline.reporting import html
from tokenmill.pipeline.reporting.html import number, percent
from tokenmill.pipeline.running.display import megabytes
from tokenmill.tokenizer.token_runs import printable

TOP = 25
"""The most rows of a table; `--json` has all of them."""

_LONGEST = 60
"""Longer names and words are cut."""

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


_TEXTS = ("", "tokenizer", "word", "source", "document")
"""Heads of columns whose cells may be wrapped; numbers may not."""

MANY_UNKNOWN = 0.01
"""From this share of unknown tokens on, a page warns of it: they make a tokenizer look better than it is."""


@dataclass(frozen=True)
class View:
    """A table, its title, and a sentence on it."""

    title: str
    about: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    is_narrow: bool = False
    """Whether a page has room for another one beside it."""


def name_cell(text: str) -> str:
    """Returns a name or a word from a corpus, which may hold anything and be of any length, for a cell."""
    text = printable(text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def views(report: Mapping[str, Any]) -> Iterator[View]:
    """Yields the tables of a comparison."""
    yield _groups(report, "Everything", [report[ALL]])
    for kind in KINDS:
        if len(report.get(kind, ())) > 1:
            yield _groups(report, f"By {kind}", report[kind])
    if "sizes" in report:
        yield _sizes(report["sizes"])
    yield _vocabularies(report)
    yield from _words(report)
    if report["on"].get("failed"):
        yield _failures(report["on"])
    if "speed" in report:
        yield _speed(report["speed"])


def describe_input(report: Mapping[str, Any]) -> str:
    """Returns a sentence on what was read."""
    on = report["on"]
    part = (
        "" if on["is_whole"] else ", the beginning of every file" if on["what"] == "texts" else ", without rare words"
    )
    rejected = sum(on.get("rejected", {}).values())
    more = f"; {rejected:,} records rejected" if rejected else ""
    return f"{on['documents']:,} documents, {megabytes(on['bytes'])}, {on['words']:,} words ({on['word']}){part}{more}."


def _groups(report: Mapping[str, Any], title: str, rows: Sequence[Mapping[str, Any]]) -> View:
    shown, labels = rows[:TOP], _labels(report)
    names = [name for name in _MEASURES if any(name in row["by"][label] for row in shown for label in labels)]
    cells = []
    for row in shown:
        group = (name_cell(row["name"]), megabytes(row["bytes"]))
        for label, measures in row["by"].items():
            cells.append([*group, label, *(_cell(measures, name) for name in names)])
            group = ("", "")
    about = f"Differences are from {labels[0]}."
    if report["on"]["what"] == "texts":
        about += " Intervals are of 95 %, by bootstrap over blocks of documents; groups in too few blocks have none."
    return View(title, about + _rest(len(rows)), ["", "size", "tokenizer", *(_MEASURES[n] for n in names)], cells)


def _rest(n: int) -> str:
    return f" {n - TOP:,} more are in --json." if n > TOP else ""


def _labels(report: Mapping[str, Any]) -> list[str]:
    return [each["label"] for each in report["tokenizers"]]


def _cell(measures: Mapping[str, Any], name: str) -> str:
    if name not in measures:
        return ""
    if name in _SHARES:
        return percent(measures[name])
    limits = measures.get(f"{name}_interval") if name.startswith("bytes_per_token") else None
    return number(measures[name]) + (f" [{number(limits[0])}, {number(limits[1])}]" if limits else "")


def _numbers(each: Mapping[str, Any], *names: str) -> list[str]:
    return [number(each[name]) for name in names]


def _sizes(sizes: Sequence[Mapping[str, Any]]) -> View:
    rows = [[each["label"], *_numbers(each, "size", "bytes_per_token", "gain_per_doubling")] for each in sizes]
    about = "Each vocabulary is the beginning of the next. Gained are bytes per token, for twice the entries."
    return View("Sizes", about, ["tokenizer", "entries", "bytes/token", "gained per doubling"], rows)


def _vocabularies(report: Mapping[str, Any]) -> View:
    heads = "tokenizer, entries, used, fewer than 100 times, unreachable, pieces of characters, Rényi, Gini".split(", ")
    rows = []
    for each in report["tokenizers"]:
        v, gini = each["vocabulary"], each.get("gini", {}).get("bytes")
        counts = _numbers(v, "size", "used", "under_trained", "unreachable")
        rows.append([each["label"], *counts, *map(number, (v["pieces"]["entries"], v["renyi_efficiency"], gini))])
    shared = (
        f"{' and '.join(each['tokenizers'])} share {each['shared']:,} entries" for each in report["overlap"][:TOP]
    )
    about = f"The Gini coefficient is of tokens per byte over languages. {'; '.join(shared)}."
    return View("Vocabularies", about, heads, rows)


def _words(report: Mapping[str, Any]) -> Iterator[View]:
    heads = ["word", "count", "tokens before", "after", "tokens in all"]
    for label, changes in report["words"]["changes"].items():
        for name, more in (("gained", "fewer"), ("lost", "more")):
            words, first = changes[name], _labels(report)[0]
            rows = [
                [name_cell(each["word"]), *_numbers(each, "count", "tokens_before", "tokens_after", "tokens")]
                for each in words[:TOP]
            ]
            about = f"Words of which {label} makes {more} tokens than {first}, those that matter most first."
            if rows:
                yield View(f"Words that {name} with {label}", about + _rest(len(words)), heads, rows, is_narrow=True)


def _failures(on: Mapping[str, Any]) -> View:
    counts = ", ".join(f"{n:,} of {label}" for label, n in on["failed"].items())
    heads = ["tokenizer", "source", "document", "reason"]
    rows = [[name_cell(each[name]) for name in heads] for each in on["failed_documents"]]
    about = f"Documents on which a tokenizer failed count for none: {counts}. The first ones are listed."
    return View("Failures", about, heads, rows)


def _speed(speed: Mapping[str, Any]) -> View:
    rows = [[label, *_numbers(each, "load_seconds", "megabytes_per_second")] for label, each in speed.items()]
    return View("Speed", "One thread, on this machine, now.", ["tokenizer", "seconds to load", "MB/s"], rows)


def tables(report: Mapping[str, Any]) -> Iterator[Any]:
    """Yields a comparison as what rich prints."""
    yield describe_input(report)
    for view in views(report):
        heads = (
            Column(head, justify="right" if i else "left", overflow="fold", no_wrap=head not in _TEXTS)
            for i, head in enumerate(view.heads)
        )
        table = Table(*heads, title=Text(f"\n{view.title}"), title_justify="left", caption=Text(view.about))
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
        on_what=describe_input(report),
        in_short=_in_short(report, labels),
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


def _in_short(report: Mapping[str, Any], labels: list[str]) -> Iterator[str]:
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
