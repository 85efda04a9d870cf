# SPDX-License-Identifier: Apache-2.0
"""Config files: YAML in, checked models out; every mistake is reported at once.

`load_config` reads a file, applies `key=value` overrides and raises one `ConfigError` that names every mistake by its
path, with the value, what is allowed and the nearest valid name.
"""

import copy
import difflib
import itertools
import os
import re
import reprlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from tokenmill.pipeline.config.job import Config, JobName, lacking
from tokenmill.pipeline.config.sections import EXPAND, ONE, SEVERAL, ConfigError, Section, did_you_mean
from tokenmill.pipeline.config.text import ChatConfig, with_template

MAX_CONFIG_BYTES = 1 << 20
"""A larger file is refused unread: it is probably data that was given by mistake."""

MAX_CONFIG_NODES = 200_000
"""The most keys and values of a config. What an alias stands for counts wherever it stands: a few lines could otherwise
mean more than memory holds."""
_MAX_DIGITS = 400
"""The longest number; the largest of 64 bits take about 330 characters, written out."""


_Section = TypeVar("_Section", bound=Section)
ConfigSource = str | os.PathLike[str] | Mapping[str, Any]
"""The path of a YAML file, or what such a file holds, as dicts and lists."""


def load_config(source: ConfigSource, overrides: Sequence[str] = (), job: JobName | None = None) -> Config:
    """Reads a YAML config, applies overrides and checks all of it.

    Args:
      source: a local file of at most `MAX_CONFIG_BYTES`, or what such a file holds.
      overrides: `key.path=value`, the value read as YAML; later ones win. A missing or null section is created.
      job: check that the config has what this job needs, too; None: do not.

    Raises:
      ConfigError: naming every mistake, one line each: `key.path: value, what is allowed, the nearest valid name`.
    """
    tree = copy.deepcopy(dict(source)) if isinstance(source, Mapping) else _read_yaml(os.fspath(source))
    problems: list[str] = []
    for override in overrides:
        problems += _apply_override(tree, override)
    config = validated(tree, job, problems, EXPAND)
    if (parts := config.output.parts) is not None and parts.only is not None:
        config = config.for_part(parts.only, config.output.path)
    if not config.input.is_chat:
        return config
    chat = with_template(config.chat or ChatConfig(), config.tokenizer.file)
    return config.model_copy(update={"chat": chat}).packing_whole_conversations()


def validated(
    tree: Mapping[str, Any], job: JobName | None = None, problems: Sequence[str] = (), context: Any = None
) -> Config:
    """Returns the config that a tree is; `problems` are those that it has already, `context` is pydantic's.

    Raises:
      ConfigError: as `load_config`.
    """
    problems = list(problems)
    try:
        config = Config.model_validate(tree, context=context)
        problems += lacking(config, job)
    except ValidationError as error:
        problems += itertools.chain.from_iterable(map(_describe, error.errors()))
    if problems:
        raise ConfigError(problems)
    return config


def section(model: type[_Section], path: str, keys: object, step: str) -> _Section:
    """Returns a section of a config, of what somebody gives to a step of a pipeline of their own.

    Args:
      model: the class of the section.
      path: where a config has it, for messages, as `tokenizer.train`; "": it is the arguments of the step.
      keys: its keys, or the section itself.
      step: the name of the step.

    Raises:
      ConfigError: naming every mistake, as `load_config`.
    """
    try:
        return model.model_validate(keys)
    except ValidationError as error:
        above = tuple(filter(None, path.split(".")))
        problems = itertools.chain.from_iterable(_describe({**e, "loc": (*above, *e["loc"])}) for e in error.errors())
        raise ConfigError([f"{step}: {problem}" for problem in problems]) from None


class _UniqueKeyLoader(yaml.SafeLoader):
    """A safe loader that refuses a key given twice: YAML forbids that, but PyYAML silently keeps the last one."""

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

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        _check_number(node)
        return super().construct_yaml_int(node)

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        _check_number(node)
        return super().construct_yaml_float(node)


for _kind in ("int", "float"):
    _UniqueKeyLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", getattr(_UniqueKeyLoader, f"construct_yaml_{_kind}"))


