# SPDX-License-Identifier: Apache-2.0
"""The sections `normalize`, `spans`, `languages` and `chat`: what text a tokenizer sees, and what of it is trained.

The libraries that parse steps and spans and know languages are imported only for a config that has some: reading a
config must stay fast.
"""

import datetime
import os
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, Tag, WithJsonSchema
from pydantic_core import PydanticCustomError

from tokenmill.pipeline.config.sections import (
    ONE,
    ONE_OR_SEVERAL,
    SEVERAL,
    Broken,
    ConfigError,
    NonEmpty,
    Section,
    did_you_mean,
    mistake,
)

if TYPE_CHECKING:
    from tokenmill.tokenizer import Tokenizer
    from tokenmill.tokenizer.text import TextTokenizer

Entry = str | dict[str, Any]


def _mistake(index: int, value: object, error: Exception) -> PydanticCustomError:
    allowed = str(error).removeprefix("normalize[0]: ").removeprefix("SpanRule.__init__() ")
    return PydanticCustomError("cross_check", "{allowed}", {"path": str(index), "value": value, "allowed": allowed})


def _check_steps(entries: list[Entry]) -> list[Entry]:
    if not entries:
        return entries
    from tokenmill.tokenizer.text import parse_steps

    for i, entry in enumerate(entries):
        try:
            parse_steps([entry])
        except ValueError as error:
            raise _mistake(i, entry, error) from None
    return entries


