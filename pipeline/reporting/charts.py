# SPDX-License-Identifier: Apache-2.0
"""Charts of a report: static SVG in the page's own colours, each with its numbers in a table that screen readers read.

pygal draws them. What it adds that a report must not have is removed: scripts, comments with a date, its own styles.
"""

import sys
from collections.abc import Sequence
from typing import Any
from xml.etree.ElementTree import Element

import pygal
from pygal.style import Style

from pipeline.reporting.blocks import column_head
from pipeline.reporting.elements import element, visible

# pygal looks for its plugins at every import, through a protocol that Python has removed.
sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, pygal.PluginImportFixer)]

_STYLE = Style(background="transparent", plot_background="transparent", font_family="inherit", colors=("currentColor",))
_WIDTH = 720
_ROW_HEIGHT, _CHART_HEIGHT = 26, 280

_LONGEST_LABEL = 24
"""Longer labels, which may come from a corpus, are cut."""


def bars(title: str, labels: Sequence[str], values: Sequence[float], unit: str) -> Element:
    """Returns a figure with a horizontal bar for each label, the first on top.

    Args:
      title: a sentence that says what is shown.
      labels: the labels of the bars; any text.
      values: the lengths of the bars.
      unit: the unit of the values, which heads their column in the table.
    """
    # pygal does not escape through `elements`, and does not cut labels at the side of a chart.
    labels = [visible(label if len(label) <= _LONGEST_LABEL else f"{label[:_LONGEST_LABEL]}…") for label in labels]
    height = _ROW_HEIGHT * len(labels) + 60
    chart = pygal.HorizontalBar(height=height, x_labels=list(reversed(labels)), **_options(title))
    chart.add(unit, list(reversed(values)))
    return _figure(chart, title, ("", unit), zip(labels, values, strict=True))


def columns(title: str, labels: Sequence[str], values: Sequence[float], units: tuple[str, str]) -> Element:
    """Returns a figure with a column for each label, from left to right; `units` are those of labels and values."""
    chart = pygal.Bar(height=_CHART_HEIGHT, x_labels=list(labels), x_label_rotation=30, **_options(title))
    chart.add(units[1], list(values))
    return _figure(chart, title, units, zip(labels, values, strict=True))


def line(title: str, labels: Sequence[str], values: Sequence[float], units: tuple[str, str]) -> Element:
    """Returns a figure with a line through a value for each label, from left to right; `units` as for `columns`."""
    top = max(values, default=0) or 1
    chart = pygal.Line(
        height=_CHART_HEIGHT, x_labels=list(labels), x_label_rotation=30, range=(0, top), **_options(title)
    )
    chart.add(units[1], list(values))
    return _figure(chart, title, units, zip(labels, values, strict=True))


def _options(title: str) -> dict[str, Any]:
    return {
        "style": _STYLE,
        "width": _WIDTH,
        "show_legend": False,
        "js": [],
        "no_prefix": True,
        "no_data_text": "nothing",
        "value_formatter": number,
    }


def number(value: Any) -> str:
    """Returns a number for people: integers with separators, others with four significant digits."""
    if value is None:
        return "-"
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def _figure(chart: Any, title: str, heads: tuple[str, str], rows: Any) -> Element:
    svg = chart.render_tree()
    _clean(svg)
    svg.attrib.pop("id", None)
    svg.set("role", "img")
    svg.set("aria-label", f"{title} The numbers are in the table below.")
    table = element(
        "table",
        element("tr", *(column_head(head) for head in heads)),
        *(element("tr", element("td", str(label)), element("td", number(value), class_="n")) for label, value in rows),
    )
    drawn = element("div", svg, class_="scroll", tabindex="0", role="group", aria_label=title)
    return element(
        "figure", element("figcaption", title), drawn, element("details", element("summary", "numbers"), table)
    )


def _clean(node: Element) -> None:
    """Removes everything that is not drawing: scripts, styles, comments, and the boxes that scripts would fill."""
    for child in list(node):
        is_drawing = isinstance(child.tag, str) and child.tag.rpartition("}")[2] not in ("script", "style")
        if not is_drawing or "tooltip-overlay" in child.get("class", ""):
            node.remove(child)
        else:
            _clean(child)
