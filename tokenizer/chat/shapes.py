# SPDX-License-Identifier: Apache-2.0
"""Conversations of one shape: what was found for one holds for the next, if its text is what the shape predicts.

Tracing costs four times as much as rendering. But around the contents of messages a template mostly writes the same. So
of a traced conversation the pieces are kept, literals and places of contents, and where between them spans begin and
end. If the text of another one with the same roles is the same literals around its own contents, character by
character, and has special tokens in the same places, its spans are in these places, too. Else it is traced.

A template could write a literal in place of a content that is equal to it. It has to compare them first, and of a
conversation with which it compared anything, or asked for a length, no shape is kept. What this cannot see is a
template that finds out by other questions, such as `"ok" in content` and `not content[2:]`: for it, what is trained of
that literal depends on the conversations before. No known template does so.
"""

import bisect
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tokenmill.tokenizer.chat.conversations import Conversation
from tokenmill.tokenizer.chat.traced import Run

MAX_SHAPES = 1024
"""How many shapes are kept for a template."""

_MOST_MESSAGES = 64
_REASONING = ("reasoning_content", "thinking", "reasoning")
_FIELDS = {"role", "content", *_REASONING}
_MODES: tuple[Callable[[str], str], ...] = (str, str.strip, str.lstrip, str.rstrip)

Place = tuple[int, int]
"""A piece, and characters from its beginning."""


class Shape(NamedTuple):
    """The pieces of a text, and places between them."""

    pieces: tuple[str | tuple[int, str, Callable[[str], str]], ...]
    """Literals; and (message, field, what is done to it)."""
    special: tuple[tuple[Place, Place], ...]
    """Special tokens."""
    spans: tuple[tuple[Place, Place], ...]
    """What is trained."""
    messages: tuple[tuple[Place, Place, int], ...]
    """As `Marked.messages`."""
    n_turns: int
    n_unrendered: int
    shown: frozenset[tuple[int, str]]


def key_of(conversation: Conversation) -> Any:
    """Returns what conversations of one shape have in common; None if they are long, or have more than texts."""
    arguments = conversation.arguments
    if conversation.untrained_parts or conversation.untrained_text or len(conversation.messages) > _MOST_MESSAGES:
        return None
    if not {*arguments}.isdisjoint(("tools", "documents")):
        return None
    if not all(isinstance(each, int) or (isinstance(each, str) and len(each) < 100) for each in arguments.values()):
        return None
    found: list[Any] = []
    for message in conversation.messages:
        if not _FIELDS.issuperset(message):
            return None
        found.append(message["role"])
        for field in ("content", "reasoning"):
            text = _text(message, field)
            if not isinstance(text, str):
                if text is not None:
                    return None
                found.append(None)
            else:
                # What strips, drops or asks for a text decides by these, or makes another text of it.
                found.append((text[:1].isspace(), text[-1:].isspace(), not text, text.isspace()))
    typed = tuple((name, type(value), value) for name, value in sorted(arguments.items()))
    return (*found, typed, tuple(sorted(conversation.trained.items())))


def _text(message: Mapping[str, Any], field: str) -> Any:
    if field == "content":
        return message.get("content")
    return next((message[name] for name in _REASONING if name in message), None)


def learn(conversation: Conversation, marked: Any, runs: Iterable[Run], special: re.Pattern[str]) -> Shape | None:
    """Returns the shape of a marked conversation; None if other texts of the same key would be cut elsewhere.

    Args:
      conversation: as `key_of` takes it.
      marked: the `spans.Marked` that was found.
      runs: those of its text; the template must have compared no content to another text.
      special: finds special tokens.
    """
    text = marked.text
    pieces: list[Any] = []
    starts: list[int] = []
    at = 0
    for run in sorted(runs):
        if run.origin.field not in ("content", "reasoning"):
            continue  # a role is part of the key, so literal
        value = _text(conversation.messages[run.origin.message], run.origin.field)
        shown = text[run.start : run.stop]
        mode = next((each for each in _MODES if each(value) == shown), None)
        if run.start < at or mode is None:
            return None
        pieces += [text[at : run.start], (run.origin.message, run.origin.field, mode)]
        starts += [at, run.start]
        at = run.stop
    pieces.append(text[at:])
    starts.append(at)

    def place(position: int) -> Place:
        if position == len(text):
            return len(pieces), 0
        i = bisect.bisect_right(starts, position) - 1  # of several that begin there, the one that is not empty
        if position > starts[i] and not isinstance(pieces[i], str):
            raise ValueError
        return i, position - starts[i]

    try:
        return Shape(
            tuple(pieces),
            tuple((place(each.start()), place(each.end())) for each in special.finditer(text)),
            tuple((place(start), place(stop)) for start, stop in marked.spans),
            tuple((place(start), place(stop), message) for start, stop, message in marked.messages),
            marked.n_turns,
            marked.n_unrendered,
            marked.shown,
        )
    except ValueError:  # within a content
        return None


def predict(
    shape: Shape, messages: Sequence[Mapping[str, Any]], text: str, special: re.Pattern[str]
) -> tuple[list[tuple[int, int]], list[tuple[int, int, int]]] | None:
    """Returns spans and messages of a text, as `spans.Marked` has them; None if it is not of the shape."""
    parts = [each if isinstance(each, str) else each[2](_text(messages[each[0]], each[1])) for each in shape.pieces]
    if "".join(parts) != text:
        return None
    starts = list(itertools.accumulate(map(len, parts), initial=0))
    expected = [(starts[i] + k, starts[j] + n) for (i, k), (j, n) in shape.special]
    if [each.span() for each in special.finditer(text)] != expected:
        return None
    spans = [(starts[i] + k, starts[j] + n) for (i, k), (j, n) in shape.spans]
    return spans, [(starts[i] + k, starts[j] + n, message) for (i, k), (j, n), message in shape.messages]
