# SPDX-License-Identifier: Apache-2.0
"""Config files: YAML in, checked pydantic models out; every mistake is reported at once.

A config says *what* to compute; where and how to run it is said on the command line. Relative paths in a config
(`input.paths`, `tokenizer.file`, `output.path`) are relative to the working directory, exactly like a path typed into a
shell or given with `--set`, so that a value means the same wherever it is written down.

`load_config` reads a file, applies `key=value` overrides and raises one `ConfigError` that names every mistake by its
path, with the value, what is allowed and the nearest valid name. Nothing here touches the input, imports Beam or
compiles anything.
"""

import difflib
import re
import reprlib
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

import yaml
from pydantic import Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from pipeline.language_config import LanguagesConfig
from pipeline.output_config import KEEPS_COLUMNS, ONE, SEVERAL, OutputConfig
from pipeline.sections import NonEmpty, Section, did_you_mean, mistake
from pipeline.text_config import Spans, Steps, TextOptions
from pipeline.train_config import CountsConfig, TrainConfig

MIB = 1 << 20

MAX_CONFIG_BYTES = MIB
"""A config file larger than this is a mistake (somebody passed data), so it is refused unread."""

Job = Literal["run", "count", "train", "tokenize"]
"""The jobs that take a config."""

BYTE_TOKENS = tuple(f"<0x{byte:02X}>" for byte in range(256))
"""The vocabulary entries that the OOV policy `byte` emits."""


class InputConfig(Section):
    """Where documents come from and how to find them in a file."""

    paths: Annotated[list[NonEmpty], Field(min_length=1)] = []
    """Files or glob patterns, local or of any filesystem Beam knows (`gs://`, `s3://`, `hdfs://`)."""
    format: Literal["auto", "jsonl", "text", "parquet"] = "auto"
    """`auto` decides per file by its name without the compression suffix."""
    compression: Literal["auto", "none", "gzip", "zstd", "bz2"] = "auto"
    """`auto` decides per file by its first bytes."""
    document: Literal["line", "file", "blank_line"] = "line"
    """For `text`: a document per line, per file, or separated by blank lines."""
    text_field: NonEmpty = "text"
    """For `jsonl` and `parquet`: the field that holds the text."""
    id_field: NonEmpty | None = "id"
    """The field that holds the document's id; where absent or null the id is `name:offset`."""
    split_bytes: Annotated[int, Field(ge=1)] = 32 * MIB
    """Large uncompressed files are cut at multiples of this; small files are grouped up to it."""
    max_document_bytes: Annotated[int, Field(ge=1, le=1 << 30)] = 64 * MIB
    """Longer records are rejected with the reason `too_large`."""
    max_rejected: Annotated[int, Field(ge=0)] | None = None
    """The job stops once more records than this are rejected; null: never. It can be raised and the job resumed."""
    max_rejected_fraction: Annotated[float, Field(ge=0, le=1)] | None = None
    """The same as a share of the records read, once they are 10,000 and at the end."""
    sample: Annotated[float, Field(gt=0, le=1)] | None = None
    """The fraction of the documents to use, chosen by hash; null: all. A smaller sample is part of a larger one."""
    sample_seed: Annotated[int, Field(ge=0)] = 0
    """Picks one of many samples."""

    @model_validator(mode="after")
    def _check_document(self) -> Self:
        if self.document != "line" and self.format in ("jsonl", "parquet"):
            raise mistake("document", self.document, f"applies to format text, but format is {self.format!r}")
        return self


class TruncationConfig(Section):
    """Rows longer than `max_length` tokens are cut."""

    max_length: Annotated[int, Field(ge=1)]
    """Tokens per row at most, special tokens included."""
    side: Literal["right", "left"] = "right"
    """The end that is cut off."""


class PaddingConfig(Section):
    """Rows shorter than `length` tokens are filled with the padding token."""

    length: Annotated[int, Field(ge=1)]
    """Rows shorter than this are padded up to it; longer rows are an error unless truncation is on."""
    side: Literal["right", "left"] = "right"
    """The end that is filled."""


