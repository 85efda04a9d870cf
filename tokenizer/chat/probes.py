# SPDX-License-Identifier: Apache-2.0
"""What a chat template writes between messages: where the model starts to write a turn, and what ends the turn.

No template is known by name. Short conversations are traced, and the gaps between the texts of their messages compared:
with the generation prompt and without, in front of an answer and in front of a call, behind the last turn and behind an
earlier one, at the beginning of a text and within it. Where two differ in white space alone, they count as the same.
"""

import bisect
import itertools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tokenmill.tokenizer.chat.templates import ChatTemplate, TemplateError, TemplateLimitError
from tokenmill.tokenizer.chat.traced import Run

_PIECES = re.compile(r"<[^<>\s]*>|\[[^\[\]\s]*\]|\w+|\s+|.", re.DOTALL)
_TAG = re.compile(r"<[^<>\s]*>|\[[^\[\]\s]*\]")
_SYSTEM, _USER = {"role": "system", "content": "s"}, {"role": "user", "content": "u"}
_ANSWER = {"role": "assistant", "content": "a"}
_CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "id": "abcdefghi", "function": {"name": "f", "arguments": {"x": "y"}}}],
}
_RESULT = {"role": "tool", "name": "f", "tool_call_id": "abcdefghi", "content": "t"}
_TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "f", "parameters": {"type": "object", "properties": {}, "required": []}},
}
_ASKED: Mapping[str, list[Mapping[str, Any]]] = {
    "user": [_USER],
    "tool": [_USER, _CALL, _RESULT],
    "assistant": [_USER, _ANSWER],
}
HEADER_FIELDS = ("role", "name", "tool_call_id", "id")
"""Fields that a template writes into the header of a message."""


class Segment(NamedTuple):
    """Neighbouring runs of one message."""

    message: int
    start: int
    stop: int
    runs: tuple[Run, ...]


class Gap(NamedTuple):
    """What stands between the texts of two messages that follow each other in a rendered text."""

    before: int
    """The message in front; -1: none."""
    text: str
    after: int
    """The message behind; -1: none."""


class Prompt(NamedTuple):
    """What stands behind a message when the model is asked to answer it."""

    text: str
    n_plain: int
    """Characters of it that stand there unasked, too."""
    history: tuple[str, ...]
    """What stands between the message and its answer in a whole conversation, longest first."""

    @property
    def asks(self) -> bool:
        """Whether a template adds anything when it is asked for a generation prompt."""
        return bool(self.text[self.n_plain :].strip())


class Probe(NamedTuple):
    """What a template writes between the messages of short conversations."""

    prompts: Mapping[str, Prompt]
    """By the role of the message that is answered."""
    stop: re.Pattern[str]
    """What ends a turn: special tokens, one or several in a row."""
    before: Mapping[str, bool]
    """Whether a turn ends with one, by the role of what follows in the text; "" where nothing does."""
    openers: frozenset[str]
    """Special tokens of the header behind an earlier turn."""
    last: str
    """What closes the last turn, without `appended`."""
    appended: str
    """The generation prompt of a template that writes it behind every conversation, asked for or not; else empty."""

    def begin(self, gap: str, role: str | None, turn: str = "") -> int | None:
        """Returns where behind the text in front of a turn the model starts to write; None if there is no header.

        Args:
          gap: what stands in front of the turn.
          role: that of the message in front; None: texts that left no trace may be in the gap.
          turn: how the turn goes on behind the gap; it may begin with the rest of a prompt, such as `<think>`.
        """
        prompt = self.prompts.get(role or "user", self.prompts.get("user"))
        if prompt is None:
            return None
        if not prompt.asks:
            if role is None:
                return None
            whole = [*prompt.history, *([prompt.text] if _TAG.search(prompt.text) else [])]
            exact = next((len(each) for each in sorted(whole, key=len, reverse=True) if gap.startswith(each)), None)
            return exact if exact is not None else max((agree(gap, each)[0] for each in whole), default=0) or None
        if role is not None:
            at, there = agree(gap, prompt.text)
            if prompt.text[prompt.n_plain : there].strip():
                return at + _rest(gap[at:] + turn, prompt.text[there:])
        found = (0, 0)
        for asked in {each.text[each.n_plain :].lstrip() for each in self.prompts.values() if each.asks}:
            first = _PIECES.match(asked)
            for place in _PIECES.finditer(gap) if first else ():
                if first and place.group() == first.group():
                    at, there = agree(gap[place.start() :], asked)
                    tells = any(re.search(r"\w", each) and each not in self.openers for each in words(asked[:there]))
                    at += place.start()
                    found = max(found, (there, at + _rest(gap[at:] + turn, asked[there:]))) if tells else found
        return found[1] or None

    def own(self, gap: str, role: str) -> int:
        """Returns where in a gap without a header what is no part of the message in front begins."""
        prompt = self.prompts.get(role, self.prompts.get("user"))
        return 0 if prompt is None else agree(gap, prompt.text[: prompt.n_plain])[0]


