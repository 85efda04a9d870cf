# SPDX-License-Identifier: Apache-2.0
"""Templates whose headers and stops are hard to tell: what is trained of them, and which are said to be bad."""

import random
from typing import Any

import pytest

from tests.chats import NAMED, SPECIAL, TEMPLATES, make_conversation, make_tokenizer
from tokenmill.tokenizer.chat.check import check_chat, check_masks
from tokenmill.tokenizer.chat.conversations import ConversationError, read_conversation
from tokenmill.tokenizer.chat.spans import Marked, Marker, TrainingRule
from tokenmill.tokenizer.chat.templates import ChatTemplate

ASK, ANSWER = {"role": "user", "content": "why?"}, {"role": "assistant", "content": "so"}
AGAIN, LAST = {"role": "user", "content": "and?"}, {"role": "assistant", "content": "thus"}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "look", "arguments": {"at": "x"}}}],
}
RESULT = {"role": "tool", "content": "seen"}
TOKENS = [
    *SPECIAL, "<|t|>", "<｜Assistant｜>", "<|CALL|>", "<|assistant_end|>", "<|user_start|>", "<|channel>", "<channel|>",
]  # fmt: skip

HEADER = "'<|start_header_id|>assistant<|end_header_id|>\\n\\n'"
TURN = "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content + '<|eot_id|>' }}"
OPEN = f"{{{{ bos_token }}}}{{% for m in messages %}}{TURN}{{% endfor %}}{{{{ {HEADER} }}}}"
OPEN_DEFAULT = OPEN.replace(
    "{% for",
    "{% if messages[0].role != 'system' %}{{ '<|start_header_id|>system<|end_header_id|>\\n\\nBe good.<|eot_id|>' }}"
    "{% endif %}{% for",
    1,
)
OPEN_PROMPTED = OPEN.replace("m.content", "('<|t|>' if m.role == 'assistant' else '') + m.content")
OPEN_PROMPTED += "{% if add_generation_prompt %}<|t|>{% endif %}"
OPEN_SHORT = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}<|assistant|>"
OPEN_UNASKED = OPEN_SHORT.replace("'<|end|>'", "('<|end|>' if m.role != 'assistant' else '</s>')")
INDENTED = """
{{ bos_token }}
{% for m in messages %}
    {% if m.role == 'user' %}
        USER: {{ m.content }}
    {% else %}
        ASSISTANT: {{ m.content }}{{ eos_token }}
    {% endif %}
{% endfor %}
{% if add_generation_prompt %}
    ASSISTANT:
{% endif %}"""
SPACED = """{{ bos_token }}
{%- for m in messages %}
  {%- if m.role == 'user' %}
    {{- '<|user|>' + m.content }}
  {%- else %}    <｜Assistant｜>
        </think>{{ '   ' + m.content + eos_token -}}
  {%- endif %}
{%- endfor -%}
{% if add_generation_prompt %}<｜Assistant｜></think>{% endif %}"""
CALLS = """
{%- for m in messages %}
{%- if m.tool_calls %}
ASSISTANT:
<function_call> {{ m.tool_calls[0].function | tojson }}
<|end|>
{%- elif m.role == 'tool' %}
<function_response> {{ m.content }}
{%- else %}

{{ m.role | upper }}: {{ m.content }}{{ ' <|end|>' if m.role == 'assistant' else '' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
ASSISTANT: {% endif %}"""
TAGGED = """
{%- for m in messages -%}
{%- if m.role == 'assistant' -%}
{{- '<｜Assistant｜>' -}}
{%- if m.tool_calls -%}
{{- '</think>\\n\\n<|CALL|>calls\\n<|CALL|>invoke name="' + m.tool_calls[0].function.name + '">' -}}
{{- m.tool_calls[0].function.arguments.at + '</|CALL|>calls' -}}
{%- else -%}
{{- '</think>' + m.content -}}
{%- endif -%}
{{- eos_token -}}
{%- else -%}
{{- '<|' + m.role + '|>' + m.content -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<｜Assistant｜><think>{%- endif -%}"""
SAME = "{% for m in messages %}{{ '<|t|>' + m.role + ':' + m.content + '<|t|>' }}{% endfor %}"
SAME += "{% if add_generation_prompt %}<|t|>assistant:{% endif %}"
NEWEST = SAME.replace("in messages", "in messages | reverse").replace("'<|t|>' }}", "'<|end|>' }}")
PROMPTED = """
{%- for m in messages -%}
{{- '<|im_start|>' + m.role + '\\n' -}}
{%- if m.role == 'assistant' -%}
  {%- set content, reasoning = m.content, m.reasoning_content or '' -%}
  {%- if '</think>' in content -%}
    {%- set reasoning = content.split('</think>')[0].split('<think>')[-1] -%}
    {%- set content = content.split('</think>')[-1] -%}
  {%- endif -%}
  {{- '<think>\\n' + reasoning | trim + '\\n</think>\\n\\n' + content | trim -}}
{%- else -%}{{- m.content -}}{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n<think>\\n' -}}{%- endif -%}"""
DEFAULT_ENDS = """{{ '<|system|>Be good.<|end|><|user_start|>' }}
{%- for m in messages -%}
{{- '<|user_start|>' if m.role == 'user' and not loop.first else '' -}}
{{- m.content + ('<|assistant_end|>' if m.role == 'assistant' and not loop.last else '') -}}
{%- if m.role == 'user' -%}<｜Assistant｜>{%- endif -%}
{%- endfor -%}"""
PARTS = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% for p in m.content %}{{ p.text }}{% endfor %}"
    "{{ '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
