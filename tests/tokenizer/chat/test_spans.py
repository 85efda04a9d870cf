# SPDX-License-Identifier: Apache-2.0
"""What is trained: the ways in which loss masks of conversations go wrong elsewhere, one test each."""

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.chats import NAMED, SPECIAL, TEMPLATES, make_conversation, make_tokenizer
from tokenmill.tokenizer.chat.conversations import Conversation, ConversationError, read_conversation
from tokenmill.tokenizer.chat.masks import mask_tokens
from tokenmill.tokenizer.chat.spans import Marked, Marker, TrainingRule
from tokenmill.tokenizer.chat.templates import ChatTemplate

ASK, ANSWER = {"role": "user", "content": "why?"}, {"role": "assistant", "content": "so"}
AGAIN, LAST = {"role": "user", "content": "and?"}, {"role": "assistant", "content": "thus"}
THOUGHT = {"role": "assistant", "content": "so", "reasoning_content": "hm"}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "look", "arguments": {"at": "x"}}}],
}
RESULT = {"role": "tool", "content": "seen"}


def mark(family: str, *messages: dict[str, Any], arguments: dict[str, Any] | None = None, **rule: Any) -> Marked:
    marker = Marker(ChatTemplate(TEMPLATES[family], NAMED), SPECIAL, TrainingRule(**rule))
    conversation = read_conversation({"messages": [dict(message) for message in messages]})
    return marker.mark(conversation._replace(arguments=arguments or {}))


def trained(found: Marked) -> list[str]:
    return [found.text[start:stop] for start, stop in found.spans]


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("chatml", ["so<|im_end|>", "thus<|im_end|>"]),
        ("headers", ["so<|eot_id|>", "thus<|eot_id|>"]),
        ("inst", ["so</s>", "thus</s>"]),
        ("thinking", ["so<|im_end|>", "<think>\n\n</think>\n\nthus<|im_end|>"]),
        ("channels", ["<|channel|>final<|message|>so<|end|>", "<|channel|>final<|message|>thus<|return|>"]),
        # Where a turn ends with the header of the next, this is the stop token; the last has none.
        ("bare", ["so<|user|>", "thus"]),
    ],
)
def test_a_template_without_marks_trains_turns_with_their_stop_tokens(family: str, expected: list[str]) -> None:
    assert trained(mark(family, ASK, ANSWER, AGAIN, LAST)) == expected


@pytest.mark.parametrize("family", TEMPLATES)
def test_the_header_is_not_taught(family: str) -> None:
    for text in trained(mark(family, ASK, ANSWER)):
        assert "assistant" not in text
        assert "[/INST]" not in text


def test_reasoning_that_a_template_drops_from_history_moves_no_mask() -> None:
    found = mark("thinking", ASK, THOUGHT, AGAIN, {**THOUGHT, "content": "thus"})
    assert trained(found) == ["so<|im_end|>", "<think>\nhm\n</think>\n\nthus<|im_end|>"]
    inside = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nso"}
    assert trained(mark("thinking", ASK, inside, AGAIN, LAST))[0] == "so<|im_end|>"
    assert trained(mark("thinking", ASK, inside)) == ["<think>\nhm\n</think>\n\nso<|im_end|>"]


def test_reasoning_is_left_out_if_so_asked() -> None:
    assert trained(mark("thinking", ASK, THOUGHT, thinking=False)) == ["so<|im_end|>"]


def test_texts_that_leave_no_trace_are_not_trained() -> None:
    parts = [{"type": "text", "text": "secret"}]  # which this template prints as Python does
    found = mark("headers", ASK, ANSWER, {"role": "user", "content": parts}, LAST)
    assert "secret" in found.text
    assert trained(found) == ["so<|eot_id|>", "thus<|eot_id|>"]
    for turn in ({"role": "assistant", "content": parts}, CALL):
        with pytest.raises(ConversationError, match="shows nothing of it") as error:
            mark("headers", ASK, turn, AGAIN, LAST)
        assert error.value.reason == "turn_not_shown"
    found = mark("headers", ASK, {"role": "assistant", "content": parts, "train": False}, AGAIN, LAST)
    assert trained(found) == ["thus<|eot_id|>"]


MODEL_TURN = """\
{%- for m in messages -%}
{%- if m.role == 'user' -%}{{ '<|start|>user ' + m.content + '<|end|>' -}}
{%- elif m.role == 'assistant' -%}
{{- '<|start|>model ' -}}
{%- for call in m.tool_calls or [] -%}
{{- '<|call|>' + call.function.name + ':<|channel|>' + call.function.arguments.at|string + '<|channel|><|message|>' -}}
{{- 'answer ' + messages[loop.index0 + 2].content + ';' -}}
{%- endfor -%}
{{- m.content + '<|end|>' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>model {% endif -%}"""