class TokenizerConfig(Section):
    """Either `file`: a tokenizer as it is on disk, or `train`: one learned from the input."""

    file: NonEmpty | None = None
    """A `vocab.txt`, a `tokenizer.json`, or a directory that holds one of them."""
    train: TrainConfig | None = None
    lowercase: bool | None = None
    """null: what the file says; for `vocab.txt` and `train`, true."""
    strip_accents: bool | None = None
    """null: what the file says, else as `lowercase`."""
    oov: Literal["word", "contain", "char", "byte"] | None = None
    """What an unknown character costs: the word, itself, the word's pieces, or nothing; null: what the file says."""
    add_special_tokens: bool = False
    """Frame every row as the tokenizer's template says, for BERT `[CLS] ... [SEP]`."""
    truncation: TruncationConfig | None = None
    padding: PaddingConfig | None = None

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if self.padding and self.truncation and self.padding.length < self.truncation.max_length:
            raise mistake(
                "padding.length",
                self.padding.length,
                f"must be at least truncation.max_length, which is {self.truncation.max_length}",
            )
        return self

    @model_validator(mode="after")
    def _check_special_tokens(self) -> Self:
        if self.train is None:
            return self
        tokens = self.train.tokens
        needed = {"padding": ["[PAD]"] if self.padding else []}
        needed["add_special_tokens"] = ["[CLS]", "[SEP]"] if self.add_special_tokens else []
        needed["oov: byte"] = list(BYTE_TOKENS) if self.oov == "byte" else []
        for why, names in needed.items():
            if missing := [name for name in names if name not in tokens]:
                more = f" and {len(missing) - 2} more" if len(missing) > 2 else ""
                listed = ", ".join(missing[:2]) + more
                raise mistake("train.special_tokens", tokens, f"must contain {listed} because `{why}` needs them")
        return self


class Config(Section):
    """One job: what to compute. Where and how to run it is said on the command line."""

    input: InputConfig = InputConfig()
    counts: CountsConfig = CountsConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    output: OutputConfig
    normalize: Steps = []
    """What happens to text before the tokenizer sees it: named steps, in order."""
    spans: Spans = []
    """What is found in raw text and becomes a token of its own, before anything else happens."""
    languages: LanguagesConfig | None = None
    """Languages of documents: rules for their text, filters, a column of shards; null does without."""

    @model_validator(mode="after")
    def _check_labels(self) -> Self:
        if "lang" in self.counts.by and self.languages is None:
            raise mistake("counts.by", self.counts.by, "lang needs the section `languages`; `languages: {}` is enough")
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

    @property
    def text(self) -> TextOptions:
        """What happens to text before the tokenizer sees it."""
        languages = self.languages.options if self.languages is not None else None
        return TextOptions(tuple(self.normalize), tuple(self.spans), languages)

    @model_validator(mode="after")
    def _check_packing(self) -> Self:
        packing, train = self.output.packing, self.tokenizer.train
        if packing is None:
            return self
        if self.tokenizer.padding is not None:
            raise mistake("tokenizer.padding", "given", "packing fills sequences up by itself; remove it")
        for name in ("separator", "pad_token"):
            token = getattr(packing, name)
            if train is not None and token is not None and token not in (*train.tokens, *self.text.tokens):
                allowed = "must be one of tokenizer.train.special_tokens, which are " + ", ".join(train.tokens)
                raise mistake(f"output.packing.{name}", token, allowed)
        return self


