# SPDX-License-Identifier: Apache-2.0
"""Steps that give texts: `Normalize`, `IdentifyLanguage`, and `RenderChat`, which makes them of conversations."""

import functools
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import schemas
from tokenmill.pipeline.config.file import section
from tokenmill.pipeline.config.text import ChatConfig, with_template
from tokenmill.pipeline.input.columnar import without_padding
from tokenmill.pipeline.rows.arguments import checked
from tokenmill.pipeline.rows.batching import Compute, Computed, RowTransform, Work
from tokenmill.pipeline.rows.elements import Field
from tokenmill.pipeline.rows.errors import RowsError, check_share
from tokenmill.pipeline.rows.tokenizers import GivenTokenizer, TokenizerSource
from tokenmill.pipeline.tokenizing.chat import open_template
from tokenmill.tokenizer.chat.conversations import Reading, read_conversation

FIELD = "messages"
"""The field of messages in `records_of`."""


class Normalize(RowTransform):
    """Normalizes texts, to look at or to keep. `Tokenize` needs no such step: it applies its tokenizer's normalizer.

        rows | Normalize(["mojibake", "nfc"])

    Input: rows with a text, or batches. Output: the same with the text replaced, or in `output`.
    """

    @checked
    def __init__(
        self,
        steps: Sequence[Any] = (),
        *,
        tokenizer: TokenizerSource | None = None,
        column: str = "text",
        output: str | None = None,
    ) -> None:
        """Makes the step.

        Args:
          steps: as in the section `normalize` of a config: names, or mappings of a name to its options.
          tokenizer: its normalizer is applied after the steps; None: steps only.
          column: the field with the text.
          output: the field for the normalized text; None: `column`.

        Raises:
          OSError, ValueError: if a step or the tokenizer cannot be used.
        """
        from tokenmill.tokenizer.text import parse_steps

        if not steps and tokenizer is None:
            raise ValueError("Normalize: give steps, a tokenizer, or both")
        parse_steps(list(steps))
        given = GivenTokenizer(tokenizer) if tokenizer is not None else None
        display = {"steps": json.dumps(steps)} if steps else {}
        of_tokenizer, side_input = (given.display_data(), given.side_input) if given is not None else ({}, None)
        prepare = functools.partial(_normalize, tuple(steps), given, output or column)
        work = Work([Field(column, pa.string())], prepare, {output or column: str})
        super().__init__(work, side_input, **display, **of_tokenizer)


def _normalize(steps: Sequence[Any], of: GivenTokenizer | None, output: str, given: Any) -> Compute:
    from tokenmill.tokenizer.text import TextChain, parse_steps

    chain = TextChain(parse_steps(list(steps))) if steps else None
    normalizer = of.tokenizer(given).normalizer if of is not None else None

    def compute(texts: pa.Array) -> Computed:
        if chain is not None:
            texts, _ = chain.apply(texts)
        if normalizer is not None:
            texts = normalizer.normalize_arrow(texts)
        return Computed({output: texts})

    return compute


class IdentifyLanguage(RowTransform):
    """Identifies the language of every text.

    Input: rows with a text, or batches. Output: the same with `lang`, an ISO 639 code or `und`, `lang_confidence` from
    0 to 1, and `lang_mixed`, whether the text is in several languages.
    """

    @checked
    def __init__(self, *, column: str = "text", threshold: float = 0.5) -> None:
        """Makes the step.

        Args:
          column: the field with the text.
          threshold: with a confidence below this the language is `und`, undetermined.

        Raises:
          ValueError: if `threshold` is not in 0..1.
        """
        check_share("IdentifyLanguage", threshold)
        fields = dict(zip(schemas.LANGUAGES.names, (str, np.float32, bool), strict=True))
        prepare = functools.partial(_identify, threshold)
        super().__init__(Work([Field(column, pa.string())], prepare, fields), threshold=threshold)


def _identify(threshold: float, _: Any) -> Compute:
    from tokenmill.tokenizer.languages import identify

    def compute(texts: pa.Array) -> Computed:
        found = identify(texts, threshold)
        columns = found.codes.cast(pa.string()), pa.array(found.confidence), pa.array(found.mixed)
        return Computed(dict(zip(schemas.LANGUAGES.names, columns, strict=True)))

    return compute


class RenderChat(RowTransform):
    """Renders conversations with a chat template, to look at, to ask a model, or to keep.

        rows | RenderChat("build/model")

    Input: rows with messages, or batches. Output: the same with `text`, which is that of `apply_chat_template` of
    `transformers`. `Tokenize(messages=...)` needs no such step. Messages are a list of `{"role", "content"}`, a record
    with that and `tools`, or another shape that jobs read, or JSON of one.
    """

    @checked
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
        options = section_of({**(chat or {}), "template": template}, None, "RenderChat")
        prepare = functools.partial(_render, options, output, add_generation_prompt)
        display = {"chat": options.model_dump_json(exclude_defaults=True), "prompt": add_generation_prompt}
        super().__init__(Work([Field(column, None)], prepare, {output: str}), **display)


def _render(chat: ChatConfig, output: str, prompt: bool, _: Any) -> Compute:
    templates = [open_template(chat, has_tools=has_tools) for has_tools in (False, True)]
    reading = Reading(parse_arguments=chat.parse_arguments)

    def compute(column: Any) -> Computed:
        texts, failed = [], {}
        for row, record in enumerate(records_of(column)):
            try:
                conversation = read_conversation(record, FIELD, reading)
                arguments = {**chat.arguments, **conversation.arguments}
                template = templates[arguments.get("tools") is not None]
                text = template.render(conversation.messages, **arguments, add_generation_prompt=prompt)
                text.encode()
                texts.append(text)
            except (ValueError, TypeError) as error:
                failed[row] = error
        if failed:
            raise RowsError(failed)
        return Computed({output: pa.array(texts, pa.string())})

    return compute


def section_of(chat: Mapping[str, Any], tokenizer: TokenizerSource | None, step: str) -> ChatConfig:
    """Returns a section `chat` with the template itself; raises ConfigError if it is not one, or has no template.

    A template may be beside a tokenizer that is given by its path.
    """
    path = os.fspath(tokenizer) if isinstance(tokenizer, str | os.PathLike) else None
    return with_template(section(ChatConfig, "chat", chat, step), path)


def records_of(column: Any) -> list[dict[str, Any]]:
    """Returns the records of a batch of messages, of records, or of JSON of one; raises RowsError for what is none."""
    records, failed = [], {}
    for row, value in enumerate(without_padding(column) if isinstance(column, pa.Array) else column):
        try:
            value = json.loads(value) if isinstance(value, str) else value
            records.append(value if isinstance(value, dict) else {FIELD: value})
        except (ValueError, RecursionError) as error:
            failed[row] = ValueError(f"messages that are text must be JSON: {error}")
    if failed:
        raise RowsError(failed)
    return records
