# SPDX-License-Identifier: Apache-2.0
"""The whole config: pydantic models, each checked by itself and against the others.

A config says *what* to compute; the command line says where and how to run it. Relative paths in a config
(`input.paths`, `tokenizer.file`, `output.path`) are relative to the working directory, exactly like a path typed into a
shell or given with `--set`, so a value means the same wherever it is written down.

`file.load_config` reads them from a file. Nothing here touches the input, imports Beam or compiles anything.
"""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import model_validator

from tokenmill.pipeline.config import sections
from tokenmill.pipeline.config.chat import ChatConfig
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.languages import DEFAULT, LANGUAGE_COLUMNS, UNKNOWN, LanguagesConfig, TextOptions
from tokenmill.pipeline.config.output import (
    KEEPS_COLUMNS,
    KEEPS_FIELDS,
    KEEPS_LABELS,
    KEEPS_MASK,
    MAX_PARTS,
    OWN_COLUMNS,
    OutputConfig,
)
from tokenmill.pipeline.config.sections import Section, mistake
from tokenmill.pipeline.config.text import Spans, Steps
from tokenmill.pipeline.config.tokenizer import TokenizerConfig
from tokenmill.pipeline.config.training import OPTIONS, CountsConfig

JobName = Literal["run", "count", "train", "tokenize"]
"""The jobs that take a config."""


