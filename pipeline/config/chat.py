# SPDX-License-Identifier: Apache-2.0
"""The section `chat` of a config: how conversations become text, and what of them is trained."""

import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, Tag

from tokenmill.pipeline.config.sections import ONE, ONE_OR_SEVERAL, SEVERAL, NonEmpty, Section, mistake

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
