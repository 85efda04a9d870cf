# SPDX-License-Identifier: Apache-2.0
"""Which characters of a rendered conversation are trained: those that the model would have to write.

A turn of the assistant begins where its generation prompt ends, and ends with its stop token. Between them is all that
the model writes: its texts, and what the template writes around them, such as `<tool_call>`. The template tells the
generation prompt itself: it is rendered for conversations of one and two turns, once for each template. Where a
template marks turns by `{% generation %}`, its marks count.
"""

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from tokenmill.tokenizer.chat.conversations import Conversation, ConversationError
from tokenmill.tokenizer.chat.templates import ChatTemplate, RefusedError, Rendered, TemplateError
from tokenmill.tokenizer.chat.traced import Run

Span = tuple[int, int]

_HEADER_FIELDS = ("role", "name", "tool_call_id", "id")
"""Fields that a template writes into the header of a message."""
_THINKING = re.compile(r"<think>.*?</think>\s*|\[THINK\].*?\[/THINK\]\s*", re.DOTALL)
_PIECES = re.compile(r"<[^<>\s]*>|\[[^\[\]\s]*\]|\w+|\s|.", re.DOTALL)
_MAX_PROBES = 64
_USER, _ANSWER = {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}
_CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "id": "abcdefghi", "function": {"name": "f", "arguments": {"x": "y"}}}],
}
_RESULT = {"role": "tool", "name": "f", "tool_call_id": "abcdefghi", "content": "t"}


@dataclasses.dataclass(frozen=True)
class TrainingRule:
    """What of a conversation is trained."""

    train: Literal["assistant", "last_assistant", "all"] | tuple[str, ...] = "assistant"
    """All turns of the assistant; those after the last message of the user; everything; or messages of these roles."""
    thinking: bool = True
    """Whether the reasoning of a trained turn is trained."""
    tool_calls: bool = True
    """Whether the tool calls of a trained turn are trained."""
    stop: bool = True
    """Whether the stop token of a trained turn is trained; a turn without one is then an error."""


class Marked(NamedTuple):
    """A rendered conversation with what of it is trained."""

    text: str
    spans: tuple[Span, ...]
    """The trained characters, in order, none empty, none touching."""
    messages: tuple[tuple[int, int, int], ...]
    """(start, stop, message) of the characters that come from messages, in order."""
    n_turns: int
    """Trained turns."""
    n_unrendered: int
    """Messages of which the template shows no content, as those that drop earlier reasoning."""


class _Probe(NamedTuple):
    """What a template writes between the messages of short conversations."""

    prompts: Mapping[str, tuple[str, ...]]
    """For the role before a turn of the assistant: what may be between the two, longest first."""
    stop: re.Pattern[str]
    """Special tokens that end a turn, one or several in a row."""
    before: Mapping[str, bool]
    """Whether a turn ends with one, by the role of the next message; "" is the role behind the last."""

    def needs_stop(self, messages: Sequence[Mapping[str, Any]], i: int) -> bool:
        """Returns whether message `i`, a turn of the assistant, ends with a stop token."""
        return self.before.get(messages[i + 1]["role"] if i + 1 < len(messages) else "", False)


