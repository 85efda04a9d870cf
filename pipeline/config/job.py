# SPDX-License-Identifier: Apache-2.0
"""The whole config, and the rules between its sections: all that are broken are told at once.

A config says *what* to compute; the command line says where and how to run it. Relative paths in a config
(`input.paths`, `tokenizer.file`, `output.path`) are relative to the working directory, exactly like a path typed into a
shell or given with `--set`, so a value means the same wherever it is written down.

`Config` checks valid sections against each other, `lacking` a valid config against its job; `file.load_config` does
both. Nothing here touches the input, imports Beam or compiles anything.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self

from pydantic import model_validator

from tokenmill.pipeline.config import sections
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.output import (
    KEEPS_COLUMNS,
    KEEPS_FIELDS,
    KEEPS_LABELS,
    KEEPS_MASK,
    MAX_PARTS,
    OWN_COLUMNS,
    OutputConfig,
    PartsConfig,
)
from tokenmill.pipeline.config.sections import Broken, ConfigError, Section, mistake, mistakes
from tokenmill.pipeline.config.text import (
    DEFAULT,
    LANGUAGE_COLUMNS,
    UNKNOWN,
    ChatConfig,
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
        if broken := [*self._broken()]:
            raise mistakes([mistake(*each) for each in broken])
        return self

    def _broken(self) -> Broken:
        """Yields the first rule between sections that is broken of each kind; all of them are told."""
        return (each for rule in _RULES for each in itertools.islice(rule(self), 1))

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


def lacking(config: Config, job: JobName | None) -> Iterator[str]:
    """Yields what a config lacks for a job, or for any if that is None; and what it has that the job cannot use."""
    tokenizer, parts = config.tokenizer, config.output.parts
    train, has_file = tokenizer.train, tokenizer.file is not None or bool(parts is not None and parts.tokenizers)
    has_counts = train is not None and train.counts is not None and job in (None, "train")
    if not has_counts and not config.input.all_paths:  # only training on existing counts needs no input
        yield "input.paths: required but missing"
    if job is None:
        return
    if job in ("count", "train") and config.input.is_chat:
        yield "input.messages_field: is for the job tokenize; count and train read texts, from input.text_field"
    if has_file and train is not None:
        yield "tokenizer: both file and train are given; remove one, exactly one of them decides the vocabulary"
    elif job == "run" and not has_file and train is None:
        yield "tokenizer: give file, a tokenizer on disk, or train, a vocabulary to learn from the input"
    elif job == "train" and train is None:
        yield "tokenizer.train: required by the job train, for example `train: {vocab_size: 8000}`"
    elif job == "tokenize" and not has_file:
        instead = "; to train and tokenize in one go use the job run" if train is not None else ""
        yield f"tokenizer.file: required by the job tokenize{instead}"
    elif job == "run" and train is not None and isinstance(train.vocab_size, list):
        yield "tokenizer.train.vocab_size: the job run tokenizes with one size; for several use the job train"
    elif job == "run" and parts is not None and parts.train and not (parts.by == "lang" and config.counts.languages):
        instead = "name those with a vocabulary of their own, as in `counts: {by: [lang], languages: [zh]}`"
        yield f"output.parts.train: with `by: lang`, run trains one for each of counts.languages; {instead}"


def _labels(config: Config) -> Broken:
    """Counts by language need languages."""
    if "lang" in config.counts.by and config.languages is None:
        yield "counts.by", config.counts.by, "lang needs the section `languages`; `languages: {}` is enough"


def _parts(config: Config) -> Broken:
    """Each part has a tokenizer, and what decides about parts is known."""
    parts, fields, tokenizer = config.output.parts, config.input.keep_fields, config.tokenizer
    for key in ("pattern", "as_class", "unicode"):
        if (value := getattr(tokenizer, key)) and not (tokenizer.file or (parts and parts.tokenizers)):
            yield f"tokenizer.{key}", value, "says how to read `file`, but no file is given"
    if parts is None:
        return
    for key in ("file", "train"):
        if parts.tokenizers and getattr(tokenizer, key) is not None:
            yield f"tokenizer.{key}", ..., "output.parts.tokenizers names the tokenizers; remove one"
    if parts.train and tokenizer.train is None:
        yield "output.parts.train", True, "needs tokenizer.train, which says how"
    if not parts.shares:
        yield from _languages_of_parts(config, parts)
    elif parts.by == "source" and config.input.sources:
        yield "output.parts.by", parts.by, "would put a whole source into one part; remove it"
    elif parts.by is not None and parts.by not in fields:
        allowed = f"must be one of input.keep_fields, which are {', '.join(map(repr, fields))}" if fields else ""
        yield "output.parts.by", parts.by, f"{allowed or 'input.keep_fields has no fields'}; add it there"
    if parts.only is not None and parts.only not in config.part_names:
        yield "output.parts.only", parts.only, f"must be one of {', '.join(map(repr, config.part_names))}"


def _languages_of_parts(config: Config, parts: PartsConfig) -> Broken:
    languages, names = config.languages, config.part_names[1:]
    key = "output.parts.tokenizers" if parts.tokenizers else "counts.languages" if parts.train else "languages.keep"
    if languages is None and not parts.train:
        yield "output.parts.by", parts.by, "needs the section `languages`, as in `languages: {keep: [en, zh]}`"
    if key == "languages.keep" and not (languages and languages.keep):
        needed = "needs languages.keep, the languages that have a folder, `und` among them if wanted"
        yield "output.parts.by", parts.by, f"{needed}; documents in others are left out"
    for code in names:
        if languages and (code in languages.drop or (languages.keep and code not in languages.keep)):
            yield key, code, "languages.keep and drop leave out all documents in this language"
    if len(names) > MAX_PARTS:
        allowed = f"at most {MAX_PARTS} languages have a folder of their own, as a worker has the files of all open"
        yield key, len(names), f"{allowed}; name fewer, or make several jobs of it"
    if config.output.shuffle is not None:
        yield "output.shuffle", ..., "is for one folder, or for parts with shares; remove one"


def _kept_fields(config: Config) -> Broken:
    """Kept fields have names of their own."""
    for name in config.input.keep_fields:
        if name in (*OWN_COLUMNS, *config.text.columns):
            by = ", which the section `languages` writes; leave out one of them" if name in LANGUAGE_COLUMNS else ""
            yield "input.keep_fields", name, f"is a column of the output already{by}"


def _kept_spans(config: Config) -> Broken:
    """Spans that keep their text need a place for it."""
    if not config.text.keeps_sources:
        return
    if other := [name for name in config.output.formats if name not in KEEPS_COLUMNS]:
        yield "output.format", other[0], f"spans with keep_source need {' or '.join(KEEPS_COLUMNS)}"
    if config.output.packing is not None:
        yield "output.packing", ..., "spans with keep_source need rows that are documents"
    if config.tokenizer.truncation is not None and config.tokenizer.truncation.side == "left":
        yield "tokenizer.truncation.side", "left", "spans with keep_source need right"


def _texts(config: Config) -> Broken:
    """What only conversations have."""
    if config.input.is_chat:
        return
    for key, value in (("labels", config.output.labels), ("for", config.output.for_)):
        if value:
            yield f"output.{key}", value, "is for conversations: set input.messages_field"
    if config.tokenizer.truncation is not None and config.tokenizer.truncation.overflow == "leave_out":
        yield "tokenizer.truncation.overflow", "leave_out", "is for conversations; take cut or rows"
    if config.chat is not None:
        yield "chat", ..., "is for conversations: set input.messages_field, for example to messages"


def _conversations(config: Config) -> Broken:
    """What conversations allow, and what they need."""
    chat, output, tokenizer = config.chat, config.output, config.tokenizer
    if not config.input.is_chat:
        return
    if tokenizer.train is not None:
        yield "input.messages_field", ..., "tokenizes conversations, with an existing tokenizer.file"
    made = {"tokenizer.add_special_tokens": tokenizer.add_special_tokens}
    for name in _changes_of_text(config, **made, **{"output.prepend": output.prepend, "output.append": output.append}):
        yield name, ..., "the chat template makes the text of a conversation, whole; remove it"
    for key in ("chat.pairs", "chat.weights"):
        if chat is None or not getattr(chat, key.partition(".")[2]):
            continue
        if output.packing is not None:
            yield key, True, "adds to rows that are documents; remove output.packing"
        if other := [name for name in output.formats if name not in KEEPS_FIELDS]:
            yield "output.format", other[0], f"has no place for {key}, which needs {', '.join(KEEPS_FIELDS)}"
        for section in config.input.by_source.values() if key == "chat.pairs" else ():
            if section.messages_field != "chosen":
                yield f"{section.where}.messages_field", section.messages_field, "must be chosen with chat.pairs"
    if tokenizer.has_windows:
        yield "tokenizer.truncation.overflow", "rows", "a window of a conversation lacks its beginning"
    if output.for_ in ("trl", "megatron") and tokenizer.padding is not None:
        yield "tokenizer.padding", ..., f"`for: {output.for_}`: it pads batches itself; remove it"
    what, keeps = ("labels", KEEPS_LABELS) if output.labels else ("conversations", KEEPS_MASK)
    if other := [name for name in output.formats if name not in keeps]:
        problem = f"has no place for which tokens are trained; {what} need {', '.join(keeps)}"
        yield "output.format", other[0], problem


def _changes_of_text(config: Config, **more: object) -> list[str]:
    """Returns the keys of a config that change texts, and those of `more` that are set."""
    own = {"normalize": config.normalize, "spans": config.spans, "languages": config.languages is not None}
    return [name for name, value in {**own, **more}.items() if value]


def _fim(config: Config) -> Broken:
    """Fill in the middle takes texts as they are read."""
    for name in _changes_of_text(config, **{"input.messages_field": config.input.is_chat}):
        if config.output.fim is not None:
            yield "output.fim", ..., f"cuts texts as they are read; with {name} there are others"


def _packing(config: Config) -> Broken:
    """Packing decides itself about the ends of rows."""
    if config.output.packing is not None and config.tokenizer.padding is not None:
        yield "tokenizer.padding", ..., "packing fills sequences up by itself; remove it"
    if config.output.packing is not None and config.tokenizer.has_windows:
        yield (
            "tokenizer.truncation.overflow",
            "rows",
            "packing puts all of a document into sequences by itself; remove one",
        )


def _trained(config: Config) -> Broken:
    """A tokenizer that will be trained has what rows need; an existing one is checked when it is read."""
    tokenizer, output = config.tokenizer, config.output
    truncation, template = tokenizer.truncation, tokenizer.train and tokenizer.add_special_tokens
    for name, token, place in (("prepend", output.prepend, "[CLS]"), ("append", output.append, "[SEP]")):
        if template and token == place:
            yield f"output.{name}", token, "tokenizer.add_special_tokens puts it there already"
    if tokenizer.train is not None and truncation is not None:
        ends = truncation.stride + 1 if tokenizer.has_windows else sum(map(bool, (output.prepend, output.append)))
        if truncation.max_length < (least := 2 * bool(template) + ends):
            allowed = f"must be at least {least}, for the tokens around a document and tokenizer.truncation.stride"
            yield "tokenizer.truncation.max_length", truncation.max_length, allowed


def _tokens(config: Config) -> Broken:
    """Tokens that are put around documents are in the vocabulary, and no spans."""
    packing, train = config.output.packing, config.tokenizer.train
    tokens = {"output.prepend": config.output.prepend, "output.append": config.output.append}
    for name, token in tokens.items():
        if token in config.text.tokens:
            yield name, token, "is the token of a span; name another one"
    if packing is not None:
        tokens |= {f"output.packing.{name}": getattr(packing, name) for name in ("separator", "pad_token")}
        is_padded = packing.incomplete == "pad" and not (packing.separator or packing.pad_token)
        if train is not None and is_padded and not train.has_padding:
            allowed = "must be given, or separator, as tokenizer.train.special_tokens has none that is for padding; or "
            yield "output.packing.pad_token", None, f"{allowed}set incomplete to short"
    for name, token in tokens.items():
        if train is not None and token is not None and token not in (*train.tokens, *config.text.tokens):
            listed = ", ".join(map(repr, train.tokens))
            allowed = f"must be one of tokenizer.train.special_tokens, which are {listed}; add it there, or take one"
            yield name, token, allowed


_RULES = (_labels, _parts, _kept_fields, _kept_spans, _texts, _conversations, _fim, _packing, _trained, _tokens)
"""Rules between sections; the first broken one of each is told."""
