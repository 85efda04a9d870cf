# SPDX-License-Identifier: Apache-2.0
"""Languages of a job's documents: identified once per batch, filtered by named rules, counted."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline import schemas
from tokenmill.pipeline.books.counts import LANGUAGE, Counts
from tokenmill.pipeline.books.quantities import MIXED_LANGUAGES, OTHER_LANGUAGE
from tokenmill.pipeline.config.text import DEFAULT, LanguagesConfig
from tokenmill.pipeline.input.batches import ReadBatch
from tokenmill.tokenizer import unchecked_text_rows

if TYPE_CHECKING:
    from tokenmill.tokenizer.languages import Languages
    from tokenmill.tokenizer.text import PreparedText, TextTokenizer


def identify_languages(batch: ReadBatch, options: LanguagesConfig) -> ReadBatch:
    """Returns the batch with the columns of `schemas.LANGUAGES` in its documents; unchanged if they have them."""
    from tokenmill.tokenizer.languages import identify

    documents = batch.documents
    if "lang" in documents.schema.names:
        return batch
    found = identify(unchecked_text_rows(documents.column("text")), options.threshold)
    for name, column in zip(schemas.LANGUAGES.names, (found.codes, found.confidence, found.mixed), strict=True):
        documents = documents.append_column(name, pa.array(column) if isinstance(column, np.ndarray) else column)
    return dataclasses.replace(batch, documents=documents)


def tell_languages(batch: ReadBatch, options: LanguagesConfig) -> tuple[ReadBatch, Counts]:
    """Identifies the languages of a batch's documents and leaves out documents that the options do not want.

    Returns:
      The batch, its documents with the columns of `schemas.LANGUAGES`, and what is left out of each language.
    """
    left = identify_languages(batch, options)
    documents = left.documents.select(schemas.LANGUAGES.names)
    is_wanted = ~_is_in(documents, options.drop)
    if options.keep:
        is_wanted &= _is_in(documents, options.keep)
    is_mixed = is_wanted & documents.column("lang_mixed").to_numpy(zero_copy_only=False) & options.drop_mixed
    gone = {OTHER_LANGUAGE: ~is_wanted, MIXED_LANGUAGES: is_mixed}
    filtered = documents.column("lang").filter(pa.array(np.logical_or.reduce([*gone.values()])))
    counts = Counts()
    counts.add_by(LANGUAGE, filtered, filtered=np.ones(len(filtered), np.int64))
    return left.leave_out(gone), counts


def _is_in(documents: pa.RecordBatch, codes: Sequence[str]) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.is_in(documents.column("lang"), pa.array(codes, pa.string())).to_numpy(zero_copy_only=False))


def labels(chosen: Sequence[str]) -> list[tuple[str]]:
    """Returns the labels that counts by language have, in the order of the numbers in the column `lang`.

    Args:
      chosen: the languages that have one of their own; empty: all.
    """
    from tokenmill.tokenizer.languages import language_codes

    return [(code if code in chosen or not chosen else DEFAULT,) for code in language_codes()]


def prepare(before: "TextTokenizer", documents: pa.RecordBatch) -> "PreparedText":
    """Returns documents after spans and steps, and after the steps of their languages if these are identified."""
    text = unchecked_text_rows(documents.column("text"))
    if "lang" not in documents.schema.names:
        return before.prepare(text)
    from tokenmill.tokenizer.languages import LanguageTextTokenizer

    if not isinstance(before, LanguageTextTokenizer):
        raise TypeError("documents whose languages are told go through a LanguageTextTokenizer")
    return before.prepare(text, languages_of(documents))


def languages_of(documents: pa.RecordBatch) -> "Languages":
    """Returns the language columns that `tell_languages` has added to documents."""
    from tokenmill.tokenizer.languages import Languages

    codes, confidence, mixed = (documents.column(name) for name in schemas.LANGUAGES.names)
    return Languages(codes, confidence.to_numpy(), mixed.to_numpy(zero_copy_only=False))
