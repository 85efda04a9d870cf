# SPDX-License-Identifier: Apache-2.0
"""The section `chat` of a config: how conversations become text, and what of them is trained."""

import datetime
import os
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, Tag

from tokenmill.pipeline.config.sections import ONE, ONE_OR_SEVERAL, SEVERAL, ConfigError, NonEmpty, Section, mistake

Role = Literal["system", "developer", "user", "assistant", "tool", "function", "ipython", "observation"]
RESERVED = frozenset({"messages", "add_generation_prompt", "continue_final_message"})
"""Both are those of `tokenizer.chat.conversations`, which a config does not import; a test compares them."""


def _check_date(value: str) -> str:
    datetime.date.fromisoformat(value)
    return value


def _check_arguments(value: dict[str, Any]) -> dict[str, Any]:
    if taken := RESERVED & {*value}:
        raise mistake(min(taken), value[min(taken)], "cannot be given: the job renders conversations whole")
    return value


class ChatConfig(Section):
    """Documents are conversations; a chat template makes text of them. Needs `input.messages_field`."""

    template: NonEmpty | None = None
    """A folder that `save_pretrained` has written, a file of Jinja, or the template itself; null: that of the folder of
    `tokenizer.file`. A finished job has the template itself here."""
    template_name: NonEmpty | None = None
    """Which of several templates; null: `default`, and `tool_use`, if there is one, for records with tools."""
    tool_template: NonEmpty | None = None
    """The template for records with tools: a file of Jinja, or the template itself; null: as `template_name` says. A
    finished job has the template itself here."""
    special_tokens: dict[NonEmpty, str] = {}
    """Tokens by the names that the template uses, such as `bos_token`; else those in `tokenizer_config.json`."""
    arguments: Annotated[dict[NonEmpty, Any], AfterValidator(_check_arguments)] = {}
    """Arguments of the template, such as `enable_thinking: false`; those of a record come first."""
    date: Annotated[str, AfterValidator(_check_date)] | None = None
    """What a template takes for today, as `2026-01-31`; null: one that asks for the date is refused."""
    train: Annotated[
        Annotated[Literal["assistant", "last_assistant", "all"], Tag(ONE)]
        | Annotated[list[Role], Tag(SEVERAL), Field(min_length=1)],
        ONE_OR_SEVERAL,
    ] = "assistant"
    """What is trained: all turns of the assistant, those after the last message of the user, everything, or the
    messages of the roles in a list. `train` or `weight` of a message, or of a part of one, come first."""
    thinking: bool = True
    """Whether the reasoning of a trained turn is trained."""
    tool_calls: bool = True
    """Whether the tool calls of a trained turn are trained."""
    stop: bool = True
    """Whether the stop token of a trained turn is trained; a conversation with a turn without one is then rejected."""
    end_tokens: list[NonEmpty] | None = None
    """Tokens with which the model ends its turns though they begin the header that follows, as `<|user|>` of GLM; null:
    `eos_token_id` of the `generation_config.json` beside the tokenizer."""
    on_bad_mask: Literal["fail", "warn"] = "fail"
    """If what is trained of made-up conversations is wrong, as `tokenmill chat check` says: `fail`, before any work, or
    `warn`."""
    weights: bool = False
    """Rows have `loss_weights`, too: 0 where a token is not trained, else the `weight` of its message, by default 1.
    Without this a weight other than 0 and 1 is a reject."""
    pairs: bool = False
    """Records are preference pairs. A row is the chosen side of one, and has the rejected side, too: `rejected_ids` and
    `rejected_mask`. A pair with a side that cannot be used is rejected whole. Needs `input.messages_field: chosen`."""
    parse_arguments: bool = False
    """Arguments of tool calls that are JSON in a text, as OpenAI writes them, become objects."""
    must_show: list[NonEmpty] = []
    """Fields, such as `tools`, `tool_calls` or `reasoning_content`: a record of which the template does not show one of
    these is rejected. Fields that it does not show are counted in any case."""


def with_template(chat: ChatConfig, tokenizer: str | None) -> ChatConfig:
    """Returns a section with the chat template itself, which workers and later readers of the job need.

    Args:
      chat: the section; without a template, it is that of the tokenizer.
      tokenizer: the file or folder of the tokenizer.

    Raises:
      ConfigError: if there is none, or it is not one.
    """
    from tokenmill.tokenizer.chat.templates import ChatTemplate, find_templates, load_template, read_end_tokens

    source, of_tools, key = chat.template or tokenizer, chat.tool_template, "template"
    try:
        if source is None:
            raise ValueError("name a template, or a tokenizer.file whose folder has one")
        if "{" in source:
            template = ChatTemplate(source)
        else:
            if len(source) > 4096:
                raise ValueError(f"{source[:80]!r}... has no '{{', so it is no template, and is too long for a path")
            if os.path.isfile(source) and chat.template is not None and chat.template_name is not None:
                raise ValueError("template_name is for a folder with several templates; remove it")
            is_file = chat.template is None and not os.path.isdir(source)
            folder = os.path.dirname(source) or "." if is_file else source
            template = load_template(folder, chat.template_name)
            if of_tools is None and chat.template_name is None and os.path.isdir(folder):
                of_tools = find_templates(folder)[0].get("tool_use")  # as transformers does
        beside = tokenizer or ("" if "{" in source else source)
        ends = read_end_tokens(beside) if chat.end_tokens is None and beside else chat.end_tokens
        key = "tool_template"
        if of_tools is not None:
            of_tools = (ChatTemplate(of_tools) if "{" in of_tools else load_template(of_tools)).source
    except (OSError, ValueError) as error:
        raise ConfigError([f"chat.{key}: {error}"]) from None
    if "strftime_now" in template.source + (of_tools or "") and chat.date is None:
        raise ConfigError(["chat.date: the template asks for today's date; set one, so that bytes repeat tomorrow"])
    tokens = {**template.tokens, **chat.special_tokens}
    found = {"template": template.source, "template_name": None, "special_tokens": tokens, "end_tokens": ends}
    return chat.model_copy(update={**found, "tool_template": of_tools})
