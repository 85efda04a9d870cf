# SPDX-License-Identifier: Apache-2.0
"""Languages of documents in a job: identified once per batch, filtered by named rules, counted."""

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schemas
from pipeline.config.text import LanguageOptions
from pipeline.input.batches import ReadBatch
from pipeline.statistics.languages import LanguageCounts

if TYPE_CHECKING:
    from tokenizer.languages import Languages
    from tokenizer.text import PreparedText, TextTokenizer

OTHER_LANGUAGE, MIXED_LANGUAGES = "language", "mixed_languages"
"""The ledger's names for documents that `keep` and `drop` leave out, and for those that `drop_mixed` leaves out."""


def tell_languages(batch: ReadBatch, options: LanguageOptions) -> tuple[ReadBatch, "LanguageCounts"]:
    """Identifies the languages of a batch's documents and leaves out documents that the options do not want.

    Returns:
      The batch, its documents with the columns of `schemas.LANGUAGES`, and what was left out.
    """
    from tokenizer.languages import identify

    documents = batch.documents
    found = identify(documents.column("text"), options.threshold)
    for name, column in zip(schemas.LANGUAGES.names, (found.codes, found.confidence, found.mixed), strict=True):
        documents = documents.append_column(name, pa.array(column) if isinstance(column, np.ndarray) else column)
    wanted = pc.invert(pc.is_in(found.codes, pa.array(options.drop, pa.string())))
    if options.keep:
        wanted = pc.and_(wanted, pc.is_in(found.codes, pa.array(options.keep, pa.string())))
    is_wanted = wanted.to_numpy(zero_copy_only=False)
    is_mixed = found.mixed & options.drop_mixed
    left = dataclasses.replace(batch, documents=documents).leave_out(is_wanted, OTHER_LANGUAGE)
    left = left.leave_out(~is_mixed[is_wanted], MIXED_LANGUAGES)
    gone = documents.filter(pa.array(~is_wanted | is_mixed))
    return left, LanguageCounts.of(gone, filtered=np.ones(gone.num_rows, np.int64))


def labels() -> list[tuple[str]]:
    """Returns the labels that counts by language may have, in the order of the numbers in the column `lang`."""
    from tokenizer.languages import language_codes

    return [(code,) for code in language_codes()]


def prepare(before: "TextTokenizer", documents: pa.RecordBatch) -> "PreparedText":
    """Returns documents after spans and steps, the steps of their languages too if these are known."""
    text = documents.column("text")
    if "lang" not in documents.schema.names:
        return before.prepare(text)
    from tokenizer.languages import LanguageTextTokenizer

    if not isinstance(before, LanguageTextTokenizer):
        raise TypeError("documents whose languages are told go through a LanguageTextTokenizer")
    return before.prepare(text, languages_of(documents))


def languages_of(documents: pa.RecordBatch) -> "Languages":
    """Returns the languages that `tell_languages` has put beside documents."""
    from tokenizer.languages import Languages

    codes, confidence, mixed = (documents.column(name) for name in schemas.LANGUAGES.names)
    return Languages(codes, confidence.to_numpy(), mixed.to_numpy(zero_copy_only=False))
