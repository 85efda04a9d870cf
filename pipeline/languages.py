# SPDX-License-Identifier: Apache-2.0
"""Languages of documents in a job: told once per batch, filtered by named rules, counted."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schemas
from pipeline.readers import ReadBatch
from pipeline.text_config import LanguageOptions

if TYPE_CHECKING:
    from tokenizer.languages import Languages
    from tokenizer.text import PreparedText, TextTokenizer

OTHER_LANGUAGE, MIXED_LANGUAGES = "language", "mixed_languages"
"""What the ledger calls documents that `keep` and `drop` leave out, and those that `drop_mixed` does."""


def tell_languages(batch: ReadBatch, options: LanguageOptions) -> tuple[ReadBatch, "LanguageCounts"]:
    """Tells the languages of the documents of a batch and leaves out those that the options do not want.

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
    """Returns documents after spans and steps, those of their languages where these have been told."""
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


_COUNTED = ("documents", "mixed", "bytes", "characters", "tokens", "oov_tokens", "filtered")


@dataclass(frozen=True)
class LanguageCounts:
    """What each language has: sums of counts are counts."""

    languages: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By code: documents, those that are mixed, bytes and characters of their texts after steps and spans, tokens,
    unknown tokens; and documents that a filter left out, which are in no other number."""

    def __add__(self, other: Self) -> Self:
        sums = {code: dict(counts) for code, counts in self.languages.items()}
        for code, counts in other.languages.items():
            ours = sums.setdefault(code, dict.fromkeys(_COUNTED, 0))
            for name, n in counts.items():
                ours[name] += n
        return dataclasses.replace(self, languages=sums)

    @classmethod
    def of(cls, rows: pa.RecordBatch, **counts: npt.NDArray[np.int64]) -> Self:
        """Returns the counts of documents: of each number in `counts`, int64[n], the sum by language."""
        codes = rows.column("lang")
        numbers = codes.indices.to_numpy(zero_copy_only=False)
        names = codes.dictionary.to_pylist()
        sums: dict[str, dict[str, int]] = {}
        for number in np.unique(numbers).tolist():
            mine = numbers == number
            sums[names[number]] = dict.fromkeys(_COUNTED, 0) | {n: int(c[mine].sum()) for n, c in counts.items()}
        return cls(sums)

    def to_json(self) -> str:
        """Returns this as JSON; the same text for equal counts."""
        return json.dumps(self.languages, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Returns what `to_json` made `text` of.

        Raises:
          ValueError: if it is something else.
        """
        found = json.loads(text)
        if not isinstance(found, dict) or any(set(counts) != set(_COUNTED) for counts in found.values()):
            raise ValueError(f"not counts of languages: {text[:60]!r}")
        return cls(found)

    def summary(self) -> dict[str, Any]:
        """Returns what a person wants to know, for stats.json: the languages with most documents first."""
        ordered = sorted(self.languages.items(), key=lambda item: (-item[1]["documents"], item[0]))
        return {
            code: {
                **counts,
                "bytes_per_token": counts["bytes"] / counts["tokens"] if counts["tokens"] else None,
                "share_of_oov_tokens": counts["oov_tokens"] / counts["tokens"] if counts["tokens"] else None,
            }
            for code, counts in ordered
        }