class ConfigError(ValueError):
    """A config that cannot be used; `problems` holds one line per mistake."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


def load_config(path: str, overrides: Sequence[str] = (), job: Job | None = None) -> Config:
    """Reads a YAML config, applies overrides and checks all of it.

    Args:
      path: a local file of at most `MAX_CONFIG_BYTES`.
      overrides: `key.path=value`, the value read as YAML; later ones win. A null section is created on the way.
      job: also check that the config has what this job needs.

    Raises:
      ConfigError: naming every mistake, one line each: `key.path: value, what is allowed, the nearest valid name`.
    """
    tree = _read_yaml(path)
    problems: list[str] = []
    for override in overrides:
        problems += _apply_override(tree, override)
    problems += _missing_input(tree, job)
    if job is not None:
        problems += _missing_for_job(tree, job)
    try:
        config = Config.model_validate(tree)
    except ValidationError as error:
        problems += [_describe(details) for details in error.errors()]
    if problems:
        raise ConfigError(problems)
    return config


def json_schema() -> dict[str, Any]:
    """Returns the JSON Schema of a config file, for editors."""
    schema = Config.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "TokenMill config"}


def _missing_input(tree: dict[str, Any], job: Job | None) -> list[str]:
    """Returns what is missing of `input`, which only a training on counts that exist can do without."""
    section: Any = tree.get("tokenizer")
    train = section.get("train") if isinstance(section, dict) else None
    if isinstance(train, dict) and train.get("counts") is not None and job in (None, "train"):
        return []
    if "input" not in tree:
        return ["input: required but missing"]
    found = tree["input"]
    return ["input.paths: required but missing"] if isinstance(found, dict) and "paths" not in found else []


def _missing_for_job(tree: dict[str, Any], job: Job) -> list[str]:
    """Returns what `job` needs of `tokenizer.file` and `tokenizer.train` and the config, still unchecked, lacks."""
    section = tree.get("tokenizer")
    keys = {key for key, value in section.items() if value is not None} if isinstance(section, dict) else set()
    if keys >= {"file", "train"}:
        return ["tokenizer: both file and train are given; remove one, exactly one of them decides the vocabulary"]
    if job == "run" and not keys & {"file", "train"}:
        return ["tokenizer: give file, a tokenizer on disk, or train, a vocabulary to learn from the input"]
    if job == "train" and "train" not in keys:
        return ["tokenizer.train: required by the job train, for example `train: {vocab_size: 8000}`"]
    train = section.get("train") if isinstance(section, dict) else None
    if job == "run" and isinstance(train, dict):
        for key, is_several in (("vocab_size", isinstance(train.get("vocab_size"), list)), ("by", train.get("by"))):
            if is_several:
                return [f"tokenizer.train.{key}: makes several vocabularies, the job run tokenizes with one; use train"]
    if job == "tokenize" and "file" not in keys:
        instead = "; to train and tokenize in one go use the job run" if "train" in keys else ""
        return [f"tokenizer.file: required by the job tokenize{instead}"]
    return []


class _UniqueKeyLoader(yaml.SafeLoader):
    """yaml.safe_load that refuses a key written twice: YAML forbids it, PyYAML keeps the last and says nothing."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[Hashable, int] = {}
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            if isinstance(key, Hashable) and key in seen:
                raise ConfigError([f"line {line}: key {key!r} is given twice, first in line {seen[key]}"])
            if isinstance(key, Hashable):
                seen[key] = line
        return super().construct_mapping(node, deep)


def _parse_yaml(text: str) -> Any:
    return yaml.load(text, _UniqueKeyLoader)


def _read_yaml(path: str) -> dict[str, Any]:
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise ConfigError([f"{path}: cannot read the config: {error.strerror or error}"]) from error
    if len(data) > MAX_CONFIG_BYTES:
        raise ConfigError([f"{path}: too long for a config; at most {MAX_CONFIG_BYTES} bytes are allowed"])
    try:
        tree = _parse_yaml(data.decode("utf-8"))
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError([f"{path}: {_why_not_yaml(error)}"]) from error
    if not isinstance(tree, dict):
        found = "nothing" if tree is None else f"a {type(tree).__name__}"
        raise ConfigError([f"{path}: a config is a mapping with {_listed(Config.model_fields)}; found {found}"])
    return tree


