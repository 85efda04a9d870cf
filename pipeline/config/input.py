# SPDX-License-Identifier: Apache-2.0
"""The section `input` of a config: which files are read, in which format, and how much of them."""

import codecs
import fnmatch
import glob
import re
from collections.abc import Callable, Collection, Mapping
from encodings import aliases
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, PrivateAttr, Tag, model_validator
from pydantic_core import PydanticCustomError

from tokenmill.pipeline.config.formats import FORMATS, FormatName, formats_with
from tokenmill.pipeline.config.sections import (
    ONE,
    SEVERAL,
    Broken,
    Natural,
    NonEmpty,
    PathText,
    Positive,
    Section,
    did_you_mean,
    mistake,
)
from tokenmill.pipeline.config.text import Role

MIB = 1 << 20
LIMITS = ("max_rejected", "max_rejected_fraction", "max_rejected_per_file", "on_damage")
"""Keys that stop a job or warn, but change no byte of a job that finishes: it may be resumed with other values."""
PLACES: Any = {
    **dict.fromkeys(("paths", "exclude", *LIMITS), True),
    "sources": {"__all__": {"paths", "exclude", *LIMITS}},
}
"""For `exclude` of `InputConfig.model_dump`: the limits and the paths, with those of the sources."""
NO_LIMITS = {"max_rejected": None, "max_rejected_fraction": None, "max_rejected_per_file": 1.0, "on_damage": "warn"}
"""Values of these keys with which rejects never stop a job."""
FIELD_TYPES = (
    *("bool", "string", "float", "double", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *(f"timestamp[{unit}]" for unit in ("s", "ms", "us", "ns")),
)
"""Types that fields of JSON lines may be declared with; `[type]` declares a list, `{name: type}` an object."""


def _check_type(path: str, declared: Any) -> None:
    if isinstance(declared, list) and len(declared) == 1:
        _check_type(path, declared[0])
    elif isinstance(declared, dict) and declared:
        for name, each in declared.items():
            _check_type(f"{path}.{name}", each)
    elif declared not in FIELD_TYPES:
        allowed = ", ".join(FIELD_TYPES)
        raise mistake(path, declared, f"a type is one of {allowed}; or [type] for a list, {{name: type}} for an object")


def _check_types(declared: dict[str, Any]) -> dict[str, Any]:
    for name, each in declared.items():
        if each is not None:  # None: a name without a type
            _check_type(name, each)
    return declared


def _names_or_types(value: Any) -> str:
    return ONE if isinstance(value, dict) else SEVERAL


KeptFields = Annotated[
    Annotated[list[NonEmpty], Tag(SEVERAL)] | Annotated[dict[NonEmpty, Any], AfterValidator(_check_types), Tag(ONE)],
    Discriminator(_names_or_types),
]


_NOT_OF_FILES = ("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape")


def _is_encoding(name: str) -> bool:
    """Returns whether Python has a codec of this name that decodes bytes to text, as files of text need it."""
    try:
        b" ".decode(name, "ignore")  # of an empty text, Python does not look at the name
        return codecs.lookup(name).name not in _NOT_OF_FILES
    except (LookupError, ValueError):
        return False


def _check_encoding(name: str) -> str:
    if name != "auto" and not _is_encoding(name):
        known = (each.replace("_", "-") for each in (*aliases.aliases, *aliases.aliases.values()) if _is_encoding(each))
        allowed = "must be auto, or one of Python's encodings of text, such as utf-8, utf-16, cp1252 or gb18030"
        raise PydanticCustomError("refused", "{allowed}", {"allowed": f"{allowed}{did_you_mean(name, known)}"})
    return name


def _check_delimiter(character: str) -> str:
    if len(character) != 1 or not character.isascii() or character in '"\r\n\0':
        raise PydanticCustomError("refused", "{allowed}", {"allowed": "must be one ASCII character, and no quote"})
    return character


SOURCE = "source"
"""The field that the documents of a job with `sources` have."""
_CHAT_KEYS = ("chat_fields", "chat_roles")
_TEXT_KEYS = ("text_field", "text_fields", "messages_field")


class SourceConfig(Section):
    """Some files, and how documents are found in them."""

    paths: Annotated[list[PathText], Field(min_length=1)] = []
    """Files or glob patterns, local or on a store (`s3://`, `gs://`, `abfs://`, `hdfs://`). A local
    folder stands for the files below it that have the name of a known format."""
    exclude: list[PathText] = []
    """Files of `paths` to leave out: paths as messages show them, or patterns of these, in which `*` also stands for
    folders. `corpus/a.zip!/b.txt` is a file in an archive."""
    format: Literal["auto", FormatName] = "auto"
    """`auto` decides per file by its name without the compression suffix; of `.json`, by what it begins with."""
    compression: Literal["auto", "none", "gzip", "zstd", "bz2", "xz"] = "auto"
    """`auto` decides per file by its first bytes."""
    encoding: Annotated[str, AfterValidator(_check_encoding)] = "utf-8"
    """For all but `wet`, `parquet` and `arrow`: by Python's name, such as `utf-16`, `latin-1`, `cp1252`, `gb18030` or
    `shift_jis`; `auto` takes that of the byte order mark, without one UTF-8. A file that looks like another encoding is
    refused."""
    delimiter: Annotated[str, AfterValidator(_check_delimiter)] | None = None
    """For `csv` and `tsv`: the character between two cells; null: a comma, or a tab."""
    document: Literal["line", "file", "blank_line"] = "line"
    """For `text`: a document per line, per file (as for source code and Markdown), or separated by blank lines."""
    text_field: NonEmpty = "text"
    """For all but `text`: the field that holds the text. `content.text` is the field of that name, or the field
    `text` in `content`; where `content` is a list, the texts of all its parts, joined by `join`."""
    messages_field: NonEmpty | None = None
    """Instead of `text_field`, for JSON, Parquet and Arrow: a record is a conversation. Its messages are in this field,
    or in another of the usual shapes; the section `chat` says how it becomes tokens and what of it is trained."""
    chat_fields: dict[NonEmpty, NonEmpty | None] = {}
    """For conversations: fields of records and messages that mean one of the usual ones, as in `{speaker: role}`, or
    null: nothing. `meta.turns` is a nested one."""
    chat_roles: dict[NonEmpty, Role] = {}
    """For conversations: roles that mean one of the usual ones, as in `{bot: assistant}`."""
    id_field: NonEmpty | None = "id"
    """The field that holds the document's id; `meta.id` names a nested one. Where it is absent or null the id is
    `name:offset`; if the field is another than `id`, documents without it are warned of."""
    text_fields: list[NonEmpty] = []
    """Instead of `text_field`: several fields whose texts are joined; absent and null ones are left out."""
    join: str = "\n\n"
    """The text put between the texts of `text_fields`, and between the parts of a nested field."""
    max_document_bytes: Annotated[int, Field(ge=1, le=1 << 30)] = 64 * MIB
    """Longer records are rejected with the reason `too_large`."""
    max_rejected: Natural | None = None
    """The job stops when more records than this are rejected; null: never. You can raise it and resume the job."""
    max_rejected_fraction: Annotated[float, Field(ge=0, le=1)] | None = None
    """The same limit as a share of the records read, checked from 10,000 records on, and at the end; at the end also as
    a share of the bytes read."""
    max_rejected_per_file: Annotated[float, Field(ge=0, le=1)] = 0.05
    """A file counts as damaged if a larger share than this of its records, or of its bytes, is rejected; 1: never."""
    on_damage: Literal["fail", "warn"] = "fail"
    """What happens if files cannot be read, are truncated, corrupt, or lose more than `max_rejected_per_file`. `fail`
    names them, those that cannot be read at all before any work, all others at the end; you can correct them, or set
    `warn`, and resume the job. `warn` names them and goes on; a file that cannot be read is one reject."""
    sample: Annotated[float, Field(gt=0, le=1)] | None = None
    """The fraction of the documents to use, chosen by hash; null: all. A smaller sample is part of a larger one."""

    def _broken(self) -> Broken:
        fields = type(self).model_fields
        for key in sorted(_not_of(self.format) & {*fields}) if self.format != "auto" else ():
            if (value := getattr(self, key)) != fields[key].default:
                yield key, value, f"applies to {', '.join(formats_with(key))}, but format is {self.format!r}"
        yield from _named_twice("text_fields", self.text_fields)
        if self.messages_field is not None and (self.text_fields or self.text_field != "text"):
            yield "messages_field", self.messages_field, "text_field or text_fields is given too; remove one"
        for key in _CHAT_KEYS:
            if self.messages_field is None and getattr(self, key):
                yield key, getattr(self, key), "is for conversations: set messages_field"
        # A key with its default value does not count as given: a config may have been written out with every key.
        if self.text_fields and self.text_field != "text":
            yield "text_fields", self.text_fields, "text_field is given too; remove one"
        if not self.text_fields and "." not in self.text_field and self.join != "\n\n":
            yield "join", self.join, "joins text_fields, or the parts of a nested text_field; there are none"


class InputConfig(SourceConfig):
    """Where documents come from, and how they are found in a file."""

    keep_fields: KeptFields = []
    """Fields to store with each document; `meta.url` names a nested one. Either a list of names, or a mapping of names
    to types, as in `{url: string, score: double, tags: [string], meta: {lang: string}}`. Folders called `lang=en` give
    the field `lang`."""
    split_bytes: Positive = 32 * MIB
    """Large uncompressed files are cut into splits at multiples of this; small files are grouped up to it."""
    sample_seed: Natural = 0
    """Another seed chooses another sample."""
    sources: dict[NonEmpty, SourceConfig] = {}
    """Instead of `paths`: files that are read in different ways, by a name for each source. A source has `paths`, and
    any of the keys above but `keep_fields`, `split_bytes` and `sample_seed`; those that it has not are taken from
    `input`. Names of files begin with that of their source, and so do ids made of them; each document has it as
    the field `source`."""
    _source: str = PrivateAttr("")

    @model_validator(mode="before")
    @classmethod
    def _complete_sources(cls, given: Any) -> object:
        sources = given.get("sources") if isinstance(given, dict) else None
        if not isinstance(sources, dict):
            return given
        complete = {
            name: {**_defaults(given, source), **source} if isinstance(source, dict) else source
            for name, source in sources.items()
        }
        return {**given, "sources": complete}

    def _broken(self) -> Broken:
        if not self.sources:  # else the keys beside them are defaults, each where it applies
            yield from super()._broken()
        yield from _named_twice("keep_fields", self.keep_fields)
        for name in self.sources:
            if not re.fullmatch(r"[\w-]{1,64}", name):
                yield f"sources.{name}", name, "must be a name of 1 to 64 letters, digits, _ and -: it begins ids"
        if self.sources and self.paths:
            yield "paths", self.paths, "sources have paths of their own; make a source of these, or remove them"
        if self.sources and SOURCE in self.keep_fields:
            yield "keep_fields", SOURCE, "is the name of the source, which documents have with input.sources"
        is_chat = any(source.messages_field is not None for source in self.sources.values())
        for name, source in self.sources.items():
            if not source.paths:
                yield f"sources.{name}.paths", [], "required but missing"
            if is_chat and source.messages_field is None:
                needed = "is needed by all sources of a job, or by none; make a job of conversations, and one of texts"
                yield f"sources.{name}.messages_field", None, needed

    def excluder(self) -> Callable[[str], list[str]]:
        """Returns a function that gives the entries of `exclude` that a path matches; make it once for many paths."""
        literals = frozenset(self.exclude)  # a path may have the characters of a pattern
        patterns = [(each, re.compile(fnmatch.translate(each)).match) for each in self.exclude if glob.has_magic(each)]
        return lambda path: [*({path} & literals), *(each for each, matches in patterns if matches(path))]

    def of(self, source: str) -> "InputConfig":
        """Returns the section for the files of one source; itself if there are none, or it is that of one already."""
        if source not in self.sources:
            return self
        found = self.model_copy(update={**dict(self.sources[source]), "sources": {}})
        found._source = source
        return found

    def of_file(self, name: str) -> "InputConfig":
        """Returns the section for a file, by its name in document ids."""
        return self.of(name.partition("/")[0])

    @property
    def by_source(self) -> "dict[str, InputConfig]":
        """The section for each source, by its name, in order; for "" if there are no sources."""
        return {name: self.of(name) for name in sorted(self.sources)} or {"": self}

    @property
    def source(self) -> str:
        """The source that this is the section of, as `of` returns it; "" if it is of no one."""
        return self._source

    @property
    def own_id_field(self) -> str | None:
        """The field of ids that the config names; None where it is the usual one, which files need not have."""
        return None if self.id_field == SourceConfig.model_fields["id_field"].default else self.id_field

    @property
    def where(self) -> str:
        """The path of this section in a config."""
        return f"input.sources.{self._source}" if self._source else "input"

    @property
    def all_paths(self) -> list[str]:
        """The paths of all sources."""
        return [path for section in self.by_source.values() for path in section.paths]

    @property
    def is_chat(self) -> bool:
        """Whether documents are conversations."""
        return any(section.messages_field is not None for section in self.by_source.values())

    def with_all(self, **values: Any) -> "InputConfig":
        """Returns the section with other values of keys, also in each source."""
        sources = {name: source.model_copy(update=values) for name, source in self.sources.items()}
        return self.model_copy(update={**values, "sources": sources})


def _named_twice(key: str, fields: Collection[str]) -> Broken:
    if len(set(fields)) < len(fields):
        yield key, list(fields), "must name each field once"


def _not_of(format_: str) -> set[str]:
    """Returns the keys that apply to other formats, but not to this one."""
    return {key for each in FORMATS.values() for key in each.keys} - FORMATS[format_].keys


def _defaults(section: Mapping[str, Any], source: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keys beside `sources` that apply to a source, and that it has not."""
    found = {key: section[key] for key in SourceConfig.model_fields if key in section and key not in (*source, "paths")}
    if any(source.get(key) for key in _TEXT_KEYS):
        found = {key: value for key, value in found.items() if key not in _TEXT_KEYS}
    complete = {**found, **source}
    if not complete.get("text_fields") and "." not in str(complete.get("text_field")):
        found.pop("join", None)
    other = _not_of(complete["format"]) if str(complete.get("format")) in FORMATS else ()
    return {key: value for key, value in found.items() if key not in other}
