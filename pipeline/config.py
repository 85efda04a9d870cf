# SPDX-License-Identifier: Apache-2.0
"""What a config may say: pydantic models, checked in themselves and against each other.

A config says *what* to compute; where and how to run it is said on the command line. Relative paths in a config
(`input.paths`, `tokenizer.file`, `output.path`) are relative to the working directory, exactly like a path typed into a
shell or given with `--set`, so that a value means the same wherever it is written down.

`config_file.load_config` reads them from a file. Nothing here touches the input, imports Beam or compiles anything.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from pipeline.language_config import LanguagesConfig
from pipeline.output_config import KEEPS_COLUMNS, ONE, OWN_COLUMNS, SEVERAL, OutputConfig
from pipeline.sections import NonEmpty, Section, attribute_docstrings, mistake
from pipeline.text_config import Spans, Steps, TextOptions
from pipeline.train_config import CountsConfig, TrainConfig

MIB = 1 << 20

JobName = Literal["run", "count", "train", "tokenize"]
"""The jobs that take a config."""

BYTE_TOKENS = tuple(f"<0x{byte:02X}>" for byte in range(256))
"""The vocabulary entries that the OOV policy `byte` emits."""


FIELD_TYPES = (
    *("bool", "string", "float", "double", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *(f"timestamp[{unit}]" for unit in ("s", "ms", "us", "ns")),
)
"""What fields of JSON lines may be declared to be; a list with one of these is a list, a mapping an object."""


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
        if each is not None:  # as if only the name were given
            _check_type(name, each)
    return declared


def _names_or_types(value: Any) -> str:
    return ONE if isinstance(value, dict) else SEVERAL


KeptFields = Annotated[
    Annotated[list[NonEmpty], Tag(SEVERAL)] | Annotated[dict[NonEmpty, Any], AfterValidator(_check_types), Tag(ONE)],
    Discriminator(_names_or_types),
]


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
    text_fields: list[NonEmpty] = []
    """Instead of `text_field`: several fields whose texts are joined, those that are absent or null left out."""
    join: str = "\n\n"
    """What stands between the texts of `text_fields`."""
    keep_fields: KeptFields = []
    """Fields that go with each document into the output, also inside of others, as in `meta.url`: their names, or
    names with types, as in `{url: string, score: double, tags: [string], meta: {lang: string}}`."""
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

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        for name in ("text_fields", "keep_fields"):
            paths = list(getattr(self, name))
            if paths and self.format == "text":
                raise mistake(name, paths, "format text has no fields")
            if len(set(paths)) < len(paths):
                raise mistake(name, paths, "must name each field once")
        # What is set is not asked for: a config that was written down whole sets everything.
        if self.text_fields and self.text_field != "text":
            raise mistake("text_fields", self.text_fields, "text_field is given too; remove one")
        if not self.text_fields and self.join != "\n\n":
            raise mistake("join", self.join, "joins text_fields, and there are none")
        return self


class TruncationConfig(Section):
    """Rows have at most `max_length` tokens; what is more is cut off, or becomes rows of its own."""

    max_length: Annotated[int, Field(ge=1)]
    """Tokens per row at most, special tokens included."""
    side: Literal["right", "left"] = "right"
    """The end that is cut off."""
    overflow: Literal["cut", "rows"] = "cut"
    """`rows` cuts nothing: a longer document becomes several rows, windows of at most `max_length` tokens."""
    stride: Annotated[int, Field(ge=0)] = 0
    """For `rows`: how many tokens neighbouring windows have in common."""
    warn_above: Annotated[float, Field(ge=0, le=1)] = 0.01
    """A warning is given where more than this share of the tokens was cut off; 1: never."""

    @model_validator(mode="after")
    def _check_overflow(self) -> Self:
        if self.overflow == "cut":
            if self.stride:
                raise mistake("stride", self.stride, "applies to overflow: rows; what is cut off is in no row")
            return self
        if self.side == "left":
            raise mistake("side", self.side, "windows hold all of a document, from its beginning; remove it")
        if self.stride >= self.max_length:
            raise mistake("stride", self.stride, f"must be less than max_length, which is {self.max_length}")
        return self


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
    pattern: str | None = None
    """For tiktoken's ranks: the name of the pattern that splits text, which the file does not say."""
    as_class: str | None = None
    """For files of `transformers` without a `tokenizer.json`: the class that reads them, where they do not say."""
    train: TrainConfig | None = None
    lowercase: bool | None = None
    """null: what the file says; for `vocab.txt` and for `train` with normalizer bert, true; for others false."""
    strip_accents: bool | None = None
    """null: what the file says, else as `lowercase`."""
    oov: Literal["word", "contain", "char", "byte"] | None = None
    """WordPiece only. What an unknown character costs: the word, itself, the word's pieces, or nothing; null: what the
    file says, for `train` the word."""
    add_special_tokens: bool = False
    """Frame every row as the tokenizer's template says, for BERT `[CLS] ... [SEP]`."""
    truncation: TruncationConfig | None = None
    padding: PaddingConfig | None = None

    @property
    def has_windows(self) -> bool:
        """Whether rows are windows of documents."""
        return self.truncation is not None and self.truncation.overflow == "rows"

    @model_validator(mode="after")
    def _check_file(self) -> Self:
        for name in ("pattern", "as_class"):
            if self.file is None and getattr(self, name) is not None:
                raise mistake(name, getattr(self, name), "says how `file` is read, which is not given")
        return self

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
        tokens, model = self.train.tokens, self.train.model
        for name in ("oov", "add_special_tokens"):
            if getattr(self, name) and model != "wordpiece":
                raise mistake(name, getattr(self, name), f"is for wordpiece, but train.model is {model!r}; remove it")
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
    def _check_kept_fields(self) -> Self:
        for name in self.input.keep_fields:
            if name in (*OWN_COLUMNS, *self.text.columns):
                raise mistake("input.keep_fields", name, "is a column of the output already")
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
        if self.output.packing is not None and self.tokenizer.padding is not None:
            raise mistake("tokenizer.padding", "given", "packing fills sequences up by itself; remove it")
        if self.output.packing is not None and self.tokenizer.has_windows:
            raise mistake(
                "tokenizer.truncation.overflow", "rows", "packing puts all of a document into sequences by itself"
            )
        return self

    @model_validator(mode="after")
    def _check_trained(self) -> Self:
        """Checks what is known of a tokenizer that is yet to be trained; of one that exists it is looked at itself."""
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
                allowed = "must be one of tokenizer.train.special_tokens, which are " + ", ".join(train.tokens)
                raise mistake(name, token, allowed)
        return self


def json_schema() -> dict[str, Any]:
    """Returns the JSON Schema of a config file, for editors."""
    schema = Config.model_json_schema()
    sections = {section.__name__: section for section in Section.__subclasses__()}
    for name, described in {Config.__name__: schema, **schema["$defs"]}.items():
        for key, text in attribute_docstrings(sections[name]).items():
            described["properties"][key]["description"] = text
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "TokenMill config"}
