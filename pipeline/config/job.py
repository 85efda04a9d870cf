# SPDX-License-Identifier: Apache-2.0
"""The whole config, and the rules between its sections: all that are broken are told at once.

A config says *what* to compute; the command line says where and how to run it. Relative paths in a config
(`input.paths`, `tokenizer.file`, `output.path`) are relative to the working directory, exactly like a path typed into a
shell or given with `--set`, so a value means the same wherever it is written down.

`problems_given` looks at a config as it is written, whose sections may have mistakes of their own; `Config` checks
sections that are valid against each other. `file.load_config` does both. Nothing here touches the input, imports Beam
or compiles anything.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from tokenmill.pipeline.config import sections
from tokenmill.pipeline.config.chat import ChatConfig
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.output import (
    KEEPS_COLUMNS,
    KEEPS_FIELDS,
    KEEPS_LABELS,
    KEEPS_MASK,
    MAX_PARTS,
    OWN_COLUMNS,
    OutputConfig,
)
from tokenmill.pipeline.config.sections import ConfigError, Section, mistake, mistakes
from tokenmill.pipeline.config.text import (
    DEFAULT,
    LANGUAGE_COLUMNS,
    UNKNOWN,
    LanguagesConfig,
    Spans,
    Steps,
    TextOptions,
)
from tokenmill.pipeline.config.tokenizer import OPTIONS, CountsConfig, TokenizerConfig, TruncationConfig

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

    @property
    def columns(self) -> list[str]:
        """Columns that the config adds to rows; see `schemas.rows`."""
        return [*self.text.columns, *(["loss_mask"] if self.input.is_chat else [])]

    @property
    def text(self) -> TextOptions:
        """The sections `normalize`, `spans` and `languages` as plain data for workers."""
        return TextOptions(tuple(self.normalize), tuple(self.spans), self.languages)

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_sections(self)
        return self

    def packing_whole_conversations(self) -> Self:
        """Returns a config whose packing splits no conversation: the rest of one would be trained without its prompt.

        Raises:
          ConfigError: when it is told to, or there is no room for a conversation.
        """
        packing, truncation, key = self.output.packing, self.tokenizer.truncation, "output.packing"
        if packing is None:
            return self
        room = packing.length - (packing.separator is not None)
        if "strategy" in packing.model_fields_set and packing.strategy == "concatenate":
            instead = "would split conversations, and train the rest without its prompt; take best_fit or no_split"
            raise ConfigError([f"{key}.strategy: 'concatenate': {instead}"])
        if room < 2:
            raise ConfigError(
                [f"{key}.length: {packing.length}: too short for a conversation; it has two tokens or more"]
            )
        if truncation is None:
            truncation = TruncationConfig(max_length=room)
        elif truncation.max_length > room:
            allowed = f"a packed sequence has room for {room} tokens of a conversation, which is never split; lower it"
            raise ConfigError([f"tokenizer.truncation.max_length: {truncation.max_length}: {allowed}"])
        if self.output.for_ not in (None, "transformers"):
            if "incomplete" in packing.model_fields_set and packing.incomplete == "pad":
                instead = f"`for: {self.output.for_}` would take padding for a conversation; remove it"
                raise ConfigError([f"{key}.incomplete: 'pad': {instead}"])
            if packing.pad_token is not None:
                raise ConfigError([f"{key}.pad_token: {packing.pad_token!r}: nothing is padded with `for`; remove it"])
            packing = packing.model_copy(update={"incomplete": "short"})
        if "strategy" not in packing.model_fields_set:
            packing = packing.model_copy(update={"strategy": "best_fit"})
        tokenizer = self.tokenizer.model_copy(update={"truncation": truncation})
        output = self.output.model_copy(update={"packing": packing})
        return self.model_copy(update={"tokenizer": tokenizer, "output": output})


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


def problems_given(tree: dict[str, Any], job: JobName | None) -> list[str]:
    """Returns what a config lacks, and what it has that its job cannot use.

    Args:
      tree: the config as it is written.
      job: what it is for; None: any job.
    """
    problems = _missing_input(tree, job)
    if job is not None:
        problems += _missing_for_job(tree, job)
    if job in ("count", "train") and any(each.get("messages_field") for each in _input_sections(tree)):
        allowed = "is for the job tokenize; count and train read texts, from input.text_field"
        problems.append(f"input.messages_field: {allowed}")
    return problems


def _check_sections(config: "Config") -> None:
    """Raises one error for all rules that sections break together."""
    errors = []
    for check in _CHECKS:
        try:
            check(config)
        except PydanticCustomError as error:
            errors.append(error)
    if errors:
        raise mistakes(errors)


def _missing_input(tree: dict[str, Any], job: JobName | None) -> list[str]:
    """Returns what is missing in `input`; only training on existing counts needs no input."""
    section: Any = tree.get("tokenizer")
    train = section.get("train") if isinstance(section, dict) else None
    if isinstance(train, dict) and train.get("counts") is not None and job in (None, "train"):
        return []
    if "input" not in tree:
        return ["input: required but missing"]
    found = tree["input"]
    is_empty = isinstance(found, dict) and "paths" not in found and not found.get("sources")
    return ["input.paths: required but missing"] if is_empty else []


def _input_sections(tree: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the section `input` and those of its sources, as far as they are sections."""
    found: Any = tree.get("input")
    sources = found.get("sources") if isinstance(found, dict) else None
    return [
        each for each in (found, *(sources.values() if isinstance(sources, dict) else ())) if isinstance(each, dict)
    ]


