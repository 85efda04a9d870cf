# SPDX-License-Identifier: Apache-2.0
"""Finds the conversation in a record, whichever of the usual shapes it has."""

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

Role = Literal["system", "developer", "user", "assistant", "tool", "function", "ipython", "observation"]
ROLES: tuple[str, ...] = get_args(Role)
"""The roles that a message may have."""
_OF_SHAREGPT = {
    **{"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant"},
    **{"bing": "assistant", "bard": "assistant", "model": "assistant", "system": "system", "tool": "tool"},
    **{"function_call": "assistant", "observation": "tool", "function_response": "tool", "function": "tool"},
}
REASONS = {
    "not_a_conversation": "the record has no messages in a shape that is known",
    "unknown_role": "a message has a role that is not known",
    "empty_turn": "a message has no content, no tool call and no reasoning",
    "two_systems": "a conversation has more than one system message",
    "refused_by_template": "the chat template does not take the conversation",
    "template_failed": "the chat template fails on the conversation",
    "template_limit": "the chat template takes too much time or memory, or makes too long a text",
    "special_token_in_content": "a message contains the text of a special token, which would become that token",
    "turn_not_shown": "the chat template shows nothing of a turn that is to be trained",
    "no_stop_token": "a turn to train on does not end with a stop token",
    "nothing_trained": "no token of the conversation is trained",
}
"""Why a record is no conversation to train on."""
_ARGUMENTS = ("tools", "documents")
_SIDES = ("chosen", "rejected")
_JSON_OBJECTS = re.compile(r"\s*\[\s*\{")
RESERVED = frozenset({"messages", "add_generation_prompt", "continue_final_message"})
"""Arguments of a template that neither a record nor a config may give: they are for inference."""


class ConversationError(ValueError):
    """A record is no conversation to train on."""

    def __init__(self, reason: str, detail: str) -> None:
        """`reason` is one of `REASONS`; `detail` says what was found."""
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Conversation(NamedTuple):
    """What a template renders, and what the record says of training."""

    messages: list[dict[str, Any]]
    """As `transformers` takes them: `role`, `content`, ...; nulls are left out, since templates ask what is there."""
    arguments: dict[str, Any]
    """`tools`, `documents`, and arguments of the template."""
    trained: dict[int, bool]
    """Messages that are marked to be trained on, or not to be; `weight` 0 and 1 mean the same."""
    untrained_parts: set[tuple[int, int]]
    """Parts of a content, as (message, part), that are not to be trained on."""
    n_shared: int = 0
    """Messages that the chosen and the rejected side of a pair have in common, from the first on."""


def read_conversation(record: Mapping[str, Any], field: str = "messages") -> Conversation:
    """Finds the conversation of a record.

    It is in `field`, or in `conversations`: a list of `{"role", "content"}` or ShareGPT's `{"from", "value"}`, or JSON
    of such a list. Else it is made of `prompt` and `completion`, each a text or messages, or of Alpaca's `instruction`,
    `input`, `output` and `history`. If `field` holds an answer alone, as `chosen` and `rejected` of a pair may,
    `prompt` is put in front of it, else `conversations` or `messages`. If both sides are whole conversations, what they
    have in common is their prompt. `system` beside it is its system message; `tools`, `documents` and
    `chat_template_kwargs` go to the template.

    Args:
      record: as JSON has it.
      field: the field of the messages; `meta.messages` is a nested one.

    Raises:
      ConversationError: if there is none, or it is not one to train on.
    """
    lists = {field, "messages", "conversations", *_SIDES}  # the text of an answer may be JSON of something else
    record = {name: _parsed(value) if name in lists else value for name, value in record.items() if value is not None}
    found = _find(record, field)
    n_shared = _shared(record, field)
    if n_shared == len(found):
        raise ConversationError("nothing_trained", "chosen and rejected are the same, or one begins the other")
    found = [*_as_prompt(found[:n_shared]), *found[n_shared:]]
    if isinstance(system := record.get("system"), str | list) and _has_text(system):
        found, n_shared = [{"role": "system", "content": system}, *found], n_shared + bool(n_shared)
    messages: list[dict[str, Any]] = []
    trained: dict[int, bool] = {}
    untrained_parts: set[tuple[int, int]] = set()
    for i, item in enumerate(found):
        message, mark, parts = _read_message(i, item)
        messages.append(message)
        if mark is not None:
            trained[i] = mark
        untrained_parts.update((i, part) for part in parts)
    if sum(message["role"] == "system" for message in messages) > 1:
        raise ConversationError("two_systems", "two system messages")
    arguments = {name: _read_objects(name, record[name]) for name in _ARGUMENTS if record.get(name)}
    own = record.get("chat_template_kwargs")
    if own is not None and not isinstance(own, dict):
        raise ConversationError("not_a_conversation", f"chat_template_kwargs is {_kind(own)}, not an object")
    if taken := RESERVED & {*(own or ())}:
        raise ConversationError(
            "not_a_conversation", f"chat_template_kwargs has {min(taken)!r}, which is not for a record"
        )
    return Conversation(messages, {**arguments, **_without_nulls(own or {})}, trained, untrained_parts, n_shared)


