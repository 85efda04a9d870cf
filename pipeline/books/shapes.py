# SPDX-License-Identifier: Apache-2.0
"""The shapes of the manifest, of `parts.json`, and of their records: what readers rely on, and no more names.

`json_files` checks files by them. What `verify` compares number by number need not be here.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, model_validator

from tokenmill.pipeline.books import quantities
from tokenmill.pipeline.books.json_files import (
    AnyJson,
    Count,
    FileName,
    Hash,
    PartName,
    TokenId,
    VocabularySize,
    shallow,
)
from tokenmill.pipeline.config.formats import FormatName

_IN_ROWS = frozenset({"packing", "windows", "has_field", "chat"})
_ALWAYS = frozenset({"n_records", "n_documents", "n_bytes", "n_tokens", "n_oov_tokens", "rejected", "filtered"})
_OF_A_FOLDER = _ALWAYS | {
    *(name for each in (*quantities.OF_INPUT, *quantities.OF_TOKENS) for name in (*each.left, *each.right)),
    *("n_splits", "n_chars", "n_words", "shard_rows", "shard_tokens", "shard_bytes", "reject_rows"),
}
"""The totals that readers rely on: of every job, and of one folder."""


def _by_name(counts: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, value in counts.items():
        if isinstance(value, dict) != (name in quantities.BY_NAME | _IN_ROWS):
            raise ValueError(f"{name!r} is {'one number' if isinstance(value, dict) else 'counted by name'} in no file")
    return counts


def _has(names: frozenset[str]) -> AfterValidator:
    def check(counts: Mapping[str, Any]) -> Mapping[str, Any]:
        if missing := names - {*counts}:
            raise ValueError(f"{min(missing)!r} is missing")
        return counts

    return AfterValidator(check)


Counts = Annotated[dict[str, Count | dict[str, Count]], AfterValidator(_by_name)]


_ABSENT: Any = None
"""The default of a key that may be absent, but not null."""


class _Open(BaseModel):
    model_config = ConfigDict(strict=True)


class _Closed(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class Input(_Closed):
    """The record of an input file."""

    name: str
    n_bytes: Count
    format: FormatName
    compression: str = _ABSENT
    sha256: str = _ABSENT
    read: Counts


class Counted(_Closed):
    """The record of an input file in `counts.json`."""

    name: str
    n_bytes: Count
    read: Counts = _ABSENT


class File(_Closed):
    """The record of a file."""

    file: FileName
    n_bytes: Count
    sha256: str
    rows: Count = _ABSENT
    tokens: Count = _ABSENT


class Written(File):
    """The record of a file of a split, or of a shard that was merged from several."""

    split: Hash = _ABSENT
    entry: Hash = _ABSENT


class Shard(Written):
    """The record of a file with rows."""

    rows: Count
    tokens: Count


RECORDS: Mapping[str, TypeAdapter[Any]] = {
    "inputs": TypeAdapter(Input),
    "counted": TypeAdapter(Counted),
    "shards": TypeAdapter(Shard),
    **{kind: TypeAdapter(Written) for kind in ("companions", "documents", "rejects")},
}
"""The shape of a record of each list."""


class _Tokenizer(_Open):
    digest: str
    vocab_size: VocabularySize | None = None
    unk_id: TokenId | None = None
    pad_id: TokenId | None = None
    special_ids: dict[str, TokenId] = {}


class _Padding(_Open):
    length: Annotated[int, Field(strict=True, ge=1, lt=1 << 31)]
    side: Literal["right", "left"]


class _Truncation(_Open):
    max_length: Annotated[int, Field(strict=True, ge=1)]
    stride: Annotated[int, Field(strict=True, ge=0)]


class _TokenizerConfig(_Open):
    padding: _Padding | None = None
    truncation: _Truncation | None = None


class _Packing(_Open):
    length: Annotated[int, Field(strict=True, ge=1, le=1 << 24)]


class _Shuffle(_Open):
    seed: Count


class _OutputConfig(_Open):
    format: str | list[str] = []
    packing: _Packing | None = None
    shuffle: _Shuffle | None = None


class _Config(_Open):
    """The sections that readers use themselves; `Config` checks them all where a job is done again."""

    input: dict[str, Any] = {}
    tokenizer: _TokenizerConfig = _TokenizerConfig()
    output: _OutputConfig = _OutputConfig()


class _Marks(_Closed):
    before: list[TokenId] = []
    prepend: list[TokenId] = []
    append: list[TokenId] = []
    after: list[TokenId] = []


class _Separators(_Open):
    separator_id: TokenId | None
    pad_id: TokenId | None


class _Sums(_Closed):
    """What `Sums.to_record` returns."""

    n_documents: Count
    n_tokens: Count
    n_oov_tokens: Count
    tokens: Hash
    doc_ids: Hash


class _Shuffled(_Open):
    splits: list[Hash]
    sums: _Sums


class Manifest(_Open):
    """What readers of a manifest rely on; it has more keys."""

    job: str
    job_digest: str
    config: Annotated[_Config, BeforeValidator(shallow)]
    versions: dict[str, str]
    unicode: dict[str, str]
    tokenizer: _Tokenizer | None
    kept: dict[str, str] = Field(alias="fields")
    inputs: list[Input] | File
    shards: list[Shard] | File
    companions: list[Written] | File
    documents: list[Written] | File
    rejects: list[Written] | File
    marks: _Marks | None
    packing: _Separators | None
    shuffle: _Shuffled | None
    files: list[File]
    totals: Annotated[Counts, _has(_OF_A_FOLDER)]
    by_source: dict[str, Counts] = {}
    balance: AnyJson

    @model_validator(mode="after")
    def _check_rows(self) -> Self:
        output, truncation = self.config.output, self.config.tokenizer.truncation
        if ("packing" in self.totals or self.packing is not None) and (output.packing is None or self.packing is None):
            raise ValueError("packing: rows are packed by config, packing and totals, or by none of them")
        if "windows" in self.totals and truncation is None:
            raise ValueError("config.tokenizer.truncation: missing, although totals count windows")
        if self.shards and self.tokenizer is None:
            raise ValueError("tokenizer: missing, although there are shards")
        of = "split" if self.shuffle is None else "entry"
        for kind, key in (("shards", of), ("companions", of), ("documents", of), ("rejects", "split")):
            records = getattr(self, kind)
            if isinstance(records, list) and any(getattr(record, key) is None for record in records):
                raise ValueError(f"{kind}: {key!r} is missing in a record")
        if self.shuffle is not None and output.shuffle is None:
            raise ValueError("config.output.shuffle: missing, although documents are shuffled")
        return self


class _Part(_Open):
    folder: PartName
    tokenizer: "_PartTokenizer"
    job_digest: str
    manifest: File
    totals: Annotated[Counts, _has(_ALWAYS)]


class _PartTokenizer(_Open):
    digest: str
    vocab_size: VocabularySize


class Parts(_Open):
    """What readers of `parts.json` rely on."""

    job: str
    job_digest: str
    versions: dict[str, str]
    parts: Annotated[list[_Part], Field(min_length=1)]
    files: list[File]
    totals: Annotated[Counts, _has(_ALWAYS)]
    balance: AnyJson
