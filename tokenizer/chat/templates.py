# SPDX-License-Identifier: Apache-2.0
"""Chat templates: a conversation becomes a text of which each character can be traced to its message.

`transformers` is the original: the same text for the same arguments, but for `strftime_now`, which tells the date that
the caller gives, so that the same conversation gives the same bytes tomorrow.
"""

import datetime
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2.exceptions

from tokenmill.tokenizer.chat import sandbox
from tokenmill.tokenizer.chat.sandbox import GENERATION, RefusedError, TemplateError
from tokenmill.tokenizer.chat.traced import Origin, Run, Traced, questions

__all__ = ["ChatTemplate", "RefusedError", "Rendered", "TemplateError", "load_template"]

MAX_TEMPLATE = 1 << 20
"""The most characters of a template."""
_MAX_FILE = 64 << 20

_REASONING = "reasoning_content", "thinking", "reasoning"
"""Names of a message's reasoning; `transformers` gives it to templates under the first two."""


class Rendered(NamedTuple):
    """A conversation as text."""

    text: str
    runs: tuple[Run, ...]
    """Which characters of the text come from which message, in the order of the text."""
    generated: tuple[tuple[int, int], ...]
    """Where `{% generation %}` blocks begin and stop in the text."""
    compares: bool
    """Whether the template has asked if a text of a message equals another."""


class ChatTemplate:
    """Renders conversations, and tells which characters of the text come from which message.

    Source: `transformers.PreTrainedTokenizerBase.apply_chat_template`, with `tokenize=False`.
    """

    def __init__(self, source: str, tokens: Mapping[str, str] | None = None, date: datetime.date | None = None) -> None:
        """Compiles a template.

        Args:
          source: the template.
          tokens: special tokens by the names under which templates know them: `bos_token`, `eos_token`, ...
          date: what `strftime_now` tells, at noon; None: a template that asks for the date is refused.

        Raises:
          TemplateError: if it is not a template, or too large.
        """
        if len(source) > MAX_TEMPLATE:
            raise TemplateError(f"a template of {len(source):,} characters; at most {MAX_TEMPLATE:,} are read")
        self.source = source
        self.tokens = dict(tokens or {})
        self.date = date
        environment = sandbox.Environment()
        environment.globals["strftime_now"] = self._strftime_now
        try:
            self._template = environment.from_string(source)
        except (jinja2.exceptions.TemplateError, RecursionError, SyntaxError, MemoryError) as error:
            raise TemplateError(f"not a chat template: {_describe(error)}") from None
        self.has_generation = re.search(r"\{%-?\s*generation\s*-?%\}", source) is not None
        """Whether it marks what the model writes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return ChatTemplate, (self.source, self.tokens, self.date)

    def _strftime_now(self, form: str) -> str:
        if self.date is None:
            raise TemplateError("it asks for today's date, which makes other bytes each day; set chat.date to a date")
        return datetime.datetime.combine(self.date, datetime.time(12)).strftime(form)

    def render(self, messages: Sequence[Mapping[str, Any]], **arguments: Any) -> str:
        """Returns the text of a conversation.

        Args:
          messages: dicts as JSON has them, with `role` and what the template reads: `content`, `tool_calls`, ...
          **arguments: as for `apply_chat_template`: `tools`, `documents`, `add_generation_prompt`,
            `continue_final_message`, and the template's own, such as `enable_thinking`.

        Raises:
          RefusedError: if the template does not take the conversation; TemplateError: if it fails.
        """
        return _plain(self._render(messages, arguments, is_traced=False))

    def trace(self, messages: Sequence[Mapping[str, Any]], **arguments: Any) -> Rendered:
        """Renders a conversation as `render` does, and tells where its characters come from.

        Raises:
          RefusedError, TemplateError: as `render`; and if the text is not what `render` returns.
        """
        before = questions.n_equal
        text = self._render(messages, arguments, is_traced=True)
        compares = questions.n_equal > before
        runs = sorted(text.runs) if isinstance(text, Traced) else []
        plain = _plain(text)
        if plain != self.render(messages, **arguments):
            raise TemplateError("the template renders texts differently when they are traced")
        generated = tuple((run.start, run.stop) for run in runs if run.origin == GENERATION)
        return Rendered(plain, tuple(run for run in runs if run.origin != GENERATION), generated, compares)

    def _render(self, messages: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any], *, is_traced: bool) -> str:
        arguments = dict(arguments)
        continues = arguments.pop("continue_final_message", False)
        if continues and arguments.get("add_generation_prompt"):
            raise TemplateError("add_generation_prompt and continue_final_message exclude each other")
        given = {"tools": None, "documents": None, "add_generation_prompt": False, **self.tokens, **arguments}
        chat = [_as_in_transformers(message) for message in messages]
        last = ""
        if continues:
            chat, last = _with_tag(chat)
        if is_traced:
            chat = [_traced_message(i, message) for i, message in enumerate(chat)]
        sandbox.begin(len(chat))
        try:
            text = self._template.render(messages=chat, **given)
        except TemplateError:
            raise
        except RecursionError:
            raise TemplateError("the template calls itself too deep") from None
        except Exception as error:  # a template can make any operation fail
            raise TemplateError(_describe(error)) from None
        return _until_tag(text, last) if continues else text


def _plain(text: str) -> str:
    return "".join([text, ""])  # also of a string of another class


_TAG = "CONTINUE_FINAL_MESSAGE_TAG "


def _with_tag(chat: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """Returns messages with a tag behind the last text, and this text."""
    content = chat[-1].get("content") if chat else None
    if isinstance(content, str):
        return [*chat[:-1], {**chat[-1], "content": content + _TAG}], content
    texts = [i for i, part in enumerate(content or ()) if isinstance(part, dict) and "text" in part]
    if not texts:
        raise TemplateError("continue_final_message: the last message has no text to continue")
    parts = list(content or ())
    last = parts[texts[-1]]["text"]
    parts[texts[-1]] = {**parts[texts[-1]], "text": last + _TAG}
    return [*chat[:-1], {**chat[-1], "content": parts}], last


def _until_tag(text: str, last: str) -> str:
    at = text.rfind(_TAG.strip())
    if at < 0 or last.strip() not in text:
        raise TemplateError("continue_final_message: the template does not render the last message as it is")
    is_spaced = text[at : at + len(_TAG)] == _TAG
    return text[:at] if is_spaced else text[:at].rstrip()


def _as_in_transformers(message: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a message as `transformers` gives it to a template: without nulls, reasoning under the usual names."""
    message = {name: value for name, value in message.items() if value is not None}
    found = next((message[name] for name in _REASONING if name in message), None)
    return message if found is None else {"thinking": found, **message, "reasoning_content": found}