def _missing_for_job(tree: dict[str, Any], job: JobName) -> list[str]:
    """Returns what is wrong with `tokenizer.file` and `tokenizer.train` for `job`; `tree` is not checked otherwise."""
    section = tree.get("tokenizer")
    keys = {key for key, value in section.items() if value is not None} if isinstance(section, dict) else set()
    output, counts = tree.get("output"), tree.get("counts")
    parts = output.get("parts") if isinstance(output, dict) else None
    parts = parts if isinstance(parts, dict) else {}
    if parts.get("tokenizers"):
        keys.add("file")
    if keys >= {"file", "train"}:
        return ["tokenizer: both file and train are given; remove one, exactly one of them decides the vocabulary"]
    if job == "run" and not keys & {"file", "train"}:
        return ["tokenizer: give file, a tokenizer on disk, or train, a vocabulary to learn from the input"]
    if job == "train" and "train" not in keys:
        return ["tokenizer.train: required by the job train, for example `train: {vocab_size: 8000}`"]
    train = section.get("train") if isinstance(section, dict) else None
    if job == "run" and isinstance(train, dict):
        if isinstance(train.get("vocab_size"), list):
            return ["tokenizer.train.vocab_size: the job run tokenizes with one size; for several use the job train"]
        languages = counts.get("languages") if isinstance(counts, dict) else None
        if parts.get("train") and not (parts.get("by") == "lang" and languages):
            instead = "name those with a vocabulary of their own, as in `counts: {by: [lang], languages: [zh]}`"
            return [f"output.parts.train: with `by: lang`, run trains one for each of counts.languages; {instead}"]
    if job == "tokenize" and "file" not in keys:
        instead = "; to train and tokenize in one go use the job run" if "train" in keys else ""
        return [f"tokenizer.file: required by the job tokenize{instead}"]
    return []


def _check_labels(config: "Config") -> None:
    """Counts by language need languages."""
    if "lang" in config.counts.by and config.languages is None:
        raise mistake("counts.by", config.counts.by, "lang needs the section `languages`; `languages: {}` is enough")


