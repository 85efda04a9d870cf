# SPDX-License-Identifier: Apache-2.0
"""Pages from templates, and how they show values. A document may be an attack: whatever text goes in stays text.

Templates are beside the modules that use them, `*.html.jinja`. `shown` is applied to everything that a template prints,
and autoescape to what it returns. A page opens offline, loads nothing and runs no script: its policy forbids both.
"""

import functools
import html
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tokenmill import pipeline
from tokenmill.pipeline.running.display import duration, megabytes

if TYPE_CHECKING:
    from jinja2 import Environment

MOST_CHARACTERS = 300
"""Longer texts are cut: a word, a pattern or a name may have any length."""

_FIGURES = re.compile(r"[<+-]?[0-9][0-9,.]*(e[+-]?[0-9]+)?( (%|TB|GB|MB|kB|B|of [0-9,]+))?|-|")
_NOT_ALLOWED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_DIRECTIONS = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def render(template: str, **values: Any) -> str:
    """Returns the page that a template makes of some values; its name is a path in this package.

    Raises:
      ValueError: if a value lacks what the template shows, because somebody has changed the file it was read from.
    """
    from jinja2 import UndefinedError

    try:
        return environment().get_template(template).render(values)
    except UndefinedError as error:
        raise ValueError(f"a file of the folder is not as TokenMill writes it: {error}; run the job again") from error


def framed(document: str) -> str:
    """Returns a page as HTML for a notebook: in a frame, so that neither's styles affect the other."""
    return f'<iframe srcdoc="{html.escape(document)}" sandbox="" style="width:100%;height:40rem;border:0"></iframe>'


def number(value: float | None) -> str:
    """Returns a number for people: integers with separators, others with four significant digits; `-` for None."""
    if value is None:
        return "-"
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def percent(share: float | None) -> str:
    """Returns a share, from 0 to 1, in percent; `-` for None."""
    if share is None:
        return "-"
    return "<0.001 %" if 0 < share < 1e-5 else f"{100 * share:.4g} %"


def shortened(text: str) -> str:
    """Returns a text, cut if it is long."""
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."


def visible(text: str) -> str:
    """Returns text with escapes for characters that HTML forbids or that would reverse the text around them."""
    text = _NOT_ALLOWED.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return _DIRECTIONS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


@functools.cache
def environment() -> "Environment":
    """Returns the environment that all pages are made in."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup, escape

    def shown(value: object) -> object:
        if isinstance(value, Markup):
            return value
        if isinstance(value, str):
            return visible(shortened(value))
        return number(value) if value is None or isinstance(value, (int, float)) else value

    made = Environment(
        loader=PackageLoader(pipeline.__name__, "."), autoescape=True, undefined=StrictUndefined, finalize=shown,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    whole = {"whole": lambda text: Markup(escape(visible(text)))}  # a text that is not cut
    made.filters |= _FILTERS | whole | {"pick": _pick}
    made.globals |= {"is_figures": _is_figures, "largest": _largest}
    return made


_FILTERS: dict[str, Callable[[Any], str]] = {
    "percent": percent,
    "megabytes": megabytes,
    "duration": duration,
    "signed": "{:+,}".format,
}


def _pick(rows: Iterable[Mapping[str, Any]], *keys: str) -> list[list[object]]:
    """Returns cells for a table: of each row the values of some keys, such as `sample.strr|percent`."""
    return [[_picked(row, key) for key in keys] for row in rows]


def _picked(row: Any, key: str) -> object:
    path, _, name = key.partition("|")
    for part in path.split("."):
        row = row[part]
    return _FILTERS[name](row) if name else row


def _is_figures(rows: Sequence[Sequence[Any]], column: int) -> bool:
    """Returns whether a column holds nothing but numbers, which are aligned to the right."""
    return column > 0 and all(not isinstance(row[column], str) or _FIGURES.fullmatch(row[column]) for row in rows)


def _largest(rows: Sequence[Sequence[Any]], columns: Iterable[int], without: Sequence[tuple[int, int]] = ()) -> float:
    """Returns the largest number in some columns; 1 if there is none above 0, as bars are drawn relative to it.

    Cells of `without`, each a row and a column, do not count.
    """
    cells = ((i, j) for j in columns for i in range(len(rows)) if (i, j) not in without)
    return max((rows[i][j] or 0 for i, j in cells), default=0) or 1
