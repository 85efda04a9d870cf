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

from tokenmill.tokenizer.chat import renderer
from tokenmill.tokenizer.chat.errors import RefusedError, TemplateError, TemplateLimitError
from tokenmill.tokenizer.chat.traced import Origin, Run

__all__ = [
    "ChatTemplate",
    "RefusedError",
    "Rendered",
    "TemplateError",
    "TemplateLimitError",
    "load_template",
    "read_end_tokens",
]

MAX_TEMPLATE = 1 << 20
"""The most characters of a template."""
_MAX_FILE = 64 << 20

_ERRORS = {"refused": RefusedError, "failed": TemplateError, "limit": TemplateLimitError}

Job = tuple[Sequence[Mapping[str, Any]], Mapping[str, Any]]


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
          TemplateError: if it is not a template, or too large; TemplateLimitError: if compiling it takes too much.
        """
        if len(source) > MAX_TEMPLATE:
            raise TemplateError(f"a template of {len(source):,} characters; at most {MAX_TEMPLATE:,} are read")
        self.source = source
        self.tokens = dict(tokens or {})
        self.date = date
        self._ask([], is_traced=False)
        uncommented = re.sub(r"\{#.*?#\}", "", source, flags=re.DOTALL)
        self.has_generation = re.search(r"\{%-?\s*generation\s*-?%\}", uncommented) is not None
        """Whether it marks what the model writes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return ChatTemplate, (self.source, self.tokens, self.date)

    def render(self, messages: Sequence[Mapping[str, Any]], **arguments: Any) -> str:
        """Returns the text of a conversation.

        Args:
          messages: dicts as JSON has them, with `role` and what the template reads: `content`, `tool_calls`, ...
          **arguments: as for `apply_chat_template`: `tools`, `documents`, `add_generation_prompt`,
            `continue_final_message`, and the template's own, such as `enable_thinking`.

        Raises:
          RefusedError: if the template does not take the conversation; TemplateLimitError: if it takes too much time or
          memory; TemplateError: if it fails.
        """
        (found,) = self.render_all([(messages, arguments)])
        if isinstance(found, TemplateError):
            raise found
        return found

    def trace(self, messages: Sequence[Mapping[str, Any]], **arguments: Any) -> Rendered:
        """Renders a conversation as `render` does, and tells where its characters come from.

        Raises:
          RefusedError, TemplateError: as `render`; and if the text is not what `render` returns.
        """
        (found,) = self.trace_all([(messages, arguments)])
        if isinstance(found, TemplateError):
            raise found
        return found

    def render_all(self, conversations: Sequence[Job]) -> list[str | TemplateError]:
        """Returns for each conversation, (messages, arguments), what `render` returns or raises."""
        return self._ask(conversations, is_traced=False)

    def trace_all(self, conversations: Sequence[Job]) -> list[Rendered | TemplateError]:
        """Returns for each conversation, (messages, arguments), what `trace` returns or raises."""
        return self._ask(conversations, is_traced=True)

    def _ask(self, conversations: Sequence[Job], *, is_traced: bool) -> list[Any]:
        jobs = [(messages, {**self.tokens, **arguments}) for messages, arguments in conversations]
        return [_read_answer(*each) for each in renderer.render(self.source, self.date, jobs, is_traced=is_traced)]


def _read_answer(kind: str, text: str, *more: Any) -> str | Rendered | TemplateError:
    if kind == "text":
        return text
    if kind != "traced":
        return _ERRORS[kind](text)
    runs, generated, compares = more
    found = tuple(Run(start, stop, Origin(*origin), at) for start, stop, origin, at in runs)
    return Rendered(text, found, tuple((start, stop) for start, stop in generated), compares)


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
    found, tokens = find_templates(path)
    wanted = name or "default"
    if wanted not in found:
        allowed = f"it has {', '.join(map(repr, sorted(found)))}" if found else "it has none"
        where = "chat_template.jinja, or chat_template in tokenizer_config.json"
        raise TemplateError(f"{path}: no chat template {wanted!r}; {allowed}. Templates are in {where}")
    return ChatTemplate(found[wanted], tokens, date)


def find_templates(folder: str | os.PathLike[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the sources of the templates of a folder by their names, and its special tokens by theirs.

    Raises:
      OSError, TemplateError: if a file of the folder cannot be read.
    """
    path = Path(folder)
    settings = _read_json(config) if (config := path / "tokenizer_config.json").is_file() else {}
    found: dict[str, str] = {}
    of_config = settings.get("chat_template")
    if isinstance(of_config, str):
        found["default"] = of_config
    elif isinstance(of_config, list):
        found |= {str(each["name"]): str(each["template"]) for each in of_config if {"name", "template"} <= {*each}}
    if (file := path / "chat_template.jinja").is_file():
        found["default"] = _read(file)
    for file in sorted((path / "additional_chat_templates").glob("*.jinja")):
        found[file.stem] = _read(file)
    return found, _special_tokens(settings)


def read_end_tokens(folder: str | os.PathLike[str]) -> list[str]:
    """Returns the tokens with which a model ends its turns: `eos_token_id` of its `generation_config.json`.

    Args:
      folder: the folder with it and the tokenizer, or a file in there; without such a file there are none.

    Raises:
      OSError: if a file cannot be read; TemplateError: if it is not JSON.
    """
    path = Path(folder) if os.path.isdir(folder) else Path(folder).parent
    config, *others = (path / f"{name}.json" for name in ("generation_config", "tokenizer_config", "tokenizer"))
    if not config.is_file():
        return []
    ids = _read_json(config).get("eos_token_id")
    contents: dict[Any, Any] = {}
    for file in others:
        settings = _read_json(file) if file.is_file() and not contents else {}
        contents |= {str(k): each.get("content") for k, each in settings.get("added_tokens_decoder", {}).items()}
        contents |= {str(each.get("id")): each.get("content") for each in settings.get("added_tokens") or ()}
    wanted = [contents.get(str(each)) for each in (ids if isinstance(ids, list) else [ids])]
    return [each for each in wanted if isinstance(each, str)]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise TemplateError(f"{path}: not JSON: {error}") from None
    return found if isinstance(found, dict) else {}


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
