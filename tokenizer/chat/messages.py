# SPDX-License-Identifier: Apache-2.0
"""One message of a record: its role, what is in it, and what it says of training."""

import json
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

Role = Literal["system", "developer", "user", "assistant", "tool", "function", "ipython", "observation"]
ROLES: tuple[str, ...] = get_args(Role)
"""The roles that a message may have."""
_ALIASES = {
    **{"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bing": "assistant", "bard": "assistant"},
    **{"model": "assistant", "function_call": "assistant", "function_response": "tool"},
}
_OF_SHAREGPT = {**_ALIASES, "observation": "tool", "function": "tool"}
REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names of the reasoning of a message."""
_DETAILS = ("train_detail", "training_detail")
_WEIGHTS = ("train", "training", "trainable", "weight", "loss", "loss_mask", "loss_weight", "step_loss_mask")
_OF_ANSWERS = ("trainable", "loss", "step_loss_mask", "masked")
"""Marks that take any message out, but train only what the assistant says: as verl, ms-swift and slime have them."""
MARKS = (*_WEIGHTS, "masked")
"""Fields that say whether something is trained on: as OpenAI, axolotl, LLaMA-Factory, ms-swift and verl write them."""
SOUNDS_LIKE_A_MARK = re.compile(r"loss|mask|weight|(?<!s)train", re.IGNORECASE)
"""Finds names of fields that seem to say what is trained; `constraint` does not."""
_HEAVIEST = 1e9

REASONS = {
    "not_a_conversation": "the record has no messages in a shape that is known",
    "unknown_role": "a message has a role that is not known",
    "empty_turn": "a message has no content, no tool call and no reasoning",
    "two_systems": "a conversation has more than one system message",
    "refused_by_template": "the chat template does not take the conversation",
    "template_failed": "the chat template fails on the conversation",
    "template_limit": "the chat template takes too much time or memory, or makes too long a text",
    "special_token_in_content": "a message contains the text of a special token, which would become that token",
    "turn_not_shown": "the chat template shows nothing of a turn to train on, or of a field in `chat.must_show`",
    "no_stop_token": "a turn to train on does not end with a stop token",
    "nothing_trained": "no token of the conversation is trained",
    "bad_mark": "a field that seems to say what is trained is not known, has no usable value, or contradicts another",
    "marked_untrained": "marks of the record say that nothing of it is trained, as `label: false` does",
}
"""Why a record is no conversation to train on."""


class ConversationError(ValueError):
    """A record is no conversation to train on."""

    def __init__(self, reason: str, detail: str) -> None:
        """`reason` is one of `REASONS`; `detail` says what was found."""
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Reading(NamedTuple):
    """How records are to be read."""

    fields: Mapping[str, str | None] = MappingProxyType({})
    """Fields of records and messages that mean other ones, or nothing; `meta.turns` is a nested one."""
    roles: Mapping[str, str] = MappingProxyType({})
    """Roles that mean other ones."""
    known: frozenset[str] = frozenset()
    """Fields of records that are used elsewhere, such as ids."""
    parse_arguments: bool = False
    """Whether arguments of tool calls that are JSON in a text become objects."""
    has_weights: bool = False
    """Whether a mark may be a weight other than 0 and 1."""


class Message(NamedTuple):
    """A message as a template takes it, and what its record says of it."""

    message: dict[str, Any]
    """`role`, `content`, ...; without nulls, since templates ask what is there, and without marks."""
    weight: float | None
    """0: not to be trained on; None: nothing is said."""
    untrained_parts: list[int]
    """Parts of the content that are not to be trained on."""
    untrained_text: list[tuple[int, int]]
    """Characters of the content that are not to be trained on."""
    n_text_arguments: int
    """Tool calls whose arguments were JSON in a text."""


def renamed(value: Mapping[str, Any], fields: Mapping[str, str | None]) -> dict[str, Any]:
    """Returns an object without nulls, and with fields under the names that they mean."""
    if not fields:
        return {name: each for name, each in value.items() if each is not None}
    meant = {ours: each for theirs, ours in fields.items() if ours and (each := value_at(value, theirs)) is not None}
    return meant | {k: each for k, each in value.items() if k not in fields and k not in meant and each is not None}


def value_at(value: Any, field: str) -> Any:
    """Returns a field of an object, or that to which a path such as `meta.turns` leads; None if there is none."""
    for name in [field] if isinstance(value, Mapping) and field in value else field.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def role_of(message: Mapping[str, Any], roles: Mapping[str, str]) -> str | None:
    """Returns the role of a message; None if it is not known."""
    given = message.get("role")
    aliases = _ALIASES if given is not None else _OF_SHAREGPT
    name = str(message.get("from") if given is None else given)
    role = roles.get(name) or roles.get(name.lower()) or aliases.get(name.lower(), name.lower())
    return role if role in ROLES else None


def read_message(i: int, item: Any, reading: Reading) -> Message:
    """Reads message `i`, as JSON has it.

    Raises:
      ConversationError: if it is none.
    """
    if not isinstance(item, dict):
        raise ConversationError("not_a_conversation", f"message {i} is {kind(item)}, not an object")
    message = renamed(item, reading.fields)
    role = role_of(message, reading.roles)
    if role is None:
        given = message.get("role", message.get("from"))
        allowed = f"known are {', '.join(ROLES)}; input.chat_roles says what others mean"
        raise ConversationError("unknown_role", f"message {i} has the role {given!r:.200}; {allowed}")
    sender = message.pop("from", None) if message.get("role") is None else None
    if "content" not in message and "value" in message:
        message["content"] = message.pop("value")
    is_call = isinstance(sender, str) and sender.lower() == "function_call" and not reading.roles.get(sender)
    message["role"] = role
    _read_old_call(i, message, is_call=is_call)
    n_text_arguments = _read_calls(i, message, reading)
    content = message.get("content", "")
    if not isinstance(content, str | list):
        raise ConversationError("not_a_conversation", f"the content of message {i} is {kind(content)}")
    if isinstance(content, list):  # from which marks are taken
        content = [dict(part) if isinstance(part, dict) else part for part in content]
    message["content"] = content
    untrained_text, weight = _read_details(i, message), take_weight(f"of message {i}", message, reading, role)
    refuse_unknown_marks(f"of message {i}", message)
    parts = [
        (take_weight(f"of part {k} of message {i}", part, reading), k)
        for k, part in enumerate(content)
        if isinstance(part, dict)
    ]
    if any(each not in (None, 0, 1) for each, _ in parts):
        raise ConversationError("bad_mark", f"a part of message {i} has a weight other than 0 and 1; messages may")
    if untrained_text is not None and weight is None:
        weight = float(untrained_text != [(0, len(content))])
    is_said = has_text(content) or message.get("tool_calls") or any(has_text(message.get(n)) for n in REASONING)
    if not is_said and role not in ("system", "developer"):  # an empty one keeps a template from writing its own
        raise ConversationError("empty_turn", f"message {i}, of role {role!r}, has no content")
    return Message(message, weight, [k for each, k in parts if each == 0], untrained_text or [], n_text_arguments)


def _read_old_call(i: int, message: dict[str, Any], *, is_call: bool) -> None:
    """Makes a tool call of `function_call`, OpenAI's field of old, or of the text of such a message of ShareGPT."""
    calls = message.pop("function_call", None)
    if calls is None and is_call:
        calls = from_json(message.pop("content", None))
    if calls is None and not is_call:
        return
    calls = calls if isinstance(calls, list) else [calls]
    if not all(isinstance(call, dict) and {"name", "arguments"} <= call.keys() for call in calls):
        detail = f"the function_call of message {i} is not an object, or JSON of one, with name and arguments"
        raise ConversationError("not_a_conversation", detail)
    made = [{"type": "function", "function": {name: call[name] for name in ("name", "arguments")}} for call in calls]
    message["tool_calls"] = [*message.get("tool_calls", ()), *made]


