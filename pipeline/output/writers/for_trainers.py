# SPDX-License-Identifier: Apache-2.0
"""Columns that trainers read: made of a row when it is stored; checked, and taken away again, when it is read.

In memory a row of a conversation has `schemas.LOSS_MASK`. A shard has `schemas.LABELS` in its place, and what
`output.for` adds: what trainers would else have to be told, and do not compute themselves.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import schemas
from tokenmill.pipeline.columns import ragged
from tokenmill.pipeline.config.output import Format, OutputConfig

_COLUMNS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    # A batch of TRL has an attention mask of ones, unless `padding_free`, where it takes positions from lengths.
    "trl": ((), ("seq_lengths",)),
    # Axolotl takes rows without `attention_mask` for texts to be tokenized.
    "axolotl": (("attention_mask",), ("attention_mask", "position_ids")),
    # With an attention mask, models of transformers would look across conversations.
    "transformers": (("attention_mask",), ("position_ids",)),
    # `GPTSFTPackedParquetDataset` of Megatron Bridge; a row that is one conversation is a short pack.
    "megatron": (("seq_start_id",), ("seq_start_id",)),
}
"""For each value of `output.for`: columns of rows that are conversations, and of packed ones."""


def stored_schema(schema: pa.Schema, output: OutputConfig, format: Format) -> pa.Schema:
    """Returns the schema of the rows of conversations in a shard; other rows are stored as they are.

    Args:
      schema: of the rows in memory, without kept fields.
      output: whether there are labels, and for whom.
      format: that of the shard.
    """
    if schemas.LOSS_MASK.name not in schema.names:
        return schema
    names = [name for name in schema.names if name != schemas.LOSS_MASK.name]
    added = _COLUMNS[output.for_][output.packing is not None] if output.for_ is not None else ()
    trained = schemas.LABELS if output.has_labels(format) else schemas.LOSS_MASK
    return schemas.rows([*names, trained.name, *added])


def stored(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Returns rows as a shard with this schema has them."""
    columns = [
        rows.column(field.name)
        if field.name in rows.schema.names and field != schemas.NEXT_MASK
        else _make(rows, field.name)
        for field in schema
    ]
    return pa.record_batch(columns, schema=schema)


def loaded(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Returns stored rows as they are in memory.

    Raises:
      ValueError: if a column is not what `stored` makes of the others.
    """
    if schemas.LABELS.name in rows.schema.names:
        rows = schemas.masked(rows)
    elif schemas.NEXT_MASK in rows.schema:
        at, (values, offsets) = rows.schema.get_field_index(schemas.NEXT_MASK.name), ragged(rows.column("loss_mask"))
        mask = np.roll(values.astype(np.bool_), 1)
        mask[offsets[:-1][np.diff(offsets) > 0]] = False
        masks = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(mask), type=schemas.LOSS_MASK.type)
        made = rows.set_column(at, schemas.LOSS_MASK, masks)
        if not _make(made, schemas.NEXT_MASK.name).equals(rows.column(at)):
            raise ValueError("loss_mask is not 0 and 1, with 0 for the last id of a row")
        rows = made
    for name in {*schemas.FOR_TRAINERS.names} & {*rows.schema.names}:
        if not any(_make(rows, name, is_left=is_left).equals(rows.column(name)) for is_left in (False, True)):
            raise ValueError(f"{name} is not what the ids of the rows, and where conversations begin in them, give")
        rows = rows.drop_columns([name])
    return rows


def _make(rows: pa.RecordBatch, name: str, *, is_left: bool = False) -> pa.LargeListArray:
    """Returns a stored column of rows; `is_left` is whether padding is in front."""
    if name == schemas.LABELS.name:
        return schemas.labelled(rows).column(name)
    if name == schemas.NEXT_MASK.name:
        mask, offsets = ragged(rows.column(name).cast(pa.large_list(pa.int8())))
        after = np.append(mask[1:], 0)
        after[offsets[1:][np.diff(offsets) > 0] - 1] = 0
        return _lists(after, offsets)
    ids, offsets = ragged(rows.column("input_ids"))
    lengths, n_tokens = np.diff(offsets), rows.column("n_tokens").to_numpy().astype(np.int64)
    if name == "attention_mask":
        first = lengths - n_tokens if is_left else np.zeros_like(lengths)
        place = np.arange(ids.size) - np.repeat(offsets[:-1], lengths)
        return _lists((place >= np.repeat(first, lengths)) & (place < np.repeat(first + n_tokens, lengths)), offsets)
    bounds, at = np.stack([np.zeros_like(n_tokens), n_tokens], axis=1).reshape(-1), 2 * np.arange(lengths.size + 1)
    if "cu_seqlens" in rows.schema.names:
        bounds, at = ragged(rows.column("cu_seqlens"))
    if (np.diff(at) < 2).any() or (bounds[at[:-1]] != 0).any():
        raise ValueError("cu_seqlens are not where conversations begin and end")
    is_last = np.zeros(bounds.size, np.bool_)
    is_last[at[1:] - 1] = True
    if name == "position_ids":  # the padding of a row counts as another conversation
        begins = (bounds + np.repeat(offsets[:-1], np.diff(at)))[bounds < np.repeat(lengths, np.diff(at))]
        places = np.arange(ids.size)
        return _lists(places - begins[np.searchsorted(begins, places, side="right") - 1], offsets)
    values = np.diff(bounds, append=0) if name == "seq_lengths" else bounds
    return _lists(values[~is_last], at - np.arange(at.size))


def _lists(values: np.ndarray, offsets: np.ndarray) -> pa.LargeListArray:
    made = pa.array(values.astype(np.int32))
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), made, type=schemas.NEXT_MASK.type)