def find_probe(template: ChatTemplate, special: re.Pattern[str], arguments: Mapping[str, Any]) -> Probe:
    """Returns what a template writes between messages.

    Args:
      template: the template.
      special: finds a special token.
      arguments: those of the template.
    """
    as_parts, arguments = taken(template, arguments)

    def traced(*messages: Mapping[str, Any], **more: Any) -> list[Gap]:
        return gaps(template, shaped(messages, as_parts), {**arguments, **more})

    prompts = {}
    for role, start in _ASKED.items():
        text = behind(traced(*start, add_generation_prompt=True), len(start) - 1)
        plain = behind(traced(*start), len(start) - 1) or ""
        found = (in_front(traced(*start, _ANSWER, *more), len(start)) for more in ((), (_USER, _ANSWER)))
        history = tuple(sorted({each for each in found if each}, key=len, reverse=True))
        if text is not None or history:
            text = plain if text is None else text
            prompts[role] = Prompt(text, agree(text, plain)[0], history)
    last = behind(traced(_USER, _ANSWER), 1) or ""
    earlier = behind(traced(_USER, _ANSWER, _USER), 1) or ""
    common = last[: agree(last, earlier)[0]]
    appended = last[len(common) :] if earlier else ""
    user = prompts.get("user", Prompt("", 0, ()))
    if appended.strip() and not user.asks and user.text.endswith(appended):
        asked = {role: each for role, each in prompts.items() if each.text.endswith(appended)}
        prompts |= {role: each._replace(n_plain=len(each.text) - len(appended)) for role, each in asked.items()}
        user = prompts["user"]
    else:
        appended = ""
    starts = (traced(_SYSTEM, _USER, _ANSWER), traced(_USER, _ANSWER))
    openers = _openers(special, template.tokens.get("bos_token", ""), earlier, starts)
    end = _stop(common if appended or special.search(common) else last, special, openers)
    last = common[: common.find(end) + len(end)] if appended else last
    in_turn = traced(_USER, _CALL, _RESULT)
    called, call = "".join(each.text for each in in_turn if each.before >= 0), behind(in_turn, 1) or ""
    eos = template.tokens.get("eos_token", "")
    stops = {end, eos} - {""}
    if not any(each in earlier for each in stops):
        first = special.search(earlier)
        if first is not None and not earlier[: first.start()].strip():
            stops.add(_stop(earlier[: _run_end(earlier, first.start(), special)], special, openers))
    if call and not any(each in call for each in stops):
        # Tokens in front of a tool's answer may also quote arguments, as in the call before, or close the call.
        header = special.search(user.text[user.n_plain :])
        again = behind(traced(_USER, _CALL, _RESULT, _RESULT), 2) or ""  # a second answer, with the header of its own
        heads = {*openers, *special.findall(again), *([header.group()] if header else ())}
        final = [each for each in special.findall(end)[-1:] if each in call]
        once = [each for each in special.finditer(call) if called.count(each.group()) == 1]
        run = special.findall(call[once[0].start() : _run_end(call, once[0].start(), special)]) if once else []
        stops.add("".join(final or itertools.takewhile(lambda each: each not in heads, run)))
        stops.discard("")
    pattern = re.compile("|".join(map(re.escape, sorted(stops, key=lambda each: (-len(each), each)))) or "(?!)")
    written = {"user": earlier, "tool": call, "": last}
    before = {role: pattern.search(text) is not None for role, text in written.items()}
    return Probe(prompts, pattern, before, openers, last, appended)


