# SPDX-License-Identifier: Apache-2.0
"""Which characters of a rendered conversation are trained: those that the model would have to write.

A turn of the assistant begins where its generation prompt ends, and ends with its stop token. Between them is all that
the model writes: its texts, and what the template writes around them, such as `<tool_call>`. The template tells the
generation prompt itself: it is rendered for conversations of one and two turns, once for each template. Where a
template marks turns by `{% generation %}`, its marks count.
"""

import bisect
import dataclasses
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from tokenmill.tokenizer.chat import shapes
from tokenmill.tokenizer.chat.conversations import Conversation, ConversationError
from tokenmill.tokenizer.chat.templates import ChatTemplate, RefusedError, Rendered, TemplateError, TemplateLimitError
from tokenmill.tokenizer.chat.traced import Run

Span = tuple[int, int]

_HEADER_FIELDS = ("role", "name", "tool_call_id", "id")
"""Fields that a template writes into the header of a message."""
_THINKING = re.compile(r"<think>.*?</think>\s*|\[THINK\].*?\[/THINK\]\s*", re.DOTALL)
_IN_ANSWERS = re.compile(r"</?think|\[/?THINK|</?tool|<｜tool|<\|tool|\[/?TOOL")
"""Added tokens that answers may hold as text."""
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

    def __init__(
        self,
        template: ChatTemplate,
        special_tokens: Iterable[str],
        rule: TrainingRule,
        added_tokens: Iterable[str] = (),
    ) -> None:
        """Prepares for a template.

        Args:
          template: the template.
          special_tokens: the contents of the tokenizer's special tokens.
          rule: what is trained.
          added_tokens: those of its other added tokens. Those that the template writes between two turns count as
            special: some tokenizers do not say that their `<|im_end|>` is.
        """
        self.template = template
        self.rule = rule
        self._probes: dict[str, _Probe] = {}
        self._shapes: dict[Any, shapes.Shape | None] = {}
        self._special = _any_of({*special_tokens} - {""})
        (tried,) = template.render_all([([_USER, _ANSWER], {})])
        if isinstance(tried, TemplateLimitError):  # of many conversations, each would take as long
            raise tried
        turns = [_USER, _ANSWER, _USER, _ANSWER]
        between = "".join(self._between(turns, {}, i) or "" for i in range(len(turns)))
        others = {token for token in added_tokens if token and token in between and not _IN_ANSWERS.match(token)}
        self.special_tokens = {*special_tokens, *others} - {""}
        self._special = _any_of(self.special_tokens)

    def mark(self, conversation: Conversation) -> Marked:
        """Renders a conversation and finds what of it is trained.

        Raises:
          ConversationError: if the template does not render it, or nothing of it is trained.
        """
        (found,) = self.mark_all([conversation])
        if isinstance(found, ConversationError):
            raise found
        return found

    def mark_all(self, conversations: Sequence[Conversation]) -> list[Marked | ConversationError]:
        """Returns for each conversation what `mark` returns or raises; the template is asked for many at once."""
        # Marks of a template, and reasoning inside of a content, may depend on what a text says.
        is_shaped = self.rule.thinking and not self.template.has_generation
        keys = [shapes.key_of(each) if is_shaped else None for each in conversations]
        found: dict[int, Marked | ConversationError] = {}
        # The first of each shape is traced. The others are rendered, and traced if they are not what it predicts.
        first = {key: i for i, key in reversed([*enumerate(keys)]) if key is not None and key not in self._shapes}
        self._trace([i for i, key in enumerate(keys) if key is None or first.get(key) == i], conversations, keys, found)
        rest = [i for i, key in enumerate(keys) if i not in found and self._shapes.get(key) is not None]
        texts = self.template.render_all([(conversations[i].messages, conversations[i].arguments) for i in rest])
        for i, text in zip(rest, texts, strict=True):
            shape = self._shapes[keys[i]]
            if shape is None or isinstance(text, TemplateError):
                continue
            if (spans := shapes.predict(shape, conversations[i].messages, text, self._special)) is not None:
                found[i] = Marked(text, tuple(spans[0]), tuple(spans[1]), shape.n_turns, shape.n_unrendered)
        self._trace([i for i in range(len(keys)) if i not in found], conversations, keys, found)
        return [found[i] for i in range(len(keys))]

    def _trace(
        self,
        wanted: Sequence[int],
        conversations: Sequence[Conversation],
        keys: Sequence[Any],
        found: dict[int, Marked | ConversationError],
    ) -> None:
        """Marks conversations by tracing, and keeps their shapes."""
        traced = self.template.trace_all([(conversations[i].messages, conversations[i].arguments) for i in wanted])
        for i, rendered in zip(wanted, traced, strict=True):
            try:
                found[i] = made = self._marked(conversations[i], rendered)
            except ConversationError as error:
                found[i] = error
                continue
            if keys[i] is not None and isinstance(rendered, Rendered) and not rendered.compares:
                if len(self._shapes) >= shapes.MAX_SHAPES:
                    self._shapes.clear()
                self._shapes[keys[i]] = shapes.learn(conversations[i], made, rendered.runs, self._special)

    def _marked(self, conversation: Conversation, rendered: Rendered | TemplateError) -> Marked:
        """Finds what of a traced conversation is trained."""
        messages = conversation.messages
        if isinstance(rendered, TemplateError):
            raise ConversationError(_reason(rendered), str(rendered))
        self._check_contents(rendered, conversation)
        runs = _first_renderings(rendered.runs)
        segments = _segments(runs)
        of: dict[int, list[int]] = {}
        for k, segment in enumerate(segments):
            of.setdefault(segment.message, []).append(k)
        spans, n_turns = self._spans(conversation, rendered, segments, of)
        if gone := conversation.untrained_parts:
            parts = [run for run in runs if run.origin.field.startswith("content.")]
            numbers = [(run.origin.message, int(run.origin.field.split(".")[1])) for run in parts]
            spans = _without(spans, [(r.start, r.stop) for r, n in zip(parts, numbers, strict=True) if n in gone])
        if not spans:
            raise ConversationError("nothing_trained", f"no text of the {len(messages)} messages is trained")
        sources = tuple((run.start, run.stop, run.origin.message) for run in rendered.runs)
        return Marked(rendered.text, tuple(spans), sources, n_turns, len(messages) - len(of))

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
        self,
        conversation: Conversation,
        rendered: Rendered,
        segments: Sequence["_Segment"],
        of: Mapping[int, Sequence[int]],
    ) -> tuple[list[Span], int]:
        """Returns the trained characters, and the number of trained messages."""
        messages, wanted = conversation.messages, self._wanted(conversation)
        spans: list[Span] = []
        owned = _owned(rendered.generated, segments, messages)
        calls: dict[int, list[Run]] = {}
        for run in rendered.runs:  # those that are shown again, too
            if run.origin.field.startswith("tool_calls") and not run.origin.field.endswith(".id"):
                calls.setdefault(run.origin.message, []).append(run)
        for i in wanted:
            if i not in of and messages[i]["role"] == "assistant":
                detail = f"message {i} is to be trained, but the template shows nothing of it that can be followed"
                raise ConversationError("turn_not_shown", detail)
            spans += self._shown(i, conversation, rendered.text, segments, of, owned, calls)
        n_turns = sum(i in of for i in wanted)
        if self.rule.train != "all":
            return _united(spans), n_turns
        # Everything, but for what is marked.
        others = (i for i in range(len(messages)) if i not in wanted)
        shown = (self._shown(i, conversation, rendered.text, segments, of, owned, calls) for i in others)
        gone = list(itertools.chain.from_iterable(shown))
        return _without([(0, len(rendered.text))] if rendered.text else [], gone), n_turns

    def _shown(
        self,
        i: int,
        conversation: Conversation,
        text: str,
        segments: Sequence["_Segment"],
        of: Mapping[int, Sequence[int]],
        owned: Mapping[int, list[Span]],
        calls: Mapping[int, Sequence[Run]],
    ) -> list[Span]:
        """Returns what of the text is message `i`: of the assistant its turn, of others their texts."""
        mine = [segments[k] for k in of.get(i, ())]
        if conversation.messages[i]["role"] != "assistant":
            return [(each.start, each.stop) for each in mine]
        probe = self.probe(conversation.arguments)
        found = owned.get(i, []) if owned else self._turn(i, conversation, text, segments, of.get(i, ()))
        runs = [run for each in mine for run in each.runs]
        if not self.rule.stop:
            ends = [max((run.stop for run in runs if start <= run.start < stop), default=stop) for start, stop in found]
            if found and (last := probe.stop.search(text, ends[-1], found[-1][1])) is not None:
                found = _without(found, [(last.start(), len(text))])
        if not self.rule.tool_calls:
            at = found[0][0] if found else 0
            again = (run for run in calls.get(i, ()) if any(start <= run.start < stop for start, stop in found))
            runs = sorted({*runs, *again})
            for is_call, group in itertools.groupby(runs, key=lambda run: run.origin.field.startswith("tool_calls")):
                its = list(group)
                if is_call:  # with all that frames it, up to the next text
                    behind = (run.start for run in runs if run.start >= its[-1].stop)
                    found = _without(found, [(at, min(behind, default=len(text)))])
                at = its[-1].stop
        if not self.rule.thinking and found:
            said = [run.start for run in runs if run.origin.field != "reasoning"]
            if len(said) < len(runs):  # up to the first text that is not reasoning, with all that frames it
                found = _without(found, [(found[0][0], min(said, default=found[-1][1]))])
            elif tagged := _THINKING.match(text, found[0][0], found[0][1]):
                found = _without(found, [tagged.span()])
        return found

    def _turn(
        self, i: int, conversation: Conversation, text: str, segments: Sequence["_Segment"], mine: Sequence[int]
    ) -> list[Span]:
        """Returns the turn of the assistant that is message `i`; `mine` are its segments.

        A template may show a part of a message behind the answer of a tool: then each part ends by itself.
        """
        messages, probe = conversation.messages, self.probe(conversation.arguments)
        spans, has_stop = [], False
        for n, k in enumerate(mine):
            start, stop = segments[k].start, segments[k].stop
            before = segments[k - 1] if k else None
            # Else texts that are not traced may be in between: then the turn begins with its own text.
            if n == 0 and (before.message if before is not None else -1) == i - 1:
                first = before.stop if before is not None else 0
                role = messages[i - 1]["role"] if i else "user"
                role = role if role in ("user", "assistant", "system") else "tool"
                prompts = probe.prompts.get(role, probe.prompts.get("user", ()))
                between = text[first:start]
                start = first + len(next((each for each in prompts if between.startswith(each)), between))
            after = segments[k + 1].start if k + 1 < len(segments) else len(text)
            if (found := probe.stop.search(text, stop, after)) is not None:
                has_stop, stop = True, found.end()
            elif i == len(messages) - 1 and k == len(segments) - 1:
                stop = len(text)
            spans.append((start, stop))
        if mine and not has_stop and self.rule.stop and probe.needs_stop(messages, i):
            last = segments[mine[-1]].stop
            raise ConversationError(
                "no_stop_token", f"message {i} has no stop token behind it: {text[last : last + 80]!r}"
            )
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
            if behind and not any(token in behind for token in stops):
                # In front of a tool's answer there may be one more that quotes arguments, as in the call before.
                tokens = [each for each in self._special.findall(behind) if role != "tool" or called.count(each) == 1]
                stops |= {*tokens[:1]} - {opener}
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
        segments = _segments(_first_renderings(rendered.runs))
        mine = [segment.stop for segment in segments if segment.message == i]
        if not mine:
            return None
        later = (segment.start for segment in segments if segment.message > i and segment.start >= mine[-1])
        return rendered.text[mine[-1] : len(rendered.text) if to_end else min(later, default=len(rendered.text))]

    def _check_contents(self, rendered: Rendered, conversation: Conversation) -> None:
        """Raises ConversationError if a record contains a special token, which the tokenizer would take for one."""
        beside = [conversation.arguments.get(name) for name in ("tools", "documents")]
        headers = [message.get(name) for message in conversation.messages for name in _HEADER_FIELDS]
        for text in _texts([*beside, *headers]):
            if found := self._special.search(text):
                raise ConversationError("special_token_in_content", f"{found.group()!r} in {text[:100]!r}")
        runs = iter(sorted(rendered.runs))
        run = next(runs, None)
        for found in self._special.finditer(rendered.text):
            while run is not None and run.stop <= found.start():
                run = next(runs, None)
            # Templates make tokens of a role, as in `<|user|>`.
            if run is not None and run.start < found.end() and run.origin.field not in _HEADER_FIELDS:
                where = f"{run.origin.field} of message {run.origin.message}"
                raise ConversationError("special_token_in_content", f"{found.group()!r} in {where}")


