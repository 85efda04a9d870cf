# SPDX-License-Identifier: Apache-2.0
"""`RenderChat`: conversations to texts."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from tokenmill.pipeline.config.chat import ChatConfig
from tokenmill.pipeline.config.file import with_template
from tokenmill.pipeline.input.nested import without_padding
from tokenmill.pipeline.rows.batching import Computed, RowTransform
from tokenmill.pipeline.rows.errors import RowsError
from tokenmill.pipeline.tokenizing.chat import open_template
from tokenmill.tokenizer.chat.conversations import Reading, read_conversation

FIELD = "messages"
"""The field of messages in `records_of`."""


class RenderChat(RowTransform):
    """Renders conversations with a chat template, to look at, to ask a model, or to keep.

        rows | RenderChat("build/model")

    Input: rows with messages, or batches. Output: the same with `text`, which is that of `apply_chat_template` of
    `transformers`. `Tokenize(messages=...)` needs no such step. Messages are a list of `{"role", "content"}`, a record
    with that and `tools`, or another shape that jobs read, or JSON of one.
    """

    def __init__(
        self,
        template: str,
        *,
        column: str = "messages",
        output: str = "text",
        add_generation_prompt: bool = False,
        chat: Mapping[str, Any] | None = None,
    ) -> None:
        """Makes the step.

        Args:
          template: a folder with one, as `save_pretrained` writes it, a file of Jinja, or the template itself.
          column: the field with the messages.
          output: the field for the text.
          add_generation_prompt: end with what makes the model answer.
          chat: more keys of the section `chat` of a config: `special_tokens`, `arguments`, `date`.

        Raises:
          ValueError: if there is no template, or it is not one.
        """
        section = section_of({**(chat or {}), "template": template}, None)
        super().__init__(_RenderChat(section, output, add_generation_prompt), column)


def section_of(chat: Mapping[str, Any], tokenizer: str | None) -> ChatConfig:
    """Returns a section `chat` with the template itself; raises ValueError if it is not one, or has no template."""
    try:
        return with_template(ChatConfig.model_validate(dict(chat)), tokenizer)
    except ValidationError as error:
        said = "; ".join(f"chat.{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise ValueError(said) from None


@dataclasses.dataclass
class _RenderChat:
    chat: ChatConfig
    output: str
    add_generation_prompt: bool

    reads = None

    @property
    def fields(self) -> Mapping[str, Any]:
        return {self.output: str}

    def display_data(self) -> Mapping[str, Any]:
        return {"chat": self.chat.model_dump_json(exclude_defaults=True), "prompt": self.add_generation_prompt}

    def prepare(self, given: Any) -> Callable[[Any], Computed]:
        templates = [open_template(self.chat, has_tools=has_tools) for has_tools in (False, True)]
        reading = Reading(parse_arguments=self.chat.parse_arguments)

        def compute(column: Any) -> Computed:
            texts, failed = [], {}
            for row, record in enumerate(records_of(column)):
                try:
                    conversation = read_conversation(record, FIELD, reading)
                    arguments = {**self.chat.arguments, **conversation.arguments}
                    prompt = self.add_generation_prompt
                    template = templates[arguments.get("tools") is not None]
                    text = template.render(conversation.messages, **arguments, add_generation_prompt=prompt)
                    text.encode()
                    texts.append(text)
                except (ValueError, TypeError) as error:
                    failed[row] = error
            if failed:
                raise RowsError(failed)
            return Computed({self.output: pa.array(texts, pa.string())})

        return compute


def records_of(column: Any) -> list[dict[str, Any]]:
    """Returns the records of a batch of messages, of records, or of JSON of one; raises RowsError for what is none."""
    records, failed = [], {}
    for row, value in enumerate(without_padding(column) if isinstance(column, pa.Array) else column):
        try:
            value = json.loads(value) if isinstance(value, str) else value
            records.append(value if isinstance(value, dict) else {FIELD: value})
        except (ValueError, RecursionError) as error:
            failed[row] = error
    if failed:
        raise RowsError(failed)
    return records
