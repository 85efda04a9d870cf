# SPDX-License-Identifier: Apache-2.0
"""Loss masks of chat templates against an oracle that shares no code with ours.

The oracle renders by `transformers` alone. It writes each letter of a message as a character for private use, so that
the text itself tells which letter stands where, and it renders the beginning of the conversation with the generation
prompt, which is what the model is given. A turn must be trained from behind that prompt to its first stop token, and
nothing else. Where a template has `{% generation %}`, what `transformers` takes from it is right, to the character.

For each template it prints `proven`; `bad`, where `chat check` fails; `rejected`, where the template takes none of the
conversations; or `WRONG`, with an example: a mask that nothing warns of. The exit code is 1 if there is one.
"""

import bisect
import collections
import datetime
import itertools
import os.path
import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import report
from tests.chats import NAMED, make_tokenizer
from tokenmill.tokenizer.chat.check import check_chat
from tokenmill.tokenizer.chat.conversations import ConversationError, read_conversation
from tokenmill.tokenizer.chat.spans import Marker, TrainingRule
from tokenmill.tokenizer.chat.templates import ChatTemplate, TemplateError

DAY = datetime.date(2026, 1, 31)
SPECIAL = re.compile(
    r"<[|｜][^<>\s'\"{}]+?[|｜]>|</?s>|</?(?:eos|bos|pad)>|<(?:start|end)_of_\w+>|<\|(?:\w|\")+\|?>|<\w+\|>|\[/?INST\]|\[gMASK\]|<sop>"
    r"|\[(?:/?AVAILABLE_TOOLS|/?TOOL_RESULTS|TOOL_CALLS|/?SYSTEM_PROMPT|EOS|BOS)\]|<end_of_utterance>|<eod>"
)
_TEXTS = (
    *("Blue", "\n\nleads", "trails \n", " both ", "a\tb", "c" * 40, "Ünïcödé 世界", "e\u0301", "🙂 so", "0", "\r\nr"),
    *("assistant\n", "user\n\nhi", "ASSISTANT: no", "USER: yes", "### Response:\nr", "### Instruction:\ni", "Human: h"),
    *("system", "assistant", "<b>bold</b> &amp;", '{"a": "b"}', "{{ x }}", "%s {0}", "tool", "end of turn", "It's."),
    *("<think>\nwhy\n</think>\n\nso", "<tool_call>\n{}\n</tool_call>", "a</think>b", "# one\n\ntwo\n"),
)
_TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks.",
        "parameters": {
            "type": "object",
            "properties": {"at": {"type": "string", "description": "Where."}},
            "required": ["at"],
        },
    },
}
_MARKS = range(0xF0000, 0xFFFFE)
_HEADER = re.compile(
    r"(?i)^<\|turn>$|^<(s|bos)>$|header|of_role|inst\]"
    r"|^(?!.*(end|post)).*(start|begin|user|assistant|human|system|observation|response|bot)"
)
"""Names of special tokens that begin or frame a header."""
_THOUGHT = re.compile(r"<think|\[THINK|<\|channel|<\|START_THINKING")


class _Day(datetime.datetime):
    """Stands for the module's `datetime`."""

    @classmethod
    def now(cls, tz: Any = None) -> "_Day":
        return cls(DAY.year, DAY.month, DAY.day, 12)


class Conversation(NamedTuple):
    """Messages, and the same with letters that tell where they come from."""

    plain: list[dict[str, Any]]
    marked: list[dict[str, Any]]
    owners: list[int]
    """The message of each mark."""
    letters: list[str]
    """What each mark stands for."""
    tools: list[dict[str, Any]] | None
    """Those that the template is given."""