NEEDS_TOOLS = "{% for t in tools %}{{ t.function.name }}{% endfor %}" + TEMPLATES["chatml"]


def marker(source: str, **rule: Any) -> Marker:
    return Marker(ChatTemplate(source, NAMED), TOKENS, TrainingRule(**rule))


def trained(source: str, *messages: dict[str, Any], **rule: Any) -> list[str]:
    found: Marked = marker(source, **rule).mark(read_conversation({"messages": [dict(each) for each in messages]}))
    return [found.text[start:stop] for start, stop in found.spans]


def bad(source: str, ends: tuple[str, ...] = (), **rule: Any) -> dict[str, str]:
    return {each.name: each.detail for each in check_masks(marker(source, **rule), {}, ends) if each.level == "bad"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (OPEN, ["so<|eot_id|>", "thus<|eot_id|>"]),
        (OPEN_DEFAULT, ["so<|eot_id|>", "thus<|eot_id|>"]),
        (OPEN_PROMPTED, ["so<|eot_id|>", "thus<|eot_id|>"]),
        (OPEN_SHORT, ["so<|end|>", "thus<|end|>"]),
        (OPEN_UNASKED, ["so</s>", "thus</s>"]),
        (INDENTED, ["so</s>", "thus</s>"]),
        (SPACED, ["so</s>", "thus</s>"]),
        (CALLS, ["so <|end|>", "thus <|end|>"]),
        (TAGGED, ["</think>so</s>", "</think>thus</s>"]),
        (SAME, ["so<|t|>", "thus<|t|>"]),
        (NEWEST, ["thus<|end|>", "so<|end|>"]),
        (PROMPTED, ["\n</think>\n\nso<|im_end|>", "\n</think>\n\nthus<|im_end|>"]),
        (DEFAULT_ENDS, ["so<|assistant_end|>", "thus"]),
    ],
)
def test_a_turn_is_trained_from_the_prompt_to_its_stop(source: str, expected: list[str]) -> None:
    assert trained(source, ASK, ANSWER, AGAIN, LAST) == expected
    assert bad(source) == {}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (CALLS, '<function_call> {"name": "look", "arguments": {"at": "x"}}\n<|end|>'),
        (TAGGED, '</think>\n\n<|CALL|>calls\n<|CALL|>invoke name="look">x</|CALL|>calls</s>'),
        (TEMPLATES["thinking"], '\n<tool_call>\n{"name": "look", "arguments": {"at": "x"}}\n</tool_call><|im_end|>'),
    ],
)
def test_a_call_is_trained_from_where_its_markup_begins(source: str, expected: str) -> None:
    said = trained(source, ASK, CALL, RESULT, LAST)
    assert said[0].endswith(expected)
    assert said[0].removesuffix(expected) in ("", "<think>\n\n</think>\n\n")
    assert "seen" not in "".join(said)