def _check_number(node: yaml.ScalarNode) -> None:
    """Raises a ConfigError for a number that takes long to read: in base 60, as YAML 1.1 has it, or of many digits."""
    if ":" in node.value or len(node.value) > _MAX_DIGITS:
        line = node.start_mark.line + 1
        raise ConfigError([f"line {line}: {_short(node.value)} would be a number in base 60, or of too many digits"])


def _parse_yaml(text: str) -> object:
    loader = _UniqueKeyLoader(text)
    try:
        node = loader.get_single_node()
        _count_nodes(node, {})
        return None if node is None else loader.construct_document(node)
    except (LookupError, AttributeError, ArithmeticError, TypeError) as error:  # of PyYAML's, for `!!int ''` and others
        raise ValueError(f"a value does not fit its tag: {error}") from error
    finally:
        loader.dispose()


def _count_nodes(node: yaml.Node | None, known: dict[int, int]) -> int:
    """Returns how many nodes a document has; `known` has those that were counted, by `id`.

    Raises:
      ConfigError: if there are too many, or one contains itself.
    """
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) not in known:
        known[id(node)] = MAX_CONFIG_NODES  # until it is counted, so that one which contains itself has too many
        children = itertools.chain.from_iterable(node.value) if isinstance(node, yaml.MappingNode) else node.value
        known[id(node)] = 1 + sum(_count_nodes(child, known) for child in children)
    if known[id(node)] > MAX_CONFIG_NODES:
        line, most = node.start_mark.line + 1, f"{MAX_CONFIG_NODES:,}"
        raise ConfigError([f"line {line}: with its aliases, more than {most} keys and values; write fewer out"])
    return known[id(node)]


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
        return [f"--set {override:.200}: must look like key.path=value, for example tokenizer.oov=contain"]
    try:
        value = _parse_yaml(text)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        return [f"--set {override:.200}: {_why_not_yaml(error)}; quote the value if it is plain text"]
    section: Any = tree
    for i, name in enumerate(names[:-1]):
        if section.get(name) is None:
            section[name] = {}
        section = section[name]
        if not isinstance(section, dict):
            return [f"--set {override:.200}: {'.'.join(names[: i + 1])} is {_short(section)}, which has no keys"]
    section[names[-1]] = value
    return []


def _describe(details: ErrorDetails) -> Iterator[str]:
    """Yields one of pydantic's errors as a line, or the mistakes between sections that are one error, each as one."""
    if details["type"] != "cross_check":
        yield _line(details)
        return
    location = [str(part) for part in details["loc"] if part not in (ONE, SEVERAL, "[key]")]
    for context in (details["ctx"], *details["ctx"].get("others", ())):
        path = ".".join(filter(None, [*location, context["path"]]))
        value = context["value"]
        yield f"{path}: {context['allowed']}" if value is ... else f"{path}: {_short(value)}: {context['allowed']}"


def _line(details: ErrorDetails) -> str:
    """Returns an error as a line: where, what was found, what is allowed, the nearest valid name."""
    location = [str(part) for part in details["loc"] if part not in (ONE, SEVERAL, "[key]")]
    path = ".".join(location)
    context: dict[str, Any] = details.get("ctx", {})
    kind, value = details["type"], details["input"]
    if kind == "missing":
        return f"{path}: required but missing"
    if kind == "extra_forbidden":
        return _describe_unknown_key(location)
    if kind == "literal_error":
        allowed = re.findall(r"'([^']*)'", context["expected"])
        return f"{path}: {_short(value)}: allowed: {', '.join(allowed)}{did_you_mean(value, allowed)}"
    if kind == "list_type" and isinstance(value, str):
        return f"{path}: {_short(value)}: must be a list; write [{_short(value)}]"
    if kind == "model_type":
        return f"{path}: {_short(value)}: must be a section with the keys {_listed(_keys_of(location))}"
    expected = _EXPECTED.get(kind, "").format(**context) or details["msg"].lower()
    if value is None:
        expected = f"{expected.partition(';')[0]}; leave the key out for its default"
    return f"{path}: {_short(value)}: {expected}{_number_meant(value) if kind in ('int_type', 'float_type') else ''}"


