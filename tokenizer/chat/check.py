# SPDX-License-Identifier: Apache-2.0
"""What a tokenizer and its chat template do to conversations, and whether what they train on can be right."""

import codecs
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.tokenizer.chat import probes
from tokenmill.tokenizer.chat.conversations import Conversation, ConversationError
from tokenmill.tokenizer.chat.made_up import (
    AGAIN,
    ANSWER,
    ASK,
    CALL,
    LAST,
    RESULT,
    SYSTEM,
    THOUGHT,
    Finding,
    check_masks,
    trains_assistant,
)
from tokenmill.tokenizer.chat.masks import mask_tokens
from tokenmill.tokenizer.chat.spans import Marked, Marker, TrainingRule
from tokenmill.tokenizer.chat.templates import ChatTemplate, TemplateError, TemplateLimitError

_SHAPES: Mapping[str, list[dict[str, Any]]] = {
    "one turn": [ASK, ANSWER],
    "two turns": [ASK, ANSWER, AGAIN, LAST],
    "system": [SYSTEM, ASK, ANSWER],
    "reasoning": [ASK, THOUGHT],
    "reasoning in history": [ASK, THOUGHT, AGAIN, LAST],
    "tool call": [ASK, CALL, RESULT, LAST],
}


PLAIN = "plain messages"
"""The finding that a template does not take them."""


class Example(NamedTuple):
    """A rendered conversation, token by token."""

    name: str
    tokens: tuple[tuple[str, bool], ...]
    """The text of each token, and whether it is trained."""
    refused: str = ""
    """Why the template does not take it; there are no tokens then."""


class ChatCheck(NamedTuple):
    """What was found."""

    findings: tuple[Finding, ...]
    examples: tuple[Example, ...]

    @property
    def is_good(self) -> bool:
        """Whether nothing is bad."""
        return all(finding.level != "bad" for finding in self.findings)


def check_chat(
    tokenizer: Any,
    template: ChatTemplate,
    rule: TrainingRule = TrainingRule(),  # noqa: B008 - frozen
    arguments: Mapping[str, Any] = MappingProxyType({}),
    end_tokens: Iterable[str] = (),
) -> ChatCheck:
    """Renders conversations made up for this, and checks what of them is trained.

    Args:
      tokenizer: a `Tokenizer`.
      template: its template.
      rule: what is to be trained.
      arguments: those of the template.
      end_tokens: the tokens with which the model ends its turns.
    """
    bare = tokenizer.replace(special="split")
    bare.no_truncation()
    bare.no_padding()
    special = [token.content for token in tokenizer.added_tokens if token.special]
    try:
        marker = Marker(template, special, rule, [token.content for token in tokenizer.added_tokens])
        as_parts, given = probes.taken(template, arguments)
    except TemplateLimitError as error:
        return ChatCheck((Finding("renders a turn", "bad", f"template_limit: {error}"),), ())
    conversations = [Conversation(probes.shaped(each, as_parts), dict(given), {}, set()) for each in _SHAPES.values()]
    made = dict(zip(_SHAPES, marker.mark_all(conversations), strict=True))

    def render(messages: list[dict[str, Any]], **more: Any) -> str:
        return template.render(probes.shaped(messages, as_parts), **given, **more)

    wrong = "bad" if trains_assistant(rule) else "note"
    findings = (*_findings(template, render, made, wrong), *check_masks(marker, arguments, end_tokens))
    if as_parts or given != arguments:
        needed = "contents as lists of parts" if as_parts else "conversations with tools"
        detail = f"the template takes only {needed}; with DATA the check shows whether your records have them"
        findings = (*findings, Finding(PLAIN, wrong, detail))
    return ChatCheck(findings, tuple(_example(bare, name, found) for name, found in made.items()))


