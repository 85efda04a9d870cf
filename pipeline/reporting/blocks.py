# SPDX-License-Identifier: Apache-2.0
"""The blocks of a page: document, headline numbers, sections, tables. Every text in them is escaped."""

import html
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from pipeline.reporting.elements import element, page

MOST_CHARACTERS = 300
"""Longer texts in tables are cut."""

_NUMBER = re.compile(r"[+-]?[0-9][0-9,.]*(e[+-]?[0-9]+)?( (%|TB|GB|MB|kB|B|of [0-9,]+))?|-|")


def document(title: str, said: str, sections: Sequence[Element], head: Element | None = None) -> str:
    """Returns a page as HTML that opens offline, loads nothing and runs no script.

    Args:
      title: the title of the page.
      said: a sentence under the title.
      sections: as `section` returns them; the page links to each.
      head: an element before the first section.
    """
    links = (element("a", str(each[0].text), href=f"#{each.get('id')}") for each in sections)
    style = (Path(__file__).parent / "report.css").read_text(encoding="utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return page(
        element(
            "html",
            element(
                "head",
                element("meta", charset="utf-8"),
                element("meta", name="viewport", content="width=device-width, initial-scale=1"),
                element("meta", http_equiv="Content-Security-Policy", content=policy),
                element("title", title),
                element("style", style),
            ),
            element(
                "body",
                element(
                    "header",
                    element("h1", title),
                    element("p", said, class_="soft"),
                    element("nav", *links, aria_label="sections"),
                ),
                element("main", *([head] if head is not None else []), *sections),
            ),
            lang="en",
        )
    )


def framed(document: str) -> str:
    """Returns a page as HTML for a notebook: in a frame, so that neither's styles affect the other."""
    return f'<iframe srcdoc="{html.escape(document)}" sandbox="" style="width:100%;height:40rem;border:0"></iframe>'


def headline(entries: Iterable[tuple[str, str]]) -> Element:
    """Returns the numbers at the top of a page, each under its name."""
    cells = (element("div", element("dt", name), element("dd", value)) for name, value in entries)
    return element("dl", *cells, class_="headline")


def section(title: str, said: str, *children: Element | str) -> Element:
    """Returns a section: its title, a sentence, and what follows."""
    name = title.lower().replace(" ", "-")
    return element("section", element("h2", title), element("p", said), *children, id=name)


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> Element:
    """Returns a table that scrolls if it is too wide. Columns of numbers are right-aligned.

    Args:
      heads: a name for each column.
      rows: the cells of each row: elements, or any values, which `str` turns into text.
    """
    cells = [[cell if isinstance(cell, Element) else shortened(str(cell)) for cell in row] for row in rows]
    sides = [{"class_": "n"} if i and _is_numbers(row[i] for row in cells) else {} for i in range(len(heads))]
    head = element("tr", *(column_head(name, **sides[i]) for i, name in enumerate(heads)))
    body = (element("tr", *(element("td", cell, **sides[i]) for i, cell in enumerate(row))) for row in cells)
    label = ", ".join(filter(None, heads)) or "facts"
    found = element("table", element("thead", head), element("tbody", *body))
    return element("div", found, class_="scroll", tabindex="0", role="group", aria_label=label)


def column_head(name: str, **attributes: str) -> Element:
    """Returns the head of a column; without a name an empty cell, which screen readers do not announce."""
    return element("th", name, scope="col", **attributes) if name else element("td")


def _is_numbers(column: Iterable[Element | str]) -> bool:
    return all(isinstance(cell, str) and _NUMBER.fullmatch(cell) for cell in column)


def left_out(n: int, what: str) -> Element | str:
    """Returns a sentence that `n` more are not shown; nothing if there are none."""
    return element("p", f"{n:,} more {what} are not shown.", class_="soft") if n else ""


def details(summary: str, child: Element) -> Element:
    """Returns an element that is unfolded on request."""
    return element("details", element("summary", summary), child)


def code(text: str) -> Element:
    """Returns text in a fixed-width font, as in a file."""
    return element("code", shortened(text))


def shortened(text: str) -> str:
    """Returns a text, cut if it is long: a word, a pattern or a name may have any length."""
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."


def percent(share: float | None) -> str:
    """Returns a share, from 0 to 1, in percent; `-` for None."""
    return "-" if share is None else f"{100 * share:.4g} %"
