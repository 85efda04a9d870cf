# SPDX-License-Identifier: Apache-2.0
"""Every Arrow schema that crosses a stage or reaches disk, with units."""

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

SHARD_FORMAT_VERSION = 1
"""The version of the format of shards; written into every Parquet shard and into the manifest."""

DOCUMENTS = pa.schema(
    [
        pa.field("doc_id", pa.string(), nullable=False),
        # Valid UTF-8, never null; at most `input.max_document_bytes` bytes.
        pa.field("text", pa.string(), nullable=False),
        # Index into `Split.pieces`: which file the document came from.
        pa.field("piece", pa.int32(), nullable=False),
        # First byte of the record in the decompressed file; for Parquet, the row number in the file.
        pa.field("offset", pa.int64(), nullable=False),
        # Bytes the record takes in the decompressed file, line end included; for Parquet, bytes of the text.
        pa.field("n_bytes", pa.int64(), nullable=False),
    ]
)
"""What readers produce: one row per usable document, in the order of the file."""

PLACES = pa.schema(
    [
        # Index into `inputs` of the manifest.
        pa.field("input_file", pa.int32(), nullable=False),
        # `offset` and `n_bytes` of DOCUMENTS.
        pa.field("input_offset", pa.int64(), nullable=False),
        pa.field("input_bytes", pa.int64(), nullable=False),
    ]
)
"""Columns that say where a document came from; they travel with its tokens to the shard's table of documents."""


FIELDS = "fields"
"""The struct column that holds the kept fields, if there are any, so that their names clash with no other column."""


def with_fields(schema: pa.Schema, fields: pa.Schema | pa.StructType) -> pa.Schema:
    """Returns a schema of documents, or of rows on their way to a writer, with `FIELDS` added if there are fields."""
    kept = pa.struct([field.remove_metadata() for field in fields])
    if not kept.num_fields:
        return schema
    return pa.schema([*schema, pa.field(FIELDS, kept, nullable=False)])


def placed(schema: pa.Schema, fields: pa.Schema = pa.schema([])) -> pa.Schema:  # noqa: B008
    """Returns a schema of rows with `PLACES` and kept fields added."""
    return with_fields(pa.schema([*schema, *PLACES]), fields)


_SEGMENTS = pa.schema(
    [
        # The rows that hold the document, in its order, and where in each of them its tokens begin.
        pa.field("rows", pa.list_(pa.field("element", pa.int64(), nullable=False)), nullable=False),
        pa.field("starts", pa.list_(pa.field("element", pa.int32(), nullable=False)), nullable=False),
    ]
)


def listed_documents(*, has_segments: bool, fields: Iterable[pa.Field] = ()) -> pa.Schema:
    """Returns the schema of a shard's table of documents: one row per document, in the order of the shard.

    Args:
      has_segments: whether rows are packed sequences or windows. If not, row i of the shard is document i.
      fields: the kept fields.
    """
    own = [DOCUMENTS.field("doc_id"), *PLACES, pa.field("n_tokens", pa.int32(), nullable=False)]
    return pa.schema([*own, *(_SEGMENTS if has_segments else ()), *fields])


REJECTS = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),  # path of the file as planned
        pa.field("offset", pa.int64(), nullable=False),  # as in DOCUMENTS
        pa.field("n_bytes", pa.int64(), nullable=False),  # as in DOCUMENTS
        pa.field("reason", pa.string(), nullable=False),  # one of `rejects.REASONS`
        pa.field("detail", pa.string(), nullable=False),  # what was found, for a person
        pa.field("sample", pa.binary(), nullable=False),  # first 1024 bytes of the record
    ]
)
"""Documents that could not be used, each with a reason."""

TOKENS = pa.schema(
    [
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("input_ids", pa.large_list(pa.field("element", pa.int32(), nullable=False)), nullable=False),
        # Tokens in the row before padding, special tokens included.
        pa.field("n_tokens", pa.int32(), nullable=False),
        # How many of them are the unknown token.
        pa.field("n_oov", pa.int32(), nullable=False),
    ]
)
"""Tokenized rows on their way to a writer; Parquet shards store exactly these columns."""