def _read_objects(name: str, value: Any) -> list[Any]:
    """Returns a list of objects, which data sets also have as JSON in a text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise ConversationError("not_a_conversation", f"{name} is a text that is not JSON") from None
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise ConversationError("not_a_conversation", f"{name} is not a list of objects")
    return [_without_nulls(each) for each in value]


def _parsed(value: Any) -> Any:
    """Returns the messages that a text is JSON of, as tables have them; any other value as it is."""
    if not isinstance(value, str) or not _JSON_OBJECTS.match(value):
        return value
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value
    has = {"role", "from"}, {"content", "value", "tool_calls"}
    return (
        found if all(isinstance(each, dict) and all(names & each.keys() for names in has) for each in found) else value
    )


def _find(record: Mapping[str, Any], field: str) -> Sequence[Any]:
    value: Any = record
    for name in [field] if field in record else field.split("."):
        value = value.get(name) if isinstance(value, dict | Mapping) else None
    given = value = _parsed(value)
    if field == "prompt" and (isinstance(value, str) or record.get("completion") is not None):
        value = None  # a part of a conversation, not the answer to itself
    if _is_answer(value) and (prompt := _prompt_of(record, field)):
        # The chosen or the rejected answer of a pair, whose prompt is beside it.
        value = [*_as_prompt(prompt), *_as_messages(value, "assistant")]
    if value is None:
        value = record.get("conversations")
    if value is None and {"prompt", "completion"} <= {*record}:
        value = [*_as_prompt(record["prompt"]), *_as_messages(record["completion"], "assistant")]
    if value is None and {"instruction", "output"} <= {*record}:
        value = [*_history(record), *_pair("\n\n".join(_texts(record, "instruction", "input")), record["output"])]
    if value is None and given is None:
        has = ", ".join(record)[:200] or "nothing but nulls"
        raise ConversationError("not_a_conversation", f"no field {field!r}; the record has {has}")
    value = given if value is None else value
    if not isinstance(value, list) or not value:
        found = "an empty array" if value == [] else _kind(value)
        raise ConversationError("not_a_conversation", f"field {field!r} is {found}, not a list of messages")
    return value


def _texts(record: Mapping[str, Any], *names: str) -> Iterator[str]:
    """Yields the texts of fields that are there."""
    for name in names:
        value = record.get(name)
        if value is not None and not isinstance(value, str):
            raise ConversationError("not_a_conversation", f"field {name!r} is {_kind(value)}, not a text")
        if value:
            yield value


def _pair(question: Any, answer: Any) -> list[Any]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def _history(record: Mapping[str, Any]) -> list[Any]:
    """Returns the earlier turns of a record of Alpaca's shape, pairs of a question and an answer."""
    pairs = record.get("history") or ()
    if not isinstance(pairs, list | tuple) or not all(isinstance(each, list) and len(each) == 2 for each in pairs):
        raise ConversationError("not_a_conversation", "field 'history' is not a list of pairs of texts")
    return [message for question, answer in pairs for message in _pair(question, answer)]


def _prompt_of(record: Mapping[str, Any], field: str) -> Any:
    """Returns what an answer alone is the answer to."""
    names = ("prompt", "conversations", "messages") if field in _SIDES else ("prompt",)
    return next((record[name] for name in names if record.get(name)), None)