def _check_spans(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not entries:
        return entries
    from tokenmill.tokenizer.text import SpanRule

    tokens: dict[str, int] = {}
    for i, entry in enumerate(entries):
        try:
            rule = SpanRule.from_config(entry)
            if rule.token in tokens:
                raise ValueError(f"token {rule.token!r} belongs to spans.{tokens[rule.token]} already; give it its own")
        except ValueError as error:
            raise _mistake(i, entry, error) from None
        tokens[rule.token] = i
    return entries


_PRESETS = ["basic_clean", "clip", "default", "nfc", "nfd", "nfkc", "nfkd", "whitespace_clean"]
_STEPS = [
    "ascii_digits", "bidi", "casefold", "control_characters", "emoji", "ftfy", "full_width", "html_entities",
    "isolate_digits", "lowercase", "mojibake", "punctuation", "regex", "repeated_punctuation", "segment",
    "strip_accents", "tatweel", "whitespace", "zero_width",
]  # fmt: skip
"""Names for the JSON Schema, which editors then suggest; a test compares both lists with the library."""
_STEP_SCHEMA = {
    "anyOf": [
        {"enum": sorted([*_PRESETS, *_STEPS])},
        {"type": "object", "minProperties": 1, "maxProperties": 1, "propertyNames": {"enum": _STEPS}},
    ]
}
_SPAN_SCHEMA = {
    "type": "object",
    "properties": {
        "token": {"type": "string"},
        "find": {"enum": ["number", "url", "email", "emoji", "repeated", "whitespace"]},
        "regex": {"type": "string"},
        "literal": {"type": "string"},
        "least": {"type": "integer", "minimum": 1},
        "keep_source": {"type": "boolean"},
        "seconds": {"type": "number", "exclusiveMinimum": 0},
    },
    "required": ["token"],
    "additionalProperties": False,
}

Steps = Annotated[list[Entry], AfterValidator(_check_steps), WithJsonSchema({"type": "array", "items": _STEP_SCHEMA})]
"""A list of steps, each a name or one name with its options; see docs/explanation/text.md."""
Spans = Annotated[
    list[dict[str, Any]], AfterValidator(_check_spans), WithJsonSchema({"type": "array", "items": _SPAN_SCHEMA})
]
"""A list of spans, each with its token and one of `find`, `regex`, `literal`; see docs/explanation/text.md."""

DEFAULT = "default"
"""The key for all languages that are not named; equal to that of `tokenizer/languages`, which is slow to import."""

LANGUAGE_COLUMNS = ("lang", "lang_confidence", "lang_mixed")
"""Columns of rows that the section writes."""

UNKNOWN = "und"
"""The language of documents whose language cannot be told, as in `tokenmill.tokenizer.languages`."""


BUILTIN = "builtin"
"""The value of `rules` for the rules that come with `tokenmill.tokenizer.languages`."""


def unknown_codes(path: str, codes: Collection[str], *, or_default: bool = False) -> Broken:
    """Yields those of `codes` that are no supported language, nor `default` where that is allowed."""
    if not codes:  # then the library that knows languages is not imported
        return
    from tokenmill.tokenizer.languages import language_codes

    for code in codes:
        if code not in language_codes() and not (or_default and code == DEFAULT):
            near = did_you_mean(code, language_codes())
            yield path, code, f"is not a supported language{near}; see docs/explanation/languages.md"


def _spell_out(rules: object) -> object:
    """Returns the built-in rules for `builtin`, so that the digest and the record of a job have their steps."""
    if isinstance(rules, dict):
        return rules
    if rules != BUILTIN:
        raise mistake("", rules, f"must be {BUILTIN}, or a mapping of languages to lists of steps")
    from tokenmill.tokenizer.languages import RULES

    return {code: list(steps) for code, steps in RULES.items()}


class LanguagesConfig(Section):
    """Identifies the language of every document; `{}` is enough. Only `rules` changes text."""

    threshold: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Documents whose language is identified with less confidence become `und`, undetermined."""
    keep: list[NonEmpty] = []
    """Languages to keep; documents in others, `und` included unless it is listed, are left out. Empty keeps all."""
    drop: list[NonEmpty] = []
    """Languages to leave out."""
    drop_mixed: bool = False
    """Leave out documents in several languages."""
    rules: Annotated[
        dict[NonEmpty, Steps],
        BeforeValidator(_spell_out, json_schema_input_type=dict[NonEmpty, Steps] | Literal["builtin"]),
    ] = {}
    """Steps by language, applied after `normalize`; `default` is for all others, which otherwise stay as they are.
    `builtin`: the rules in docs/explanation/languages.md."""

    def _broken(self) -> Broken:
        for name in ("keep", "drop", "rules"):
            yield from unknown_codes(name, getattr(self, name), or_default=name == "rules")
        yield from (("drop", code, "is in keep, too") for code in self.keep if code in self.drop)


@dataclass(frozen=True)
class TextOptions:
    """The sections `normalize`, `spans` and `languages`, for workers."""

    normalize: tuple[Entry, ...] = ()
    spans: tuple[Mapping[str, Any], ...] = ()
    languages: LanguagesConfig | None = None

    def __bool__(self) -> bool:
        return bool(self.normalize or self.spans or self.languages)

    @property
    def keeps_sources(self) -> bool:
        """Whether any span keeps its text."""
        return any(span.get("keep_source") for span in self.spans)

    @property
    def columns(self) -> list[str]:
        """Columns that these sections add to rows; not all formats keep them. See `schemas.rows`."""
        sources = ["span_sources"] if self.keeps_sources else []
        return [*sources, *LANGUAGE_COLUMNS] if self.languages is not None else sources

    @property
    def tokens(self) -> list[str]:
        """Tokens of the spans, in order."""
        return [span["token"] for span in self.spans]

    def wrap(self, tokenizer: "Tokenizer") -> "TextTokenizer":
        """Returns `tokenizer` with these sections applied to text first.

        Raises:
          ValueError: if the token of a span already has another role in the tokenizer.
        """
        if self.languages is not None:
            from tokenmill.tokenizer.languages import LanguageTextTokenizer

            rules, threshold = self.languages.rules, self.languages.threshold
            return LanguageTextTokenizer(
                tokenizer, rules=rules, normalize=self.normalize, spans=self.spans, threshold=threshold
            )
        from tokenmill.tokenizer.text import TextTokenizer

        return TextTokenizer(tokenizer, normalize=self.normalize, spans=self.spans)

    def parts(self) -> dict[str, Any]:
        """Returns all that decides how text is changed, as plain JSON: the sections and versions of libraries."""
        if not self:
            return {}
        from tokenmill.tokenizer.text import UNICODE_VERSION

        versions = {name: metadata.version(name) for name in ("ftfy", "regex")}
        versions |= {"unicode": UNICODE_VERSION, "unicodedata": unicodedata.unidata_version}
        parts = {"normalize": list(self.normalize), "spans": [dict(span) for span in self.spans], "versions": versions}
        if self.languages is not None:
            versions["py3langid"] = metadata.version("py3langid")
            parts["languages"] = self.languages.model_dump()
        return parts


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