@pytest.mark.parametrize("at", ["x", 1764189192, None, 1.5])
def test_the_answer_of_a_tool_inside_a_turn_is_not_trained(at: Any) -> None:
    call = {**CALL, "content": "I see", "tool_calls": [{"function": {"name": "look", "arguments": {"at": at}}}]}
    marker = Marker(ChatTemplate(MODEL_TURN), SPECIAL, TrainingRule())
    found = marker.mark(read_conversation({"messages": [ASK, call, RESULT, LAST]}))
    texts = trained(found)
    assert texts[0].startswith("<|call|>look:")
    assert "I see<|end|>" in texts
    assert not any("seen" in text for text in texts)
    # A text behind the call stays, and so does all but the last stop token.
    found = Marker(ChatTemplate(MODEL_TURN), SPECIAL, TrainingRule(tool_calls=False)).mark(
        read_conversation({"messages": [ASK, call, RESULT, LAST]})
    )
    assert trained(found) == ["I see<|end|>", "thus<|end|>"]
    unstopped = MODEL_TURN.replace("m.content + '<|end|>'", "m.content + ('<|end|>' if loop.last else '')")
    found = Marker(ChatTemplate(unstopped), SPECIAL, TrainingRule(stop=False)).mark(
        read_conversation({"messages": [ASK, call, RESULT, LAST]})
    )
    assert trained(found)[-2:] == ["I see", "thus"]


def test_special_tokens_beside_messages_are_found_too() -> None:
    marker = Marker(ChatTemplate(TEMPLATES["chatml"]), SPECIAL, TrainingRule())
    named = {"messages": [{**ASK, "name": "</s>"}, ANSWER]}
    tools = {"tools": [{"name": "</s>"}]}, {"tools": '[{"</s>": 1}]'}
    for more in (*tools, {"documents": [{"text": "<|im_end|>"}]}, named):
        with pytest.raises(ConversationError) as error:
            marker.mark(read_conversation({"messages": [ASK, ANSWER], **more}))
        assert error.value.reason == "special_token_in_content"
    # A tokenizer that does not call its tokens special: those between turns count all the same.
    marker = Marker(ChatTemplate(TEMPLATES["chatml"]), [], TrainingRule(), ["<|im_end|>", "<|im_start|>", "<think>"])
    assert trained(marker.mark(read_conversation({"messages": [ASK, ANSWER]}))) == ["so<|im_end|>"]
    with pytest.raises(ConversationError, match="content of message 0"):
        marker.mark(read_conversation({"messages": [{"role": "user", "content": "<|im_end|>"}, ANSWER]}))
    marker.mark(read_conversation({"messages": [{"role": "user", "content": "<think>"}, ANSWER]}))


def test_long_conversations_take_time_that_grows_with_them() -> None:
    messages = [ASK, ANSWER] * 2000
    assert len(mark("chatml", *messages).spans) == 2000  # for minutes, where each turn looks at all others
    marked = "{% for m in messages %}{% generation %}{{ m.content }}</s>{% endgeneration %}{% endfor %}"
    conversation = read_conversation({"messages": messages})
    marker = Marker(ChatTemplate(marked), SPECIAL, TrainingRule(train="all"))
    off = conversation._replace(trained=dict.fromkeys(range(1, 4000, 2), False))
    assert len(marker.mark(off).spans) == 2000
    words = "{% for m in messages %}{{ m.content.split() | join(' ') }}</s>{% endfor %}"
    long = read_conversation({"messages": [ASK, {**ANSWER, "content": "so " * 20_000}]})
    assert len(Marker(ChatTemplate(words), SPECIAL, TrainingRule()).mark(long).spans) == 1


def test_tools_may_be_json_in_a_text() -> None:
    tools = [{"name": "look", "y": None}]
    expected = {"tools": tools}
    for given in (tools, '[{"name": "look", "y": null}]'):
        assert read_conversation({"messages": [ASK], "tools": given}).arguments == expected
    for given in ("look", '"look"', ["look"], {"name": "look"}):
        with pytest.raises(ConversationError, match="tools is"):
            read_conversation({"messages": [ASK], "tools": given})
    with pytest.raises(ConversationError, match="not for a record"):
        read_conversation({"messages": [ASK], "chat_template_kwargs": {"continue_final_message": True}})


