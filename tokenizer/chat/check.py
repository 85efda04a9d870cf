# SPDX-License-Identifier: Apache-2.0
"""Whether what is trained of made-up conversations is right; a job asks before it starts, and so does `chat check`.

The rule, for a turn of the assistant:

* what is trained is its content and one stop, and what the template writes between the generation prompt and these;
* what stands untrained in front of it ends with the generation prompt, or as much of it as history shows;
* its stop is not a part of the header that follows, unless the model is known to end its turns with it;
* a call is trained from where its markup begins, and nothing that others say is trained.
"""

import codecs
import dataclasses
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
from tokenmill.tokenizer.chat.masks import mask_tokens
from tokenmill.tokenizer.chat.spans import Marked, Marker, Span, TrainingRule
from tokenmill.tokenizer.chat.templates import ChatTemplate, TemplateError, TemplateLimitError

Messages = list[dict[str, Any]]

SYSTEM = {"role": "system", "content": "Answer in one word."}
ASK, ANSWER = {"role": "user", "content": "What is red?"}, {"role": "assistant", "content": "Blood."}
AGAIN, LAST = {"role": "user", "content": "And green?"}, {"role": "assistant", "content": "Grass."}
THOUGHT = {**ANSWER, "reasoning_content": "Something red."}
CALL: dict[str, Any] = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "id": "abcdefghi", "function": {"name": "colour", "arguments": {"of": "sky"}}}],
}
TOOL = {
    "type": "function",
    "function": {
        "name": "colour",
        "description": "Tells the colour of a thing.",
        "parameters": {"type": "object", "properties": {"of": {"type": "string"}}, "required": ["of"]},
    },
}
"""A tool for templates that are for records with tools."""
RESULT = {"role": "tool", "name": "colour", "tool_call_id": "abcdefghi", "content": "blue"}
_TAGGED = {**ANSWER, "content": f"<think>\n{THOUGHT['reasoning_content']}\n</think>\n\n{ANSWER['content']}"}
_TURNS: Mapping[str, Messages] = {
    "one turn": [ASK, ANSWER],
    "two turns": [ASK, ANSWER, AGAIN, LAST],
    "system": [SYSTEM, ASK, ANSWER, AGAIN, LAST],
    "tool call": [ASK, CALL, RESULT, LAST],
}
_NO_STOP = (
    "ends without a special token of the tokenizer: the model will not learn to stop; train the tokenizer with "
    "tokenizer.train.special_tokens that the template writes"
)


class Finding(NamedTuple):
    """One thing that was checked."""

    name: str
    level: str
    """"good"; "note", worth knowing; "bad", training goes wrong."""
    detail: str


def trains_assistant(rule: TrainingRule) -> bool:
    """Returns whether a rule is to train turns of the assistant, and not everything."""
    return rule.train == "last_assistant" or "assistant" in rule.train


def check_masks(
    marker: Marker, arguments: Mapping[str, Any] | None = None, end_tokens: Iterable[str] = ()
) -> list[Finding]:
    """Marks made-up conversations, and judges what is trained of them.

    Args:
      marker: what finds the trained text.
      arguments: those of the template.
      end_tokens: the tokens with which the model ends its turns, as its `generation_config.json` says.
    """
    rule = marker.rule
    if not trains_assistant(rule):
        return []
    as_parts, given = probes.taken(marker.template, arguments or {})
    plain = dataclasses.replace(rule, train="assistant", thinking=True, tool_calls=True)
    whole = Marker(marker.template, marker.special_tokens, plain)
    bad: dict[str, str] = {}
    stops: dict[str, str] = {}
    for name, messages in _TURNS.items():
        conversation = Conversation(probes.shaped(messages, as_parts), dict(given), {}, set())
        try:
            marked = whole.mark(conversation)
        except ConversationError as error:
            if name in ("one turn", "two turns"):
                bad.setdefault("turns", f"{name}: {error.reason}: {error.detail}")
            continue
        turns = _Turns(whole, messages, conversation, marked)
        for what, detail in turns.problems(frozenset(end_tokens)):
            bad.setdefault(what, f"{name}: {detail}")
        if name in ("one turn", "two turns"):
            stops["the last turn" if name == "one turn" else "an earlier turn"] = turns.stop_of(1)
        elif name == "tool call" and not marker.template.has_generation and not turns.stop_of(1):
            stops["a tool call"] = ""
    part = Marker(marker.template, marker.special_tokens, dataclasses.replace(rule, train="assistant"))
    calls = [] if rule.tool_calls else [[ASK, CALL, RESULT, LAST]]
    thoughts = [] if rule.thinking else [[ASK, THOUGHT], [ASK, _TAGGED]]
    for what, hidden, conversations in (("tool calls", ("colour", "sky"), calls), ("thinking", ("red.",), thoughts)):
        for messages in conversations:
            try:
                marked = part.mark(Conversation(probes.shaped(messages, as_parts), dict(given), {}, set()))
            except ConversationError:
                continue  # nothing is trained, or the template does not take it
            said = [marked.text[start:stop] for start, stop in marked.spans]
            if any(each in text for each in hidden for text in said):
                bad.setdefault(what, f"are not to be trained, but {' '.join(map(repr, said))} is")
    return [*_stops(stops, marker, bad), *(Finding(what, "bad", detail) for what, detail in bad.items())]