def _check_parts(config: "Config") -> None:
    """Each part has a tokenizer, and what decides about parts is known."""
    parts, fields = config.output.parts, config.input.keep_fields
    for key in ("pattern", "as_class", "unicode"):
        if (value := getattr(config.tokenizer, key)) and not (config.tokenizer.file or (parts and parts.tokenizers)):
            raise mistake(f"tokenizer.{key}", value, "says how to read `file`, but no file is given")
    if parts is None:
        return
    for key in ("file", "train"):
        if parts.tokenizers and getattr(config.tokenizer, key) is not None:
            raise mistake(f"tokenizer.{key}", ..., "output.parts.tokenizers names the tokenizers; remove one")
    if parts.train and config.tokenizer.train is None:
        raise mistake("output.parts.train", True, "needs tokenizer.train, which says how")
    if not parts.shares:
        _check_languages_of_parts(config)
    elif parts.by == "source" and config.input.sources:
        raise mistake("output.parts.by", parts.by, "would put a whole source into one part; remove it")
    elif parts.by is not None and parts.by not in fields:
        allowed = f"must be one of input.keep_fields, which are {', '.join(map(repr, fields))}" if fields else ""
        raise mistake("output.parts.by", parts.by, f"{allowed or 'input.keep_fields has no fields'}; add it there")
    if parts.only is not None and parts.only not in config.part_names:
        raise mistake("output.parts.only", parts.only, f"must be one of {', '.join(map(repr, config.part_names))}")


def _check_languages_of_parts(config: "Config") -> None:
    parts, languages, names = config.output.parts, config.languages, config.part_names[1:]
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
    if config.output.shuffle is not None:
        raise mistake("output.shuffle", ..., "is for one folder, or for parts with shares; remove one")


def _check_kept_fields(config: "Config") -> None:
    """Kept fields have names of their own."""
    for name in config.input.keep_fields:
        if name in (*OWN_COLUMNS, *config.text.columns):
            by = ", which the section `languages` writes; leave out one of them" if name in LANGUAGE_COLUMNS else ""
            raise mistake("input.keep_fields", name, f"is a column of the output already{by}")


def _check_kept_spans(config: "Config") -> None:
    """Spans that keep their text need a place for it."""
    if config.text.keeps_sources:
        if other := [name for name in config.output.formats if name not in KEEPS_COLUMNS]:
            raise mistake("output.format", other[0], f"spans with keep_source need {' or '.join(KEEPS_COLUMNS)}")
        if config.output.packing is not None:
            raise mistake("output.packing", ..., "spans with keep_source need rows that are documents")
        truncation = config.tokenizer.truncation
        if truncation is not None and truncation.side == "left":
            raise mistake("tokenizer.truncation.side", "left", "spans with keep_source need right")


def _check_chat(config: "Config") -> None:
    """What conversations allow, and what they need."""
    if not config.input.is_chat:
        for key, value in (("labels", config.output.labels), ("for", config.output.for_)):
            if value:
                raise mistake(f"output.{key}", value, "is for conversations: set input.messages_field")
        if config.tokenizer.truncation is not None and config.tokenizer.truncation.overflow == "leave_out":
            raise mistake("tokenizer.truncation.overflow", "leave_out", "is for conversations; take cut or rows")
        if config.chat is not None:
            raise mistake("chat", ..., "is for conversations: set input.messages_field, for example to messages")
        return
    if config.tokenizer.train is not None:
        raise mistake("input.messages_field", ..., "tokenizes conversations, with an existing tokenizer.file")
    for name, is_there in (
        ("normalize", config.normalize), ("spans", config.spans), ("languages", config.languages is not None),
        ("tokenizer.add_special_tokens", config.tokenizer.add_special_tokens),
        ("output.prepend", config.output.prepend), ("output.append", config.output.append),
    ):  # fmt: skip
        if is_there:
            raise mistake(name, ..., "the chat template makes the text of a conversation, whole; remove it")
    for key in ("pairs", "weights"):
        if config.chat is not None and getattr(config.chat, key):
            _check_made(config, f"chat.{key}")
    if config.tokenizer.has_windows:
        raise mistake("tokenizer.truncation.overflow", "rows", "a window of a conversation lacks its beginning")
    if config.output.for_ in ("trl", "megatron") and config.tokenizer.padding is not None:
        raise mistake("tokenizer.padding", ..., f"`for: {config.output.for_}`: it pads batches itself; remove it")
    what, keeps = ("labels", KEEPS_LABELS) if config.output.labels else ("conversations", KEEPS_MASK)
    if other := [name for name in config.output.formats if name not in keeps]:
        problem = f"has no place for which tokens are trained; {what} need {', '.join(keeps)}"
        raise mistake("output.format", other[0], problem)


