# SPDX-License-Identifier: Apache-2.0
"""What records say of messages and of training, in the ways in which they are written elsewhere."""

import json
from typing import Any

import pytest

from tests.chats import SPECIAL, TEMPLATES
from tokenmill.tokenizer.chat.conversations import ConversationError, Reading, read_conversation
from tokenmill.tokenizer.chat.spans import Marker, TrainingRule
from tokenmill.tokenizer.chat.templates import ChatTemplate

ASK, ANSWER = {"role": "user", "content": "why?"}, {"role": "assistant", "content": "so"}
CALL = {"type": "function", "function": {"name": "look", "arguments": '{"at": "sky", "n": null}'}}
BOTH = [ASK, ANSWER]


def trained(record: dict[str, Any], reading: Reading = Reading(), family: str = "chatml") -> list[str]:  # noqa: B008
    marker = Marker(ChatTemplate(TEMPLATES[family], {"bos_token": "<s>"}), SPECIAL, TrainingRule())
    found = marker.mark(read_conversation(record, reading=reading))
    return [found.text[start:stop] for start, stop in found.spans]


def refused(record: dict[str, Any], reading: Reading = Reading(), field: str = "messages") -> tuple[str, str]:  # noqa: B008
    with pytest.raises(ConversationError) as error:
        read_conversation(record, field, reading)
    return error.value.reason, error.value.detail


@pytest.mark.parametrize(
    "name", ["train", "training", "trainable", "weight", "loss", "loss_mask", "loss_weight", "step_loss_mask", "masked"]
)
@pytest.mark.parametrize("kind", [int, bool, float])
def test_a_mark_of_a_message_is_honoured_by_any_name(name: str, kind: type) -> None:
    off = kind(name == "masked")
    messages = [ASK, {**ANSWER, name: off}, ASK, {**ANSWER, "content": "thus", name: kind(not off)}]
    assert trained({"messages": messages}) == ["thus<|im_end|>"]
    assert read_conversation({"messages": messages}).messages == [*BOTH, ASK, {**ANSWER, "content": "thus"}]


@pytest.mark.parametrize("name", ["train_turns", "loss_mask", "trainable"])
def test_marks_beside_messages_are_one_for_each(name: str) -> None:
    record = {"messages": [*BOTH, *BOTH], "system": "Be brief.", name: [0, 0, False, True]}
    assert read_conversation(record).trained == {1: False, 2: False, 3: False, 4: True}
    nested = Reading(fields={"meta.turns": "train_turns"})
    record = {"messages": [*BOTH, *BOTH], "meta": {"turns": [False, False, False, True]}}
    assert trained(record, nested) == ["so<|im_end|>"]
    assert refused({"messages": BOTH, name: [1]})[0] == "bad_mark"


@pytest.mark.parametrize(
    ("name", "on"), [("trainable", True), ("loss", True), ("step_loss_mask", 1), ("masked", False)]
)
def test_marks_of_answers_train_nothing_else(name: str, on: Any) -> None:
    """In verl, ms-swift and slime no message of another role is trained, whatever its mark says."""
    messages = [{**ASK, name: on}, {**ANSWER, name: not on}, {**ASK, name: not on}, {**ANSWER, name: on}]
    assert read_conversation({"messages": messages}).trained == {1: False, 2: False, 3: True}
    beside = {"messages": [*BOTH, *BOTH], name: [each[name] for each in messages]}
    assert read_conversation(beside).trained == {1: False, 2: False, 3: True}
    assert read_conversation({"messages": [{**ASK, "train": True}, {**ANSWER, "train": 1}]}).trained[0]


def test_what_sounds_like_a_mark_is_refused() -> None:
    said = refused({"messages": BOTH, "mask": "User"})[1]  # of NeMo
    assert "say in input.chat_fields which of them it means, or {mask: null} if it is to be ignored" in said
    for name in ("mask", "loss_scale", "lossWeight", "do_train", "sample_weight"):
        assert refused({"messages": [ASK, {**ANSWER, name: 1}]})[0] == "bad_mark"
        assert refused({"messages": BOTH, name: "x"})[0] == "bad_mark"
        assert trained({"messages": BOTH, name: "x"}, Reading(fields={name: None})) == ["so<|im_end|>"]
        assert trained({"messages": [ASK, {**ANSWER, name: None}], name: None}) == ["so<|im_end|>"]
    for value in ("no", 2, -1, 0.5, [0]):
        assert refused({"messages": [ASK, {**ANSWER, "loss": value}]})[0] == "bad_mark"
    assert read_conversation({"messages": BOTH, "constraints": "none", "label": "a"}).unused == ("constraints", "label")


@pytest.mark.parametrize("name", ["train_detail", "training_detail"])
def test_parts_of_a_text_are_trained_as_in_axolotl(name: str) -> None:
    def details(*spans: tuple[int, int, bool]) -> list[dict[str, Any]]:
        return [{"begin_offset": start, "end_offset": stop, "train": train} for start, stop, train in spans]

    def record(*spans: tuple[int, int, bool]) -> dict[str, Any]:
        return {"messages": [ASK, {**ANSWER, "content": "  red, blue, green", name: details(*spans)}]}

    assert trained(record((2, 4, True), (5, 10, False), (13, 99, True))) == ["red", "green<|im_end|>"]
    assert trained(record((0, 17, True))) == ["  red, blue, green<|im_end|>"]
    assert trained(record((2, 4, True), (13, 17, True)), family="headers") == ["red", "green<|eot_id|>"]
    assert read_conversation(record((0, 17, False))).trained == {1: False}
    assert refused({"messages": [ASK, {**ANSWER, name: [{"begin_offset": 0}]}]})[0] == "bad_mark"
    assert refused(record((5, 2, True)))[0] == "bad_mark"