def _stops(stops: Mapping[str, str], marker: Marker, bad: Mapping[str, str]) -> Iterator[Finding]:
    if not marker.rule.stop:
        yield Finding("stop token", "note", "is not trained, as asked: the model will not learn to stop")
        return
    for where, stop in stops.items():
        if stop and "stop token" not in bad:
            yield Finding("stop token", "good", f"{where} is trained to end with {stop!r}")
        elif not stop:
            # The last turn may be open, where the header of the next one ends the others.
            level = "note" if where == "the last turn" and stops.get("an earlier turn") else "bad"
            yield Finding("stop token", level, f"{where} {_NO_STOP}")


class _Turns:
    """A marked conversation, cut at the texts of its messages."""

    def __init__(self, marker: Marker, messages: Messages, conversation: Conversation, marked: Marked) -> None:
        self._marker, self._messages, self._conversation = marker, messages, conversation
        self._probe = marker.probe(conversation.arguments)
        self._text = marked.text
        self._trained = bytearray(len(marked.text))
        for start, stop in marked.spans:
            self._trained[start:stop] = b"\1" * (stop - start)
        own: dict[int, dict[str, Span]] = {}  # where each text is shown first
        for start, stop, i in sorted(marked.messages):
            text = marked.text[start:stop]
            if text in (("colour", "sky") if messages[i].get("tool_calls") else (messages[i]["content"],)):
                own.setdefault(i, {}).setdefault(text, (start, stop))
        edges = [(i, min(its.values())[0], max(its.values())[1]) for i, its in own.items()]
        self._edges = [(-1, 0, 0), *edges, (-1, len(marked.text), len(marked.text))]

    def problems(self, ends: frozenset[str]) -> Iterator[tuple[str, str]]:
        """Yields what is wrong: a name for it, and details."""
        for before, (i, start, stop), after in zip(self._edges, self._edges[1:], self._edges[2:], strict=False):
            said, trained = self._text[start:stop], self._trained[start:stop]
            if self._messages[i]["role"] != "assistant":
                if any(trained):
                    yield "turns", f"{said!r} is trained, which the model does not write"
            elif self._marker.template.has_generation:
                if any(trained) and not all(trained):
                    yield "turns", f"of {said!r} a part is trained"
            elif not all(trained):
                yield "turns", f"{said!r} is not trained, or not all of it"
            else:
                first = self._trained.rfind(0, before[2], start) + 1 or before[2]
                name = "header" if self._messages[i]["content"] else "tool call"
                yield from ((name, said) for said in self._front(i, before, first, start, stop))
                yield from (("stop token", said) for said in self._back(i, stop, after[1], ends))

    def stop_of(self, message: int) -> str:
        """Returns the special tokens that are trained behind a message; empty: none is."""
        for (i, _, stop), (_, behind, _) in itertools.pairwise(self._edges):
            found = self._probe.stop.search(self._text, stop, behind) if i == message else None
            if found is not None and all(self._trained[found.start() : found.end()]):
                return found.group()
        return ""

    def _front(self, i: int, before: tuple[int, int, int], first: int, start: int, stop: int) -> Iterator[str]:
        """Yields what is wrong in front of a turn: `first` is where it begins to be trained, `start` its own text."""
        untrained, written = self._text[before[2] : first], self._text[first:start]
        prompt, asked = self._asked(i, self._text[before[1] : before[2]])
        seen, words, whole = (probes.words(each) for each in (untrained, asked, prompt))
        n = max(k for k in range(len(words) + 1) if seen[len(seen) - k :] == words[:k])
        # Behind a tool's answer history may go on without the header for which an answer is asked.
        goes_on = seen == whole[: len(seen)] or seen[-1:] == words[-1:]
        history = [each for it in self._probe.prompts.values() for each in it.history]
        if any(self._trained[before[2] : first]):
            yield f"what is in front of {self._text[start:stop]!r} is trained in pieces"
        elif words and n == 0 and not goes_on:
            yield f"{untrained!r}, untrained in front, does not end with the generation prompt {asked!r}"
        elif words and probes.words(self._text[first:stop])[:1] == words[n : n + 1]:
            yield f"{written!r} is trained, which the generation prompt {asked!r} holds"
        elif not words and self._messages[i]["content"] and written.strip() and seen != whole:
            yield f"{written!r} is trained, though no generation prompt ends in front of it"
        elif not words and not any(probes.words(each)[: len(seen)] == seen for each in [*history, prompt]):
            yield f"{untrained!r} is untrained in front, and more than what is in front of any answer"

    def _asked(self, i: int, said: str) -> tuple[str, str]:
        """Returns what stands behind the text before message `i` when an answer is asked for, and the prompt in it."""
        template, (messages, arguments, *_) = self._marker.template, self._conversation
        try:
            text = template.render(messages[:i], **arguments, add_generation_prompt=True)
            plain = template.render(messages[:i], **arguments)
        except TemplateError:
            return "", ""
        text, plain = (each[each.rfind(said) + len(said) :] for each in (text, plain))
        appended = self._probe.appended
        return text, appended if appended and text.endswith(appended) else text[probes.agree(text, plain)[0] :]

    def _back(self, i: int, stop: int, behind: int, ends: frozenset[str]) -> Iterator[str]:
        """Yields what is wrong behind a turn whose text ends at `stop`; the next text begins at `behind`."""
        last = self._trained.find(0, stop, behind)
        closing = self._text[stop : behind if last < 0 else last].strip()
        found = self._probe.stop.search(closing)
        # Without a stop all is trained that is behind the last turn, and it is said that there is none.
        is_last = closing in ("", self._probe.last.strip())
        if found is not None and found.end() == len(closing):
            is_last = self._probe.last.strip().startswith(closing)
        if self._messages[i]["content"] == "" and found is not None:
            closing = found.group()  # what closes a call is in front of it
            is_last = closing in self._probe.last
        tokens = self._marker.special.findall(closing)
        shared = [each for each in tokens if each in self._probe.openers and each not in ends]
        if last >= 0 and any(self._trained[last:behind]):
            yield f"what is behind {self._text[:stop][-20:]!r} is trained in pieces"
        elif is_last:
            return
        elif self._messages[i]["content"] and "".join(tokens) != closing:
            yield f"{closing!r} is trained behind a text, and is no stop token"
        elif shared:
            yield (
                f"{shared[0]!r} is trained as the stop token, but begins the header that follows; if the model ends "
                "its turns with it, name it in chat.end_tokens, or give the folder with its generation_config.json"
            )


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
        becomes = [text and f"becomes {'…' + text[max(0, same - 9) : same + 30]!r}" for text in shown]
        detail = f"give objects: JSON in a text {becomes[1] or 'is refused'}"
        if "{'of': 'sky'}" in of_object:  # Jinja writes an object as Python does
            detail = f"give JSON in a text, or let the template write `| tojson`: an object {becomes[0]}, not JSON"
        yield Finding("arguments of calls", "note", detail)


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
