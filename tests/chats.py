# SPDX-License-Identifier: Apache-2.0
"""Chat templates of the families that are in use, written for these tests, conversations, and a tokenizer for them."""

import json
import random
from collections.abc import Iterable
from typing import Any

from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET

CHATML = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"""

HEADERS = """\
{{- bos_token -}}
{%- for message in messages -%}
{%- set header = '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\\n\\n' -%}
{{- header ~ message.content | trim ~ '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif -%}"""

INST = """\
{{- bos_token -}}
{%- for message in messages -%}
{%- if message.role == 'user' -%}
{{- '[INST] ' + message.content + ' [/INST]' -}}
{%- elif message.role == 'assistant' -%}
{{- ' ' + message.content.strip() + eos_token -}}
{%- else -%}
{{- raise_exception('only user and assistant') -}}
{%- endif -%}
{%- endfor -%}"""

THINKING = """\
{%- set last = namespace(user=-1) -%}
{%- for message in messages -%}
{%- if message.role == 'user' -%}{%- set last.user = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if message.role == 'assistant' -%}
  {%- set content = message.content -%}
  {%- set reasoning = message.reasoning_content or '' -%}
  {%- if '</think>' in content -%}
    {%- set reasoning = content.split('</think>')[0].split('<think>')[-1].strip('\\n') -%}
    {%- set content = content.split('</think>')[-1].lstrip('\\n') -%}
  {%- endif -%}
  {%- if loop.index0 > last.user -%}{{- '<think>\\n' + reasoning + '\\n</think>\\n\\n' -}}{%- endif -%}
  {{- content -}}
  {%- for call in message.tool_calls or [] -%}
    {{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' -}}
    {{- call.function.arguments | tojson + '}\\n</tool_call>' -}}
  {%- endfor -%}
{%- else -%}
  {{- message.content -}}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"""

BARE = """\
[gMASK]<sop>
{%- for message in messages -%}
{{- '<|' + message.role + '|>\\n' + message.content -}}
{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>{{ '\\n' }}{%- endif -%}"""

CHANNELS = """\
{%- for message in messages -%}
{%- if message.role == 'assistant' -%}
  {%- if message.reasoning_content -%}
    {{- '<|start|>assistant<|channel|>analysis<|message|>' + message.reasoning_content + '<|end|>' -}}
  {%- endif -%}
  {%- for call in message.tool_calls or [] -%}
    {{- '<|start|>assistant to=functions.' + call.function.name + '<|channel|>commentary<|message|>' -}}
    {{- call.function.arguments | tojson + '<|call|>' -}}
  {%- endfor -%}
  {%- if message.content -%}
    {{- '<|start|>assistant<|channel|>final<|message|>' + message.content -}}
    {{- '<|return|>' if loop.last else '<|end|>' -}}
  {%- endif -%}
{%- elif message.role == 'tool' -%}
  {{- '<|start|>functions.' + messages[loop.index0 - 1].tool_calls[0].function.name -}}
  {{- ' to=assistant<|message|>' + message.content + '<|end|>' -}}
{%- else -%}
  {{- '<|start|>' + message.role + '<|message|>' + message.content + '<|end|>' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}"""

TEMPLATES = {
    "chatml": CHATML, "headers": HEADERS, "inst": INST, "thinking": THINKING, "bare": BARE, "channels": CHANNELS,
}  # fmt: skip

SPECIAL = [
    *("<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "[INST]"),
    *("[/INST]", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|start|>", "<|end|>"),
    *("<|call|>", "<|return|>", "<|channel|>", "<|message|>"),
]
NAMED = {"bos_token": "<s>", "eos_token": "</s>"}

_WORDS = ["Hello", "a\nb", "\n\nlead", "trail \n", "é世界🙂", '{"a": "b"}', " a  b ", "it's", "x" * 20, "<b>", "why? "]


def make_tokenizer(special: Iterable[str] = SPECIAL) -> Tokenizer:
    """Returns a byte-level BPE of a few merges, which straddle what templates put around texts."""
    letters = list(BYTE_ALPHABET)
    merges = [["Ġ", "a"], ["l", "l"], ["Ċ", "Ċ"], ["e", "r"]]
    tokens = [*letters, *("".join(pair) for pair in merges)]
    added = [{"id": len(tokens) + i, "content": text, "special": True} for i, text in enumerate(special)]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    parts = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{**flags, **token} for token in added],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges},
    }
    return Tokenizer.from_str(json.dumps(parts))


def make_conversation(rng: random.Random, *, tools: bool = True, system: bool = True) -> list[dict[str, Any]]:
    """Returns messages whose texts have white space, other scripts and what looks like markup."""

    def text() -> str:
        found = "".join(rng.choices(_WORDS, k=rng.randint(1, 3)))
        return found if found.strip() else "x"

    messages: list[dict[str, Any]] = []
    if system and rng.random() < 0.3:
        messages.append({"role": "system", "content": text()})
    for _ in range(rng.randint(1, 3)):
        messages.append({"role": "user", "content": text()})
        if tools and rng.random() < 0.3:
            call = {"type": "function", "function": {"name": "look", "arguments": {"at": text(), "n": 3}}}
            messages += [
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "content": text()},
            ]
        answer: dict[str, Any] = {"role": "assistant", "content": text()}
        if rng.random() < 0.3:
            answer["reasoning_content"] = text()
        messages.append(answer)
    return messages