def test_a_config_says_what_fields_and_roles_mean() -> None:
    reading = Reading(
        fields={"speaker": "role", "said": "content", "dialog": "conversations"}, roles={"Bot": "assistant"}
    )
    record = {"dialog": [{"speaker": "human", "said": "why?"}, {"speaker": "Bot", "said": "so"}]}
    assert read_conversation(record, reading=reading).messages == BOTH
    reason, detail = refused({"messages": [ASK, {"role": "bot", "content": "so"}]})
    assert (reason, "input.chat_roles" in detail) == ("unknown_role", True)


@pytest.mark.parametrize(
    ("record", "field"),
    [
        ({"chosen": "\n\nHuman: why?\n\nAssistant: so", "rejected": "\n\nHuman: why?\n\nAssistant: no"}, "chosen"),
        ({"prompt": "\n\nHuman: why?\n\nAssistant:", "chosen": "so", "rejected": "no"}, "chosen"),
        ({"system": "", "question": "why?", "chosen": "so", "rejected": "no"}, "chosen"),
        ({"id": "1", "system_prompt": "", "question": "why?", "response": "so"}, "messages"),
        ({"instruction": "why?", "context": "", "response": "so", "category": "open_qa"}, "messages"),
        ({"question": "why?", "answer": "so"}, "messages"),
        ({"query": "why?", "response": "so"}, "response"),
        ({"prompt": [ASK], "completion": [ANSWER]}, "prompt"),
    ],
)
def test_more_shapes_of_data_sets_are_read(record: dict[str, Any], field: str) -> None:
    found = read_conversation(record, field)
    assert found.messages == BOTH
    assert set(found.unused) <= {"id", "category"}
    dolly = {"instruction": "why?", "context": "The sky.", "response": "so"}
    assert read_conversation(dolly).messages[0]["content"] == "why?\n\nThe sky."


def test_calls_of_old_are_tool_calls() -> None:
    call = CALL["function"]
    for turns in (
        [ASK, {"role": "assistant", "content": None, "function_call": call}],
        [{"from": "human", "value": "why?"}, {"from": "function_call", "value": json.dumps(call)}],
        [{"from": "human", "value": "why?"}, {"from": "function_call", "value": json.dumps([call])}],
        [ASK, {"role": "assistant", "tool_calls": json.dumps([CALL])}],
    ):
        found = read_conversation({"messages": turns, "functions": [{"name": "look"}]})
        assert found.messages == [ASK, {"role": "assistant", "content": "", "tool_calls": [CALL]}]
        assert found.arguments == {"tools": [{"type": "function", "function": {"name": "look"}}]}
        assert found.n_text_arguments == 1
    result = {"role": "function", "name": "look", "content": "blue"}
    old = [ASK, {"role": "assistant", "content": None, "function_call": call}, result, ANSWER]
    assert read_conversation({"messages": old}).messages[2] == {**result, "role": "tool"}
    assert read_conversation({"messages": [ASK, result, ANSWER]}).messages[1] == result
    bad = [ASK, {"from": "function_call", "value": "look at the sky"}]
    assert refused({"messages": bad})[0] == "not_a_conversation"
    plain = read_conversation({"messages": bad}, reading=Reading(roles={"function_call": "assistant"}))
    assert plain.messages[1] == {"role": "assistant", "content": "look at the sky"}


def test_nulls_of_an_author_stay() -> None:
    call = {"function": {"name": "look", "arguments": {"unit": None}}}
    tools = [{"name": "look", "parameters": {"unit": {"default": None}}}]
    found = read_conversation(
        {"messages": [ASK, {"role": "assistant", "content": None, "tool_calls": [call]}], "tools": tools}
    )
    assert found.messages[1] == {"role": "assistant", "content": "", "tool_calls": [call]}
    assert found.arguments == {"tools": tools}


@pytest.mark.parametrize(
    "answer", ["so", {"role": "assistant", "content": "so", "score": 3}, [{"from": "gpt", "value": "so"}]]
)
def test_equal_sides_are_refused_wherever_their_prompt_is(answer: Any) -> None:
    for prompt in ({"prompt": "why?"}, {"question": "why?"}, {"conversations": [ASK]}):
        assert refused({**prompt, "chosen": "so", "rejected": answer}, field="chosen")[0] == "nothing_trained"
    both = [{**ANSWER, "content": each} for each in ("a", "b")]
    found = read_conversation(
        {"prompt": "why?", "chosen": [both[0], both[1]], "rejected": [both[0], both[0]]}, "chosen"
    )
    assert found.n_shared == 2
    assert refused({"prompt": "why?", "chosen": "so", "rejected": [3]}, field="chosen")[1].startswith("rejected: ")