class Marker:
    """Renders conversations and finds what of them is trained."""

    def __init__(self, template: ChatTemplate, special_tokens: Iterable[str], rule: TrainingRule) -> None:
        """Prepares for a template.

        Args:
          template: the template.
          special_tokens: the contents of the tokenizer's special tokens.
          rule: what is trained.
        """
        self.template = template
        self.rule = rule
        tokens = sorted({*special_tokens} - {""}, key=lambda each: (-len(each), each))
        self._special = re.compile("|".join(map(re.escape, tokens)) or "(?!)")
        self._probes: dict[str, _Probe] = {}

    def mark(self, conversation: Conversation) -> Marked:
        """Renders a conversation and finds what of it is trained.

        Raises:
          ConversationError: if the template does not render it, or nothing of it is trained.
        """
        messages, arguments = conversation.messages, conversation.arguments
        try:
            rendered = self.template.trace(messages, **arguments)
        except RefusedError as error:
            raise ConversationError("refused_by_template", str(error)) from None
        except (TemplateError, TypeError) as error:
            raise ConversationError("template_failed", str(error)) from None
        runs = _first_renderings(rendered.runs)
        self._check_contents(rendered)
        own = _by_message(runs)
        wanted = self._wanted(conversation)
        spans, n_turns = self._spans(conversation, rendered, own, wanted)
        for i, part in conversation.untrained_parts:
            path = f"content.{part}."
            spans = _without(spans, ((r.start, r.stop) for r in own.get(i, ()) if r.origin.field.startswith(path)))
        if not spans:
            raise ConversationError("nothing_trained", f"no text of the {len(messages)} messages is trained")
        sources = tuple((run.start, run.stop, run.origin.message) for run in rendered.runs)
        return Marked(rendered.text, tuple(spans), sources, n_turns, len(messages) - len(own))

    def probe(self, arguments: Mapping[str, Any]) -> _Probe:
        """Returns what the template writes between messages; kept for each set of arguments."""
        given = {name: value for name, value in arguments.items() if name not in ("tools", "documents")}
        key = json.dumps(given, sort_keys=True, default=repr)
        if key not in self._probes:
            if len(self._probes) >= _MAX_PROBES:
                self._probes.clear()
            self._probes[key] = self._find_probe(given)
        return self._probes[key]

    def _wanted(self, conversation: Conversation) -> list[int]:
        """Returns the messages that are trained."""
        messages, train = conversation.messages, self.rule.train
        roles = [message["role"] for message in messages]
        chosen = {i for i, role in enumerate(roles) if role == "assistant"}
        if train == "last_assistant":
            last = max((i for i, role in enumerate(roles) if role == "user"), default=-1)
            chosen = {i for i in chosen if i > last}
        elif train == "all":
            chosen = {*range(len(roles))}
        elif not isinstance(train, str):
            chosen = {i for i, role in enumerate(roles) if role in train}
        for i, is_trained in conversation.trained.items():
            (chosen.add if is_trained else chosen.discard)(i)
        return sorted(chosen)

    def _spans(
        self, conversation: Conversation, rendered: Rendered, own: Mapping[int, list[Run]], wanted: list[int]
    ) -> tuple[list[Span], int]:
        text, messages = rendered.text, conversation.messages
        if self.rule.train == "all" and len(wanted) == len(messages):
            return [(0, len(text))] if text else [], len(messages)
        spans: list[Span] = []
        n_turns = 0
        for i in wanted:
            if i not in own:
                continue
            n_turns += 1
            if messages[i]["role"] != "assistant":
                spans.append((own[i][0].start, own[i][-1].stop))
            elif rendered.generated:
                spans += [each for each in rendered.generated if _overlaps(each, own[i])]
            else:
                spans += self._turn(i, conversation, rendered, own)
        return _united(spans), n_turns

    def _turn(self, i: int, conversation: Conversation, rendered: Rendered, own: Mapping[int, list[Run]]) -> list[Span]:
        """Returns what of the turn of the assistant that is message `i` is trained."""
        text, mine = rendered.text, own[i]
        first, last = mine[0].start, mine[-1].stop
        others = [run for each, runs in own.items() if each != i for run in runs]
        before = max((run.stop for run in others if run.stop <= first), default=0)
        after = min((run.start for run in others if run.start >= last), default=len(text))
        probe = self.probe(conversation.arguments)
        role = conversation.messages[i - 1]["role"] if i else "user"
        between = text[before:first]
        prompts = probe.prompts.get(role if role in ("user", "assistant") else "tool", probe.prompts.get("user", ()))
        prompt = next((each for each in prompts if between.startswith(each)), between)
        start = before + len(prompt)
        stop = probe.stop.search(text, last, after)
        if stop is None:
            if self.rule.stop and probe.needs_stop(conversation.messages, i):
                found = f"{text[last:after]!r}"[:100]
                raise ConversationError("no_stop_token", f"message {i} is followed by {found}, which has no stop token")
            end = len(text) if i == len(conversation.messages) - 1 else last
        else:
            end = stop.end() if self.rule.stop else stop.start()
        spans = [(start, end)]
        if not self.rule.tool_calls and (calls := [run for run in mine if run.origin.field.startswith("tool_calls")]):
            spans = _without(spans, [(max([start, *(r.stop for r in mine if r.stop <= calls[0].start)]), end)])
        if not self.rule.thinking:
            reasoning = [(run.start, run.stop) for run in mine if run.origin.field == "reasoning"]
            tagged = [(found.start(), found.end()) for found in _THINKING.finditer(text, start, end)]
            spans = _without(spans, [*reasoning, *tagged])
        return spans

    def _find_probe(self, arguments: Mapping[str, Any]) -> _Probe:
        prompts = {}
        starts: Mapping[str, list[Mapping[str, Any]]] = {
            "user": [_USER],
            "tool": [_USER, _CALL, _RESULT],
            "assistant": [_USER, _ANSWER],
        }
        for role, start in starts.items():
            found = self._prompts(start, arguments)
            if found:
                prompts[role] = found
        prompt = self._between([_USER], arguments, -1, add_generation_prompt=True) or ""
        plain = self._between([_USER], arguments, -1) or ""
        opener = self._first(prompt[len(_common(prompt, plain)) :])
        last = self._between([_USER, _ANSWER], arguments, -1) or ""
        followed = {
            "user": self._between([_USER, _ANSWER, _USER], arguments, 1),
            "tool": self._between([_USER, _CALL, _RESULT], arguments, 1),
        }
        stops = {*self._special.findall(last), self.template.tokens.get("eos_token", "")} - {""}
        called = self._between([_USER, _CALL, _RESULT], arguments, 0, to_end=True) or ""
        for role, behind in followed.items():
            if behind and not any(token in behind for token in stops) and (token := self._first(behind)) != opener:
                # In front of a tool's answer it may also be one that quotes arguments, which is in the call before.
                is_quote = role == "tool" and called.count(token) > 1
                stops |= set() if is_quote else {token} - {""}
        pattern = "|".join(map(re.escape, sorted(stops))) or "(?!)"
        before = {role: any(token in (behind or "") for token in stops) for role, behind in followed.items()}
        return _Probe(prompts, re.compile(f"(?:{pattern})+"), {**before, "": any(token in last for token in stops)})

    def _first(self, text: str) -> str:
        """Returns the first special token in a text."""
        found = self._special.search(text)
        return found.group() if found else ""

    def _prompts(self, start: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Returns what may be between the last of some messages and a turn of the assistant after it."""
        prompt = self._between(start, arguments, -1, add_generation_prompt=True)
        plain = self._between(start, arguments, -1)
        asked = [*start, _ANSWER]
        last = self._between(asked, arguments, len(start) - 1)
        earlier = self._between([*asked, _USER, _ANSWER], arguments, len(start) - 1)
        written = [each for each in (last, earlier) if each is not None]
        if prompt is None or prompt == plain:  # no generation prompt: what is in front of a text is its header
            tagged = [plain] if plain and re.search(r"<[^<>\s]*>|\[[^\[\]\s]*\]", plain) else []
            return tuple(dict.fromkeys(sorted([*written, *tagged], key=len, reverse=True)))
        found = {prompt, *(_common(prompt, each) for each in written)}
        least = _common(prompt, plain or "")
        return tuple(sorted((each for each in found if len(each) > len(least)), key=len, reverse=True))

    def _between(
        self,
        messages: Sequence[Mapping[str, Any]],
        arguments: Mapping[str, Any],
        i: int,
        *,
        to_end: bool = False,
        **more: Any,
    ) -> str | None:
        """Returns what the template writes behind message `i`, up to the content of the next; None if it fails.

        `to_end`: up to the end of the text.
        """
        try:
            rendered = self.template.trace(messages, **{**arguments, **more})
        except TemplateError:
            return None
        i %= len(messages)
        own = _by_message(_first_renderings(rendered.runs))
        if i not in own:
            return None
        stop = min((runs[0].start for each, runs in own.items() if each > i and not to_end), default=len(rendered.text))
        return rendered.text[own[i][-1].stop : stop]

    def _check_contents(self, rendered: Rendered) -> None:
        """Raises ConversationError if a message contains a special token, which the tokenizer would take for one."""
        runs = iter(sorted(rendered.runs))
        run = next(runs, None)
        for found in self._special.finditer(rendered.text):
            while run is not None and run.stop <= found.start():
                run = next(runs, None)
            if run is not None and run.start < found.end() and run.origin.field not in _HEADER_FIELDS:
                where = f"{run.origin.field} of message {run.origin.message}"
                raise ConversationError("special_token_in_content", f"{found.group()!r} in {where}")


def _first_renderings(runs: Iterable[Run]) -> list[Run]:
    """Returns runs without those of characters that were rendered before, such as the name of the tool that answers."""
    seen: dict[Any, list[Span]] = {}
    kept = []
    for run in sorted(runs):
        there = seen.setdefault(run.origin, [])
        span = run.at, run.at + run.stop - run.start
        if not any(start < span[1] and span[0] < stop for start, stop in there):
            there.append(span)
            kept.append(run)
    return kept


def _by_message(runs: Iterable[Run]) -> dict[int, list[Run]]:
    """Returns the runs of each message, without those of its header."""
    found: dict[int, list[Run]] = {}
    for run in runs:
        if run.origin.field not in _HEADER_FIELDS and not run.origin.field.endswith(".id"):
            found.setdefault(run.origin.message, []).append(run)
    return found


def _overlaps(span: Span, runs: Iterable[Run]) -> bool:
    return any(run.start < span[1] and span[0] < run.stop for run in runs)


def _common(one: str, other: str) -> str:
    """Returns the longest beginning of both that ends between words and tags."""
    length = 0
    for a, b in zip(_PIECES.findall(one), _PIECES.findall(other), strict=False):
        if a != b:
            break
        length += len(a)
    return one[:length]


def _united(spans: Iterable[Span]) -> list[Span]:
    """Returns spans in order, those that touch or overlap as one."""
    made: list[Span] = []
    for start, stop in sorted(span for span in spans if span[0] < span[1]):
        if made and start <= made[-1][1]:
            made[-1] = made[-1][0], max(made[-1][1], stop)
        else:
            made.append((start, stop))
    return made


def _without(spans: Iterable[Span], gone: Iterable[Span]) -> list[Span]:
    """Returns spans without the characters of others."""
    left = list(spans)
    for first, last in gone:
        cut = [each for start, stop in left for each in ((start, min(stop, first)), (max(start, last), stop))]
        left = [each for each in cut if each[0] < each[1]]
    return left