def _openers(special: re.Pattern[str], bos: str, earlier: str, starts: Iterable[list[Gap]]) -> frozenset[str]:
    """Returns special tokens of the header behind an earlier turn: from the first one with which a text begins, too.

    Else those that are in front of the user's first message, too, at the end of both.
    """
    fronts = [each[0].text for each in starts if each]
    first = {token for front in fronts for token in _run(front, special)} - {bos}
    tokens = special.findall(earlier)
    if (n := next((i for i, each in enumerate(tokens) if each in first), None)) is not None:
        return frozenset(tokens[n:])
    pairs = zip(*(words(each)[::-1] for each in (earlier, *fronts[-1:])), strict=False) if fronts else ()
    return frozenset(a for a, b in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs) if special.fullmatch(a))


def _run(text: str, special: re.Pattern[str]) -> list[str]:
    """Returns the special tokens with which a text begins, with white space between them."""
    found, at = [], _space(text, 0)
    while (each := special.match(text, at)) is not None and each.group():
        found.append(each.group())
        at = each.end() + _space(text, each.end())
    return found


def _stop(text: str, special: re.Pattern[str], openers: Iterable[str]) -> str:
    """Returns the special tokens in a row that end a turn: the first ones that white space follows, or nothing.

    Others, which words follow, close a part of the turn. Behind the first, those that open a header are left out.
    """
    at = 0
    while (first := special.search(text, at)) is not None:
        start, at = first.start(), _run_end(text, first.start(), special)
        if at == len(text) or text[at].isspace():
            tokens = special.findall(text[start:at])
            n = next((i for i, each in enumerate(tokens) if i and each in openers), len(tokens))
            return "".join(tokens[:n])
    return ""


def _run_end(text: str, at: int, special: re.Pattern[str]) -> int:
    """Returns where special tokens in a row from `at` on end."""
    while (found := special.match(text, at)) is not None and found.end() > at:
        at = found.end()
    return at


def taken(template: ChatTemplate, arguments: Mapping[str, Any]) -> tuple[bool, Mapping[str, Any]]:
    """Returns in which form a template shows messages: whether as parts, and arguments, with a tool if it needs one."""
    for as_parts, more in itertools.product((False, True), ({}, {"tools": [_TOOL]})):
        found = gaps(template, shaped([_USER, _ANSWER], as_parts), {**arguments, **more})
        if {0, 1} <= {each.after for each in found}:
            return as_parts, {**arguments, **more}
    return False, arguments


def shaped(messages: Iterable[Mapping[str, Any]], as_parts: bool) -> list[dict[str, Any]]:
    """Returns messages, their contents as parts if so asked."""
    made = [dict(each) for each in messages]
    for each in made if as_parts else ():
        each["content"] = [{"type": "text", "text": each["content"]}] if each["content"] else []
    return made


def gaps(template: ChatTemplate, messages: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any]) -> list[Gap]:
    """Returns what a template writes around the texts of messages, in the order of the text; nothing if it fails.

    Raises:
      TemplateLimitError: if it takes too much, as it would in the next conversation.
    """
    try:
        rendered = template.trace(messages, **arguments)
    except TemplateLimitError:
        raise
    except TemplateError:
        return []
    found, at, before = [], 0, -1
    for segment in segments(first_renderings(rendered.runs)):
        found.append(Gap(before, rendered.text[at : segment.start], segment.message))
        at, before = segment.stop, segment.message
    return [*found, Gap(before, rendered.text[at:], -1)]