_HOSTILE = [
    *(
        "Hello", "", " ", "\n", "\n\nlead", "trail \n", "\r\n", "a\tb", "\u2028", "\ufeff", "\x00\x01", "\x7f",
        "\\u007f", "\x7f0\x7f",
    ),
    *(
        "é世界🙂", "👩\u200d👩\u200d👧", "e\u0301", "\u200f\u202eabc", "ß", "İ", "ﬁⅧ", '"', "'", "\\", "<b>&amp;</b>",
        "x" * 20,
    ),
    *(
        "{{ 7 * 7 }}", "{% for x in y %}", "{#", "{{ messages }}", "%s %d %%", "{0} {a}", '{"a": "b"}', "None",
        "true", "0",
    ),
    *(
        "<think>", "</think>", "<think>\nwhy\n</think>\n\nso", "<tool_call>\n{}\n</tool_call>", "</tool_response>",
        "/no_think",
    ),
    *("CONTINUE_FINAL_MESSAGE_TAG ", "analysis", "final"),
]  # fmt: skip
_TOKENS = [
    "</s>", "<s>", "<|im_end|>", "<|im_start|>assistant\n", "<|eot_id|>", "<|end|>", "[INST]", "[/INST]", "<|call|>",
    "[TOOL_CALLS]",
]  # fmt: skip


def make_hostile(rng: random.Random, *, plain: bool = False) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Returns messages and arguments for a template: syntax, nulls, empty and long texts, parts, calls, odd orders.

    `plain`: no text is empty, or has a special token.
    """
    # What many templates refuse is left out of every other conversation.
    is_odd, has_parts = rng.random() < 0.5, rng.random() < 0.2

    def text() -> str:
        found = "".join(rng.choices([*_HOSTILE, *([] if plain else _TOKENS)], k=rng.randint(0, 3)))
        found = found * 300 if rng.random() < 0.02 else found
        return "x" + found if plain and not found.strip() else found

    def value(depth: int = 0) -> Any:
        kinds = [text(), "", rng.choice([0, -5, 10**20, 1.5, 1e100]), rng.random() < 0.5, None]
        if depth < 2 and rng.random() < 0.3:
            inner = [value(depth + 1) for _ in range(rng.randint(0, 2))]
            return rng.choice([inner, {text()[:9]: each for each in inner}])
        return rng.choice(kinds)

    def content() -> Any:
        kind = rng.random()
        parts: list[Any] = [{"type": "text", "text": text()} for _ in range(rng.randint(0, 3))]
        if not is_odd:
            return [{"type": "text", "text": text()}] if has_parts else text()
        if kind < 0.05:
            return [*parts, rng.choice([{"type": "image"}, "plain", {"type": "text"}])]
        return text() if kind < 0.85 else None if kind < 0.9 else parts

    def call() -> dict[str, Any]:
        arguments = {"at": text()} if rng.random() < 0.5 else rng.choice([{"n": value()}, {}, '{"a": 1}', text()])
        made = {"name": rng.choice(["look", "look", "é", text()]), "arguments": arguments}
        whole = {"type": "function", "function": made, **rng.choice([{}, {"id": "abcdefghi"}])}
        return whole if rng.random() < 0.95 else made

    messages: list[dict[str, Any]] = []
    if is_odd and rng.random() < 0.6:
        messages.append({"role": rng.choice(["system", "system", "developer"]), "content": content()})
    for _ in range(rng.randint(1, 3)):
        if not is_odd or rng.random() < 0.95:
            messages.append({"role": "user", "content": content()})
        if is_odd and rng.random() < 0.5:
            calls = [call() for _ in range(rng.randint(0, 2))]
            messages.append({"role": "assistant", "content": rng.choice(["", None, text()]), "tool_calls": calls})
            for _ in range(rng.randint(1, 2)):
                named = rng.choice([{}, {"name": "look"}, {"tool_call_id": "abcdefghi", "name": "look"}])
                messages.append({"role": "tool", "content": content(), **named})
        if not is_odd or rng.random() < 0.95 or not messages:
            thought = {rng.choice(["reasoning_content", "thinking", "reasoning"]): text()}
            messages.append({"role": "assistant", "content": content(), **(thought if rng.random() < 0.3 else {})})
    fields = {
        "at": {"type": "string", "description": text()},
        "n": {"type": "integer", "description": "n", "enum": [1, 2]},
    }
    schema = {"type": "object", "properties": fields, "required": ["at"]}
    tool = {"type": "function", "function": {"name": "look", "description": text(), "parameters": schema}}
    arguments: dict[str, Any] = {}
    if rng.random() < 0.3:
        arguments["tools"] = [tool] * rng.randint(1, 2)
        arguments["functions"], arguments["datetime"] = text(), "today"
    if rng.random() < 0.05:
        arguments["documents"] = [{"title": text(), "text": text()}]
    if rng.random() < 0.2:
        arguments["enable_thinking"] = rng.random() < 0.5
    return messages, arguments