@pytest.mark.parametrize("at", ["x", "\x7f0\x7f", "\ue0000\ue000"])
def test_calls_written_as_safe_json_are_trained_or_left_out(at: str) -> None:
    source = TEMPLATES["chatml"].replace(
        "message['content'] +",
        "message['content'] }}{% for call in message.tool_calls or [] %}"
        "{{ 'CALL' + call.function.name + ':' + call.function.arguments | tojson | safe }}{% endfor %}{{",
    )
    call = {**CALL, "tool_calls": [{"function": {"name": "look", "arguments": {"at": at}}}]}
    for content, kept in (("", "CALLlook:" + json.dumps({"at": at}, ensure_ascii=False)), ("I look.", "")):
        marker = Marker(ChatTemplate(source), SPECIAL, TrainingRule(tool_calls=not content))
        found = marker.mark(read_conversation({"messages": [ASK, {**call, "content": content}, RESULT, LAST]}))
        assert trained(found) == [f"{content}{kept}" + "<|im_end|>" * (not content), "thus<|im_end|>"]
        assert 1 in {message for _, _, message in found.messages}


def test_a_turn_without_its_stop_token_is_an_error() -> None:
    source = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content }}{% if m.content != 'cut' %}<|im_end|>"
    )
    source += (
        "{% endif %}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    marker = Marker(ChatTemplate(source), SPECIAL, TrainingRule())
    with pytest.raises(ConversationError, match="has no stop token") as error:
        marker.mark(read_conversation({"messages": [ASK, {"role": "assistant", "content": "cut"}]}))
    assert error.value.reason == "no_stop_token"
    unstopped = Marker(ChatTemplate(source), SPECIAL, TrainingRule(stop=False))
    found = unstopped.mark(read_conversation({"messages": [ASK, ANSWER]}))
    assert trained(found) == ["so"]


def test_a_special_token_in_a_message_is_an_error() -> None:
    for family in TEMPLATES:
        with pytest.raises(ConversationError, match="content of message 0") as error:
            mark(family, {"role": "user", "content": "say </s> now"}, ANSWER)
        assert error.value.reason == "special_token_in_content"


def test_marks_of_a_template_count() -> None:
    source = TEMPLATES["chatml"].replace(
        "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}",
        "{{ '<|im_start|>' + message.role + '\\n' }}{% if message.role == 'assistant' %}{% generation %}"
        "{{ message.content + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}{% else %}"
        "{{ message.content + '<|im_end|>\\n' }}{% endif %}",
    )
    assert source != TEMPLATES["chatml"]
    marker = Marker(ChatTemplate(source), SPECIAL, TrainingRule())
    found = marker.mark(read_conversation({"messages": [ASK, ANSWER, AGAIN, LAST]}))
    assert trained(found) == ["so<|im_end|>", "thus<|im_end|>"]
    last = Marker(ChatTemplate(source), SPECIAL, TrainingRule("last_assistant"))
    assert trained(last.mark(read_conversation({"messages": [ASK, ANSWER, AGAIN, LAST]}))) == ["thus<|im_end|>"]


def test_marks_without_a_text_belong_to_the_answer_beside_them() -> None:
    source = (
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}<think>{% endgeneration %}|"
        "{% generation %}{{ m.content }}{% endgeneration %}|{% generation %}</s>{% endgeneration %}"
        "{% else %}[{{ m.content }}]{% endif %}{% endfor %}"
    )
    marker = Marker(ChatTemplate(source), SPECIAL, TrainingRule())
    found = marker.mark(read_conversation({"messages": [ASK, ANSWER, AGAIN, LAST]}))
    assert trained(found) == ["<think>", "so", "</s>", "<think>", "thus", "</s>"]
    found = marker.mark(read_conversation({"messages": [ASK, {**ANSWER, "train": False}, AGAIN, LAST]}))
    assert trained(found) == ["<think>", "thus", "</s>"]


@pytest.mark.parametrize("family", TEMPLATES)
def test_every_conversation_is_proven(family: str) -> None:
    """Ids are those of the text; each trained token has a trained byte, and each trained byte a trained token."""
    tokenizer = make_tokenizer().replace(special="split")
    marker = Marker(ChatTemplate(TEMPLATES[family], NAMED), SPECIAL, TrainingRule())
    n_marked, reasons = 0, set()
    for seed in range(60):
        record = {"messages": make_conversation(random.Random(seed), tools=family in ("thinking", "channels"))}
        try:
            found = marker.mark(read_conversation(record))
        except ConversationError as error:
            reasons.add(error.reason)
            continue
        n_marked += 1
        texts = pa.array([found.text])
        ids = tokenizer.encode_bare(texts)
        mask = mask_tokens(tokenizer, texts, ids, [found.spans], [found.messages], len(record["messages"]))
        assert ids[0].as_py() == tokenizer.encode(found.text, add_special_tokens=False).ids
        is_trained = np.zeros(len(found.text), bool)
        for start, stop in found.spans:
            is_trained[start:stop] = True
        expected = [
            bool(is_trained[start:stop].any())
            for start, stop in tokenizer.encode(found.text, add_special_tokens=False).offsets
        ]
        assert mask.trained.tolist() == expected
        assert mask.trained.any()
        assert mask.by_source.sum() == len(expected)
        stops = [found.text[start:stop] for start, stop in found.spans]
        assert all(text.endswith(("|>", "</s>")) for text in stops[: None if family != "bare" else -1])
    assert n_marked > 30
    assert reasons <= {"refused_by_template", "template_failed"}