def _findings(
    template: ChatTemplate, render: Callable[..., str], made: Mapping[str, Marked | ConversationError], wrong: str
) -> Iterable[Finding]:
    first = made["one turn"]
    if isinstance(first, ConversationError):
        yield Finding("renders a turn", wrong, f"{first.reason}: {first.detail}")
        return
    yield Finding("renders a turn", "good", repr(first.text))
    trained = [first.text[start:stop] for start, stop in first.spans]
    has_content = any(str(ANSWER["content"]) in text for text in trained)
    yield Finding("trains the answer", "good" if has_content else wrong, " ".join(map(repr, trained)))
    try:
        with_prompt = render([ASK], add_generation_prompt=True)
        without = render([ASK])
    except TemplateError as error:
        yield Finding("generation prompt", "note", f"the template does not render a question alone: {error}")
    else:
        prompt = with_prompt[len(os.path.commonprefix([with_prompt, without])) :]  # noqa: RUF071 - characters are meant
        has_prompt = with_prompt != without
        detail = repr(prompt) if has_prompt else "it writes none; what is in front of a text is taken for its header"
        yield Finding("generation prompt", "good" if has_prompt else "note", detail)
    yield from _stability(render)
    earlier = made["reasoning in history"]
    thought = str(THOUGHT["reasoning_content"])
    if isinstance(made["reasoning"], Marked) and thought in made["reasoning"].text and isinstance(earlier, Marked):
        kept = thought in earlier.text
        detail = "stays in earlier turns" if kept else "is left out of earlier turns, which are then trained without it"
        yield Finding("reasoning", "good" if kept else "note", detail)
    else:
        yield Finding("reasoning", "note", "the template does not show reasoning_content")
    for name in ("system", "tool call"):
        found = made[name]
        if isinstance(found, ConversationError):
            yield Finding(name, "note", f"not taken: {found.detail}")
        elif found.n_unrendered:
            yield Finding(name, "note", "the template leaves it out")
    yield from _arguments(render)
    if template.has_generation:
        yield Finding("marks", "note", "the template marks what is trained itself, by {% generation %}")


def _arguments(render: Callable[..., str]) -> Iterable[Finding]:
    """Compares calls whose arguments are an object with those that have them as JSON in a text, as OpenAI's."""
    shown: list[str | None] = []
    for arguments in ({"of": "sky"}, '{"of": "sky"}'):
        call = {"type": "function", "id": "abcdefghi", "function": {"name": "colour", "arguments": arguments}}
        try:
            shown.append(render([ASK, {**CALL, "tool_calls": [call]}, RESULT, LAST]))
        except TemplateError:
            shown.append(None)
    of_object, of_text = shown
    if of_object is None and of_text is not None:
        yield Finding("arguments of calls", "note", "it takes only JSON in a text, not objects")
    elif of_object is not None and of_object != of_text:
        same = len(os.path.commonprefix([of_object, of_text or ""]))  # noqa: RUF071 - characters are meant
        piece = "becomes " + of_text[max(0, same - 9) : same + 30].replace("\n", "\\n") if of_text else "is refused"
        yield Finding("arguments of calls", "note", f"give objects: JSON in a text {piece}")


def _stability(render: Callable[..., str]) -> Iterable[Finding]:
    for name, turn in (("prefix-stable", ANSWER), ("prefix-stable with reasoning", THOUGHT)):
        try:
            is_stable = render([ASK, turn, AGAIN]).startswith(render([ASK, turn]))
        except TemplateError:
            continue
        detail = "earlier turns are rendered the same when more follow"
        other = "earlier turns change when more follow; masks are right, since they are found in the whole conversation"
        yield Finding(name, "good" if is_stable else "note", detail if is_stable else other)


def _example(tokenizer: Any, name: str, found: Marked | ConversationError) -> Example:
    if isinstance(found, ConversationError):
        return Example(name, (), found.detail)
    texts = pa.array([found.text], pa.string())
    ids = tokenizer.encode_bare(texts)
    (example,) = as_examples(
        tokenizer, [name], texts, ids, mask_tokens(tokenizer, texts, ids, [found.spans], [[]], 0).trained
    )
    return example


def as_examples(
    tokenizer: Any, names: Iterable[str], texts: pa.Array, ids: pa.LargeListArray, trained: npt.NDArray[np.bool_]
) -> Iterator[Example]:
    """Yields texts token by token; `trained` is bool[n_tokens] of all of them."""
    starts, _ = tokenizer.token_offsets(texts, ids)
    bounds = itertools.pairwise(ids.offsets.to_pylist())
    for name, text, (first, last) in zip(names, texts.to_pylist(), bounds, strict=True):
        data, decoder = text.encode(), codecs.getincrementaldecoder("utf-8")()
        places = [*starts[first:last].tolist(), len(data)]
        # A character of several tokens is shown with the last of them.
        pieces = [decoder.decode(data[start:stop]) for start, stop in itertools.pairwise(places)]
        yield Example(name, tuple(zip(pieces, trained[first:last].tolist(), strict=True)))