@pytest.mark.parametrize(
    "content",
    ["<think>hm</think>\n\nso", "\n\n <think>\nhm</think>so", "so <think>hm</think>", "hm</think>so", "<think>hm"],
)
def test_reasoning_inside_a_content_is_left_out_wherever_it_stands(content: str) -> None:
    answer = {"role": "assistant", "content": content}
    for source, kept in ((PROMPTED, "so"), (TEMPLATES["chatml"], "so")):
        if source != PROMPTED and content.startswith("hm"):
            continue  # no tag tells that this is reasoning
        if content == "<think>hm":
            with pytest.raises(ConversationError, match="no text of the 2 messages"):
                trained(TEMPLATES["chatml"], ASK, answer, thinking=False)
            continue
        said = trained(source, ASK, answer, thinking=False)
        assert "".join(said).strip() == ("" if content.startswith("so") and source == PROMPTED else kept) + "<|im_end|>"
    assert bad(PROMPTED, thinking=False) == {}


def test_a_template_that_takes_no_plain_messages_is_bad() -> None:
    tools = [{"type": "function", "function": {"name": "look"}}]
    for source, given, levels in (
        (PARTS, {}, ["bad"]),
        (NEEDS_TOOLS, {}, ["bad"]),
        (NEEDS_TOOLS, {"tools": tools}, []),
    ):
        found = check_chat(make_tokenizer(TOKENS), ChatTemplate(source, NAMED), arguments=given)
        assert [each.level for each in found.findings if each.name == "plain messages"] == levels
        assert found.is_good is not bool(levels)


def test_a_stop_that_begins_the_next_header_is_bad_unless_the_model_ends_its_turns_with_it() -> None:
    assert "'<|user|>' is trained as the stop token" in bad(TEMPLATES["bare"])["stop token"]
    assert bad(TEMPLATES["bare"], ("<|user|>", "<|observation|>")) == {}
    assert bad(TEMPLATES["bare"], stop=False) == {}
    assert bad(TEMPLATES["bare"], train="all") == bad(TEMPLATES["bare"], train=("user",)) == {}


@pytest.mark.parametrize(("family", "source"), TEMPLATES.items())
def test_what_is_wrong_is_seen(family: str, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule does not trust what it judges: masks that are moved, by a little, are bad."""
    ends = ("<|user|>", "<|tool|>")
    assert bad(source, ends) == {}
    mark = Marker.mark

    def moved(front: int, back: int) -> dict[str, str]:
        def worse(self: Marker, conversation: Any) -> Marked:
            found = mark(self, conversation)
            spans = tuple((max(0, a + front), min(len(found.text), b + back)) for a, b in found.spans)
            return found._replace(spans=spans)

        monkeypatch.setattr(Marker, "mark", worse)
        return bad(source, ends)

    assert moved(-6, 0), "a part of the header"
    assert moved(1, 0), "not all of the turn"
    assert moved(0, 8), "a part of the next header"
    assert moved(0, -9), "not the stop"


@pytest.mark.parametrize("source", [OPEN, OPEN_DEFAULT, OPEN_SHORT, SPACED, CALLS, SAME, PROMPTED])
def test_masks_of_any_contents_are_content_and_stop(source: str) -> None:
    own, reasons = marker(source), set()
    for seed in range(30):
        messages = make_conversation(random.Random(seed), tools=False, system=False)
        messages = [{**each, "content": each["content"].strip()} for each in messages]
        for each in messages:
            each.pop("reasoning_content", None)
        try:
            found = own.mark(read_conversation({"messages": messages}))
        except ConversationError as error:
            reasons.add(error.reason)
            continue
        said = [found.text[start:stop] for start, stop in found.spans]
        answers = [each["content"] for each in messages if each["role"] == "assistant"]
        stop = own.probe({}).stop
        assert [stop.sub("", text).replace("\n</think>\n\n", "").strip() for text in said] == answers
        assert all(len(stop.findall(text)) == 1 for text in said)
    assert reasons <= {"special_token_in_content"}


def test_reasoning_that_is_not_told_from_an_answer_is_said() -> None:
    source = TEMPLATES["thinking"].replace("'<think>\\n' + reasoning", "'<why>\\n' + reasoning")
    assert bad(source) == {}
    assert "Something red" in bad(source, thinking=False)["thinking"]