class _Segment(NamedTuple):
    """Neighbouring runs of one message."""

    message: int
    start: int
    stop: int
    runs: tuple[Run, ...]


def _segments(runs: Iterable[Run]) -> list[_Segment]:
    """Returns the texts of messages in the order in which they are shown, without what is in their headers."""
    own = (r for r in runs if r.origin.field not in _HEADER_FIELDS and not r.origin.field.endswith(".id"))
    found = []
    for message, group in itertools.groupby(sorted(own), key=lambda run: run.origin.message):
        its = tuple(group)
        found.append(_Segment(message, its[0].start, max(run.stop for run in its), its))
    return found


def _reason(error: TemplateError) -> str:
    if isinstance(error, RefusedError):
        return "refused_by_template"
    return "template_limit" if isinstance(error, TemplateLimitError) else "template_failed"


def _any_of(tokens: Iterable[str]) -> re.Pattern[str]:
    """Returns what finds a token, the longest first."""
    ordered = sorted(tokens, key=lambda each: (-len(each), each))
    return re.compile("|".join(map(re.escape, ordered)) or "(?!)")


def _texts(value: Any) -> Iterable[str]:
    """Yields all texts in a value, names of fields too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts([*value, *value.values()])
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _first_renderings(runs: Iterable[Run]) -> list[Run]:
    """Returns runs without those of characters that were rendered before, such as the name of the tool that answers."""
    seen: dict[Any, list[Span]] = {}
    kept = []
    for run in sorted(runs):
        there = seen.setdefault(run.origin, [])  # in order, none overlapping
        span = run.at, run.at + run.stop - run.start
        k = bisect.bisect(there, span)
        if not (k and there[k - 1][1] > span[0]) and not (k < len(there) and there[k][0] < span[1]):
            there.insert(k, span)
            kept.append(run)
    return kept


def _owned(
    blocks: Iterable[Span], segments: Sequence[_Segment], messages: Sequence[Mapping[str, Any]]
) -> Mapping[int, list[Span]]:
    """Returns blocks by message: that of the first text in it, else the answer before it, else that behind."""
    ends = list(itertools.accumulate((each.stop for each in segments), max))
    owned: dict[int, list[Span]] = {}
    for block in blocks:
        k = bisect.bisect(ends, block[0])
        owner = segments[k - 1].message if k else -1
        if k < len(segments):
            is_behind = segments[k].start >= block[1] and owner >= 0 and messages[owner]["role"] == "assistant"
            owner = owner if is_behind else segments[k].message
        owned.setdefault(owner, []).append(block)
    return owned


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
    left: list[Span] = []
    gone = _united(gone)
    ends = [last for _, last in gone]
    for start, stop in spans:
        k = bisect.bisect(ends, start)
        while k < len(gone) and gone[k][0] < stop:
            left.append((start, gone[k][0]))
            start, k = gone[k][1], k + 1
        left.append((start, stop))
    return [each for each in left if each[0] < each[1]]
