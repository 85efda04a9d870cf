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

from tokenmill.tokenizer.chat import probes, shapes
from tokenmill.tokenizer.chat.conversations import Conversation, ConversationError
from tokenmill.tokenizer.chat.probes import HEADER_FIELDS, Probe, Segment
from tokenmill.tokenizer.chat.templates import ChatTemplate, RefusedError, Rendered, TemplateError, TemplateLimitError
from tokenmill.tokenizer.chat.traced import Run

Span = tuple[int, int]

_NAME = r"(?:\w+:)?(?:think|thinking|thought|reasoning)(?::\w+)?"
_OPENED = re.compile(rf"<{_NAME}>|\[{_NAME}\]|◁{_NAME}▷", re.IGNORECASE)
"""What opens reasoning inside of a content, or at the end of a prompt."""
_CLOSING = re.compile(r"\s*(?:<[^<>\s]*>|\[/[^\[\]\s]*\])\s*")
"""What closes reasoning that a template writes."""
_IN_ANSWERS = re.compile(r"</?think|\[/?THINK|</?tool|<｜tool|<\|tool|\[/?TOOL")
"""Added tokens that answers may hold as text."""
_MAX_PROBES = 64
_MOST_PROMPT = 1000
"""Characters of a turn in which the end of a prompt is looked for."""


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
    """(start, stop, message) of the characters that come from texts of messages, not their headers, in order."""
    n_turns: int
    """Trained turns."""
    n_unrendered: int
    """Messages of which the template shows no content, as those that drop earlier reasoning."""
    shown: frozenset[tuple[int, str]] = frozenset()
    """Fields of messages that are in the text, each as (message, field); names of reasoning as "reasoning"."""


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
        self._probes: dict[str, Probe] = {}
        self._shapes: dict[Any, shapes.Shape | None] = {}
        self.special = _any_of({*special_tokens} - {""})
        turns = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}] * 2
        # Which raises if it takes too much: of many conversations, each would take as long.
        between = "".join(each.text for each in probes.gaps(template, turns, {}) if each.before >= 0)
        others = {token for token in added_tokens if token and token in between and not _IN_ANSWERS.match(token)}
        self.special_tokens = {*special_tokens, *others} - {""}
        self.special = _any_of(self.special_tokens)

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
            if (spans := shapes.predict(shape, conversations[i].messages, text, self.special)) is not None:
                of_shape = shape.n_turns, shape.n_unrendered, shape.shown
                found[i] = Marked(text, tuple(spans[0]), tuple(spans[1]), *of_shape)
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
                self._shapes[keys[i]] = shapes.learn(conversations[i], made, rendered.runs, self.special)

    def _marked(self, conversation: Conversation, rendered: Rendered | TemplateError) -> Marked:
        """Finds what of a traced conversation is trained."""
        messages = conversation.messages
        if isinstance(rendered, TemplateError):
            raise ConversationError(_reason(rendered), str(rendered))
        self._check_contents(rendered, conversation)
        runs = probes.first_renderings(rendered.runs)
        segments = probes.segments(runs)
        of: dict[int, list[int]] = {}
        for k, segment in enumerate(segments):
            of.setdefault(segment.message, []).append(k)
        spans, n_turns = self._spans(conversation, rendered, segments, of)
        if gone := conversation.untrained_parts:
            parts = [run for run in runs if run.origin.field.startswith("content.")]
            numbers = [(run.origin.message, int(run.origin.field.split(".")[1])) for run in parts]
            spans = _without(spans, [(r.start, r.stop) for r, n in zip(parts, numbers, strict=True) if n in gone])
        for run in runs if conversation.untrained_text else ():
            if run.origin.field == "content":
                places = conversation.untrained_text.get(run.origin.message, ())
                moved = [(run.start + max(0, first - run.at), run.start + last - run.at) for first, last in places]
                spans = _without(spans, [(start, min(stop, run.stop)) for start, stop in moved])
        if not spans:
            reason = "nothing_trained" if all(conversation.trained.values()) else "marked_untrained"
            raise ConversationError(reason, f"no text of the {len(messages)} messages is trained")
        sources = tuple((run.start, run.stop, run.origin.message) for run in rendered.runs if probes.is_own(run))
        n_unrendered = sum(i not in of and any(message[name] for name in message if name != "role")
                           for i, message in enumerate(messages))  # fmt: skip
        shown = frozenset((run.origin.message, run.origin.field.partition(".")[0]) for run in rendered.runs)
        return Marked(rendered.text, tuple(spans), sources, n_turns, n_unrendered, shown)

    def probe(self, arguments: Mapping[str, Any]) -> Probe:
        """Returns what the template writes between messages; kept for each set of arguments."""
        given = {name: value for name, value in arguments.items() if name not in ("tools", "documents")}
        key = json.dumps(given, sort_keys=True, default=repr)
        if key not in self._probes:
            if len(self._probes) >= _MAX_PROBES:
                self._probes.clear()
            try:
                self._probes[key] = probes.find_probe(self.template, self.special, given)
            except TemplateLimitError as error:
                raise ConversationError(_reason(error), str(error)) from None
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
        segments: Sequence[Segment],
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
        segments: Sequence[Segment],
        of: Mapping[int, Sequence[int]],
        owned: Mapping[int, list[Span]],
        calls: Mapping[int, Sequence[Run]],
    ) -> list[Span]:
        """Returns what of the text is message `i`: of the assistant its turn, of others their texts."""
        mine = [segments[k] for k in of.get(i, ())]
        if conversation.messages[i]["role"] != "assistant":
            return [(each.start, each.stop) for each in mine]
        probe = self.probe(conversation.arguments)
        marks = self.template.has_generation
        found = owned.get(i, []) if marks else self._turn(i, conversation, text, segments, of.get(i, ()))
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
            found = _without(found, _reasoning(text, (found[0][0], found[-1][1]), runs, probe))
        return found

    def _turn(
        self, i: int, conversation: Conversation, text: str, segments: Sequence[Segment], mine: Sequence[int]
    ) -> list[Span]:
        """Returns the turn of the assistant that is message `i`; `mine` are its segments.

        A template may show a part of a message behind the answer of a tool: then each part ends by itself.
        """
        messages, probe = conversation.messages, self.probe(conversation.arguments)
        spans, has_stop = [], False
        for n, k in enumerate(mine):
            start, stop = segments[k].start, segments[k].stop
            before = segments[k - 1] if k else None
            if n == 0:
                first = before.stop if before is not None else 0
                role = messages[i - 1]["role"] if i else "user"
                role = role if role in ("user", "assistant", "system") else "tool"
                is_next = (before.message if before is not None else -1) == i - 1
                # Without a header in between, the turn begins with its own text.
                at = probe.begin(text[first:start], role if is_next else None, text[start : start + _MOST_PROMPT])
                if at is None and is_next and segments[k].runs[0].origin.field.startswith("tool_calls"):
                    at = probe.own(text[first:start], role)
                elif at is None and before is not None and messages[before.message]["role"] == "assistant":
                    # Behind a turn that has not ended the model goes on.
                    at = None if probe.stop.search(text, first, start) else 0
                start = start if at is None else first + at
            after = segments[k + 1].start if k + 1 < len(segments) else len(text)
            if (found := probe.stop.search(text, stop, after)) is not None:
                has_stop, stop = True, found.end()
            elif k == len(segments) - 1 and not probe.appended:
                stop = len(text)
            spans.append((start, stop))
        behind = segments[mine[-1] + 1].message if mine and mine[-1] + 1 < len(segments) else None
        needs_stop = probe.before.get("" if behind is None else messages[behind]["role"], False)
        if mine and not has_stop and self.rule.stop and needs_stop:
            last = segments[mine[-1]].stop
            raise ConversationError(
                "no_stop_token", f"message {i} has no stop token behind it: {text[last : last + 80]!r}"
            )
        return spans

    def _check_contents(self, rendered: Rendered, conversation: Conversation) -> None:
        """Raises ConversationError if a record contains a special token, which the tokenizer would take for one."""
        beside = [conversation.arguments.get(name) for name in ("tools", "documents")]
        headers = [message.get(name) for message in conversation.messages for name in HEADER_FIELDS]
        for text in _texts([*beside, *headers]):
            if found := self.special.search(text):
                raise ConversationError("special_token_in_content", f"{found.group()!r} in {text[:100]!r}")
        runs = iter(sorted(rendered.runs))
        run = next(runs, None)
        for found in self.special.finditer(rendered.text):
            while run is not None and run.stop <= found.start():
                run = next(runs, None)
            # Templates make tokens of a role, as in `<|user|>`.
            if run is not None and run.start < found.end() and run.origin.field not in HEADER_FIELDS:
                where = f"{run.origin.field} of message {run.origin.message}"
                raise ConversationError("special_token_in_content", f"{found.group()!r} in {where}")