SPAN_SOURCES = pa.field("span_sources", pa.large_list(pa.field("element", pa.string())), nullable=False)
"""The texts of a row's spans in order, null for spans that do not keep them. This column follows those of TOKENS if a
span of the config has `keep_source`."""

LOSS_MASK = pa.field("loss_mask", pa.large_list(pa.field("element", pa.bool_(), nullable=False)), nullable=False)
"""For each id of a row whether it is trained, where documents are conversations. False for a row's first token, which
nothing before it predicts, and for padding. This column follows those of TOKENS."""

LABELS = pa.field("labels", pa.large_list(pa.field("element", pa.int32(), nullable=False)), nullable=False)
"""What shards have in place of `LOSS_MASK` with `output.labels`: the ids that are trained, and `IGNORED` elsewhere."""
IGNORED = -100
"""The label of what is not trained; the default of PyTorch's cross entropy."""


def labelled(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Returns rows with `LABELS` in place of `LOSS_MASK`."""
    at, ids, mask = rows.schema.get_field_index(LOSS_MASK.name), rows.column("input_ids"), rows.column(LOSS_MASK.name)
    (ids, mask), offsets = (each.flatten() for each in (ids, mask)), ids.offsets
    values = pc.if_else(mask, ids, pa.scalar(IGNORED, pa.int32()))
    labels = pa.LargeListArray.from_arrays(pc.subtract(offsets, offsets[0]), values, type=LABELS.type)
    return rows.set_column(at, LABELS, labels)


def masked(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Returns rows with `LOSS_MASK` in place of `LABELS`.

    Raises:
      ValueError: if a label is neither the id at its place nor `IGNORED`.
    """
    at, ids, labels = rows.schema.get_field_index(LABELS.name), rows.column("input_ids"), rows.column(LABELS.name)
    mask = pc.not_equal(labels.flatten(), IGNORED)
    masks = pa.LargeListArray.from_arrays(pc.subtract(labels.offsets, labels.offsets[0]), mask, type=LOSS_MASK.type)
    found = rows.set_column(at, LOSS_MASK, masks)
    if len(ids.flatten()) == len(mask) and not labelled(found).column(LABELS.name).equals(labels):
        raise ValueError(f"a label is neither the id at its place nor {IGNORED}")
    return found


_INTEGERS = pa.large_list(pa.field("element", pa.int32(), nullable=False))
NEXT_MASK = pa.field("loss_mask", _INTEGERS, nullable=False)
"""What shards for Megatron have in place of `LOSS_MASK`: for each id 1 if the one behind it is trained, else 0."""
FOR_TRAINERS = pa.schema(
    [
        # 1 for a token, 0 for padding.
        pa.field("attention_mask", _INTEGERS, nullable=False),
        # From 0 in each conversation of a packed sequence, and in its padding.
        pa.field("position_ids", _INTEGERS, nullable=False),
        # The tokens of each conversation of a packed sequence, and where each begins.
        pa.field("seq_lengths", _INTEGERS, nullable=False),
        pa.field("seq_start_id", _INTEGERS, nullable=False),
    ]
)
"""Columns that `output.for` adds to the rows of a shard, behind those that say what is trained."""


def _trained(names: Sequence[str]) -> list[pa.Field]:
    """Returns the fields among `names` that say what is trained, and those of `FOR_TRAINERS`."""
    mask = NEXT_MASK if "seq_start_id" in names else LOSS_MASK
    return [field for field in (mask, LABELS, *FOR_TRAINERS) if field.name in names]


MADE = pa.schema(
    [
        # What each token of a conversation counts in the loss: `chat.weights`.
        pa.field("loss_weights", pa.list_(pa.float32())),
        # The rejected side of the pair whose chosen side the row is, and which tokens of it are trained: `chat.pairs`.
        pa.field("rejected_ids", pa.list_(pa.int32())),
        pa.field("rejected_mask", pa.list_(pa.bool_())),
    ]
)
"""Fields that go with documents as kept ones do, but are made by the job and not read from its input."""


BOUNDARIES = ("segment_ids", "positions", "cu_seqlens")
"""Columns that say where documents begin in a packed sequence, in the order in which they are stored."""


def packed(boundaries: Sequence[str]) -> pa.Schema:
    """Returns the schema of packed sequences: several documents in a row.

    A segment is the part of a document that a sequence holds, its separator included.

    Args:
      boundaries: names from `BOUNDARIES` and `FOR_TRAINERS`, and that of `LOSS_MASK` or `LABELS`, each at most once; in
        any order.
    """
    fields = [
        pa.field("input_ids", pa.large_list(pa.field("element", pa.int32(), nullable=False)), nullable=False),
        # Tokens in the row, separators included, padding not.
        pa.field("n_tokens", pa.int32(), nullable=False),
        # For each segment the number of its document in the shard, counted from 0.
        pa.field("documents", pa.large_list(pa.field("element", pa.int64(), nullable=False)), nullable=False),
        # Per token: segment_ids 1, 2, ... and 0 for padding; positions from 0 in each segment, 0 for padding.
        # Per segment: cu_seqlens, where each begins, and after the last where it ends.
        *(
            pa.field(name, pa.large_list(pa.field("element", pa.int32(), nullable=False)), nullable=False)
            for name in BOUNDARIES
            if name in boundaries
        ),
        *_trained(boundaries),
    ]
    return pa.schema(fields)


WINDOWS = pa.schema(
    [
        # Number of the row's document in the shard, counted from 0.
        pa.field("document", pa.int64(), nullable=False),
        # Number of the row among those of its document, counted from 0.
        pa.field("window", pa.int32(), nullable=False),
    ]
)
"""Columns of rows that are windows of documents."""


def windowed(schema: pa.Schema) -> pa.Schema:
    """Returns the schema of windows of documents: `WINDOWS` follow the columns of `TOKENS`."""
    return pa.schema([*TOKENS, *WINDOWS, *(field for field in schema if field.name not in TOKENS.names)])


def rows(names: Iterable[str], fields: Iterable[pa.Field] = ()) -> pa.Schema:
    """Returns the schema of the rows of a shard that has these columns: packed sequences, or `TOKENS` and more.

    Args:
      names: the names of the columns, without `fields`.
      fields: the kept fields, which come last; only if rows are documents.
    """
    names = list(names)
    if "documents" in names:
        return packed(names)
    if "window" in names:
        return windowed(rows(name for name in names if name not in WINDOWS.names))
    added = [*_trained(names), *([SPAN_SOURCES] if SPAN_SOURCES.name in names else [])]
    languages = LANGUAGES if LANGUAGES.names[0] in names else []
    return pa.schema([*TOKENS, *added, *languages, *fields])


def stored_rows(found: pa.Schema) -> pa.Schema:
    """Returns the schema of the rows of a shard that has the columns `found`; nullable ones are kept fields."""
    return rows((field.name for field in found if not field.nullable), (field for field in found if field.nullable))


LANGUAGES = pa.schema(
    [
        # ISO 639 code, `und` where it cannot be identified.
        pa.field("lang", pa.string(), nullable=False),
        pa.field("lang_confidence", pa.float32(), nullable=False),
        pa.field("lang_mixed", pa.bool_(), nullable=False),
    ]
)
"""The last columns of rows, if the config has `languages`."""

WORD_COUNTS = pa.schema(
    [
        # UTF-8 bytes of a normalized pre-token.
        pa.field("word", pa.large_binary(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
    ]
)
"""Distinct words with how often each occurred; tables are ordered by word bytes."""