def main(arguments: Sequence[str]) -> int:
    """Tries the templates of folders; returns the exit code."""
    parser = report.parser("templates", __doc__)
    parser.add_argument("folders", nargs="+", type=Path, help="folders with *.jinja, or such files")
    parser.add_argument("--n", type=int, default=200, help="conversations for each template (default 200)")
    parser.add_argument("--quiet", action="store_true", help="print only what is wrong, and the sums")
    options = parser.parse_args(arguments)
    outcomes: collections.Counter[str] = collections.Counter()
    for path in (p for each in options.folders for p in (sorted(each.glob("*.jinja")) if each.is_dir() else [each])):
        outcome, detail = try_template(path.read_text(encoding="utf-8"), options.n)
        outcomes[outcome] += 1
        if not options.quiet or outcome == "WRONG":
            print(f"{outcome:9} {path.stem}  {detail}", flush=True)
    print(", ".join(f"{n} {outcome}" for outcome, n in sorted(outcomes.items())))
    return 1 if outcomes["WRONG"] or not outcomes else 0


def try_template(source: str, n: int) -> tuple[str, str]:
    """Returns the outcome for a template, and what to print beside it."""
    special = sorted({*NAMED.values(), *SPECIAL.findall(source)})
    tokenizer = make_tokenizer(special)
    try:
        template = ChatTemplate(source, NAMED, DAY)
        found = check_chat(tokenizer, template)
        marker = Marker(template, special, TrainingRule())
    except TemplateError as error:
        return "bad", str(error)[:120]
    if not found.is_good:
        return "bad", "; ".join(f"{each.name}: {each.detail}" for each in found.findings if each.level == "bad")[:160]
    oracle = Oracle(source, special)
    counts: collections.Counter[str] = collections.Counter()
    for seed in range(n):
        conversation = make(random.Random(seed))
        try:
            read = read_conversation({"messages": conversation.plain, "tools": conversation.tools})
            made = marker.mark(read)
        except ConversationError as error:
            counts[error.reason] += 1
            continue
        faults = [*oracle.faults(conversation, made.text, made.spans, counts)]
        if faults:
            shown = made.text
            for start, stop in reversed(made.spans):
                shown = f"{shown[:start]}⟦{shown[start:stop]}⟧{shown[stop:]}"
            return "WRONG", f"conversation {seed}: {faults[0]}\n          {shown!r}"
    said = ", ".join(f"{number} {reason}" for reason, number in sorted(counts.items()))
    return ("proven" if counts["turns"] >= n // 10 else "rejected"), said


def make(rng: random.Random) -> Conversation:
    """Makes a conversation: mostly plain turns, some with calls, reasoning, a system message."""
    owners: list[int] = []
    letters: list[str] = []
    messages: list[dict[str, Any]] = []
    is_odd = rng.random() < 0.3

    def text() -> str:
        found = rng.choice(_TEXTS) + ("".join(rng.choices(_TEXTS, k=2)) if rng.random() < 0.3 else "")
        is_bare = re.sub(r"</?\w+>|[\W_]", "", found) and rng.random() < 0.5
        return found if is_bare else "".join(rng.choices("abcdefgh", k=3)) + found

    if rng.random() < 0.3:
        messages.append({"role": "system", "content": text()})
    for _ in range(rng.randint(1, 3)):
        messages.append({"role": "user", "content": text()})
        if is_odd and rng.random() < 0.6:
            call = {"name": "look", "arguments": {"at": "".join(rng.choices("klmnop", k=5)) + rng.choice(_TEXTS[:4])}}
            calls = [{"type": "function", "id": "abcdefghi", "function": call}]
            messages.append({"role": "assistant", "content": rng.choice(["", text()]), "tool_calls": calls})
            messages.append({"role": "tool", "name": "look", "tool_call_id": "abcdefghi", "content": text()})
        thought = {"reasoning_content": text()} if is_odd and rng.random() < 0.5 else {}
        messages.append({"role": "assistant", "content": text(), **thought})

    def marked(value: Any, message: int) -> Any:
        if isinstance(value, str):
            # What templates look for in a text, or escape, stays as it is.
            pieces = re.split(r"(</?\w+>|[^\W_])", value)
            return "".join(mark(each, message) if len(each) == 1 and each.isalnum() else each for each in pieces)
        if isinstance(value, dict):
            return {name: marked(each, message) for name, each in value.items()}
        return value

    def mark(letter: str, message: int) -> str:
        owners.append(message)
        letters.append(letter)
        return chr(_MARKS[len(owners) - 1])

    changed = []
    for i, message in enumerate(messages):
        fields = {name: marked(message[name], i) for name in ("content", "reasoning_content") if name in message}
        if calls := message.get("tool_calls"):
            made = {**calls[0]["function"], "arguments": marked(calls[0]["function"]["arguments"], i)}
            fields["tool_calls"] = [{**calls[0], "function": made}]
        changed.append({**message, **fields})
    has_tools = is_odd and rng.random() < 0.5
    return Conversation(messages, changed, owners, letters, [_TOOL] if has_tools else None)


class Oracle:
    """Says what is wrong with a mask."""

    def __init__(self, source: str, special: Sequence[str]) -> None:
        """Takes a template, and the special tokens of a tokenizer for it."""
        from transformers.utils import chat_template_utils

        setattr(chat_template_utils, "datetime", _Day)  # noqa: B010 - it is not exported
        self._render_all = chat_template_utils.render_jinja_template
        self._source = source
        self._special = re.compile("|".join(map(re.escape, sorted(special, key=lambda each: -len(each)))))
        self._has_generation = re.search(r"\{%-?\s*generation\s*-?%\}", source) is not None
        self._header = ""
        self._stops = self._find_stops()

    def _render(self, messages: Sequence[Mapping[str, Any]], **more: Any) -> str | None:
        try:
            return self._rendered(messages, **more)[0]
        except Exception:  # whatever a template raises
            return None

    def _rendered(self, messages: Sequence[Mapping[str, Any]], **more: Any) -> tuple[str, Any]:
        chats: Any = [list(messages)]
        (text,), places = self._render_all(chats, chat_template=self._source, **{**NAMED, **more})
        return text, places

    def _find_stops(self) -> set[str]:
        """Returns the first special tokens behind plain turns; notes what is in front of one."""
        turns = [{"role": ("user", "assistant")[i % 2], "content": chr(_MARKS[i])} for i in range(4)]
        found = set()
        for messages in (turns, turns[:2]):
            pieces = re.split("|".join(chr(_MARKS[i]) for i in range(4)), self._render(messages) or "")
            self._header = _squeezed(pieces[1] if len(pieces) > 1 else "")
            found |= {each.group() for behind in pieces[2::2] for each in self._closing(behind)[:1]}
        return found

    def _closing(self, text: str) -> list[re.Match[str]]:
        """Returns the special tokens up to the first that by its name begins a header."""
        tokens = self._special.finditer(text)
        return [*itertools.takewhile(lambda each: not _HEADER.search(each.group()), tokens)]

    def faults(
        self, conversation: Conversation, text: str, spans: Sequence[tuple[int, int]], counts: collections.Counter[str]
    ) -> Iterator[str]:
        """Yields what is wrong with the mask of a conversation; counts turns that were proven right."""
        trained = bytearray(len(text))
        for start, stop in spans:
            trained[start:stop] = b"\1" * (stop - start)
        if self._has_generation:
            more = {"return_assistant_tokens_mask": True, "tools": conversation.tools}
            _, (places,) = self._rendered(conversation.plain, **more)
            expected = bytearray(len(text))
            for start, stop in places:
                expected[start:stop] = b"\1" * (stop - start)
            counts["turns"] += len(places)
            if expected != trained:
                at = next(i for i, (a, b) in enumerate(zip(expected, trained, strict=True)) if a != b)
                yield f"generation blocks differ at {at}: {text[at : at + 40]!r}"
            return
        marked = self._render(conversation.marked, tools=conversation.tools)
        if marked is None or marked.translate(dict(zip(_MARKS, conversation.letters, strict=False))) != text:
            counts["looked into"] += 1
            return
        yield from self._turns(conversation, marked, trained, counts)

    def _turns(
        self, conversation: Conversation, text: str, trained: bytearray, counts: collections.Counter[str]
    ) -> Iterator[str]:
        places: dict[int, list[int]] = {}
        for at, letter in enumerate(text):
            if ord(letter) in _MARKS:
                places.setdefault(conversation.owners[ord(letter) - _MARKS[0]], []).append(at)
        for i, message in enumerate(conversation.marked):
            if message["role"] != "assistant":
                if any(trained[at] for at in places.get(i, ())):
                    yield f"message {i}, of the {message['role']}, is trained"
                continue
            others = sorted(at for k in places if k != i for at in places[k])
            parts = itertools.groupby(places.get(i, ()), key=lambda at: bisect.bisect(others, at))
            for n, (k, group) in enumerate(parts):
                mine = [*group]
                if 0 in trained[mine[0] : mine[-1]]:
                    hole = trained.find(0, mine[0])
                    yield f"message {i} is not trained at {text[hole : hole + 40]!r}"
                before = others[k - 1] if k else -1
                if n == 0 and (before in places.get(i - 1, ()) or i == 0):
                    yield from self._start(conversation, i, text, trained, before, mine[0])
                behind = others[k] if k < len(others) else len(text)
                if i + 1 in places or i + 1 == len(conversation.marked):
                    owner = conversation.owners[ord(text[behind]) - _MARKS[0]] if behind < len(text) else 0
                    is_asked = conversation.marked[owner]["role"] != "assistant"
                    yield from self._end(i, text, trained, mine[-1] + 1, behind, is_asked=is_asked)
                counts["turns"] += 1

    def _start(
        self, conversation: Conversation, i: int, text: str, trained: bytearray, before: int, first: int
    ) -> Iterator[str]:
        between = text[before + 1 : first]
        more = {"tools": conversation.tools}
        given = self._render(conversation.marked[:i], add_generation_prompt=True, **more) or ""
        last = max((k for k, owner in enumerate(conversation.owners) if owner == i - 1), default=0)
        prompt = given.rpartition(chr(_MARKS[last]))[2] if i else given
        starts = trained.find(1, before + 1, first + 1) - before - 1
        if starts < 0 or any(ord(each) in _MARKS for each in prompt + between):
            return
        if prompt and between.startswith(prompt) and given != self._render(conversation.marked[:i], **more):
            if starts != len(prompt) and between[min(starts, len(prompt)) : max(starts, len(prompt))].strip():
                yield f"message {i} is trained from {between[starts:]!r}; the prompt is {prompt!r}"
            return
        plain = _squeezed(conversation.marked[i - 1]["content"].rpartition(chr(_MARKS[last]))[2]) + self._header
        # Else at least what both have in common is not trained, but for reasoning and a tag that is cut, and at most
        # what both, or plain turns, have in common.
        header, start = _squeezed(between), len(_squeezed(between[:starts]))
        least, most = (_common(header, each) for each in (_squeezed(_THOUGHT.split(prompt)[0]), _squeezed(prompt)))
        if start < len(re.sub(r"[<\[][^<>\[\]]*$", "", least)):
            yield f"the header of message {i} is trained: {between[starts:]!r}; the prompt is {prompt!r}"
        elif start > max(len(most), len(_common(header, plain))) and conversation.marked[i - 1]["role"] == "user":
            yield f"what begins message {i} is not trained: {between[:starts]!r}; the prompt is {prompt!r}"

    def _end(self, i: int, text: str, trained: bytearray, last: int, behind: int, *, is_asked: bool) -> Iterator[str]:
        tail = text[last:behind]
        ends = trained.find(0, last, behind)
        ends = (ends if ends >= 0 else behind) - last
        closing = self._closing(tail)
        is_whole = ends == len(tail) and self._header not in _squeezed(tail)
        if is_whole and not is_asked and self._stops.isdisjoint(each.group() for each in closing):
            return  # unasked the model goes on: what frames its next text is its own, too
        first = next((k for k, each in enumerate(closing) if each.group() in self._stops), len(closing) - 1)
        if closing and ends < closing[first].end():
            yield f"the stop {closing[first].group()!r} of message {i} is not trained, only {tail[:ends]!r}"
        limit = closing[-1].end() if closing else 0
        extra = tail[limit:ends]
        if self._special.search(extra) or (closing and extra.strip()):
            yield f"behind the end of message {i} {extra!r} is trained"
        if is_asked and 1 in trained[last + ends : behind]:
            again = trained.find(1, last + ends, behind)
            yield f"what follows the end of message {i} is trained: {text[again : again + 40]!r}"


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _common(one: str, other: str) -> str:
    return os.path.commonprefix([one, other])  # noqa: RUF071 - characters are meant


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