def behind(found: Iterable[Gap], message: int) -> str | None:
    """Returns what stands behind the text of a message; None if it is not shown."""
    return next((each.text for each in reversed([*found]) if each.before == message), None)


def in_front(found: Iterable[Gap], message: int) -> str | None:
    """Returns what stands in front of the text of a message; None if it is not shown."""
    return next((each.text for each in found if each.after == message), None)


def segments(runs: Iterable[Run]) -> list[Segment]:
    """Returns the texts of messages in the order in which they are shown, without what is in their headers."""
    found = []
    for message, group in itertools.groupby(sorted(filter(is_own, runs)), key=lambda run: run.origin.message):
        its = tuple(group)
        found.append(Segment(message, its[0].start, max(run.stop for run in its), its))
    return found


def is_own(run: Run) -> bool:
    """Returns whether a run is of a text of its message, and not in its header."""
    return run.origin.field not in HEADER_FIELDS and not run.origin.field.endswith(".id")


def first_renderings(runs: Iterable[Run]) -> list[Run]:
    """Returns runs without those of characters that are also rendered elsewhere, such as a tool's name in its answer.

    Of several renderings that is kept which has another text of its message beside it; else the first one behind the
    message in front; else the first.
    """
    ordered = sorted(runs)
    own = [run for run in ordered if is_own(run)]
    first = {run.origin.message: run.start for run in reversed(own)}
    pairs = [(a, b) for a, b in itertools.pairwise(own) if a.origin != b.origin]
    beside = {run for a, b in pairs if a.origin.message == b.origin.message for run in (a, b)}
    seen: dict[Any, list[tuple[int, int]]] = {}
    kept = []
    for run in sorted(ordered, key=lambda run: (run not in beside, run.start < first.get(run.origin.message - 1, 0))):
        there = seen.setdefault(run.origin, [])  # in order, none overlapping
        span = run.at, run.at + run.stop - run.start
        k = bisect.bisect(there, span)
        if not (k and there[k - 1][1] > span[0]) and not (k < len(there) and there[k][0] < span[1]):
            there.insert(k, span)
            kept.append(run)
    return sorted(kept)


def agree(one: str, other: str) -> tuple[int, int]:
    """Returns up to where two texts begin with the same words and tags: a place in each.

    White space between them may differ. Of that behind the last, what both have counts, or all of `one` if `other` ends
    there or has other white space before.
    """
    if one.startswith(other):
        return len(other), len(other)
    both = [[each for each in _PIECES.finditer(text) if not each.group().isspace()] for text in (one, other)]
    n = next((i for i, (a, b) in enumerate(zip(*both, strict=False)) if a.group() != b.group()), min(map(len, both)))
    if n == 0:
        return 0, 0
    at, there = (each[n - 1].end() for each in both)
    spaces = [text[end : end + _space(text, end)] for text, end in ((one, at), (other, there))]
    if one[:at] == other[:there] and n < len(both[1]):
        same = len(os.path.commonprefix(spaces))  # noqa: RUF071 - characters are meant
        return at + same, there + same
    return at + len(spaces[0]), there + len(spaces[1])


def _space(text: str, at: int) -> int:
    """Returns how many characters of white space a text has from `at` on."""
    return len(text) - at - len(text[at:].lstrip())


def _rest(text: str, prompt: str) -> int:
    """Returns how many characters of a text are the rest of a prompt, if it has any but white space: all or none."""
    return len(prompt) if prompt.strip() and text.startswith(prompt) else 0


def words(text: str) -> list[str]:
    """Returns the words and tags of a text, without white space."""
    return [each for each in _PIECES.findall(text) if not each.isspace()]