def _why_not_yaml(error: Exception) -> str:
    if isinstance(error, ConfigError):
        return str(error)
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 text: byte {error.object[error.start]:#04x} at {error.start}"
    if isinstance(error, RecursionError):
        return "nested too deeply for a config"
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: not YAML: {error.problem}"
    return f"not YAML: {' '.join(str(error).split())}"


def _apply_override(tree: dict[str, Any], override: str) -> list[str]:
    """Writes one `key.path=value` into `tree`; returns what is wrong with it."""
    key, equals, text = override.partition("=")
    names = key.split(".")
    if not equals or not all(names):
        return [f"--set {override}: must look like key.path=value, for example tokenizer.oov=contain"]
    try:
        value = _parse_yaml(text)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        return [f"--set {override}: {_why_not_yaml(error)}; quote the value if it is plain text"]
    section: Any = tree
    for i, name in enumerate(names[:-1]):
        if section.get(name) is None:
            section[name] = {}
        section = section[name]
        if not isinstance(section, dict):
            return [f"--set {override}: {'.'.join(names[: i + 1])} is {_short(section)}, which has no keys"]
    section[names[-1]] = value
    return []


def _describe(details: ErrorDetails) -> str:
    """Returns one line for one of pydantic's errors: where, what was found, what is allowed, what may be meant."""
    location = [str(part) for part in details["loc"] if part not in (ONE, SEVERAL)]
    path = ".".join(location)
    context: dict[str, Any] = details.get("ctx", {})
    kind, value = details["type"], details["input"]
    if kind == "missing":
        return f"{path}: required but missing"
    if kind == "extra_forbidden":
        return _describe_unknown_key(location)
    if kind == "cross_check":
        return f"{'.'.join([*location, context['path']])}: {_short(context['value'])}: {context['allowed']}"
    if kind == "literal_error":
        allowed = re.findall(r"'([^']*)'", context["expected"])
        return f"{path}: {_short(value)}: allowed: {', '.join(allowed)}{did_you_mean(value, allowed)}"
    if kind == "list_type" and isinstance(value, str):
        return f"{path}: {_short(value)}: must be a list; write [{value!r}]"
    if kind == "model_type":
        return f"{path}: {_short(value)}: must be a section with the keys {_listed(_keys_of(location))}"
    return f"{path}: {_short(value)}: {_EXPECTED.get(kind, '').format(**context) or details['msg'].lower()}"


_EXPECTED = {
    "greater_than": "must be greater than {gt}",
    "less_than": "must be less than {lt}",
    "float_type": "must be a number",
    "int_type": "must be an integer",
    "int_from_float": "must be an integer",
    "bool_type": "must be true or false",
    "string_type": "must be text; quote it if it looks like something else",
    "string_too_short": "must not be empty",
    "list_type": "must be a list",
    "too_short": "must have at least {min_length} element",
    "too_long": "must have at most {max_length} element",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
}


def _describe_unknown_key(location: list[str]) -> str:
    path, name = ".".join(location), location[-1]
    siblings = _keys_of(location[:-1])
    if near := difflib.get_close_matches(name, siblings, n=1):
        return f"{path}: unknown key; did you mean {near[0]!r}? allowed: {_listed(siblings)}"
    if elsewhere := [key for key in _all_paths(Config) if key.rpartition(".")[2] == name]:
        return f"{path}: unknown key here; did you mean {elsewhere[0]!r}?"
    return f"{path}: unknown key; allowed: {_listed(siblings)}"


def _model_of(annotation: Any) -> type[Section] | None:
    """Returns the section class inside an annotation such as `TrainConfig | None`."""
    candidates = (annotation, *get_args(annotation))
    return next((c for c in candidates if isinstance(c, type) and issubclass(c, Section)), None)


def _keys_of(location: Sequence[str]) -> list[str]:
    """Returns the keys of the section at `location`; none when it is not a section."""
    model: type[Section] | None = Config
    for name in location:
        field = model.model_fields.get(name) if model else None
        model = _model_of(field.annotation) if field else None
    return list(model.model_fields) if model else []


def _all_paths(model: type[Section], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield prefix + name
        if section := _model_of(field.annotation):
            yield from _all_paths(section, f"{prefix}{name}.")


def _listed(names: Sequence[str] | dict[str, Any]) -> str:
    return ", ".join(names)


def _short(value: object) -> str:
    """Returns `repr(value)`, cut: a config may hold anything, a message stays one line."""
    shortener = reprlib.Repr()
    shortener.maxlevel = 3
    shortener.maxstring = shortener.maxother = 60
    text = shortener.repr(value).replace("\n", " ")
    return text if len(text) <= 120 else f"{text[:117]}..."