def _shared(record: Mapping[str, Any], field: str) -> int:
    """Returns how many messages both sides of a preference pair begin with; 0 if the record is no pair."""
    chosen, rejected = record.get("chosen"), record.get("rejected")
    if field not in _SIDES or chosen is None or rejected is None:
        return 0
    if _is_answer(record[field]) and (prompt := _prompt_of(record, field)):
        return len(_as_prompt(prompt))
    if not isinstance(chosen, list) or not isinstance(rejected, list):
        return 0
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(chosen, rejected, strict=False))
    return len(list(same))


def _is_answer(value: Any) -> bool:
    """Returns whether a field holds an answer: a text, a message of the assistant, or only such messages."""
    if isinstance(value, str):
        return True
    value = [value] if isinstance(value, dict) else value
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(each, dict) and _role_of(each) == "assistant" for each in value)
    )


def _role_of(message: Mapping[str, Any]) -> Any:
    return message.get("role") or _OF_SHAREGPT.get(str(message.get("from", "")).lower())


def _as_prompt(value: Any) -> list[Any]:
    """Returns the messages of a prompt, whose answers are not trained unless they say so."""
    found = _as_messages(value, "user")
    return [
        {**each, "train": False} if isinstance(each, dict) and _is_answer(each) and not _marks(each) else each
        for each in found
    ]


def _marks(value: Mapping[str, Any]) -> list[str]:
    """Returns the names of the marks of a message or a part; Arrow writes null where there is none."""
    return [name for name in ("train", "weight") if value.get(name) is not None]


def _as_messages(value: Any, role: str) -> list[Any]:
    if isinstance(value, list):
        return value
    return [value] if isinstance(value, dict) else [{"role": role, "content": value}]


def _read_message(i: int, item: Any) -> tuple[dict[str, Any], bool | None, list[int]]:
    if not isinstance(item, dict):
        raise ConversationError("not_a_conversation", f"message {i} is {_kind(item)}, not an object")
    message = {name: _without_nulls(value) for name, value in item.items() if value is not None}
    role = message.get("role")
    if role is None and "from" in message:
        role = _OF_SHAREGPT.get(str(message.pop("from")).lower())
    if "content" not in message and "value" in message:
        message["content"] = message.pop("value")
    if role not in ROLES:
        given = item.get("role", item.get("from"))
        raise ConversationError(
            "unknown_role", f"message {i} has the role {given!r}; known are {', '.join(ROLES)}"[:500]
        )
    message["role"] = role
    mark = _read_marks(i, message)
    content = message.setdefault("content", "")
    parts = []
    if isinstance(content, list):
        for k, part in enumerate(content):
            if isinstance(part, dict) and _read_marks(i, part) is False:
                parts.append(k)
    elif not isinstance(content, str):
        raise ConversationError("not_a_conversation", f"the content of message {i} is {_kind(content)}")
    if not (_has_text(content) or message.get("tool_calls") or _has_text(message.get("reasoning_content"))
            or _has_text(message.get("thinking")) or _has_text(message.get("reasoning"))):  # fmt: skip
        raise ConversationError("empty_turn", f"message {i}, of role {role!r}, has no content")
    return message, mark, parts


def _read_marks(i: int, value: dict[str, Any]) -> bool | None:
    """Takes the marks out of a message, or of a part of one, and returns what they say; None if there is none."""
    marks = {name: value.pop(name) for name in _marks(value)}
    for name, mark in marks.items():
        if mark not in (0, 1):  # True and False are 1 and 0
            allowed = "it may be 0, 1, true, false"
            raise ConversationError("not_a_conversation", f"{name} of message {i} is {mark!r}; {allowed}")
    if len({*map(bool, marks.values())}) > 1:
        raise ConversationError("not_a_conversation", f"train and weight of message {i} contradict each other")
    return bool(next(iter(marks.values()))) if marks else None


def _has_text(content: Any) -> bool:
    if isinstance(content, list):
        return any(not isinstance(part, dict) or "text" not in part or _has_text(part["text"]) for part in content)
    return isinstance(content, str) and bool(content.strip())


def _without_nulls(value: Any) -> Any:
    """Returns a value without the nulls that Arrow puts where objects of a list have different fields."""
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
