# SPDX-License-Identifier: Apache-2.0
"""The section `output` of a config: what is written, in which formats, and how documents become rows."""

import math
import re
from typing import Annotated, Literal, get_args

from pydantic import Field, Tag

from tokenmill.pipeline.config.formats import SHARD_FORMATS, Format
from tokenmill.pipeline.config.sections import (
    ONE,
    ONE_OR_SEVERAL,
    SEVERAL,
    Broken,
    Natural,
    NonEmpty,
    PathText,
    Positive,
    Section,
)
from tokenmill.pipeline.config.text import DEFAULT, unknown_codes

VocabularyFormat = Literal["vocab.txt", "vocab.json", "tokenizer.model", "vocab.tiktoken"]
VOCABULARY_FORMATS: tuple[VocabularyFormat, ...] = get_args(VocabularyFormat)
"""Files besides `tokenizer.json` that can hold a tokenizer: those of WordPiece, BPE (with `merges.txt`), sentencepiece
and tiktoken."""

KEEPS_COLUMNS, KEEPS_LABELS, KEEPS_MASK, KEEPS_FIELDS = (
    tuple(name for name, each in SHARD_FORMATS.items() if what in each.keeps)
    for what in ("columns", "labels", "mask", "fields")
)
"""The formats of shards that keep these; see `ShardFormat.keeps`."""

OWN_COLUMNS = (
    *("doc_id", "input_ids", "tokens", "n_tokens", "n_oov", "documents", "segment_ids", "positions", "cu_seqlens"),
    *("document", "window", "input_file", "input_offset", "input_bytes", "rows", "starts", "span_sources"),
    *("loss_mask", "labels", "attention_mask", "position_ids", "seq_lengths", "seq_start_id"),
    *("loss_weights", "rejected_ids", "rejected_mask"),
)
"""Columns of shards and of tables of documents; kept fields cannot have these names. A test derives them from the
schemas, which a config does not import."""

MAX_PARTS = 32
"""Most parts of an output: a worker has a shard and a table of documents of each open at a time."""

TAKEN_NAMES = ("all", "counts", "documents", "rejected", "replay", "vocab")
"""Names that shares cannot have: readers of data sets take the first for all parts, and a job has folders of the
others, which a config does not import; a test compares them."""


class PartsConfig(Section):
    """Each document goes into one of several parts. A part is an output folder of its own."""

    by: NonEmpty | None = None
    """What decides: `lang`, the language of a document. With `shares` one of `input.keep_fields`, so that all documents
    with one value of it are in one part; null: the id. For the job `train` also `source`."""
    tokenizers: dict[NonEmpty, PathText] = {}
    """With `lang`: one for each language, instead of `tokenizer.file`; `default` is for all others and for rejects.
    Several may have the same file. The folders are `tokenizer=<language>/`."""
    train: bool = False
    """`tokenizer.train` trains a vocabulary for each part: for each of `counts.languages`, and for `default`. The job
    `train` writes one for each language, or source, of its counts."""
    shares: Annotated[dict[str, Annotated[float, Field(gt=0, lt=1)]], Field(max_length=MAX_PARTS)] = {}
    """`{train: 0.98, validation: 0.01, test: 0.01}`: the share of the documents in each part, which a hash decides. The
    folders have these names; the largest has all rejects."""
    only: NonEmpty | None = None
    """The one part to write, into `output.path` itself; null: all. A job writes this key for each of its folders."""

    def _broken(self) -> Broken:
        for name in self.shares:
            if not re.fullmatch("[a-z][a-z0-9_]{0,39}", name) or name in TAKEN_NAMES:
                allowed = "a name of at most 40 characters of a-z, 0-9 and _, the first a letter, as it names a folder"
                yield "shares", name, f"must be {allowed}, and not {', '.join(TAKEN_NAMES)}"
        total = math.fsum(self.shares.values())
        if self.shares and not math.isclose(total, 1, abs_tol=1e-9):
            yield "shares", self.shares, f"the shares must add up to 1, but their sum is {total:.10g}"
        for key in ("tokenizers", "train"):
            if getattr(self, key) and self.shares:
                yield key, getattr(self, key), "parts with shares have one tokenizer; remove one"
        if not self.shares and self.by not in (("lang", "source") if self.train else ("lang",)):
            yield "by", self.by, "must be lang, unless there are shares"
        if self.tokenizers and self.train:
            yield "tokenizers", self.tokenizers, "`train` makes the tokenizers; remove one"
        yield from unknown_codes("tokenizers", self.tokenizers, or_default=True)
        if self.tokenizers and DEFAULT not in self.tokenizers:
            yield "tokenizers", self.tokenizers, f"must have one for {DEFAULT!r}: other languages, rejects"

    @property
    def share(self) -> float:
        """The share of all documents that the folder is for."""
        return self.shares.get(self.only or "", 1.0)