def _number_meant(value: Any) -> str:
    """Returns the end of a message that says which number a text such as '32MB' or '1%' means; or ''."""
    match = (
        re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?([%kmg]?)(i?)b?", value.lower()) if type(value) is str else None
    )
    if match is None:
        return ""
    number, unit, is_binary = match.groups()
    factor = 0.01 if unit == "%" else (1024 if is_binary else 1000) ** " kmg".index(unit or " ")
    return f"; write {float(number) * factor:.15g}"


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
    "dict_type": "must be a section",
    "too_short": "must have at least {min_length} element",
    "too_long": "must have at most {max_length} element",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "refused": "{allowed}",
}


_INSTEAD = {
    "tokenizer.by": "output.parts: {by: lang}",
    "tokenizer.files": "output.parts.tokenizers",
    "tokenizer.train.byte_level": "tokenizer.train.model: byte_level_bpe",
    "tokenizer.train.by": "output.parts: {by: lang, train: true}",
    "output.partition_by": "output.parts: {by: lang}",
    "output.splits": "output.parts.shares",
    "output.split_by": "output.parts.by",
    "output.part": "output.parts.only",
    "languages.partition": "output.parts.only",
    "input.files": "input.paths",
    "input.glob": "input.paths",
    "output.overwrite": "--overwrite behind the command",
    "output.resume": "--resume behind the command",
}
"""Keys that there were, or that are called otherwise than elsewhere, and what to write."""


def _describe_unknown_key(location: list[str]) -> str:
    path, name = ".".join(location), location[-1]
    if path in _INSTEAD:
        return f"{path}: unknown key; write {_INSTEAD[path]} instead"
    *above, _ = location
    siblings = {".".join([*above, key]): key for key in _keys_of(above)}
    alike: dict[str, float] = {}
    for key in dict.fromkeys([*siblings, *_all_paths(Config)]):
        nearness = _HERE if key in siblings else _SAME_SECTION if [key.split(".")[0]] == above[:1] else 0.0
        alike[key] = difflib.SequenceMatcher(None, name.lower(), key.rpartition(".")[2]).ratio() + nearness
    best = max(alike, key=lambda key: alike[key])
    if alike[best] < _ALIKE:
        return f"{path}: unknown key; allowed: {_listed([*siblings.values()])}"
    if best in siblings:
        return f"{path}: unknown key; did you mean {siblings[best]!r}? allowed: {_listed([*siblings.values()])}"
    return f"{path}: unknown key here; did you mean {best!r}?"


_HERE, _SAME_SECTION, _ALIKE = 0.15, 0.1, 0.75
"""How much more a key counts that is where the unknown one was written, or in the same main section; and the least."""


def _model_of(annotation: Any) -> type[Section] | None:
    """Returns the section class inside an annotation such as `TrainConfig | None`."""
    candidates = (annotation, *get_args(annotation))
    return next((c for c in candidates if isinstance(c, type) and issubclass(c, Section)), None)


def _is_mapping(annotation: Any) -> bool:
    return get_origin(annotation) is dict


def _keys_of(location: Sequence[str]) -> list[str]:
    """Returns the keys of the section at `location`; none when it is not a section."""
    model: type[Section] | None = Config
    names = iter(location)
    for name in names:
        field = next((each for key, each in _fields(model) if key == name), None) if model else None
        model = _model_of(field.annotation) if field else None
        if field and _is_mapping(field.annotation):
            next(names, None)  # the name of one section of several
    return [key for key, _ in _fields(model)] if model else []


def _fields(model: type[Section]) -> list[tuple[str, FieldInfo]]:
    """Returns the keys of a section with what is known of them; `for` is no name in Python."""
    return [(field.alias or name, field) for name, field in model.model_fields.items()]


def _all_paths(model: type[Section], prefix: str = "") -> Iterator[str]:
    for name, field in _fields(model):
        yield prefix + name
        if (section := _model_of(field.annotation)) and not _is_mapping(field.annotation):
            yield from _all_paths(section, f"{prefix}{name}.")


def _listed(names: Sequence[str] | dict[str, Any]) -> str:
    return ", ".join(names)


def _short(value: object) -> str:
    """Returns `repr(value)`, shortened: a config may hold anything, but a message stays one line."""
    if value is None or isinstance(value, bool):
        return str(yaml.safe_dump(value)).split()[0]  # as a config has it
    shortener = reprlib.Repr()
    shortener.maxlevel = 3
    shortener.maxstring = shortener.maxother = 60
    text = shortener.repr(value).replace("\n", " ")
    return text if len(text) <= 120 else f"{text[:117]}..."