def _check_made(config: "Config", key: str) -> None:
    """Raises unless rows have a place for the lists that a key of `chat` adds to them."""
    if config.output.packing is not None:
        raise mistake(key, True, "adds to rows that are documents; remove output.packing")
    if other := [name for name in config.output.formats if name not in KEEPS_FIELDS]:
        raise mistake("output.format", other[0], f"has no place for {key}, which needs {', '.join(KEEPS_FIELDS)}")
    sections = config.input.by_source.values()
    if key == "chat.pairs" and (wrong := next((s for s in sections if s.messages_field != "chosen"), None)):
        raise mistake(f"{wrong.where}.messages_field", wrong.messages_field, "must be chosen with chat.pairs")


def _check_fim(config: "Config") -> None:
    """Fill in the middle takes texts as they are read."""
    if config.output.fim is None:
        return
    for name, is_there in (
        ("normalize", config.normalize),
        ("spans", config.spans),
        ("languages", config.languages is not None),
        ("input.messages_field", config.input.is_chat),
    ):
        if is_there:
            raise mistake("output.fim", ..., f"cuts texts as they are read; with {name} there are others")


def _check_packing(config: "Config") -> None:
    """Packing decides itself about the ends of rows."""
    if config.output.packing is not None and config.tokenizer.padding is not None:
        raise mistake("tokenizer.padding", ..., "packing fills sequences up by itself; remove it")
    if config.output.packing is not None and config.tokenizer.has_windows:
        raise mistake(
            "tokenizer.truncation.overflow", "rows", "packing puts all of a document into sequences by itself"
        )


def _check_trained(config: "Config") -> None:
    """A tokenizer that will be trained has what rows need; an existing one is checked when it is read."""
    truncation, template = config.tokenizer.truncation, config.tokenizer.train and config.tokenizer.add_special_tokens
    for name, token, place in (("prepend", config.output.prepend, "[CLS]"), ("append", config.output.append, "[SEP]")):
        if template and token == place:
            raise mistake(f"output.{name}", token, "tokenizer.add_special_tokens puts it there already")
    if config.tokenizer.train is not None and truncation is not None:
        ends = 0 if config.tokenizer.has_windows else sum(map(bool, (config.output.prepend, config.output.append)))
        least = 2 * bool(template) + ends + (truncation.stride + 1 if config.tokenizer.has_windows else 0)
        if truncation.max_length < least:
            allowed = f"must be at least {least}, for the tokens around a document and tokenizer.truncation.stride"
            raise mistake("tokenizer.truncation.max_length", truncation.max_length, allowed)


def _check_tokens(config: "Config") -> None:
    """Tokens that are put around documents are in the vocabulary, and no spans."""
    packing, train = config.output.packing, config.tokenizer.train
    tokens = {"output.prepend": config.output.prepend, "output.append": config.output.append}
    for name, token in tokens.items():
        if token in config.text.tokens:
            raise mistake(name, token, "is the token of a span; name another one")
    if packing is not None:
        tokens |= {f"output.packing.{name}": getattr(packing, name) for name in ("separator", "pad_token")}
    for name, token in tokens.items():
        if train is not None and token is not None and token not in (*train.tokens, *config.text.tokens):
            listed = ", ".join(map(repr, train.tokens))
            allowed = f"must be one of tokenizer.train.special_tokens, which are {listed}; add it there, or take one"
            raise mistake(name, token, allowed)


_CHECKS: tuple[Callable[["Config"], None], ...] = (
    _check_labels,
    _check_parts,
    _check_kept_fields,
    _check_kept_spans,
    _check_chat,
    _check_fim,
    _check_packing,
    _check_trained,
    _check_tokens,
)