class PackingConfig(Section):
    """Documents are packed into sequences of one length; nothing is dropped."""

    length: Annotated[int, Field(ge=1, le=1 << 24)]
    """Tokens per sequence."""
    strategy: Literal["concatenate", "best_fit", "no_split"] = "concatenate"
    """`concatenate` cuts wherever a sequence is full; the others cut only documents longer than a sequence. `no_split`
    keeps the order of documents; `best_fit` puts each into the sequence where it leaves the least room. Conversations
    are never split, and packed with `best_fit` unless it says `no_split`; `tokenizer.truncation` says what becomes of
    those longer than a sequence, which are cut without it."""
    boundaries: Annotated[list[Literal["segment_ids", "positions", "cu_seqlens"]], Field(min_length=1)] = ["cu_seqlens"]
    """Columns that say where documents begin in a sequence."""
    separator: NonEmpty | None = None
    """A token to put after every document and its `output.append`; for example `<|endoftext|>`."""
    incomplete: Literal["pad", "short"] = "pad"
    """Whether sequences with fewer tokens, such as the last one, are padded or kept short."""
    pad_token: NonEmpty | None = None
    """The token that fills sequences up; null: the tokenizer's padding token, else the separator."""

    def _broken(self) -> Broken:
        if len(set(self.boundaries)) < len(self.boundaries):
            yield "boundaries", self.boundaries, "must name each column once"
        if self.pad_token is not None and self.incomplete == "short":
            yield "pad_token", self.pad_token, "nothing is padded where incomplete is 'short'; remove one"


class FimConfig(Section):
    """Fill in the middle, for code: some documents are cut into prefix, middle and suffix; the middle is put last."""

    rate: Annotated[float, Field(gt=0, le=1)] = 0.5
    """The share of documents, chosen by hash."""
    mode: Literal["psm", "spm", "both"] = "both"
    """`psm`: prefix, suffix, middle; `spm`: suffix, prefix, middle; `both`: one half each."""
    level: Literal["character", "token"] = "character"
    """Where documents are cut: between characters, as an editor does, or between tokens."""
    seed: Natural = 0
    """Another seed chooses other documents and cuts."""
    prefix: NonEmpty | None = None
    """The token in front of the prefix; null: one that models use, such as `<|fim_prefix|>` or `<fim_prefix>`."""
    suffix: NonEmpty | None = None
    """The token in front of the suffix; null: as for `prefix`."""
    middle: NonEmpty | None = None
    """The token in front of the middle; null: as for `prefix`."""


class ShuffleConfig(Section):
    """Documents are written in the order of a hash of the seed, the name of their file and their offset in it."""

    seed: Natural = 0
    """Another seed gives another order."""
    shards: Annotated[int, Field(ge=1, le=1 << 20)] | None = None
    """How many shards are written; null: one for every 32 MiB of the stored input files. Each of `parts` has its
    share of them, at least one."""
    run_bytes: Annotated[int, Field(ge=1, le=1 << 30)] = 32 << 20
    """How many bytes a worker sorts at a time; it holds two to three times as many in memory. Shards do not depend on
    it."""