def _read_calls(i: int, message: dict[str, Any], reading: Reading) -> int:
    """Returns how many tool calls have arguments as JSON in a text, which become objects if that is asked for."""
    if not message.get("tool_calls"):
        return 0
    calls = read_objects(f"tool_calls of message {i}", message["tool_calls"])
    n = 0
    for k, call in enumerate(calls):
        inner = call.get("function")
        function = inner if isinstance(inner, dict) else call
        if not isinstance(arguments := function.get("arguments"), str):
            continue
        n += 1
        if reading.parse_arguments:
            parsed = from_json(arguments or "{}")
            if not isinstance(parsed, dict):
                detail = f"the arguments of call {k} of message {i} are a text that is not an object in JSON"
                raise ConversationError("not_a_conversation", detail)
            function = {**function, "arguments": parsed}
            calls[k] = {**call, "function": function} if isinstance(inner, dict) else function
    message["tool_calls"] = calls
    return n


def read_objects(name: str, value: Any) -> list[Any]:
    """Returns a list of objects, which data sets also have as JSON in a text."""
    found = from_json(value)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ConversationError("not_a_conversation", f"{name} is {kind(value)}, not a list of objects, or JSON of one")
    return list(found)


def from_json(value: Any) -> Any:
    """Returns what a text of JSON says, None if it is not JSON, and any other value as it is."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return None


def take_weight(where: str, value: dict[str, Any], reading: Reading, role: str = "assistant") -> float | None:
    """Takes the marks out of an object and returns what they say: 0 is "not trained"; None if there is none."""
    weights = {name: _weight(where, name, value.pop(name), reading) for name in MARKS if value.get(name) is not None}
    said = {
        name: weight for name, weight in weights.items() if not weight or role == "assistant" or name not in _OF_ANSWERS
    }
    if len({*said.values()}) > 1:
        raise ConversationError("bad_mark", f"{' and '.join(said)} {where} contradict each other")
    return next(iter(said.values()), None)


def _weight(where: str, name: str, mark: Any, reading: Reading) -> float:
    has_weights = reading.has_weights and name != "masked"
    if not isinstance(mark, bool | int | float) or not (mark in (0, 1) or (has_weights and 0 <= mark <= _HEAVIEST)):
        allowed = "it may be 0, 1, true, false" + (" or a weight, with chat.weights" if name != "masked" else "")
        raise ConversationError("bad_mark", f"{name} {where} is {mark!r:.200}; {allowed}")
    return float(not mark if name == "masked" else mark)


def refuse_unknown_marks(where: str, names: Iterable[str]) -> None:
    """Raises ConversationError if a field sounds like a mark: what it says would be ignored."""
    if unknown := next((name for name in names if SOUNDS_LIKE_A_MARK.search(name)), None):
        known = ", ".join((*MARKS, *_DETAILS))
        to_do = f"say in input.chat_fields which of them it means, or {{{unknown:.100}: null}} if it is to be ignored"
        detail = f"{unknown!r:.100} {where} sounds like a mark of what is trained; known are {known}; {to_do}"
        raise ConversationError("bad_mark", detail)


def _read_details(i: int, message: dict[str, Any]) -> list[tuple[int, int]] | None:
    """Takes axolotl's `train_detail` out of a message; returns the characters outside of what it trains, in order."""
    given = next((message.pop(name) for name in _DETAILS if message.get(name) is not None), None)
    if given is None:
        return None
    content = message["content"]
    try:
        n = len(content) if isinstance(content, str) else 0
        spans = sorted((each["begin_offset"], min(each["end_offset"] + 1, n)) for each in given if each["train"])
        is_usable = all(0 <= start < stop for start, stop in spans)
    except (TypeError, KeyError):
        is_usable, spans = False, []
    if not is_usable:
        allowed = "a list of begin_offset, end_offset and train, within the content, which is a text"
        raise ConversationError("bad_mark", f"train_detail of message {i} is {given!r:.200}; it may be {allowed}")
    left, at = [], 0
    for start, stop in [*spans, (len(content), len(content))]:
        if at < start:
            left.append((at, start))
        at = max(at, stop)
    return left


def has_text(content: Any) -> bool:
    """Returns whether a content says anything."""
    if isinstance(content, list):
        return any(not isinstance(part, dict) or "text" not in part or has_text(part["text"]) for part in content)
    return isinstance(content, str) and bool(content.strip())


def kind(value: Any) -> str:
    """Returns what a value of JSON is, for a message."""
    names = {dict: "an object", list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