class Config(Section):
    """One job: what to compute. The command line says where and how to run it."""

    input: InputConfig = InputConfig()
    counts: CountsConfig = CountsConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    output: OutputConfig
    normalize: Steps = []
    """Named steps that change text before the tokenizer sees it, in this order."""
    spans: Spans = []
    """Stretches of raw text, such as URLs, that become one token each; they are found before any step runs."""
    languages: LanguagesConfig | None = None
    """Language identification: rules for text by language, filters, and columns of shards; null: off."""

    chat: ChatConfig | None = None
    """How conversations become tokens, and what of them is trained; null: documents are texts."""

    def given(self) -> dict[str, Any]:
        """Returns this as plain JSON, as someone would write it: with its paths, without what is a default anyway."""
        found = self.model_dump(mode="json", exclude_defaults=True)
        if (train := self.tokenizer.train) is not None:  # whose defaults are those of the model
            defaults = {name: field.default for name, field in type(train).model_fields.items()}
            defaults.update(OPTIONS[train.model])
            options = train.model_dump(mode="json").items()
            found["tokenizer"]["train"] = {name: value for name, value in options if value != defaults[name]}
        return found

    @model_validator(mode="after")
    def _check_labels(self) -> Self:
        if "lang" in self.counts.by and self.languages is None:
            raise mistake("counts.by", self.counts.by, "lang needs the section `languages`; `languages: {}` is enough")
        return self

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        parts, fields = self.output.parts, self.input.keep_fields
        for key in ("pattern", "as_class", "unicode"):
            if (value := getattr(self.tokenizer, key)) and not (self.tokenizer.file or (parts and parts.tokenizers)):
                raise mistake(f"tokenizer.{key}", value, "says how to read `file`, but no file is given")
        if parts is None:
            return self
        for key in ("file", "train"):
            if parts.tokenizers and getattr(self.tokenizer, key) is not None:
                raise mistake(f"tokenizer.{key}", "given", "output.parts.tokenizers names the tokenizers; remove one")
        if parts.train and self.tokenizer.train is None:
            raise mistake("output.parts.train", True, "needs tokenizer.train, which says how")
        if not parts.shares:
            self._check_languages_of_parts()
        elif parts.by == "source" and self.input.sources:
            raise mistake("output.parts.by", parts.by, "would put a whole source into one part; remove it")
        elif parts.by is not None and parts.by not in fields:
            allowed = f"must be one of input.keep_fields, which are {', '.join(map(repr, fields))}" if fields else ""
            raise mistake("output.parts.by", parts.by, f"{allowed or 'input.keep_fields has no fields'}; add it there")
        if parts.only is not None and parts.only not in self.part_names:
            raise mistake("output.parts.only", parts.only, f"must be one of {', '.join(map(repr, self.part_names))}")
        return self

    def _check_languages_of_parts(self) -> None:
        parts, languages, names = self.output.parts, self.languages, self.part_names[1:]
        assert parts is not None
        key = "output.parts.tokenizers" if parts.tokenizers else "counts.languages" if parts.train else "languages.keep"
        if languages is None and not parts.train:
            raise mistake("output.parts.by", parts.by, "needs the section `languages`; with tokenizers, `{}` is enough")
        if key == "languages.keep" and not (languages and languages.keep):
            needed = "needs languages.keep, the languages that have a folder, `und` among them if wanted"
            raise mistake("output.parts.by", parts.by, f"{needed}; documents in others are left out")
        for code in names:
            if languages and (code in languages.drop or (languages.keep and code not in languages.keep)):
                raise mistake(key, code, "languages.keep and drop leave out all documents in this language")
        if len(names) > MAX_PARTS:
            allowed = f"at most {MAX_PARTS} languages have a folder of their own, as a worker has the files of all open"
            raise mistake(key, len(names), f"{allowed}; name fewer, or make several jobs of it")
        if self.output.shuffle is not None:
            raise mistake("output.shuffle", "given", "is for one folder, or for parts with shares; remove one")

    @property
    def part_names(self) -> list[str]:
        """The names of the parts, first the one which has what readers reject; of an output without parts, none."""
        parts = self.output.parts
        if parts is None:
            return []
        if parts.shares:
            largest = min(parts.shares, key=lambda name: (-parts.shares[name], name))
            return [largest, *sorted({*parts.shares} - {largest})]
        if parts.tokenizers or parts.train:
            return [DEFAULT, *sorted({*(parts.tokenizers or self.counts.languages)} - {DEFAULT})]
        kept = self.languages.keep if self.languages is not None else []
        return [UNKNOWN, *sorted({*kept} - {UNKNOWN})]

    @property
    def train_by(self) -> str | None:
        """The label of the counts for each of which a vocabulary is trained; None: one for all."""
        return self.output.parts.by if self.output.parts is not None and self.output.parts.train else None

    @property
    def trained_label(self) -> str:
        """The label of the vocabulary that is trained for a folder; "" if there is one for all folders."""
        parts = self.output.parts
        return parts.only or "" if parts is not None and parts.train else ""

    def for_part(self, name: str, path: str) -> Self:
        """Returns the config of a job that writes one part alone, into `path`."""
        parts = self.output.parts
        assert parts is not None
        output = self.output.model_copy(update={"parts": parts.model_copy(update={"only": name}), "path": path})
        changed: dict[str, Section] = {"output": output}
        if parts.tokenizers:
            changed["tokenizer"] = self.tokenizer.model_copy(update={"file": parts.tokenizers[name]})
        return self.model_copy(update=changed)

    @model_validator(mode="after")
    def _check_kept_fields(self) -> Self:
        for name in self.input.keep_fields:
            if name in (*OWN_COLUMNS, *self.text.columns):
                by = ", which the section `languages` writes; leave out one of them" if name in LANGUAGE_COLUMNS else ""
                raise mistake("input.keep_fields", name, f"is a column of the output already{by}")
        return self

    @model_validator(mode="after")
    def _check_sources(self) -> Self:
        if self.text.keeps_sources:
            if other := [name for name in self.output.formats if name not in KEEPS_COLUMNS]:
                raise mistake("output.format", other[0], f"spans with keep_source need {' or '.join(KEEPS_COLUMNS)}")
            if self.output.packing is not None:
                raise mistake("output.packing", "given", "spans with keep_source need rows that are documents")
            truncation = self.tokenizer.truncation
            if truncation is not None and truncation.side == "left":
                raise mistake("tokenizer.truncation.side", "left", "spans with keep_source need right")
        return self

    @model_validator(mode="after")
    def _check_chat(self) -> Self:
        if not self.input.is_chat:
            for key, value in (("labels", self.output.labels), ("for", self.output.for_)):
                if value:
                    raise mistake(f"output.{key}", value, "is for conversations: set input.messages_field")
            if self.tokenizer.truncation is not None and self.tokenizer.truncation.overflow == "leave_out":
                raise mistake("tokenizer.truncation.overflow", "leave_out", "is for conversations; take cut or rows")
            if self.chat is not None:
                raise mistake(
                    "chat", "given", "is for conversations: set input.messages_field, for example to messages"
                )
            return self
        if self.tokenizer.train is not None:
            raise mistake("input.messages_field", "given", "tokenizes conversations, with an existing tokenizer.file")
        for name, is_there in (
            ("normalize", self.normalize), ("spans", self.spans), ("languages", self.languages is not None),
            ("tokenizer.add_special_tokens", self.tokenizer.add_special_tokens),
            ("output.prepend", self.output.prepend), ("output.append", self.output.append),
        ):  # fmt: skip
            if is_there:
                raise mistake(name, "given", "the chat template makes the text of a conversation, whole; remove it")
        for key in ("pairs", "weights"):
            if self.chat is not None and getattr(self.chat, key):
                self._check_made(f"chat.{key}")
        if self.tokenizer.has_windows:
            raise mistake("tokenizer.truncation.overflow", "rows", "a window of a conversation lacks its beginning")
        if self.output.for_ in ("trl", "megatron") and self.tokenizer.padding is not None:
            raise mistake("tokenizer.padding", "given", f"`for: {self.output.for_}`: it pads batches itself; remove it")
        what, keeps = ("labels", KEEPS_LABELS) if self.output.labels else ("conversations", KEEPS_MASK)
        if other := [name for name in self.output.formats if name not in keeps]:
            problem = f"has no place for which tokens are trained; {what} need {', '.join(keeps)}"
            raise mistake("output.format", other[0], problem)
        return self

    def _check_made(self, key: str) -> None:
        """Raises unless rows have a place for the lists that a key of `chat` adds to them."""
        if self.output.packing is not None:
            raise mistake(key, True, "adds to rows that are documents; remove output.packing")
        if other := [name for name in self.output.formats if name not in KEEPS_FIELDS]:
            raise mistake("output.format", other[0], f"has no place for {key}, which needs {', '.join(KEEPS_FIELDS)}")
        sections = self.input.by_source.values()
        if key == "chat.pairs" and (wrong := next((s for s in sections if s.messages_field != "chosen"), None)):
            raise mistake(f"{wrong.where}.messages_field", wrong.messages_field, "must be chosen with chat.pairs")

    @model_validator(mode="after")
    def _check_fim(self) -> Self:
        if self.output.fim is None:
            return self
        for name, is_there in (
            ("normalize", self.normalize),
            ("spans", self.spans),
            ("languages", self.languages is not None),
            ("input.messages_field", self.input.is_chat),
        ):
            if is_there:
                raise mistake("output.fim", "given", f"cuts texts as they are read; with {name} there are others")
        return self

    @property
    def columns(self) -> list[str]:
        """Columns that the config adds to rows; see `schemas.rows`."""
        return [*self.text.columns, *(["loss_mask"] if self.input.is_chat else [])]

    @property
    def text(self) -> TextOptions:
        """The sections `normalize`, `spans` and `languages` as plain data for workers."""
        return TextOptions(tuple(self.normalize), tuple(self.spans), self.languages)

    @model_validator(mode="after")
    def _check_packing(self) -> Self:
        if self.output.packing is not None and self.tokenizer.padding is not None:
            raise mistake("tokenizer.padding", "given", "packing fills sequences up by itself; remove it")
        if self.output.packing is not None and self.tokenizer.has_windows:
            raise mistake(
                "tokenizer.truncation.overflow", "rows", "packing puts all of a document into sequences by itself"
            )
        return self

    @model_validator(mode="after")
    def _check_trained(self) -> Self:
        """Checks settings against a tokenizer that will be trained; an existing one is checked when it is read."""
        truncation, template = self.tokenizer.truncation, self.tokenizer.train and self.tokenizer.add_special_tokens
        for name, token, place in (("prepend", self.output.prepend, "[CLS]"), ("append", self.output.append, "[SEP]")):
            if template and token == place:
                raise mistake(f"output.{name}", token, "tokenizer.add_special_tokens puts it there already")
        if self.tokenizer.train is not None and truncation is not None:
            ends = 0 if self.tokenizer.has_windows else sum(map(bool, (self.output.prepend, self.output.append)))
            least = 2 * bool(template) + ends + (truncation.stride + 1 if self.tokenizer.has_windows else 0)
            if truncation.max_length < least:
                allowed = f"must be at least {least}, for the tokens around a document and tokenizer.truncation.stride"
                raise mistake("tokenizer.truncation.max_length", truncation.max_length, allowed)
        return self

    @model_validator(mode="after")
    def _check_tokens(self) -> Self:
        packing, train = self.output.packing, self.tokenizer.train
        tokens = {"output.prepend": self.output.prepend, "output.append": self.output.append}
        for name, token in tokens.items():
            if token in self.text.tokens:
                raise mistake(name, token, "is the token of a span; name another one")
        if packing is not None:
            tokens |= {f"output.packing.{name}": getattr(packing, name) for name in ("separator", "pad_token")}
        for name, token in tokens.items():
            if train is not None and token is not None and token not in (*train.tokens, *self.text.tokens):
                listed = ", ".join(map(repr, train.tokens))
                allowed = (
                    f"must be one of tokenizer.train.special_tokens, which are {listed}; add it there, or take one"
                )
                raise mistake(name, token, allowed)
        return self


def with_paths(config: Mapping[str, Any], input: str, output: str) -> dict[str, Any]:
    """Returns the plain JSON of a config of a record, which has every key but no path, with these paths."""
    section = dict(config.get("input", {}))
    found = section.get("sources")  # of a record that may be damaged, which validation tells
    given = found.items() if isinstance(found, Mapping) else ()
    sources = {name: {"paths": [input], **each} for name, each in given if isinstance(each, Mapping)}
    section |= {"sources": sources} if sources else {"paths": [input]}
    return {**config, "input": section, "output": {**config.get("output", {}), "path": output}}


def json_schema() -> dict[str, Any]:
    """Returns the JSON Schema of a config file, for editors."""
    return {**sections.json_schema(Config), "title": "TokenMill config"}