class OutputConfig(Section):
    """What is written and where."""

    path: PathText
    """A folder; created if it does not exist."""
    format: Annotated[
        Annotated[Format, Tag(ONE)] | Annotated[list[Format], Tag(SEVERAL), Field(min_length=1)], ONE_OR_SEVERAL
    ] = "parquet"
    """One format, or a list of several to write in one pass."""
    compression: Literal["auto", "none", "gzip", "zstd"] = "auto"
    """`auto`: zstd for Parquet, none for all others. TFRecord allows none, gzip; Parquet and Arrow allow none, zstd."""
    row_group_tokens: Positive = 4 << 20
    """Parquet: no row group holds more tokens than this, unless one document alone does."""
    prepend: NonEmpty | None = None
    """A token to put before every document."""
    append: NonEmpty | None = None
    """A token to put after every document, for example `<|endoftext|>`; `tokenizer.truncation` leaves room for it."""
    vocabulary: list[VocabularyFormat] | None = None
    """Files to write to `vocab/` besides `tokenizer.json`; null: every format that can represent the trained
    vocabulary; nothing if the tokenizer came from a file."""
    report: bool = True
    """Write `report.html`, one page about the whole job; `tokenmill report` can write it later, too."""
    parts: PartsConfig | None = None
    """Several folders, by language or by shares of the documents; null: one."""
    packing: PackingConfig | None = None
    """Rows are sequences of one length; null: rows are documents."""
    fim: FimConfig | None = None
    """Put the middle of some documents last, between tokens that say so; null: documents stay as they are."""
    labels: bool | None = None
    """Rows of conversations have `labels`, the ids with -100 where they are not trained; false: `loss_mask`, which
    trainers ignore unless they are told of it; null: `labels`, except in TFRecord, which has no negative numbers."""
    for_: Annotated[Literal["trl", "axolotl", "transformers", "megatron"] | None, Field(alias="for")] = None
    """Rows of conversations have the columns that this trainer reads: `labels` and, where it needs them,
    `attention_mask`, `position_ids` or `seq_lengths`; for Megatron Bridge `loss_mask`, one place to the left, and
    `seq_start_id`. Packed sequences are kept short, except for `transformers`."""
    shuffle: ShuffleConfig | None = None
    """Shuffle the documents of the whole input, or of each part; null: shards are in the order of the input, one per
    split."""

    @property
    def formats(self) -> tuple[Format, ...]:
        """The formats, in the order given."""
        return tuple(self.format) if isinstance(self.format, list) else (self.format,)

    def has_labels(self, format: Format) -> bool:
        """Whether rows of conversations have `labels` in a format, not a mask."""
        return self.for_ != "megatron" and (format in KEEPS_LABELS if self.labels is None else self.labels)

    def _broken(self) -> Broken:
        packing, for_ = self.packing, f"`for: {self.for_}`"
        for name in self.formats:
            if self.compression not in (allowed := SHARD_FORMATS[name].compressions):
                yield "compression", self.compression, f"{name} allows {', '.join(allowed)}"
        if len(set(self.formats)) < len(self.formats):
            yield "format", self.format, "must name each format once"
        if packing is not None and "tfrecord" in self.formats:
            known = ", ".join(name for name in SHARD_FORMATS if name != "tfrecord")
            yield "format", self.format, f"TFRecord holds documents only; packing allows {known}"
        keeps = ("parquet",) if self.for_ == "megatron" else KEEPS_COLUMNS
        if self.for_ is not None and (other := [name for name in self.formats if name not in keeps]):
            yield "format", other[0], f"{for_} needs {' or '.join(keeps)}"
        if self.for_ is not None and self.labels is not None and self.labels == (self.for_ == "megatron"):
            yield "labels", self.labels, f"{for_} decides it; remove one"
        if self.for_ is not None and packing is not None and "cu_seqlens" not in packing.boundaries:
            yield "packing.boundaries", packing.boundaries, f"{for_} needs cu_seqlens; add it"
        if self.append is not None and packing is not None and self.append == packing.separator:
            yield "append", self.append, "packing.separator puts it behind every document too; remove one"
