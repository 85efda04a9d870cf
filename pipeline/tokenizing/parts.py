# SPDX-License-Identifier: Apache-2.0
"""Which part of the output a document belongs to, and what the folder of one part leaves out.

By shares, a part is a range of a hash: of the document's id, or of a field where `output.parts.by` names one. So it
depends on nothing but that value and the shares: not on other documents, on the order of files or on where they are
cut. The ranges are in the order of the names, and not of the config.
"""

import dataclasses
import itertools
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline import schemas
from tokenmill.pipeline.books.counts import LANGUAGE, Counts
from tokenmill.pipeline.books.quantities import OTHER_PART
from tokenmill.pipeline.books.sums import hash_texts
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.input.batches import ReadBatch
from tokenmill.pipeline.input.languages import identify_languages

PART = "part"
"""The column that `label` adds: the name of a document's part."""


def part_of(values: pa.Array, shares: Mapping[str, float]) -> npt.NDArray[np.int64]:
    """Returns int64[n]: the index of the part that has each value, among the sorted names of the parts.

    Args:
      values: string[n], no nulls.
      shares: the share of each part, by its name.
    """
    exact = (Fraction(shares[name]) for name in sorted(shares)[:-1])
    # The last one has the rest, whatever the sum of the shares is rounded to.
    limits = np.array([min(int(share * (1 << 64)), (1 << 64) - 1) for share in itertools.accumulate(exact)], np.uint64)
    return np.searchsorted(limits, hash_texts(values), side="right")


def label(batch: ReadBatch, config: Config) -> ReadBatch:
    """Returns the batch with the columns that decide which part has a document; unchanged if it has them.

    They are the same for all folders of a job, and found once.
    """
    if config.text.languages is not None:
        batch = identify_languages(batch, config.text.languages)
    documents, parts = batch.documents, config.output.parts
    if parts is None or PART in documents.schema.names:
        return batch
    if parts.shares:
        values = documents.column("doc_id")
        if parts.by is not None:
            field = documents.column(schemas.FIELDS).field(parts.by)
            values = pc.coalesce(field.cast(pa.string()), values)
        found = pa.array(sorted(parts.shares)).take(pa.array(part_of(values, parts.shares)))
    else:
        first, *others = config.part_names
        codes = documents.column("lang")
        found = pc.if_else(pc.is_in(codes, pa.array(others, pa.string())), codes, first)
    return dataclasses.replace(batch, documents=documents.append_column(PART, found))


def leave_out_others(batch: ReadBatch, config: Config) -> tuple[ReadBatch, Counts]:
    """Leaves out what belongs to other parts than that of a job: documents, and rejects except for the first part.

    Rules come first, so that they leave out the same in every part.

    Args:
      batch: what the rules of `languages` have left.
      config: the config of a job for one part.

    Returns:
      The rest of the batch, and what is left out of each language, if they are identified.
    """
    batch, counts, parts = label(batch, config), Counts(), config.output.parts
    assert parts is not None
    is_other = pc.not_equal(batch.documents.column(PART), parts.only)
    if "lang" in batch.documents.schema.names:
        codes = batch.documents.column("lang").filter(is_other)
        counts.add_by(LANGUAGE, codes, filtered=np.ones(len(codes), np.int64))
    if parts.only != config.part_names[0]:
        batch = batch.leave_out_rejects(OTHER_PART)
    return batch.leave_out({OTHER_PART: is_other.to_numpy(zero_copy_only=False)}), counts


def check_field(fields: pa.Schema, name: str) -> None:
    """Raises ValueError if the kept field that `output.parts.by` names is neither text nor an integer."""
    kind = fields.field(name).type
    if not (pa.types.is_string(kind) or pa.types.is_integer(kind)):
        raise ValueError(f"output.parts.by: {name!r} is {kind} in the input; must be text or an integer")
