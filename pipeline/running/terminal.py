# SPDX-License-Identifier: Apache-2.0
"""The console of every command: tables and colours, in which text from data is only text."""

import os
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from tokenmill.pipeline.running.outlets import visible

_LEAST_WIDTH = 60
"""In characters. A smaller `COLUMNS` is ignored: tables would lose numbers, and with 0 everything."""


class Terminal(Console):
    """A console that takes no text for markup, emoji names or control sequences."""

    def __init__(self, stream: Any, **options: Any) -> None:
        """Opens a console on a stream, also on one that `outlets.guard` guards; options: those of `Console`."""
        super().__init__(file=getattr(stream, "styled", stream), markup=False, emoji=False, highlight=False, **options)
        if self.width < _LEAST_WIDTH and "COLUMNS" in os.environ:
            self.width = _LEAST_WIDTH

    def render_str(self, text: str, **options: Any) -> Text:
        """Returns a text as it will be shown, so that tables measure just that."""
        return super().render_str(visible(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yields what is printed; only segments of the console's own control the terminal."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))