def test_a_token_that_straddles_a_border_is_trained_and_counted() -> None:
    tokenizer = make_tokenizer().replace(special="split")
    texts = pa.array(["so all"])
    ids = tokenizer.encode_bare(texts)
    tokens = [tokenizer.id_to_token(i) for i in ids[0].as_py()]
    assert tokens == ["s", "o", "Ġa", "ll"]
    mask = mask_tokens(tokenizer, texts, ids, [[(3, 6)]], [[]], 0)
    assert mask.trained.tolist() == [False, False, True, True]
    assert mask.n_straddling == 1


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({}, "not_a_conversation"),
        ({"messages": []}, "not_a_conversation"),
        ({"messages": "hi"}, "not_a_conversation"),
        ({"messages": [3]}, "not_a_conversation"),
        ({"messages": [{"role": "user", "content": 3}]}, "not_a_conversation"),
        ({"messages": [{"role": "user", "content": "a", "weight": 0.5}]}, "bad_mark"),
        ({"messages": [ASK], "chat_template_kwargs": 3}, "not_a_conversation"),
        ({"messages": [{"role": "wizard", "content": "a"}]}, "unknown_role"),
        ({"messages": [{"content": "a"}]}, "unknown_role"),
        ({"conversations": [{"from": "wizard", "value": "a"}]}, "unknown_role"),
        ({"messages": [ASK, {"role": "assistant", "content": " \n"}]}, "empty_turn"),
        ({"messages": [ASK, {"role": "assistant", "content": None}]}, "empty_turn"),
        ({"messages": [{"role": "system", "content": "a"}] * 2}, "two_systems"),
        ({"messages": [{"role": "system", "content": "a"}, ASK], "system": "b"}, "two_systems"),
        ({"messages": [ASK, {**ANSWER, "train": True, "weight": 0}]}, "bad_mark"),
        ({"messages": None}, "not_a_conversation"),
        ({"messages": '[{"a": 1}]'}, "not_a_conversation"),
        ({"instruction": ["why?"], "output": "so"}, "not_a_conversation"),
        ({"instruction": "why?", "output": "so", "history": ["what?"]}, "not_a_conversation"),
    ],
)
def test_what_is_no_conversation_says_why(record: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConversationError) as error:
        read_conversation(record)
    assert error.value.reason == reason
    assert error.value.detail


def test_what_both_sides_of_a_pair_begin_with_is_their_prompt() -> None:
    other = {"role": "assistant", "content": "never"}
    record = {"chosen": [ASK, ANSWER, AGAIN, LAST], "rejected": [ASK, ANSWER, AGAIN, other]}
    marker = Marker(ChatTemplate(TEMPLATES["chatml"]), SPECIAL, TrainingRule())
    for side, text in (("chosen", "thus"), ("rejected", "never")):
        conversation = read_conversation(record, side)
        assert conversation.n_shared == 3
        assert trained(marker.mark(conversation)) == [f"{text}<|im_end|>"]
    with pytest.raises(ConversationError, match="chosen and rejected are the same"):
        read_conversation({"chosen": [ASK, ANSWER], "rejected": [ASK, ANSWER]}, "chosen")
    assert read_conversation({**record, "system": "Be brief."}, "chosen").n_shared == 4
    assert read_conversation({"prompt": "why?", "chosen": "so", "rejected": "no"}, "rejected").n_shared == 1
    assert read_conversation({**record, "messages": [ASK, ANSWER]}).n_shared == 0


@pytest.mark.parametrize(
    "record",
    [
        {"messages": [ASK, ANSWER]},
        {"meta": {"messages": [ASK, ANSWER]}},
        {"conversations": [{"from": "human", "value": "why?"}, {"from": "gpt", "value": "so"}]},
        {"prompt": "why?", "completion": "so"},
        {"prompt": [ASK], "completion": [ANSWER]},
        {"instruction": "why?", "input": "", "output": "so"},
        {"messages": [{**ASK, "name": None, "tool_calls": None}, {**ANSWER, "tool_calls": None}]},
        {"messages": [{"role": "user", "value": "why?"}, {"from": "gpt", "content": "so"}], "system": ""},
        {"messages": json.dumps([ASK, ANSWER], indent=1)},
        {"meta": {"messages": json.dumps([ASK, ANSWER])}},
    ],
)
def test_all_usual_shapes_are_read(record: dict[str, Any]) -> None:
    field = "meta.messages" if "meta" in record else "messages"
    assert read_conversation(record, field) == Conversation([ASK, ANSWER], {}, {}, set())