def _reasoning(text: str, turn: Span, runs: Sequence[Run], probe: Probe) -> list[Span]:
    """Returns the reasoning of a turn with what frames it; `runs` are the texts of the turn."""
    (at, last), gone = turn, _tagged(text, turn, runs)
    if all(run.origin.field == "reasoning" for run in runs):
        return [turn] if runs else gone
    for field, group in itertools.groupby(runs, key=lambda run: run.origin.field):
        its = list(group)
        if field == "reasoning":
            behind = min((run.start for run in runs if run.start >= its[-1].stop), default=last)
            closing = _CLOSING.match(text, its[-1].stop, behind)
            stop = closing.end() if closing is not None else behind
            stop += probe.begin(text[stop:behind], None) or 0  # a text of its own may have a header of its own
            gone.append((at, stop))
        end = probe.stop.match(text, its[-1].stop, last)
        at = end.end() if end is not None else its[-1].stop
    return gone


def _tagged(text: str, turn: Span, runs: Sequence[Run]) -> list[Span]:
    """Returns the reasoning inside of contents: what is between tags, of which the prompt may hold the first."""
    (first, last), gone = turn, []
    calls = [run for run in runs if run.origin.field.startswith("tool_calls")]
    prompt = text[max(0, first - 64) : first].rstrip()
    opened = next((each for each in _OPENED.finditer(prompt) if each.end() == len(prompt)), None)
    start = at = first
    while opened is not None or (opened := _OPENED.search(text, at, last)) is not None:
        if opened.string is text:
            start, at = opened.span()
        closing = f"{opened.group()[0]}/{opened.group()[1:]}"
        end = text.find(closing, at, last)
        if end < 0 and opened.string is text and not text[first:start].strip():
            return [turn]  # cut off before its end
        if end >= 0 and not any(run.start <= start < run.stop for run in calls):
            while start > first and text[start - 1].isspace():
                start -= 1
            at = end + len(closing)
            while at < last and text[at].isspace():
                at += 1
            gone.append((start, at))
        opened = None
    return gone


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


def _owned(
    blocks: Iterable[Span], segments: Sequence[Segment], messages: Sequence[Mapping[str, Any]]
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
