# SPDX-License-Identifier: Apache-2.0
"""Finds the conversation in a record, whichever of the usual shapes it has."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from tokenmill.tokenizer.chat.messages import (
    MARKS,
    REASONING,
    REASONS,
    ROLES,
    SOUNDS_LIKE_A_MARK,
    ConversationError,
    Message,
    Reading,
    Role,
    from_json,
    has_text,
    kind,
    read_message,
    read_objects,
    refuse_unknown_marks,
    renamed,
    role_of,
    take_weight,
    value_at,
)

__all__ = [
    "BESIDE",
    "FIELDS",
    "REASONING",
    "REASONS",
    "RESERVED",
    "ROLES",
    "SIDES",
    "SOUNDS_LIKE_A_MARK",
    "Conversation",
    "ConversationError",
    "Reading",
    "Role",
    "has_text",
    "read_conversation",
]

SIDES = ("chosen", "rejected")
"""The fields of a preference pair."""
_QUESTIONS = ("prompt", "instruction", "question", "query")
_ANSWERS = ("completion", "output", "response", "answer")
_PAIRS = sorted(
    itertools.product(_QUESTIONS, _ANSWERS), key=lambda pair: _QUESTIONS.index(pair[0]) != _ANSWERS.index(pair[1])
)
_BESIDE_INSTRUCTIONS = ("input", "context")
_PAIR = "user", "assistant"
_SYSTEMS = ("system", "system_prompt")
BESIDE = (
    *("tools", "functions", "documents", "chat_template_kwargs", *_SYSTEMS, *_BESIDE_INSTRUCTIONS, "history"),
    *(*SIDES, "messages", "label", "train_turns", *MARKS),
)
FIELDS = ("conversations", *_QUESTIONS, *_ANSWERS, *BESIDE)
"""Fields of records that may hold a part of a conversation, those in `BESIDE` only with a field for the messages."""
_SHOWN = ("role", "content", "tool_calls", *REASONING)
_JSON_OBJECTS = re.compile(r"\s*\[\s*\{")
_TURNS = re.compile(r"(?:^|\n\n)\s*(Human|Assistant):")
RESERVED = frozenset({"messages", "add_generation_prompt", "continue_final_message"})
"""Arguments of a template that neither a record nor a config may give: they are for inference."""


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
    untrained_text: Mapping[int, Sequence[tuple[int, int]]] = MappingProxyType({})
    """By message the characters of its content that are not to be trained on, in order."""
    weights: Mapping[int, float] = MappingProxyType({})
    """Weights of messages that are trained and have another one than 1."""
    n_text_arguments: int = 0
    """Tool calls whose arguments were JSON in a text."""
    unused: tuple[str, ...] = ()
    """Fields of the record that nothing was done with."""


class _Record:
    """The fields of a record, which notes those that are used."""

    def __init__(self, record: Mapping[str, Any], field: str, reading: Reading) -> None:
        self.values = renamed(record, reading.fields)
        self.reading = reading
        self.used: set[str] = {field.partition(".")[0]}
        for name in {field, "messages", "conversations", *SIDES} & {*self.values}:  # others may be JSON as a text
            self.values[name] = _parsed(self.values[name])

    def get(self, name: str) -> Any:
        self.used.add(name)
        return self.values.get(name)

    def first(self, names: Sequence[str]) -> Any:
        return next((self.get(name) for name in names if name in self.values), None)


def read_conversation(
    record: Mapping[str, Any],
    field: str = "messages",
    reading: Reading = Reading(),  # noqa: B008 - immutable
) -> Conversation:
    """Finds the conversation of a record.

    It is in `field`, or in `conversations`: a list of `{"role", "content"}` or ShareGPT's `{"from", "value"}`, JSON of
    such a list, or a text of turns as in HH-RLHF. Else it is made of a question and its answer: of `prompt` and
    `completion`, each a text or messages, of Alpaca's `instruction`, `input`, `output` and `history`, or of similar
    names. If `field` holds an answer alone, as `chosen` and `rejected` of a pair may, its question is put in front of
    it, else `conversations` or `messages`. What both sides of a pair have in common is their prompt. `system` beside it
    is its system message; `tools`, `documents` and `chat_template_kwargs` go to the template.

    Args:
      record: as JSON has it.
      field: the field of the messages; `meta.messages` is a nested one.
      reading: what else is known of such records.

    Raises:
      ConversationError: if there is none, or it is not one to train on.
    """
    fields = _Record(record, field, reading)
    read, n_prompt = _read(fields, field)
    n_shared = _shared(fields, field, read)
    read, scale = _with_marks_beside(fields, read)
    for i, message in enumerate(read[: max(n_prompt, n_shared)]):
        if message.weight is None and message.message["role"] == "assistant":
            read[i] = message._replace(weight=0.0)
    system = fields.first(_SYSTEMS)
    if isinstance(system, str | list) and has_text(system):
        read.insert(0, Message({"role": "system", "content": system}, None, [], [], 0))
        n_shared += bool(n_shared)
    messages = [each.message for each in read]
    if sum(message["role"] == "system" for message in messages) > 1:
        raise ConversationError("two_systems", "two system messages")
    arguments = _arguments(fields)
    lost = {name: value for name, value in fields.values.items() if name not in fields.used | reading.known}
    refuse_unknown_marks("of the record", lost)
    weights = {i: scale * (1 if each.weight is None else each.weight) for i, each in enumerate(read)}
    return Conversation(
        messages,
        arguments,
        {i: each.weight > 0 for i, each in enumerate(read) if each.weight is not None},
        {(i, part) for i, each in enumerate(read) for part in each.untrained_parts},
        n_shared,
        {i: each.untrained_text for i, each in enumerate(read) if each.untrained_text},
        {i: weight for i, weight in weights.items() if weight not in (0, 1)},
        sum(each.n_text_arguments for each in read),
        tuple(name for name, value in lost.items() if value and all(value != each["content"] for each in messages)),
    )


def _read(fields: _Record, field: str) -> tuple[list[Message], int]:
    """Returns the messages of a field, and how many of them are the prompt of an answer."""
    found, n_prompt = _find(fields, field)
    read = [read_message(i, item, fields.reading) for i, item in enumerate(found)]
    if any(isinstance(item, dict) and item.get("function_call") for item in found):  # OpenAI's of old
        for message in read:
            message.message["role"] = message.message["role"].replace("function", "tool")
    return read, n_prompt


def _shared(fields: _Record, field: str, read: Sequence[Message]) -> int:
    """Returns how many messages both sides of a preference pair begin with; 0 if the record is no pair."""
    if field not in SIDES or any(fields.get(side) is None for side in SIDES):
        return 0
    other = next(side for side in SIDES if side != field)
    try:
        sides = read, _read(fields, other)[0]
    except ConversationError as error:
        raise ConversationError(error.reason, f"{other}: {error.detail}") from None
    shown = [[{name: each.message.get(name) for name in _SHOWN} for each in side] for side in sides]
    n_shared = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*shown, strict=False))))
    if n_shared == min(map(len, shown)):
        raise ConversationError("nothing_trained", "chosen and rejected are the same, or one begins the other")
    return n_shared


def _with_marks_beside(fields: _Record, read: list[Message]) -> tuple[list[Message], float]:
    """Returns messages with the marks that a list beside them has for each, and the weight of the record."""
    reading, scale = fields.reading, 1.0
    for name in ("train_turns", *MARKS):
        if name in reading.known or name not in fields.values:
            continue
        given, key = fields.get(name), "train" if name == "train_turns" else name
        if not isinstance(given, list):
            weight = take_weight("of the record", {key: given}, reading)
            scale *= 1.0 if weight is None else weight
            continue
        if len(given) != len(read):
            detail = f"{name} of the record has {len(given)} marks for {len(read)} messages; it may have one for each"
            raise ConversationError("bad_mark", detail)
        for i, mark in enumerate(given):
            weight = take_weight(f"of turn {i}", {key: mark}, reading, read[i].message["role"])
            if read[i].weight not in (None, weight) and weight is not None:
                raise ConversationError("bad_mark", f"{name} of the record contradicts a mark of message {i}")
            read[i] = read[i]._replace(weight=read[i].weight if weight is None else weight)
    if isinstance(fields.values.get("label"), bool) and "label" not in reading.known:
        scale *= fields.get("label")  # false where KTO's data has an answer that is not desired
    if scale == 0:
        raise ConversationError("marked_untrained", "the record has a mark that says so, or its label is false")
    return read, scale


def _arguments(fields: _Record) -> dict[str, Any]:
    """Returns what a record gives a template beside the messages."""
    found = {name: read_objects(name, value) for name in ("tools", "documents") if (value := fields.get(name))}
    if functions := fields.get("functions"):  # OpenAI's of old
        wrapped = [{"type": "function", "function": each} for each in read_objects("functions", functions)]
        found["tools"] = [*found.get("tools", ()), *wrapped]
    own = fields.get("chat_template_kwargs")
    if own is not None and not isinstance(own, dict):
        raise ConversationError("not_a_conversation", f"chat_template_kwargs is {kind(own)}, not an object")
    if taken := RESERVED & {*(own or ())}:
        raise ConversationError(
            "not_a_conversation", f"chat_template_kwargs has {min(taken)!r}, which is not for a record"
        )
    return {**found, **(own or {})}


def _parsed(value: Any) -> Any:
    """Returns the messages that a text holds, as JSON or as in HH-RLHF; any other value as it is."""
    if not isinstance(value, str) or not _JSON_OBJECTS.match(value):
        return _turns(value)
    found, has = from_json(value) or [None], ({"role", "from"}, {"content", "value", "tool_calls"})
    is_found = all(isinstance(each, dict) and all(names & each.keys() for names in has) for each in found)
    return found if is_found else value


def _turns(text: Any) -> Any:
    """Returns the messages of a text in which turns begin with `Human:` and `Assistant:`; any other value as it is."""
    if not isinstance(text, str) or "\n\nAssistant:" not in text:
        return text
    before, *found = _TURNS.split(text)
    if before.strip() or found[0] != "Human":
        return text
    turns = [{"from": name, "value": said.strip()} for name, said in zip(found[::2], found[1::2], strict=True)]
    return turns if turns[-1]["value"] else turns[:-1]  # a prompt ends where the answer begins


def _find(fields: _Record, field: str) -> tuple[Sequence[Any], int]:
    """Returns the messages of a field as they are, and how many of them are the prompt of an answer."""
    given = value = _parsed(value_at(fields.values, field))
    pair = next(((q, a) for q, a in _PAIRS if q in fields.values and a in fields.values), None)
    if field in _QUESTIONS and (isinstance(value, str) or pair is not None):
        value = None  # a part of a conversation, not the answer to itself
    prompt: list[Any] = []
    if _is_answer(value, fields.reading.roles):
        # The chosen or the rejected answer of a pair, whose prompt is beside it.
        prompt = _prompt_of(fields, field)
        value = [*prompt, *_as_messages(value, "assistant")] if prompt else value
    if value is None:
        value = fields.get("conversations")
    if value is None and pair is not None:
        prompt = _question(fields, pair[0])
        value = [*prompt, *_as_messages(fields.get(pair[1]), "assistant")]
    if value is None and given is None:
        has = ", ".join(fields.values)[:200] or "nothing but nulls"
        raise ConversationError("not_a_conversation", f"no field {field!r}; the record has {has}")
    value = given if value is None else value
    if not isinstance(value, list) or not value:
        found = "an empty array" if value == [] else kind(value)
        raise ConversationError("not_a_conversation", f"field {field!r} is {found}, not a list of messages")
    return value, len(prompt)


def _prompt_of(fields: _Record, field: str) -> list[Any]:
    """Returns what an answer alone is the answer to."""
    name = next((name for name in _QUESTIONS if fields.values.get(name) and name != field), None)
    if name is not None:
        return _question(fields, name)
    return _as_messages(fields.first(("conversations", "messages")) or [], "user") if field in SIDES else []


def _question(fields: _Record, name: str) -> list[Any]:
    """Returns the messages of a question, which may be a text, with earlier turns and what it is asked about."""
    value = fields.get(name)
    if name == "prompt":
        value = _turns(value)
    else:
        beside = _BESIDE_INSTRUCTIONS if name == "instruction" else ()
        value = "\n\n".join(_texts(fields, name, *beside))
    history = fields.get("history") or ()
    if not isinstance(history, list | tuple) or not all(isinstance(each, list) and len(each) == 2 for each in history):
        raise ConversationError("not_a_conversation", "field 'history' is not a list of pairs of texts")
    earlier = [{"role": role, "content": text} for pair in history for role, text in zip(_PAIR, pair, strict=True)]
    return [*earlier, *_as_messages(value, "user")]


def _texts(fields: _Record, *names: str) -> Iterator[str]:
    """Yields the texts of fields that are there."""
    for name in names:
        value = fields.get(name)
        if value is not None and not isinstance(value, str):
            raise ConversationError("not_a_conversation", f"field {name!r} is {kind(value)}, not a text")
        if value:
            yield value


def _is_answer(value: Any, roles: Mapping[str, str]) -> bool:
    """Returns whether a field holds an answer: a text, a message of the assistant, or only such messages."""
    if isinstance(value, str):
        return True
    value = [value] if isinstance(value, dict) else value
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(each, dict) and role_of(each, roles) == "assistant" for each in value)
    )


def _as_messages(value: Any, role: str) -> list[Any]:
    if isinstance(value, list):
        return value
    return [value] if isinstance(value, dict) else [{"role": role, "content": value}]