def _traced_message(i: int, message: dict[str, Any]) -> dict[str, Any]:
    fields = {name: "reasoning" if name in _REASONING else name for name in message}
    return {name: _traced_value(value, i, fields[name]) for name, value in message.items()}


def _traced_value(value: Any, message: int, path: str) -> Any:
    if isinstance(value, str):
        return Traced.whole(value, Origin(message, path))
    if isinstance(value, dict):
        return {key: _traced_value(each, message, f"{path}.{key}") for key, each in value.items()}
    if isinstance(value, list):
        return [_traced_value(each, message, f"{path}.{i}") for i, each in enumerate(value)]
    return value


def _describe(error: BaseException) -> str:
    line = getattr(error, "lineno", None)
    # What a template makes of texts, by the name that authors know.
    said = re.sub(r"tokenmill[.\w]*[.](Traced|Safe)|\b(Traced|Safe)(?=')", "str", str(error))
    return f"{said or type(error).__name__}"[:500] + (f" (line {line})" if line else "")


def load_template(
    folder: str | os.PathLike[str], name: str | None = None, date: datetime.date | None = None
) -> ChatTemplate:
    """Loads the chat template of a folder that `save_pretrained` has written, or the template in a file.

    Args:
      folder: a folder with `chat_template.jinja`, `additional_chat_templates/`, or `tokenizer_config.json` with
        `chat_template`; or a file of Jinja.
      name: which of several; None: "default".
      date: as for `ChatTemplate`.

    Raises:
      OSError: if it cannot be read; TemplateError: if there is none, or none of this name.
    """
    path = Path(folder)
    if path.is_file():
        return ChatTemplate(_read(path), date=date)
    settings: dict[str, Any] = {}
    if (config := path / "tokenizer_config.json").is_file():
        try:
            settings = json.loads(_read(config))
        except (ValueError, RecursionError) as error:
            raise TemplateError(f"{config}: not JSON: {error}") from None
    found: dict[str, str] = {}
    of_config = settings.get("chat_template") if isinstance(settings, dict) else None
    if isinstance(of_config, str):
        found["default"] = of_config
    elif isinstance(of_config, list):
        found |= {str(each["name"]): str(each["template"]) for each in of_config if {"name", "template"} <= {*each}}
    if (file := path / "chat_template.jinja").is_file():
        found["default"] = _read(file)
    for file in sorted((path / "additional_chat_templates").glob("*.jinja")):
        found[file.stem] = _read(file)
    wanted = name or "default"
    if wanted not in found:
        allowed = f"it has {', '.join(map(repr, sorted(found)))}" if found else "it has none"
        where = "chat_template.jinja, or chat_template in tokenizer_config.json"
        raise TemplateError(f"{path}: no chat template {wanted!r}; {allowed}. Templates are in {where}")
    return ChatTemplate(found[wanted], _special_tokens(settings), date)


def _special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    tokens = {}
    for name, value in settings.items():
        if name.endswith("_token") and isinstance(value, str | dict):
            content = value if isinstance(value, str) else value.get("content")
            if isinstance(content, str):
                tokens[name] = content
    return tokens


def _read(path: Path) -> str:
    if path.stat().st_size > _MAX_FILE:
        raise TemplateError(f"{path}: {path.stat().st_size:,} bytes; at most {_MAX_FILE:,} are read")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise TemplateError(f"{path}: not UTF-8: {error}") from None
