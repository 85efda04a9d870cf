# SPDX-License-Identifier: Apache-2.0
"""Which part of `output.splits` has a document, and what a job for one part leaves out.

A part is a range of a hash: of the document's id, or of a field where `output.split_by` names one. So it depends on
nothing but that value and the shares: not on other documents, on the order of files or on where they are cut. The
ranges are in the order of the names, and not of the config.
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
from tokenmill.pipeline.books.rules import OTHER_PARTITION
from tokenmill.pipeline.books.sums import hash_texts
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.config.output import OutputConfig, largest
from tokenmill.pipeline.input.batches import ReadBatch
from tokenmill.pipeline.input.languages import identify_languages
from tokenmill.pipeline.statistics.languages import LanguageCounts

PART = "part"
"""The column that `label` adds: the index of a document's part among the names, sorted."""


def part_of(values: pa.Array, splits: Mapping[str, float]) -> npt.NDArray[np.int64]:
    """Returns int64[n]: the index of the part that has each value, among the sorted names of the parts.

    Args:
      values: string[n], no nulls.
      splits: the share of each part, by its name.
    """
    shares = (Fraction(splits[name]) for name in sorted(splits)[:-1])
    # The last one has the rest, whatever the sum of the shares is rounded to.
    limits = np.array([min(int(share * (1 << 64)), (1 << 64) - 1) for share in itertools.accumulate(shares)], np.uint64)
    return np.searchsorted(limits, hash_texts(values), side="right")


def label(batch: ReadBatch, config: Config) -> ReadBatch:
    """Returns the batch with the columns that decide which folder has a document; unchanged if it has them.

    They are the same for all folders of a job, and found once.
    """
    if config.text.languages is not None:
        batch = identify_languages(batch, config.text.languages)
    documents, output = batch.documents, config.output
    if not output.splits or PART in documents.schema.names:
        return batch
    values = documents.column("doc_id")
    if output.split_by is not None:
        field = documents.column(schemas.FIELDS).field(output.split_by)
        values = pc.coalesce(field.cast(pa.string()), values)
    found = pa.array(part_of(values, output.splits))
    return dataclasses.replace(batch, documents=documents.append_column(PART, found))


def leave_out_others(batch: ReadBatch, output: OutputConfig) -> tuple[ReadBatch, LanguageCounts]:
    """Leaves out what belongs to other parts than that of a job: documents, and rejects but for the largest part.

    Args:
      batch: as `label` returns it.
      output: the section of a job for one part.

    Returns:
      The rest of the batch, and the languages of the documents that are left out, if they are identified.
    """
    assert output.part is not None
    documents, counts = batch.documents, LanguageCounts()
    is_other = documents.column(PART).to_numpy() != sorted(output.splits).index(output.part)
    if "lang" in documents.schema.names:
        codes = documents.column("lang").filter(pa.array(is_other))
        counts = LanguageCounts.of(codes, filtered=np.ones(len(codes), np.int64))
    if output.part != largest(output.splits):
        batch = batch.leave_out_rejects(OTHER_PARTITION)
    return batch.leave_out({OTHER_PARTITION: is_other}), counts


def check_field(fields: pa.Schema, name: str) -> None:
    """Raises ValueError if the kept field that `output.split_by` names is neither text nor an integer."""
    kind = fields.field(name).type
    if not (pa.types.is_string(kind) or pa.types.is_integer(kind)):
        raise ValueError(f"output.split_by: {name!r} is {kind} in the input; must be text or an integer")
