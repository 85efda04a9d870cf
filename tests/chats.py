# SPDX-License-Identifier: Apache-2.0
"""Chat templates of the families that are in use, written for these tests, conversations, and a tokenizer for them."""

import json
import random
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
    "chatml": CHATML,
    "headers": HEADERS,
    "inst": INST,
    "thinking": THINKING,
    "bare": BARE,
    "channels": CHANNELS,
}

SPECIAL = [
    *("<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "[INST]"),
    *("[/INST]", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|start|>", "<|end|>"),
    *("<|call|>", "<|return|>", "<|channel|>", "<|message|>"),
]
NAMED = {"bos_token": "<s>", "eos_token": "</s>"}

_WORDS = ["Hello", "a\nb", "\n\nlead", "trail \n", "é世界🙂", '{"a": "b"}', " a  b ", "it's", "x" * 20, "<b>", "why? "]


def make_tokenizer() -> Tokenizer:
    """Returns a byte-level BPE of a few merges, which straddle what templates put around texts."""
    letters = list(BYTE_ALPHABET)
    merges = [["Ġ", "a"], ["l", "l"], ["Ċ", "Ċ"], ["e", "r"]]
    tokens = [*letters, *("".join(pair) for pair in merges)]
    added = [{"id": len(tokens) + i, "content": text, "special": True} for i, text in enumerate(SPECIAL)]
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
